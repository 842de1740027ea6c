from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.errors import LocalProtocolError
from trio_cogment.trial import (
    ENVIRONMENT,
    NO_PARTICIPANT,
    HalfClosed,
    Lost,
    ParametersComplete,
    Received,
    Timer,
    TimerFired,
    TimerKind,
)

from .harness import HEARTBEAT, Play, actor, make_params, play_ticks, snapshot

S = TrialState
STALE = Timer(TimerKind.INACTIVITY, NO_PARTICIPANT)


@pytest.mark.parametrize("event", [Received(9, None), Lost(9, "x"), HalfClosed(-2)])
def test_unknown_participants(event: Received | Lost | HalfClosed) -> None:
    play = Play().start()
    before = snapshot(play.machine)
    with pytest.raises(LocalProtocolError, match="no participant"):
        play.feed(event)
    assert snapshot(play.machine) == before


def test_parameters_twice() -> None:
    play = Play().begin()
    with pytest.raises(LocalProtocolError, match="PARAMETERS_COMPLETE while PENDING"):
        play.feed(ParametersComplete(play.params))
    play.hard()
    assert play.feed(ParametersComplete(play.params)) == []


def test_a_disarmed_timer_that_fires_all_the_same() -> None:
    play = Play().start()
    assert play.feed(TimerFired(Timer(TimerKind.RESPONSE, 0))) == []
    assert play.machine.counters["timer_disarmed"] == 1


def test_heartbeats_at_any_time() -> None:
    play = Play().start()
    for _ in range(2):
        play.clear()
        for index in (ENVIRONMENT, 0, 1):
            play.say(index, HEARTBEAT)
            assert play.kinds(index) == ["HEARTBEAT"]
        play_ticks(play, 1)
    play.soft()
    play.observe()
    play.act(0, 1)
    play.observe()
    play.ack(0)
    play.clear()
    play.say(0, HEARTBEAT)
    assert play.kinds(0) == ["HEARTBEAT"]
    play.hard()
    play.clear()
    play.say(0, HEARTBEAT)
    assert play.kinds(0) == []


def test_staleness() -> None:
    play = Play(make_params(max_inactivity=10)).start()
    assert play.timers == {STALE: 110.0}
    play.pass_time(9)
    play.observe()
    # Activity does not touch the timer: it is looked at when the timer fires.
    assert play.timers == {STALE: 110.0}
    play.pass_time(2)
    assert play.timers == {STALE: 119.0}
    for _ in range(7):
        play.pass_time(1)
        play.say(0, HEARTBEAT)
        play.say(ENVIRONMENT, HEARTBEAT)
    assert not play.is_over()
    play.pass_time(1)
    assert play.is_over()
    assert play.end_details(0) == "nothing happened for 10 s"
    assert any("nothing happened" in text for text in play.samples[-1].info.special_events)


def test_staleness_while_waiting_for_a_client() -> None:
    play = Play(make_params(max_inactivity=10)).begin()
    play.pass_time(10)
    assert play.states == [S.INITIALIZING, S.PENDING, S.ENDED]


def test_no_staleness_unless_asked_for() -> None:
    play = Play().start()
    play.observe()
    play.pass_time(1e6)
    assert play.machine.state == S.RUNNING


def test_empty_messages_are_ignored() -> None:
    play = Play().start()
    play.observe()
    for index in (ENVIRONMENT, 0):
        play.say(index, 1)
        play.say(index, 1, details="what?")
    assert play.machine.counters == {"empty_in_vain": 4}
    assert len(play.notes) == 2
    with pytest.raises(TypeError):
        play.machine.counters["x"] = 1  # type: ignore[index]  # which is what is tested


@pytest.mark.parametrize(
    "message", [{"state": 0}, {"state": 9}, {"state": 2, "details": "x"}, {"state": 4, "action": {}}]
)
def test_an_actors_fault_is_its_own(message: dict[str, Any]) -> None:
    play = Play(make_params(actor("a", optional=True), actor("b"))).start()
    play.observe()
    play.act(1)
    play.say(0, **message)
    assert play.closed.keys() == {0}
    assert play.machine.counters["refused"] == 1
    assert list(play.take_set().unavailable_actors) == [0]


def test_the_environments_fault_ends_the_trial() -> None:
    play = Play().start()
    play.observe()
    play.environment_ready()
    assert play.is_over()
    assert str(play.closed[ENVIRONMENT]) == "a second init_output"
    assert play.end_details(0) == "the environment 'env' was lost: a second init_output"
