"""The phases of a socket's session with OpenEnv and the table of mailboxes: the same answers to every sequence."""

from __future__ import annotations

import itertools

import pytest

from trio_cogment.base.errors import UnavailableError
from trio_cogment.gateways.openenv.messages import Reset, Step, Turn
from trio_cogment.gateways.openenv.session import Act, Effect, Phase, Reply, Session
from trio_cogment.sdk import Event, EventType, RecvObservation
from trio_cogment.seats.mailbox import Answer, Mailbox, MailboxState
from trio_cogment.spaces import Discrete, Observation

_P, _M = Phase, MailboxState

TURN, DONE, LOST, STEP, GONE = "a turn", "the last turn", "the part is lost", "the client steps", "the client goes"
#: The states of the mailbox in each phase of an episode; the first one that is told of has begun with a reset.
STATES = {
    _P.JOINING: {_M.WAITING},
    _P.PLAYING: {_M.TURN},
    _P.STEPPING: {_M.ACTED},
    _P.ENDED: {_M.FINAL_TURN, _M.ENDED_TURN},
    _P.OVER: {_M.FINAL_TURN, _M.ENDED_TURN},
    _P.NEW: {_M.CLOSED},
    _P.CLOSED: {_M.LEFT, _M.CLOSED},
}


def told(effects: list[Effect]) -> list[str]:
    """Return what of a session's effects is told or sent."""
    found = []
    for effect in effects:
        if isinstance(effect, Act):
            found.append("act")
        elif isinstance(effect, Reply):
            kind = effect.document["type"]
            found.append("done" if kind == "observation" and effect.document["data"]["done"] else kind)
    return found


def turn(*, done: bool) -> Turn:
    return Turn(Observation(value=0, terminated=done), done, "player_0")


class Ported:
    """What a port makes of the same, with a mailbox: it answers when there is news and the client waits."""

    def __init__(self) -> None:
        self.mailbox = Mailbox(self._on_news)
        self.waits = True  # for the answer to its reset
        self.over = False
        self.gone = False
        self.told: list[str] = []

    def _on_news(self) -> None:
        if self.waits:
            self._tell()

    def _tell(self) -> None:
        mailbox = self.mailbox
        answer = mailbox.take()
        if mailbox.state is _M.LEFT or not answer:
            return
        self.waits = False
        self.over = answer is Answer.END or mailbox.final
        self.told.append("error" if answer is Answer.END else "done" if mailbox.final else "observation")

    def do(self, what: str) -> list[str]:
        self.told = []
        mailbox = self.mailbox
        if what in (TURN, DONE):
            kind = EventType.ENDING if what == DONE else EventType.ACTIVE
            mailbox.put(Event(kind, 0, RecvObservation(0, 0, b"")))
        elif what == LOST:
            mailbox.end()
        elif what == GONE:
            mailbox.leave()
            self.gone = True
        elif not self.gone:
            self._step()
        return self.told

    def _step(self) -> None:
        mailbox = self.mailbox
        if self.over or mailbox.state is _M.CLOSED:
            self.told.append("error")  # expected a reset
            return
        if mailbox.final:  # it came while the client was thinking
            self._tell()
            return
        if mailbox.act() is Answer.SEND:
            self.told.append("act")
            self.waits = True
        else:
            self._tell()


def allowed(what: str, phase: Phase) -> bool:
    """Whether it may come: one step at a time, and a turn only for who acts or begins; the last one whenever."""
    if what == STEP:
        return phase not in (_P.JOINING, _P.STEPPING)
    if what == TURN:
        return phase in (_P.JOINING, _P.STEPPING)
    return what != DONE or phase in (_P.JOINING, _P.STEPPING, _P.PLAYING)


@pytest.mark.parametrize("first", [TURN, DONE, LOST, GONE])
def test_every_sequence_has_the_same_answers(first: str) -> None:
    compared: set[tuple[Phase, str]] = set()
    for rest in itertools.product([TURN, DONE, LOST, STEP, GONE], repeat=5):
        session, ported = Session(), Ported()
        session.submit(Reset())
        session.joined(1, trial="", trial_id="t", seat="player_0", action_space=Discrete(2))
        for what in (first, *rest):
            phase = session.phase
            if not allowed(what, phase):
                continue
            compared.add((phase, what))
            if what in (TURN, DONE):
                effects = session.observed(1, turn(done=what == DONE))
            elif what == LOST:
                effects = session.lost(1, UnavailableError("lost"))
            elif what == GONE:
                effects = session.vanish()
            else:
                effects = session.submit(Step({"value": 1}))
            assert ported.do(what) == told(effects), (phase, what)
            assert ported.mailbox.state in STATES[session.phase] or session.phase is _P.NEW
    assert first != TURN or {phase for phase, _ in compared} == set(Phase)
