"""The table of people's seats and that of their presence: the same states and answers for every mapped pair."""

from __future__ import annotations

import itertools

import pytest

from trio_cogment.play import seat_machine as old
from trio_cogment.play.seat_table import SEAT_TABLE, SeatAction, SeatInput, SeatState
from trio_cogment.seats.presence import TABLE, Outcome, Presence, PresenceInput, PresenceState, Then

#: The other inputs of the old table, ACT and STAND_IN_ACTS, are the mailbox's.
INPUTS = {
    SeatInput.ATTACH: PresenceInput.ATTACH,
    SeatInput.DETACH: PresenceInput.DETACH,
    SeatInput.ASK: PresenceInput.TURN,
    SeatInput.STAND_IN_FAILS: PresenceInput.SUBSTITUTE_FAILS,
    SeatInput.GRACE_OVER: PresenceInput.GRACE_OVER,
    SeatInput.TIME_UP: PresenceInput.TIME_UP,
    SeatInput.RESIGN: PresenceInput.RESIGN,
    SeatInput.END: PresenceInput.END,
}
ACTIONS = {
    SeatAction.DROP: Then.NOTHING,
    SeatAction.KEEP: Then.NOTHING,
    SeatAction.WELCOME: Then.WELCOME,
    SeatAction.TAKE_OVER: Then.TAKE_OVER,
    SeatAction.RELIEVE: Then.RELIEVE,
    SeatAction.TURN_AWAY: Then.TURN_AWAY,
    SeatAction.WAIT: Then.WAIT,
    SeatAction.SHOW: Then.SHOW,
    SeatAction.STAND_IN: Then.SUBSTITUTE,
    SeatAction.GIVE_UP: Then.SUBSTITUTE,
    SeatAction.ANSWER_FOR: Then.SUBSTITUTE,
    SeatAction.LEAVE: Then.LEAVE,
    SeatAction.FINISH: Then.FINISH,
}


def test_every_mapped_pair_has_the_same_answer() -> None:
    compared = 0
    for (state, happened), (then, action) in SEAT_TABLE.items():
        if happened in INPUTS:
            assert TABLE[PresenceState(state.value), INPUTS[happened]] == (PresenceState(then.value), ACTIONS[action])
            compared += 1
    assert compared == len(TABLE)


def test_the_other_inputs_change_no_state() -> None:
    for state in SeatState:
        for happened in set(SeatInput) - set(INPUTS):
            assert SEAT_TABLE[state, happened][0] is state


STEPS = ("attach a", "attach b", "detach a", "resign b", "turn", "time", "grace", "fails", "end")


@pytest.mark.parametrize("outcome", old.Outcome)
def test_every_sequence_has_the_same_states_pages_and_leavings(outcome: old.Outcome) -> None:
    for steps in itertools.product(STEPS, repeat=5):
        machine = old.SeatMachine(old.SeatRules(outcome=outcome, action_seconds=5))
        presence = Presence(Outcome(outcome.value))
        machine.begin()
        for tick_id, step in enumerate(steps):
            what, _, page = step.partition(" ")
            effects: list[old.SeatEffect] = []
            if what == "attach":
                effects, then = machine.attach(page), presence.attach(page)
            elif what == "detach":
                effects, then = machine.detach(page), presence.detach(page)
            elif what == "resign":
                effects, then = machine.resign(page), presence.resign(page)
            elif what == "turn":
                effects, then = machine.ask(tick_id), presence.turn()
            elif what == "time":
                effects, then = machine._handle(SeatInput.TIME_UP), presence.time_up()
            elif what == "grace":
                effects, then = machine._handle(SeatInput.GRACE_OVER), presence.grace_over()
            elif what == "fails":
                effects, then = machine.stand_in_fails(), presence.substitute_fails()
            else:
                effects, then = machine.end(), presence.end()
            kinds = {type(effect) for effect in effects}
            assert (machine.state.value, machine.page) == (presence.state.value, presence.page)
            assert (old.Leave in kinds) == (then is Then.LEAVE)
            assert (old.AskStandIn in kinds) <= (then is Then.SUBSTITUTE)
            assert (old.Greet in kinds) <= (then in GREETS)
            assert (old.Show in kinds) <= (then is Then.SHOW)


GREETS = (Then.WELCOME, Then.TAKE_OVER, Then.RELIEVE, Then.FINISH, Then.TURN_AWAY)
