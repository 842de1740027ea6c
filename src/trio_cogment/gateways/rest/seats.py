"""The seats of actors: on one side the session with the orchestrator, on the other requests that come and go.

The session is always read, so heartbeats are answered and the end is known whatever the browser does. What it brings
is kept until the actor has acted on it: a request whose answer was lost is made again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio
from trio_util import AsyncValue

from trio_cogment.access import Shares, Sources
from trio_cogment.config import WebProxyConfig
from trio_cogment.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
    RpcError,
)
from trio_cogment.gateways.rest.acting import Act
from trio_cogment.gateways.rest.seat_states import ANSWERABLE, FINISHED, SeatInput, SeatState, after
from trio_cogment.rpc import OwnNursery
from trio_cogment.sdk import ActorSession, Event, EventType, RecvMessage, RecvReward

#: What a reward counts, without what its sources add.
_REWARD_BYTES = 64


@dataclass(frozen=True, slots=True)
class News:
    """What an actor is told.

    Attributes:
        tick_id: of the observation; of the end, the one after the last.
        observation: what it observes; None: the trial is over for it.
        final: it is the last observation.
        rewards: since the last action.
        messages: likewise.
        details: why the trial was ended hard; empty if it was not.
    """

    tick_id: int
    observation: Any
    final: bool = False
    rewards: tuple[RecvReward, ...] = ()
    messages: tuple[RecvMessage, ...] = ()
    details: str = ""

    @property
    def ended(self) -> bool:
        """Whether it is the end."""
        return self.observation is None


@dataclass(slots=True)
class _Unread:
    """Rewards and messages that the actor has not acted upon, and how many of each it has been told."""

    rewards: list[RecvReward] = field(default_factory=list)
    messages: list[RecvMessage] = field(default_factory=list)
    told: tuple[int, int] = (0, 0)
    size: int = 0

    def tell(self) -> None:
        self.told = len(self.rewards), len(self.messages)

    def acted(self, told: tuple[int, int]) -> None:
        rewards, messages = told
        del self.rewards[:rewards], self.messages[:messages]
        self.told = (0, 0)
        self.size = sum(map(_reward_size, self.rewards)) + sum(map(_message_size, self.messages))


def _reward_size(reward: RecvReward) -> int:
    return _REWARD_BYTES + sum(source.ByteSize() for source in reward.sources)


def _message_size(message: RecvMessage) -> int:
    return _REWARD_BYTES + message.payload.ByteSize()


class Seat:
    """The seat of one actor in one trial.

    Attributes:
        session: the actor's.
        account: of who has joined.
        sources: by which token that was, the last time, and what that was derived from.
    """

    def __init__(self, session: ActorSession, max_unread_bytes: int) -> None:
        self.session = session
        self.account = ""
        self.sources: Sources = ()
        self._max_unread_bytes = max_unread_bytes
        self._state = AsyncValue(SeatState.FREE)
        self._scope = trio.CancelScope()
        self._unread = _Unread()
        self._observation: Any = None
        self._final = False
        self._tick_id = -1
        self._lost = ""
        self._heard_at = trio.current_time()

    @property
    def state(self) -> SeatState:
        """Where it is."""
        state: SeatState = self._state.value
        return state

    @property
    def idle_since(self) -> float:
        """Since when the actor has been awaited, on Trio's clock; infinite: it is not."""
        return self._heard_at if self.state in (SeatState.FREE, SeatState.TURN) else math.inf

    # --- the trial's side ---

    async def play(self) -> None:
        """Be the actor, once somebody has joined, until the trial is over or the actor has left.

        Raises:
            RpcError: the connection to the orchestrator was lost.
            ResourceExhaustedError: too much was sent to an actor that does not fetch it.
        """
        try:
            await self._state.wait_value(lambda state: state is not SeatState.FREE)
            if self.state is not SeatState.LEFT:
                with self._scope:
                    await self.session.handle(self._on_event)
        except RpcError:
            self._lost = "the connection to the orchestrator was lost"
            raise
        finally:
            if self.state not in FINISHED:
                self._step(SeatInput.END)

    def _on_event(self, event: Event) -> None:
        unread = self._unread
        if event.observation is not None:
            self._observation = event.observation.payload
            self._tick_id = event.observation.tick_id
            self._final = event.type is EventType.ENDING
            if self.state is not SeatState.TURN:
                self._heard_at = trio.current_time()
            self._step(SeatInput.OBSERVATION)
        elif event.reward is not None:
            unread.rewards.append(event.reward)
            unread.size += _reward_size(event.reward)
        elif event.message is not None:
            unread.messages.append(event.message)
            unread.size += _message_size(event.message)
        if unread.size > self._max_unread_bytes:
            raise ResourceExhaustedError(
                f"more than {self._max_unread_bytes} bytes of rewards and messages wait for an actor to fetch them"
            )

    def _step(self, happened: SeatInput) -> None:
        self._state.value = after(self.state, happened)

    # --- the actor's side ---

    def join(self, account: str, sources: Sources) -> None:
        """Take the seat, or come back to it.

        Raises:
            FailedPreconditionError: the actor's part is over.
        """
        self._step(SeatInput.JOIN)
        self._heard_at = trio.current_time()
        self.account, self.sources = account, sources

    def act(self, tick_id: int, act: Act) -> None:
        """Send what an actor does. An action for the final observation is dropped.

        Raises:
            FailedPreconditionError: it is for another tick than the present one, or it is not the actor's turn.
            NotFoundError: the actor's part is over.
            ResourceExhaustedError: the orchestrator does not read.
        """
        state = after(self.state, SeatInput.ACT)
        if tick_id != self._tick_id:
            raise FailedPreconditionError(f"tick_id: expected {self._tick_id}, got {tick_id}; join again to see it")
        before, self._state.value = self.state, state  # in process an action may bring the next observation at once
        told = self._unread.told
        if before is SeatState.TURN and not self.session.is_over:
            try:
                self._send(act)
            except CogmentError:
                self._state.value = before
                raise
        self._unread.acted(told)

    def _send(self, act: Act) -> None:
        session = self.session
        for reward in act.rewards:
            session.add_reward_nowait(
                reward.value, reward.confidence, reward.to, tick_id=reward.tick_id, user_data=reward.user_data
            )
        for message in act.messages:
            session.send_message_nowait(message.payload, message.receiver)
        session.do_action_nowait(act.action)

    def leave(self) -> None:
        """Leave the trial.

        Raises:
            NotFoundError: the actor's part is over already.
        """
        self._step(SeatInput.LEAVE)
        self._scope.cancel()

    async def news(self) -> News:
        """Wait for an observation or the end. After `Cancelled` nothing was told."""
        await self._state.wait_value(ANSWERABLE.__contains__)
        while self.state not in ANSWERABLE:  # another request may have acted meanwhile
            await self._state.wait_value(ANSWERABLE.__contains__)
        unread = self._unread
        unread.tell()
        observed = self.state in (SeatState.TURN, SeatState.LAST_TURN)
        if not observed:
            self._step(SeatInput.TOLD)
        return News(
            tick_id=self._tick_id if observed else self._tick_id + 1,
            observation=self._observation if observed else None,
            final=observed and self._final,
            rewards=tuple(unread.rewards),
            messages=tuple(unread.messages),
            details="" if observed else self._lost or self.session.details or "",
        )


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
        self._over: deque[tuple[float, tuple[str, str], Seat]] = deque()
        self._seats: dict[tuple[str, str], Seat] = {}
        self._awaited: dict[tuple[str, str], tuple[trio.Event, int]] = {}

    def expect_room(self, account: str, actors: int) -> None:
        """Check that there is room for so many more actors of an account, before their trial starts.

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
            RpcError: see `Seat.play`.
        """
        self._forget()
        key = session.trial_id, session.name
        there = self._seats.get(key)
        if there is not None and there.state not in FINISHED:
            raise AlreadyExistsError(f"actor {session.name!r} of trial {session.trial_id!r} plays here already")
        with self._shares.taken(account):
            await self._play(session, key)

    async def _play(self, session: ActorSession, key: tuple[str, str]) -> None:
        seat = self._seats[key] = Seat(session, self._config.max_unread_bytes)
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

    async def _recheck(self, seat: Seat) -> None:
        """Have somebody leave whose token was revoked, or who does not come back."""
        while True:
            await trio.sleep(self._recheck_seconds)
            idle = trio.current_time() >= seat.idle_since + self._config.idle_seconds
            if (idle or not self._stand(seat.sources)) and seat.state not in FINISHED:
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

    def get(self, trial_id: str, actor_name: str) -> Seat:
        """Return a seat.

        Raises:
            NotFoundError: there is none.
        """
        self._forget()
        seat = self._seats.get((trial_id, actor_name))
        if seat is None:
            raise NotFoundError(f"no actor {actor_name!r} of a trial {trial_id!r} plays here")
        return seat

    async def awaited(self, trial_id: str, actor_name: str, account: str) -> Seat:
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
