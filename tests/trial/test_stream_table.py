"""The table of a participant's stream, pair by pair, and through the machine."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput
from trio_cogment.base.errors import LocalProtocolError, RemoteProtocolError, StatusCode, status_of
from trio_cogment.trial import ENVIRONMENT, Close, Event, HalfClosed, Lost, Received, Send
from trio_cogment.trial._participant import Actor, Environment, Participant
from trio_cogment.trial._stream_table import ACTOR_STREAM, ENVIRONMENT_STREAM, StreamInput, StreamState, Verdict

from .harness import HEARTBEAT, Play, actor, kind_of, make_params, snapshot

ROLES = {"actor": ACTOR_STREAM, "environment": ENVIRONMENT_STREAM}
TRIPLES = [(role, state, symbol) for role in ROLES for state in StreamState for symbol in StreamInput]
DONE = (StreamState.LOST, StreamState.ENDED)
REMOTE = [symbol for symbol in StreamInput if symbol <= StreamInput.CLOSED]


def participant_in(role: str, state: StreamState) -> Participant:
    result: Participant = Environment("env") if role == "environment" else Actor(0, make_params())
    result.state = state
    result.row = result._rows[state]
    return result


@pytest.mark.parametrize(("role", "state", "symbol"), TRIPLES)
def test_pair(role: str, state: StreamState, symbol: StreamInput) -> None:
    participant = participant_in(role, state)
    entry = ROLES[role].get((state, symbol))
    if entry is None:
        with pytest.raises(LocalProtocolError, match=f"{symbol.name} while {state.name}"):
            participant.step(symbol)
        assert participant.state is state
        assert participant.row is participant._rows[state]
    else:
        assert participant.step(symbol) is entry[1]
        assert participant.state is entry[0]
        assert participant.row is participant._rows[entry[0]]


@pytest.mark.parametrize("table", ROLES.values(), ids=ROLES)
def test_structure(table: dict[tuple[StreamState, StreamInput], tuple[StreamState, Verdict]]) -> None:
    assert {state for state, _ in table} == set(StreamState)
    for (state, symbol), (after, verdict) in table.items():
        if state in DONE:
            assert (after, verdict) == (state, Verdict.DROP)
        # Who is refused or loses its stream is told nothing more.
        assert (verdict in (Verdict.REFUSE, Verdict.LOSE)) <= (after is StreamState.LOST)
        assert (verdict is Verdict.PART) <= (after is StreamState.ENDED)
        assert (verdict is Verdict.ANSWER) <= (symbol is StreamInput.HEARTBEAT and after is state)
    # Whatever a live stream brings is foreseen.
    own = StreamInput.OBSERVATION_SET if table is ENVIRONMENT_STREAM else StreamInput.ACTION
    theirs = {StreamInput.OBSERVATION_SET, StreamInput.ACTION} - {own}
    for state in StreamState:
        if state is not StreamState.IDLE:
            assert {symbol for symbol in REMOTE if (state, symbol) in table} == set(REMOTE) - theirs


MESSAGES: dict[StreamInput, dict[str, Any]] = {
    StreamInput.HEARTBEAT: {"state": 2},
    StreamInput.REWARD: {"state": 1, "reward": {"tick_id": -1}},
    StreamInput.MESSAGE: {"state": 1, "message": {"tick_id": -1, "receiver_name": "a"}},
    StreamInput.EMPTY: {"state": 1, "details": "well"},
    StreamInput.LAST: {"state": 3},
    StreamInput.LAST_ACK: {"state": 4, "details": "fine"},
    StreamInput.END: {"state": 5},
    StreamInput.BAD_STATE: {"state": 0},
    StreamInput.BAD_DATA: {"state": 3, "message": {}},
}


def event_for(index: int, symbol: StreamInput) -> Event:
    if symbol is StreamInput.CLOSED:
        return Lost(index, "reset")
    if symbol is StreamInput.HALF_CLOSED:
        return HalfClosed(index)
    environment = index == ENVIRONMENT
    fields = MESSAGES.get(symbol)
    if symbol is StreamInput.INIT:
        fields = {"state": 1, "init_output": EnvInitialOutput() if environment else ActorInitialOutput()}
    elif symbol is StreamInput.ACTION:
        fields = {"state": 1, "action": {"tick_id": -1}}
    elif symbol is StreamInput.OBSERVATION_SET:
        fields = {
            "state": 1,
            "observation_set": {"tick_id": -1, "observations": [b"o"], "actors_map": [0, 0]},
        }
    assert fields is not None
    return Received(index, (EnvRunTrialOutput if environment else ActorRunTrialOutput)(**fields))


def play_to(role: str, state: StreamState) -> tuple[Play, int]:
    """Return a trial in which a participant is in `state`; the actor is optional, so that the trial outlives it."""
    index = ENVIRONMENT if role == "environment" else 0
    watched = actor("w", optional=True, initial_connection_timeout=1)
    play = Play(make_params(watched, actor("a"))).begin()
    if state is StreamState.IDLE:
        if role == "actor":
            play = Play(make_params(actor("w", endpoint="client"), actor("a"))).begin()
    elif state is StreamState.CONNECTING:
        if role == "environment":
            play.ready(0, 1)
    elif state is StreamState.LEFT_OUT:
        # Of an environment left out nothing is left to be seen: the trial has ended with it.
        play.ready(1)
        play.pass_time(1)
    elif state is StreamState.LOST:
        play = Play(make_params(watched, actor("a"))).start()
        play.lose(index, "reset")
    else:
        play = Play(make_params(watched, actor("a"))).start()
        play.observe()
        if state is StreamState.ENDED:
            play.hard()
        elif state is not StreamState.ACTIVE:
            play.soft()
            play.act(0, 1)
            play.observe()
            if state is StreamState.ACKED:
                play.ack(index)
    assert play.machine.participants[index].state is state
    play.clear()
    return play, index


@pytest.mark.parametrize(
    ("role", "state"),
    [
        (role, state)
        for role in ROLES
        for state in StreamState
        if state not in (StreamState.IDLE, *DONE) and (role, state) != ("environment", StreamState.LEFT_OUT)
    ],
)
def test_a_heartbeat_is_answered_at_any_time_also_with_details(role: str, state: StreamState) -> None:
    play, index = play_to(role, state)
    for data in ({}, {"details": "still loading"}):
        play.clear()
        play.say(index, HEARTBEAT, **data)
        assert play.kinds(index) == ["HEARTBEAT"]
    assert play.machine.participants[index].state is state


@pytest.mark.parametrize(
    ("role", "state", "symbol"),
    [
        triple
        for triple in TRIPLES
        if triple[2] in REMOTE
        and triple[:2] != ("environment", StreamState.LEFT_OUT)
        # A foreign kind of message cannot even be made.
        and triple[2] is not (StreamInput.ACTION if triple[0] == "environment" else StreamInput.OBSERVATION_SET)
    ],
)
def test_through_the_machine(role: str, state: StreamState, symbol: StreamInput) -> None:
    play, index = play_to(role, state)
    event = event_for(index, symbol)
    entry = ROLES[role].get((state, symbol))
    if entry is None:
        before = snapshot(play.machine)
        with pytest.raises(LocalProtocolError):
            play.feed(event)
        assert snapshot(play.machine) == before
        return
    effects = play.feed(event)
    after, verdict = entry
    over = play.is_over()
    assert play.machine.participants[index].state in ((after,) if not over else (after, StreamState.ENDED))
    if verdict is Verdict.DROP:
        assert effects == []
    elif verdict is Verdict.ANSWER:
        (effect,) = effects
        assert isinstance(effect, Send)
        assert kind_of(effect.message) == "HEARTBEAT"
    elif verdict is Verdict.IGNORE:
        (note,) = effects
        assert note in play.notes
        assert play.feed(event) == []
        assert play.machine.counters[f"{symbol.name.lower()}_in_vain"] == 2
    elif verdict is Verdict.REFUSE:
        assert isinstance(effects[0], Close)
        error = play.closed[index]
        assert isinstance(error, RemoteProtocolError)
        assert status_of(error)[0] is StatusCode.INVALID_ARGUMENT
    elif verdict is Verdict.PART:
        assert play.end_details(index) is not None
        assert play.closed[index] is None
    # Everybody else goes on, unless it was the environment.
    if role == "actor":
        assert over == (state is StreamState.ENDED)
    elif verdict in (Verdict.REFUSE, Verdict.LOSE, Verdict.PART):
        assert over == (state not in (StreamState.ENDING, StreamState.ACKED))


def test_an_environment_that_fails_to_begin_has_its_stream_until_end() -> None:
    play = Play().begin().ready(0, 1)
    play.clear()
    play.pass_time(60)
    assert play.is_over()
    assert play.end_details(ENVIRONMENT) == "the environment 'env' was lost: it did not come in time"
