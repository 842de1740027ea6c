"""Who is told of which change."""

from __future__ import annotations

from contextlib import suppress

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.errors import UnavailableError
from trio_cogment.orchestrator._watch import Watch, Watchers

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
    watchers = Watchers(16)
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
