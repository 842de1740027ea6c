"""Many at once: starts for one id, and trials side by side."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.helpers import HookScript, Script, actor_that_acts, bench, environment_of, params_of
from trio_cogment import open_platform
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.rpc import ServerCall

CROWD = Path(__file__).resolve().parents[3] / "benchmarks" / "crowd.py"


@pytest.mark.parametrize("wire", [False, True])
async def test_of_a_thousand_starts_for_one_id_exactly_one_wins(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    replies: Counter[str] = Counter()
    starts: list[str] = []

    async def environment(call: ServerCall) -> None:
        starts.extend(call.metadata.texts("trial-id"))
        async for _ in call:
            pass

    services = Script(environment).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, wire=wire) as table:
        async with trio.open_nursery() as nursery:

            async def start() -> None:
                replies[await table.controller.start_trial(params_of("a"), trial_id="t")] += 1

            for _ in range(1000):
                nursery.start_soon(start)
        await trio.testing.wait_all_tasks_blocked()
        assert len(table.orchestrator.trials) == table.orchestrator.running_trials == 1
    assert replies == {"t": 1, "": 999}
    assert starts == ["t"]


async def test_one_wins_though_its_start_takes_long(autojump_clock: trio.testing.MockClock) -> None:
    hooked: list[str] = []

    async def on_pre_trial(request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        hooked.extend(call.metadata.texts("trial-id"))
        await trio.sleep(5)
        return PreTrialParams(params=params_of("a"))

    replies: Counter[str] = Counter()
    services = Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()
    hook = HookScript(on_pre_trial).service()
    async with (
        bench(*services, hook, pre_trial_hooks=["cogment://discover"]) as table,
        trio.open_nursery() as nursery,
    ):

        async def start() -> None:
            replies[await table.controller.start_trial(trial_id="t")] += 1

        for _ in range(100):
            nursery.start_soon(start)
    assert replies == {"t": 1, "": 99}
    assert hooked == ["t"]


def our_objects() -> Counter[str]:
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("trio_cogment."))


@pytest.mark.parametrize("trials", [60, pytest.param(1000, marks=pytest.mark.soak)])
async def test_crowd_ends_in_order_and_leaves_nothing(trials: int, autojump_clock: trio.testing.MockClock) -> None:
    """Two waves: every trial shows each state once and in order, and afterwards no object of ours is left."""
    ticks: Counter[str] = Counter()
    together = 0
    arrived = trio.Event()

    async def environment(session: Any) -> None:
        nonlocal together
        await session.start([("*", b"o")])
        async for event in session.all_events():
            if not event.actions:
                continue
            ticks[session.trial_id] += 1
            if session.tick_id == 2:
                together += 1
                if together == trials:
                    arrived.set()
                await arrived.wait()
                await session.end([("*", b"o")])
            else:
                await session.produce_observations([("*", b"o")])

    async def actor(session: Any) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"a")

    config = PlatformConfig(orchestrator=OrchestratorConfig(max_ended_trials=0))
    before = our_objects()  # other tests' platforms may still be about
    async with open_platform(config=config) as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "actor")
        left: list[Counter[str]] = []
        for _ in range(2):
            states: dict[str, list[int]] = {}
            arrived, together = trio.Event(), 0
            async with platform.controller.watch_trials() as watch, trio.open_nursery() as nursery:

                async def see(watch: Any = watch, states: dict[str, list[int]] = states) -> None:
                    ended = 0
                    async for entry in watch:
                        states.setdefault(entry.trial_id, []).append(entry.state)
                        ended += entry.state == 5
                        if ended == trials:
                            return

                nursery.start_soon(see)
                for _ in range(trials):
                    nursery.start_soon(platform.controller.start_trial, params_of("a", "b"))
            assert together == trials
            assert list(states.values()) == [[1, 2, 3, 4, 5]] * trials
            await trio.testing.wait_all_tasks_blocked()
            assert platform.orchestrator.running_trials == 0
            del watch, see
            left.append(our_objects())
    # The third and last action set is answered by `end`.
    assert list(ticks.values()) == [3] * (2 * trials)
    assert not left[1] - left[0]
    shell = {"Trial", "TrialRun", "ParticipantStream", "ParticipantStreams", "Timers", "ActorSession"}
    kinds = shell | {"TrialMachine", "Actor", "Environment", "SampleLog"}
    assert not kinds & set(left[0] - before)


@pytest.mark.soak
def test_trial_costs_at_most_60_kib_and_a_second_wave_no_more_than_the_first() -> None:
    output = subprocess.run([sys.executable, str(CROWD), "--json"], check=True, stdout=subprocess.PIPE, text=True)
    values = json.loads(output.stdout.splitlines()[-1])
    assert values["rss_bytes_per_trial"] <= 60 * 1024
    assert values["second_peak_ratio"] < 1.05
    assert values["objects_left"] == 0
