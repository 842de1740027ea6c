"""What the commands about runs have in common: their flags, the client, and how messages are printed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.cli.access_token import access_token, access_token_options
from trio_cogment.cli.client.common import ClientSettings, channel_to, run_client
from trio_cogment.cli.options import applied, as_endpoint, json_option, timeout_option
from trio_cogment.cli.services.trainer import DEFAULT_PORT
from trio_cogment.cli.tls import tls_files, tls_options
from trio_cogment.config import RpcConfig
from trio_cogment.endpoints import GrpcEndpoint

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from trio_cogment.trainer.client import TrainerClient

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_Result = TypeVar("_Result")

#: A list of all runs is one message; the published client takes as much.
_RPC = RpcConfig(max_receive_message_bytes=64 * 1024 * 1024)


def run_options(command: _Decorated) -> _Decorated:
    """Add the flags of every command about runs."""
    options = (
        access_token_options,
        tls_options,
        timeout_option("an answer"),
        click.option(
            "--secret",
            default="",
            envvar="COGMENT_TRAINER_CONTROLLER_SECRET",
            show_envvar=True,
            help="What a trainer asks of those who pause, resume and throttle runs.",
        ),
        click.option(
            "--trainer",
            callback=as_endpoint,
            default=f"grpc://127.0.0.1:{DEFAULT_PORT}",
            metavar="ENDPOINT",
            envvar="COGMENT_TRAINER_ENDPOINT",
            show_default=True,
            show_envvar=True,
            help="Where the trainer is.",
        ),
        json_option("Print results as JSON, one on each line."),
    )
    return applied(options, command)


def with_client(ctx: click.Context, function: Callable[[TrainerClient], Any]) -> Any:
    """Run an asynchronous function with a client of the trainer that the flags name; return what it returns.

    Raises:
        Failure: it ended with an expected error.
    """
    settings = ClientSettings(timeout_seconds=ctx.params["timeout"], tls=tls_files(ctx), token=access_token(ctx))
    endpoint: GrpcEndpoint = ctx.params["trainer"]

    async def run() -> Any:
        async with _opened(settings, endpoint, ctx.params["secret"]) as client:
            return await function(client)

    return run_client(run)


@asynccontextmanager
async def _opened(settings: ClientSettings, endpoint: GrpcEndpoint, secret: str) -> AsyncIterator[TrainerClient]:
    from trio_cogment.trainer.client import TrainerClient

    async with channel_to(settings, endpoint, config=_RPC) as channel:
        yield TrainerClient(channel, secret=secret, timeout_seconds=settings.timeout_seconds)


def data_of(message: Message) -> dict[str, Any]:
    """Return a message as JSON has it, with the names of its fields; 64-bit integers are numbers."""
    from google.protobuf.json_format import MessageToDict

    found = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    for name in message.DESCRIPTOR.fields_by_name:
        value = getattr(message, name)
        if isinstance(value, int) and not isinstance(value, bool) and isinstance(found.get(name), str):
            field = message.DESCRIPTOR.fields_by_name[name]
            found[name] = found[name] if field.enum_type is not None else value
    return found


def terminal_width() -> int | None:
    """Return how many characters a line of standard output may have; None: it is no terminal, and any number."""
    return max(1, shutil.get_terminal_size().columns - 1) if sys.stdout.isatty() else None
