"""Running a command of the client: one Trio run, bounded in time, whose failures are one line."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click
import trio

from trio_cogment.cli._failures import cause_of, failure_of
from trio_cogment.cli._settings import ClientSettings, Failure
from trio_cogment.cli._text import printable
from trio_cogment.cli._tls import load_tls
from trio_cogment.config import RpcConfig
from trio_cogment.endpoints import GrpcEndpoint, parse_endpoint
from trio_cogment.errors import EndpointError
from trio_cogment.rpc import Channel

_Result = TypeVar("_Result")


def run_client(
    settings: ClientSettings, function: Callable[..., Awaitable[_Result]], *args: Any, bounded: bool = True
) -> _Result:
    """Run a function to its end, and return what it returns.

    Args:
        settings: how long it may take.
        function: what to run, with `args`.
        args: its arguments.
        bounded: without it, the function itself has to see that nobody waits longer than the settings say: a transfer
            that goes on takes as long as it takes.

    Raises:
        Failure: it took too long, or ended with something that may be told.
        BrokenPipeError: nobody reads our output any more.
        KeyboardInterrupt: it was interrupted.
    """

    async def run() -> _Result:
        with trio.CancelScope() as scope:
            if bounded:
                scope.deadline = trio.current_time() + settings.timeout_seconds
            return await function(*args)
        raise Failure(f"no answer within {settings.timeout_seconds:g} s (--timeout)")

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
    except BaseExceptionGroup as group:  # Control-C lands in whichever nursery runs
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        raise


def channel_to(settings: ClientSettings, endpoint: str, *, flag: str, config: RpcConfig | None = None) -> Channel:
    """Return a channel to `grpc://host:port`, to be opened with `async with`.

    Args:
        settings: whether it is encrypted.
        endpoint: where.
        flag: which flag said so, for errors.
        config: limits and windows.

    Raises:
        Failure: the endpoint is something else, or the files of TLS cannot be used.
    """
    try:
        where = parse_endpoint(endpoint, field_name=flag)
    except EndpointError as error:
        raise Failure(str(error)) from None
    if not isinstance(where, GrpcEndpoint):
        raise Failure(f"{flag}: {endpoint!r}: expected grpc://host:port")
    tls = None if settings.tls is None else load_tls(settings.tls).client
    return Channel(where.host, where.port, tls=tls, config=config)


def show(settings: ClientSettings, text: str, data: Any) -> None:
    """Print a result: as text for people, or `data` as JSON on one line."""
    click.echo(json.dumps(data, ensure_ascii=False) if settings.output == "json" else text)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as lines, each column as wide as its widest cell; whatever is in them, a row is a line."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
