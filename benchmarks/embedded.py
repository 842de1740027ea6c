"""Ticks per second of trials in one process, beside the floor that Trio sets.

`python benchmarks/embedded.py` runs, for several numbers of trials and actors, alternated rounds of two things:

* ours: the platform in this process (`trio_cogment.open_platform()`), its environment and actors in the same process;
* the floor: a task for the environment, one for the orchestrator and one per actor, handing a ready-made object around
  over `trio.open_memory_channel(1)`: environment -> orchestrator -> each actor -> orchestrator -> environment. With 2
  actors that is 4 tasks and 6 hops a tick. No logic, no messages made, nothing copied.

The ratio is the median over the rounds of the floor's ticks per second divided by ours at the same size.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import trio
from _report import number, print_json, print_table

import trio_cogment
from trio_cogment.base.metrics.prometheus import PrometheusMetrics

SIZES = ((1, 1), (1, 2), (1, 8), (8, 2), (32, 2), (512, 2))  # trials, actors in each
WARM_TICKS = 5
SENTINEL = object()
OBSERVATION = b"o" * 64
ACTION = b"a" * 16


@dataclass
class Meter:
    """The clock of one round: it runs from when the last trial is warm until the last one is done.

    The environment of every trial calls `warm` after `WARM_TICKS` ticks, which returns when all of them have, and
    `done` after `ticks` more. So neither the start nor the end of the trials is in the time.
    """

    trials: int
    seconds: float = math.nan
    finished: trio.Event = field(default_factory=trio.Event)
    _started: float = 0
    _warm: int = 0
    _done: int = 0
    _go: trio.Event = field(default_factory=trio.Event)

    async def warm(self) -> None:
        self._warm += 1
        if self._warm == self.trials:
            self._started = time.perf_counter()
            self._go.set()
        await self._go.wait()

    def done(self) -> None:
        self._done += 1
        if self._done == self.trials:
            self.seconds = time.perf_counter() - self._started
            self.finished.set()


# --- ours ---


async def run_platform(trials: int, actors: int, ticks: int, *, measured: bool = False) -> float:
    """Run this many trials side by side in process and return the seconds that `ticks` ticks of each took."""
    metrics = PrometheusMetrics() if measured else None
    meter = Meter(trials)
    observations = [("*", OBSERVATION)]

    async def environment(session: trio_cogment.EnvironmentSession) -> None:
        tick = 0
        await session.start(observations)
        async for event in session.all_events():
            if event.actions:
                tick += 1
                if tick == WARM_TICKS:
                    await meter.warm()
                elif tick == WARM_TICKS + ticks:
                    meter.done()
                    continue
                await session.produce_observations(observations)

    async def actor(session: trio_cogment.ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(ACTION)

    async with trio_cogment.open_platform(metrics=metrics) as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "actor")
        params = trio_cogment.trial_params(
            [trio_cogment.actor_params(f"actor{index}", "player") for index in range(actors)]
        )
        for _ in range(trials):
            await platform.controller.start_trial(params)
        await meter.finished.wait()
    return meter.seconds


# --- the floor ---


async def run_floor(trials: int, actors: int, ticks: int) -> float:
    meter = Meter(trials)
    async with trio.open_nursery() as nursery:
        for _ in range(trials):
            start_floor_trial(nursery, actors, ticks, meter)
        await meter.finished.wait()
        nursery.cancel_scope.cancel()
    return meter.seconds


def start_floor_trial(nursery: trio.Nursery, actors: int, ticks: int, meter: Meter) -> None:
    def channel() -> tuple[trio.MemorySendChannel[object], trio.MemoryReceiveChannel[object]]:
        return trio.open_memory_channel[object](1)

    set_in, set_out = channel()
    actions_in, actions_out = channel()
    to_actors = [channel() for _ in range(actors)]
    from_actors = [channel() for _ in range(actors)]

    async def environment() -> None:
        for tick in range(WARM_TICKS + ticks):
            if tick == WARM_TICKS:
                await meter.warm()
            await set_in.send(SENTINEL)
            await actions_out.receive()
        meter.done()

    async def orchestrator() -> None:
        sends = [send.send for send, _ in to_actors]
        receives = [receive.receive for _, receive in from_actors]
        while True:
            observations = await set_out.receive()
            for send in sends:
                await send(observations)
            for receive in receives:
                await receive()
            await actions_in.send(observations)

    async def actor(observations: trio.MemoryReceiveChannel[object], actions: trio.MemorySendChannel[object]) -> None:
        while True:
            await actions.send(await observations.receive())

    nursery.start_soon(environment)
    nursery.start_soon(orchestrator)
    for (_, observations), (actions, _) in zip(to_actors, from_actors, strict=True):
        nursery.start_soon(actor, observations, actions)


# --- the measurement ---


def benchmark(rounds: int, round_s: float, floor_only: bool) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    rows = []
    for trials, actors in SIZES:
        size = f"{trials}x{actors}"
        # As many ticks as fit into a round, told from a short one.
        floor_ticks = ticks_for(run_floor, trials, actors, round_s)
        our_ticks = None if floor_only else ticks_for(run_platform, trials, actors, round_s)
        floors, ours = [], []
        for number_of_round in range(rounds):
            # Whoever goes first has no lasting advantage.
            for which in ("floor", "ours") if number_of_round % 2 else ("ours", "floor"):
                if which == "floor":
                    floors.append(trials * floor_ticks / trio.run(run_floor, trials, actors, floor_ticks))
                elif our_ticks is not None:
                    ours.append(trials * our_ticks / trio.run(run_platform, trials, actors, our_ticks))
        found: dict[str, float | None] = {"floor_ticks_per_s": statistics.median(floors)}
        if ours:
            found["ticks_per_s"] = statistics.median(ours)
            found["floor_ratio"] = statistics.median(floor / our for floor, our in zip(floors, ours, strict=True))
        values |= {f"{name}_{size}": value for name, value in found.items()}
        names = ("ticks_per_s", "floor_ticks_per_s", "floor_ratio")
        rows.append([str(trials), str(actors), *(number(found.get(name)) for name in names)])
    print(f"medians of {rounds} alternated rounds of about {round_s:g} s; ticks/s of all trials together")
    print_table(["trials", "actors", "ours ticks/s", "floor ticks/s", "floor / ours"], rows)
    return values


def cost_of_metrics(rounds: int, round_s: float) -> dict[str, float | None]:
    """Compare our own processor time per tick with metrics and without."""
    values: dict[str, float | None] = {}
    rows = []
    for trials, actors in SIZES:
        ticks = ticks_for(run_platform, trials, actors, round_s)
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for number_of_round in range(rounds):
            for measured in (True, False) if number_of_round % 2 else (False, True):
                # Its processor's time: what others do on the machine matters less to it.
                began = time.process_time()
                trio.run(partial(run_platform, measured=measured), trials, actors, ticks)
                seconds[measured].append((time.process_time() - began) / (trials * (ticks + WARM_TICKS)))
        ratio = statistics.median(on / off for off, on in zip(seconds[False], seconds[True], strict=True))
        values[f"metrics_ratio_{trials}x{actors}"] = ratio
        micros = [1e6 * statistics.median(seconds[measured]) for measured in (False, True)]
        rows.append([str(trials), str(actors), *(number(value) for value in (*micros, ratio))])
    print(f"medians of {rounds} alternated rounds of about {round_s:g} s; processor time of a tick, in \N{MICRO SIGN}s")
    print_table(["trials", "actors", "metrics off", "metrics on", "on / off"], rows)
    return values


def ticks_for(run: Callable[[int, int, int], Awaitable[float]], trials: int, actors: int, seconds: float) -> int:
    probe = max(2, 400 // trials)
    return max(2, int(probe * seconds / trio.run(run, trials, actors, probe)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--round", type=float, default=0.6, metavar="SECONDS")
    parser.add_argument("--floor-only", action="store_true", help="leave our platform out")
    parser.add_argument("--metrics", action="store_true", help="compare trials that are measured with others instead")
    args = parser.parse_args()
    if args.metrics:
        values = cost_of_metrics(args.rounds, args.round)
    else:
        values = benchmark(args.rounds, args.round, args.floor_only)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
