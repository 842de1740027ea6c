"""The part of a slot in one trial: a client actor, played by the slot's client, or by nobody with default actions.

Events are handled where they arrive: in process that is the task in which the last actor has acted, so that a step
often has its answer when its action has been sent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Protocol

import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct

from trio_cogment.api import common_pb2
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    LocalProtocolError,
    UnavailableError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.dm_env_rpc.gateway.gathered_rewards import GatheredRewards
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping, Verdict
from trio_cogment.gateways.dm_env_rpc.gateway.records import Sending
from trio_cogment.gateways.dm_env_rpc.gateway.slot_states import SlotInput, SlotState
from trio_cogment.gateways.dm_env_rpc.gateway.slots import INTERRUPTED, RUNNING, TERMINATED, Reply, Slot
from trio_cogment.gateways.dm_env_rpc.gateway.templates import RewardMode
from trio_cogment.rpc import CallOpener
from trio_cogment.sdk import ActorSession, Event, EventType, RecvMessage, join_trial
from trio_cogment.sdk.direct_actor import DirectActor, join_trial_nowait

_log = logging.getLogger(__name__)

_FAILED = re.compile(r" failed: (\w+): ")
#: What a participant says that would fail again: its configuration is wrong, or its environment refuses.
_NOT_BEGUN: dict[str, type[CogmentError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "InvalidEnvironmentError": FailedPreconditionError,
}


def is_truncation(payload: AnyMessage) -> bool:
    """Whether a message of an environment says that the episode is cut off: a Struct with `"truncated": true`."""
    found = Struct()
    try:
        return payload.Unpack(found) and found.fields["truncated"].bool_value
    except DecodeError:
        return False


class Surroundings(Protocol):
    """What a part needs of its sequence."""

    #: Clients play; before that a trial waits with its first observations.
    begun: bool
    #: The gateway itself has asked for the end of the trial.
    end_asked: bool
    #: The orchestrator has not confirmed that yet.
    is_asking: bool
    #: Why nobody can go on with the trial; None if they can.
    failure: Exception | None
    #: See `templates.WorldTemplate`.
    reward_mode: RewardMode
    max_steps: int

    def make_mapping(self, slot: Slot, first: bytes) -> SlotMapping:
        """Return the mapping of a slot, whose first observation this is."""

    def fail(self, error: Exception) -> None:
        """End the trial: nobody can go on with it, for this reason."""

    def has_arrived(self) -> None:
        """Take note of a first observation."""


class Part:
    """See the module.

    Args:
        slot: whose part it is.
        around: the sequence.

    Attributes:
        playing: the slot's client has a running sequence, or waits for the first observation of one.
        out: the sequence has ended for the client, and the trial has not.
        content: the last observation; None before the first.
        over: the trial has ended for this actor.
    """

    def __init__(self, slot: Slot, around: Surroundings) -> None:
        self.slot = slot
        self.playing = False
        self.out = False
        self.content: bytes | None = None
        self.over = False
        self._around = around
        self._session: ActorSession[Any, Any, Any] | None = None
        self._rewards = GatheredRewards(around.reward_mode)
        #: An observation waits for its action.
        self._owes = False
        self._final = False
        #: What the last observation itself says of the end.
        self._verdict: Verdict | None = None
        #: The environment has said in a message that the episode is cut off.
        self._truncated = False
        self._error: Exception | None = None
        self._on_over: Callable[[], None] | None = None
        #: Of who plays it: as an actor without a task, or in one.
        self._direct: DirectActor | None = None
        self._scope: trio.CancelScope | None = None
        self._left = False

    # The trial's side

    def play(
        self, opener: CallOpener, trial_id: str, host: Host, spawn: Callable[..., None], on_over: Callable[[], None]
    ) -> None:
        """Take part in a trial, to its end: without a task if the orchestrator is in this process.

        Args:
            opener: calls the orchestrator.
            trial_id: the trial.
            host: gives the wall clock.
            spawn: starts a task.
            on_over: called when the trial is over for this actor, not before the next checkpoint if it is elsewhere.
        """
        self._on_over = on_over
        if self._has_left():
            self.on_over(None)
            return
        self._direct = join_trial_nowait(opener, trial_id, self, actor_name=self.slot.name, spawn=spawn, host=host)
        if self._direct is None:
            spawn(self._run, opener, trial_id, host, name=f"trial {trial_id}: slot {self.slot.name}")
        elif self._has_left():  # while it was joining
            self._direct.leave()

    def _has_left(self) -> bool:
        return self._left

    async def _run(self, opener: CallOpener, trial_id: str, host: Host) -> None:
        error: CogmentError | None = None
        self._scope = trio.CancelScope()
        if self._left:
            self._scope.cancel()
        try:
            with self._scope:
                await join_trial(opener, trial_id, self._play, actor_name=self.slot.name, host=host)
        except CogmentError as failure:
            error = failure
        self.on_over(error)

    async def _play(self, session: ActorSession[Any, Any, Any]) -> None:
        self.on_session(session)
        await session.start()
        await session.handle(self.on_event, as_bytes=True)

    def on_session(self, session: ActorSession[bytes, Any, Any]) -> None:
        """See `ActorHandler.on_session`."""
        self._session = session
        if self.slot.record is not None:
            self._equip()

    def on_over(self, error: Exception | None) -> None:
        """See `ActorHandler.on_over`."""
        if error is not None and not isinstance(error, CogmentError):
            _log.error("actor %r: its part failed", self.slot.name, exc_info=error)
        self._error = error
        self._end()
        told, self._on_over = self._on_over, None
        if told is not None:
            told()

    def _equip(self) -> None:
        """Let the client reach the others in the trial."""
        record, session = self.slot.record, self._session
        if record is not None and session is not None and not self.over:
            record.environment_name = session.environment_name
            record.sending = Sending(
                message=lambda receiver, payload: session.send_message_nowait(payload, receiver),
                reward=lambda receiver, value: session.add_reward_nowait(value, 1.0, receiver),
            )

    def on_event(self, event: Event[bytes, None]) -> None:
        """See `ActorHandler.on_event`."""
        observation = event.observation
        if observation is not None:
            self._observe(observation.payload, event.type is EventType.ENDING)
        elif event.reward is not None:
            reward = event.reward
            self._rewards.add(reward)
            if self.slot.record is not None:
                self.slot.record.add_reward(reward)
        elif event.message is not None:
            self._hear(event.message)

    def _hear(self, message: RecvMessage) -> None:
        session = self._session
        if session is not None and message.sender_name == session.environment_name and is_truncation(message.payload):
            self._truncated = True
        if self.slot.record is not None:
            self.slot.record.add_message(
                common_pb2.Message(tick_id=message.tick_id, sender_name=message.sender_name, payload=message.payload)
            )

    def _observe(self, content: bytes, final: bool) -> None:
        first = self.content is None
        if not self._is_understood(content, first):
            return
        self.content, self._owes, self._final = content, not final, final
        if self.slot.record is not None and self._session is not None:
            self.slot.record.tick = self._session.tick_id
        if self._around.begun:
            self.offer()
        if first:
            self._around.has_arrived()

    def _is_understood(self, content: bytes, first: bool) -> bool:
        """Read what an observation says of the end; the first one has to fit the specifications, or makes them."""
        slot = self.slot
        try:
            if slot.mapping is None:
                slot.mapping = self._around.make_mapping(slot, content)
            elif first and not slot.mapping.describes(content):
                raise FailedPreconditionError(
                    f"actor {slot.name!r}: the environment has other spaces than in the world's earlier sequences; "
                    "specifications stay as they are: create another world"
                )
            self._verdict = slot.mapping.verdict(content)
        except CogmentError as error:
            self._around.fail(error)
            return False
        return True

    # The client's side

    def begin(self) -> None:
        """Let the client play if it waits for a sequence, and nobody otherwise."""
        if self.slot.state is SlotState.WAITING:
            self.playing = True
        if self.content is not None:
            self.offer()

    def offer(self) -> None:
        """Give the last observation to the client if it plays; play the default action otherwise."""
        slot = self.slot
        if not self.playing and slot.state is SlotState.WAITING and self._is_open():
            self.playing = True
        if not self.playing:
            self.play_default()
            return
        assert self.content is not None
        if slot.state is SlotState.WAITING:
            self._rewards.clear()  # those before belong to what nobody saw
            if slot.record is not None:
                self._equip()
            slot.feed(SlotInput.OBSERVATION, Reply(RUNNING, self.content))
        elif not self._final:
            if self._verdict in (Verdict.TERMINATED, Verdict.TRUNCATED):
                self._tell_end()
                self.out = True
                self.play_default()
            else:
                slot.feed(SlotInput.OBSERVATION, Reply(RUNNING, self.content, self._rewards.take()))
        # The answer to a final observation comes with the end: until then there may be more rewards.

    def _is_open(self) -> bool:
        """Whether a client may take over where nobody has played."""
        return not (self.out or self.over or self._final or self._around.end_asked)

    def act(self, content: bytes) -> None:
        """Send the client's action.

        Raises:
            CogmentError: it cannot be sent.
        """
        if self._session is not None and not self.over:
            self._owes = False  # before it is sent: in process this may bring the next observation
            try:
                self._session.do_action_nowait(content)
            except LocalProtocolError:
                return  # the session is over, and the end is about to be told
            except CogmentError:
                self._owes = True
                raise

    def play_default(self) -> None:
        """Act for the client, if the trial waits for it, and is not just being asked to end."""
        if self._owes and self.slot.mapping is not None and not self._around.is_asking:
            try:
                self.act(self.slot.mapping.default_action)
            except CogmentError as error:
                _log.debug("actor %r: the default action was not sent: %s", self.slot.name, error)

    def leave(self) -> None:
        """Leave the trial."""
        self._left = True
        if self._direct is not None:
            self._direct.leave()
        elif self._scope is not None:
            self._scope.cancel()

    # The end

    def _end(self) -> None:
        """The trial is over for this actor."""
        self.over, self._owes = True, False
        record = self.slot.record
        if record is not None:
            record.sending, record.state = None, "ENDED"
            record.last_error = self.details
        if self.playing:
            if self.slot.state is SlotState.WAITING:
                reason = self._error or not_begun("the trial ended before it began", self.details)
                self.slot.feed(SlotInput.FAILURE, Reply(error=reason))
            else:
                self._tell_end()
        elif self.slot.state is SlotState.RESETTING:
            self.slot.feed(SlotInput.END)
        self.playing = False

    @property
    def details(self) -> str:
        """Why the trial is over for this actor, as far as somebody has said so."""
        error = self._around.failure or self._error
        if error is not None:
            return str(error)
        return "" if self._session is None else self._session.details or ""

    def _tell_end(self) -> None:
        self.playing = False
        assert self.content is not None
        state = TERMINATED if self._has_terminated() else INTERRUPTED
        self.slot.feed(SlotInput.END, Reply(state, self.content, self._rewards.take()))

    def _has_terminated(self) -> bool:
        """Whether the task has ended by its own rules: the observation says so, or the cause of the trial's end."""
        if self._verdict in (Verdict.TERMINATED, Verdict.TRUNCATED):
            return self._verdict is Verdict.TERMINATED
        session = self._session
        if session is None or not self._final or self._around.end_asked or self._truncated:
            return False
        if session.outcome is not None:
            return session.outcome.cause is EndCause.ENVIRONMENT
        # The orchestrator does not say.
        return not self._around.max_steps or session.tick_id < self._around.max_steps


def not_begun(what: str, details: str) -> CogmentError:
    """Return the error for a trial without a first observation: clients try again only where that may help.

    Args:
        what: has happened.
        details: the reason, as the orchestrator has it. After `failed: ` it has the status of a participant's error,
            or the type of its exception.
    """
    found = _FAILED.search(details)
    return _NOT_BEGUN.get(found[1] if found else "", UnavailableError)(f"{what}: {details}")
