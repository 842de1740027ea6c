"""Trials that go on: how long they stand still when one of two orchestrators is drained.

`python benchmarks/resuming.py` prints a line of JSON: how many of 50 trials went on at the other orchestrator, how many
are stored with every tick once, and the gaps between the last action at the one and the first observation at the other.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_cogment import Participants, Platform, open_platform
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.sdk import ActorSession, EnvironmentSession, actor_params, trial_params
from trio_cogment.servers.datastore import TrialStore, open_store

LAST_TICK = 100
TICK_SECONDS = 0.05
PARAMS = trial_params([actor_params("a", "cls", implementation="adds")], environment="sum")


class Seen:
    """When each trial had its observations, at the orchestrator that is drained and at the other one."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}

    async def environment(self, session: EnvironmentSession) -> None:
        taken = session.take_up()
        total = 0 if taken is None else sum(int(tick.actions[0]) for tick in taken.past[:-1])
        await session.start([("*", b"%d" % total)])
        async for event in session.all_events():
            if event.actions is not None:
                total += int(event.actions[0].payload)
                await trio.sleep(TICK_SECONDS)
                finish = session.end if session.tick_id + 1 == LAST_TICK else session.produce_observations
                await finish([("*", b"%d" % total)])

    async def actor(self, session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                now = trio.current_time()
                self.first.setdefault(session.trial_id, now)
                self.last[session.trial_id] = now
                await session.do_action(b"%d" % event.observation.tick_id)


@asynccontextmanager
async def orchestrator(store: TrialStore, seen: Seen, endpoint: str) -> AsyncIterator[Platform]:
    participants = Participants()
    participants.register_environment(seen.environment, "sum")
    participants.register_actor(seen.actor, "adds")
    config = PlatformConfig(orchestrator=OrchestratorConfig(resume=True))
    async with open_platform(participants, store=store, config=config) as platform:
        platform.reached_at(endpoint)
        yield platform


async def drained(trials: int) -> dict[str, object]:
    """Drain the first of two orchestrators at one storage in the middle of its trials."""
    here, there = Seen(), Seen()
    names = [f"t{number}" for number in range(trials)]
    async with open_store("memory:") as store, orchestrator(store, there, "grpc://there:1") as other:
        async with orchestrator(store, here, "grpc://here:1") as first:
            for name in names:
                await first.controller.start_trial(PARAMS, trial_id=name)
            await trio.sleep(20 * TICK_SECONDS)
            await first.stop()
        for name in names:
            async for _ in other.datastore_client().samples([name], follow=True):
                pass
        whole = 0
        for name in names:
            ticks = [sample.tick_id async for sample in other.datastore_client().samples([name])]
            whole += ticks == list(range(LAST_TICK + 1))
    gaps = [there.first[name] - here.last[name] for name in names if name in there.first]
    return {
        "trials": trials,
        "went_on": len(gaps),
        "whole": whole,
        "gap_s": {"median": round(statistics.median(gaps), 3), "longest": round(max(gaps), 3)},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    print(json.dumps(trio.run(drained, parser.parse_args().trials)))
