from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.trial import (
    ENVIRONMENT,
    Begin,
    EmitSample,
    HalfClosed,
    HardEnd,
    Lost,
    ParametersComplete,
    Received,
    Timer,
    TimerFired,
    TimerKind,
    TrialMachine,
    TrialRules,
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


def out_of_time(play: Play) -> None:
    play.pass_time(9)
    play.act(1)
    play.act(0)


def to_an_absent_actor(play: Play) -> None:
    play.lose(0)
    play.tell(1, "a")


#: What is done in vain in the first tick of a trial, its kind, and how loudly it is told.
IN_VAIN: list[tuple[Callable[[Play], object], str, str]] = [
    (lambda play: play.observe(3), "observation_set_of_wrong_tick", "error"),
    (lambda play: play.observe(actors_map=[0]), "observation_set_with_bad_map", "error"),
    (lambda play: play.act(0, tick_id=3), "action_of_wrong_tick", "warning"),
    (lambda play: play.act(0, 0), "action_repeated", "warning"),
    (out_of_time, "action_late", "warning"),
    (lambda play: play.tell(0, "nobody"), "message_to_nobody", "warning"),
    (lambda play: play.tell(0, "b", tick_id=3), "message_of_wrong_tick", "warning"),
    (to_an_absent_actor, "message_to_the_lost", "info"),
    (lambda play: play.tell(0, "b", bytes(2000)), "too_much_said", "warning"),
    (lambda play: [play.tell(0, "b") for _ in range(6)], "too_much_said", "warning"),
    (lambda play: play.reward(0, "b"), "reward_without_source", "warning"),
    (lambda play: play.reward(0, "nobody", (1, 1)), "reward_to_nobody", "warning"),
    (lambda play: play.reward(0, "b", (1, 1), tick_id=3), "reward_of_wrong_tick", "warning"),
]


@pytest.mark.parametrize(("do", "kind", "level"), IN_VAIN)
def test_what_was_done_in_vain_is_counted_by_its_kind(do: Callable[[Play], object], kind: str, level: str) -> None:
    rules = TrialRules(max_said_per_tick=5, max_said_bytes_per_tick=1000, heartbeat_seconds=0)
    params = make_params(actor("a", optional=True, response_timeout=9), actor("b"))
    play = Play(params, rules=rules).start()
    play.observe()
    do(play)
    assert play.machine.counters == {kind: 1}
    assert [note.level for note in play.notes if note.text.endswith("ignored (further ones only counted)")] == [level]


def test_an_action_before_there_is_a_tick_is_counted_by_its_kind() -> None:
    play = Play().start()
    play.act(0)
    assert play.machine.counters == {"action_out_of_season": 1}
    assert [note.level for note in play.notes] == ["info"]


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


def test_what_crosses_with_a_loss_is_dropped_and_counted() -> None:
    play = Play(make_params(actor("a", optional=True), actor("b"))).start()
    play.lose(0)
    play.act(0)
    play.tell(0, "b")
    assert play.machine.counters["dropped"] == 2
    assert play.kinds(1) == []


def test_what_an_ended_trial_is_remembered_by_is_small() -> None:
    params = make_params(actor("a", default=bytes(1000)), actor("b"), properties={"kind": "test"})
    play = Play(params).start()
    play.observe()
    play.hard()
    assert play.machine.params == TrialParams(properties={"kind": "test"})
    assert [one.default_action for one in play.machine.actors] == [None, None]
    assert (play.machine.latest_observation, play.machine.tick_bytes) == (None, 0)


def test_samples_are_made_unless_nobody_wants_them() -> None:
    machine = TrialMachine("t")
    effects = [
        effect
        for event in (Begin(), ParametersComplete(make_params()), HardEnd("enough"))
        for effect in machine.handle(event, 1.0, 1)
    ]
    assert [type(effect) for effect in effects].count(EmitSample) == 1
