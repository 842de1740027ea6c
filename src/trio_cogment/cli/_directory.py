"""A server's dealings with the directory: asking it, being it, and being registered there while it serves."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio
from purerpc import Service

from trio_cogment.cli._directory_options import DirectorySettings
from trio_cogment.cli._settings import Configuration
from trio_cogment.discovery import DirectoryClient, Offer, host_finder, keep_registered, open_directory
from trio_cogment.discovery.registration import COMMAND_LINE, IMPLICIT, FindHost
from trio_cogment.errors import CogmentError
from trio_cogment.rpc import InProcessChannel, Serving
from trio_cogment.services import REGISTERED_BY_SERVERS, REGISTRATION_SOURCE, ServiceKind, registered_kinds

if TYPE_CHECKING:
    from trio_cogment.directory import DirectoryServer
    from trio_cogment.directory import Service as RegisteredService

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Directory:
    """The directory of a server.

    Attributes:
        client: asks it; None: there is none.
        server: the directory itself, if this server runs it.
        services: what of it is served here.
    """

    client: DirectoryClient | None = None
    server: DirectoryServer | None = None
    services: Sequence[Service] = ()


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
    from trio_cogment.directory import directory_services

    async with opened_directory_server(settings.file, configuration) as server:
        services = directory_services(server)
        async with InProcessChannel(services) as channel:
            client = DirectoryClient(
                channel, token=settings.token, config=configuration.directory, name="the server's own directory"
            )
            yield Directory(client, server, services)


async def stay_registered(
    directory: Directory,
    settings: DirectorySettings | None,
    servings: Iterable[tuple[Sequence[Service], Serving]],
    until: trio.CancelScope,
    *,
    tls: bool = False,
) -> None:
    """Keep what is served registered until `until` is cancelled, if that is wanted.

    What our own directory kept of an earlier process at our endpoints, which was killed, is forgotten before.

    Args:
        directory: where, if anywhere.
        settings: whether, and as what.
        servings: the services and where they listen.
        until: what ends it; the registrations are then taken back.
        tls: the services expect it.
    """
    if directory.client is None or settings is None:
        return
    ports: dict[ServiceKind, int] = {}
    addresses: list[str] = []
    for services, serving in servings:
        addresses.extend(serving.addresses)
        ports.update(dict.fromkeys(registered_kinds(service.name for service in services), serving.port))
    find_host = host_finder(addresses)
    with until:
        if directory.server is not None:
            await _forget_earlier(directory.server, settings, find_host, frozenset(ports.values()))
        offers = [Offer(kind=kind, port=ports[kind]) for kind in REGISTERED_BY_SERVERS if kind in ports]
        if offers and settings.auto_register:
            await keep_registered(
                directory.client,
                offers,
                host=settings.host,
                ssl=tls,
                properties=settings.properties,
                find_host=find_host,
            )


async def _forget_earlier(
    server: DirectoryServer, settings: DirectorySettings, find_host: FindHost, ports: Collection[int]
) -> None:
    """Forget what servers have registered by themselves where we are now.

    They are gone, for nobody but us listens there, but look alive, for we do. Should somebody register from elsewhere
    with our address and keep at it, that comes back by itself.
    """
    try:
        host = settings.host or await find_host()

        def is_stale(service: RegisteredService) -> bool:
            by_itself = service.properties.get(REGISTRATION_SOURCE) in (IMPLICIT, COMMAND_LINE)
            return by_itself and service.host == host and service.port in ports

        count = await server.forget(is_stale)
    except CogmentError as error:
        _log.warning("registrations of an earlier process may be left: %s", error)
        return
    if count:
        _log.info("forgot %d registrations of an earlier process at our endpoint", count)
