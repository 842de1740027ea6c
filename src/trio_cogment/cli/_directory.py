"""A server's dealings with the directory: asking it, being it, and being registered there while it serves."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio
from purerpc import Service

from trio_cogment.cli._directory_options import DirectorySettings
from trio_cogment.cli._settings import Configuration
from trio_cogment.directory import DirectoryClient, Offer, ServiceKind, host_finder, keep_registered, open_directory
from trio_cogment.rpc import InProcessChannel, Serving

if TYPE_CHECKING:
    from trio_cogment.directory_server import DirectoryServer

#: What of a server is registered, in this order; a directory is in none.
_REGISTERED = {
    "cogmentAPI.ClientActorSP": ServiceKind.CLIENT_ACTOR,
    "cogmentAPI.TrialLifecycleSP": ServiceKind.LIFECYCLE,
    "cogmentAPI.TrialDatastoreSP": ServiceKind.DATASTORE,
    "cogmentAPI.DatalogSP": ServiceKind.DATALOG,
    "cogmentAPI.ModelRegistrySP": ServiceKind.MODEL_REGISTRY,
}


@dataclass(frozen=True, slots=True)
class Directory:
    """The directory of a server.

    Attributes:
        client: asks it; None: there is none.
        server: the directory itself, if it is ours.
    """

    client: DirectoryClient | None = None
    server: DirectoryServer | None = None

    def services(self) -> list[Service]:
        """Return what of it is served here."""
        return [] if self.server is None else [self.server.service()]

    def stop(self) -> None:
        """End inquiries that wait, if it is ours."""
        if self.server is not None:
            self.server.stop()


@asynccontextmanager
async def opened_directory(
    settings: DirectorySettings | None,
    *,
    client_tls: ssl.SSLContext | None,
    configuration: Configuration,
) -> AsyncIterator[Directory]:
    """Connect to the directory, if there is one, or run our own; whether it can be reached is not looked at yet.

    Raises:
        Failure, CogmentError: our own cannot be run.
    """
    if settings is None:
        yield Directory()
        return
    if settings.endpoint is None:
        async with _own_directory(settings, configuration) as directory:
            yield directory
        return
    async with open_directory(
        settings.endpoint,
        token=settings.token,
        tls=client_tls,
        config=configuration.directory,
        rpc_config=configuration.rpc,
    ) as directory:
        yield Directory(directory)


@asynccontextmanager
async def _own_directory(settings: DirectorySettings, configuration: Configuration) -> AsyncIterator[Directory]:
    # What few servers have.
    from trio_cogment.cli._directory_server import opened_directory_server

    async with (
        opened_directory_server(settings.file, configuration) as server,
        InProcessChannel([server.service()]) as channel,
    ):
        client = DirectoryClient(
            channel, token=settings.token, config=configuration.directory, name="the server's own directory"
        )
        yield Directory(client, server)


async def stay_registered(
    directory: DirectoryClient | None,
    settings: DirectorySettings | None,
    servings: Iterable[tuple[Sequence[Service], Serving]],
    until: trio.CancelScope,
    *,
    tls: bool = False,
) -> None:
    """Keep what is served registered until `until` is cancelled, if that is wanted.

    Args:
        directory: where, if anywhere.
        settings: whether, and as what.
        servings: the services and where they listen.
        until: what ends it; the registrations are then taken back.
        tls: the services expect it.
    """
    if directory is None or settings is None or not settings.auto_register:
        return
    ports: dict[ServiceKind, int] = {}
    addresses: list[str] = []
    for services, serving in servings:
        addresses.extend(serving.addresses)
        ports.update({_REGISTERED[service.name]: serving.port for service in services if service.name in _REGISTERED})
    offers = [Offer(kind=kind, port=ports[kind]) for kind in _REGISTERED.values() if kind in ports]
    if not offers:
        return
    with until:
        await keep_registered(
            directory,
            offers,
            host=settings.host,
            ssl=tls,
            properties=settings.properties,
            find_host=host_finder(addresses),
        )
