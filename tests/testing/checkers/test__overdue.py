"""Overdue waits of a trial, told from machines whose own timers never fire here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.trial.harness import Play, actor, make_params, play_ticks
from trio_cogment.testing.checkers.probe import SLACK_SECONDS, Overdue, Wait, waits_of
from trio_cogment.trial import ENVIRONMENT, TrialRules

UNHURRIED = TrialRules(heartbeat_seconds=0)
ACTIONS = Wait("the actions of tick 1", 5.0)
FINAL = Wait("the final observation", 120.0)
ACKS = Wait("LAST_ACKs", 60.0)


def timed(**more: Any) -> Play:
    """Return a trial at tick 1 whose actors have a response timeout."""
    actors = [actor(name, response_timeout=seconds) for name, seconds in (("a", 3.0), ("b", 5.0))]
    return play_ticks(Play(make_params(*actors, **more), rules=UNHURRIED).start(), 1)


def test_actions_are_waited_for_until_the_last_has_come() -> None:
    play = timed()
    assert list(waits_of(play.machine)) == []
    play.observe()
    assert list(waits_of(play.machine)) == [ACTIONS]
    play.act(1)
    assert list(waits_of(play.machine)) == [Wait("the actions of tick 1", 3.0)]
    play.act(0)
    assert list(waits_of(play.machine)) == []


def test_who_has_no_timeout_may_take_for_ever() -> None:
    play = Play(make_params(actor("a", response_timeout=3.0), actor("b")), rules=UNHURRIED).start()
    play.observe()
    assert list(waits_of(play.machine)) == []


@pytest.mark.parametrize("patience", [0.0, 120.0])
def test_an_end_is_waited_for_and_then_its_acknowledgements(patience: float) -> None:
    rules = TrialRules(soft_end_patience_seconds=patience, heartbeat_seconds=0)
    play = play_ticks(Play(rules=rules).start(), 1)
    play.observe()
    play.soft()
    asked = [FINAL] if patience else []
    assert list(waits_of(play.machine)) == asked
    play.act(0, 1)
    assert list(waits_of(play.machine)) == asked
    play.observe()
    assert list(waits_of(play.machine)) == [ACKS]
    play.ack(ENVIRONMENT, 0)
    assert list(waits_of(play.machine)) == [ACKS]
    play.ack(1)
    assert list(waits_of(play.machine)) == []


def test_acknowledgements_may_take_for_ever_where_the_operator_says_so() -> None:
    play = Play(rules=TrialRules(actor_ack_timeout_seconds=0, heartbeat_seconds=0)).start()
    play.observe()
    play.soft()
    play.act(0, 1)
    play.observe()
    assert list(waits_of(play.machine)) == []


def test_activity_is_waited_for_from_the_beginning_where_nobody_has_come() -> None:
    play = Play(make_params(max_inactivity=30), rules=UNHURRIED)
    play.now = 100.0
    play.begin()
    play.now = 105.0
    assert list(waits_of(play.machine)) == [Wait("anything to happen", 30, since=100.0)]


def test_activity_is_waited_for_from_the_last_one_on() -> None:
    play = Play(make_params(max_inactivity=30), rules=UNHURRIED).start()
    assert list(waits_of(play.machine)) == [Wait("anything to happen", 30, since=100.0)]
    play.now = 110.0
    play.observe()
    assert list(waits_of(play.machine)) == [Wait("anything to happen", 30, since=110.0)]
    play.hard()
    assert list(waits_of(play.machine)) == []
    assert list(waits_of(Play().machine)) == []


def test_a_heartbeat_is_due_to_who_is_silent_and_owes_nothing() -> None:
    play = Play(rules=TrialRules(heartbeat_seconds=20)).start()
    play.now = 110.0
    play.observe()
    assert list(waits_of(play.machine)) == [Wait("a HEARTBEAT to env, silent since 110 s", 40.0)]
    play.now = 115.0
    play.act(0)
    assert list(waits_of(play.machine)) == [
        Wait("a HEARTBEAT to env, silent since 110 s", 40.0),
        Wait("a HEARTBEAT to a, silent since 115 s", 40.0),
    ]


def test_what_takes_too_long_is_told_once() -> None:
    play = timed(max_inactivity=8)
    play.observe()
    trial = SimpleNamespace(trial_id="t", over=False, time=100.0, machine=play.machine)
    over = SimpleNamespace(trial_id="u", over=True)
    overdue = Overdue(SimpleNamespace(trials=[over, trial]))  # type: ignore[arg-type]  # what it looks at is there

    def told(time: float) -> list[tuple[str, Wait, float]]:
        trial.time = time
        return list(overdue.look())

    assert told(100.0) == told(105.0 + SLACK_SECONDS) == []
    assert told(107.0) == [("t", ACTIONS, 7.0)]
    assert told(109.0) == []
    assert told(110.0) == [("t", Wait("anything to happen", 8, since=100.0), 10.0)]
    play.act(0, 1)
    play.observe()
    assert told(111.0) == told(112.0) == []
    assert told(120.0) == [("t", Wait("the actions of tick 2", 5.0), 9.0)]
