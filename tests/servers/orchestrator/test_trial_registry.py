"""The registry of trials that an orchestrator remembers, and what others see of it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.helpers import Script, actor_that_acts, bench, environment_of, params_of
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import FailedPreconditionError, RpcError


def players(ticks: int | None = 1) -> tuple[Any, Any]:
    return Script(environment_of(ticks)).environment(), Script(actor_that_acts()).actor()


async def run_trial(table: Any, trial_id: str) -> None:
    assert await table.controller.start_trial(params_of("a"), trial_id=trial_id) == trial_id
    await table.controller.wait_trial_state(trial_id)


async def test_ended_trials_go_by_time_though_nobody_asks(autojump_clock: trio.testing.MockClock) -> None:
    collected: list[float] = []
    config = OrchestratorConfig(ended_trial_age_seconds=10)
    async with bench(*players(), config=config) as table:
        table.orchestrator.trials.on_collected = collected.append
        for name in "xyz":
            await run_trial(table, name)
            await trio.sleep(4)
        assert [trial.trial_id for trial in table.orchestrator.trials] == ["y", "z"]
        await trio.sleep(3)
        assert [trial.trial_id for trial in table.orchestrator.trials] == ["z"]
        await trio.sleep(3.5)
        assert len(table.orchestrator.trials) == 0
        assert len(collected) == 3
        # And the sleeper goes on.
        await run_trial(table, "x")
        await trio.sleep(11)
        assert len(table.orchestrator.trials) == 0


async def test_ended_trials_go_by_count_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(*players(), config=OrchestratorConfig(max_ended_trials=2)) as table:
        for name in "vwxyz":
            await run_trial(table, name)
        assert [trial.trial_id for trial in table.orchestrator.trials] == ["y", "z"]
        assert len(table.orchestrator.trials._ended) == 2


async def test_ended_trials_go_by_size_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(*players(), config=OrchestratorConfig(max_ended_trials_bytes=100_000)) as table:
        for name in "vwxyz":
            params = params_of("a", properties={"p": "v" * (10_000 if name == "w" else 40_000)})
            await table.controller.start_trial(params, trial_id=name)
            await table.controller.wait_trial_state(name)
        assert [trial.trial_id for trial in table.orchestrator.trials] == ["y", "z"]
        # One that is too large by itself is not remembered at all.
        actors = [f"a{number}" for number in range(100)]
        await table.controller.start_trial(params_of(*actors), trial_id="crowd")
        await table.controller.wait_trial_state("crowd")
        assert len(table.orchestrator.trials) == 0
        assert table.orchestrator.trials._ended_bytes == 0


@pytest.mark.parametrize("limit", [{"max_ended_trials": 8}, {"max_ended_trials_bytes": 8 * 24_000}])
async def test_nobody_has_the_ended_trials_of_others_forgotten(
    limit: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    """As long as it has most of them itself."""
    async with bench(*players(), config=OrchestratorConfig(**limit)) as table:
        params = params_of("a", properties={"p": "v" * 10_000})
        for account, count in (("a", 2), ("b", 20), ("a", 1)):
            for number in range(count):
                trial_id = f"{account}-{count}-{number}"
                await table.orchestrator.start_trial(trial_id=trial_id, params=params, account=account)
                await table.controller.wait_trial_state(trial_id)
        found = [trial.trial_id for trial in table.orchestrator.trials]
        assert [name for name in found if name.startswith("a")] == ["a-2-0", "a-2-1", "a-1-0"]
        assert found[2:-1] == [f"b-20-{number}" for number in range(20)][-len(found[2:-1]) :]


async def test_a_start_that_fails_takes_no_ended_trials_place(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(*players(), config=OrchestratorConfig(max_ended_trials=2)) as table:
        for name in "xy":
            await run_trial(table, name)
        for _ in range(3):
            with pytest.raises(RpcError):
                await table.controller.start_trial(params_of("a", "a"), trial_id="bad")
        assert [trial.trial_id for trial in table.orchestrator.trials] == ["x", "y"]
        # Nor does one that its starter has given up in the very moment in which it was PENDING.
        with trio.CancelScope() as scope:
            scope.cancel()
            await table.orchestrator.start_trial(trial_id="late", params=params_of("a"))
        assert [trial.trial_id for trial in table.orchestrator.trials] == ["x", "y"]


async def test_one_that_is_ended_before_it_is_pending_has_not_started(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(*players(None)) as table:
        refused: list[str] = []

        async def start(name: str) -> None:
            try:
                await table.orchestrator.start_trial(trial_id=name, params=params_of("a"))
            except FailedPreconditionError as error:
                refused.append(str(error))

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for name in "abcdefgh":
                    nursery.start_soon(start, name)
                while len(table.orchestrator.trials) < 8:
                    await trio.lowlevel.checkpoint()
                # They start one by one, a round of the run each, so the last of them still waits for its turn.
                last = list(table.orchestrator.trials)[-1]
                assert last.state == TrialState.INITIALIZING
                last.hard_end("somebody asked for it")
        assert refused == [f"trial {last.trial_id!r}: the trial was terminated while it was starting"]
        assert len(table.orchestrator.trials) == 7
        for trial in table.orchestrator.trials:
            trial.hard_end("the test is over")
        await trio.testing.wait_all_tasks_blocked()
        assert table.orchestrator.room.used == (0, 0, 0)


async def test_trial_that_runs_is_never_collected(autojump_clock: trio.testing.MockClock) -> None:
    config = OrchestratorConfig(max_ended_trials=0, ended_trial_age_seconds=1, gc_frequency=1)

    async def slow(call: Any) -> None:
        await environment_of(None, seconds_per_tick=10)(call)

    async with bench(Script(slow).environment(), Script(actor_that_acts()).actor(), config=config) as table:
        for name in "xyz":
            await table.controller.start_trial(params_of("a"), trial_id=name)
        await table.controller.terminate_trial("y", hard=True)
        assert not await table.controller.trial_infos(["y"])
        await trio.sleep(100)
        assert [info.trial_id for info in await table.controller.trial_infos()] == ["x", "z"]


async def test_without_a_frequency_no_start_collects(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(*players()) as table:
        for number in range(25):
            await run_trial(table, str(number))
        assert len(table.orchestrator.trials) == 25


@pytest.mark.parametrize(("every", "kept"), [(0, [1] * 7), (1, [1] * 7), (3, [1, 2, 1, 2, 3, 1, 2])])
async def test_every_nth_accepted_start_collects_all_that_ended(
    every: int, kept: list[int], autojump_clock: trio.testing.MockClock
) -> None:
    sizes = []
    async with bench(*players(), config=OrchestratorConfig(gc_frequency=every)) as table:
        for number in range(7):
            await run_trial(table, str(number))
            sizes.append(len(table.orchestrator.trials))
            # A start that is refused is not counted.
            assert await table.controller.start_trial(params_of("a"), trial_id=str(number)) == ""
            with pytest.raises(RpcError):
                await table.controller.start_trial(params_of("a"), trial_id="\n")
    assert sizes == kept


async def test_watcher_sees_nothing_of_a_collection(autojump_clock: trio.testing.MockClock) -> None:
    config = OrchestratorConfig(ended_trial_age_seconds=5)
    entries: list[tuple[str, int]] = []
    async with bench(*players(), config=config) as table:
        await run_trial(table, "old")
        async with table.controller.watch_trials() as watch:
            await trio.sleep(10)
            assert len(table.orchestrator.trials) == 0
            await run_trial(table, "old")
            async for entry in watch:
                entries.append((entry.trial_id, entry.state))
                if len(entries) == 6:
                    break
        async with table.controller.watch_trials() as watch:
            await trio.sleep(10)
            await run_trial(table, "new")
            first = await watch.receive()
            second = await watch.receive()
    # Its end from the snapshot, then the life of the new trial of that name.
    assert entries == [("old", 5), *(("old", state) for state in (1, 2, 3, 4, 5))]
    # The snapshot of the second watch had the ended one in it still.
    assert (first.trial_id, first.state) == ("old", TrialState.ENDED)
    assert (second.trial_id, second.state) == ("new", TrialState.INITIALIZING)


async def test_watchers_see_every_change_once_and_in_order_whenever_they_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seen: dict[int, dict[str, list[int]]] = {}
    async with bench(*players(3)) as table, trio.open_nursery() as nursery:

        async def watch(number: int) -> None:
            # In another turn of the trials each.
            for _ in range(number):
                await trio.lowlevel.checkpoint()
            states: dict[str, list[int]] = {}
            seen[number] = states
            ended = 0
            async with table.controller.watch_trials() as entries:
                async for entry in entries:
                    states.setdefault(entry.trial_id, []).append(entry.state)
                    ended += entry.state == TrialState.ENDED
                    if ended == 20:
                        return

        async def start(number: int) -> None:
            await table.controller.start_trial(params_of("a", "b"), trial_id=f"t{number}")

        for number in range(30):
            nursery.start_soon(watch, number)
        for number in range(20):
            nursery.start_soon(start, number)
    for states in seen.values():
        assert len(states) == 20
        for path in states.values():
            assert path == list(range(path[0], 6))
    # They did come at different moments.
    assert len({tuple(sorted(path[0] for path in states.values())) for states in seen.values()}) > 5


async def test_metrics_can_be_told_of_collections(autojump_clock: trio.testing.MockClock) -> None:
    told: list[float] = []
    async with bench(*players(), config=OrchestratorConfig(gc_frequency=2)) as table:
        table.orchestrator.trials.on_collected = told.append
        for number in range(4):
            await run_trial(table, str(number))
    assert told == [0, 0]
