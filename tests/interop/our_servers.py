"""A directory or a model registry as a process, until SIGTERM.

Call it as `python our_servers.py directory FILE [--tls FOLDER]` or as
`python our_servers.py model_registry FOLDER [--directory URL]`.
"""

from __future__ import annotations

import argparse
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import trio
from purerpc import Service

from trio_cogment.directory import Offer, ServiceKind, keep_registered, open_directory
from trio_cogment.directory_server import DirectoryServer
from trio_cogment.model_registry import LocalBlobs, ModelRegistry
from trio_cogment.platform import wall_clock_ns
from trio_cogment.rpc import open_listeners, serve, server_tls, standard_services


@asynccontextmanager
async def directory(path: Path) -> AsyncIterator[Service]:
    async with DirectoryServer(random_bytes=secrets.token_bytes, path=str(path)) as server:
        yield server.service()
        server.stop()


@asynccontextmanager
async def model_registry(root: Path) -> AsyncIterator[Service]:
    async with ModelRegistry(LocalBlobs(str(root)), wall_clock=wall_clock_ns) as registry:
        yield registry.service()


async def run(name: str, program: AbstractAsyncContextManager[Service], tls: Path | None, directory_url: str) -> None:
    encryption = None
    if tls is not None:
        encryption = server_tls(tls / "chain.pem", tls / "key.pem", client_roots=tls / "roots.pem")
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with program as service, trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1", tls=encryption)
            services = [service, *standard_services([service])]
            serving = await nursery.start(serve, services, listeners)
            print(f"{name} listening on 127.0.0.1:{serving.port} ({service.name.rpartition('.')[2]})", flush=True)
            if directory_url:
                nursery.start_soon(_stay_registered, directory_url, serving.port)
            await anext(signals)
            nursery.cancel_scope.cancel()


async def _stay_registered(url: str, port: int) -> None:
    async with open_directory(url) as client:
        await keep_registered(client, [Offer(kind=ServiceKind.MODEL_REGISTRY, port=port)], host="127.0.0.1")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=["directory", "model_registry"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--tls", type=Path)
    parser.add_argument("--directory", default="")
    args = parser.parse_args()
    program = directory(args.path) if args.name == "directory" else model_registry(args.path)
    trio.run(run, args.name, program, args.tls, args.directory)


if __name__ == "__main__":
    main()
