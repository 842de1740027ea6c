from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.environment_pb2 import ObservationSet
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
    ("message", "kind", "text"),
    [
        ({"state": 0}, "bad_state", "a message without a known communication state"),
        ({"state": 9, "details": "x"}, "bad_state", "a message without a known communication state"),
        ({"state": 2, "message": {}}, "bad_data", "data with a communication state other than NORMAL"),
        ({"state": 4, "reward": {}}, "bad_data", "data with a communication state other than NORMAL"),
        ({"state": 1, "init_output": {}}, "init", "a second init_output"),
    ],
)
def test_what_means_nothing_is_ignored_and_counted(message: dict[str, Any], kind: str, text: str) -> None:
    play = Play().start()
    play.observe()
    for index in (ENVIRONMENT, 0):
        play.say(index, **message)
        play.say(index, **message)
    assert play.machine.counters == {f"{kind}_in_vain": 4}
    assert [note.text for note in play.notes] == [
        f"{who}: {text} while ACTIVE; ignored (further ones only counted)"
        for who in ("the environment 'env'", "actor 'a'")
    ]
    assert not play.closed
    play.act(0, 1)
    assert len(play.take_set().actions) == 2


def test_a_heartbeat_with_details_is_answered() -> None:
    play = Play().start()
    play.clear()
    for index in (ENVIRONMENT, 0):
        play.say(index, 2, details="")
        play.say(index, 2, details="still here")
        assert play.kinds(index) == ["HEARTBEAT", "HEARTBEAT"]
    assert play.machine.counters == {}


def test_an_actors_fault_is_its_own() -> None:
    play = Play(make_params(actor("a", optional=True), actor("b"))).begin().ready(1)
    play.act(0)
    assert play.closed.keys() == {0}
    assert str(play.closed[0]) == "ACTION where init_output was expected"
    assert play.machine.counters["refused"] == 1
    play.environment_ready()
    play.observe()
    play.clear()
    play.act(1)
    assert list(play.take_set().unavailable_actors) == [0]


def test_the_environments_fault_ends_the_trial() -> None:
    play = Play().begin().ready(0, 1)
    play.say(ENVIRONMENT, 4, init_output={})
    assert play.is_over()
    fault = "data with a communication state other than NORMAL where init_output was expected"
    assert str(play.closed[ENVIRONMENT]) == fault
    assert play.end_details(0) == f"the environment 'env' was lost: {fault}"


def test_of_an_observation_that_is_not_kept_tick_and_time_are() -> None:
    play = Play().start()
    play.machine.forget_observation()
    before = play.machine.latest_observation
    assert before is None
    play.observe(0)
    latest = play.machine.latest_observation
    assert latest is not None
    assert play.machine.observed_bytes == latest.ByteSize() > 0
    play.machine.forget_observation()
    assert play.machine.latest_observation == ObservationSet(tick_id=0, timestamp=latest.timestamp)
    assert play.machine.observed_bytes == 0
    play.check_counts()
