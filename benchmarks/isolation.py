"""Cost of troublemakers to their neighbours: the ticks per second of 8 trials, with and without them.

`python benchmarks/isolation.py` measures alternated pairs, in process and over gRPC. The troublemakers:

* an actor that never reads, in a trial that goes on without it (20 ticks a second of 64 KiB, which pile up);
* a watcher that never reads;
* an environment that answers nothing;
* a pre-trial hook that raises, in a start that is repeated 10 times a second.

Over gRPC the orchestrator, the 8 trials' participants (grpc.aio) and the troublemakers have a process each; in process
everything shares one thread. The ratio is the median over the pairs of the rate with troublemakers divided by the rate
without them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import _wire_peers
import grpc
import grpc.aio
import trio
import wire
from _report import number, print_json, print_table
from _wire_peers import (
    ACTION_BYTES,
    ACTOR,
    ACTORS,
    ENVIRONMENT,
    LIFECYCLE,
    OBSERVATION_BYTES,
    add_stream,
    standard_input,
)

import trio_cogment
from trio_cogment.api import common_pb2, environment_pb2, hooks_pb2, orchestrator_pb2

TRIALS = 8
LARGE = bytes(64 * 1024)
SLOW_TICK_S = 0.05
START_PAUSE_S = 0.1
HOOK = "/cogmentAPI.TrialHooksSP/OnPreTrial"


def trial_params(environment: str, actor: str, deaf_actor: str = "") -> common_pb2.TrialParams:
    """Parameters with these endpoints and implementations (`endpoint#implementation`)."""

    def split(text: str) -> dict[str, str]:
        endpoint, _, implementation = text.partition("#")
        return {"endpoint": endpoint, "implementation": implementation}

    params = common_pb2.TrialParams(environment=common_pb2.EnvironmentParams(name="env", **split(environment)))
    for index in range(ACTORS):
        params.actors.add(name=f"actor{index}", actor_class="player", **split(actor))
    if deaf_actor:
        params.actors.add(
            name="deaf", actor_class="player", optional=True, response_timeout=SLOW_TICK_S, **split(deaf_actor)
        )
    return params


# --- in process ---


class InProcess:
    """A platform, its 8 trials, and what troubles them, in this thread."""

    def __init__(self) -> None:
        self.ticks = 0

    async def environment(self, session: trio_cogment.EnvironmentSession) -> None:
        observations = [("*", bytes(OBSERVATION_BYTES))]
        await session.start(observations)
        async for event in session.all_events():
            if event.actions:
                self.ticks += 1
                await session.produce_observations(observations)

    async def large_environment(self, session: trio_cogment.EnvironmentSession) -> None:
        await session.start([("*", LARGE)])
        async for event in session.all_events():
            if event.actions:
                await session.produce_observations([("*", LARGE)])

    async def hanging_environment(self, _: trio_cogment.EnvironmentSession) -> None:
        await trio.sleep_forever()

    async def actor(self, session: trio_cogment.ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(bytes(ACTION_BYTES))

    async def deaf_actor(self, _: trio_cogment.ActorSession) -> None:
        await trio.sleep_forever()

    async def hook(self, _: Any) -> Any:
        raise ValueError("this hook always fails")

    @asynccontextmanager
    async def trouble(self, platform: trio_cogment.Platform) -> AsyncIterator[None]:
        deaf = trial_params("#large", "#actor", "#deaf")
        await platform.controller.start_trial(deaf)
        await platform.controller.start_trial(trial_params("#hanging", "#actor"))
        async with platform.controller.watch_trials(full_info=True), trio.open_nursery() as nursery:
            nursery.start_soon(self._failing_starts, platform)
            yield
            nursery.cancel_scope.cancel()

    async def _failing_starts(self, platform: trio_cogment.Platform) -> None:
        while True:
            try:
                await platform.controller.start_trial()
            except trio_cogment.RpcError:
                await trio.sleep(START_PAUSE_S)
            else:
                raise SystemExit("a start whose hook raises has succeeded")

    async def run(self, troubled: bool, warm_s: float, window_s: float) -> float:
        async with trio_cogment.open_platform(
            config=trio_cogment.PlatformConfig(pre_trial_hooks=("cogment://discover",))
        ) as platform:
            register = platform.participants
            register.register_environment(self.environment, "env")
            register.register_environment(self.large_environment, "large")
            register.register_environment(self.hanging_environment, "hanging")
            register.register_actor(self.actor, "actor")
            register.register_actor(self.deaf_actor, "deaf")
            register.register_pre_trial_hook(self.hook)
            for _ in range(TRIALS):
                await platform.controller.start_trial(trial_params("#env", "#actor"))
            if not troubled:
                return await self._measure(warm_s, window_s)
            async with self.trouble(platform):
                return await self._measure(warm_s, window_s)

    async def _measure(self, warm_s: float, window_s: float) -> float:
        await trio.sleep(warm_s)
        ticks, started = self.ticks, time.perf_counter()
        await trio.sleep(window_s)
        return (self.ticks - ticks) / (time.perf_counter() - started)


def measure_in_process(troubled: bool, warm_s: float, window_s: float) -> float:
    logging.getLogger("trio_cogment").setLevel(logging.CRITICAL)  # a traceback for each failing hook
    return trio.run(InProcess().run, troubled, warm_s, window_s)


# --- over gRPC: the troublemakers' process ---


class Troublemakers:
    """Bad participants, and the bad clients of an orchestrator."""

    async def environment(self, _: Any, context: Any) -> None:
        output = environment_pb2.EnvRunTrialOutput
        first = (await context.read()).init_input
        if first.impl_name == "hanging":
            await asyncio.Event().wait()
        observations = environment_pb2.ObservationSet(
            tick_id=-1, timestamp=1, observations=[LARGE], actors_map=[0] * (ACTORS + 1)
        )
        message = output(state=common_pb2.NORMAL, observation_set=observations).SerializeToString()
        init = output(state=common_pb2.NORMAL, init_output=environment_pb2.EnvInitialOutput())
        await context.write(init.SerializeToString())
        await context.write(message)
        while (got := await context.read()) is not grpc.aio.EOF and got.state != common_pb2.END:
            if got.WhichOneof("data") == "action_set":
                await context.write(message)

    async def actor(self, _: Any, context: Any) -> None:
        output = common_pb2.ActorRunTrialOutput
        first = (await context.read()).init_input
        init = output(state=common_pb2.NORMAL, init_output=common_pb2.ActorInitialOutput())
        await context.write(init.SerializeToString())
        if first.actor_name == "deaf":
            await asyncio.Event().wait()
        action = output(state=common_pb2.NORMAL, action=common_pb2.Action(tick_id=-1)).SerializeToString()
        while (got := await context.read()) is not grpc.aio.EOF and got.state != common_pb2.END:
            if got.WhichOneof("data") == "observation":
                await context.write(action)

    async def failing_hook(self, _: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.INTERNAL, "this hook always fails")

    async def serve(self) -> None:
        """Obey `start <orchestrator's port>` and `stop` on the standard input."""
        server = grpc.aio.server()
        add_stream(server, ENVIRONMENT, self.environment, environment_pb2.EnvRunTrialInput)
        add_stream(server, ACTOR, self.actor, common_pb2.ActorRunTrialInput)
        add_stream(server, HOOK, self.failing_hook, hooks_pb2.PreTrialParams)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        commands = await standard_input()
        trouble: asyncio.Task[None] | None = None
        while command := (await commands.readline()).split():
            if trouble is not None:
                trouble.cancel()
                await asyncio.gather(trouble, return_exceptions=True)
            trouble = None
            if command[0] == b"start":
                ready = asyncio.Event()
                trouble = asyncio.create_task(self.make_trouble(port, int(command[1]), ready))
                await ready.wait()
            print("done", flush=True)
        await server.stop(0)

    async def make_trouble(self, port: int, orchestrator_port: int, ready: asyncio.Event) -> None:
        here = f"grpc://127.0.0.1:{port}"
        requests = orchestrator_pb2
        async with grpc.aio.insecure_channel(f"127.0.0.1:{orchestrator_port}") as channel:

            def unary(name: str, request: Any, reply: Any) -> Any:
                return channel.unary_unary(LIFECYCLE + name, request.SerializeToString, reply.FromString)

            start = unary("StartTrial", requests.TrialStartRequest, requests.TrialStartReply)
            terminate = unary("TerminateTrial", requests.TerminateTrialRequest, requests.TerminateTrialReply)
            watch = channel.unary_stream(
                LIFECYCLE + "WatchTrials",
                requests.TrialListRequest.SerializeToString,
                requests.TrialListEntry.FromString,
            )
            watcher = watch(requests.TrialListRequest(full_info=True))  # never read
            deaf = trial_params(f"{here}#large", f"{here}#", f"{here}#")
            trials = [
                (await start(requests.TrialStartRequest(user_id="trouble", params=params))).trial_id
                for params in (deaf, trial_params(f"{here}#hanging", f"{here}#"))
            ]
            ready.set()
            try:
                while True:
                    try:
                        await start(requests.TrialStartRequest(user_id="trouble"))
                        raise SystemExit("a start whose hook raises has succeeded")
                    except grpc.aio.AioRpcError:
                        await asyncio.sleep(START_PAUSE_S)
            finally:
                watcher.cancel()
                metadata = [("trial-id", trial) for trial in trials]
                await terminate(requests.TerminateTrialRequest(hard_termination=True), metadata=metadata)


def measure_over_grpc(
    ours: wire.Ours, peers: wire.Child, bad: wire.Child, troubled: bool, warm_s: float, window_s: float
) -> float:
    ours.start(TRIALS)
    if troubled:
        bad.ask(f"start {ours.port}")
    time.sleep(warm_s)
    ticks, started = int(peers.ask("ticks")), time.perf_counter()
    time.sleep(window_s)
    rate = (int(peers.ask("ticks")) - ticks) / (time.perf_counter() - started)
    bad.ask("stop")
    ours.stop()
    return rate


def benchmark(pairs: int, warm_s: float, window_s: float) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    rows = []
    with ExitStack() as stack:
        peers = wire.Child([sys.executable, _wire_peers.__file__, "peers"])
        stack.callback(peers.stop)
        peers_port = int(peers.read())
        bad = wire.Child([sys.executable, __file__, "--role=trouble"])
        stack.callback(bad.stop)
        hook = f"--pre_trial_hooks=grpc://127.0.0.1:{bad.read()}"
        ours = wire.Ours(peers_port, Path(stack.enter_context(tempfile.TemporaryDirectory())), hook)
        stack.callback(ours.close)
        for name in ("in_process", "over_grpc"):
            rates: dict[bool, list[float]] = {True: [], False: []}
            for pair in range(pairs):
                for troubled in (True, False) if pair % 2 else (False, True):
                    rates[troubled].append(
                        measure_in_process(troubled, warm_s, window_s)
                        if name == "in_process"
                        else measure_over_grpc(ours, peers, bad, troubled, warm_s, window_s)
                    )
            values[f"ticks_per_s_{name}"] = statistics.median(rates[False])
            values[f"kept_ratio_{name}"] = statistics.median(
                with_them / without for with_them, without in zip(rates[True], rates[False], strict=True)
            )
            rows.append([name, number(values[f"ticks_per_s_{name}"]), number(values[f"kept_ratio_{name}"])])
    print(f"{TRIALS} trials of {ACTORS} actors, medians of {pairs} alternated pairs of {window_s:g} s")
    print_table(["", "ticks/s alone", "with troublemakers / alone"], rows)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--warm", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--window", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--role", choices=["trouble"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        asyncio.run(Troublemakers().serve())
        return
    values = benchmark(args.pairs, args.warm, args.window)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
