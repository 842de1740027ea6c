"""Flags of gateways: where their profile is, and the orchestrator that they are in front of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.base.endpoints import DISCOVER, DiscoverEndpoint, parse_server_endpoint
from trio_cogment.base.errors import EndpointError
from trio_cogment.base.services import ServiceKind, default_address
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

#: Ours, and that of the reference's web proxy.
ORCHESTRATOR_FLAGS = ("--orchestrator", "--orchestrator_endpoint")


def profile_option(flag: str, service: str, *, text: str, default: Path | None) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the flag of a profile.

    Args:
        flag: with its dashes.
        service: the part of the environment variable's name that says which gateway it is.
        text: the help.
        default: the file.
    """
    return click.option(
        flag,
        type=FilePath(path_type=Path),
        default=default,
        metavar="PATH",
        envvar=f"COGMENT_{service}_PROFILE",
        show_default=default is not None,
        show_envvar=True,
        help=text,
    )


def orchestrator_option(
    service: str, *, flag: str = "--orchestrator", variable: str = ""
) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the flag of the orchestrator; `orchestrator_of` reads it.

    Args:
        service: as of `profile_option`.
        flag: its name; it has both of `ORCHESTRATOR_FLAGS`.
        variable: its environment variable, where that does not follow from the service.
    """
    return click.option(
        flag,
        *(other for other in ORCHESTRATOR_FLAGS if other != flag),
        flag.removeprefix("--"),
        callback=_as_orchestrator,
        default=None,
        metavar="ENDPOINT",
        envvar=variable or f"COGMENT_{service}_ORCHESTRATOR",
        show_envvar=True,
        help=f"Where trials are started: grpc://host:port, or {DISCOVER}, which is the default with "
        f"--directory_endpoint; without it, the default is {default_address(ServiceKind.LIFECYCLE)}.",
    )


def _as_orchestrator(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_server_endpoint(value, discovery=True, field_name="")
        except EndpointError as error:
            raise click.BadParameter(str(error)) from None
    return value


def orchestrator_of(ctx: click.Context, *, has_directory: bool, flag: str = "--orchestrator") -> str:
    """Return the endpoint of the orchestrator.

    Args:
        ctx: has the flags.
        has_directory: there is one to ask.
        flag: the name of the flag.

    Raises:
        Failure: it is to be discovered, and there is no directory.
    """
    endpoint: str = ctx.params[flag.removeprefix("--")] or (
        DISCOVER if has_directory else default_address(ServiceKind.LIFECYCLE)
    )
    found = parse_server_endpoint(endpoint, discovery=True, field_name=flag)
    if isinstance(found, DiscoverEndpoint) and not has_directory:
        raise Failure(f"{flag}: {endpoint}: discovery needs a directory (--directory_endpoint)")
    return endpoint
