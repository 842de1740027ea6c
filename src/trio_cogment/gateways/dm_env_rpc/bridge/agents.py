"""An agent of a dm_env_rpc world as an actor of a trial: steps as observations, actions as tensors. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.shared_message import Content, ObjectPayload
from trio_cogment.environments.checks import reward_of
from trio_cogment.environments.encoding import ActionDecoder, ObservationEncoder, encoded_spaces
from trio_cogment.environments.errors import InvalidActionError, InvalidEnvironmentError
from trio_cogment.gateways.dm_env_rpc.client.requests import Step
from trio_cogment.gateways.dm_env_rpc.client.specs import Specs, flat, nested
from trio_cogment.gateways.dm_env_rpc.client.states import State
from trio_cogment.spaces import Discrete, Observation, Space, SpaceError, Text
from trio_cogment.spaces.space_tensors import space_of_specs
from trio_cogment.spaces.tensor_specs import TensorSpec

#: Observations that are not part of what an actor sees, by the protocol's convention.
REWARD, DISCOUNT = "reward", "discount"
#: What a discount is where a server has none: 0 where the task has ended by its own rules.
_USUAL_DISCOUNT = {State.RUNNING: 1.0, State.INTERRUPTED: 1.0, State.TERMINATED: 0.0}


@dataclass(frozen=True, slots=True)
class View:
    """What an actor sees and does, as spaces.

    Attributes:
        specs: of the world.
        wanted: the names of the observations to request.
        observation_space: without reward and discount.
        action_space: of the actions.
        spaces: both, encoded.
        leaves: the spaces of single observations, by name.
    """

    specs: Specs
    wanted: tuple[str, ...]
    observation_space: Space
    action_space: Space
    spaces: bytes
    leaves: dict[str, Space]

    @classmethod
    def of(cls, server: str, actor: str, specs: Specs, chosen: Collection[str]) -> View:
        """Return what an actor sees and does.

        Args:
            server: for errors.
            actor: for errors.
            specs: of the world.
            chosen: the names of the observations that the actor gets; none means all.

        Raises:
            InvalidArgumentError: there is no observation of a name that was chosen.
            InvalidEnvironmentError: a specification has no counterpart among the spaces.
        """
        known = specs.observations.specs
        for name in chosen:
            if name not in known:
                expected = ", ".join(map(repr, known)) or "none"
                raise InvalidArgumentError(
                    f"environment {server!r}, actor {actor!r}: observations: expected some of {expected}; got {name!r}"
                )
        own = {name for name in (REWARD, DISCOUNT) if name in known and _is_number(known[name])}
        seen = [spec for name, spec in known.items() if name not in own and (not chosen or name in chosen)]
        try:
            field_name = "observations"
            observation_space = space_of_specs(seen)
            field_name = "actions"
            action_space = space_of_specs(specs.actions.specs.values())
            spaces = encoded_spaces(observation_space, action_space)
        except SpaceError as error:
            raise InvalidEnvironmentError(server, actor, f"{field_name}: {error}") from None
        leaves = {".".join(map(str, path)): leaf for path, leaf in observation_space.leaves()}
        wanted = (*(spec.name for spec in seen), *sorted(own))
        return cls(specs, wanted, observation_space, action_space, spaces, leaves)


def _is_number(spec: TensorSpec) -> bool:
    return spec.shape == () and spec.type.is_number


@dataclass(slots=True, kw_only=True)
class Agent:
    """One agent, and what it was told last.

    Attributes:
        server: for errors.
        name: of the actor.
        view: what it sees and does.
        out: its sequence has ended, or none has begun.
    """

    server: str
    name: str
    view: View
    out: bool = True
    _encoder: ObservationEncoder = field(init=False)
    _decoder: ActionDecoder = field(init=False)
    _last: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.look(self.view)

    def look(self, view: View) -> None:
        """See the world in another way."""
        self.view = view
        self._encoder = ObservationEncoder(view.observation_space)
        self._decoder = ActionDecoder(view.action_space)

    def actions(self, content: Content | None) -> dict[str, Any]:
        """Return the actions in the bytes of a message `Action`; none for an actor who is not there.

        Raises:
            InvalidActionError: there is no action, or it is not in the space.
        """
        if content is None:
            return {}
        try:
            if not content and not self.view.specs.actions.specs:
                return {}
            return flat(self._decoder.decode(content))
        except SpaceError as error:
            raise InvalidActionError(self.server, self.name, error) from None

    def begin(self, step: Step) -> Observation:
        """Return what the first step of a sequence tells."""
        return self._observation(step, None, {})

    def advance(self, step: Step, refusal: str) -> Observation:
        """Return what a step tells.

        Args:
            step: what came of it.
            refusal: why the server has refused the actions; empty if it has not.

        Raises:
            InvalidEnvironmentError: a reward or a discount is not a number that makes sense.
        """
        info: dict[str, Any] = {}
        found = self._number(step, DISCOUNT)
        if found is not None and found != _USUAL_DISCOUNT[step.state]:
            info[DISCOUNT] = found
        if refusal:
            info["refused"] = refusal
        return self._observation(step, self._number(step, REWARD) or 0.0, info)

    def after_the_end(self) -> Observation:
        """Return what an actor is told who is out: the same as last, without a reward."""
        return Observation(self._last, active=False, alive=False)

    def encode(self, observation: Observation) -> ObjectPayload:
        """Return an observation as a payload.

        Raises:
            InvalidEnvironmentError: a part of it cannot be encoded.
        """
        try:
            return self._encoder.encode(observation)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.server, self.name, error) from None

    def _observation(self, step: Step, reward: float | None, info: dict[str, Any]) -> Observation:
        going_on = step.state is State.RUNNING
        self.out = not going_on
        self._last = nested({name: self._value(step, name) for name in self.view.leaves})
        return Observation(
            self._last,
            reward,
            terminated=step.state is State.TERMINATED,
            truncated=step.state is State.INTERRUPTED,
            info=info,
            active=going_on,
            alive=going_on,
        )

    def _value(self, step: Step, name: str) -> Any:
        array = step.observations.get(name)
        if array is None:
            raise InvalidEnvironmentError(self.server, self.name, f"observation {name!r}: expected a value, got none")
        leaf = self.view.leaves[name]
        if isinstance(leaf, Text):
            return str(array[()])
        return array[()] if isinstance(leaf, Discrete) else array

    def _number(self, step: Step, name: str) -> float | None:
        if name not in self.view.wanted or name in self.view.leaves or name not in step.observations:
            return None
        try:
            return reward_of(step.observations[name])
        except SpaceError as error:
            raise InvalidEnvironmentError(self.server, self.name, error.of(name)) from None


def truncated(observation: Observation) -> Observation:
    """Return an observation of one whose sequence goes on as that of one whose sequence is cut."""
    if not observation.alive:
        return observation
    return replace(observation, truncated=True, active=False, alive=False)
