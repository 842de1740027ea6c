"""A server's access to the directory, remote or in its own process, and the registration of its services."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager

import trio
from purerpc import Service

from trio_cogment.access import AccessControl, Role, TokenSource
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.object_store import is_object_url
from trio_cogment.base.postgresql import is_database_url
from trio_cogment.base.records import record
from trio_cogment.base.services import (
    PROTOCOL,
    PROTOCOLS,
    REGISTERED_BY_SERVERS,
    REGISTRATION_SOURCE,
    ServiceKind,
    registered_kinds,
)
from trio_cogment.cli.configuration import Configuration
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services.auth import ServerAccess
from trio_cogment.cli.services.directory_flags import DirectorySettings
from trio_cogment.rpc import InProcessChannel, RunningServer
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.directory import Service as RegisteredService
from trio_cogment.servers.discovery import SDK, DirectoryClient, Offer, host_finder, keep_registered, open_directory
from trio_cogment.servers.discovery.registration import COMMAND_LINE, IMPLICIT, FindHost

_log = logging.getLogger(__name__)


@record()
class Directory:
    """The directory of a server.

    Attributes:
        client: of the directory; None: there is no directory.
        server: the directory itself, if it is in this process.
        services: those of the directory in this process.
    """

    client: DirectoryClient | None = None
    server: DirectoryServer | None = None
    services: Sequence[Service] = ()


def directory_token(access: ServerAccess) -> str | TokenSource:
    """Return what says to a directory who registers."""
    return access.token_for(Role.DIRECTORY)


@asynccontextmanager
async def opened_directory(
    settings: DirectorySettings | None,
    *,
    client_tls: ssl.SSLContext | None,
    configuration: Configuration,
    token: str | TokenSource = "",
    access: AccessControl | None = None,
) -> AsyncIterator[Directory]:
    """Connect to the directory, or run one in this process; whether it can be reached is not checked yet.

    Args:
        settings: where it is.
        client_tls: encrypts the connection.
        configuration: limits and timeouts.
        token: says to the directory who registers.
        access: makes the token of its health checks, if it is run here.

    Raises:
        Failure, CogmentError: the one in this process cannot be run.
    """
    if settings is None:
        yield Directory()
        return
    if settings.endpoint is None:
        async with _own_directory(settings, configuration, access) as directory:
            yield directory
        return
    async with open_directory(
        settings.endpoint,
        token=settings.token,
        access_token=token,
        tls=client_tls,
        config=configuration.directory,
        rpc_config=configuration.rpc,
    ) as directory:
        yield Directory(directory)


@asynccontextmanager
async def _own_directory(
    settings: DirectorySettings, configuration: Configuration, access: AccessControl | None
) -> AsyncIterator[Directory]:
    async with opened_directory_server(settings.file, configuration, access) as server:
        services = directory_services(server)
        async with InProcessChannel(services) as channel:
            client = DirectoryClient(
                channel, token=settings.token, config=configuration.directory, name="the server's own directory"
            )
            yield Directory(client, server, services)


@asynccontextmanager
async def opened_directory_server(
    file: str, configuration: Configuration, access: AccessControl | None = None
) -> AsyncIterator[DirectoryServer]:
    """Run a directory, whose health checks have tokens if there is what makes them.

    Raises:
        Failure: there is no folder for its file, or the address of its bucket is wrong.
        CogmentError: another directory has the file, or there is one and it cannot be read.
    """
    path = ""
    if is_object_url(file) or is_database_url(file):
        path = file
    elif file:
        # The file itself is locked and replaced, whichever link names it.
        path = await trio.to_thread.run_sync(os.path.realpath, file)
        if not await trio.Path(path).parent.is_dir():
            raise Failure(f"--persistence_file: {file}: there is no such folder")
    async with DirectoryServer(
        path=path,
        config=configuration.directory_server,
        rpc_config=configuration.rpc,
        outgoing=configuration.outgoing,
        access=access,
    ) as directory:
        yield directory


async def stay_registered(
    directory: Directory,
    settings: DirectorySettings | None,
    servings: Iterable[tuple[Sequence[Service], RunningServer]],
    until: trio.CancelScope,
    *,
    tls: bool = False,
    own_offers: Callable[[int], Sequence[Offer]] | None = None,
    reached_at: Callable[[str], None] | None = None,
) -> None:
    """Keep the services registered until `until` is cancelled, unless the settings forbid it.

    First, a directory in this process forgets the registrations of an earlier, killed process at the same endpoints.

    Args:
        directory: where to register.
        settings: whether, and with which host and properties.
        servings: the services and where they listen.
        until: ends it; the services are deregistered then.
        tls: the services expect it.
        own_offers: gives what is registered, for the first port; None: the services of the platform's own kinds, and
            those of `PROTOCOLS`.
        reached_at: is told the endpoint of the first server.
    """
    if directory.client is None or settings is None:
        return
    ports: dict[ServiceKind, int] = {}
    foreign: list[Offer] = []
    addresses: list[str] = []
    first_port = 0
    for services, serving in servings:
        first_port = first_port or serving.port
        addresses.extend(serving.addresses)
        ports.update(dict.fromkeys(registered_kinds(service.name for service in services), serving.port))
        foreign += [
            Offer(kind=ServiceKind.OTHER, port=serving.port, properties={PROTOCOL: PROTOCOLS[service.name]})
            for service in services
            if service.name in PROTOCOLS
        ]
    find_host = host_finder(addresses)
    with until:
        if directory.server is not None:
            used = frozenset((*ports.values(), *(offer.port for offer in foreign)))
            await _forget_earlier(directory.server, settings, find_host, used)
        if reached_at is not None and settings.auto_register:
            reached_at(str(GrpcEndpoint(settings.host or await find_host(), first_port)))
        own = [Offer(kind=kind, port=ports[kind]) for kind in REGISTERED_BY_SERVERS if kind in ports]
        offers: Sequence[Offer] = [*own, *foreign]
        if own_offers is not None:
            offers = own_offers(first_port)
        if offers and settings.auto_register:
            await keep_registered(
                directory.client,
                offers,
                registration_host=settings.host,
                ssl=tls,
                properties=settings.properties,
                source="" if own_offers is None else SDK,
                find_host=find_host,
            )


async def _forget_earlier(
    server: DirectoryServer, settings: DirectorySettings, find_host: FindHost, ports: Collection[int]
) -> None:
    """Forget what other servers have registered for the endpoints of this one.

    Those servers are gone, as this one listens there now; but health checks would find them alive, as this one answers.
    A server elsewhere that keeps registering with this address comes back by itself.
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
        _log.info("forgot %d registrations of an earlier process at this endpoint", count)
