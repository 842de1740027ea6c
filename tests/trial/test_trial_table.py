"""The trial's table, pair by pair."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.common_pb2 import ActorRunTrialOutput, Message, Reward, TrialState
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial import ENVIRONMENT, Announce, Begin, ParametersComplete, TrialMachine
from trio_cogment.trial._machine import _FUNCTIONS
from trio_cogment.trial._memory import Breakage
from trio_cogment.trial._ticks import observation_input
from trio_cogment.trial._trial_table import ANNOUNCED, PUBLIC_STATE, TRANSITIONS, Action, Input, Phase

from .harness import Play, actor, make_params, snapshot

PAIRS = [(phase, symbol) for phase in Phase for symbol in Input]


def play_until(phase: Phase) -> Play:
    """Return a trial of a required, an optional and a free client actor that came to `phase`."""
    play = Play(make_params(actor("a"), actor("b", optional=True), actor("c", optional=True)))
    if phase is Phase.CREATED:
        return play
    if phase is Phase.INITIALIZING:
        play.feed(Begin())
        return play
    if phase is Phase.PENDING:
        play.begin().ready(0, 1, 2)
        play.environment_ready()
        return play
    play.start()
    play.observe()
    if phase is Phase.RUNNING:
        return play
    if phase is Phase.ENDED:
        play.hard()
        return play
    play.soft()
    play.act(0, 1, 2)
    if phase is Phase.WAIT_ACKS:
        play.observe()
    return play


LOSS = Breakage(EndCause.PARTICIPANT_LOST, "lost")


def arguments(machine: TrialMachine, symbol: Input) -> tuple[Any, Any]:
    """Return a participant and payload that go with an input."""
    first = machine.actors[0] if machine.actors else None
    second = machine.actors[-1] if machine.actors else None
    if symbol is Input.PARAMETERS_COMPLETE:
        return None, ParametersComplete(make_params())
    if symbol in (Input.OBSERVATION_SET, Input.FINAL_OBSERVATION_SET, Input.LATE_OBSERVATION_SET):
        return machine.environment, ObservationSet(tick_id=-1, observations=[b"o"], actors_map=[0, 0, 0])
    if symbol in (Input.ENVIRONMENT_LAST, Input.ENVIRONMENT_LOST):
        return machine.environment, LOSS
    if symbol is Input.OPTIONAL_ACTOR_LOST:
        return second, LOSS
    if symbol in (Input.REQUIRED_ACTION_MISSING, Input.PATIENCE_OVER, Input.HARD_END):
        return None, LOSS
    message = ActorRunTrialOutput()
    if symbol is Input.REWARD:
        message.reward.CopyFrom(Reward(tick_id=-1, receiver_name="a"))
    elif symbol is Input.MESSAGE:
        message.message.CopyFrom(Message(tick_id=-1, receiver_name="a"))
    elif symbol is Input.ACTION:
        message.action.tick_id = -1
    else:
        return first, LOSS
    return first, message


@pytest.mark.parametrize(("phase", "symbol"), [pair for pair in PAIRS if pair not in TRANSITIONS])
def test_an_absent_pair_raises_and_changes_nothing(phase: Phase, symbol: Input) -> None:
    machine = play_until(phase).machine
    assert machine.phase is phase
    machine.out = []
    before = snapshot(machine)
    with pytest.raises(LocalProtocolError, match=phase.name):
        machine.fire(symbol, *arguments(machine, symbol))
    assert machine.out == []
    assert snapshot(machine) == before


@pytest.mark.parametrize(("phase", "symbol"), list(TRANSITIONS))
def test_a_pair_leads_where_the_table_says(phase: Phase, symbol: Input) -> None:
    """With actions that do nothing but tell that they ran, and in which order they saw the announcements."""
    after, action = TRANSITIONS[phase, symbol]
    machine = play_until(phase).machine
    machine.out = []
    ran: list[tuple[Phase, int]] = []

    machine.row = {
        given: (to, lambda m, _p, _d: ran.append((m.phase, len(m.out))), said)
        for given, (to, _, said) in machine.row.items()
    }
    machine.fire(symbol)
    announced = [effect.state for effect in machine.out if isinstance(effect, Announce)]
    assert machine.phase is after
    assert announced == list(ANNOUNCED.get((phase, after), ()))
    assert ran == [(after, len(announced) - (after is not phase and after is Phase.ENDED))]
    assert TrialMachine.rows[phase][symbol][1] is _FUNCTIONS[action]


@pytest.mark.parametrize(("phase", "symbol"), list(TRANSITIONS))
def test_every_pair_runs(phase: Phase, symbol: Input) -> None:
    play = play_until(phase)
    machine = play.machine
    machine.out = []
    if symbol is Input.ACTORS_SETTLED and phase is Phase.PENDING:
        play = Play().begin()
        machine = play.machine
    if symbol is Input.ACTOR_JOINED:
        play = Play(make_params(actor("a", endpoint="client"))).begin()
        machine = play.machine
    if symbol in (Input.LATE_OBSERVATION_SET, Input.TICK_DUE):
        machine.tick_hz, machine.tick_slot, machine.answered = 4.0, 1, symbol is Input.LATE_OBSERVATION_SET
        machine.began_at = machine.now - 1
    if symbol is Input.NOBODY_LEFT_TO_ACK:
        machine.owing.clear()
    given = arguments(machine, symbol)
    if symbol in (Input.OBSERVATION_SET, Input.FINAL_OBSERVATION_SET, Input.LATE_OBSERVATION_SET):
        late = symbol is Input.LATE_OBSERVATION_SET and phase is not Phase.RUNNING
        machine.final_marked = symbol is Input.FINAL_OBSERVATION_SET
        read = observation_input(machine, given[1])
        assert read is (Input.OBSERVATION_SET if late else symbol)  # what a set maps is kept when it is checked
    machine.fire(symbol, *given)
    assert machine.phase >= phase
    if TRANSITIONS[phase, symbol][1] is Action.NOTHING and phase is not Phase.CREATED:
        assert machine.out == []


def test_every_phase_and_input_is_listed() -> None:
    assert {phase for phase, _ in TRANSITIONS} == set(Phase)
    assert {symbol for _, symbol in TRANSITIONS} == set(Input)
    assert {action for _, action in TRANSITIONS.values()} == set(Action) == set(_FUNCTIONS)
    assert set(PUBLIC_STATE) == set(Phase)


def test_it_only_goes_forward() -> None:
    for (phase, _), (after, _) in TRANSITIONS.items():
        assert after >= phase
        assert PUBLIC_STATE[after] >= PUBLIC_STATE[phase]
        if phase is Phase.ENDED:
            assert after is Phase.ENDED


def test_every_change_is_announced_up_to_its_public_state() -> None:
    changes = {(phase, after) for (phase, _), (after, _) in TRANSITIONS.items() if phase is not after}
    assert set(ANNOUNCED) == changes
    for (phase, after), states in ANNOUNCED.items():
        path = [PUBLIC_STATE[phase], *states]
        assert path == sorted(set(path))
        assert path[-1] == PUBLIC_STATE[after]


@pytest.mark.parametrize("phase", list(Phase))
def test_a_hard_end_in_every_phase(phase: Phase) -> None:
    play = play_until(phase)
    play.clear()
    before, closed = list(play.states), dict(play.closed)
    play.hard("stop")
    assert play.machine.is_over
    assert play.machine.state == TrialState.ENDED
    assert play.states == before + list(ANNOUNCED.get((phase, Phase.ENDED), ()))
    assert not play.timers
    if phase in (Phase.CREATED, Phase.INITIALIZING):
        assert play.samples == []
        assert play.sent == {}
    elif phase is not Phase.ENDED:
        assert closed == {}
        assert list(play.closed.items()) == [(ENVIRONMENT, None), (0, None), (1, None), (2, None)]
        for index in play.closed:
            (message,) = play.take(index)
            assert message.details == "stop"
        assert play.samples[-1].info.state == TrialState.ENDED
    assert play.hard() == []
    assert play.soft() == []


@pytest.mark.parametrize("phase", list(Phase))
def test_a_soft_end_in_every_phase(phase: Phase) -> None:
    play = play_until(phase)
    if phase is Phase.CREATED:
        with pytest.raises(LocalProtocolError):
            play.soft()
        return
    state = play.machine.state
    first, second = play.soft(), play.soft()
    assert play.machine.state == state
    assert bool(first) == (phase <= Phase.RUNNING)
    assert second == []
