"""Self-play of a two-player game on two workers of Ray; every trial is recorded, and learnt from when it ends."""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import trio

import ray
import trio_cogment.rl as tc
from trio_cogment import open_platform
from trio_cogment.ray import workers
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.spaces import decode_action

MOVES = 3
ROUNDS = 15
#: How many trials are learnt from before the next version of the policy is stored.
VERSION_TRIALS = 20
RATE = 0.003
#: How much of its habits a policy forgets with each trial: without it, rock, paper and scissors follow one another.
FORGOTTEN = 0.03


def chances(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def load(data: bytes) -> Any:
    """Make a policy of a stored version; each worker does it once for each version."""
    probabilities, rng = chances(np.frombuffer(data)), np.random.default_rng()
    return lambda _observation: int(rng.choice(MOVES, p=probabilities))


async def learn(logits: np.ndarray, samples: Any) -> None:
    """Follow the policy gradient of one trial, from its recorded samples."""
    async for sample in samples:
        for actor in sample.actors.values():
            if actor.action is not None and actor.reward:
                gradient = -chances(logits)
                gradient[decode_action(actor.action)] += 1
                logits += RATE * actor.reward * gradient
    logits *= 1 - FORGOTTEN


async def main(store: str, trials: int, costs: bool) -> None:
    address = ray.util.get_node_ip_address()
    with tempfile.TemporaryDirectory() as folder:
        # A storage that many processes can write to is the workers' own; else they record at this process.
        own = store or f"sqlite:{folder}/trials.db"
        async with (
            open_platform(tc.RL_SPEC, store=own, model_registry=Path(folder, "models")) as platform,
            trio.open_nursery() as nursery,
        ):
            running = await nursery.start(serve, platform.services, await open_listeners(address))
            endpoint = f"grpc://{address}:{running.port}"
            registry, datastore = platform.model_registry_client(), platform.datastore_client()
            logits = np.array([2.0, 0.0, 0.0])
            await registry.store("player", logits.tobytes())
            versions, recorded = 1, 0
            began, spent = time.perf_counter(), time.process_time()
            async with tc.open_run(
                trials,
                on=workers(2),
                environment="rps_v2",
                arguments={"max_cycles": ROUNDS},
                # The newest version plays against itself.
                seats={"player_0": tc.model("player@-1", load), "player_1": tc.model("player@-1", load)},
                store=store or endpoint,
                model_registry=endpoint,
                parallel=8,
                retries=2,
            ) as run:
                async for result in run:
                    if not result.failed:
                        await learn(logits, datastore.samples(result.trial_id))
                        recorded += 1
                        if recorded % VERSION_TRIALS == 0:
                            await registry.store("player", logits.tobytes())
                            versions += 1
                seconds, spent = time.perf_counter() - began, time.process_time() - spent
            nursery.cancel_scope.cancel()
    print(f"{recorded} trials recorded and learnt from, {versions} versions")
    print(f"plays nearly at random, which nobody beats: {bool(chances(logits).max() < 0.42)}")
    if costs:
        share = 1e3 * spent / trials
        print(f"{seconds:.1f} s with the start of the workers, {share:.1f} ms of this program for each trial")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="", help="postgresql://..., with which the workers record by themselves")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--costs", action="store_true", help="say how long it took")
    arguments = parser.parse_args()
    if not ray.is_initialized():
        ray.init(os.environ.get("RAY_ADDRESS") or "local")
    trio.run(main, arguments.store, arguments.trials, arguments.costs)
