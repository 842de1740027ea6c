"""The table of old clients and that of mailboxes: the same answers to every sequence of calls and events.

Old clients have one call at a time, which may go away. So the place of a client is a mailbox and what it remembers of
calls: which one waits, and whether that to the last action was answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trio_cogment.gateways.legacy.client_states import JOINED, OWES_AN_ACTION, TABLE, Do, Input, State, after
from trio_cogment.sdk import Event, EventType, RecvObservation
from trio_cogment.seats.mailbox import Answer, Mailbox, MailboxState

_S, _I, _D, _M = State, Input, Do, MailboxState


@dataclass
class Place:
    """What a port makes of the calls and events, with a mailbox."""

    joined: bool = False
    waiting: str = ""
    #: An action was sent, and no call has taken its answer.
    owed: bool = False
    #: An observation came that answers a call.
    ready: bool = False
    closed: bool = False
    refused: bool = False

    def __post_init__(self) -> None:
        self.mailbox = Mailbox(lambda: None)
        self.told = False

    def do(self, given: Input) -> Do:
        function: Callable[[], Do] = getattr(self, given.name.lower())
        return function()

    def call_join(self) -> Do:
        mailbox = self.mailbox
        if mailbox.has_ended:
            return _D.OVER
        if not self.joined:
            self.joined, self.waiting = True, "join"
            return _D.JOIN
        if mailbox.observation is None:
            self.waiting = "join"
            return _D.WAIT
        if mailbox.state is _M.ACTED or self.owed or self.told:
            return _D.TAKEN
        self.told = True
        self.ready = False
        return _D.ANSWER

    def call_action(self) -> Do:
        mailbox = self.mailbox
        if not self.joined and not mailbox.has_ended:
            return _D.NOT_JOINED
        if mailbox.has_ended:
            self.closed = True
            return _D.ANSWER
        if self.owed:
            if self.ready:
                self.owed = self.ready = False
                return _D.ANSWER
            self.waiting = "action"
            return _D.WAIT
        self.waiting = "action"
        answer = mailbox.act()
        if answer is Answer.EARLY:
            return _D.WAIT
        assert answer in (Answer.SEND, Answer.DROP)
        self.owed, self.ready, self.told = True, False, True
        return _D.ACT

    def gone(self) -> Do:
        self.waiting = ""
        return _D.NOTHING

    def told_(self) -> Do:
        self.waiting = ""
        self.ready = self.owed = False
        self.told = True
        self.closed = self.mailbox.has_ended
        return _D.NOTHING

    def observation(self, *, final: bool = False) -> Do:
        mailbox = self.mailbox
        first = mailbox.observation is None
        event: Event[Any, None] = Event(
            EventType.ENDING if final else EventType.ACTIVE, 0, RecvObservation(mailbox.tick_id + 1, 0, b"")
        )
        mailbox.put(event)
        if final and not (first and self.waiting != "action"):
            return _D.NOTHING  # it comes with the final answer
        if first and self.waiting == "action":
            mailbox.act()
            self.owed, self.told = True, True
            return _D.ACT
        self.ready = True
        return _D.ANSWER if self.waiting and (first or self.owed) and not self.has_answer else _D.NOTHING

    has_answer = False

    def end(self) -> Do:
        mailbox = self.mailbox
        before, first = mailbox.has_ended, mailbox.observation is None
        mailbox.end()
        if not self.joined:
            self.closed = True
            return _D.NOTHING
        if before or not self.waiting or self.has_answer:
            return _D.NOTHING
        return _D.FAIL if first and self.waiting == "join" else _D.ANSWER


def state_of(place: Place) -> State:
    """Return the old state that a place is in."""
    mailbox = place.mailbox
    if mailbox.has_ended:
        return _S.OVER if place.closed else _S.ENDED
    if not place.joined:
        return _S.FREE
    if mailbox.observation is None:
        return {"": _S.AWAY, "join": _S.JOINING, "action": _S.EARLY}[place.waiting]
    if place.waiting == "action" and not place.owed:
        return _S.EARLY  # the first observation is the last one: nobody wants the action that waits for it
    if place.owed:
        if place.ready:
            return _S.UNREAD
        return _S.ACTING if place.waiting else _S.ALONE
    return _S.TURN if place.told else _S.UNSEEN


#: Inputs that come while no call waits, while one waits, and whenever.
_CALLS = (_I.CALL_JOIN, _I.CALL_ACTION)
_OF_WAITING = (_I.GONE, _I.TOLD)


def test_every_sequence_has_the_same_answers() -> None:
    """Every sequence of seven inputs that can come."""
    pairs: set[tuple[State, Input]] = set()
    check(_S.FREE, [], pairs, waits=False, answered=False, depth=7)
    assert pairs == {(state, given) for state, row in TABLE.items() for given in row if given is not _I.REFUSED}


#: The final observation, which is no input of the old table: `ClientPart.take` keeps it for the final answer, unless
#: the client waits for its first one.
FINAL = "final observation"


def replayed(inputs: list[tuple[Input | str, bool]]) -> tuple[Place, Do]:
    place, do = Place(), _D.NOTHING
    for given, answered in inputs:
        place.has_answer = answered
        if isinstance(given, str):
            do = place.observation(final=True)
        else:
            do = place.told_() if given is _I.TOLD else place.do(given)
    return place, do


def after_any(old: State, given: Input | str) -> tuple[State, Do]:
    if isinstance(given, Input):
        return after(old, given)
    return after(old, _I.OBSERVATION) if old in (_S.JOINING, _S.AWAY) else (old, _D.NOTHING)


def check(
    old: State,
    inputs: list[tuple[Input | str, bool]],
    pairs: set[tuple[State, Input]],
    *,
    waits: bool,
    answered: bool,
    depth: int,
) -> None:
    """Compare what follows after some inputs.

    Args:
        old: the state after them.
        inputs: these, each with whether the call that waits has its answer already.
        pairs: takes the pairs of the old table that were compared.
        waits: a call waits.
        answered: it has its answer, and has not taken it.
        depth: so many more inputs.
    """
    if not depth:
        return
    final = any(given == FINAL for given, _ in inputs)
    every: list[Input | str] = [*TABLE[old], *[FINAL] * (old in JOINED)]
    for given in every:
        if final and given in (FINAL, _I.OBSERVATION):
            continue
        if given is _I.REFUSED or (given in _CALLS and waits) or (given is _I.GONE and not waits):
            continue
        if given is _I.TOLD and not (waits and answered):
            continue
        if old is _S.EARLY and final and given is _I.GONE:
            continue  # the old table forgets then that there is an observation
        after_old, do_old = after_any(old, given)
        now: list[tuple[Input | str, bool]] = [*inputs, (given, answered)]
        place, do_new = replayed(now)
        assert (do_new, state_of(place)) == (do_old, after_old), [one for one, _ in now]
        mailbox = place.mailbox
        assert (after_old in OWES_AN_ACTION) <= mailbox.is_turn
        assert (after_old in JOINED) == (place.joined and not place.mailbox.has_ended)
        if isinstance(given, Input):
            pairs.add((old, given))
        still = waits and given not in _OF_WAITING
        if given in _CALLS:
            still = do_old in (_D.JOIN, _D.WAIT, _D.ACT)
        has = still and (answered or (given not in _CALLS and do_old is _D.ANSWER))
        if do_old is _D.FAIL:
            still = has = False
            # The call that waits is refused, and does not tell that it has gone.
            place.waiting = ""
        check(after_old, now, pairs, waits=still, answered=has, depth=depth - 1)
