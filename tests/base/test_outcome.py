"""Outcomes: what counts as a failure, and the way through the messages of the API."""

from __future__ import annotations

import pytest

from trio_cogment.api import common_pb2
from trio_cogment.api.common_pb2 import EndOfTrial
from trio_cogment.base.errors import TrialFailedError
from trio_cogment.base.outcome import EndCause, Loss, TrialOutcome, counted, lost_text, ticks_text

FAILED = Loss(
    "ann", EndCause.PARTICIPANT_FAILED, "actor 'ann' failed: no idea", required=True, tick_id=3, traceback="x"
)


def outcome(cause: EndCause, *losses: Loss, by: str = "") -> TrialOutcome:
    return TrialOutcome("t", cause, by, "why", 4, losses)


def test_causes_are_those_of_the_api() -> None:
    names = {name.removeprefix("END_CAUSE_"): number for name, number in common_pb2.EndCause.items()}
    assert names == {cause.name: cause.value for cause in EndCause}
    assert EndCause.of(9999) is EndCause.UNKNOWN


def test_one_of_something_is_one() -> None:
    assert [counted(number, "sample") for number in (0, 1, 2)] == ["0 samples", "1 sample", "2 samples"]
    assert [ticks_text(number) for number in (1, 2)] == ["1 tick", "2 ticks"]
    assert lost_text(1) == "1 sample did not reach the data log"


@pytest.mark.parametrize("cause", EndCause)
def test_it_travels_whole(cause: EndCause) -> None:
    sent = outcome(cause, FAILED, by="ann")
    assert TrialOutcome.of("t", EndOfTrial.FromString(sent.message(tracebacks=True).SerializeToString())) == sent
    assert "x" not in str(sent.message())


def test_long_reasons_are_shortened() -> None:
    message = TrialOutcome("t", EndCause.INTERNAL, "", "y" * 5000).message()
    assert message.reason == "y" * 1000


def test_what_is_a_failure() -> None:
    assert [cause for cause in EndCause if not outcome(cause).failed] == [
        EndCause.UNKNOWN,
        EndCause.ENVIRONMENT,
        EndCause.STEP_LIMIT,
        EndCause.SOFT_TERMINATION,
        EndCause.HARD_TERMINATION,
    ]
    assert outcome(EndCause.STEP_LIMIT, FAILED).failed_participant == "ann"
    optional = Loss("bob", EndCause.PARTICIPANT_FAILED, "r", required=False)
    lost_at_the_end = Loss("cat", EndCause.PARTICIPANT_LOST, "r", required=True)
    assert not outcome(EndCause.STEP_LIMIT, optional, lost_at_the_end).failed
    assert outcome(EndCause.ACTION_MISSING, FAILED, by="dan").failed_participant == "dan"
    assert outcome(EndCause.ACTION_MISSING, FAILED, by="dan").traceback == ""
    assert outcome(EndCause.PARTICIPANT_FAILED, FAILED, by="ann").traceback == "x"


def test_truncations() -> None:
    assert [cause for cause in EndCause if cause.is_truncation] == [EndCause.STEP_LIMIT, EndCause.SOFT_TERMINATION]


def test_texts() -> None:
    ended = TrialOutcome("t", EndCause.STEP_LIMIT, ticks=4, losses=(FAILED,))
    text = (
        "trial t ended after 4 ticks (step_limit): the maximum number of steps was reached; actor 'ann' failed: no idea"
    )
    assert str(ended) == text
    assert str(TrialFailedError(ended)) == text
    assert TrialFailedError(ended).__notes__ == ["x"]
    assert str(TrialOutcome("t", EndCause.INACTIVITY, ticks=1)) == "trial t ended after 1 tick (inactivity): inactivity"
    lossy = TrialOutcome("t", EndCause.ENVIRONMENT, "env", ticks=4, samples_lost=2)
    assert not lossy.stored
    assert str(lossy).endswith("the environment 'env' ended it; 2 samples did not reach the data log")
    assert str(TrialFailedError(lossy)).endswith("the environment 'env' ended it; 2 samples did not reach the data log")
    pending = TrialOutcome("t", EndCause.SERVER_STOPPED, reason="stop", samples_pending=True)
    assert str(TrialFailedError(pending)).endswith("stop; the data log has not taken all samples")
