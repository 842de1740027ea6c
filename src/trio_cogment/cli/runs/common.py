"""Shared parts of the commands about runs: their flags, the client, and how messages are printed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.access_token import access_token, access_token_options
from trio_cogment.cli.client.common import ClientSettings, run_client
from trio_cogment.cli.client.reaching import Places, default_places, places_option, reached
from trio_cogment.cli.options import applied, json_option, timeout_option
from trio_cogment.cli.services.trainer import DEFAULT_PORT
from trio_cogment.cli.tls import tls_files, tls_options

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from trio_cogment.rpc import Method
    from trio_cogment.trainer.client import TrainerClient

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_Result = TypeVar("_Result")

#: A list of all runs is one message; the published client takes as much.
_RPC = RpcConfig(max_receive_message_bytes=64 * 1024 * 1024)
#: Its own port, and that of `serve --trainer`.
_PLACES = [GrpcEndpoint("localhost", DEFAULT_PORT), *default_places(ServiceKind.LIFECYCLE)]


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
        places_option("--trainer", _PLACES, variable="COGMENT_TRAINER_ENDPOINT", text="Where the trainer is."),
        json_option("Print results as JSON, one on each line."),
    )
    return applied(options, command)


def with_client(ctx: click.Context, function: Callable[[TrainerClient], Any]) -> Any:
    """Run an asynchronous function with a client of the trainer that the flags name; return what it returns.

    Raises:
        Failure: it ended with an expected error.
    """
    settings = ClientSettings(timeout_seconds=ctx.params["timeout"], tls=tls_files(ctx), token=access_token(ctx))
    places: Places = ctx.params["trainer"]

    async def run() -> Any:
        async with _opened(settings, places, ctx.params["secret"]) as client:
            return await function(client)

    return run_client(run)


def trainer_question() -> tuple[Method, Message]:
    """Return a call that only trainers know, and that changes nothing."""
    from trio_cogment.api.trainer import trainer_pb2
    from trio_cogment.rpc import methods_of

    service = trainer_pb2.DESCRIPTOR.services_by_name["TrainerService"]
    return methods_of(service)["GetHealth"], trainer_pb2.HealthCheckRequest()


@asynccontextmanager
async def _opened(settings: ClientSettings, places: Places, secret: str) -> AsyncIterator[TrainerClient]:
    from trio_cogment.trainer.client import TrainerClient

    found = reached(
        settings, None, places, config=_RPC, bounded=False, flag="--trainer", name="trainer", question=trainer_question
    )
    async with found as channel:
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
    """Return how many characters a line of standard output may have; None: it is not a terminal, and any number."""
    return max(1, shutil.get_terminal_size().columns - 1) if sys.stdout.isatty() else None
