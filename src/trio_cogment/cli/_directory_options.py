"""The flags about the directory, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from trio_cogment.cli._flags import applied, boolean_option
from trio_cogment.errors import EndpointError

if TYPE_CHECKING:
    from trio_cogment.endpoints import GrpcEndpoint

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """Where the directory is, and how we are registered there.

    Attributes:
        endpoint: where it is; None: in this process.
        file: where the one in this process keeps the registrations; empty: in memory.
        token: who we are there.
        auto_register: we register ourselves.
        host: what others shall call us; empty: our own address.
        properties: of our registrations.
    """

    endpoint: GrpcEndpoint | None
    file: str = ""
    token: str = field(default="", repr=False)
    auto_register: bool = True
    host: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


#: What `--persistence_file` of a server of everything says when it shall have no directory.
NO_DIRECTORY = "none"
_FILE = "COGMENT_DIRECTORY_PERSISTENCE_FILE"
_DEFAULT_FILE = ".cogment-directory-data"


class _OneText(click.types.StringParamType):
    """A text that may be given several times, but is one text in the environment, blanks and all."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return [rv]


def _endpoint(_ctx: click.Context, _param: click.Parameter, value: str | None) -> GrpcEndpoint | None:
    if value is None or not value.strip():
        return None
    # It imports Trio, which `--help` can do without.
    from trio_cogment.discovery import directory_endpoint

    try:
        return directory_endpoint(value)
    except EndpointError:
        raise click.BadParameter(f"expected grpc://host:port, got {value!r}") from None


def _as_token(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not all("!" <= character <= "~" for character in value):
        raise click.BadParameter("expected printable ASCII without blanks")  # and the rest is nobody's business
    return value


def token_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """Return what adds who we are to a directory, with this help."""
    return click.option(
        "--directory_authentication_token",
        default="",
        callback=_as_token,
        metavar="TOKEN",
        envvar="COGMENT_DIRECTORY_AUTHENTICATION_TOKEN",
        show_envvar=True,
        help=text,
    )


def as_properties(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return `name=value,name` as a dictionary; a value left out is empty."""
    found = {}
    for item in (item.strip() for value in values for item in value.split(",")):
        name, _, value = (part.strip() for part in item.partition("="))
        if item and (not name or "=" in value):
            raise click.BadParameter(f"expected name=value,name,..., got {item!r}")
        if item:
            found[name] = value
    return found


def directory_options(service: str) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the flags.

    Args:
        service: `ORCHESTRATOR`, for example: the variables of its registrations have this in their names.
    """
    prefix = f"COGMENT_{service}_DIRECTORY"
    options = (
        click.option(
            "--directory_registration_properties",
            type=_OneText(),
            multiple=True,
            callback=as_properties,
            metavar="NAME=VALUE,...",
            envvar=f"{prefix}_REGISTRATION_PROPERTIES",
            show_envvar=True,
            help="Properties of our registrations; values are optional; repeatable.",
        ),
        click.option(
            "--directory_registration_host",
            default="",
            metavar="HOST",
            envvar=f"{prefix}_REGISTRATION_HOST",
            show_envvar=True,
            help="Name or address that others shall reach us by; the default is our own address.",
        ),
        boolean_option(
            "--directory_auto_register",
            variable=f"{prefix}_AUTO_REGISTER",
            text="Register our services with the directory.",
        ),
        token_option("Who we are to the directory: only what was registered with the same token is found."),
        click.option(
            "--directory_endpoint",
            callback=_endpoint,
            metavar="ENDPOINT",
            envvar="COGMENT_DIRECTORY_ENDPOINT",
            show_envvar=True,
            help="grpc://host:port of the directory.",
        ),
    )
    return partial(applied, options)


def directory_settings(ctx: click.Context) -> DirectorySettings | None:
    """Collect what `directory_options` found, and `own_directory_option`; None without a directory, or these flags."""
    given = ctx.params
    endpoint, file = given.get("directory_endpoint"), given.get("persistence_file", NO_DIRECTORY)
    if endpoint is None and ("directory_endpoint" not in given or file == NO_DIRECTORY):
        return None
    return DirectorySettings(
        endpoint=endpoint,
        file="" if file == NO_DIRECTORY else file,
        token=given["directory_authentication_token"],
        auto_register=given["directory_auto_register"],
        host=given["directory_registration_host"].strip(),
        properties=given["directory_registration_properties"],
    )


def _file(ctx: click.Context, param: click.Parameter, value: str) -> str:
    # As with the reference, an empty variable says something here.
    said_elsewhere = ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    return "" if not said_elsewhere and os.environ.get(_FILE) == "" else value


def persistence_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the file of a directory of ours, with this help."""
    return click.option(
        "--persistence_file",
        default=_DEFAULT_FILE,
        callback=_file,
        metavar="PATH",
        envvar=_FILE,
        show_default=True,
        show_envvar=True,
        help=text,
    )


def own_directory_option(command: _Decorated) -> _Decorated:
    """Add where a server of everything has its own directory."""
    text = (
        f"File in which our directory keeps its registrations; empty: in memory; {NO_DIRECTORY}: we have no directory. "
        "Nor have we if --directory_endpoint says where another one is."
    )
    return persistence_option(text)(command)
