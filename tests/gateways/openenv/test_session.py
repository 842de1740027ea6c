"""Every message in every state, and every event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trio_cogment.base.errors import UnavailableError
from trio_cogment.gateways.openenv.messages import Reset, Turn
from trio_cogment.gateways.openenv.session import (
    MAX_WAITING_MESSAGES,
    Act,
    Effect,
    HangUp,
    Join,
    Leave,
    Phase,
    Reply,
    Session,
)
from trio_cogment.spaces import Discrete, Observation

RESET = json.dumps({"type": "reset", "data": {"seed": 1}})
STEP = json.dumps({"type": "step", "data": {"value": 2}})
STATE = json.dumps({"type": "state"})
CLOSE = json.dumps({"type": "close"})
MCP = json.dumps({"type": "mcp", "data": {}})
LOST = UnavailableError("the environment is gone")


def phase_of(session: Session) -> Phase:
    """Return the phase; a function, so that what is known of an attribute is forgotten."""
    return session.phase


def turn(value: int = 0, *, done: bool = False, reward: float | None = None) -> Turn:
    return Turn(Observation(np.int64(value), reward=reward, terminated=done), done, "player_0")


def join(session: Session) -> None:
    session.joined(1, trial="", trial_id="t-1", seat="player_0", action_space=Discrete(3))


def new() -> Session:
    return Session()


def joining() -> Session:
    session = Session()
    assert session.receive(RESET) == [Join(1, Reset(seed=1))]
    return session


def playing() -> Session:
    session = joining()
    join(session)
    session.observed(1, turn())
    return session


def stepping() -> Session:
    session = playing()
    assert session.receive(STEP) == [Act(np.int64(2))]
    return session


def ended() -> Session:
    session = playing()
    assert session.observed(1, turn(5, done=True, reward=1.5)) == []
    return session


def ended_by_a_loss() -> Session:
    session = playing()
    assert session.lost(1, LOST) == []
    return session


def over() -> Session:
    session = stepping()
    session.observed(1, turn(5, done=True))
    return session


def closed() -> Session:
    session = playing()
    session.receive(CLOSE)
    return session


STATES: dict[Phase, Callable[[], Session]] = {
    Phase.NEW: new,
    Phase.JOINING: joining,
    Phase.PLAYING: playing,
    Phase.STEPPING: stepping,
    Phase.ENDED: ended,
    Phase.OVER: over,
    Phase.CLOSED: closed,
}


@pytest.mark.parametrize("phase", list(Phase))
def test_whether_an_answer_is_due(phase: Phase) -> None:
    assert STATES[phase]().busy == (phase in (Phase.JOINING, Phase.STEPPING))


def test_every_state_can_be_reached() -> None:
    assert {phase: make().phase for phase, make in STATES.items()} == {phase: phase for phase in Phase}


def only(effects: list[Effect]) -> dict[str, Any]:
    """Return the one answer."""
    assert len(effects) == 1
    assert isinstance(effects[0], Reply)
    return effects[0].document


def error(effects: list[Effect]) -> tuple[str, str]:
    document = only(effects)
    assert document["type"] == "error"
    return document["data"]["code"], document["data"]["message"]


@pytest.mark.parametrize("phase", [Phase.NEW, Phase.OVER])
def test_a_step_needs_an_episode(phase: Phase) -> None:
    session = STATES[phase]()
    code, text = error(session.receive(STEP))
    assert code == "EXECUTION_ERROR"
    assert "expected a reset before" in text
    assert ("is over" in text) == (phase is Phase.OVER)
    assert phase_of(session) is phase


@pytest.mark.parametrize("phase", [Phase.NEW, Phase.PLAYING, Phase.ENDED, Phase.OVER])
def test_what_makes_no_sense_is_refused_and_changes_nothing(phase: Phase) -> None:
    session = STATES[phase]()
    for text, code in (
        ("{", "INVALID_JSON"),
        ("{}", "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": {"seed": "x"}}', "VALIDATION_ERROR"),
    ):
        assert error(session.receive(text))[0] == code
    assert only(session.receive(MCP))["type"] == "mcp"
    assert only(session.receive(STATE))["data"]["phase"] == phase.value
    assert phase_of(session) is phase


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.STEPPING])
def test_what_comes_while_an_answer_is_due_waits(phase: Phase) -> None:
    session = STATES[phase]()
    for text in (STATE, "{", STEP, STATE):
        assert session.receive(text) == []
    join(session)
    told, state, refused, act = session.observed(1, turn(1))
    assert isinstance(told, Reply)
    assert isinstance(state, Reply)
    assert isinstance(refused, Reply)
    kinds = [told.document["type"], state.document["type"], refused.document["type"]]
    assert kinds == ["observation", "state", "error"]
    assert act == Act(np.int64(2))
    # The second request for the state waits for the answer to the step.
    assert [reply.document["type"] for reply in session.observed(1, turn(2)) if isinstance(reply, Reply)] == [
        "observation",
        "state",
    ]


def test_too_many_messages_end_the_session() -> None:
    session = stepping()
    for _ in range(MAX_WAITING_MESSAGES):
        assert session.receive(STATE) == []
    reply, leave, hang_up = session.receive(STATE)
    assert isinstance(reply, Reply)
    assert reply.document["data"]["code"] == "SESSION_ERROR"
    assert (leave, hang_up) == (Leave(1), HangUp(1008))
    assert phase_of(session) is Phase.CLOSED


@pytest.mark.parametrize("phase", [Phase.PLAYING, Phase.ENDED, Phase.OVER])
def test_a_reset_leaves_the_episode(phase: Phase) -> None:
    session = STATES[phase]()
    assert session.receive(RESET) == [Leave(1), Join(2, Reset(seed=1))]
    # What the old episode still says changes nothing.
    assert session.observed(1, turn(3)) == []
    assert session.lost(1, LOST) == []
    assert phase_of(session) is Phase.JOINING
    session.joined(1, trial="", trial_id="old", seat="player_0", action_space=Discrete(9))
    session.joined(2, trial="", trial_id="t-2", seat="player_0", action_space=Discrete(1))
    session.observed(2, turn(0))
    assert only(session.receive(STATE))["data"]["episode_id"] == "t-2"


@pytest.mark.parametrize("phase", list(Phase))
def test_close_and_vanishing_in_every_state(phase: Phase) -> None:
    seated = [Leave(1)] if phase not in (Phase.NEW, Phase.CLOSED) else []
    session = STATES[phase]()
    assert session.receive(CLOSE) == ([] if phase is Phase.CLOSED else [*seated, HangUp(1000)])
    session = STATES[phase]()
    assert session.vanish() == seated
    assert phase_of(session) is Phase.CLOSED
    for text in (RESET, STEP, STATE, CLOSE, "{"):
        assert session.receive(text) == []
    assert session.observed(1, turn()) == []
    assert session.lost(1, LOST) == []
    assert session.dismiss("idle", 1000) == []


def test_an_episode() -> None:
    session = joining()
    join(session)
    assert only(session.observed(1, turn(0)))["data"] == {
        "observation": {"value": 0, "terminated": False, "truncated": False, "info": {}},
        "reward": None,
        "done": False,
        "metadata": {"seat": "player_0"},
    }
    assert session.receive(STEP) == [Act(np.int64(2))]
    assert only(session.observed(1, turn(1, reward=0.5)))["data"]["reward"] == 0.5
    assert session.receive(STEP) == [Act(np.int64(2))]
    last = only(session.observed(1, turn(2, done=True)))["data"]
    assert (last["done"], last["observation"]["terminated"]) == (True, True)
    assert only(session.receive(STATE))["data"] == {
        "episode_id": "t-1",
        "step_count": 2,
        "trial": "",
        "seat": "player_0",
        "phase": "over",
    }


def test_the_first_turn_may_be_the_end() -> None:
    session = joining()
    join(session)
    assert only(session.observed(1, turn(1, done=True)))["data"]["done"]
    assert phase_of(session) is Phase.OVER


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"value": 3}, "step: seat 'player_0': action: expected 0 to 2, got 3"),
        ({"action": 1}, "seat 'player_0': expected the field value, got 'action'"),
        ({}, "expected the field value, got none"),
        ({"value": 1, "extra": 1}, "expected the field value, got 'value', 'extra'"),
    ],
)
def test_an_action_that_is_none_can_be_corrected(data: dict[str, Any], words: str) -> None:
    session = playing()
    code, text = error(session.receive(json.dumps({"type": "step", "data": data})))
    assert (code, words in text) == ("VALIDATION_ERROR", True), text
    assert phase_of(session) is Phase.PLAYING
    assert session.receive('{"type": "step", "data": {"value": 1, "metadata": {}}}') == [Act(np.int64(1))]


def test_an_end_that_comes_unasked_is_told_to_the_next_step() -> None:
    session = ended()
    data = only(session.receive(STEP))["data"]
    assert (data["done"], data["reward"], data["observation"]["value"]) == (True, 1.5, 5)
    assert phase_of(session) is Phase.OVER


def test_a_loss_that_comes_unasked_is_told_to_the_next_step() -> None:
    session = ended_by_a_loss()
    assert phase_of(session) is Phase.ENDED
    reply, leave = session.receive(STEP)
    assert error([reply]) == ("EXECUTION_ERROR", "the environment is gone")
    assert leave == Leave(1)
    assert phase_of(session) is Phase.NEW
    assert session.receive(RESET) == [Join(2, Reset(seed=1))]


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.STEPPING])
def test_a_loss_while_an_answer_is_due(phase: Phase) -> None:
    session = STATES[phase]()
    session.receive(STATE)
    reply, leave, state = session.lost(1, LOST)
    assert error([reply]) == ("EXECUTION_ERROR", "the environment is gone")
    assert leave == Leave(1)
    assert isinstance(state, Reply)
    assert phase_of(session) is Phase.NEW


@pytest.mark.parametrize("phase", [Phase.ENDED, Phase.OVER])
def test_a_loss_after_the_end_is_none(phase: Phase) -> None:
    session = STATES[phase]()
    assert session.lost(1, LOST) == []
    assert session.observed(1, turn(9, done=True)) == []
    assert phase_of(session) is phase


def test_an_observation_that_json_cannot_hold() -> None:
    session = stepping()
    reply, leave = session.observed(1, Turn(Observation(object()), False, "player_0"))
    code, text = error([reply])
    assert code == "EXECUTION_ERROR"
    assert "seat 'player_0': observation: value" in text
    assert leave == Leave(1)


def test_the_server_may_end_a_session() -> None:
    reply, leave, hang_up = playing().dismiss("no message for 5 seconds", 1001)
    assert error([reply]) == ("SESSION_ERROR", "no message for 5 seconds")
    assert (leave, hang_up) == (Leave(1), HangUp(1001))
