"""The flags about the directory, remote or in the server's own process, and the settings made of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.records import record
from trio_cogment.cli.options import applied, as_endpoint, as_properties, boolean_option, token_option

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


@record(kw_only=True)
class DirectorySettings:
    """Where the directory is, and how the server is registered there.

    Attributes:
        endpoint: where it is; None: in this process.
        file: where the one in this process keeps the registrations; empty: in memory.
        token: authenticates the server there.
        auto_register: the server registers its services.
        host: under which others reach the server; empty: its own address.
        properties: of the registrations.
    """

    endpoint: GrpcEndpoint | None
    file: str = ""
    token: str = field(default="", repr=False)
    auto_register: bool = True
    host: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


#: The value of `--persistence_file` with which `serve` has no directory.
NO_DIRECTORY = "none"
_FILE = "COGMENT_DIRECTORY_PERSISTENCE_FILE"
_DEFAULT_FILE = ".cogment-directory-data"


class _OneText(click.types.StringParamType):
    """A text that may be given several times; in the environment it is one text, with its blanks."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return [rv]


def _as_directory(ctx: click.Context, param: click.Parameter, value: str | None) -> GrpcEndpoint | None:
    return as_endpoint(ctx, param, value) if value and value.strip() else None


def directory_options(service: str) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds the flags.

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
            help="Properties of the registrations; values are optional; repeatable.",
        ),
        click.option(
            "--directory_registration_host",
            default="",
            metavar="HOST",
            envvar=f"{prefix}_REGISTRATION_HOST",
            show_envvar=True,
            help="Name or address under which others reach this server; the default is its own address.",
        ),
        boolean_option(
            "--directory_auto_register",
            variable=f"{prefix}_AUTO_REGISTER",
            text="Register the services of this server with the directory.",
        ),
        token_option("Authentication token for the directory; only services registered with the same token are found."),
        click.option(
            "--directory_endpoint",
            callback=_as_directory,
            metavar="ENDPOINT",
            envvar="COGMENT_DIRECTORY_ENDPOINT",
            show_envvar=True,
            help="Endpoint of the directory, grpc://host:port.",
        ),
    )
    return lambda command: applied(options, command)


def directory_settings(ctx: click.Context) -> DirectorySettings | None:
    """Collect the settings from `directory_options` and `own_directory_option`; None without a directory or flags."""
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
    # As with the reference, an empty variable does not count as unset here.
    said_elsewhere = ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    return "" if not said_elsewhere and os.environ.get(_FILE) == "" else value


def persistence_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """Return the flag with the file of a directory, with this help."""
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
    """Add where `serve` keeps the registrations of its directory."""
    text = (
        "File, or s3://BUCKET/KEY, in which the directory of this server keeps its registrations; empty: in memory; "
        f"{NO_DIRECTORY}: no directory. With --directory_endpoint there is none either."
    )
    return persistence_option(text)(command)
