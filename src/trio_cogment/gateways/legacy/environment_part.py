"""The part of an old environment in one trial, without I/O: which calls it gets, and what its answers mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.legacy import environment_pb2 as pb
from trio_cogment.gateways.legacy.actor_ids import ENVIRONMENT, ActorIds
from trio_cogment.gateways.legacy.agent_part import CallOut
from trio_cogment.gateways.legacy.deltas import ApplyDelta
from trio_cogment.gateways.legacy.environment_states import Do, Input, State, after
from trio_cogment.gateways.legacy.messages import legacy_message, message_of
from trio_cogment.gateways.legacy.rewards import reward_of
from trio_cogment.gateways.legacy.snapshots import Snapshots
from trio_cogment.sdk import Event, EventType, RecvAction, Reward
from trio_cogment.sdk.spec import encode


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


class EnvironmentPart:
    """An old environment in a trial.

    Args:
        trial_id: of the trial.
        ids: of the trial.
        deltas: how deltas are applied, by class.

    Attributes:
        state: where it is.
    """

    def __init__(self, trial_id: str, ids: ActorIds, deltas: Mapping[str, ApplyDelta]) -> None:
        self.state = State.STARTING
        self._trial_id = trial_id
        self._ids = ids
        self._snapshots = Snapshots(ids, deltas)
        self._last: list[tuple[int, bytes]] = []
        self._tick_id = 0
        self._drifted = False

    def start(self, config: bytes | None, trial_config: bytes | None) -> CallOut:
        """Return the first call; `started` or `refused` is to follow.

        Args:
            config: of the environment; None if it has none.
            trial_config: of the trial; None if it has none.
        """
        request = pb.EnvStartRequest(trial_id=self._trial_id, actor_counts=self._ids.counts)
        # An old environment without a type for it refuses even an empty one.
        if config is not None:
            request.config.content = config
        if trial_config is not None:
            request.trial_config.content = trial_config
        return CallOut("Start", request)

    def started(self, reply: pb.EnvStartReply) -> Outcome:
        """Return what the environment begins with.

        Raises:
            RemoteProtocolError: the observations do not fit the trial.
        """
        outcome = self._outcome(reply.observation_set, (), (), ends_trial=False)
        self._enter(Input.STARTED)
        return outcome

    def refused(self) -> None:
        """Note that the environment does not take part, and knows nothing of the trial."""
        self._enter(Input.REFUSED)

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
                request = pb.EnvOnMessageRequest(trial_id=self._trial_id, actor_id=ENVIRONMENT, messages=[message])
                return CallOut("OnMessage", request)
        return None

    def _enter(self, given: Input) -> Do:
        self.state, do = after(self.state, given)
        return do

    def _update(self, actions: Iterable[RecvAction[Any]]) -> CallOut:
        contents = [_content(each.payload) for each in actions]
        request = pb.EnvUpdateRequest(trial_id=self._trial_id, reply_with_snapshot=True)
        request.action_set.actions.extend(self._ids.by_id(contents))
        self._tick_id += 1
        return CallOut("Update", request)

    def updated(self, reply: pb.EnvUpdateReply) -> Outcome:
        """Return what a reply to Update means.

        Raises:
            RemoteProtocolError: the observations do not fit the trial.
        """
        outcome = self._outcome(reply.observation_set, reply.feedbacks, reply.messages, ends_trial=reply.end_trial)
        if reply.end_trial:
            self._enter(Input.ENDS_TRIAL)
        return outcome

    def _outcome(
        self, observation_set: pb.ObservationSet, feedbacks: Iterable[Any], messages: Iterable[Any], *, ends_trial: bool
    ) -> Outcome:
        self._last = list(enumerate(self._ids.by_place(self._snapshots.take(observation_set))))
        outcome = Outcome(self._last, [], [], ends_trial, [])
        for feedback in feedbacks:
            reward = reward_of(feedback, self._ids)
            outcome.ignored.append(reward) if isinstance(reward, str) else outcome.rewards.append(reward)
        for each in messages:
            message = message_of(each, self._ids)
            outcome.ignored.append(message) if isinstance(message, str) else outcome.messages.append(message)
        if observation_set.tick_id != self._tick_id and not self._drifted:
            self._drifted = True  # once in a trial is enough
            outcome.ignored.append(f"tick {observation_set.tick_id}, where the trial is at {self._tick_id}")
        return outcome

    def stop(self) -> CallOut | None:
        """Return the last call, None if there is nothing to tell."""
        if self._enter(Input.STOP) is not Do.END:
            return None
        return CallOut("End", pb.EnvEndRequest(trial_id=self._trial_id))


def _content(payload: Any) -> bytes:
    if payload is None:  # the actor is not available
        return b""
    return payload if type(payload) is bytes else encode(payload, None, "action")
