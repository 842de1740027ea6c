"""A client of the model registry: publishing, storing, retrieving and following versions of models."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TypeAlias

import trio

from trio_cogment.api.model_registry_pb2 import (
    CreateOrUpdateModelRequest,
    CreateVersionReply,
    CreateVersionRequestChunk,
    DeleteModelRequest,
    ModelInfo,
    ModelVersionInfo,
    RetrieveModelsRequest,
    RetrieveVersionDataRequest,
    RetrieveVersionInfosRequest,
    VersionUpdateRequest,
)
from trio_cogment.base.errors import InvalidArgumentError, RpcError, StatusCode
from trio_cogment.base.host.beside import open_beside
from trio_cogment.base.metrics import ModelMetrics
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.base.shared_message import SharedMessage, field_tag, varint
from trio_cogment.rpc import CallOpener, ClientCall, OwnNursery, methods_of
from trio_cogment.sdk._tracking import LatestVersion

_METHODS = methods_of(SERVICES[ServiceKind.MODEL_REGISTRY].descriptor())

_BODY = field_tag(CreateVersionRequestChunk, "body")
_DATA_CHUNK = field_tag(CreateVersionRequestChunk.Body, "data_chunk")

#: The size of the chunks of an upload; every server accepts messages of 4 MiB.
CHUNK_BYTES = 2 * 1024 * 1024
#: How often `track_latest` looks for a model that does not exist yet.
_MODEL_POLL_SECONDS = 1.0
#: How long removing an incomplete file may take after a cancellation.
_CLEANUP_SECONDS = 10.0

#: The bytes of a version, or their source. A `Path` names a file, which is read in worker threads.
VersionData: TypeAlias = bytes | Path | Iterable[bytes] | AsyncIterable[bytes]


class ModelRegistryClient:
    """A client of a model registry, in process or over the network.

    Args:
        opener: a channel to the registry.
        metrics: takes measurements, for example a `metrics.participants.PrometheusParticipantMetrics`.

    Every method raises `RpcError` when the registry refuses or cannot be reached: NOT_FOUND if the model or version
    does not exist, DATA_LOSS if bytes do not match their digest.
    """

    def __init__(self, opener: CallOpener, *, metrics: ModelMetrics | None = None) -> None:
        self._opener = opener
        self._metrics = metrics
        self._known: dict[str, None] = {}

    # Models

    async def create_model(self, name: str, user_data: Mapping[str, str] | None = None) -> None:
        """Create a model, or replace the user data of an existing one."""
        info = ModelInfo(model_id=name, user_data=user_data or {})
        await self._opener.unary(_METHODS["CreateOrUpdateModel"], CreateOrUpdateModelRequest(model_info=info))

    async def delete_model(self, name: str) -> None:
        """Delete a model and all its versions."""
        self._known.pop(name, None)
        await self._opener.unary(_METHODS["DeleteModel"], DeleteModelRequest(model_id=name))

    async def model_info(self, name: str) -> ModelInfo:
        """Return a model's description."""
        reply = await self._opener.unary(_METHODS["RetrieveModels"], RetrieveModelsRequest(model_ids=[name]))
        info: ModelInfo = reply.model_infos[0]
        return info

    async def list_models(self, *, page: int = 0) -> AsyncIterator[ModelInfo]:
        """Yield the models, sorted by name; requested `page` at a time (0: as many as the registry chooses)."""
        handle = ""
        while True:
            request = RetrieveModelsRequest(models_count=page, model_handle=handle)
            reply = await self._opener.unary(_METHODS["RetrieveModels"], request)
            for info in reply.model_infos:
                yield info
            if not reply.model_infos or reply.next_model_handle == handle:
                return
            handle = reply.next_model_handle

    # Versions

    async def list_versions(self, name: str, *, first: int = 0, page: int = 0) -> AsyncIterator[ModelVersionInfo]:
        """Yield a model's versions, sorted by number, from `first` on; `page` is as for `list_models`."""
        handle = str(first)
        while True:
            request = RetrieveVersionInfosRequest(model_id=name, versions_count=page, version_handle=handle)
            reply = await self._opener.unary(_METHODS["RetrieveVersionInfos"], request)
            for info in reply.version_infos:
                yield info
            if not reply.version_infos or reply.next_version_handle == handle:
                return
            handle = reply.next_version_handle

    async def version_info(self, name: str, version: int = -1) -> ModelVersionInfo:
        """Return the description of a version, by its number; -k means the k-th newest."""
        request = RetrieveVersionInfosRequest(model_id=name, version_numbers=[version])
        reply = await self._opener.unary(_METHODS["RetrieveVersionInfos"], request)
        info: ModelVersionInfo = reply.version_infos[0]
        return info

    async def publish(
        self,
        name: str,
        data: VersionData,
        *,
        size: int | None = None,
        user_data: Mapping[str, str] | None = None,
        create: bool = True,
    ) -> ModelVersionInfo:
        """Create a version that the registry keeps in memory, for a limited time.

        Args:
            name: the model.
            data: the bytes of the version: as a whole, as a file, or in chunks.
            size: the number of bytes; required for chunks.
            user_data: names and values to store with the version.
            create: create the model if it does not exist.

        Returns:
            The description of the version, with its number.

        After `Cancelled` the version may exist nevertheless; it is complete then.
        """
        info = ModelVersionInfo(model_id=name, user_data=user_data or {})
        return await self._upload(info, data, size, create)

    async def store(
        self,
        name: str,
        data: VersionData,
        *,
        size: int | None = None,
        user_data: Mapping[str, str] | None = None,
        create: bool = True,
    ) -> ModelVersionInfo:
        """Create a version that the registry archives: when this returns, it is durable. See `publish`."""
        info = ModelVersionInfo(model_id=name, user_data=user_data or {}, archived=True)
        return await self._upload(info, data, size, create)

    async def _upload(
        self, info: ModelVersionInfo, data: VersionData, size: int | None, create: bool
    ) -> ModelVersionInfo:
        began = trio.current_time()
        created = await self._created(info, data, size, create)
        if self._metrics is not None:
            self._metrics.model_published(info.model_id, trio.current_time() - began)
        return created

    async def _created(
        self, info: ModelVersionInfo, data: VersionData, size: int | None, create: bool
    ) -> ModelVersionInfo:
        if isinstance(data, bytes):
            size = len(data)
            if size <= CHUNK_BYTES:  # hashing more would block the event loop
                info.data_hash = _text(hashlib.sha256(data))
        elif isinstance(data, Path):
            size = (await trio.Path(data).stat()).st_size
        if size is None:
            raise InvalidArgumentError("size: expected the number of bytes, which the registry needs before the data")
        info.data_size = size
        known = info.model_id in self._known
        if create and not known:
            await self._create_if_missing(info.model_id)
        try:
            return await self._send(info, data)
        except RpcError as error:
            if error.code is not StatusCode.NOT_FOUND:
                raise
            # The model has been deleted meanwhile.
            self._known.pop(info.model_id, None)
            if not (create and known and isinstance(data, bytes | Path)):
                raise
        await self._create_if_missing(info.model_id)
        return await self._send(info, data)

    async def _send(self, info: ModelVersionInfo, data: VersionData) -> ModelVersionInfo:
        digest = hashlib.sha256()
        async with self._opener.call(_METHODS["CreateVersion"]) as call:
            await call.send(CreateVersionRequestChunk(header=CreateVersionRequestChunk.Header(version_info=info)))
            async with aclosing(_chunks(data)) as chunks:
                async for chunk in chunks:
                    digest.update(chunk)
                    if not await _sent(call, chunk):
                        break
                else:
                    await call.done_sending()
            reply: CreateVersionReply | None = await call.receive()
        if reply is None:
            raise RpcError(StatusCode.INTERNAL, "the registry ended without a reply")
        if reply.version_info.data_hash != _text(digest):
            text = f"version {reply.version_info.version_number} of {info.model_id!r} is not what was sent"
            raise RpcError(StatusCode.DATA_LOSS, text)
        self._known[info.model_id] = None
        return reply.version_info

    async def _create_if_missing(self, name: str) -> None:
        try:
            await self.model_info(name)
        except RpcError as error:
            if error.code is not StatusCode.NOT_FOUND:
                raise
            await self.create_model(name)

    async def retrieve(self, name: str, version: int = -1) -> tuple[ModelVersionInfo, bytes]:
        """Return the description and the bytes of a version, by its number; -k means the k-th newest."""
        began = trio.current_time()
        info = await self.version_info(name, version)
        data = await self._fetch(info)
        if self._metrics is not None:
            self._metrics.model_retrieved(name, trio.current_time() - began)
        return info, data

    async def stream(self, name: str, version: int = -1) -> AsyncGenerator[bytes]:
        """Yield the bytes of a version as they arrive; use `contextlib.aclosing` if the loop may be left early.

        After the last chunk it raises `RpcError` (DATA_LOSS) if the bytes do not match their digest.
        """
        async with aclosing(self._download(await self.version_info(name, version))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _fetch(self, info: ModelVersionInfo) -> bytes:
        return b"".join([chunk async for chunk in self._download(info)])

    async def retrieve_to(self, path: Path, name: str, version: int = -1) -> ModelVersionInfo:
        """Write the bytes of a version to a file, which is replaced when all of them have arrived.

        After `Cancelled` or an error the file is unchanged.
        """
        info = await self.version_info(name, version)
        opened, name = await trio.to_thread.run_sync(open_beside, os.fspath(path))
        temporary, whole = trio.Path(name), False
        try:
            async with trio.wrap_file(opened) as file, aclosing(self._download(info)) as chunks:
                async for chunk in chunks:
                    await file.write(chunk)
                await file.flush()
                await temporary.replace(path)
                whole = True
        finally:
            if not whole:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP_SECONDS):
                    await temporary.unlink(missing_ok=True)
        return info

    async def _download(self, info: ModelVersionInfo) -> AsyncGenerator[bytes]:
        """Yield the bytes of a version; raise RpcError (DATA_LOSS) after the last if they do not match their digest."""
        digest = hashlib.sha256()
        request = RetrieveVersionDataRequest(model_id=info.model_id, version_number=info.version_number)
        async with self._opener.call(_METHODS["RetrieveVersionData"]) as call:
            await call.send(request)
            await call.done_sending()
            async for message in call:
                digest.update(message.data_chunk)
                yield message.data_chunk
        if _text(digest) != info.data_hash:
            text = f"version {info.version_number} of {info.model_id!r} did not arrive as it was stored"
            raise RpcError(StatusCode.DATA_LOSS, text)

    @asynccontextmanager
    async def version_updates(self, name: str) -> AsyncIterator[AsyncIterator[ModelVersionInfo]]:
        """Yield an iterator over the newest version and each that comes: `async with ...version_updates(name) as new:`.

        It ends with an `RpcError` when the model is deleted, or the registry is lost; `track_latest` goes on instead.
        """
        async with self._opener.call(_METHODS["VersionUpdate"]) as call:
            await call.send(VersionUpdateRequest(model_id=name))
            await call.done_sending()
            async with aclosing(update.version_info async for update in call) as versions:
                yield versions

    @asynccontextmanager
    async def track_latest(self, name: str, *, wait_seconds: float = 0) -> AsyncIterator[LatestVersion]:
        """Follow a model for an `async with` block; see `LatestVersion`.

        The model must exist, but need not have versions yet. Times when the registry cannot be reached are bridged.

        Args:
            name: the model.
            wait_seconds: how long to wait for the model to exist, before the block is entered.
        """
        await self._wait_model(name, trio.current_time() + wait_seconds)

        async def fetch(version: int) -> bytes:
            return (await self.retrieve(name, version))[1]

        latest = LatestVersion(self._opener, name, fetch)
        async with OwnNursery() as nursery:
            nursery.start_soon(latest.run, name=f"following model {name[:80]!r}")
            yield latest
            nursery.cancel_scope.cancel()

    async def _wait_model(self, name: str, deadline: float) -> None:
        while trio.current_time() < deadline:
            try:
                await self.model_info(name)
            except RpcError as error:
                if error.code not in (StatusCode.NOT_FOUND, StatusCode.UNAVAILABLE):
                    raise
                await trio.sleep(min(_MODEL_POLL_SECONDS, deadline - trio.current_time()))
            else:
                return


def _text(digest: hashlib._Hash) -> str:
    return base64.b64encode(digest.digest()).decode()


async def _sent(call: ClientCall, chunk: bytes) -> bool:
    """Send a chunk; return False if the call has ended. Receiving then raises the reason."""
    chunk = bytes(chunk)  # a copy only of what can be changed: it may wait
    inner = _DATA_CHUNK + varint(len(chunk))
    # Two copies fewer than with a message of protobuf.
    message = SharedMessage(CreateVersionRequestChunk, _BODY + varint(len(inner) + len(chunk)) + inner, chunk)
    try:
        await call.send_shared(message)
    except RpcError:
        return False
    return True


async def _chunks(data: VersionData) -> AsyncGenerator[bytes]:
    if isinstance(data, bytes):
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]
    elif isinstance(data, Path):
        async with await trio.open_file(data, "rb") as file:
            while chunk := await file.read(CHUNK_BYTES):
                yield chunk
    elif isinstance(data, AsyncIterable):
        # Refused halfway, it would be left to the garbage collector, which cannot await what it does on its way out.
        async with aclosing(data) if isinstance(data, AsyncGenerator) else nullcontext():
            async for piece in data:
                for start in range(0, len(piece), CHUNK_BYTES):
                    yield piece[start : start + CHUNK_BYTES]
    else:
        for piece in data:
            for start in range(0, len(piece), CHUNK_BYTES):
                yield piece[start : start + CHUNK_BYTES]
