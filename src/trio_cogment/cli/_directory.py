"""A server's dealings with the directory: asking it, and being registered there while it serves."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import trio
from purerpc import Service

from trio_cogment.cli._directory_options import DirectorySettings
from trio_cogment.cli._settings import Configuration
from trio_cogment.directory import DirectoryClient, Offer, ServiceKind, host_finder, keep_registered, open_directory
from trio_cogment.rpc import Serving

#: What of a server is registered, in this order; a directory is in none.
_REGISTERED = {
    "cogmentAPI.ClientActorSP": ServiceKind.CLIENT_ACTOR,
    "cogmentAPI.TrialLifecycleSP": ServiceKind.LIFECYCLE,
    "cogmentAPI.TrialDatastoreSP": ServiceKind.DATASTORE,
    "cogmentAPI.DatalogSP": ServiceKind.DATALOG,
    "cogmentAPI.ModelRegistrySP": ServiceKind.MODEL_REGISTRY,
}


@asynccontextmanager
async def opened_directory(
    settings: DirectorySettings | None,
    *,
    client_tls: ssl.SSLContext | None,
    configuration: Configuration,
) -> AsyncIterator[DirectoryClient | None]:
    """Connect to the directory, if there is one; whether it can be reached is not looked at yet."""
    if settings is None:
        yield None
        return
    async with open_directory(
        settings.endpoint,
        token=settings.token,
        tls=client_tls,
        config=configuration.directory,
        rpc_config=configuration.rpc,
    ) as directory:
        yield directory


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
