"""The seats of actors: on one side the session with the orchestrator, on the other requests that come and go.

The session is always read, so heartbeats are answered and the end is known whatever the browser does. What it brings
is kept until the actor has acted on it: a request whose answer was lost is made again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import trio

from trio_cogment.access import Sources
from trio_cogment.base.config import WebProxyConfig
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    NotFoundError,
    RpcError,
)
from trio_cogment.budget.shares import Shares
from trio_cogment.gateways.rest.acting import Act
from trio_cogment.rpc import OwnNursery
from trio_cogment.sdk import ActorSession
from trio_cogment.seats.mailbox import REFUSED, Answer, MailboxState
from trio_cogment.seats.seat import Seat

#: States in which nothing comes from the trial any more, and nobody needs to be told.
_FINISHED = frozenset([MailboxState.CLOSED, MailboxState.LEFT])
#: States in which the actor is awaited by the trial, as far as anybody knows.
_AWAITED = frozenset([MailboxState.TURN, MailboxState.FINAL_TURN])
_ACTED = FailedPreconditionError, "the action was sent already, and the next observation has not come"
_GONE = NotFoundError, "there is no such actor that plays here, or its trial is over"


class WebSeat:
    """The seat of one actor in one trial, for a page.

    A seat comes into being when the orchestrator calls the actor. It takes part only when somebody has joined: until
    then nothing is sent to it.

    Attributes:
        session: the actor's.
        mailbox: of the seat; after `news` it has what the page is told.
        account: of who has joined.
        sources: by which token that was, the last time, and what that was derived from.
    """

    def __init__(self, session: ActorSession, max_unread_bytes: int) -> None:
        self.session = session
        self.account = ""
        self.sources: Sources = ()
        self._seat = Seat(session.name, self._on_news, max_bytes=max_unread_bytes)
        self.mailbox = self._seat.mailbox
        #: Somebody has joined, or nobody ever will.
        self._taken = trio.Event()
        self._thinking = False
        self._heard_at = trio.current_time()

    @property
    def is_free(self) -> bool:
        """Whether somebody may join: nobody has, and the trial goes on."""
        return not (self._taken.is_set() or self._seat.is_over)

    @property
    def is_finished(self) -> bool:
        """Whether its part is over and the page knows, or has left."""
        return self.mailbox.state in _FINISHED

    @property
    def idle_since(self) -> float:
        """Since when the page has been awaited, on Trio's clock; infinite: it is not."""
        return self._heard_at if self.is_free or self.mailbox.state in _AWAITED else math.inf

    @property
    def details(self) -> str:
        """Why the trial was ended hard, or is over for this actor; empty if it has ended in an orderly way."""
        if isinstance(self._seat.error, RpcError):
            return "the connection to the orchestrator was lost"
        return self.session.details or ""

    async def play(self) -> None:
        """Be the actor, once somebody has joined, until the trial is over or the actor has left.

        Raises:
            RpcError: the connection to the orchestrator was lost.
            ResourceExhaustedError: too much was sent to an actor that does not fetch it.
        """
        try:
            await self._taken.wait()
            if not self._seat.has_left:
                await self._seat.play(self.session, as_bytes=True)
        finally:
            if self.is_free:
                self.mailbox.end()
                self.mailbox.take()  # there is nobody to be told

    def _on_news(self) -> None:
        # An observation that comes in its place makes nobody more present.
        if self.mailbox.is_turn and not self._thinking:
            self._thinking = True
            self._heard_at = trio.current_time()

    def join(self, account: str, sources: Sources) -> None:
        """Take the seat, or come back to it.

        Raises:
            FailedPreconditionError: the actor's part is over.
        """
        if self.mailbox.state is MailboxState.LEFT:
            raise FailedPreconditionError("the actor has left the trial")
        if self.is_finished:
            raise FailedPreconditionError("the trial is over for this actor")
        self._heard_at = trio.current_time()
        self.account, self.sources = account, sources
        self._taken.set()

    def act(self, tick_id: int, act: Act) -> None:
        """Send what an actor does. An action that nobody wants any more is dropped.

        Raises:
            FailedPreconditionError: it is for another tick than the present one, or it is not the actor's turn.
            NotFoundError: the actor's part is over.
            ResourceExhaustedError: the orchestrator does not read.
        """
        thinking, self._thinking = self._thinking, False  # in process an action may bring the next observation at once
        answer = None
        try:
            answer = self._seat.act(act.action, tick_id, rewards=act.rewards, messages=act.messages)
        finally:
            if answer is None or answer in REFUSED:
                self._thinking = thinking
        if answer in REFUSED:
            raise self._refusal(answer, tick_id)

    def _refusal(self, answer: Answer, tick_id: int) -> CogmentError:
        if answer is Answer.LATE:
            return FailedPreconditionError(
                f"tick_id: expected {self.mailbox.tick_id}, got {tick_id}; join again to see it"
            )
        if answer is Answer.EARLY and not self._taken.is_set():
            return FailedPreconditionError("expected somebody to join first")
        kind, text = _GONE if answer is Answer.GONE else _ACTED
        return kind(text)

    def leave(self) -> None:
        """Leave the trial.

        Raises:
            NotFoundError: the actor's part is over already.
        """
        if self._seat.leave() is Answer.GONE:
            kind, text = _GONE
            raise kind(text)
        self._taken.set()

    async def news(self) -> Answer:
        """Wait for an observation or the end; see `Seat.news`."""
        return await self._seat.news()


class Seats:
    """The seats of all trials.

    Args:
        config: limits.
        stand: tells whether none of the tokens was revoked by which somebody has a seat.
        recheck_seconds: how often it is asked.
    """

    def __init__(self, config: WebProxyConfig, stand: Callable[[Sources], bool], recheck_seconds: float) -> None:
        self._config = config
        self._shares, self._waiting = (
            Shares(what, ("max_seats", config.max_seats), ("max_peer_seats", config.max_peer_seats))
            for what in ("actors that play here", "requests that wait for trials to start")
        )
        self._stand = stand
        self._recheck_seconds = recheck_seconds
        #: Those that are over, and when they were.
        self._over: deque[tuple[float, tuple[str, str], WebSeat]] = deque()
        self._seats: dict[tuple[str, str], WebSeat] = {}
        self._awaited: dict[tuple[str, str], tuple[trio.Event, int]] = {}

    def expect_room(self, account: str, actors: int) -> None:
        """Check that there is room for this many more actors of an account, before their trial starts.

        Raises:
            ResourceExhaustedError: there is none.
        """
        self._shares.expect_room(account, actors)

    async def play(self, session: ActorSession, account: str) -> None:
        """Have a seat for an actor.

        Args:
            session: the actor's.
            account: of whoever has started the trial.

        Raises:
            AlreadyExistsError: there is one, and its part is not over.
            ResourceExhaustedError: there are too many.
            RpcError: see `WebSeat.play`.
        """
        self._forget()
        key = session.trial_id, session.name
        there = self._seats.get(key)
        if there is not None and not there.is_finished:
            raise AlreadyExistsError(f"actor {session.name!r} of trial {session.trial_id!r} plays here already")
        with self._shares.taken(account):
            await self._play(session, key)

    async def _play(self, session: ActorSession, key: tuple[str, str]) -> None:
        seat = self._seats[key] = WebSeat(session, self._config.max_unread_bytes)
        event, _ = self._awaited.pop(key, (None, 0))
        if event is not None:
            event.set()
        try:
            async with OwnNursery() as nursery:
                nursery.start_soon(self._recheck, seat)
                await seat.play()
                nursery.cancel_scope.cancel()
        finally:
            self._over.append((trio.current_time(), key, seat))

    async def _recheck(self, seat: WebSeat) -> None:
        """Have somebody leave whose token was revoked, or who does not come back."""
        while True:
            await trio.sleep(self._recheck_seconds)
            idle = trio.current_time() >= seat.idle_since + self._config.idle_seconds
            if (idle or not self._stand(seat.sources)) and not seat.is_finished:
                seat.leave()

    def _forget(self) -> None:
        """Forget what has been over for a while."""
        config = self._config
        while self._over and (
            len(self._over) > config.max_seats or trio.current_time() >= self._over[0][0] + config.ended_seconds
        ):
            _, key, seat = self._over.popleft()
            if self._seats.get(key) is seat:
                del self._seats[key]

    def get(self, trial_id: str, actor_name: str) -> WebSeat:
        """Return a seat.

        Raises:
            NotFoundError: there is none.
        """
        self._forget()
        seat = self._seats.get((trial_id, actor_name))
        if seat is None:
            raise NotFoundError(f"no actor {actor_name!r} of a trial {trial_id!r} plays here")
        return seat

    async def awaited(self, trial_id: str, actor_name: str, account: str) -> WebSeat:
        """Return a seat; wait until there is one, but not indefinitely.

        Args:
            trial_id: of the trial.
            actor_name: of the actor.
            account: whose request it is.

        Raises:
            NotFoundError: there was none in time.
            ResourceExhaustedError: too many wait.
        """
        self._forget()
        key = trial_id, actor_name
        with trio.move_on_after(self._config.join_timeout_seconds):
            while key not in self._seats:
                with self._waiting.taken(account):
                    await self._one_more(key)
        return self.get(trial_id, actor_name)

    async def _one_more(self, key: tuple[str, str]) -> None:
        event, number = self._awaited.get(key, (trio.Event(), 0))
        self._awaited[key] = event, number + 1
        try:
            await event.wait()
        finally:
            self._gone(key, event)

    def _gone(self, key: tuple[str, str], event: trio.Event) -> None:
        """Forget one that has waited; nobody else may wait for the same."""
        there, number = self._awaited.get(key, (None, 0))
        if there is event:
            if number > 1:
                self._awaited[key] = event, number - 1
            else:
                del self._awaited[key]
