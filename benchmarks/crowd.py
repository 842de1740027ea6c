"""Memory of a crowd of trials, in process: per running trial, and what is left of it afterwards.

`python benchmarks/crowd.py` measures in fresh processes of its own:

* the resident memory (RSS) that N running trials add to a platform that has already run some, divided by N;
* the same as Python's allocator sees it (tracemalloc), which leaves out what protobuf and the allocator itself take;
* how much higher a second wave of N trials drives the highest RSS of the process, as a ratio to the first;
* how many objects of our types are left when both waves are over, beyond what there was before them.

All participants are in the same process: what is counted is the whole platform, with the environments' and actors'
sessions. Each trial has played some ticks and waits within one when it is counted.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tracemalloc
from collections import Counter

import trio
import trio.testing
from _report import number, print_json, print_table

import trio_cogment

OBSERVATION = b"o" * 64
ACTION = b"a" * 16
TICKS = 3
WARM_TRIALS = 5


class Wave:
    """Trials that play some ticks, wait for one another, and end."""

    def __init__(self, platform: trio_cogment.Platform, trials: int, actors: int) -> None:
        self._platform = platform
        self._trials = trials
        self._params = trio_cogment.trial_params(
            [trio_cogment.actor_params(f"actor{index}", "player") for index in range(actors)]
        )
        self._here = 0
        self._gone = 0
        self.all_here = trio.Event()
        self.go = trio.Event()
        self.over = trio.Event()

    async def arrive(self) -> None:
        self._here += 1
        if self._here == self._trials:
            self.all_here.set()
        await self.go.wait()

    def leave(self) -> None:
        self._gone += 1
        if self._gone == self._trials:
            self.over.set()

    async def run(self) -> int:
        """Return the resident bytes while all of them run."""
        for _ in range(self._trials):
            await self._platform.controller.start_trial(self._params)
        await self.all_here.wait()
        gc.collect()
        resident = rss()
        self.go.set()
        await self.over.wait()
        while self._platform.orchestrator.running_trials:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        return resident


def rss() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def our_objects() -> Counter[str]:
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("trio_cogment."))


async def measure(trials: int, actors: int, traced: bool) -> dict[str, float]:
    wave: Wave

    async def environment(session: trio_cogment.EnvironmentSession) -> None:
        await session.start([("*", OBSERVATION)])
        async for event in session.all_events():
            if event.actions and session.tick_id == TICKS:
                await wave.arrive()
                await session.end([("*", OBSERVATION)])
            elif event.actions:
                await session.produce_observations([("*", OBSERVATION)])
        wave.leave()

    async def actor(session: trio_cogment.ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(ACTION)

    # Ended trials that are remembered are not what is asked for here.
    config = trio_cogment.PlatformConfig(orchestrator=trio_cogment.OrchestratorConfig(max_ended_trials=0))
    async with trio_cogment.open_platform(config=config) as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "actor")
        wave = Wave(platform, WARM_TRIALS, actors)
        await wave.run()
        before = our_objects()
        if traced:
            tracemalloc.start(1)
        empty = rss()
        wave = Wave(platform, trials, actors)
        if traced:
            return {"traced_bytes_per_trial": await traced_wave(wave, trials)}
        full = await wave.run()
        first = peak()
        wave = Wave(platform, trials, actors)
        await wave.run()
        left = our_objects() - before
    return {
        "rss_bytes_per_trial": (full - empty) / trials,
        "first_peak_mib": first / 2**20,
        "second_peak_ratio": peak() / first,
        "objects_left": sum(left.values()),
    }


async def traced_wave(wave: Wave, trials: int) -> float:
    before, _ = tracemalloc.get_traced_memory()
    counted = 0.0
    async with trio.open_nursery() as nursery:

        async def count() -> None:
            nonlocal counted
            await wave.all_here.wait()
            counted = (tracemalloc.get_traced_memory()[0] - before) / trials

        nursery.start_soon(count)
        await wave.run()
    return counted


def in_fresh_process(trials: int, actors: int, traced: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--inside", f"--trials={trials}", f"--actors={actors}"]
    if traced:
        command.append("--traced")
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    values: dict[str, float] = json.loads(output.splitlines()[-1])
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--traced", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(trio.run(measure, args.trials, args.actors, args.traced)))
        return
    values: dict[str, float | None] = {}
    for traced in (False, True):
        values |= in_fresh_process(args.trials, args.actors, traced)
    print(f"{args.trials} trials of {args.actors} actors, everybody in this process")
    print_table(["what", "value"], [[name, number(value)] for name, value in values.items()])
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
