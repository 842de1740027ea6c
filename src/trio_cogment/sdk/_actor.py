"""The session of an actor, service actor or client actor, and running it over a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar, override

from trio_cogment.api.common_pb2 import (
    ActorInitialInput,
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    Observation,
    Reward,
    RewardSource,
)
from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.base.metrics import SessionMetrics
from trio_cogment.base.shared_message import SharedAction, SharedMessage, SharedObservation, SharedReward
from trio_cogment.rpc import Call
from trio_cogment.sdk._events import Event, EventType, ObservationT, RecvObservation, RecvReward
from trio_cogment.sdk._session import Session, WallClock
from trio_cogment.sdk._spec_checks import declared_class, warn_of_unknown_fields
from trio_cogment.sdk._stream import NORMAL
from trio_cogment.sdk.spec import Payload, Spec

#: The type of actions, and of the configuration; a session without type arguments takes and has anything.
SentActionT = TypeVar("SentActionT", bound=Payload, default=Payload)
ConfigT = TypeVar("ConfigT", default=Any, covariant=True)
GivenConfigT = TypeVar("GivenConfigT")


class ActorSession(Session[ObservationT, None], Generic[ObservationT, SentActionT, ConfigT]):
    """An actor's part in one trial; its type arguments are those of observations, actions and the configuration.

    Attributes:
        actor_class: the class of the actor.
        implementation: the implementation that was requested; may be empty.
        environment_name: the environment's name, for messages to it.
        config: the actor's configuration, of the type that the spec declares, or bytes; None if it has none.
        tick_hz: ticks a second, if the trial has ticks at a rate; 0: it has not.
        observe_every: it is observed every n-th tick; 1: every tick.
    """

    _output_type = ActorRunTrialOutput
    _kind = "actor"

    def __init__(
        self, call: Call, trial_id: str, init: ActorInitialInput, *, spec: Spec, wall_clock: WallClock, joined: bool
    ) -> None:
        super().__init__(call, trial_id, wall_clock)
        call.accept_shared()
        self._name = init.actor_name
        self.actor_class = init.actor_class
        self.implementation = init.impl_name
        self.environment_name = init.env_name
        kind = declared_class(spec, init.actor_class, self._who)
        self._observation_type = kind.observation
        self._action_type = kind.action
        self._config_type = kind.config
        config = init.config.content if init.HasField("config") else None
        self.config: ConfigT = self._decoded_config(config)
        self.tick_hz: float = init.tick_hz
        self.observe_every: int = init.observe_every or 1
        self._observed = False
        # A client actor has sent its initial message already.
        self._started = joined

    @property
    @override
    def name(self) -> str:
        return self._name

    @property
    def required_config(self: ActorSession[Any, Any, GivenConfigT | None]) -> GivenConfigT:
        """`config`, for an implementation that cannot do without it.

        Raises:
            FailedPreconditionError: the trial's parameters give this participant none.
        """
        config: GivenConfigT = self._given_config()
        return config

    @property
    def _config_hint(self) -> str:
        return f"actor_params({self.name!r}, {self.actor_class!r}, config=...)"

    async def start(self, *, auto_done_sending: bool = True) -> None:
        """Tell the orchestrator that this actor is ready; requesting the first event does so too.

        Args:
            auto_done_sending: whether requesting the next event after the final observation says that this actor has
                sent its last reward and message; otherwise `sending_done` says so.
        """
        self._auto_done_sending = auto_done_sending
        await self._ensure_started()

    async def _ensure_started(self) -> None:
        if not self._started:
            await self._post(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
            self._started = True

    async def do_action(self, action: SentActionT, *, tick_id: int | None = None) -> None:
        """Send the action for the newest observation. An action for the final observation is dropped.

        Args:
            action: of the type that the spec declares.
            tick_id: of an earlier observation that it answers: at a rate such an action is late, and is dropped and
                counted, rather than taken for the newest observation.

        Raises:
            InvalidArgumentError: the action is not of the type that the spec declares.
            LocalProtocolError: the session has not been started, no observation has come yet, or the trial is over.
        """
        self._check_usable("do_action")
        output = self._action(action, "do_action", tick_id)
        if output is not None:
            await self._post(output)

    def do_action_nowait(self, action: SentActionT, *, tick_id: int | None = None) -> None:
        """As `do_action`, while `handle` runs; see there for the errors that it adds."""
        inline = self._check_inline("do_action_nowait")
        output = self._action(action, "do_action_nowait", tick_id)
        if output is not None:
            inline.post(output)

    def _action(self, action: SentActionT, doing: str, tick_id: int | None = None) -> SharedAction | None:
        """Return the message with an action; None for one that nobody waits for any more."""
        if not self._observed:
            raise LocalProtocolError(
                f"{self._who}: {doing}: expected it after an observation, and none has come yet; act on events of "
                "all_events() that have an observation"
            )
        content = self._encode(action, self._action_type, "action", self.actor_class)
        if self._acknowledged or self._final_data:
            return None
        return SharedAction(self.tick_id if tick_id is None else tick_id, self._wall_clock(), content)

    def _take_bytes(self) -> None:
        self._observation_type = None

    def _take(self, message: Any) -> Event[ObservationT, None] | None:
        # In process, what others get as well comes as it is.
        if type(message) is SharedObservation:
            return self._observe(message)
        if type(message) is SharedReward:
            return self._be_rewarded(message)
        return super()._take(message.whole() if type(message) is SharedMessage else message)

    def _observe(self, observation: Observation | SharedObservation) -> Event[ObservationT, None]:
        tick_id = self.tick_id = observation.tick_id
        if self._type is EventType.ENDING:
            self._final_data = True
        content, declared = observation.content, self._observation_type
        payload: Any = content if self._takes_objects else bytes(content)
        if declared is not None:
            payload = self._decode(payload, declared, "observation")
        if not self._observed:
            self._observed = True
            warn_of_unknown_fields(payload, self._who, "observation")
        return Event(self._type, tick_id, RecvObservation(tick_id, observation.timestamp, payload))

    def _take_content(self, message: Any) -> Any:
        if type(message) is SharedObservation:  # as `_observe`, without an event: once per tick
            self.tick_id = message.tick_id
            self._observed = True
            if self._type is EventType.ENDING:
                self._final_data = True
            return message.content
        event = self._take(message)
        return None if event is None or event.observation is None else event.observation.payload

    def _be_rewarded(self, reward: Reward | SharedReward) -> Event[ObservationT, None] | None:
        if self._metrics is not None:
            self._metrics.reward_received(reward.value)
        if not self._with_rewards:
            return None
        sources = list(reward.sources)
        if isinstance(reward, SharedReward):  # they are others' as well
            sources = [_copied(source) for source in sources]
        received = RecvReward(reward.tick_id, reward.value, sources, reward.receiver_name)
        return Event(self._type, reward.tick_id, reward=received)

    def _data(self, message: ActorRunTrialInput) -> Event[ObservationT, None] | None:
        if message.HasField("observation"):
            return self._observe(message.observation)
        kind = message.WhichOneof("data")
        if kind == "reward":
            return self._be_rewarded(message.reward)
        if kind == "message":
            return self._received_message(message.message)
        return None


def _copied(source: RewardSource) -> RewardSource:
    copied = RewardSource()
    copied.CopyFrom(source)
    return copied


ActorImplementation: TypeAlias = Callable[[ActorSession[Any, Any, Any]], Awaitable[None]]


async def run_actor(
    call: Call,
    trial_id: str,
    init: ActorInitialInput,
    implementation: ActorImplementation,
    *,
    spec: Spec,
    wall_clock: WallClock,
    joined: bool = False,
    metrics: SessionMetrics | None = None,
) -> ActorSession:
    """Run an implementation over a call whose initial message has been received; return its session."""
    session = ActorSession(call, trial_id, init, spec=spec, wall_clock=wall_clock, joined=joined)
    await session.run(implementation, metrics)
    return session
