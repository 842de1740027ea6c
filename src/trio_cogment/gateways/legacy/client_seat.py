"""An old client's place in a running trial: its calls, answered from the mailbox of the actor that it plays.

Old clients pull: a call brings an action and waits for the observation after it. The mailbox has that observation, and
what else has come (`trio_cogment.seats.mailbox`). What is left to do is calls.

Rule 1: one call at a time. A second one is refused as busy.

Rule 2: an action counts once. A call that goes away (a deadline, a lost connection) has acted nevertheless; the next
call for an action waits for the same observation, or gets it, and its own action is dropped.

Rule 3: nothing is lost with a call. What was to be its answer is kept until a call has taken it, and the final answer
is given to every call that still asks. It has the final observation: there is no answer of its own with that, unless it
is the first one.

Rule 4: an action may come before the first observation, where several join one after the other. It waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio
from google.protobuf.message import Message

from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import orchestrator_pb2 as pb
from trio_cogment.base.errors import AlreadyExistsError, CogmentError, FailedPreconditionError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.gateways.legacy.actor_ids import ActorIds, Member
from trio_cogment.gateways.legacy.messages import legacy_message, legacy_observation
from trio_cogment.gateways.legacy.rewards import legacy_reward, sum_of
from trio_cogment.rpc import CallOpener
from trio_cogment.sdk import ActorSession, Event, Reward
from trio_cogment.sdk.spec import encode
from trio_cogment.seats.mailbox import Answer, MailboxState
from trio_cogment.seats.seat import Seat

_log = logging.getLogger(__name__)

#: What is kept for the next answer: a client may be away for long.
MAX_KEPT_ITEMS = 10_000


class ClientSeat:
    """The place of one old client in one trial.

    Args:
        nursery: where its stream is, if the orchestrator is elsewhere.
        opener: a channel to the orchestrator.
        trial_id: of the trial.
        ids: of the trial.
        member: the actor.
        config: of the actor, as far as it is known before it has joined.
        host: gives the wall clock.

    Attributes:
        member: see above.
        session_id: of the client, if it says; some calls name nobody else.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        opener: CallOpener,
        trial_id: str,
        ids: ActorIds,
        member: Member,
        config: bytes | None,
        host: Host,
    ) -> None:
        self.member = member
        self.session_id = ""
        self._nursery = nursery
        self._opener = opener
        self._trial_id = trial_id
        self._ids = ids
        self._config = config
        self._host = host
        self._rewards: list[legacy.Reward] = []
        self._messages: list[legacy.Message] = []
        self._final: pb.TrialActionReply | None = None
        #: A call waits for its answer.
        self._busy = False
        #: The client was told of an observation, or has acted.
        self._seen = False
        #: It has acted, and no call has taken what came of that.
        self._owed = False
        #: An action that waits for the first observation.
        self._early: bytes | None = None
        #: Act with nothing from now on: the client has ended the trial.
        self._drained = False
        self._joined = False
        #: Why the trial does not have the client, for the call that waits.
        self._refusal: CogmentError | None = None
        self._seat = self._new_seat()

    def _new_seat(self) -> Seat:
        return Seat(
            self.member.name, self._on_news, on_begun=self._on_begun, on_over=self._on_over, aside=self._on_extra
        )

    @property
    def is_joined(self) -> bool:
        """Whether the client has a part in the trial, and it goes on."""
        return self._joined and not self._seat.is_over

    @property
    def is_over(self) -> bool:
        """Whether the trial is over for it."""
        return self._joined and self._seat.is_over

    @property
    def _who(self) -> str:
        return f"trial {self._trial_id!r}, actor {self.member.actor_id}"

    # Calls

    async def join(self, session_id: str, *, wait: bool = True) -> pb.TrialStartReply:
        """Answer a call that joins the trial.

        Args:
            session_id: of the client.
            wait: for the first observation; otherwise the next call gets it.

        Raises:
            AlreadyExistsError: somebody has joined.
            FailedPreconditionError: the trial is over.
            UnavailableError: another call of this client waits; or the trial ended before it began.
            CogmentError: the trial does not have the client.
        """
        self._check_free()
        if self._seen and self.is_joined:
            raise AlreadyExistsError(f"{self._who}: a client has joined already")
        if self.is_over:
            raise FailedPreconditionError(f"{self._who}: the trial is over")
        self.session_id = session_id or self.session_id
        if not self._joined:
            self._joined, self._refusal = True, None
            self._seat.join(self._opener, self._trial_id, self._nursery.start_soon, host=self._host)
        if not wait:
            return self._start_reply(with_observation=False)
        await self._wait(self._has_begun)
        if self._seat.mailbox.observation is None:
            session = self._seat.session
            why = f": {session.details}" if session is not None and session.details else ""
            raise UnavailableError(f"{self._who}: the trial ended before it began{why}")
        self._seen = True
        return self._start_reply()

    async def act(self, content: bytes) -> pb.TrialActionReply:
        """Answer a call with an action: the next observation, or the final answer.

        Raises:
            FailedPreconditionError: nobody has joined.
            UnavailableError: another call of this client waits.
            CogmentError: the trial does not have the client, or the action could not be sent.
        """
        self._check_free()
        if not self._joined:
            raise FailedPreconditionError(f"{self._who}: no client has joined")
        if not self._owed:
            self._act(content)
        try:
            await self._wait(self._has_answer)
        finally:
            self._early = None
        self._owed = False
        reply = self._action_reply()
        self._drain()
        return reply

    def _act(self, content: bytes) -> None:
        """Act for the client; before the first observation its action waits."""
        # Set first: in process this may bring what comes of it.
        self._owed = self._seen = True
        answer = None
        try:
            answer = self._seat.act(content)
        finally:
            if answer is None or answer is Answer.EARLY:
                self._owed = False
        if answer is Answer.EARLY:
            self._seen, self._early = False, content

    def _check_free(self) -> None:
        if self._busy:
            raise UnavailableError(f"{self._who}: busy: another call is being answered")

    async def _wait(self, condition: Callable[[], bool]) -> None:
        """Wait for something in the mailbox, or the end.

        Raises:
            CogmentError: the trial does not have the client.
        """
        self._busy = True
        try:
            await self._seat.wait(condition)
        finally:
            self._busy = False
            refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def _has_begun(self) -> bool:
        return self._seat.mailbox.observation is not None or self._is_without()

    def _has_answer(self) -> bool:
        mailbox = self._seat.mailbox
        return self._is_without() or (self._owed and mailbox.state is MailboxState.TURN)

    def _is_without(self) -> bool:
        return self._seat.is_over or not self._joined

    # What it says

    def give(self, rewards: list[Reward]) -> None:
        """Give rewards, unless the trial is over."""
        self._seat.say(rewards)

    def send(self, messages: list[tuple[Any, str]]) -> None:
        """Send messages, unless the trial is over."""
        self._seat.say(messages=messages)

    def drain(self) -> None:
        """Act with nothing from now on, whenever the trial waits for the client: it has ended the trial."""
        self._drained = True
        self._drain()

    def _drain(self) -> None:
        if self._drained and not self._busy:
            self._seat.default = b""
            self._seat.act_default()

    def leave(self) -> None:
        """Leave the trial, if the client has a part in it; the call that waits gets the final answer."""
        if self._joined:
            self._seat.leave()

    # The trial

    def _on_begun(self, session: ActorSession[Any, Any, Any]) -> None:
        if session.config is not None:
            self._config = encode(session.config, None, "config")

    def _on_news(self) -> None:
        early, state = self._early, self._seat.mailbox.state
        if early is not None and state is MailboxState.TURN:
            self._early = None
            self._act(early)
        else:
            self._drain()

    def _on_extra(self, event: Event[Any, None]) -> bool:
        """Keep a reward or a message for the next answer."""
        if event.reward is not None:
            given = event.reward
            _keep(self._rewards, legacy_reward(given.value, given.sources, given.tick_id, self.member))
        elif event.message is not None:
            sent = event.message
            message = legacy_message(sent.payload, sent.sender_name, self.member.actor_id, self._ids)
            if message is not None:
                _keep(self._messages, message)
        return True

    def _on_over(self) -> None:
        seat, error = self._seat, self._seat.error
        if error is None:
            return
        if not isinstance(error, CogmentError):  # it has been logged
            error = UnavailableError(f"{self._who}: the gateway failed; its log has the details")
        elif seat.session is None:
            _log.warning("%s: a client cannot join: %s", self._who, error)
        else:
            _log.warning("%s: %s", self._who, error)
        if seat.session is None or seat.mailbox.observation is None:
            self._refusal = error
        if seat.session is None:
            # Somebody may try again: its place may have been taken only for a while.
            self._joined = False
            self._seat = self._new_seat()

    # Answers

    def _start_reply(self, *, with_observation: bool = True) -> pb.TrialStartReply:
        """Return the answer to a call that starts or joins the trial."""
        reply = pb.TrialStartReply(
            trial_id=self._trial_id, actor_id=self.member.actor_id, actor_counts=self._ids.counts
        )
        # An old client without a type for it refuses even an empty one.
        if self._config is not None:
            reply.human_config.content = self._config
        observation = self._seat.mailbox.observation
        if with_observation and observation is not None:
            reply.observation.CopyFrom(legacy_observation(observation))
        return reply

    def _action_reply(self) -> pb.TrialActionReply:
        """Return the answer to a call for an action: what has come since the last one."""
        if self._final is not None:
            return self._final
        reply = pb.TrialActionReply(messages=legacy.MessageCollection(messages=self._messages))
        # Others may see the same: it is made into a message only here.
        observation = self._seat.mailbox.observation
        if observation is not None:
            reply.observation.CopyFrom(legacy_observation(observation))
        reward = sum_of(self._rewards)
        if reward is not None:
            reply.reward.CopyFrom(reward)
        self._rewards, self._messages = [], []
        if self._seat.is_over:
            reply.trial_is_over = True
            self._final = reply
        return reply


def _keep(kept: list[Any], item: Message) -> None:
    if len(kept) < MAX_KEPT_ITEMS:
        kept.append(item)
