"""Plans of trials at a dm_env_rpc server: a trial's configuration with that of the environment's making."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError, Message

from trio_cogment.api.dm_env_rpc_bridge_pb2 import BridgeConfig
from trio_cogment.api.spaces_pb2 import Value
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.environments.pool import Key
from trio_cogment.environments.stage import Opening
from trio_cogment.gateways.dm_env_rpc.client.addresses import with_scheme
from trio_cogment.gateways.dm_env_rpc.client.connection import DEFAULT_CONFIG
from trio_cogment.rpc import CallOpener, MetadataLike, RpcConfig
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.values import decode_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How a server is reached; see `dm_env_rpc_environment`."""

    tls: ssl.SSLContext | None = None
    metadata: MetadataLike = ()
    config: RpcConfig = DEFAULT_CONFIG
    host: Host = field(default_factory=Host)
    connect_timeout_seconds: float
    step_timeout_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Opening):
    """A world that a trial needs, and how to play in it: each actor has a connection.

    Attributes:
        server: an endpoint, or a channel that is open.
        link: how it is reached.
        world_name: the world to join; None: one is created.
        create_settings: of CreateWorld.
        join_settings: of JoinWorld, by actor.
        reset_settings: of the reset before the sequence; empty: there is none.
        observations: the names of those that actors get; empty: all.
        end_with_any: the sequence is over when it is for one actor.
        repeat_refused: a step that the server refuses is repeated without actions.
        single_use: the world serves one trial.
        key: what worlds must have in common to stand for each other.
    """

    server: str | CallOpener
    link: Link
    world_name: str | None
    create_settings: dict[str, Any]
    join_settings: dict[str, dict[str, Any]]
    reset_settings: dict[str, Any]
    observations: tuple[str, ...]
    end_with_any: bool
    repeat_refused: bool
    single_use: bool
    key: Key

    @property
    def server_name(self) -> str:
        """The server's name, for errors."""
        return self.server if isinstance(self.server, str) else getattr(self.server, "authority", "dm_env_rpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What an environment was made with; see `dm_env_rpc_environment`."""

    server: str | CallOpener | None
    link: Link
    world_name: str | None
    create_settings: Mapping[str, Any]
    join_settings: Mapping[str, Any]
    actor_join_settings: Mapping[str, Mapping[str, Any]]
    reset_settings: Mapping[str, Any]
    observations: tuple[str, ...]
    end_with_any: bool
    repeat_refused: bool
    single_use: bool

    def plan(self, config: BridgeConfig, actors: Sequence[str]) -> Plan:
        """Return what a trial wants.

        Raises:
            InvalidArgumentError: its configuration makes no sense; the text names the field.
        """
        for name in {**self.actor_join_settings, **config.actor_join_settings}:
            if name not in actors:
                known = ", ".join(map(repr, actors))
                raise _error(f"actor_join_settings: expected names of actors ({known}), got {name!r}")
        everyone = {**self.join_settings, **_settings(config.join_settings, "join_settings")}
        single = {name: _settings(found, "actor_join_settings") for name, found in config.actor_join_settings.items()}
        reset = {**self.reset_settings, **_settings(config.reset_settings, "reset_settings")}
        if config.HasField("seed"):
            reset["seed"] = config.seed
        return Plan(
            server=self._server(config),
            link=self.link,
            actors=tuple(actors),
            world_name=config.world_name if config.HasField("world_name") else self.world_name,
            create_settings={**self.create_settings, **_settings(config.create_settings, "create_settings")},
            join_settings={
                name: {**everyone, **self.actor_join_settings.get(name, {}), **single.get(name, {})} for name in actors
            },
            reset_settings=reset,
            observations=tuple(config.observations) or self.observations,
            end_with_any=self.end_with_any or config.end_when == BridgeConfig.ANY,
            repeat_refused=self.repeat_refused or config.on_error == BridgeConfig.REPEAT,
            single_use=self.single_use or config.single_use,
            key=_key(config, actors),
        )

    def _server(self, config: BridgeConfig) -> str | CallOpener:
        if self.server is None:
            if not config.server:
                raise _error("server: expected grpc://host:port, got none")
            return with_scheme(config.server)
        if config.server and with_scheme(config.server) != self.server:
            own = repr(self.server) if isinstance(self.server, str) else "none, because there is one server"
            raise _error(f"server: expected {own}; got {config.server!r}")
        return self.server


def config_of(given: Any) -> BridgeConfig:
    """Return the configuration in a trial's parameters.

    Args:
        given: what the session has: a `BridgeConfig`, a `trio_cogment.rl.EnvironmentConfig`, the bytes of either, or
            None.

    Raises:
        InvalidArgumentError: it is nothing of this.
    """
    if given is None:
        return BridgeConfig()
    if isinstance(given, BridgeConfig):
        return given
    try:
        # By bytes: what both messages have in common has the same numbers and types.
        return BridgeConfig.FromString(given.SerializeToString() if isinstance(given, Message) else given)
    except DecodeError:
        raise _error(f"expected a BridgeConfig, got {type(given).__name__}") from None


def _key(config: BridgeConfig, actors: Sequence[str]) -> Key:
    found = BridgeConfig()
    found.CopyFrom(config)
    for name in ("seed", "reset_settings", "instance", "end_when", "on_error", "single_use"):
        found.ClearField(name)
    return Key(id="\0".join(actors), arguments=found.SerializeToString(deterministic=True), instance=config.instance)


def _settings(fields: Value.Fields, name: str) -> dict[str, Any]:
    try:
        return decode_fields(fields)
    except SpaceError as error:
        raise _error(str(error.of(name))) from None


def _error(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"environment config: {text}")
