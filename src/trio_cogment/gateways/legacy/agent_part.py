"""The part of an old agent in one trial, without I/O: which calls it gets, and what its answers mean."""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from trio_cogment.api.legacy import agent_pb2 as pb
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.gateways.legacy.actor_ids import ActorIds, Member
from trio_cogment.gateways.legacy.agent_states import Do, Input, State, after
from trio_cogment.gateways.legacy.messages import legacy_message, legacy_observation, message_of
from trio_cogment.gateways.legacy.rewards import legacy_reward, reward_of
from trio_cogment.sdk import Event, EventType, RecvMessage, RecvObservation, RecvReward, Reward

#: What is kept for the last call: a trial may take long to end.
MAX_FINAL_ITEMS = 10_000


class CallOut(NamedTuple):
    """A call to an old server: its method and its request."""

    method: str
    request: Message


class Decision(NamedTuple):
    """What an old agent has decided.

    Attributes:
        action: a message of the action space.
        rewards: what it gives to actors.
        messages: payloads and the names of their receivers.
        ignored: what of it makes no sense, in words.
    """

    action: bytes
    rewards: list[Reward]
    messages: list[tuple[AnyMessage, str]]
    ignored: list[str]


class AgentPart:
    """An old agent in a trial.

    Args:
        trial_id: of the trial.
        ids: of the trial.
        member: the actor that it plays.
        reward_every_tick: it gets a reward of 0 for a tick that nobody rewards.

    Attributes:
        state: where it is.
    """

    def __init__(self, trial_id: str, ids: ActorIds, member: Member, *, reward_every_tick: bool = False) -> None:
        self.state = State.STARTING
        self._trial_id = trial_id
        self._ids = ids
        self._member = member
        self._actor_id = member.actor_id
        self._reward_every_tick = reward_every_tick
        self._tick_id = -1
        self._rewarded = True
        self._final = legacy.FinalData()

    def start(self, config: bytes | None, trial_config: bytes | None) -> CallOut:
        """Return the first call; `started` or `refused` is to follow.

        Args:
            config: of the actor; None if it has none.
            trial_config: of the trial; None if it has none.
        """
        request = pb.AgentStartRequest(trial_id=self._trial_id, actor_id=self._actor_id, actor_counts=self._ids.counts)
        # An old agent without a type for it refuses even an empty one.
        if config is not None:
            request.config.content = config
        if trial_config is not None:
            request.trial_config.content = trial_config
        return CallOut("Start", request)

    def started(self) -> None:
        """Note that the agent takes part."""
        self._enter(Input.STARTED)

    def refused(self) -> None:
        """Note that the agent does not take part, and knows nothing of the trial."""
        self._enter(Input.REFUSED)

    def take(self, event: Event[Any, None]) -> list[CallOut]:
        """Return the calls that an event brings, in order; the reply to a Decide goes to `decided`."""
        last = event.type is not EventType.ACTIVE
        if event.observation is not None:
            do = self._enter(Input.LAST_OBSERVATION if last else Input.OBSERVATION)
            return self._observed(do, event.observation)
        if event.reward is not None:
            live = event.reward.tick_id >= self._tick_id
            do = self._enter(Input.LAST_REWARD if last else Input.REWARD if live else Input.OLD_REWARD)
            return self._got_reward(do, event.reward)
        if event.message is not None:
            do = self._enter(Input.LAST_MESSAGE if last else Input.MESSAGE)
            return self._got_message(do, event.message)
        return []

    def _enter(self, given: Input) -> Do:
        self.state, do = after(self.state, given)
        return do

    def _observed(self, do: Do, received: RecvObservation[Any]) -> list[CallOut]:
        observation = legacy_observation(received)
        if do is Do.KEEP:
            self._keep(self._final.observations, observation)
            return []
        calls = []
        if self._reward_every_tick and not self._rewarded:
            calls.append(self._reward(legacy.Reward(confidence=1), self._tick_id))
        self._rewarded = False
        self._tick_id = received.tick_id
        request = pb.AgentDecideRequest(trial_id=self._trial_id, actor_id=self._actor_id, observation=observation)
        return [*calls, CallOut("Decide", request)]

    def _got_reward(self, do: Do, received: RecvReward) -> list[CallOut]:
        if do is Do.NOTHING:
            return []
        reward = legacy_reward(received.value, received.sources, received.tick_id, self._member)
        if do is Do.KEEP:
            self._keep(self._final.rewards, reward)
            return []
        self._rewarded = True
        return [self._reward(reward, received.tick_id)]

    def _reward(self, reward: legacy.Reward, tick_id: int) -> CallOut:
        request = pb.AgentRewardRequest(
            trial_id=self._trial_id, actor_id=self._actor_id, reward=reward, tick_id=tick_id
        )
        return CallOut("Reward", request)

    def _got_message(self, do: Do, received: RecvMessage) -> list[CallOut]:
        message = legacy_message(received.payload, received.sender_name, self._actor_id, self._ids)
        if message is None:
            return []
        if do is Do.KEEP:
            self._keep(self._final.messages, message)
            return []
        request = pb.AgentOnMessageRequest(trial_id=self._trial_id, actor_id=self._actor_id, messages=[message])
        return [CallOut("OnMessage", request)]

    @staticmethod
    def _keep(kept: Any, item: Message) -> None:
        if len(kept) < MAX_FINAL_ITEMS:
            kept.append(item)

    def decided(self, reply: pb.AgentDecideReply) -> Decision:
        """Return what a reply to Decide means."""
        decision = Decision(reply.action.content, [], [], [])
        for feedback in reply.feedbacks:
            reward = reward_of(feedback, self._ids)
            decision.ignored.append(reward) if isinstance(reward, str) else decision.rewards.append(reward)
        for each in reply.messages:
            message = message_of(each, self._ids)
            decision.ignored.append(message) if isinstance(message, str) else decision.messages.append(message)
        return decision

    def stop(self) -> CallOut | None:
        """Return the last call, None if there is nothing to tell."""
        if self._enter(Input.STOP) is not Do.END:
            return None
        request = pb.AgentEndRequest(trial_id=self._trial_id, actor_id=self._actor_id)
        if self._final.ByteSize():
            request.final_data.CopyFrom(self._final)
        return CallOut("End", request)
