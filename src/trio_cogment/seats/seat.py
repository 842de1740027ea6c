"""A seat: an actor of one trial that is played from outside of it, through a mailbox.

A seat takes part in its trial as a client actor (`join`), or as a served one (`play` is an `ActorImplementation`). In
this process a client actor has no task: the events of the trial are handled where they arrive, in the task in which the
last actor has acted. So a client's action often has its answer in the mailbox when `act` returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any

import trio
from google.protobuf.message import Message

from trio_cogment.base.errors import CogmentError
from trio_cogment.base.host import Host
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.rpc import CallOpener
from trio_cogment.sdk import ActorSession, Event, Reward, join_trial
from trio_cogment.sdk.direct_actor import DirectActor, join_trial_nowait
from trio_cogment.sdk.spec import Payload
from trio_cogment.seats.mailbox import MAX_BYTES, Answer, Mailbox, MailboxState

_log = logging.getLogger(__name__)

#: Looking it up in the enumeration takes as long as a call.
_SEND = Answer.SEND


class Seat:
    """One actor of one trial; a seat is not used again.

    Whoever plays has two ways to learn of news. `on_news` is a plain function, called where the event arrives; it takes
    the news from `mailbox` and may act at once. `news` waits for them in a task. Both may be used together.

    Args:
        name: of the actor.
        on_news: see `Mailbox.on_news`: there is an observation, or the end, to be taken.
        on_begun: called when the actor takes part, with its session: names, class and configuration are known.
        on_over: called once, when the actor's part is over and nothing more comes; `error` and `details` say why. Not
            called when the task that plays is cancelled. It must not raise.
        aside: see `Mailbox`.
        max_bytes: see `Mailbox`.
        default: what `act_default` sends.

    Attributes:
        name, default: see above.
        mailbox: what there is to see, and where the client is. Whoever only looks reads its attributes; acting and
            leaving go through the seat.
        session: with the orchestrator; None before the actor takes part. It stays after the end.
        error: because of which the part could not begin, or has ended; None if it has ended with its trial.
    """

    def __init__(
        self,
        name: str,
        on_news: Callable[[], None] | None = None,
        *,
        on_begun: Callable[[ActorSession[Any, Any, Any]], None] | None = None,
        on_over: Callable[[], None] | None = None,
        aside: Callable[[Event[Any, None]], bool] | None = None,
        max_bytes: int = MAX_BYTES,
        default: Payload | None = None,
    ) -> None:
        self.name = name
        self.default = default
        self.mailbox = Mailbox(self._tell, aside=aside, max_bytes=max_bytes)
        self.session: ActorSession[Any, Any, Any] | None = None
        self.error: Exception | None = None
        #: As `ActorHandler.on_event`, without another call between.
        self.on_event: Callable[[Event[Any, None]], None] = self.mailbox.put
        self._on_news = on_news
        self._on_begun = on_begun
        self._on_over = on_over
        self._then: Callable[[], None] | None = None
        self._finished = False
        self._changed: trio.Event | None = None
        #: Of whoever takes part for it: an actor without a task, or a task.
        self._direct: DirectActor | None = None
        self._scope = trio.CancelScope()

    @property
    def is_over(self) -> bool:
        """Whether the trial is over for this actor, or it has left."""
        return self.mailbox.has_ended

    @property
    def details(self) -> str:
        """Why its part is over, as far as somebody has said so; empty while it goes on, and after an orderly end."""
        if self.error is not None:
            return str(self.error)
        return "" if self.session is None else self.session.details or ""

    @property
    def outcome(self) -> TrialOutcome | None:
        """How the trial ends; see `Session.outcome`."""
        return None if self.session is None else self.session.outcome

    # Taking part

    def join(
        self,
        opener: CallOpener,
        trial_id: str,
        spawn: Callable[..., None],
        *,
        host: Host | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Take part in a trial as a client actor, to its end; observations are bytes, and so are actions.

        It returns at once. If the orchestrator is in this process there is no task, and events may have come when it
        returns. What goes wrong ends the part: see `error`.

        Args:
            opener: calls the orchestrator.
            trial_id: of the trial, which waits for the actor.
            spawn: `start_soon` of a nursery that stays open until the part is over.
            host: gives the wall clock.
            then: called after `on_over`, for whoever counts seats; if the orchestrator is elsewhere, not before the
                next checkpoint.
        """
        self._then = then
        if self.mailbox.state is MailboxState.LEFT:
            self.on_over(None)
            return
        self._direct = join_trial_nowait(opener, trial_id, self, actor_name=self.name, spawn=spawn, host=host)
        if self._direct is None:
            spawn(self._run, opener, trial_id, host, name=f"trial {trial_id}: seat {self.name}")
        elif self.has_left:  # while it was joining
            self._direct.leave()

    @property
    def has_left(self) -> bool:
        """Whether it has left the trial before the end."""
        return self.mailbox.state is MailboxState.LEFT

    async def _run(self, opener: CallOpener, trial_id: str, host: Host | None) -> None:
        error: Exception | None = None
        try:
            with self._scope:
                play = partial(self._play, as_bytes=True)
                await join_trial(opener, trial_id, play, actor_name=self.name, host=host)
        except CogmentError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001  the boundary of a seat
            _log.exception("trial %r, actor %r: its part failed", trial_id, self.name)
            error = failure
        finally:
            self.mailbox.end()
        self.on_over(error)  # it does nothing if `play` has done so

    async def play(self, session: ActorSession[Any, Any, Any], *, as_bytes: bool = False) -> None:
        """Take part in a trial; an `ActorImplementation`. It returns when the trial is over, or the actor has left.

        Args:
            session: with the orchestrator.
            as_bytes: observations are bytes, whatever the session's spec declares.

        Raises:
            RpcError: the connection to the orchestrator was lost.
            Exception: what the functions of the seat or its mailbox raised.

        In any case, also after `Cancelled`, the mailbox has its end.
        """
        try:
            with self._scope:
                await self._play(session, as_bytes=as_bytes)
        finally:
            self.mailbox.end()  # whoever waits is told also when this is cancelled
        self.on_over(None)  # it does nothing but where the actor has left

    async def _play(self, session: ActorSession[Any, Any, Any], *, as_bytes: bool) -> None:
        try:
            self.on_session(session)
            await session.start()
            await session.handle(self.on_event, as_bytes=as_bytes)
        except Exception as error:
            self.on_over(error)
            raise
        self.on_over(None)

    # As `ActorHandler`

    def on_session(self, session: ActorSession[Any, Any, Any]) -> None:
        """See `ActorHandler.on_session`."""
        self.session = session
        if self._on_begun is not None:
            self._on_begun(session)

    def on_over(self, error: Exception | None) -> None:
        """See `ActorHandler.on_over`."""
        if self._finished:
            return
        self._finished = True
        self.error = error
        if error is not None and self._direct is not None and not isinstance(error, CogmentError):
            _log.error("actor %r: its part failed", self.name, exc_info=error)
        self.mailbox.end()
        for told in (self._on_over, self._then):
            if told is not None:
                told()

    # What the client does

    def act(
        self,
        action: Payload,
        tick_id: int | None = None,
        *,
        rewards: Sequence[Reward] = (),
        messages: Sequence[tuple[Message, str]] = (),
    ) -> Answer:
        """Act for the newest observation. In process, what follows at once has happened when this returns.

        Args:
            action: bytes, or of the type that the session's spec declares.
            tick_id: of the observation that is answered; None: whatever is the newest.
            rewards: sent before the action, and only with it.
            messages: likewise; each with its receiver.

        Returns:
            See `Mailbox.act`: SEND, it was sent; DROP, nobody wants it any more; or why it is refused.

        Raises:
            CogmentError: it could not be sent: it is not of its type, say, or the orchestrator does not read. It is the
                client's turn as before.
        """
        answer = self.mailbox.act(tick_id)
        if answer is not _SEND:
            return answer
        session = self.session
        if session is None or session.is_over:
            return Answer.DROP  # the end is about to be told
        try:
            if rewards or messages:
                self._say(session, rewards, messages)
            session.do_action_nowait(action)
        except CogmentError:
            self.mailbox.take_back()
            raise
        return answer

    def act_default(self) -> None:
        """Act as configured, if there is a default action and the trial waits for this actor."""
        if self.default is None or self.mailbox.state is not MailboxState.TURN:
            return
        try:
            self.act(self.default)
        except CogmentError as error:
            _log.debug("actor %r: the default action was not sent: %s", self.name, error)

    def say(self, rewards: Iterable[Reward] = (), messages: Iterable[tuple[Message, str]] = ()) -> None:
        """Send rewards, and messages with their receivers; nothing is sent if the trial is over for the actor.

        Raises:
            CogmentError: one of them makes no sense, or the orchestrator does not read.
        """
        session = self.session
        if session is not None and not (self.is_over or session.is_over):
            self._say(session, rewards, messages)

    @staticmethod
    def _say(
        session: ActorSession[Any, Any, Any], rewards: Iterable[Reward], messages: Iterable[tuple[Message, str]]
    ) -> None:
        for reward in rewards:
            session.add_reward_nowait(
                reward.value, reward.confidence, reward.to, tick_id=reward.tick_id, user_data=reward.user_data
            )
        for payload, receiver in messages:
            session.send_message_nowait(payload, receiver)

    def leave(self, *, in_order: bool = False) -> Answer:
        """Leave the trial.

        Args:
            in_order: the trial is told that the actor has left, and not that it was lost. With a task, which is
                elsewhere, it is always told so.

        Returns:
            TELL; GONE if its part is over, and the client knows.
        """
        answer = self.mailbox.leave()
        if self._direct is not None:
            self._direct.leave(in_order=in_order)
        self._scope.cancel()
        return answer

    # Waiting

    async def news(self, timeout: float = inf) -> Answer:
        """Wait for an observation or the end, and take it: see `Mailbox.take`. Any number of tasks may wait.

        Nothing else can happen between the return and the next checkpoint: that is where the mailbox is to be read.
        After `Cancelled` nothing was taken.

        Args:
            timeout: seconds after which there is none.

        Returns:
            OBSERVATION or END; NOTHING after the timeout.
        """
        await self.wait(self._has_news, timeout)
        return self.mailbox.take()

    def _has_news(self) -> bool:
        return self.mailbox.is_turn or self.mailbox.has_ended

    async def wait(self, condition: Callable[[], bool], timeout: float = inf) -> bool:
        """Wait until something about the mailbox is true; it is looked at after every observation, end and leaving.

        Args:
            condition: looks.
            timeout: seconds after which it is given up.

        Returns:
            Whether it is true now.
        """
        if condition():
            await trio.lowlevel.checkpoint()
        with trio.move_on_after(timeout):
            while not condition():
                if self._changed is None:
                    self._changed = trio.Event()
                await self._changed.wait()
        return condition()

    def _tell(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()
        if self._on_news is not None:
            self._on_news()
