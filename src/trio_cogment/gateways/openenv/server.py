"""`serve_openenv`: an OpenEnv server in somebody's nursery."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import trio

from trio_cogment.access import AccessControl
from trio_cogment.access.rights import PAGES
from trio_cogment.base.config import OpenEnvConfig, WebConfig
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.making import Target
from trio_cogment.environments.serving import Hosting
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.gateways.openenv.app import Application
from trio_cogment.gateways.openenv.games import registered_game
from trio_cogment.gateways.openenv.trials import Game, Trials
from trio_cogment.platform import Platform, open_platform
from trio_cogment.play.clients import serve_clients
from trio_cogment.rpc import OwnNursery, RunningServer, open_listeners, serve
from trio_cogment.seats.base import Seat
from trio_cogment.web import OriginPolicy, PageAccess, WebSide

#: What a player has to be allowed, where callers are asked who they are.
PLAY = f"{PAGES}openenv"


@dataclass(frozen=True, slots=True)
class OpenEnvServer:
    """A server that runs.

    Attributes:
        url: its address, as OpenEnv's clients take it: `http://127.0.0.1:8000`.
        port: the port, also if the system has chosen it.
    """

    url: str
    port: int


async def serve_openenv(
    environment: Target,
    *,
    platform: Platform | None = None,
    seats: Mapping[str, Seat] = {},
    default_actions: Mapping[str, Any] = {},
    arguments: Mapping[str, Any] | None = None,
    hosting: Hosting = "inline",
    store: Any = None,
    description: str = "",
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    access: AccessControl | None = None,
    config: OpenEnvConfig | None = None,
    task_status: trio.TaskStatus[OpenEnvServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the seats of an environment's trials as OpenEnv environments, until cancelled.

    A socket is one seat of one trial at a time. `reset` may say which: `{"trial": "duel", "seat": "player_1"}`; the
    sockets that name a trial meet there, and it starts when all are there. Without a name it is a trial of the socket's
    own, and the seats of the others have to be among `seats`. See `docs/rl-openenv.md`.

    Args:
        environment: what is played: an id (`CartPole-v1`, `rps_v2`), an environment, or a function that makes one; see
            `trio_cogment.environments.making.make_environment`.
        platform: runs the trials; by default one of the server's own. The environment and the seats are registered
            there, for as long as it exists.
        seats: who takes the seats where no socket is.
        default_actions: by agent: what is done there after its socket has gone. Where there is none, the trial ends.
        arguments: with which the environment is made.
        hosting: where it runs: `inline`, `thread` or `process`; see `trio_cogment.environments.serving.environment`.
        store: keeps the trials, if the platform is the server's own: `memory:`, `sqlite:PATH`, or a storage.
        description: of the environment, for people.
        host: the address to listen at.
        port: the port; 0 lets the system choose.
        hosts: names by which clients find the server, besides addresses and `localhost`; see
            `trio_cogment.web.OriginPolicy`.
        origins: of pages that may use it, as there.
        access: knows the tokens of operators and participants, who may play; None: who reaches the server may.
        config: limits.
        task_status: is told the server when it listens.

    Raises:
        MissingExtraError: the extra of the environment is not installed.
        NotFoundError: there is no such environment.
        InvalidArgumentError: a seat or a default action is of no agent, or not in its space; or there is a store beside
            a platform.
        OSError: the address cannot be used.

    After `Cancelled` the sockets are closed, and the trials that they played end.
    """
    config = config or OpenEnvConfig()
    if platform is not None and store is not None:
        raise InvalidArgumentError("store: expected none beside a platform, which has its own")
    async with AsyncExitStack() as stack:
        if platform is None:
            platform = await stack.enter_async_context(open_platform(RL_SPEC, store=store))
        game = await stack.enter_async_context(
            opened_game(
                environment,
                platform,
                seats=seats,
                default_actions=default_actions,
                arguments=arguments,
                hosting=hosting,
                description=description,
                config=config,
            )
        )
        await serve_game(
            game,
            platform,
            host=host,
            port=port,
            hosts=hosts,
            origins=origins,
            access=access,
            config=config,
            task_status=task_status,
        )


@asynccontextmanager
async def opened_game(
    environment: Target,
    platform: Platform,
    *,
    seats: Mapping[str, Seat] = {},
    default_actions: Mapping[str, Any] = {},
    arguments: Mapping[str, Any] | None = None,
    hosting: Hosting = "inline",
    description: str = "",
    config: OpenEnvConfig,
) -> AsyncIterator[Game]:
    """Have what a server plays, for the time of the block; the arguments and errors are those of `serve_openenv`."""
    registered = registered_game(
        platform,
        environment,
        seats=seats,
        default_actions=default_actions,
        arguments=dict(arguments or {}),
        hosting=hosting,
        description=description,
        max_idle=config.max_peer_sockets,
    )
    async with registered as game, serve_clients(platform, seats.values()):
        yield game


@asynccontextmanager
async def opened_application(
    game: Game, platform: Platform, config: OpenEnvConfig, *, asked: bool
) -> AsyncIterator[Application]:
    """Have the routes of a server, whose trials run for the time of the block.

    Args:
        game: what the trials are.
        platform: runs them.
        config: limits.
        asked: callers are asked who they are.
    """
    async with OwnNursery() as nursery:
        trials = Trials(nursery, platform, game, config)
        try:
            yield Application(trials, config, right=PLAY if asked else None)
        finally:
            trials.abandon()
        nursery.cancel_scope.cancel()


async def serve_game(
    game: Game,
    platform: Platform,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    access: AccessControl | None = None,
    config: OpenEnvConfig | None = None,
    task_status: trio.TaskStatus[OpenEnvServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the seats of a platform's trials, whose environment and other seats are registered already.

    Args:
        game: what the trials are.
        platform: runs them.
        host: the address to listen at.
        port: the port; 0 lets the system choose.
        hosts: see `serve_openenv`.
        origins: see `serve_openenv`.
        access: see `serve_openenv`.
        config: limits.
        task_status: is told the server when it listens.

    Raises:
        InvalidArgumentError: a host or an origin is none.
        OSError: the address cannot be used.

    After `Cancelled` the sockets are closed, and the trials that they played end.
    """
    config = config or OpenEnvConfig()
    policy = OriginPolicy(hosts, origins)
    async with (
        opened_application(game, platform, config, asked=access is not None) as application,
        OwnNursery() as nursery,
    ):
        limits = limits_of(config, WebConfig())
        side = WebSide(policy, config=limits, routes=application.routes, access=PageAccess(access))
        listeners = await open_listeners(host, port)
        serving = trio.CancelScope(shield=True)

        async def run(*, task_status: trio.TaskStatus[RunningServer]) -> None:
            with serving:
                await serve((), listeners, access=access, web=side, task_status=task_status)

        server: RunningServer = await nursery.start(run)
        try:
            name = f"[{host}]" if ":" in host else host
            task_status.started(OpenEnvServer(f"http://{name}:{server.port}", server.port))
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + config.shutdown_seconds):
                await server.drain(config.shutdown_seconds)
            serving.cancel()


def limits_of(config: OpenEnvConfig, web: WebConfig) -> WebConfig:
    """Return the limits of a port that serves OpenEnv.

    Args:
        config: of the server of OpenEnv.
        web: what that does not say.
    """
    return replace(web, body_timeout_seconds=config.send_seconds, write_stall_timeout_seconds=config.send_seconds)
