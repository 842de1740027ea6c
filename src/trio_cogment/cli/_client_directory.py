"""`trio-cogment client directory`: the flags of its commands. What they do is in `_directory_commands`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from trio_cogment.cli._client import client_options, client_settings
from trio_cogment.cli._directory_options import as_properties, token_option
from trio_cogment.cli._flags import applied, boolean_option
from trio_cogment.cli._groups import Group
from trio_cogment.cli._options import as_port, given_on_the_line, nearest
from trio_cogment.services import ServiceKind, default_address

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_MOST_ID = 2**64 - 1
#: Old names, and what they are called now.
_OLD_NAMES = {"endpoint": "directory_endpoint", "auth_token": "directory_authentication_token"}


def where_options(command: _Decorated) -> _Decorated:
    """Add where a directory is, and who asks."""
    options = (
        token_option("Who we are to the directory."),
        click.option(
            "--directory_endpoint",
            default=default_address(ServiceKind.DIRECTORY),
            metavar="ENDPOINT",
            envvar="COGMENT_DIRECTORY_ENDPOINT",
            show_default=True,
            show_envvar=True,
            help="Where the directory is.",
        ),
    )
    return applied(options, command)


def type_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the type of a service, with this help; an empty one is none."""
    return click.option(
        "--type", "kind", type=click.Choice([*(kind.value for kind in ServiceKind), ""]), default="", help=text
    )


def _properties_option(text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        "--properties", multiple=True, callback=as_properties, metavar="NAME=VALUE,...", help=f"{text}; repeatable."
    )


def _directory_options(command: _Decorated) -> _Decorated:
    old = (click.option(f"--{name}", default=None, hidden=True) for name in _OLD_NAMES)
    return applied((client_options, *old, where_options), command)


def _options_of(ctx: click.Context) -> tuple[Any, str, str]:
    chosen = {}
    for old, name in _OLD_NAMES.items():
        chosen[name] = nearest(ctx, name)
        if nearest(ctx, old) is not None:
            click.echo(f"trio-cogment: --{old} is deprecated; it is --{name} now", err=True)
            if not given_on_the_line(ctx, name):
                chosen[name] = nearest(ctx, old)
    return client_settings(ctx), chosen["directory_endpoint"], chosen["directory_authentication_token"]


@click.group(cls=Group)
@_directory_options
def directory(**_options: Any) -> None:
    """Ask a directory."""


@directory.command()
@boolean_option("--permanent", text="It is kept without health checks.", default="false")
@_properties_option("What it can be found by")
@type_option("What it is; needed.")
@boolean_option("--ssl_required", text="It expects TLS.", default="false")
@click.option(
    "--protocol",
    type=click.Choice(["grpc", "cogment"]),
    default="grpc",
    show_default=True,
    help="How it is reached; cogment: it is an actor that comes to the orchestrator.",
)
@click.option("--port", callback=as_port, default="0", metavar="PORT", help="Where it listens.")
@click.option("--host", default="", metavar="HOST", help="Where others reach it.")
@_directory_options
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
    """Register a service."""
    from trio_cogment.cli._directory_commands import endpoint_of, register_service

    register_service(
        *_options_of(ctx),
        endpoint_of(protocol, host, port),
        kind=kind,
        properties=properties,
        ssl=ssl_required,
        permanent=permanent,
    )


@directory.command()
@click.option("--secret", required=True, help="What its registration has returned.")
@click.option("--service_id", type=click.IntRange(0, _MOST_ID), required=True, help="The number of its registration.")
@_directory_options
@click.pass_context
def deregister(ctx: click.Context, /, service_id: int, secret: str, **_options: Any) -> None:
    """Take a registration back."""
    from trio_cogment.cli._directory_commands import deregister_service

    deregister_service(*_options_of(ctx), service_id, secret)


@directory.command()
@_properties_option("What it must have")
@type_option("What it is; without it: anything.")
@click.option("--service_id", type=click.IntRange(0, _MOST_ID), default=0, help="The number of one registration.")
@_directory_options
@click.pass_context
def inquire(ctx: click.Context, /, service_id: int, kind: str, properties: dict[str, str], **_options: Any) -> None:
    """Show the services that are registered."""
    from trio_cogment.cli._directory_commands import show_services

    show_services(*_options_of(ctx), service_id=service_id, kind=kind, properties=properties)


@directory.command("WaitForReady")
@_directory_options
@click.pass_context
def wait_for_ready(ctx: click.Context, /, **_options: Any) -> None:
    """Wait until the directory answers; exit code 1 if it does not in time."""
    from trio_cogment.cli._directory_commands import wait_until_ready

    wait_until_ready(*_options_of(ctx))
