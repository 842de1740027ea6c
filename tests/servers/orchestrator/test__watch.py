"""Watchers, and the changes that each is told of."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest
import trio
import trio.testing

from tests.helpers import bench
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo, TrialListRequest
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import ResourceExhaustedError, RpcError, StatusCode, UnavailableError
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import methods_of
from trio_cogment.servers.orchestrator._watch import Watch, Watchers

WATCH = methods_of(SERVICES[ServiceKind.LIFECYCLE].descriptor())["WatchTrials"]
RUNNING, ENDED = TrialState.RUNNING, TrialState.ENDED


def describe(*, tracebacks: bool = False) -> TrialInfo:
    return TrialInfo()


async def seen_by(watch: Watch) -> list[tuple[str, int]]:
    entries: list[tuple[str, int]] = []
    with suppress(UnavailableError):
        async for entry in watch:
            entries.append((entry.trial_id, entry.state))
    return entries


async def test_who_waits_for_a_trial_is_told_of_that_trial_alone() -> None:
    watchers = Watchers(OrchestratorConfig(watch_queue_entries=16))
    with (
        watchers.subscribe([], False, [("a", RUNNING, describe)]) as every,
        watchers.subscribe([], False, [("a", RUNNING, describe)], trial_ids=["a", "c", "a"]) as some,
        watchers.subscribe([ENDED], False, [], trial_ids=["a"]) as end,
    ):
        for trial_id, state in (("b", RUNNING), ("c", RUNNING), ("a", ENDED)):
            watchers.publish(trial_id, state, describe)
        watchers.publish_settled("a", describe)  # nobody asked for that
        assert watchers.queued_entries == 4 + 3 + 1
        watchers.stop()
        assert await seen_by(every) == [("a", RUNNING), ("b", RUNNING), ("c", RUNNING), ("a", ENDED)]
        assert await seen_by(some) == [("a", RUNNING), ("c", RUNNING), ("a", ENDED)]
        assert await seen_by(end) == [("a", ENDED)]
    assert list(watchers._by_trial) == [""]
    assert watchers.max_queued_entries == 0


async def test_what_a_watcher_may_not_see_makes_no_room_for_it() -> None:
    watchers = Watchers(OrchestratorConfig(watch_queue_entries=4))
    present = [(name, RUNNING, describe) for name in "abc"]
    with (
        watchers.subscribe([], False, present, sees=lambda trial_id: trial_id == "b") as one,
        watchers.subscribe([], False, present, sees=lambda _: False) as blind,
        watchers.subscribe([], False, present) as every,
    ):
        assert [watch.max_queued_entries for watch in (one, blind, every)] == [5, 4, 7]
        assert [watch.queued_entries for watch in (one, blind, every)] == [1, 0, 3]


def large(*, tracebacks: bool = False) -> TrialInfo:
    return TrialInfo(env_name="e" * 1000)


async def left_behind(watch: Watch) -> tuple[int, str]:
    """Read a watch to its end: how many entries there were, and why it ended."""
    entries = 0
    try:
        async for _ in watch:
            entries += 1
    except ResourceExhaustedError as error:
        return entries, str(error)
    raise AssertionError("it goes on")


async def test_what_waits_for_a_watcher_is_bounded_in_bytes() -> None:
    watchers = Watchers(OrchestratorConfig(watch_queue_bytes=3500))
    with watchers.subscribe([], True, []) as deaf, watchers.subscribe([], True, []) as alert:
        for number in range(4):
            watchers.publish(f"t{number}", RUNNING, large)
            assert (await anext(alert)).info.env_name
        assert (await left_behind(deaf)) == (
            3,
            "this watcher reads too slowly: watch_queue_bytes is reached; watch again to get a fresh snapshot",
        )
        assert watchers.queued_bytes == 0


async def test_an_entry_that_waits_for_many_counts_once_and_the_limit_of_all_ends_those_who_lag() -> None:
    watchers = Watchers(OrchestratorConfig(watch_total_bytes=3500))
    with ExitStack() as stack:
        deaf = [stack.enter_context(watchers.subscribe([], True, [])) for _ in range(10)]
        for number in range(3):
            watchers.publish(f"t{number}", RUNNING, large)
        assert 3000 < watchers.queued_bytes < 3500
        alert = stack.enter_context(watchers.subscribe([], True, []))
        watchers.publish("t3", RUNNING, large)
        assert (await anext(alert)).info.env_name
        for watch in deaf:
            entries, why = await left_behind(watch)
            assert (entries, "watch_total_bytes" in why) == (0, True)
        watchers.publish("t4", RUNNING, large)
        assert (await anext(alert)).info.env_name
    assert watchers.queued_bytes == 0


async def test_the_limit_of_all_ends_the_watchers_of_those_for_whom_most_waits() -> None:
    watchers = Watchers(OrchestratorConfig(watch_total_bytes=3500))
    with ExitStack() as stack:
        deaf = [stack.enter_context(watchers.subscribe([], True, [], account="a")) for _ in range(3)]
        slow = stack.enter_context(watchers.subscribe([], True, [], account="b"))
        for number in range(4):
            watchers.publish(f"t{number}", RUNNING, large)
            if number < 2:
                assert (await anext(slow)).info.env_name
        assert watchers.queued_bytes < 3500
        for watch in deaf:
            entries, why = await left_behind(watch)
            assert (entries, "watch_total_bytes" in why) == (0, True)
        assert not slow.has_ended
        for _ in range(2):
            assert (await anext(slow)).info.env_name
    assert watchers.queued_bytes == 0


def test_each_has_a_share_of_the_watchers() -> None:
    watchers = Watchers(OrchestratorConfig(max_watchers=4, max_peer_watchers=2))
    with ExitStack() as stack:
        for account in ("a", "a", "", ""):  # this process has no share
            stack.enter_context(watchers.subscribe([], False, [], account=account))
        with pytest.raises(ResourceExhaustedError, match="too many watchers: max_watchers is 4"):
            stack.enter_context(watchers.subscribe([], False, [], account="b"))
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(watchers.subscribe([], False, [], account="a"))
        with pytest.raises(ResourceExhaustedError, match="max_peer_watchers is 2; try again when some of yours"):
            stack.enter_context(watchers.subscribe([], False, [], account="a"))
        stack.enter_context(watchers.subscribe([], False, [], account="b"))


async def test_one_entry_may_wait_for_a_watcher_whatever_waits_for_others() -> None:
    watchers = Watchers(OrchestratorConfig(watch_total_bytes=1))
    with watchers.subscribe([], True, []) as first, watchers.subscribe([], False, []) as second:
        watchers.publish("t", RUNNING, large)
        assert (await anext(first)).info.env_name
        assert (await anext(second)).trial_id == "t"
        assert not first.has_ended
        assert not second.has_ended


async def test_a_trial_is_described_once_for_all_who_want_the_same() -> None:
    described: list[bool] = []

    def note(*, tracebacks: bool = False) -> TrialInfo:
        described.append(tracebacks)
        return TrialInfo(env_name="env")

    watchers = Watchers(OrchestratorConfig())
    with ExitStack() as stack:
        for tracebacks in (False, True, False, True, False):
            stack.enter_context(watchers.subscribe([], True, [], tracebacks=tracebacks))
        watchers.publish("t", RUNNING, note)
        assert described == [False, True]


async def test_what_waits_for_those_who_do_not_read_that_they_have_ended_is_in_nobodys_way() -> None:
    watchers = Watchers(OrchestratorConfig(watch_queue_bytes=2500, watch_total_bytes=3500))
    with watchers.subscribe([], True, []) as deaf:
        for number in range(3):
            watchers.publish(f"d{number}", RUNNING, large)
        assert deaf.has_ended
        assert watchers.queued_bytes > 2000
        with watchers.subscribe([], True, []) as slow:
            for number in range(2):
                watchers.publish(f"s{number}", RUNNING, large)
            assert (slow.queued_entries, deaf.queued_entries) == (2, 0)
        assert (await left_behind(deaf))[0] == 0


async def test_who_leaves_leaves_nothing_waiting() -> None:
    watchers = Watchers(OrchestratorConfig())
    with watchers.subscribe([], True, []):
        watchers.publish("t", RUNNING, large)
        assert watchers.queued_bytes > 1000
    assert watchers.queued_bytes == 0


async def test_trials_that_are_there_are_described_when_they_are_read() -> None:
    made: list[int] = []

    def counted(*, tracebacks: bool = False) -> TrialInfo:
        made.append(1)
        return TrialInfo(env_name="e" * 1000, state=ENDED)

    watchers = Watchers(OrchestratorConfig(watch_queue_bytes=1))
    with watchers.subscribe([], True, [(f"t{number}", RUNNING, counted) for number in range(5)]) as watch:
        assert not made
        entry = await anext(watch)
        assert (entry.info.state, len(made)) == (RUNNING, 1)  # the state is that of the beginning
        assert watch.queued_entries == 4


@pytest.mark.parametrize("wire", [False, True])
async def test_a_watcher_names_so_many_trials(wire: bool) -> None:
    async with bench(config=OrchestratorConfig(max_watched_trials=2), wire=wire) as table:
        async with table.channel.call(WATCH) as call:
            await call.send(TrialListRequest(trial_ids=["a", "b"]))
            await call.done_sending()
            await call.wait_initial_metadata()
        async with table.channel.call(WATCH) as call:
            await call.send(TrialListRequest(trial_ids=["a", "b", "c"]))
            await call.done_sending()
            with pytest.raises(RpcError, match="trial_ids: 3; max_watched_trials is 2") as refused:
                await call.receive()
        assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED


async def test_a_stop_ends_every_watch_after_what_is_queued_and_within_a_farewell(
    autojump_clock: trio.testing.MockClock,
) -> None:
    watchers = Watchers(OrchestratorConfig(farewell_seconds=3))
    await trio.sleep(10)
    present = [(f"t{number}", RUNNING, describe) for number in range(100)]
    with watchers.subscribe([], False, present) as slow, watchers.subscribe([], False, []) as deaf:
        watchers.publish("late", RUNNING, describe)
        watchers.stop()
        watchers.publish("too late", RUNNING, describe)
        # Of those that were there few more are told; of what has changed since nothing is left out.
        told = await seen_by(slow)
        assert told[-1] == ("late", RUNNING)
        assert told[:-1] == [(f"t{number}", RUNNING) for number in range(100 - 64, 100)]
        assert slow.has_ended
        assert deaf.has_ended
        for watch in (slow, deaf):
            assert (watch.patience.deadline, watch.stopping) == (13, True)
        with pytest.raises(UnavailableError, match="the orchestrator is stopping"):
            await left_behind(deaf)
    with pytest.raises(UnavailableError, match="the orchestrator is stopping"), watchers.subscribe([], False, []):
        raise AssertionError("it begins")
    watchers.stop()  # nobody is left


def pending(*, tracebacks: bool = False) -> TrialInfo:
    info = TrialInfo()
    info.end.samples_pending = True
    return info


async def test_an_end_waits_for_its_samples_where_that_is_asked_for() -> None:
    watchers = Watchers(OrchestratorConfig())
    with (
        watchers.subscribe([], False, [], when_settled=True) as patient,
        watchers.subscribe([], False, [("old", ENDED, pending)], when_settled=True, trial_ids=["old"]) as one,
        watchers.subscribe([], False, []) as hasty,
    ):
        for trial_id, info in (("a", pending), ("b", pending), ("c", describe)):
            watchers.publish(trial_id, RUNNING, info)
            watchers.publish(trial_id, ENDED, info)
        assert [watch.queued_entries for watch in (patient, one, hasty)] == [4, 0, 6]
        watchers.publish_settled("b", describe)
        watchers.publish_settled("b", describe)  # once is enough
        watchers.publish_settled("old", describe)
        assert [watch.queued_entries for watch in (patient, one, hasty)] == [5, 1, 6]
        watchers.stop()
        # Who is told nothing more is told of the end that there was.
        seen = await seen_by(patient)
        assert seen == [("a", RUNNING), ("b", RUNNING), ("c", RUNNING), ("c", ENDED), ("b", ENDED), ("a", ENDED)]
        assert await seen_by(one) == [("old", ENDED)]
    assert watchers.queued_bytes == 0


async def test_who_may_know_of_some_trials_is_told_of_those() -> None:
    watchers = Watchers(OrchestratorConfig())
    present = [(name, RUNNING, describe) for name in ("mine", "yours")]
    with watchers.subscribe([], False, present, sees=lambda trial_id: trial_id.startswith("mine")) as watch:
        for name in ("yours2", "mine2"):
            watchers.publish(name, RUNNING, describe)
        watchers.stop()
        assert await seen_by(watch) == [("mine", RUNNING), ("mine2", RUNNING)]


async def test_a_long_snapshot_and_a_long_queue_are_told_whole() -> None:
    """Only what was there, and only when it stops, is passed over."""
    present = [(f"old{number}", RUNNING, describe) for number in range(100)]
    watchers = Watchers(OrchestratorConfig())
    with watchers.subscribe([], False, present) as watch:
        told = [(await anext(watch)).trial_id for _ in range(100)]
        assert told == [f"old{number}" for number in range(100)]
        for number in range(100):
            watchers.publish(f"new{number}", RUNNING, describe)
        watchers.stop()
        assert [trial_id for trial_id, _ in await seen_by(watch)] == [f"new{number}" for number in range(100)]
    assert watchers.queued_bytes == 0
