"""The services of this project on a real socket, with everything they need, and a channel to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from trio_cogment import open_platform
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.servers.directory import DirectoryServer

#: Nobody is left to say farewell to when the kit is done.
_HASTY = PlatformConfig(orchestrator=OrchestratorConfig(farewell_seconds=0.1))


@asynccontextmanager
async def everything(folder: Path) -> AsyncIterator[Channel]:
    """Serve an orchestrator, a datastore, a model registry and a directory."""
    async with (
        DirectoryServer() as directory,
        open_platform(store="memory:", model_registry=folder, directory=directory, config=_HASTY) as platform,
        trio.open_nursery() as nursery,
    ):
        (listener,) = await open_listeners("127.0.0.1", 0)
        port = listener.socket.getsockname()[1]
        await nursery.start(serve, platform.services, [listener])
        async with Channel("127.0.0.1", port) as channel:
            yield channel
        nursery.cancel_scope.cancel()
