"""The session of an actor, service actor or client actor, and running it over a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trio_cogment.api.common_pb2 import (
    ActorInitialInput,
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)
from trio_cogment.log_context import trial_bound
from trio_cogment.rpc import Call
from trio_cogment.sdk._events import Event, EventType, RecvObservation, RecvReward
from trio_cogment.sdk._session import NORMAL, Session, WallClock
from trio_cogment.spec import Payload, Spec, decode, encode


class ActorSession(Session):
    """An actor's part in one trial.

    Attributes:
        actor_class: the class of the actor.
        implementation: the implementation that was requested; may be empty.
        environment_name: the environment's name, for messages to it.
        config: the actor's configuration, of the type that the spec declares, or bytes; None if it has none.
    """

    _output_type = ActorRunTrialOutput

    def __init__(
        self, call: Call, trial_id: str, init: ActorInitialInput, *, spec: Spec, wall_clock: WallClock, joined: bool
    ) -> None:
        super().__init__(call, trial_id, wall_clock)
        self._name = init.actor_name
        self.actor_class = init.actor_class
        self.implementation = init.impl_name
        self.environment_name = init.env_name
        kind = spec.actor_class(init.actor_class)
        self._observation_type = kind.observation
        self._action_type = kind.action
        self.config = decode(init.config.content, kind.config, "config") if init.HasField("config") else None
        # A client actor has sent its initial message already.
        self._started = joined

    @property
    def name(self) -> str:
        """See `Session.name`."""
        return self._name

    async def start(self) -> None:
        """Tell the orchestrator that this actor is ready; requesting the first event does so too."""
        await self._ensure_started()

    async def _ensure_started(self) -> None:
        if not self._started:
            await self._post(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
            self._started = True

    async def do_action(self, action: Payload) -> None:
        """Send the action for the newest observation. An action for the final observation is dropped.

        Raises:
            InvalidArgumentError: the action is not of the type that the spec declares.
            LocalProtocolError: the session has not been started.
        """
        self._check_started()
        kind = self._action_type
        content = action.SerializeToString() if type(action) is kind else encode(action, kind, "action")
        if self._over or self._acknowledged or self._final_data:
            return
        output = ActorRunTrialOutput(state=NORMAL)
        answer = output.action
        answer.tick_id = self.tick_id
        answer.timestamp = self._wall_clock()
        answer.content = content
        await self._post(output)

    def _data(self, message: ActorRunTrialInput) -> Event | None:
        kind = message.WhichOneof("data")
        if kind == "observation":
            observation = message.observation
            tick_id = self.tick_id = observation.tick_id
            if self._type is EventType.ENDING:
                self._final_data = True
            payload = decode(observation.content, self._observation_type, "observation")
            return Event(self._type, tick_id, RecvObservation(tick_id, observation.timestamp, payload))
        if kind == "reward":
            reward = message.reward
            received = RecvReward(reward.tick_id, reward.value, list(reward.sources))
            return Event(self._type, reward.tick_id, reward=received)
        if kind == "message":
            return self._received_message(message.message)
        return None


ActorImplementation: TypeAlias = Callable[[ActorSession], Awaitable[None]]


async def run_actor(
    call: Call,
    trial_id: str,
    init: ActorInitialInput,
    implementation: ActorImplementation,
    *,
    spec: Spec,
    wall_clock: WallClock,
    joined: bool = False,
) -> None:
    """Run an implementation over a call whose initial message has been received."""
    session = ActorSession(call, trial_id, init, spec=spec, wall_clock=wall_clock, joined=joined)
    with trial_bound(trial_id):
        await implementation(session)
    await session.finish()
