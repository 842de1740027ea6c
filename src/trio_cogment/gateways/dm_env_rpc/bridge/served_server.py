"""`dm_env_rpc_environment`: a server of dm_env_rpc as the environment of trials."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trio_cogment.api import dm_env_rpc_bridge_pb2, spaces_pb2
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.environments.part import Part
from trio_cogment.environments.pool import Pool
from trio_cogment.environments.spec import PLAYER
from trio_cogment.environments.trial_seeds import noted_seed
from trio_cogment.gateways.dm_env_rpc.bridge.plans import Defaults, Link, config_of
from trio_cogment.gateways.dm_env_rpc.bridge.worlds import World
from trio_cogment.gateways.dm_env_rpc.client.addresses import parse_address, with_scheme
from trio_cogment.gateways.dm_env_rpc.client.connection import DEFAULT_CONFIG
from trio_cogment.rpc import CallOpener, MetadataLike, RpcConfig
from trio_cogment.sdk import EnvironmentSession, Participants
from trio_cogment.sdk.spec import ActorClass, Spec

#: The name under which `participants` registers it.
IMPLEMENTATION = "dm_env_rpc"
#: Well below the time after which a trial in which nothing happens is ended (30 s), so that this error comes first.
CONNECT_TIMEOUT_SECONDS = 10.0
#: Of the slowest answer to a step: a world may wait for others in it.
STEP_TIMEOUT_SECONDS = 60.0
DEFAULT_MAX_IDLE = 16
DEFAULT_IDLE_SECONDS = 300.0

#: As `trio_cogment.rl.RL_SPEC`, whose trials it also serves, with a configuration of its own.
DM_ENV_RPC_SPEC = Spec.of(
    ActorClass(PLAYER, observation=spaces_pb2.Observation, action=spaces_pb2.Action),
    environment_config=dm_env_rpc_bridge_pb2.BridgeConfig,
)


def dm_env_rpc_environment(
    server: str | CallOpener | None = None,
    *,
    world_name: str | None = None,
    create_settings: Mapping[str, Any] = {},
    join_settings: Mapping[str, Any] = {},
    actor_join_settings: Mapping[str, Mapping[str, Any]] = {},
    reset_settings: Mapping[str, Any] = {},
    observations: Sequence[str] = (),
    end_when: Literal["all", "any"] = "all",
    on_error: Literal["end_trial", "repeat"] = "end_trial",
    single_use: bool = False,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    step_timeout_seconds: float = STEP_TIMEOUT_SECONDS,
    max_idle: int = DEFAULT_MAX_IDLE,
    idle_seconds: float = DEFAULT_IDLE_SECONDS,
    tls: ssl.SSLContext | None = None,
    metadata: MetadataLike = (),
    config: RpcConfig = DEFAULT_CONFIG,
    host: Host | None = None,
) -> ServedServer:
    """Return the environment of trials whose actors act in a world of a dm_env_rpc server.

    It is registered as any other: `participants.register_environment(dm_env_rpc_environment("grpc://localhost:9000"))`.
    Each actor has a connection to the server, and all step side by side. Worlds are kept between trials. A server that
    is lost, refuses, or breaks the protocol ends that trial and no other.

    What trials say in their configuration, a `BridgeConfig` or a `trio_cogment.rl.EnvironmentConfig`, takes precedence;
    of settings it is added.

    Args:
        server: `grpc://host:port` or `host:port`; a channel that is open; or None: the configuration of each trial
            names one.
        world_name: of the world to join; None: one is created.
        create_settings: of CreateWorld.
        join_settings: of JoinWorld, for every actor.
        actor_join_settings: of JoinWorld, for single actors, in addition.
        reset_settings: of the reset before each sequence; without any, and without a seed, there is none.
        observations: the names of those that actors get; empty: all. The reward is always requested.
        end_when: the trial ends when the sequences of all actors have ended, or that of any.
        on_error: a step that the server refuses ends the trial, or is repeated without actions; then the observation's
            information has the server's text, as `refused`.
        single_use: a world serves one trial.
        connect_timeout_seconds: how long it may take to connect, and create and join a world, with all actors.
        step_timeout_seconds: how long a step, or a reset, may take.
        max_idle: the maximum number of worlds that are kept while no trial uses them.
        idle_seconds: so long each of them is kept.
        tls: encrypt; see `trio_cogment.rpc.client_tls`.
        metadata: sent with each connection.
        config: limits and timeouts of the channel.
        host: connects; by default the system.

    Raises:
        EndpointError: `server` is not an endpoint of a server.
        InvalidArgumentError: there is no such policy.
    """
    if isinstance(server, str):
        parse_address(server)
        server = with_scheme(server)
    for name, given, known in (("end_when", end_when, ("all", "any")), ("on_error", on_error, ("end_trial", "repeat"))):
        if given not in known:
            raise InvalidArgumentError(f"{name}: expected {' or '.join(map(repr, known))}; got {given!r}")
    link = Link(
        tls=tls,
        metadata=metadata,
        config=config,
        host=host or Host(),
        connect_timeout_seconds=connect_timeout_seconds,
        step_timeout_seconds=step_timeout_seconds,
    )
    defaults = Defaults(
        server=server,
        link=link,
        world_name=world_name,
        create_settings=dict(create_settings),
        join_settings=dict(join_settings),
        actor_join_settings=dict(actor_join_settings),
        reset_settings=dict(reset_settings),
        observations=tuple(observations),
        end_with_any=end_when == "any",
        repeat_refused=on_error == "repeat",
        single_use=single_use,
    )
    return ServedServer(defaults, Pool(max_idle=max_idle, idle_seconds=idle_seconds))


class ServedServer:
    """A server of dm_env_rpc as the environment of trials; `dm_env_rpc_environment` makes it.

    `aclose` leaves, and destroys, the worlds that no trial uses, as the end of the Trio run does.
    """

    def __init__(self, defaults: Defaults, pool: Pool) -> None:
        """Serve trials; see `dm_env_rpc_environment`."""
        self._defaults = defaults
        self._pool = pool

    async def __call__(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        """Play the environment's part in a trial.

        Raises:
            InvalidArgumentError: the trial's configuration makes no sense.
            InvalidActionError: an actor's action is missing, or not in its space.
            InvalidEnvironmentError: the server refuses a request, breaks the protocol, or has specifications without
                counterparts.
            UnavailableError: the server cannot be reached, is lost, does not answer in time, or says that it cannot
                serve now.
        """
        config = config_of(session.config)
        plan = self._defaults.plan(config, [actor.name for actor in session.actors])
        with noted_seed(session.trial_id, config.seed if config.HasField("seed") else None):
            await Part(session, plan).play_stepped(self._pool, plan.key, lambda: World.open(plan))

    async def aclose(self) -> None:
        """Leave and destroy the worlds that no trial uses."""
        await self._pool.aclose()


def participants() -> Participants:
    """Return what `trio-cogment participants trio_cogment.gateways.dm_env_rpc` serves: the environment `dm_env_rpc`.

    The configuration of each trial names the server.
    """
    found = Participants(DM_ENV_RPC_SPEC)
    found.register_environment(dm_env_rpc_environment(), IMPLEMENTATION)
    return found
