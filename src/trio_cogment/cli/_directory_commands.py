"""What `trio-cogment client directory` does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from google.protobuf.json_format import MessageToDict

from trio_cogment._version import __version__
from trio_cogment.api.directory_pb2 import FullServiceData, ServiceEndpoint
from trio_cogment.cli._client_run import channel_to, run_client, show
from trio_cogment.cli._settings import ClientSettings, Failure
from trio_cogment.cli._text import printable
from trio_cogment.config import DirectoryConfig, RpcConfig
from trio_cogment.discovery import DirectoryClient
from trio_cogment.endpoints import CLIENT_HOST, ClientEndpoint, GrpcEndpoint
from trio_cogment.errors import UnavailableError
from trio_cogment.services import REGISTRATION_SOURCE, VERSION, ServiceKind, kind_of_type

#: What the directory is told about who registers.
_SOURCE = "Cogment-Command_Line"
#: How long to leave a directory that cannot be asked yet in peace.
_PAUSE_SECONDS = 0.5
_RPC = RpcConfig(connect_backoff_initial_seconds=0.1, connect_backoff_max_seconds=_PAUSE_SECONDS)


@asynccontextmanager
async def asking(settings: ClientSettings, endpoint: str, token: str) -> AsyncIterator[DirectoryClient]:
    """Connect to a directory, for as long as the settings allow.

    Raises:
        Failure: the endpoint is none.
    """
    config = DirectoryConfig(
        inquiry_timeout_seconds=settings.timeout_seconds, registration_timeout_seconds=settings.timeout_seconds
    )
    async with channel_to(settings, endpoint, flag="--directory_endpoint", config=_RPC) as channel:
        yield DirectoryClient(channel, token=token, config=config, name=f"the directory at {endpoint}")


def endpoint_of(protocol: str, host: str, port: int) -> GrpcEndpoint | ClientEndpoint:
    """Return where a service is, by its flags.

    Raises:
        Failure: nobody can be there.
    """
    if protocol == "cogment":
        if host not in ("", CLIENT_HOST):
            raise Failure(f"--host: with --protocol=cogment it is {CLIENT_HOST}, or left out; got {host!r}")
        return ClientEndpoint()
    if not host:
        raise Failure("--host: expected a name or an address")
    if not port:
        raise Failure("--port: expected 1 to 65535")
    return GrpcEndpoint(host, port)


def register_service(
    settings: ClientSettings,
    where: str,
    token: str,
    endpoint: GrpcEndpoint | ClientEndpoint,
    *,
    kind: str,
    properties: Mapping[str, str],
    ssl: bool,
    permanent: bool,
) -> None:
    """Register a service, and print its number and its secret."""
    if not kind:
        raise Failure(f"--type: expected one of {', '.join(kind.value for kind in ServiceKind)}")

    async def ask() -> tuple[int, str]:
        async with asking(settings, where, token) as directory:
            told = {VERSION: __version__, REGISTRATION_SOURCE: _SOURCE, **properties}
            made = await directory.register(ServiceKind(kind), endpoint, told, ssl=ssl, permanent=permanent)
        return made.service_id, made.secret

    service_id, secret = run_client(settings, ask)
    data = {"serviceId": str(service_id), "secret": secret}
    show(settings, f"Service ID [{service_id}] \tSecret [{secret}]", data)


def deregister_service(settings: ClientSettings, where: str, token: str, service_id: int, secret: str) -> None:
    """Take a registration back; there is nothing to say then."""
    from trio_cogment.discovery import Registration

    async def ask() -> None:
        async with asking(settings, where, token) as directory:
            await directory.deregister(Registration(service_id, secret))

    run_client(settings, ask)


def show_services(
    settings: ClientSettings, where: str, token: str, *, service_id: int, kind: str, properties: Mapping[str, str]
) -> None:
    """Print who is registered."""
    if service_id and (kind or properties):
        raise Failure("--service_id: expected this, or --type and --properties, but not both")

    async def ask() -> list[FullServiceData]:
        async with asking(settings, where, token) as directory:
            return await directory.inquire(kind_of(kind), properties, service_id=service_id)

    services = run_client(settings, ask)
    lines = [f"[{len(services)}] Services found"]
    for service in services:
        lines += _lines(service)
    show(settings, "\n".join(lines), {"services": [as_json(service) for service in services]})


def _lines(service: FullServiceData) -> list[str]:
    endpoint, ssl = endpoint_text(service.endpoint)
    properties = service.details.properties
    return [
        f"Service ID [{service.service_id}]",
        f"\tEndpoint [{printable(endpoint)}] SSL required [{_truth(ssl)}]",
        f"\tType [{type_text(service.details.type)}]",
        f"\tPermanent [{_truth(service.permanent)}]",
        *("\t" + printable(f"[{name}] = [{properties[name]}]") for name in sorted(properties)),
    ]


def wait_until_ready(settings: ClientSettings, where: str, token: str) -> None:
    """Return when the directory answers."""

    async def ask() -> None:
        async with asking(settings, where, token) as directory:
            while True:
                try:
                    # As the reference does: nothing has this number, and so nothing is looked at.
                    await directory.look_up(0)
                except UnavailableError:
                    await trio.sleep(_PAUSE_SECONDS)
                else:
                    return

    run_client(settings, ask)


# What a service looks like


def kind_of(text: str) -> ServiceKind | None:
    """Return a kind of service; None for an empty text."""
    return ServiceKind(text) if text else None


def type_text(number: int) -> str:
    """Return what the type of a service is called, on the command line and in endpoints."""
    kind = kind_of_type(number)
    return "<unknown>" if kind is None else kind.value


def endpoint_text(endpoint: ServiceEndpoint) -> tuple[str, bool]:
    """Return where a service is, and whether it expects TLS."""
    ssl = endpoint.protocol == ServiceEndpoint.GRPC_SSL
    if ssl or endpoint.protocol == ServiceEndpoint.GRPC:
        return str(GrpcEndpoint(endpoint.host, endpoint.port)), ssl
    scheme = "cogment" if endpoint.protocol == ServiceEndpoint.COGMENT else "<unknown>"
    return f"{scheme}://{endpoint.host}" + (f":{endpoint.port}" if endpoint.port else ""), ssl


def as_json(service: FullServiceData) -> dict[str, Any]:
    """Return what a directory says about a service, as protobuf's JSON."""
    return dict(MessageToDict(service))


def _truth(value: bool) -> str:
    return "true" if value else "false"
