"""`serve_openenv`: an OpenEnv server in somebody's nursery."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from trio_cogment.config import OpenEnvConfig
from trio_cogment.errors import InvalidArgumentError, MissingExtraError
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rl.environments.making import Target
from trio_cogment.rl.environments.serving import Hosting
from trio_cogment.rl.openenv.games import registered_game
from trio_cogment.rl.openenv.trials import Game, Trials
from trio_cogment.rl.seats.base import Seat
from trio_cogment.rl.seats.clients import serve_clients
from trio_cogment.rl.spec import RL_SPEC

if TYPE_CHECKING:
    from hypercorn.config import Config

_logger = logging.getLogger(__name__)


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
    config: OpenEnvConfig | None = None,
    task_status: trio.TaskStatus[OpenEnvServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the seats of an environment's trials as OpenEnv environments, until cancelled.

    A socket is one seat of one trial at a time. `reset` may say which: `{"trial": "duel", "seat": "player_1"}`; the
    sockets that name a trial meet there, and it starts when all are there. Without a name it is a trial of the socket's
    own, and the seats of the others have to be among `seats`. See `docs/rl-openenv.md`.

    Args:
        environment: what is played: an id (`CartPole-v1`, `rps_v2`), an environment, or a function that makes one; see
            `trio_cogment.rl.environments.making.make_environment`.
        platform: runs the trials; by default one of the server's own. The environment and the seats are registered
            there, for as long as it exists.
        seats: who takes the seats where no socket is.
        default_actions: by agent: what is done there after its socket has gone. Where there is none, the trial ends.
        arguments: with which the environment is made.
        hosting: where it runs: `inline`, `thread` or `process`; see `trio_cogment.rl.environments.serving.environment`.
        store: keeps the trials, if the platform is the server's own: `memory:`, `sqlite:PATH`, or a storage.
        description: of the environment, for people.
        host: the address to listen at. There is no access control: who reaches it may play.
        port: the port; 0 lets the system choose.
        config: limits.
        task_status: is told the server when it listens.

    Raises:
        MissingExtraError: the extra `openenv` is not installed, or that of the environment.
        NotFoundError: there is no such environment.
        InvalidArgumentError: a seat or a default action is of no agent, or not in its space; or there is a store beside
            a platform.
        OSError: the address cannot be used.

    After `Cancelled` the sockets are closed, and the trials that they played end.
    """
    config = config or OpenEnvConfig()
    _require_extra()
    if platform is not None and store is not None:
        raise InvalidArgumentError("store: expected none beside a platform, which has its own")
    async with AsyncExitStack() as stack:
        if platform is None:
            platform = await stack.enter_async_context(open_platform(RL_SPEC, store=store))
        game = await stack.enter_async_context(
            registered_game(
                platform,
                environment,
                seats=seats,
                default_actions=default_actions,
                arguments=dict(arguments or {}),
                hosting=hosting,
                description=description,
                max_idle=config.max_sockets,
            )
        )
        await stack.enter_async_context(serve_clients(platform, seats.values()))
        await serve_game(game, platform, host=host, port=port, config=config, task_status=task_status)


async def serve_game(
    game: Game,
    platform: Platform,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    config: OpenEnvConfig | None = None,
    task_status: trio.TaskStatus[OpenEnvServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the seats of a platform's trials, whose environment and other seats are registered already.

    Args:
        game: what the trials are.
        platform: runs them.
        host: the address to listen at.
        port: the port; 0 lets the system choose.
        config: limits.
        task_status: is told the server when it listens.

    Raises:
        MissingExtraError: the extra `openenv` is not installed.
        OSError: the address cannot be used.

    After `Cancelled` the sockets are closed, and the trials that they played end.
    """
    config = config or OpenEnvConfig()
    _require_extra()
    # Outside of the nursery, so that an address that is taken is an error of its own and not one of a group.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        settings = _settings(listening, config)
        await _serve(game, platform, settings, config, task_status)


async def _serve(
    game: Game,
    platform: Platform,
    settings: Config,
    config: OpenEnvConfig,
    task_status: trio.TaskStatus[OpenEnvServer],
) -> None:
    from hypercorn.trio import serve

    from trio_cogment.rl.openenv.app import Application

    async with trio.open_nursery() as nursery:
        application = Application(Trials(nursery, platform, game, config), config)
        # Hypercorn does not look for signals; it ends when it is cancelled.
        run = partial(serve, application.asgi, settings, mode="asgi")  # type: ignore[arg-type]  # Starlette's types
        (url,) = await nursery.start(run)
        task_status.started(OpenEnvServer(url, int(url.rpartition(":")[2])))


def _require_extra() -> None:
    for module, package in (("hypercorn", "hypercorn"), ("starlette", "starlette")):
        try:
            __import__(module)
        except ModuleNotFoundError as error:
            raise MissingExtraError.of(package, "openenv") from error


def _settings(listening: socket.socket, config: OpenEnvConfig) -> Config:
    """Return Hypercorn's settings for a socket that listens."""
    from hypercorn.config import Config, Sockets

    class Settings(Config):
        def create_sockets(self) -> Sockets:
            return Sockets(secure_sockets=[], insecure_sockets=[listening], quic_sockets=[])

    _bound_sending(listening, config.send_seconds)
    settings = Settings()
    settings.errorlog = _logger
    settings.graceful_timeout = config.shutdown_seconds
    settings.websocket_max_message_size = config.max_message_bytes
    return settings


def _bound_sending(listening: socket.socket, seconds: float) -> None:
    """End connections whose peer reads nothing for so long, where the system can.

    Hypercorn sends in a shielded scope without a deadline: a peer that stops reading would keep the server from ending.
    Connections inherit the option from the socket that listens.
    """
    option: Any = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        listening.setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds * 1000)))
