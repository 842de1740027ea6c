"""The session of an environment, and running it over a call."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

import trio
from google.protobuf.message import DecodeError
from typing_extensions import TypeVar, override

from trio_cogment.api.common_pb2 import CheckpointInterval, TakenUp
from trio_cogment.api.environment_pb2 import (
    ActionSet,
    EnvInitialInput,
    EnvInitialOutput,
    EnvRunTrialInput,
    EnvRunTrialOutput,
)
from trio_cogment.base.errors import CogmentError, InvalidArgumentError, RemoteProtocolError
from trio_cogment.base.metrics import SessionMetrics
from trio_cogment.base.shared_message import (
    Content,
    ObjectPayload,
    SharedActionSet,
    SharedMessage,
    SharedObservationSet,
    SharedReward,
)
from trio_cogment.base.taking_up import saved_checkpoint
from trio_cogment.rpc import Call
from trio_cogment.sdk._events import ActionT, ActorStatus, Event, EventType, RecvAction
from trio_cogment.sdk._inline import InlineEvents
from trio_cogment.sdk._outgoing import Reward
from trio_cogment.sdk._outgoing import rewards as reward_outputs
from trio_cogment.sdk._session import Session, WallClock
from trio_cogment.sdk._spec_checks import declared_class, warn_of_unknown_fields
from trio_cogment.sdk._stream import LAST, NORMAL
from trio_cogment.sdk.spec import ActorClass, Payload, Spec

#: What an environment writes for the tick of its next observation set.
NEXT_TICK = -1
#: The types of `Content`: a union would be made again for each `isinstance`.
_CONTENT = (bytes, ObjectPayload)

#: So many different rewards are remembered of those that are for the record alone.
_MAX_TOLD = 256

#: The receiver of an observation: `"*"`, an actor's name, `"class.*"`, or an index in the order of the parameters.
Target: TypeAlias = str | int
#: The type of observations, and of the configuration; a session without type arguments takes and has anything.
SentObservationT = TypeVar("SentObservationT", bound=Payload, default=Payload)
ConfigT = TypeVar("ConfigT", default=Any, covariant=True)
GivenConfigT = TypeVar("GivenConfigT")
Observations: TypeAlias = Sequence[tuple[Target, SentObservationT]]


@dataclass(frozen=True, slots=True)
class ActorInfo:
    """An actor of the trial, as its environment sees it."""

    index: int
    name: str
    actor_class: str


class EnvironmentSession(Session[None, ActionT], Generic[SentObservationT, ActionT, ConfigT]):
    """An environment's part in one trial; its type arguments are those of observations, actions and the configuration.

    Attributes:
        implementation: the implementation that was requested; may be empty.
        config: the environment's configuration, of the type that the spec declares, or bytes; None if it has none.
        actors: the actors of the trial, in the order of its parameters.
        first_tick: of the trial: that of the first observations.
        tick_hz: ticks a second, if the trial has ticks at a rate; 0: it has not.
    """

    _output_type = EnvRunTrialOutput
    _kind = "environment"

    def __init__(self, call: Call, trial_id: str, init: EnvInitialInput, *, spec: Spec, wall_clock: WallClock) -> None:
        super().__init__(call, trial_id, wall_clock)
        call.accept_shared()
        self._name = init.name
        self.implementation = init.impl_name
        self._config_type = spec.environment_config
        config = init.config.content if init.HasField("config") else None
        self.config: ConfigT = self._decoded_config(config)
        self.actors = [
            ActorInfo(index, actor.name, actor.actor_class) for index, actor in enumerate(init.actors_in_trial)
        ]
        classes = [declared_class(spec, actor.actor_class, self._who, of=actor.name) for actor in self.actors]
        self._classes = classes
        self._action_types: list[type[Any] | None] = [kind.action for kind in classes]
        # Made when a target other than "*" is used: most environments use none.
        self._targets: dict[Target, Sequence[int]] | None = None
        self._everyone = list(range(len(self.actors)))
        self._last_sent = False
        self.first_tick: int = init.tick_id
        self.tick_hz: float = init.tick_hz
        self._taken_up = init.taken_up if init.HasField("taken_up") else None
        self._takes_up = False
        asked = init.checkpoints if init.HasField("checkpoints") else CheckpointInterval()
        #: So many ticks, and so many seconds, after a checkpoint another one is due.
        self._interval = asked.ticks or math.inf, asked.seconds or math.inf
        self._asks = asked.ticks > 0 or asked.seconds > 0
        self._due_tick, self._saved_at = self.first_tick + self._interval[0], math.nan
        # An implementation may run in another thread, where Trio tells no time.
        self._clock = trio.lowlevel.current_clock()
        self._checkpoint: bytes | None = None
        self._told_rewards: dict[Reward, Sequence[SharedReward]] = {}

    @property
    @override
    def name(self) -> str:
        return self._name

    @property
    def required_config(self: EnvironmentSession[Any, Any, GivenConfigT | None]) -> GivenConfigT:
        """`config`, for an implementation that cannot do without it.

        Raises:
            FailedPreconditionError: the trial's parameters give this participant none.
        """
        config: GivenConfigT = self._given_config()
        return config

    @property
    def _config_hint(self) -> str:
        return "trial_params(..., environment_config=...)"

    async def start(
        self,
        observations: Observations[SentObservationT] | None = None,
        rewards: Iterable[Reward] = (),
        *,
        auto_done_sending: bool = True,
    ) -> None:
        """Tell the orchestrator that the environment is ready, and send the first observations if they are given.

        Args:
            observations: as for `produce_observations`.
            rewards: sent together with the observations.
            auto_done_sending: whether requesting the next event after the final observations says that the environment
                has sent its last reward and message; otherwise `sending_done` says so.
        """
        self._auto_done_sending = auto_done_sending
        await self._ensure_started()
        if observations is not None:
            await self.produce_observations(observations, rewards)

    async def _ensure_started(self) -> None:
        if not self._started:
            await self._post(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput(takes_up=self._takes_up)))
            self._started = True

    # Trials that go on with a stored one

    def take_up(self) -> TakenUp | None:
        """Say that this environment can go on with a stored trial, and return that one if it is to.

        Expected before `start`. An environment that does not call it cannot: a trial that would go on with it ends.

        Returns:
            None: the trial begins as usual. Otherwise its first observations are those of the tick `tick_id`. The
            environment comes there from its state in `checkpoint.content`, as `checkpoint` was given it, which is that
            of the first tick in `past`; or by playing again from the beginning, if `HasField("checkpoint")` is false.
            `past` has the observations and actions of all ticks up to `tick_id` as bytes, by actor in the order of
            `actors`.
        """
        self._takes_up = True
        return self._taken_up

    @property
    def wants_checkpoint(self) -> bool:
        """Whether it is time for `checkpoint`, as the settings of the orchestrator say."""
        if not self._asks:
            return False
        if self.tick_id + 1 >= self._due_tick:
            return True
        seconds = self._interval[1]
        if seconds == math.inf:
            return False
        now = self._clock.current_time()
        if self._saved_at != self._saved_at:  # the first time
            self._saved_at = now
        return now - self._saved_at >= seconds

    def checkpoint(self, content: bytes) -> None:
        """Store the environment's state with the observations that are sent next: a trial can go on from there.

        Args:
            content: all that it needs to go on from these observations; it may be loaded on another machine.
        """
        tick_id = self.first_tick if self.tick_id < 0 else self.tick_id + 1
        self._checkpoint = saved_checkpoint(tick_id, content)
        self._due_tick, self._saved_at = tick_id + self._interval[0], self._clock.current_time()

    async def produce_observations(
        self, observations: Observations[SentObservationT], rewards: Iterable[Reward] = ()
    ) -> None:
        """Send the observations of the next tick. Every actor must get one; of several for one actor the last counts.

        When the trial is ending, they are the final ones; after those, nothing is sent.

        Args:
            observations: pairs of a target and its observation.
            rewards: for what the actors did last, which get them before the observation. They leave together with
                the observations: that takes less time than `add_reward`, and after `Cancelled` all of it has been sent,
                or nothing.

        Raises:
            InvalidArgumentError: an actor gets none, a target does not exist, or a payload has the wrong type; or
                something is wrong with a reward, as in `add_reward`.
            LocalProtocolError: the session has not been started, or the trial is over.
        """
        self._check_usable("produce_observations")
        outputs = self._outputs(observations, rewards)
        if self._final_data:
            return
        final = self._last_sent or self._type is EventType.ENDING
        await self._post(*outputs)
        self._final_data = final

    def produce_observations_nowait(
        self, observations: Observations[SentObservationT], rewards: Iterable[Reward] = (), *, told: bool = False
    ) -> None:
        """As `produce_observations`, while `handle` runs; see there for the errors that it adds.

        Args:
            observations: as for `produce_observations`.
            rewards: as for `produce_observations`.
            told: the observations tell their receivers of the rewards, which are for the trial's record alone: where
                the orchestrator is in this process, nobody is sent them. Elsewhere they are sent as always.

        Final observations that are sent outside of the function of `handle` say also that the environment is done,
        unless the session was started with `auto_done_sending=False`.
        """
        inline = self._check_inline("produce_observations_nowait")
        outputs = self._outputs(observations, rewards, told)
        if not self._final_data:
            final = self._last_sent or self._type is EventType.ENDING
            self._post_final_nowait(inline, outputs) if final else inline.post(*outputs)

    async def end(self, final_observations: Observations[SentObservationT], rewards: Iterable[Reward] = ()) -> None:
        """End the trial with these final observations, and with rewards; see `produce_observations`.

        After `Cancelled` the orchestrator may know that the trial is ending, but lack the observations: call it again.

        Raises:
            InvalidArgumentError, LocalProtocolError: as `produce_observations`.
        """
        self._check_usable("end")
        outputs = self._outputs(final_observations, rewards)
        if self._final_data:
            return
        if not self._last_sent and self._type is not EventType.ENDING:
            await self._post(EnvRunTrialOutput(state=LAST))
            self._last_sent = True
        await self._post(*outputs)
        self._type = EventType.ENDING
        self._final_data = True

    def end_nowait(
        self, final_observations: Observations[SentObservationT], rewards: Iterable[Reward] = (), *, told: bool = False
    ) -> None:
        """As `end`, while `handle` runs; see `handle` for the errors that it adds, and `produce_observations_nowait`.

        After `ResourceExhaustedError` the orchestrator may know that the trial is ending, but lack the observations.
        """
        inline = self._check_inline("end_nowait")
        outputs = self._outputs(final_observations, rewards, told)
        if self._final_data:
            return
        if not self._last_sent and self._type is not EventType.ENDING:
            inline.post(EnvRunTrialOutput(state=LAST))
            self._last_sent = True
        self._post_final_nowait(inline, outputs)

    def _post_final_nowait(self, inline: InlineEvents, outputs: Sequence[SharedMessage]) -> None:
        before, self._type = self._type, EventType.ENDING
        self._final_data = True  # before it is sent: in process this may bring answers
        try:
            inline.post(*outputs)
        except CogmentError:
            self._type, self._final_data = before, False
            raise
        if self._auto_done_sending and not inline.busy:
            self._acknowledge_nowait()

    def _outputs(
        self, observations: Observations[SentObservationT], rewards: Iterable[Reward], told: bool = False
    ) -> Sequence[SharedMessage]:
        """Return the messages of an observation set: the rewards first, since actors get what came before it."""
        output = self._observation_set(observations)
        if not rewards:
            return (output,)
        if told and self._call.passes_objects:
            given: list[SharedReward] = []
            output.told = given
            for reward in rewards:
                given += self._told(reward)
            return (output,)
        outputs: list[SharedMessage] = []
        for reward in rewards:
            outputs += reward_outputs(EnvRunTrialOutput, reward, self._where_rewards)
        outputs.append(output)
        return outputs

    def _told(self, reward: Reward) -> Sequence[SharedReward]:
        """Return the messages of a reward that is for the record alone: most have been given before."""
        to, value, _, _, user_data = reward
        usual = type(to) is str and type(value) is float and user_data is None
        if not usual or (value == 0 and math.copysign(1, value) < 0):  # it equals 0, and is not the same
            return reward_outputs(EnvRunTrialOutput, reward, self._where_rewards)
        known = self._told_rewards.get(reward)
        if known is None:
            known = reward_outputs(EnvRunTrialOutput, reward, self._where_rewards)
            if len(self._told_rewards) < _MAX_TOLD:
                self._told_rewards[reward] = known
        return known

    def _where_rewards(self) -> str:
        return f"{self._who}: rewards"

    def _observation_set(self, observations: Observations[SentObservationT]) -> SharedObservationSet:
        contents: list[Content] = []
        count = len(self._everyone)
        places = [-1] * count
        for position, (target, payload) in enumerate(observations):
            if type(target) is int and 0 <= target < count and isinstance(payload, _CONTENT):
                # The usual case of an adapter, without other calls.
                contents.append(payload)
                places[target] = position
                continue
            indexes = self._everyone if target == "*" else self._indexes(target)
            contents.append(self._content(payload, indexes))
            for index in indexes:
                places[index] = position
        if not contents or -1 in places:
            missing = [actor.name for actor in self.actors if places[actor.index] < 0]
            raise InvalidArgumentError(
                f"{self._who}: observations: expected one for every actor, none for {', '.join(map(repr, missing))}; "
                'name each actor, its class ("class.*") or all ("*")'
            )
        found = SharedObservationSet(NEXT_TICK, self._wall_clock(), contents, places)
        if self._checkpoint is not None:
            found.checkpoint, self._checkpoint = self._checkpoint, None
        return found

    def _indexes(self, target: Target) -> Sequence[int]:
        if type(target) is int and 0 <= target < len(self._everyone):
            return (target,)
        if self._targets is None:
            self._targets = _targets(self.actors)
        indexes = self._targets.get(target)
        if indexes is None:
            actors = ", ".join(repr(actor.name) for actor in self.actors)
            raise InvalidArgumentError(
                f"{self._who}: observations: {target!r} is not an actor of this trial; its actors are {actors}"
            )
        return indexes

    def _content(self, payload: SentObservationT | ObjectPayload, indexes: Iterable[int]) -> Content:
        if isinstance(payload, _CONTENT):
            return payload
        content: Content | None = None
        checked: ActorClass | None = None
        for index in indexes:
            kind = self._classes[index]
            if kind is not checked:
                content = self._encode(payload, kind.observation, "observation", kind.name, self.actors[index].name)
                checked = kind
        assert content is not None
        return content

    def _take_bytes(self) -> None:
        self._action_types = [None] * len(self._everyone)

    def _take(self, message: Any) -> Event[None, ActionT] | None:
        # In process, a set of actions comes as it is.
        if type(message) is SharedActionSet:
            return self._act(message)
        return super()._take(message.whole() if type(message) is SharedMessage else message)

    def _take_content(self, message: Any) -> Any:
        if (
            type(message) is SharedActionSet
            and not message.unavailable_actors
            and len(message.actions) == len(self._everyone)
        ):
            # As `_act`, without an event: once per tick.
            self.tick_id = message.tick_id
            return message.actions
        event = self._take(message)
        return None if event is None or event.actions is None else [action.payload for action in event.actions]

    def _act(self, action_set: ActionSet | SharedActionSet) -> Event[None, ActionT]:
        actions = self._actions(action_set)
        if self.tick_id < 0:
            for actor, action in zip(self.actors, actions, strict=True):
                warn_of_unknown_fields(action.payload, self._who, f"action of {actor.name!r}")
        tick_id = self.tick_id = action_set.tick_id
        return Event(self._type, tick_id, actions=actions)

    def _data(self, message: EnvRunTrialInput) -> Event[None, ActionT] | None:
        if message.HasField("action_set"):
            return self._act(message.action_set)
        if message.HasField("message"):
            return self._received_message(message.message)
        return None

    def _actions(self, action_set: ActionSet | SharedActionSet) -> list[RecvAction[ActionT]]:
        unavailable = action_set.unavailable_actors  # nearly always empty
        contents = action_set.actions[:]  # a list: half as expensive as to iterate over the field
        if len(contents) != len(self._everyone):
            raise RemoteProtocolError(
                f"{self._who}: action set: {len(contents)} actions for {len(self._everyone)} actors"
            )
        tick_id, timestamp = action_set.tick_id, action_set.timestamp
        actions: list[RecvAction[Any]] = []
        for index, (content, kind) in enumerate(zip(contents, self._action_types, strict=True)):
            if unavailable and index in unavailable:
                actions.append(RecvAction(index, ActorStatus.UNAVAILABLE, None, tick_id))
                continue
            payload: Any = content if self._takes_objects else bytes(content)
            if kind is not None:
                try:
                    payload = kind.FromString(payload)
                except DecodeError:
                    payload = self._decode(payload, kind, f"action of {self.actors[index].name!r}")
            actions.append(RecvAction(index, ActorStatus.ACTIVE, payload, tick_id, timestamp))
        return actions


EnvironmentImplementation: TypeAlias = Callable[[EnvironmentSession[Any, Any, Any]], Awaitable[None]]


def _targets(actors: Sequence[ActorInfo]) -> dict[Target, Sequence[int]]:
    targets: dict[Target, Sequence[int]] = {}
    by_class: dict[str, list[int]] = {}
    for actor in actors:
        by_class.setdefault(actor.actor_class, []).append(actor.index)
        targets[f"{actor.actor_class}.{actor.name}"] = (actor.index,)
    targets.update({f"{name}.*": indexes for name, indexes in by_class.items()})
    # Exact names take precedence, even if they contain dots.
    for actor in actors:
        targets[actor.name] = targets[actor.index] = (actor.index,)
    return targets


async def run_environment(
    call: Call,
    trial_id: str,
    init: EnvInitialInput,
    implementation: EnvironmentImplementation,
    *,
    spec: Spec,
    wall_clock: WallClock,
    metrics: SessionMetrics | None = None,
) -> None:
    """Run an implementation over a call whose initial message has been received."""
    session = EnvironmentSession(call, trial_id, init, spec=spec, wall_clock=wall_clock)
    await session.run(implementation, metrics)
