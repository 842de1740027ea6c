"""The parts of old participants in a trial, without I/O: which calls they get, and what their answers mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from trio_cogment.api.legacy import agent_pb2, environment_pb2
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.gateways.legacy.actor_ids import ENVIRONMENT, ActorIds, Member
from trio_cogment.gateways.legacy.deltas import ApplyDelta
from trio_cogment.gateways.legacy.messages import CallOut, legacy_message, legacy_observation, message_of
from trio_cogment.gateways.legacy.participant_states import AGENT, Do, Input, State, Table, after
from trio_cogment.gateways.legacy.participant_states import ENVIRONMENT as ENVIRONMENT_STATES
from trio_cogment.gateways.legacy.rewards import legacy_reward, reward_of
from trio_cogment.gateways.legacy.snapshots import Snapshots
from trio_cogment.sdk import Event, EventType, RecvAction, RecvMessage, RecvObservation, RecvReward, Reward
from trio_cogment.sdk.spec import encode

#: What is kept for the last call: a trial may take long to end.
MAX_FINAL_ITEMS = 10_000


class _Part(ABC):
    """An old participant in a trial.

    Args:
        trial_id: of the trial.
        ids: of the trial.

    Attributes:
        state: where it is.
    """

    _TABLE: ClassVar[Table]

    def __init__(self, trial_id: str, ids: ActorIds) -> None:
        self.state = State.STARTING
        self._trial_id = trial_id
        self._ids = ids

    def start(self, config: bytes | None, trial_config: bytes | None) -> CallOut:
        """Return the first call; `started` or `refused` is to follow.

        Args:
            config: of the participant; None if it has none.
            trial_config: of the trial; None if it has none.
        """
        request = self._start_request()
        # An old participant without a type for it refuses even an empty one.
        if config is not None:
            request.config.content = config
        if trial_config is not None:
            request.trial_config.content = trial_config
        return CallOut("Start", request)

    def refused(self) -> None:
        """Note that the participant does not take part, and knows nothing of the trial."""
        self._enter(Input.REFUSED)

    def stop(self) -> CallOut | None:
        """Return the last call, None if there is nothing to tell."""
        return CallOut("End", self._end_request()) if self._enter(Input.STOP) is Do.END else None

    @abstractmethod
    def _start_request(self) -> Any:
        """Return the request that begins the trial, without configurations."""

    @abstractmethod
    def _end_request(self) -> Message:
        """Return the request that tells of the end of the trial."""

    def _enter(self, given: Input) -> Do:
        self.state, do = after(self._TABLE, self.state, given)
        return do

    def _understand(self, answer: Decision | Outcome, feedbacks: Iterable[Any], messages: Iterable[Any]) -> None:
        """Add to an answer what it gives and says to others, as far as that makes sense."""
        for feedback in feedbacks:
            reward = reward_of(feedback, self._ids)
            answer.ignored.append(reward) if isinstance(reward, str) else answer.rewards.append(reward)
        for each in messages:
            message = message_of(each, self._ids)
            answer.ignored.append(message) if isinstance(message, str) else answer.messages.append(message)


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


class AgentPart(_Part):
    """An old agent in a trial.

    Args:
        trial_id: of the trial.
        ids: of the trial.
        member: the actor that it plays.
        reward_every_tick: it gets a reward of 0 for a tick that nobody rewards.
    """

    _TABLE = AGENT

    def __init__(self, trial_id: str, ids: ActorIds, member: Member, *, reward_every_tick: bool = False) -> None:
        super().__init__(trial_id, ids)
        self._member = member
        self._actor_id = member.actor_id
        self._reward_every_tick = reward_every_tick
        self._tick_id = -1
        self._rewarded = True
        self._final = legacy.FinalData()

    def _start_request(self) -> Any:
        return agent_pb2.AgentStartRequest(
            trial_id=self._trial_id, actor_id=self._actor_id, actor_counts=self._ids.counts
        )

    def _end_request(self) -> Message:
        request = agent_pb2.AgentEndRequest(trial_id=self._trial_id, actor_id=self._actor_id)
        if self._final.ByteSize():
            request.final_data.CopyFrom(self._final)
        return request

    def started(self) -> None:
        """Note that the agent takes part."""
        self._enter(Input.STARTED)

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
        request = agent_pb2.AgentDecideRequest(
            trial_id=self._trial_id, actor_id=self._actor_id, observation=observation
        )
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
        request = agent_pb2.AgentRewardRequest(
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
        request = agent_pb2.AgentOnMessageRequest(trial_id=self._trial_id, actor_id=self._actor_id, messages=[message])
        return [CallOut("OnMessage", request)]

    @staticmethod
    def _keep(kept: Any, item: Message) -> None:
        if len(kept) < MAX_FINAL_ITEMS:
            kept.append(item)

    def decided(self, reply: agent_pb2.AgentDecideReply) -> Decision:
        """Return what a reply to Decide means."""
        decision = Decision(reply.action.content, [], [], [])
        self._understand(decision, reply.feedbacks, reply.messages)
        return decision


class Outcome(NamedTuple):
    """What the step of an old environment has led to.

    Attributes:
        observations: of the actors, each with the place of its actor in the trial's parameters.
        rewards: what it gives to actors, for the step.
        messages: payloads and the names of their receivers.
        ends_trial: these are the final observations.
        ignored: what of it makes no sense, in words.
    """

    observations: list[tuple[int, bytes]]
    rewards: list[Reward]
    messages: list[tuple[AnyMessage, str]]
    ends_trial: bool
    ignored: list[str]


class EnvironmentPart(_Part):
    """An old environment in a trial.

    Args:
        trial_id: of the trial.
        ids: of the trial.
        deltas: how deltas are applied, by class.
    """

    _TABLE = ENVIRONMENT_STATES

    def __init__(self, trial_id: str, ids: ActorIds, deltas: Mapping[str, ApplyDelta]) -> None:
        super().__init__(trial_id, ids)
        self._snapshots = Snapshots(ids, deltas)
        self._last: list[tuple[int, bytes]] = []
        self._tick_id = 0
        self._drifted = False

    def _start_request(self) -> Any:
        return environment_pb2.EnvStartRequest(trial_id=self._trial_id, actor_counts=self._ids.counts)

    def _end_request(self) -> Message:
        return environment_pb2.EnvEndRequest(trial_id=self._trial_id)

    def started(self, reply: environment_pb2.EnvStartReply) -> Outcome:
        """Return what the environment begins with.

        Raises:
            RemoteProtocolError: the observations do not fit the trial.
        """
        outcome = self._outcome(reply.observation_set, (), (), ends_trial=False)
        self._enter(Input.STARTED)
        return outcome

    def take(self, event: Event[None, Any]) -> CallOut | Outcome | None:
        """Return the call that an event brings, whose reply goes to `updated` if it is an Update; or what it leads to.

        None: nothing.
        """
        if event.actions is not None:
            last = event.type is not EventType.ACTIVE
            do = self._enter(Input.LAST_ACTIONS if last else Input.ACTIONS)
            if do is Do.REPEAT:
                return Outcome(self._last, [], [], ends_trial=False, ignored=[])
            return self._update(event.actions) if do is Do.UPDATE else None
        if event.message is not None:
            self._enter(Input.MESSAGE)
            received = event.message
            message = legacy_message(received.payload, received.sender_name, ENVIRONMENT, self._ids)
            if message is not None:
                request = environment_pb2.EnvOnMessageRequest(
                    trial_id=self._trial_id, actor_id=ENVIRONMENT, messages=[message]
                )
                return CallOut("OnMessage", request)
        return None

    def _update(self, actions: Iterable[RecvAction[Any]]) -> CallOut:
        contents = [_content(each.payload) for each in actions]
        request = environment_pb2.EnvUpdateRequest(trial_id=self._trial_id, reply_with_snapshot=True)
        request.action_set.actions.extend(self._ids.by_id(contents))
        self._tick_id += 1
        return CallOut("Update", request)

    def updated(self, reply: environment_pb2.EnvUpdateReply) -> Outcome:
        """Return what a reply to Update means.

        Raises:
            RemoteProtocolError: the observations do not fit the trial.
        """
        outcome = self._outcome(reply.observation_set, reply.feedbacks, reply.messages, ends_trial=reply.end_trial)
        if reply.end_trial:
            self._enter(Input.ENDS_TRIAL)
        return outcome

    def _outcome(
        self,
        observation_set: environment_pb2.ObservationSet,
        feedbacks: Iterable[Any],
        messages: Iterable[Any],
        *,
        ends_trial: bool,
    ) -> Outcome:
        self._last = list(enumerate(self._ids.by_place(self._snapshots.take(observation_set))))
        outcome = Outcome(self._last, [], [], ends_trial, [])
        self._understand(outcome, feedbacks, messages)
        if observation_set.tick_id != self._tick_id and not self._drifted:
            self._drifted = True  # once in a trial is enough
            outcome.ignored.append(f"tick {observation_set.tick_id}, where the trial is at {self._tick_id}")
        return outcome


def _content(payload: Any) -> bytes:
    if payload is None:  # the actor is not available
        return b""
    return payload if type(payload) is bytes else encode(payload, None, "action")
