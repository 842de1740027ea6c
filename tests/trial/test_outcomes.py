"""Every way in which a trial can end has its cause, and the last sample tells it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.trial import ENVIRONMENT, HardEnd, Lost, TrialRules

from .harness import END, LAST, Play, actor, make_params, play_ticks

RULES = TrialRules(environment_init_timeout_seconds=5, soft_end_patience_seconds=5, environment_ack_timeout_seconds=5)


def to_the_end(play: Play) -> Play:
    play.observe()
    play.ack(ENVIRONMENT, 0, 1)
    return play


def environment_ends(play: Play) -> None:
    play.say(ENVIRONMENT, LAST)
    to_the_end(play)


def soft(play: Play) -> None:
    play.soft()
    play.act(0, 1)
    to_the_end(play)


def environment_never_acknowledges(play: Play) -> None:
    play.say(ENVIRONMENT, LAST)
    play.observe()
    # Its LAST is not an acknowledgement.
    play.ack(0, 1)
    play.pass_time(10)


def fails(play: Play) -> None:
    play.feed(Lost(1, "ValueError: no idea", EndCause.PARTICIPANT_FAILED, "line 3"))


def says_why_it_goes(play: Play) -> None:
    play.say(1, END, details="ValueError: no idea\nline 3")
    play.half_close(1)


def no_patience(play: Play) -> None:
    play.soft()
    play.pass_time(10)


WAYS: list[tuple[Callable[[Play], object], EndCause, str]] = [
    (environment_ends, EndCause.ENVIRONMENT, "env"),
    (soft, EndCause.SOFT_TERMINATION, ""),
    (lambda play: play.hard(), EndCause.HARD_TERMINATION, ""),
    (lambda play: play.feed(HardEnd("stop", EndCause.SERVER_STOPPED)), EndCause.SERVER_STOPPED, ""),
    (fails, EndCause.PARTICIPANT_FAILED, "b"),
    (says_why_it_goes, EndCause.PARTICIPANT_FAILED, "b"),
    (lambda play: play.half_close(1), EndCause.PARTICIPANT_LEFT, "b"),
    (lambda play: play.lose(1), EndCause.PARTICIPANT_LOST, "b"),
    (lambda play: play.lose(ENVIRONMENT), EndCause.PARTICIPANT_LOST, "env"),
    (environment_never_acknowledges, EndCause.ACKNOWLEDGEMENT_MISSING, "env"),
    (no_patience, EndCause.PATIENCE, ""),
]


@pytest.mark.parametrize(("end", "cause", "by"), WAYS)
def test_a_running_trial(end: Callable[[Play], object], cause: EndCause, by: str) -> None:
    play = play_ticks(Play(make_params(actor("a"), actor("b")), rules=RULES).start(), 1)
    play.observe()
    end(play)
    assert check(play, cause, by).ticks == play.machine.tick_id + 1


def check(play: Play, cause: EndCause, by: str) -> TrialOutcome:
    outcome = play.machine.outcome
    assert outcome is not None
    assert (outcome.cause, outcome.participant) == (cause, by)
    told = play.samples[-1].info.end
    assert TrialOutcome.of(outcome.trial_id, told).cause is cause
    assert not [sample for sample in play.samples[:-1] if sample.info.HasField("end")]
    if cause is EndCause.PARTICIPANT_FAILED:
        assert outcome.traceback == "line 3"
        assert outcome.reason == "actor 'b' failed: ValueError: no idea"
        assert "line 3" not in str(told)
    return outcome


def test_the_step_limit() -> None:
    play = Play(make_params(actor("a"), actor("b"), max_steps=1)).start()
    play.observe()
    play.act(0, 1)
    play.observe()
    play.act(0, 1)
    to_the_end(play)
    check(play, EndCause.STEP_LIMIT, "")


def test_nobody_comes() -> None:
    play = Play(make_params(actor("a"), actor("b", initial_connection_timeout=1))).begin()
    play.ready(0)
    play.pass_time(2)
    check(play, EndCause.PARTICIPANT_MISSING, "b")
    play = Play(make_params(actor("a"), actor("b")), rules=RULES).begin()
    play.ready(0, 1)
    play.pass_time(10)
    check(play, EndCause.PARTICIPANT_MISSING, "env")


def test_who_cannot_be_reached_did_not_come() -> None:
    play = Play(make_params(actor("a"), actor("b"))).begin()
    play.lose(1, "no route")
    check(play, EndCause.PARTICIPANT_MISSING, "b")


def test_who_begins_with_something_else_is_refused() -> None:
    play = Play(make_params(actor("a"), actor("b"))).begin()
    play.act(1)
    check(play, EndCause.PARTICIPANT_REFUSED, "b")


def test_no_action_in_time() -> None:
    play = Play(make_params(actor("a"), actor("b", response_timeout=1))).start()
    play.observe()
    play.act(0)
    play.pass_time(2)
    check(play, EndCause.ACTION_MISSING, "b")


def test_inactivity() -> None:
    play = Play(make_params(actor("a"), actor("b"), max_inactivity=3)).start()
    play.pass_time(10)
    check(play, EndCause.INACTIVITY, "")


def test_who_goes_when_it_is_done_is_not_lost() -> None:
    play = play_ticks(Play(make_params(actor("a"), actor("b"))).start(), 1)
    play.say(ENVIRONMENT, LAST)
    play.observe()
    play.ack(0)
    play.lose(0)
    play.ack(ENVIRONMENT, 1)
    assert check(play, EndCause.ENVIRONMENT, "env").losses == ()
