"""A world of a dm_env_rpc server as an environment of dm_env, for scripts and notebooks."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, MissingExtraError, RemoteProtocolError
from trio_cogment.gateways.dm_env_rpc.bridge.agents import DISCOUNT, REWARD
from trio_cogment.gateways.dm_env_rpc.client.connection import Connection, open_connection
from trio_cogment.gateways.dm_env_rpc.client.requests import Step
from trio_cogment.gateways.dm_env_rpc.client.specs import Specs, flat, nested
from trio_cogment.gateways.dm_env_rpc.client.states import State
from trio_cogment.rpc import MetadataLike
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.sync import TrioThread

try:
    import dm_env
    from dm_env import specs as dm_specs
except ModuleNotFoundError as missing:
    if missing.name != "dm_env":
        raise
    raise MissingExtraError.of("dm-env", "dm-env") from missing


class DmEnvRpcEnvironment(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """A world of a dm_env_rpc server as an environment of dm_env.

    ```python
    with DmEnvRpcEnvironment("grpc://localhost:9000") as environment:
        step = environment.reset()
    ```

    Its functions wait in the calling thread, while a thread of its own has the connection. A step after the last one of
    a sequence begins the next sequence, and ignores the action, as in dm_env.

    The reward is the observation `reward`, or 0 in a world without one, and None in the first step. The discount is the
    observation `discount`; in a world without one it is 0 where the sequence has TERMINATED, 1 elsewhere, and None in
    the first step.

    Attributes:
        world: the name of the world.
        specs: what the agent can do and see, in dm_env_rpc's terms.
    """

    def __init__(
        self,
        server: str,
        *,
        world_name: str | None = None,
        create_settings: Mapping[str, Any] = {},
        join_settings: Mapping[str, Any] = {},
        observations: Sequence[str] | None = None,
        nested_names: bool = True,
        tls: ssl.SSLContext | None = None,
        metadata: MetadataLike = (),
    ) -> None:
        """Connect, and join a world.

        Args:
            server: `grpc://host:port` or `host:port`.
            world_name: the world to join; None: one is created, and destroyed when the environment is closed.
            create_settings: of the world.
            join_settings: of this agent.
            observations: the names of those that the environment has; None: all but reward and discount.
            nested_names: actions and observations are dicts within dicts where names have dots.
            tls: encrypt; see `trio_cogment.rpc.client_tls`.
            metadata: sent with the connection.

        Raises:
            EndpointError: `server` is not an endpoint of a server.
            UnavailableError: it cannot be reached.
            DmEnvRpcError: it refuses.
            SpaceError: there is no observation of a name.
        """
        self._thread = TrioThread[Connection](
            open_connection(server, tls=tls, metadata=metadata), "trio-cogment dm_env_rpc"
        )
        self._connection = self._thread.value
        self._created = False
        self._nested = nested_names
        opened = False
        try:
            if world_name is None:
                world_name = self._thread.call(self._connection.create_world, create_settings)
                self._created = True
            self.world = world_name
            self.specs: Specs = self._thread.call(self._connection.join_world, world_name, join_settings)
            known = self.specs.observations
            self._shown = tuple(name for name in known.specs if name not in (REWARD, DISCOUNT))
            if observations is not None:
                self._shown = tuple(observations)
            self._wanted = tuple(dict.fromkeys((*self._shown, *({REWARD, DISCOUNT} & known.specs.keys()))))
            for name in self._shown:
                known.uid(name)
            opened = True
        finally:
            if not opened:
                self.close()

    def reset(self) -> Any:
        """Begin a sequence, whether or not the last one has ended.

        Returns:
            A `dm_env.TimeStep` of the kind FIRST.

        Raises:
            DmEnvRpcError, RemoteProtocolError, UnavailableError: see `Connection`.
            FailedPreconditionError: the specifications have changed; or the environment is closed.
        """
        specs = self._thread.call(self._connection.reset)
        if specs is not self.specs:
            raise FailedPreconditionError(
                f"{self._connection.server}: reset: expected the same specifications as before"
            )
        return self._time_step(self._thread.call(self._connection.step, {}, self._wanted))

    def step(self, action: Any) -> Any:
        """Make a step, or begin a sequence if none is running.

        Args:
            action: by name; as `action_spec` says, or a part of that.

        Returns:
            A `dm_env.TimeStep`.

        Raises:
            SpaceError: the action has an unknown name, or a wrong type or shape; no step was made.
            CogmentError: see `reset`.
        """
        actions = flat(action) if self._nested else action
        return self._time_step(self._thread.call(self._connection.step, actions, self._wanted))

    def observation_spec(self) -> Any:
        """Return the specs of dm_env, by name."""
        return self._by_name({name: spec_of(self.specs.observations.specs[name]) for name in self._shown})

    def action_spec(self) -> Any:
        """Return the specs of dm_env, by name."""
        return self._by_name({name: spec_of(spec) for name, spec in self.specs.actions.specs.items()})

    def reward_spec(self) -> Any:
        """Return the spec of the reward."""
        spec = self.specs.observations.specs.get(REWARD)
        return super().reward_spec() if spec is None else spec_of(spec)

    def discount_spec(self) -> Any:
        """Return the spec of the discount."""
        spec = self.specs.observations.specs.get(DISCOUNT)
        return super().discount_spec() if spec is None else spec_of(spec)

    def close(self) -> None:
        """Leave the world, destroy it if it was created here, and end the thread; closing again is harmless."""
        if self._thread.closed:
            return
        try:
            self._thread.call(self._connection.leave_world)
            if self._created:
                self._thread.call(self._connection.destroy_world, self.world)
        except CogmentError:
            pass  # a server that is gone, or keeps the world, has nothing to tell a client that leaves
        finally:
            self._thread.close()

    def _by_name(self, found: dict[str, Any]) -> dict[str, Any]:
        return nested(found) if self._nested else found

    def _time_step(self, step: Step) -> Any:
        observations = step.observations
        missing = [name for name in self._wanted if name not in observations]
        if missing:
            raise RemoteProtocolError(f"{self._connection.server}: step: observation {missing[0]!r}: expected a value")
        reward: Any = None
        discount: Any = None
        if not step.first:
            reward = observations[REWARD][()] if REWARD in observations else 0.0
            discount = 0.0 if step.state is State.TERMINATED else 1.0
        if DISCOUNT in observations:
            discount = observations[DISCOUNT][()]
        kind = dm_env.StepType.FIRST if step.first else dm_env.StepType.LAST if step.last else dm_env.StepType.MID
        shown = {name: _value(self.specs.observations.specs[name], observations[name]) for name in self._shown}
        return dm_env.TimeStep(kind, reward, discount, self._by_name(shown))


def _value(spec: TensorSpec, array: Any) -> Any:
    return array.astype(object) if spec.type.name == "str" else array


def spec_of(spec: TensorSpec) -> Any:
    """Return a specification as one of dm_env.

    Raises:
        SpaceError: dm_env has none for it: a dimension of any length.
    """
    if min(spec.shape, default=0) < 0:
        raise SpaceError(f"expected a fixed shape, which specs of dm_env have; got {spec.shape}", (), spec.name)
    if spec.type.name == "str":
        return dm_specs.StringArray(spec.shape, name=spec.name)
    dtype = spec.type.dtype
    low, high = spec.minimum, spec.maximum
    if low is None and high is None:
        return dm_specs.Array(spec.shape, dtype, spec.name)
    if dtype.kind in "iu" and spec.shape == () and low is not None and high is not None and low == 0:
        return dm_specs.DiscreteArray(int(high) + 1, dtype, spec.name)
    ends = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    bounds = [end if bound is None else bound for bound, end in zip((low, high), ends, strict=True)]
    return dm_specs.BoundedArray(spec.shape, dtype, *bounds, name=spec.name)
