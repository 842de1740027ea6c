"""`trio-cogment client directory`: registers, deregisters and finds services; and how a service is described."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment._version import __version__
from trio_cogment.base.config import DirectoryConfig
from trio_cogment.base.endpoints import CLIENT_HOST, ClientEndpoint, GrpcEndpoint
from trio_cogment.base.services import REGISTRATION_SOURCE, VERSION, ServiceKind, kind_of_type
from trio_cogment.cli.client.common import (
    ClientSettings,
    client_options,
    client_settings,
    run_client,
    show,
)
from trio_cogment.cli.client.reaching import Places, places_option, reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import (
    Group,
    applied,
    as_endpoint,
    as_properties,
    boolean_option,
    given_on_the_line,
    nearest,
    port_option,
    token_option,
)
from trio_cogment.cli.text import fields_of, printable

if TYPE_CHECKING:
    from trio_cogment.api.directory_pb2 import FullServiceData, ServiceEndpoint
    from trio_cogment.rpc import Channel
    from trio_cogment.servers.discovery import DirectoryClient

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_KINDS = [kind.value for kind in ServiceKind]
_MAX_ID = 2**64 - 1
#: Old names of flags, and what they are called now.
_OLD_NAMES = {"endpoint": "directory_endpoint", "auth_token": "directory_authentication_token"}
#: The source of a registration, as the directory stores it.
_SOURCE = "Cogment-Command_Line"


# Flags


def directory_options(command: _Decorated) -> _Decorated:
    """Add the endpoint of the directory, and the token for it."""
    options = (
        token_option("Authentication token for the directory."),
        places_option(
            "--directory_endpoint",
            ServiceKind.DIRECTORY,
            variable="COGMENT_DIRECTORY_ENDPOINT",
            text="Endpoint of the directory.",
        ),
    )
    return applied(options, command)


def type_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """Return the flag with the type of a service, with this help; an empty one counts as none."""
    help_text = f"{text} One of {', '.join(_KINDS)}."
    return click.option("--type", "kind", type=click.Choice([*_KINDS, ""]), default="", metavar="TYPE", help=help_text)


def _properties_option(text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        "--properties", multiple=True, callback=as_properties, metavar="NAME=VALUE,...", help=f"{text}; repeatable."
    )


def _as_place(ctx: click.Context, param: click.Parameter, value: str | None) -> Places | None:
    endpoint = as_endpoint(ctx, param, value)
    return None if endpoint is None else [endpoint]


def _command_options(command: _Decorated) -> _Decorated:
    options = (
        client_options,
        click.option("--endpoint", callback=_as_place, default=None, hidden=True),
        click.option("--auth_token", default=None, hidden=True),
        directory_options,
    )
    return applied(options, command)


def _places_and_token(ctx: click.Context) -> tuple[Places, str]:
    chosen = {}
    for old, name in _OLD_NAMES.items():
        chosen[name] = nearest(ctx, name)
        if nearest(ctx, old) is not None:
            click.echo(f"trio-cogment: --{old} is deprecated; it is --{name} now", err=True)
            if not given_on_the_line(ctx, name):
                chosen[name] = nearest(ctx, old)
    return chosen["directory_endpoint"], chosen["directory_authentication_token"]


@asynccontextmanager
async def open_directory_client(settings: ClientSettings, places: Places, token: str) -> AsyncIterator[DirectoryClient]:
    """Connect to a directory, within the time limit of the settings.

    Raises:
        Failure: it cannot be reached, or did not answer in time.
    """
    async with reached(settings, ServiceKind.DIRECTORY, places) as channel:
        yield directory_client(settings, channel, token)


def directory_client(settings: ClientSettings, channel: Channel, token: str) -> DirectoryClient:
    """Return a client of the directory at the other end of a channel, with the time limit of the settings."""
    from trio_cogment.servers.discovery import DirectoryClient

    config = DirectoryConfig(
        inquiry_timeout_seconds=settings.timeout_seconds, registration_timeout_seconds=settings.timeout_seconds
    )
    return DirectoryClient(channel, token=token, config=config, name=f"the directory at {channel.authority}")


# Commands


@click.group(cls=Group)
@_command_options
def directory(**_options: Any) -> None:
    """Call a directory."""


@directory.command()
@boolean_option("--permanent", text="Keep the registration without health checks.", default="false")
@_properties_option("Properties by which it can be found")
@type_option("Type of the service; required.")
@boolean_option("--ssl_required", text="The service expects TLS.", default="false")
@click.option(
    "--protocol",
    type=click.Choice(["grpc", "cogment"]),
    default="grpc",
    show_default=True,
    help="Protocol of the service; cogment: a client actor, which connects to the orchestrator.",
)
@port_option("--port", default=0, text="Port of the service.")
@click.option("--host", default="", metavar="HOST", help="Name or address under which others reach the service.")
@_command_options
@click.pass_context
def register(
    ctx: click.Context,
    /,
    host: str,
    port: int,
    protocol: str,
    kind: str,
    properties: dict[str, str],
    ssl_required: bool,
    permanent: bool,
    **_options: Any,
) -> None:
    """Register a service, and print its id and its secret."""
    settings, (where, token) = client_settings(ctx), _places_and_token(ctx)
    endpoint = _endpoint_of(protocol, host, port)
    if not kind:
        raise Failure(f"--type: expected one of {', '.join(_KINDS)}")

    async def ask() -> tuple[int, str]:
        async with open_directory_client(settings, where, token) as directory:
            told = {VERSION: __version__, REGISTRATION_SOURCE: _SOURCE, **properties}
            made = await directory.register(ServiceKind(kind), endpoint, told, ssl=ssl_required, permanent=permanent)
        return made.service_id, made.secret

    service_id, secret = run_client(ask)
    data = {"serviceId": str(service_id), "secret": secret}
    show(settings, f"Service ID [{service_id}] \tSecret [{secret}]", data)


def _endpoint_of(protocol: str, host: str, port: int) -> GrpcEndpoint | ClientEndpoint:
    """Return the endpoint of a service, from its flags.

    Raises:
        Failure: they are not an endpoint.
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


@directory.command()
@click.option("--secret", required=True, help="Secret that the registration returned.")
@click.option("--service_id", type=click.IntRange(0, _MAX_ID), required=True, help="Id that the registration returned.")
@_command_options
@click.pass_context
def deregister(ctx: click.Context, /, service_id: int, secret: str, **_options: Any) -> None:
    """Deregister a service."""
    from trio_cogment.servers.discovery import Registration

    settings, (where, token) = client_settings(ctx), _places_and_token(ctx)

    async def ask() -> None:
        async with open_directory_client(settings, where, token) as directory:
            await directory.deregister(Registration(service_id, secret))

    run_client(ask)


@directory.command()
@_properties_option("Show only services that have all of these properties")
@type_option("Show only services of this type; the default is all types.")
@click.option(
    "--service_id",
    type=click.IntRange(0, _MAX_ID),
    default=0,
    help="Show only the service with this id; 0, the default, is not an id.",
)
@_command_options
@click.pass_context
def inquire(ctx: click.Context, /, service_id: int, kind: str, properties: dict[str, str], **_options: Any) -> None:
    """Show registered services."""
    settings, (where, token) = client_settings(ctx), _places_and_token(ctx)
    if service_id and (kind or properties):
        raise Failure("--service_id: expected this, or --type and --properties, but not both")

    async def ask() -> list[FullServiceData]:
        async with open_directory_client(settings, where, token) as directory:
            return await directory.inquire(kind_of(kind), properties, service_id=service_id)

    services = run_client(ask)
    lines = [f"[{len(services)}] Services found"]
    for service in services:
        lines += _lines(service)
    show(settings, "\n".join(lines), {"services": [fields_of(service) for service in services]})


@directory.command("WaitForReady")
@_command_options
@click.pass_context
def wait_for_ready(ctx: click.Context, /, **_options: Any) -> None:
    """Wait until the directory answers.

    Exit code 1 if it does not within --timeout.
    """
    settings, (where, token) = client_settings(ctx), _places_and_token(ctx)

    async def ask() -> None:
        async with open_directory_client(settings, where, token) as directory:
            # As the reference does: no service has this id, so there is no health check.
            await directory.look_up(0)

    run_client(ask)


# How a service is described


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


def kind_of(text: str) -> ServiceKind | None:
    """Return a kind of service; None for an empty text."""
    return ServiceKind(text) if text else None


def type_text(number: int) -> str:
    """Return the name of a service's type, as in flags and endpoints."""
    kind = kind_of_type(number)
    return "<unknown>" if kind is None else kind.value


def endpoint_text(endpoint: ServiceEndpoint) -> tuple[str, bool]:
    """Return the endpoint of a service, and whether it expects TLS."""
    from trio_cogment.api.directory_pb2 import ServiceEndpoint

    ssl = endpoint.protocol == ServiceEndpoint.GRPC_SSL
    if ssl or endpoint.protocol == ServiceEndpoint.GRPC:
        return str(GrpcEndpoint(endpoint.host, endpoint.port)), ssl
    scheme = "cogment" if endpoint.protocol == ServiceEndpoint.COGMENT else "<unknown>"
    return f"{scheme}://{endpoint.host}" + (f":{endpoint.port}" if endpoint.port else ""), ssl


def _truth(value: bool) -> str:
    return "true" if value else "false"
