"""Self-play of a two-player game on two workers of Ray; every trial is recorded, and learnt from when it ends."""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import trio

import ray
import trio_cogment.rl as tc
from trio_cogment import open_platform
from trio_cogment.ray import workers
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.spaces import decode_action

STONES, MOVES = 10, 3
#: How many trials are learnt from before the next version of the policy is stored.
VERSION_TRIALS = 20
RATE = 0.3


class Nim(pettingzoo.AECEnv):
    """A heap of stones: in turn each player takes one to three of them, and who takes the last one wins."""

    metadata = {"name": "nim"}  # noqa: RUF012  PettingZoo's form

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["player_0", "player_1"]

    def observation_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(STONES + 1)

    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(MOVES)

    def reset(self, seed: int | None = None, options: dict | None = None) -> None:
        self.agents = list(self.possible_agents)
        self.agent_selection, self.stones = self.agents[0], STONES
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> int:
        return self.stones

    def step(self, action: int | None) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        agent, other = self.agent_selection, self.agents[1 - self.agents.index(self.agent_selection)]
        self._cumulative_rewards[agent] = 0.0
        self.stones -= min(action + 1, self.stones)
        if not self.stones:
            self.rewards, self.terminations = {agent: 1.0, other: -1.0}, dict.fromkeys(self.agents, True)
        self.agent_selection = other
        self._accumulate_rewards()


def chances(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def load(data: bytes) -> Any:
    """Make a policy of a stored version; each worker does it once for each version."""
    table, rng = np.frombuffer(data).reshape(-1, MOVES), np.random.default_rng()
    return lambda stones: int(rng.choice(MOVES, p=chances(table[stones])))


async def learn(table: np.ndarray, samples: Any) -> None:
    """Follow the policy gradient of one trial, from its recorded samples: what the winner did becomes likelier."""
    moves, returns = [], dict[str, float]()
    async for sample in samples:
        for name, actor in sample.actors.items():
            returns[name] = returns.get(name, 0.0) + (actor.reward or 0.0)
            if actor.action_bytes:  # it was its turn
                moves.append((name, int(actor.observation_array()), decode_action(actor.action)))
    for name, stones, move in moves:
        gradient = -chances(table[stones])
        gradient[move] += 1
        table[stones] += RATE * returns[name] * gradient


def wins(table: np.ndarray) -> float:
    """Return how many of its games a policy wins against a player who takes any number."""
    policies = table, np.zeros_like(table)
    won = np.array([[0.0, 1.0]])  # by stones and whose turn it is: who has taken the last one has won
    for stones in range(1, STONES + 1):
        left = [max(stones - taken, 0) for taken in range(1, MOVES + 1)]
        row = [chances(policies[turn][stones]) @ won[left, 1 - turn] for turn in range(2)]
        won = np.vstack([won, row])
    return float(won[STONES].mean())


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
            table = np.zeros((STONES + 1, MOVES))
            await registry.store("player", table.tobytes())
            versions, recorded = 1, 0
            began, spent = time.perf_counter(), time.process_time()
            async with tc.open_run(
                trials,
                on=workers(2),
                environment=Nim,
                # The newest version plays against itself.
                seats={"player_0": tc.model("player@-1", load), "player_1": tc.model("player@-1", load)},
                store=store or endpoint,
                model_registry=endpoint,
                parallel=8,
                retries=2,
            ) as run:
                async for result in run:
                    if not result.failed:
                        await learn(table, datastore.samples(result.trial_id))
                        recorded += 1
                        if recorded % VERSION_TRIALS == 0:
                            await registry.store("player", table.tobytes())
                            versions += 1
                seconds, spent = time.perf_counter() - began, time.process_time() - spent
            nursery.cancel_scope.cancel()
    print(f"{recorded} trials recorded and learnt from, {versions} versions")
    print(f"wins more than 8 of 10 games against a player who takes any number: {wins(table) > 0.8}")
    if costs:
        share = 1e3 * spent / trials
        print(f"{seconds:.1f} s with the start of the workers, {share:.1f} ms of this program for each trial")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="", help="postgresql://..., with which the workers record by themselves")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--costs", action="store_true", help="say how long it took")
    arguments = parser.parse_args()
    ray.init(os.environ.get("RAY_ADDRESS") or "local")
    trio.run(main, arguments.store, arguments.trials, arguments.costs)
