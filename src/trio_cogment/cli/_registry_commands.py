"""What `trio-cogment client model_registry` does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

from google.protobuf.json_format import MessageToDict

from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo, RetrieveModelsReply
from trio_cogment.cli._client_run import channel_to, columns, run_client, show
from trio_cogment.cli._settings import ClientSettings, Failure
from trio_cogment.cli._text import printable
from trio_cogment.cli._transfer import Read, open_sized_source, open_target, patience_of, progress, report
from trio_cogment.config import RpcConfig
from trio_cogment.rpc import Channel
from trio_cogment.sdk import ModelRegistryClient

#: A registry may be told to send more in a message than what a server would take.
_RPC = RpcConfig(max_receive_message_bytes=256 * 1024 * 1024)


def _channel(settings: ClientSettings, endpoint: str) -> Channel:
    return channel_to(settings, endpoint, flag="--endpoint", config=_RPC)


def list_all_models(settings: ClientSettings, endpoint: str) -> None:
    """Print the models."""

    async def ask() -> list[ModelInfo]:
        async with _channel(settings, endpoint) as channel:
            return [info async for info in ModelRegistryClient(channel).list_models()]

    infos = run_client(settings, ask)
    rows = [("MODEL", "USER DATA"), *((info.model_id, _text(info.user_data)) for info in infos)]
    show(settings, columns(rows), MessageToDict(RetrieveModelsReply(model_infos=infos)))


def show_model(settings: ClientSettings, endpoint: str, name: str) -> None:
    """Print what there is to say about a model and its versions."""

    async def ask() -> tuple[ModelInfo, list[ModelVersionInfo]]:
        async with _channel(settings, endpoint) as channel:
            client = ModelRegistryClient(channel)
            return await client.model_info(name), [info async for info in client.list_versions(name)]

    model, versions = run_client(settings, ask)
    rows = [("VERSION", "KEPT", "BYTES", "CREATED", "SHA-256", "USER DATA"), *map(_row, versions)]
    text = printable(f"{model.model_id}  {_text(model.user_data)}".rstrip()) + f"\n{columns(rows)}"
    data = {"modelInfo": MessageToDict(model), "versionInfos": [MessageToDict(info) for info in versions]}
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
    except (ValueError, OverflowError, OSError):  # the registry keeps whatever it was told
        return str(nanoseconds)


def _text(user_data: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={user_data[name]}" for name in sorted(user_data))


def put_version(
    settings: ClientSettings,
    endpoint: str,
    name: str,
    path: Path | None,
    *,
    archive: bool,
    user_data: Mapping[str, str],
) -> None:
    """Make a version of the bytes of a file."""

    async def send() -> ModelVersionInfo:
        async with (
            _channel(settings, endpoint) as channel,
            open_sized_source(path) as (read, size),
            patience_of(settings) as patience,
        ):
            client = ModelRegistryClient(channel)
            make = client.store if archive else client.publish
            with progress("put", size) as show_progress:

                def on_progress(done: int) -> None:
                    show_progress(done)
                    patience.renew()

                return await make(name, _pieces(read, on_progress), size=size, user_data=user_data)

    info = run_client(settings, send, bounded=False)
    kept = "archived" if info.archived else "transient"
    message = f"version {info.version_number} of {printable(name)}: {info.data_size} bytes, {kept}"
    show(settings, message, {"message": message, "versionInfo": MessageToDict(info)})


async def _pieces(read: Read, on_progress: Callable[[int], None]) -> AsyncGenerator[bytes]:
    done = 0
    while piece := await read():
        yield piece
        done += len(piece)
        on_progress(done)


def get_version(settings: ClientSettings, endpoint: str, name: str, path: Path | None, *, version: int) -> None:
    """Write the bytes of a version to a file."""

    async def receive() -> ModelVersionInfo:
        async with _channel(settings, endpoint) as channel, patience_of(settings) as patience:
            client, done = ModelRegistryClient(channel), 0
            info = await client.version_info(name, version)
            async with open_target(path) as target, aclosing(client.stream(name, info.version_number)) as pieces:
                with progress("get", info.data_size) as show_progress:
                    async for piece in pieces:
                        await target.write(piece)
                        done += len(piece)
                        show_progress(done)
                        patience.renew()
        return info

    info = run_client(settings, receive, bounded=False)
    message = f"version {info.version_number} of {printable(name)}: {info.data_size} bytes"
    data = {
        "message": message,
        "versionInfo": MessageToDict(info),
        "filepath": "" if path is None else str(path),
    }
    report(settings, message, data, to_stderr=path is None)


def delete_models(settings: ClientSettings, endpoint: str, names: Sequence[str]) -> None:
    """Delete models, one after the other, and say so; one that is not there ends it.

    Raises:
        Failure: that, and it says which are deleted.
    """
    deleted: list[str] = []

    async def ask() -> None:
        async with _channel(settings, endpoint) as channel:
            client = ModelRegistryClient(channel)
            for name in names:
                await client.delete_model(name)
                deleted.append(name)

    try:
        run_client(settings, ask)
    except Failure as failure:
        if not deleted:
            raise
        raise Failure(f"{failure.message}; deleted before that: {', '.join(deleted)}") from None
    message = f"deleted: {', '.join(names)}"
    show(settings, message, {"message": message, "model_ids": list(names)})
