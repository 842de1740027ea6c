"""`trio-cogment client model_registry`: lists, shows, puts, gets and deletes models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.client.common import (
    ClientSettings,
    as_file,
    client_options,
    client_settings,
    file_option,
    run_client,
    show,
)
from trio_cogment.cli.client.reaching import places_option, reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import Group, nearest
from trio_cogment.cli.text import columns, fields_of, printable

if TYPE_CHECKING:
    from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
    from trio_cogment.cli.client.transfer import Read
    from trio_cogment.rpc import Channel

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

#: The highest version number of the API.
_MAX_NUMBER = 2**31 - 1
#: A registry may be configured to send larger messages than the default limit.
_RPC = RpcConfig(max_receive_message_bytes=256 * 1024 * 1024)


def _registry_options(command: _Decorated) -> _Decorated:
    endpoint = places_option(
        "--endpoint",
        ServiceKind.MODEL_REGISTRY,
        variable="COGMENT_MODEL_REGISTRY_ENDPOINT",
        text="Endpoint of the model registry.",
    )
    return endpoint(client_options(command))


def _channel(
    ctx: click.Context, settings: ClientSettings, *, bounded: bool = True
) -> AbstractAsyncContextManager[Channel]:
    places = nearest(ctx, "endpoint")
    return reached(settings, ServiceKind.MODEL_REGISTRY, places, config=_RPC, bounded=bounded, flag="--endpoint")


def _as_user_data(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for item in values:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"expected NAME=VALUE, got {item!r}")
        found[name] = value
    return found


@click.group("model_registry", cls=Group)
@_registry_options
def model_registry(**_options: Any) -> None:
    """Call a model registry."""


@model_registry.command("list")
@_registry_options
@click.pass_context
def list_models(ctx: click.Context, /, **_options: Any) -> None:
    """List the models by name."""
    from trio_cogment.api.model_registry_pb2 import RetrieveModelsReply
    from trio_cogment.sdk import ModelRegistryClient

    settings = client_settings(ctx)

    async def ask() -> list[ModelInfo]:
        async with _channel(ctx, settings) as channel:
            return [info async for info in ModelRegistryClient(channel).list_models()]

    infos = run_client(ask)
    rows = [("MODEL", "USER DATA"), *((info.model_id, _text(info.user_data)) for info in infos)]
    show(settings, columns(rows), fields_of(RetrieveModelsReply(model_infos=infos)))


@model_registry.command("show")
@click.argument("model")
@_registry_options
@click.pass_context
def show_model(ctx: click.Context, /, model: str, **_options: Any) -> None:
    """Show a model and its versions."""
    from trio_cogment.sdk import ModelRegistryClient

    settings = client_settings(ctx)

    async def ask() -> tuple[ModelInfo, list[ModelVersionInfo]]:
        async with _channel(ctx, settings) as channel:
            client = ModelRegistryClient(channel)
            return await client.model_info(model), [info async for info in client.list_versions(model)]

    info, versions = run_client(ask)
    rows = [("VERSION", "KEPT", "BYTES", "CREATED", "SHA-256", "USER DATA"), *map(_row, versions)]
    text = printable(f"{info.model_id}  {_text(info.user_data)}".rstrip()) + f"\n{columns(rows)}"
    data = {"modelInfo": fields_of(info), "versionInfos": [fields_of(version) for version in versions]}
    show(settings, text, data)


def _row(info: ModelVersionInfo) -> tuple[str, ...]:
    return (
        str(info.version_number),
        "archived" if info.archived else "transient",
        str(info.data_size),
        _time(info.creation_timestamp),
        info.data_hash,
        _text(info.user_data),
    )


def _time(nanoseconds: int) -> str:
    try:
        return datetime.fromtimestamp(nanoseconds // 10**9, UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # the registry does not check the times it gets
        return str(nanoseconds)


def _text(user_data: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={user_data[name]}" for name in sorted(user_data))


@model_registry.command()
@click.argument("model")
@click.option(
    "--user_data",
    multiple=True,
    callback=_as_user_data,
    metavar="NAME=VALUE",
    help="User data of the version; repeatable.",
)
@click.option(
    "--archive/--transient",
    default=True,
    show_default=True,
    help="Keep the version on the registry's disk, or for a limited time in its memory.",
)
@file_option("File to read; the default, also -, is standard input.")
@_registry_options
@click.pass_context
def put(ctx: click.Context, /, model: str, file: Path, archive: bool, user_data: dict[str, str], **_: Any) -> None:
    """Add a version to a model.

    The model is created if it does not exist.
    """
    from trio_cogment.cli.client.transfer import open_sized_source, progress, progress_deadline
    from trio_cogment.sdk import ModelRegistryClient

    settings, path = client_settings(ctx), as_file(file)

    async def send() -> ModelVersionInfo:
        async with (
            open_sized_source(path) as (read, size),
            _channel(ctx, settings, bounded=False) as channel,
            progress_deadline(settings) as deadline,
        ):
            client = ModelRegistryClient(channel)
            make = client.store if archive else client.publish
            with progress("put", size) as show_progress:

                def on_progress(done: int) -> None:
                    show_progress(done)
                    deadline.renew()

                return await make(model, _pieces(read, on_progress), size=size, user_data=user_data)

    info = run_client(send)
    kept = "archived" if info.archived else "transient"
    message = f"version {info.version_number} of {printable(model)}: {info.data_size} bytes, {kept}"
    show(settings, message, {"message": message, "versionInfo": fields_of(info)})


async def _pieces(read: Read, on_progress: Callable[[int], None]) -> AsyncGenerator[bytes]:
    done = 0
    while piece := await read():
        yield piece
        done += len(piece)
        on_progress(done)


@model_registry.command()
@click.argument("model")
@click.option(
    "--version",
    type=click.IntRange(-_MAX_NUMBER - 1, _MAX_NUMBER),
    default=-1,
    show_default=True,
    metavar="NUMBER",
    help="Number of the version; -1 is the newest, -2 the one before it.",
)
@file_option("File to write, replaced in one step; the default, also -, is standard output.")
@_registry_options
@click.pass_context
def get(ctx: click.Context, /, model: str, file: Path, version: int, **_options: Any) -> None:
    """Write a version of a model to a file."""
    from trio_cogment.cli.client.transfer import open_target, progress, progress_deadline, report
    from trio_cogment.sdk import ModelRegistryClient

    settings, path = client_settings(ctx), as_file(file)

    async def receive() -> ModelVersionInfo:
        async with _channel(ctx, settings, bounded=False) as channel, progress_deadline(settings) as deadline:
            client, done = ModelRegistryClient(channel), 0
            info = await client.version_info(model, version)
            async with open_target(path) as target, aclosing(client.stream(model, info.version_number)) as pieces:
                with progress("get", info.data_size) as show_progress:
                    async for piece in pieces:
                        await target.write(piece)
                        done += len(piece)
                        show_progress(done)
                        deadline.renew()
        return info

    info = run_client(receive)
    message = f"version {info.version_number} of {printable(model)}: {info.data_size} bytes"
    data = {
        "message": message,
        "versionInfo": fields_of(info),
        "filepath": "" if path is None else str(path),
    }
    report(settings, message, data, to_stderr=path is None)


@model_registry.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@_registry_options
@click.pass_context
def delete(ctx: click.Context, /, models: tuple[str, ...], **_options: Any) -> None:
    """Delete models and all their versions.

    The first one that does not exist ends it.
    """
    from trio_cogment.cli.client.transfer import progress, progress_deadline
    from trio_cogment.sdk import ModelRegistryClient

    settings = client_settings(ctx)
    deleted: list[str] = []

    async def ask() -> None:
        async with _channel(ctx, settings, bounded=False) as channel, progress_deadline(settings) as deadline:
            client = ModelRegistryClient(channel)
            with progress("delete", len(models)) as show_progress:
                for model in models:
                    await client.delete_model(model)
                    deleted.append(model)
                    show_progress(len(deleted))
                    deadline.renew()

    try:
        run_client(ask)
    except Failure as failure:
        if not deleted:
            raise
        raise Failure(f"{failure.message}; deleted before that: {', '.join(deleted)}") from None
    message = f"deleted: {', '.join(models)}"
    show(settings, message, {"message": message, "model_ids": list(models)})
