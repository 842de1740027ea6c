from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.errors import LocalProtocolError
from trio_cogment.trial import (
    ENVIRONMENT,
    HalfClosed,
    Lost,
    ParametersComplete,
    Received,
    Timer,
    TimerFired,
    TimerKind,
)

from .harness import Play, actor, make_params, snapshot


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
