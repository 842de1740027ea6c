"""The part of a slot in one trial: a client actor, played by the slot's client, or by nobody with default actions.

Events are handled where they arrive: in process that is the task in which the last actor has acted, so that a step
often has its answer when its action has been sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import trio

from trio_cogment.api import common_pb2
from trio_cogment.errors import CogmentError, FailedPreconditionError, UnavailableError
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping, Verdict
from trio_cogment.gateways.dm_env_rpc.gateway.records import Sending
from trio_cogment.gateways.dm_env_rpc.gateway.slot_states import SlotInput, SlotState
from trio_cogment.gateways.dm_env_rpc.gateway.slots import INTERRUPTED, RUNNING, TERMINATED, Reply, Slot
from trio_cogment.host import Host
from trio_cogment.outcome import EndCause
from trio_cogment.rpc import CallOpener
from trio_cogment.sdk import ActorSession, Event, EventType, join_trial
from trio_cogment.sdk import RecvReward as Received

_log = logging.getLogger(__name__)


def _mean(rewards: list[Received]) -> float:
    sources = [source for reward in rewards for source in reward.sources]
    weight = sum(source.confidence for source in sources)
    return sum(source.value * source.confidence for source in sources) / weight if weight > 0 else 0.0


#: How the rewards since the last reply become one number.
REWARDS: dict[str, Callable[[list[Received]], float]] = {
    "sum": lambda rewards: sum(reward.value for reward in rewards),
    "last": lambda rewards: rewards[-1].value if rewards else 0.0,
    "weighted": _mean,
}


class Surroundings(Protocol):
    """What a part needs of its sequence."""

    #: Clients play; before that a trial waits with its first observations.
    begun: bool
    #: The gateway itself has asked for the end of the trial.
    end_asked: bool
    #: See `templates.WorldTemplate`.
    reward_mode: str
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
        self._rewards: list[Received] = []
        #: An observation waits for its action.
        self._owes = False
        self._final = False
        self._error: Exception | None = None
        self._scope = trio.CancelScope()

    # The trial's side

    async def run(self, opener: CallOpener, trial_id: str, host: Host) -> None:
        """Take part in a trial, to its end."""
        try:
            with self._scope:
                await join_trial(opener, trial_id, self._play, actor_name=self.slot.name, host=host)
        except CogmentError as error:
            self._error = error
        finally:
            self._end()

    async def _play(self, session: ActorSession[Any, Any, Any]) -> None:
        self._session = session
        if self.slot.record is not None:
            self._equip()
        await session.start()
        await session.handle(self._on_event, as_bytes=True)

    def _equip(self) -> None:
        """Let the client reach the others in the trial."""
        record, session = self.slot.record, self._session
        if record is not None and session is not None and not self.over:
            record.environment_name = session.environment_name
            record.sending = Sending(
                message=lambda receiver, payload: session.send_message_nowait(payload, receiver),
                reward=lambda receiver, value: session.add_reward_nowait(value, 1.0, receiver),
            )

    def _on_event(self, event: Event[bytes, None]) -> None:
        observation = event.observation
        if observation is not None:
            self._observe(observation.payload, event.type is EventType.ENDING)
        elif event.reward is not None:
            reward = event.reward
            self._rewards.append(reward)
            if self.slot.record is not None:
                self.slot.record.add_reward(
                    common_pb2.Reward(tick_id=reward.tick_id, value=reward.value, sources=reward.sources)
                )
        elif event.message is not None and self.slot.record is not None:
            message = event.message
            self.slot.record.add_message(
                common_pb2.Message(tick_id=message.tick_id, sender_name=message.sender_name, payload=message.payload)
            )

    def _observe(self, content: bytes, final: bool) -> None:
        first = self.content is None
        self.content, self._owes, self._final = content, not final, final
        if first and not self._fits(content):
            return
        if self.slot.record is not None and self._session is not None:
            self.slot.record.tick = self._session.tick_id
        if self._around.begun:
            self.offer()
        if first:
            self._around.has_arrived()

    def _fits(self, content: bytes) -> bool:
        """See that the specifications fit a trial's first observation; make them if there are none yet."""
        slot = self.slot
        try:
            if slot.mapping is None:
                slot.mapping = self._around.make_mapping(slot, content)
            elif not slot.mapping.describes(content):
                raise FailedPreconditionError(
                    f"actor {slot.name!r}: the environment has other spaces than in the world's earlier sequences; "
                    "specifications stay as they are: create another world"
                )
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
            verdict = self._verdict()
            if verdict in (Verdict.TERMINATED, Verdict.TRUNCATED):
                self._tell_end(verdict)
                self.out = True
                self.play_default()
            else:
                slot.feed(SlotInput.OBSERVATION, Reply(RUNNING, self.content, self._reward()))
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
            self._owes = False
            self._session.do_action_nowait(content)

    def stop_playing(self, *, out: bool = False) -> None:
        """Let nobody play any more, because the client has left, or does not want to go on.

        Args:
            out: the client does not come back before the next trial.
        """
        self.playing = False
        self.out = self.out or out
        if self._around.begun:
            self.play_default()

    def play_default(self) -> None:
        """Act for the client, if the trial waits for it."""
        if self._owes and self.slot.mapping is not None:
            try:
                self.act(self.slot.mapping.default_action)
            except CogmentError as error:
                _log.debug("actor %r: the default action was not sent: %s", self.slot.name, error)

    def leave(self) -> None:
        """Leave the trial."""
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
                reason = self._error or UnavailableError(f"the trial ended before it began: {self.details}")
                self.slot.feed(SlotInput.FAILURE, Reply(error=reason))
            else:
                self._tell_end(self._verdict())
        elif self.slot.state is SlotState.RESETTING:
            self.slot.feed(SlotInput.END)
        self.playing = False

    @property
    def details(self) -> str:
        """Why the trial is over for this actor, as far as somebody has said so."""
        if self._error is not None:
            return str(self._error)
        return "" if self._session is None else self._session.details or ""

    def _tell_end(self, verdict: Verdict | None) -> None:
        self.playing = False
        assert self.content is not None
        state = TERMINATED if self._has_terminated(verdict) else INTERRUPTED
        self.slot.feed(SlotInput.END, Reply(state, self.content, self._reward()))

    def _verdict(self) -> Verdict | None:
        assert self.slot.mapping is not None
        assert self.content is not None
        return self.slot.mapping.verdict(self.content)

    def _has_terminated(self, verdict: Verdict | None) -> bool:
        """Whether the task has ended by its own rules: the observation says so, or the cause of the trial's end."""
        if verdict is not None:
            return verdict is Verdict.TERMINATED
        session = self._session
        if session is None or not self._final or self._around.end_asked:
            return False
        if session.outcome is not None:
            return session.outcome.cause is EndCause.ENVIRONMENT
        # The orchestrator does not say.
        return not self._around.max_steps or session.tick_id < self._around.max_steps

    def _reward(self) -> float:
        reward = REWARDS[self._around.reward_mode](self._rewards)
        self._rewards.clear()
        return reward
