"""The part of an old client in one trial, without I/O: what its calls and the events of the trial lead to."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import orchestrator_pb2 as pb
from trio_cogment.gateways.legacy.actor_ids import ActorIds, Member
from trio_cogment.gateways.legacy.client_states import OWES_AN_ACTION, Do, Input, State, after
from trio_cogment.gateways.legacy.messages import legacy_message, legacy_observation
from trio_cogment.gateways.legacy.rewards import legacy_reward, sum_of
from trio_cogment.sdk import Event, EventType, RecvObservation

#: What is kept for the next answer: a client may be away for long.
MAX_KEPT_ITEMS = 10_000
#: Where an observation is the first one, even if it is the last one, too.
_WITHOUT_OBSERVATION = (State.JOINING, State.AWAY)


class ClientPart:
    """An old client in a trial.

    Args:
        trial_id: of the trial.
        ids: of the trial.
        member: the actor that it plays.

    Attributes:
        state: where it is.
        member: see above.
        action: the latest one that was given.
    """

    def __init__(self, trial_id: str, ids: ActorIds, member: Member) -> None:
        self.state = State.FREE
        self.member = member
        self.action = b""
        self._trial_id = trial_id
        self._ids = ids
        self._observation: RecvObservation[Any] | None = None
        self._rewards: list[legacy.Reward] = []
        self._messages: list[legacy.Message] = []
        self._final: pb.TrialActionReply | None = None

    @property
    def owes_an_action(self) -> bool:
        """Whether the trial waits for the client."""
        return self.state in OWES_AN_ACTION

    def call_join(self) -> Do:
        """Take a call that asks for the first observation."""
        return self._enter(Input.CALL_JOIN)

    def call_action(self, content: bytes) -> Do:
        """Take a call with an action."""
        before = self.state
        do = self._enter(Input.CALL_ACTION)
        if do is Do.ACT or before is State.AWAY:
            self.action = content
        return do

    def call_gone(self) -> None:
        """Note that the call that waited has gone."""
        self._enter(Input.GONE)

    def refused(self) -> Do:
        """Note that the trial does not have the client, or not yet."""
        return self._enter(Input.REFUSED)

    def ended(self) -> Do:
        """Note that the trial is over."""
        return self._enter(Input.END)

    def take(self, event: Event[Any, None]) -> Do:
        """Take an event of the trial."""
        if event.observation is not None:
            # Others may see the same: it is made into a message when the client asks.
            self._observation = event.observation
            # The final one is a part of the final answer, with what still comes until the end.
            if event.type is EventType.ACTIVE or self.state in _WITHOUT_OBSERVATION:
                return self._enter(Input.OBSERVATION)
        elif event.reward is not None:
            given = event.reward
            self._keep(self._rewards, legacy_reward(given.value, given.sources, given.tick_id, self.member))
        elif event.message is not None:
            sent = event.message
            message = legacy_message(sent.payload, sent.sender_name, self.member.actor_id, self._ids)
            if message is not None:
                self._keep(self._messages, message)
        return Do.NOTHING

    def _enter(self, given: Input) -> Do:
        self.state, do = after(self.state, given)
        return do

    @staticmethod
    def _keep(kept: list[Any], item: Message) -> None:
        if len(kept) < MAX_KEPT_ITEMS:
            kept.append(item)

    # Answers

    def told(self) -> None:
        """Note that the call that waited takes its answer."""
        self._enter(Input.TOLD)

    def start_reply(self, config: bytes | None, *, with_observation: bool = True) -> pb.TrialStartReply:
        """Return the answer to a call that starts or joins the trial."""
        reply = start_reply(self._trial_id, self._ids, self.member.actor_id)
        # An old client without a type for it refuses even an empty one.
        if config is not None:
            reply.human_config.content = config
        if with_observation and self._observation is not None:
            reply.observation.CopyFrom(legacy_observation(self._observation))
        return reply

    def action_reply(self) -> pb.TrialActionReply:
        """Return the answer to a call for an action: what has come since the last one."""
        if self._final is not None:
            return self._final
        reply = pb.TrialActionReply(messages=legacy.MessageCollection(messages=self._messages))
        if self._observation is not None:
            reply.observation.CopyFrom(legacy_observation(self._observation))
        reward = sum_of(self._rewards)
        if reward is not None:
            reply.reward.CopyFrom(reward)
        self._rewards, self._messages = [], []
        if self.state in (State.ENDED, State.OVER):
            reply.trial_is_over = True
            self._final = reply
        return reply


def start_reply(trial_id: str, ids: ActorIds, actor_id: int) -> pb.TrialStartReply:
    """Return what an answer to Start or Join always has."""
    return pb.TrialStartReply(trial_id=trial_id, actor_id=actor_id, actor_counts=ids.counts)
