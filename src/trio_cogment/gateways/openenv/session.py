"""One socket's session: what each message and each event of its episodes leads to. Pure: no Trio, no I/O, no clock.

Theory of operation: the shell feeds every message and every event to `Session`, where it arrives and without waiting,
and performs the effects that come back. An action may bring the next event before its effect returns; so nothing comes
after an `Act`. A session has at most one episode: a seat of one trial, whose mailbox has the newest observation. What
the states here add is the conversation: a part may end before its trial does, and who is not to act is not asked. It is

    NEW       no episode has begun, or the last one was lost
    JOINING   a reset waits for its first turn
    PLAYING   it is the client's turn
    STEPPING  an action waits for the next turn
    ENDED     the episode has ended while the client was thinking; its next step is told so
    OVER      the client knows that its part is over
    CLOSED    the socket is no more

A client gets one answer to each message, in order. What it sends while an answer is due waits in the session; only
`close` is heard at once. Episodes are numbered, so that a late event of one that was left changes nothing.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from trio_cogment.base.errors import CogmentError
from trio_cogment.gateways.openenv.messages import (
    Close,
    ErrorCode,
    Mcp,
    RefusedError,
    Request,
    Reset,
    State,
    Step,
    Turn,
    mcp_answer,
    observation_data,
    parse_message,
)
from trio_cogment.spaces import Space, SpaceError
from trio_cogment.spaces.json_values import from_json_value

#: Messages that may wait while an answer is due. A client of OpenEnv sends one at a time.
MAX_WAITING_MESSAGES = 16
#: WebSocket's code for a client that does not keep to the rules.
POLICY_VIOLATION = 1008
NORMAL_CLOSURE = 1000


class Phase(enum.Enum):
    """Where a session is; see the module."""

    NEW = "new"
    JOINING = "joining"
    PLAYING = "playing"
    STEPPING = "stepping"
    ENDED = "ended"
    OVER = "over"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Reply:
    """Send an answer."""

    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Join:
    """Take a seat in a trial, as the episode of this number."""

    episode: int
    reset: Reset


@dataclass(frozen=True, slots=True)
class Act:
    """Send an action; it is a value of the seat's action space."""

    action: Any


@dataclass(frozen=True, slots=True)
class Leave:
    """Give up the seat of this episode, whether or not its part is over."""

    episode: int


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the socket, after what was to be sent."""

    code: int


Effect: TypeAlias = Reply | Join | Act | Leave | HangUp

_BUSY = {Phase.JOINING, Phase.STEPPING}
_SEATED = {Phase.JOINING, Phase.PLAYING, Phase.STEPPING, Phase.ENDED, Phase.OVER}


class Session:
    """The state of one socket; each method returns what is to be done, in order.

    Attributes:
        phase: where it is.
    """

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self._waiting: deque[Request | RefusedError] = deque()
        self._episode = 0
        self._trial = ""
        self._seat = ""
        self._trial_id: str | None = None
        self._action_space: Space | None = None
        self._steps = 0
        # What the next step is told, if the episode has ended meanwhile.
        self._ending: Turn | RefusedError | None = None
        self._handlers: dict[type, Callable[[Any], list[Effect]]] = {
            Reset: self._reset,
            Step: self._step,
            State: self._state,
            Mcp: self._mcp,
            RefusedError: self._refuse,
        }

    @property
    def busy(self) -> bool:
        """Whether an answer is due, so that the client has nothing to do but wait."""
        return self.phase in _BUSY

    def receive(self, text: str | bytes) -> list[Effect]:
        """Take a message from the client."""
        try:
            return self.submit(parse_message(text))
        except RefusedError as refused:
            return self.submit(refused)

    def submit(self, request: Request | RefusedError) -> list[Effect]:
        """Take a request from the client, or a message that makes no sense and is answered when its turn comes."""
        if self.phase is Phase.CLOSED:
            return []
        if isinstance(request, Close):
            return [*self.vanish(), HangUp(NORMAL_CLOSURE)]
        if len(self._waiting) == MAX_WAITING_MESSAGES:
            limit = f"expected at most {MAX_WAITING_MESSAGES} messages while an answer is due"
            return self.dismiss(limit, POLICY_VIOLATION)
        self._waiting.append(request)
        return self._serve_waiting()

    def joined(self, episode: int, *, trial: str, trial_id: str, seat: str, action_space: Space) -> list[Effect]:
        """Take note that the episode's trial runs."""
        if self._is_current(episode):
            self._trial, self._trial_id, self._seat, self._action_space = trial, trial_id, seat, action_space
        return []

    def observed(self, episode: int, turn: Turn) -> list[Effect]:
        """Take the next turn of the seat, or the end of its part."""
        if not self._is_current(episode):
            return []
        if self.phase is Phase.PLAYING:
            # Nobody acted here, so it is the end, and the client will hear of it when it acts.
            self.phase, self._ending = Phase.ENDED, turn
            return []
        if self.phase not in _BUSY:
            return []
        return [*self._tell(turn), *self._serve_waiting()]

    def lost(self, episode: int, reason: CogmentError) -> list[Effect]:
        """Take note that the episode has failed, or could not begin; the client is told now, or when it acts."""
        if not self._is_current(episode) or self.phase in (Phase.ENDED, Phase.OVER):
            return []
        refused = reason if isinstance(reason, RefusedError) else RefusedError(ErrorCode.EXECUTION_ERROR, str(reason))
        if self.phase is Phase.PLAYING:
            self.phase, self._ending = Phase.ENDED, refused
            return []
        effects: list[Effect] = [Reply(refused.document()), *self._leave()]
        self.phase = Phase.NEW
        return [*effects, *self._serve_waiting()]

    def dismiss(self, text: str, code: int) -> list[Effect]:
        """End the session from this side, and say why."""
        if self.phase is Phase.CLOSED:
            return []
        return [Reply(RefusedError(ErrorCode.SESSION_ERROR, text).document()), *self.vanish(), HangUp(code)]

    def vanish(self) -> list[Effect]:
        """Take note that there is nobody to be answered any more."""
        effects = self._leave()
        self.phase = Phase.CLOSED
        self._waiting.clear()
        return effects

    # What follows serves requests, one after the other.

    def _serve_waiting(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and self.phase not in _BUSY:
            request = self._waiting.popleft()
            effects += self._handlers[type(request)](request)
        return effects

    def _reset(self, reset: Reset) -> list[Effect]:
        effects = self._leave()
        self._episode += 1
        self.phase = Phase.JOINING
        self._trial, self._trial_id, self._seat, self._steps = reset.trial, None, reset.seat, 0
        return [*effects, Join(self._episode, reset)]

    def _step(self, step: Step) -> list[Effect]:
        if self.phase is Phase.ENDED:
            return self._tell_end()
        if self.phase is not Phase.PLAYING:
            over = "the episode is over" if self.phase is Phase.OVER else "no episode has begun"
            return self._refuse(
                RefusedError(ErrorCode.EXECUTION_ERROR, f"step: expected a reset before, because {over}")
            )
        try:
            action = self._action_of(step)
        except RefusedError as refused:
            return self._refuse(refused)
        self.phase = Phase.STEPPING
        return [Act(action)]

    def _action_of(self, step: Step) -> Any:
        who = f"step: seat {self._seat!r}"
        # OpenEnv's actions may carry metadata; there is nobody whom it would tell anything.
        unknown = sorted(step.fields.keys() - {"value", "metadata"})
        if unknown or "value" not in step.fields:
            text = f"{who}: expected the field value, got {', '.join(map(repr, step.fields)) or 'none'}"
            raise RefusedError(ErrorCode.VALIDATION_ERROR, text)
        assert self._action_space is not None  # a turn comes after `joined`
        try:
            return from_json_value(step.fields["value"], self._action_space)
        except SpaceError as error:
            raise RefusedError(ErrorCode.VALIDATION_ERROR, f"{who}: {error.of('action')}") from None

    def _tell(self, turn: Turn) -> list[Effect]:
        if self.phase is not Phase.JOINING:
            self._steps += 1
        try:
            data = observation_data(turn)
        except SpaceError as error:
            text = f"seat {turn.seat!r}: observation: {error}"
            return self.lost(self._episode, RefusedError(ErrorCode.EXECUTION_ERROR, text))
        self.phase = Phase.OVER if turn.done else Phase.PLAYING
        return [Reply({"type": "observation", "data": data})]

    def _tell_end(self) -> list[Effect]:
        ending, self._ending = self._ending, None
        if isinstance(ending, Turn):
            return self._tell(ending)
        assert ending is not None  # ENDED is entered with one of the two
        effects: list[Effect] = [Reply(ending.document()), *self._leave()]
        self.phase = Phase.NEW
        return effects

    def _state(self, _request: State) -> list[Effect]:
        state = {
            "episode_id": self._trial_id,
            "step_count": self._steps,
            "trial": self._trial,
            "seat": self._seat,
            "phase": self.phase.value,
        }
        return [Reply({"type": "state", "data": state})]

    def _mcp(self, request: Mcp) -> list[Effect]:
        return [Reply({"type": "mcp", "data": mcp_answer(request.request)})]

    def _refuse(self, refused: RefusedError) -> list[Effect]:
        return [Reply(refused.document())]

    def _leave(self) -> list[Effect]:
        return [Leave(self._episode)] if self.phase in _SEATED else []

    def _is_current(self, episode: int) -> bool:
        return episode == self._episode and self.phase in _SEATED
