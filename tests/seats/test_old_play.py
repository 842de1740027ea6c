"""The table of people's seats and that of mailboxes: an action is sent, or comes too late, in the same cases.

Who sits there (OPEN, HELD, AWAY, ABSENT) is not the mailbox's business; what is asked, and what answers it, is.
"""

from __future__ import annotations

import itertools

import pytest

from trio_cogment.play.seat_machine import Leave, Outcome, SeatEffect, SeatMachine, SeatRules, Send, TooLate
from trio_cogment.play.seat_table import SeatState
from trio_cogment.sdk import Event, EventType, RecvObservation
from trio_cogment.seats.mailbox import Answer, Mailbox, MailboxState

PAGE = "page"
ASK, SHOW, FINAL, ACT, LATE, STAND_IN, END, RESIGN = range(8)
#: Leads to each state of the seat in which something can be asked.
WAYS = {
    SeatState.OPEN: (),
    SeatState.HELD: ("attach",),
    SeatState.AWAY: ("attach", "detach"),
    SeatState.ABSENT: ("nobody_comes",),
}


def sent(effects: list[SeatEffect]) -> list[str]:
    """Return what of the effects concerns the trial, and the actions that come too late."""
    names: dict[type[SeatEffect], str] = {Send: "send", TooLate: "late", Leave: "leave"}
    return [names[type(effect)] for effect in effects if type(effect) in names]


class Ported:
    """What a port makes of the same, with a mailbox."""

    def __init__(self) -> None:
        self.mailbox = Mailbox(lambda: None)
        self.tick_id = -1

    def observe(self, *, final: bool, idle: bool) -> None:
        self.tick_id += 1
        kind = EventType.ENDING if final else EventType.ACTIVE
        self.mailbox.put(Event(kind, self.tick_id, RecvObservation(self.tick_id, 0, b"")))
        if idle:
            assert self.mailbox.act(self.tick_id) is Answer.SEND  # nobody is asked: the idle action

    def act(self, tick_id: int) -> bool:
        return self.mailbox.act(tick_id) is Answer.SEND


@pytest.mark.parametrize("outcome", [Outcome.DEFAULT, Outcome.LOSS])
@pytest.mark.parametrize("state", WAYS)
def test_every_sequence_has_the_same_answers(state: SeatState, outcome: Outcome) -> None:
    for inputs in itertools.product(range(8), repeat=4):
        machine, ported = SeatMachine(SeatRules(outcome=outcome)), Ported()
        machine.begin()
        for step in WAYS[state]:
            # A seat that is lost when nobody comes has no state ABSENT.
            effects = machine.nobody_comes() if step == "nobody_comes" else getattr(machine, step)(PAGE)
            if "leave" in sent(effects):
                ported.mailbox.leave()
        for what in inputs:
            compare(machine, ported, what)
        # What is asked is a turn, and no other is.
        asked = None if ported.mailbox.state is not MailboxState.TURN else ported.tick_id
        assert machine.asked == asked or machine.state in (SeatState.LEFT, SeatState.OVER)


def compare(machine: SeatMachine, ported: Ported, what: int) -> None:
    mailbox = ported.mailbox
    if machine.state in (SeatState.LEFT, SeatState.OVER):
        assert mailbox.has_ended
        assert mailbox.act(ported.tick_id) is not Answer.SEND
        return
    if what in (ASK, SHOW, FINAL) and (mailbox.final or mailbox.has_ended):
        return  # nothing follows the final observation
    if what in (ASK, SHOW, FINAL):
        ported.observe(final=what == FINAL, idle=what == SHOW)
        effects = machine.ask(ported.tick_id) if what == ASK else machine.show()
        assert sent(effects) == []
    elif what in (ACT, LATE):
        tick_id = ported.tick_id - (what == LATE)
        held = machine.page == PAGE
        effects = machine.act(PAGE, tick_id, "action")
        # A page that does not have the seat is not asked; the mailbox would be, if it had it.
        if held:
            assert sent(effects) == (["send"] if ported.act(tick_id) else ["late"])
        else:
            assert sent(effects) == []
    elif what == STAND_IN:
        # Nobody stands in before somebody was to come: the seat does not ask it.
        asks = machine.state is not SeatState.OPEN
        effects = machine.stand_in_acts(ported.tick_id, "action")
        assert sent(effects) == (["send"] if asks and ported.act(ported.tick_id) else [])
    elif what == RESIGN:
        effects = machine.resign(PAGE)
        if "leave" in sent(effects):
            assert mailbox.leave() is Answer.TELL
    else:
        mailbox.end()
        assert sent(machine.end()) == []
