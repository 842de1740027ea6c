"""The file of a fake data log."""

from __future__ import annotations

import pytest
import trio

from tests.helpers import Everything, params_of
from trio_cogment.testing import (
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    PowerLossError,
    World,
    check_history,
    simulate,
)
from trio_cogment.testing.fakes.datalog import SyncedLog, read_ticks


def test_what_is_durable_is_there_after_a_crash_at_any_moment() -> None:
    for seed in range(150):
        disk = World(seed).disk("log")
        kept: list[int] = []
        disk.crash_at(seed % 30)
        try:
            file = SyncedLog(disk, "t")
            for tick in (0, 1, 1, 2, 3, 4, 5):
                file.add(tick)
                kept.append(tick)
        except PowerLossError:
            pass
        disk.restart()
        ticks = read_ticks(disk, "t")
        assert ticks[: len(set(kept))] == sorted(set(kept))
        again = SyncedLog(disk, "t")
        again.add(9)
        assert read_ticks(disk, "t") == [*ticks, 9]


def test_a_sync_that_failed_is_not_believed() -> None:
    disk = World(1).disk("log")
    file = SyncedLog(disk, "t")
    file.add(0)
    disk.fail_syncs()
    with pytest.raises(OSError, match="Input/output"):
        file.add(1)
    again = SyncedLog(disk, "t")
    again.add(1)
    disk.crash()
    disk.restart()
    assert read_ticks(disk, "t") == [0, 1]


def test_a_fake_data_log_keeps_its_samples_and_recovers() -> None:
    async def scenario(world: World) -> int:
        disk = world.disk("log")
        log = FakeDatalog(world, files=lambda _: disk)
        services = [FakeActor(world).service(), FakeEnvironment(world, ticks=5).service(), log.service()]
        async with (
            world.in_process(services) as inside,
            world.serve_orchestrator(local=Everything(inside)) as orchestrator,
        ):
            disk.fail_syncs(3)
            params = params_of("ann", datalog_endpoint="cogment://discover")
            await orchestrator.start_trial(trial_id="t", params=params)
            await trio.sleep(60)
            assert orchestrator.lost_samples == 0
        disk.crash()
        disk.restart()
        log.note_kept()
        return world.counters["datalog: stored after its disk had failed"]

    outcome = simulate(1, scenario)
    assert outcome.value == 1
    (kept,) = [event.details["ticks"] for event in outcome.history if event.what == "kept"]
    assert kept == list(range(6))
    check_history(outcome.history, ["acknowledged-samples-are-kept", "samples-come-once"])
