"""Shared parts of the client's commands: their flags, their time limit, and how results are printed.

Each group and each command takes `client_options`, so that these flags may stand anywhere on the line, as with the
reference; `client_settings` collects them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.records import record
from trio_cogment.cli.access_token import access_token, access_token_options
from trio_cogment.cli.errors import cause_of, failure_of
from trio_cogment.cli.options import applied, json_option, nearest, timeout_option
from trio_cogment.cli.text import print_json, printable
from trio_cogment.cli.tls import TlsFiles, load_tls, tls_files, tls_options
from trio_cogment.cli.variables import warnings

if TYPE_CHECKING:
    from trio_cogment.base.config import RpcConfig
    from trio_cogment.rpc import Channel

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_Result = TypeVar("_Result")

#: What stands for standard input and output.
_STANDARD = Path("-")


@record(kw_only=True)
class ClientSettings:
    """The settings of a command of the client.

    Attributes:
        output: `text` or `json`.
        timeout_seconds: how long to wait for a service, and for its answer.
        tls: every call is encrypted.
        token: says who calls; empty: nobody does.
    """

    output: str = "text"
    timeout_seconds: float = 30.0
    tls: TlsFiles | None = None
    token: str = field(default="", repr=False)


def client_options(command: _Decorated) -> _Decorated:
    """Add the flags of every command of the client."""
    options = (
        access_token_options,
        tls_options,
        timeout_option("a service, and for its answer"),
        click.option(
            "--console_output",
            type=click.Choice(["text", "json"]),
            default="text",
            envvar="COGMENT_CLIENT_CONSOLE_OUTPUT",
            show_default=True,
            show_envvar=True,
            help="Format of the output.",
        ),
        json_option("The same as --console_output=json."),
    )
    return applied(options, command)


def client_settings(ctx: click.Context) -> ClientSettings:
    """Collect the settings from the flags of `client_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    return ClientSettings(
        output="json" if nearest(ctx, "as_json") else nearest(ctx, "console_output"),
        timeout_seconds=nearest(ctx, "timeout"),
        tls=tls_files(ctx),
        token=access_token(ctx),
    )


def file_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """Return the flag with a file to read or write, with this help."""
    return click.option("--file", type=click.Path(path_type=Path), default=_STANDARD, metavar="PATH", help=text)


def as_file(path: Path) -> Path | None:
    """Return the value of the flag of `file_option`; None: standard input or output."""
    # As in the reference's documents, an empty path counts as none.
    return None if path in (_STANDARD, Path()) else path


@cache
def _warn_of_variables() -> None:
    """Warn of variables that are misspelt: once, however often a command calls."""
    for text in warnings(os.environ):
        click.echo(f"trio-cogment: {printable(text)}", err=True)


def run_client(function: Callable[..., Awaitable[_Result]], *args: Any) -> _Result:
    """Run a function with Trio, and return what it returns; the function itself limits its waits.

    Args:
        function: what to run, with `args`.
        args: its arguments.

    Raises:
        Failure: it ended with an expected error.
        BrokenPipeError: the reader of the output has gone.
        KeyboardInterrupt: it was interrupted.
    """
    import trio

    _warn_of_variables()

    async def run() -> _Result:
        return await function(*args)

    try:
        return trio.run(run)
    except Exception as error:
        failure = failure_of(error)
        if failure is not None:
            raise failure from None
        cause = cause_of(error)
        if isinstance(cause, BrokenPipeError):
            raise cause from None
        raise
    except BaseExceptionGroup as group:  # Control-C is raised in any of the nurseries
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        raise


def channel_to(settings: ClientSettings, endpoint: GrpcEndpoint, *, config: RpcConfig | None = None) -> Channel:
    """Return a channel to a server, to be opened with `async with`.

    Args:
        settings: whether it is encrypted, and who calls.
        endpoint: where the server is.
        config: limits and windows.

    Raises:
        Failure: the files of TLS cannot be used.
    """
    from trio_cogment.rpc import Channel

    tls = None if settings.tls is None else load_tls(settings.tls).client
    return Channel(endpoint.host, endpoint.port, tls=tls, config=config, token=settings.token)


def show(settings: ClientSettings, text: str, data: Any) -> None:
    """Print a result: as text for people, or `data` as JSON on one line."""
    if settings.output == "json":
        print_json(data)
    else:
        click.echo(text)
