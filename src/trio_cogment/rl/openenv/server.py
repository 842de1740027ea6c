"""`serve_openenv`: an OpenEnv server in somebody's nursery."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from trio_cogment.config import OpenEnvConfig
from trio_cogment.errors import MissingExtraError
from trio_cogment.platform import Platform
from trio_cogment.rl.openenv.trials import Game, Trials

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


async def serve_game(
    game: Game,
    platform: Platform,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    config: OpenEnvConfig | None = None,
    task_status: trio.TaskStatus[OpenEnvServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the seats of a platform's trials, until cancelled.

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
