from __future__ import annotations

import pytest

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial import ENVIRONMENT, Announce, Begin, Close, EmitSample, HardEnd, Send, TimerKind, TrialRules
from trio_cogment.trial._events import NOT_STARTED
from trio_cogment.trial._trial_table import Phase

from .harness import END, LAST, LAST_ACK, Play, actor, kind_of, make_params, play_ticks

S = TrialState


def soft_ended(play: Play) -> Play:
    """Bring a running trial to WAIT_ACKS, on request."""
    play.observe()
    play.soft()
    play.act(*range(len(play.params.actors)))
    play.observe()
    play.clear()
    assert play.phase() is Phase.WAIT_ACKS
    return play


def test_ended_by_the_environment() -> None:
    play = play_ticks(Play().start(), 2)
    play.clear()
    play.say(ENVIRONMENT, LAST)
    assert play.machine.state == S.RUNNING
    assert play.has_timer(TimerKind.PATIENCE)
    play.observe()
    for index in (0, 1):
        last, observation = play.take(index)
        assert (kind_of(last), observation.observation.tick_id) == ("LAST", 2)
    assert play.kinds(ENVIRONMENT) == []
    assert not play.has_timer(TimerKind.PATIENCE)
    play.ack(ENVIRONMENT, 0)
    assert play.machine.state == S.TERMINATING
    effects = play.say(1, LAST_ACK)
    told = [(e.participant, kind_of(e.message)) for e in effects if isinstance(e, Send)]
    assert told == [(ENVIRONMENT, "END"), (0, "END"), (1, "END")]
    assert [e.error for e in effects if isinstance(e, Close)] == [None, None, None]
    # The samples are out before ENDED is announced, and that is the last thing of all.
    assert isinstance(effects[-2], EmitSample)
    assert effects[-1] == Announce(S.ENDED)
    assert not play.timers


def test_the_environment_may_acknowledge_before_its_final_set() -> None:
    play = play_ticks(Play().start(), 1)
    play.say(ENVIRONMENT, LAST)
    play.ack(ENVIRONMENT)
    play.observe()
    assert not play.has_timer(TimerKind.ACK, ENVIRONMENT)
    play.ack(0, 1)
    assert play.is_over()
    assert play.end_details(0) is None


def test_asked_for_and_the_environment_says_last_too() -> None:
    play = Play().start()
    play.observe()
    play.soft()
    play.act(0, 1)
    play.say(ENVIRONMENT, LAST)
    play.ack(ENVIRONMENT)
    play.observe()
    assert play.phase() is Phase.WAIT_ACKS
    play.ack(0, 1)
    assert play.is_over()
    assert play.notes == []


def test_asked_for_and_the_environment_goes_on_before_the_actions() -> None:
    play = Play().start()
    play.observe()
    play.soft()
    play.observe()
    assert play.machine.state == S.RUNNING
    play.act(0, 1)
    assert play.phase() is Phase.WAIT_FINAL


def test_asked_for_before_the_trial_began() -> None:
    play = Play()
    play.begin()
    play.soft()
    play.ready(0, 1).environment_ready()
    play.observe()
    play.act(0, 1)
    assert play.phase() is Phase.WAIT_FINAL


def test_asked_for_twice_is_asked_for_once() -> None:
    play = Play().start()
    play.observe()
    play.soft()
    deadline = dict(play.timers)
    play.pass_time(10)
    assert play.soft() == []
    assert play.timers == deadline


def test_acknowledgements_are_awaited_side_by_side() -> None:
    play = soft_ended(Play().start())
    play.pass_time(30)
    assert not play.is_over()
    assert not play.has_timer(TimerKind.ACK, 0)
    play.ack(ENVIRONMENT)
    assert play.is_over()
    assert [play.end_details(index) for index in (ENVIRONMENT, 0, 1)] == [None, None, None]
    assert len(play.notes) == 2


def test_without_the_environments_acknowledgement_end_carries_details() -> None:
    play = soft_ended(Play().start())
    play.ack(0, 1)
    play.pass_time(59)
    assert not play.is_over()
    play.pass_time(1)
    assert play.is_over()
    assert "did not acknowledge" in str(play.end_details(0))
    assert "did not acknowledge" in str(play.end_details(ENVIRONMENT))


def test_waiting_for_ever_for_acknowledgements() -> None:
    rules = TrialRules(environment_ack_timeout_seconds=0, actor_ack_timeout_seconds=0, heartbeat_seconds=0)
    play = soft_ended(Play(rules=rules).start())
    assert not play.timers
    play.pass_time(1e6)
    assert not play.is_over()


def test_acknowledgements_twice_or_too_early() -> None:
    play = Play().start()
    play.observe()
    play.ack(0, ENVIRONMENT)
    assert play.machine.counters["last_ack_in_vain"] == 2
    play.soft()
    play.act(0, 1)
    play.observe()
    play.ack(0, 0)
    assert play.machine.counters["last_ack_in_vain"] == 3
    assert not play.is_over()


def test_losses_while_acknowledgements_are_awaited() -> None:
    play = soft_ended(Play().start())
    play.lose(0)
    assert not play.is_over()
    play.ack(1)
    play.lose(1)
    play.ack(ENVIRONMENT)
    assert play.is_over()
    assert play.end_details(ENVIRONMENT) is None
    assert play.kinds(0) == []
    assert play.kinds(1) == []


def test_the_environment_lost_before_it_acknowledged() -> None:
    play = soft_ended(Play().start())
    play.lose(ENVIRONMENT)
    assert not play.is_over()
    play.ack(0, 1)
    assert "did not acknowledge" in str(play.end_details(0))


def test_the_environment_lost_after_it_acknowledged() -> None:
    play = soft_ended(Play().start())
    play.ack(ENVIRONMENT)
    play.lose(ENVIRONMENT)
    play.ack(0, 1)
    assert play.end_details(0) is None


def test_a_client_that_stops_talking_after_its_acknowledgement_gets_end() -> None:
    play = soft_ended(Play().start())
    play.ack(0)
    play.half_close(0)
    play.half_close(1)
    assert not play.is_over()
    play.ack(ENVIRONMENT)
    assert play.kinds(0) == ["END"]
    assert play.kinds(1) == ["END"]


def test_losses_before_the_final_observation_cost_nothing() -> None:
    play = Play().start()
    play.observe()
    play.soft()
    play.act(0, 1)
    play.lose(0)
    play.clear()
    play.observe()
    assert play.kinds(1) == ["LAST", "NORMAL/observation"]
    play.ack(ENVIRONMENT, 1)
    assert play.is_over()
    assert play.end_details(1) is None


@pytest.mark.parametrize("phase", ["running", "wait_final"])
def test_the_environment_lost(phase: str) -> None:
    play = Play().start()
    play.observe()
    if phase == "wait_final":
        play.soft()
        play.act(0, 1)
    play.clear()
    play.lose(ENVIRONMENT, "gone")
    assert play.end_details(0) == "the environment 'env' was lost: gone"
    assert play.kinds(ENVIRONMENT) == []


def test_nobody_to_wait_for() -> None:
    play = Play(make_params(actor("a", optional=True))).start()
    play.observe()
    play.lose(0)
    play.say(ENVIRONMENT, LAST)
    play.ack(ENVIRONMENT)
    play.clear()
    play.observe()
    assert play.is_over()
    assert play.states == [1, 2, 3, 4, 5]
    assert play.kinds(ENVIRONMENT) == ["END"]


@pytest.mark.parametrize("how", ["asked", "last", "steps"])
def test_patience(how: str) -> None:
    rules = TrialRules(soft_end_patience_seconds=7)
    play = Play(make_params(max_steps=1 if how == "steps" else 0), rules=rules).start()
    play.observe()
    if how == "asked":
        play.soft()
    elif how == "last":
        play.say(ENVIRONMENT, LAST)
    else:
        play.act(0, 1)
        play.observe()
        play.act(0, 1)
        assert play.phase() is Phase.WAIT_FINAL
    play.pass_time(6)
    assert not play.is_over()
    play.pass_time(1)
    assert play.is_over()
    assert "7 s" in str(play.end_details(0))


def test_patience_before_there_are_parameters() -> None:
    play = Play()
    play.feed(Begin())
    play.soft()
    play.pass_time(120)
    assert play.states == [S.INITIALIZING, S.ENDED]


def test_patience_for_ever() -> None:
    play = Play(rules=TrialRules(soft_end_patience_seconds=0)).begin()
    play.soft()
    assert not play.timers
    play.hard()
    assert not play.timers


def test_end_from_participants_is_ignored() -> None:
    play = Play().start()
    play.observe()
    play.clear()
    for _ in range(3):
        play.say(0, END)
        play.say(0, LAST)
        play.say(ENVIRONMENT, END)
    assert play.machine.counters["end_in_vain"] == 6
    assert play.machine.counters["last_in_vain"] == 3
    assert len(play.notes) == 3
    play.act(0, 1)
    assert play.take_set().tick_id == 0


def test_an_end_that_says_why_is_no_fault() -> None:
    """What the SDK says when an actor has failed is in the reason of the loss; the log complains of nothing else."""
    play = Play().start()
    play.observe()
    play.clear()
    play.say(0, END, details="it failed")
    play.say(1, END)
    assert [(note.level, note.text.partition(":")[0]) for note in play.notes] == [
        ("debug", "actor 'a'"),
        ("warning", "actor 'b'"),
    ]


def test_a_hard_end_overrides_a_soft_one() -> None:
    play = soft_ended(Play().start())
    play.hard("now")
    assert [play.end_details(index) for index in (ENVIRONMENT, 0, 1)] == ["now", "now", "now"]
    assert play.states == [1, 2, 3, 4, 5]


def test_after_the_final_observation_nobodys_action_is_waited_for() -> None:
    names = "abc"
    play = Play(make_params(*(actor(name, response_timeout=9) for name in names))).start()
    play.observe()
    play.act(1)
    assert [play.has_timer(TimerKind.RESPONSE, index) for index in range(3)] == [True, False, True]
    play.say(ENVIRONMENT, LAST)
    play.observe()
    assert not [timer for timer in play.timers if timer.kind is TimerKind.RESPONSE]
    assert play.machine.awaited == set()
    assert play.machine.answered


@pytest.mark.parametrize(
    ("why", "cause", "level"),
    [
        ("no such class", EndCause.NOT_STARTED, "warning"),
        (NOT_STARTED, EndCause.NOT_STARTED, "info"),
        ("enough", EndCause.HARD_TERMINATION, "info"),
    ],
)
def test_a_start_that_failed_is_worth_a_warning(why: str, cause: EndCause, level: str) -> None:
    play = Play()
    play.feed(Begin())
    play.feed(HardEnd(why, cause))
    assert [(note.level, note.text) for note in play.notes] == [(level, f"the trial was broken off: {why}")]


@pytest.mark.parametrize("lost", [False, True])
def test_a_missing_acknowledgement_is_worth_a_warning(lost: bool) -> None:
    play = soft_ended(Play().start())
    if lost:
        play.lose(0)
    else:
        play.pass_time(30)
    assert {note.level for note in play.notes if "'a' did not acknowledge" in note.text} == {"warning"}


@pytest.mark.parametrize("hard", [False, True])
def test_nobody_is_present_after_the_end(hard: bool) -> None:
    play = Play().start()
    play.observe()
    participants = list(play.machine.participants.values())
    assert all(one.present for one in participants)
    if hard:
        play.feed(HardEnd("enough", EndCause.HARD_TERMINATION))
    else:
        play.say(ENVIRONMENT, LAST)
        play.observe()
        for index in (0, 1):
            play.say(index, LAST_ACK)
        play.say(ENVIRONMENT, LAST_ACK)
    assert play.machine.is_over
    assert not any(one.present for one in participants)
