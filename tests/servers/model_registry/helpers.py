"""A model registry for tests: on a simulated disk, in process or over HTTP/2, with every step in this thread."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.helpers import wire_channel
from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.base.config import ModelRegistryConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.rpc import CallOpener, ClientCall, InProcessChannel, methods_of
from trio_cogment.servers.model_registry import BlobStore, LocalBlobs, ModelRegistry, model_registry_services
from trio_cogment.testing import SimDisk

METHODS = methods_of(pb.DESCRIPTOR.services_by_name["ModelRegistrySP"])
START_NS = 1_000_000_000


class Harness:
    """A registry and calls to it, in the words of the wire."""

    def __init__(self, registry: ModelRegistry, channel: CallOpener, disk: SimDisk) -> None:
        self.registry = registry
        self.channel = channel
        self.disk = disk

    async def unary(self, name: str, request: Any) -> Any:
        return await self.channel.unary(METHODS[name], request)

    async def create(self, model_id: str, **user_data: str) -> None:
        info = pb.ModelInfo(model_id=model_id, user_data=user_data)
        await self.unary("CreateOrUpdateModel", pb.CreateOrUpdateModelRequest(model_info=info))

    async def delete(self, model_id: str) -> None:
        await self.unary("DeleteModel", pb.DeleteModelRequest(model_id=model_id))

    async def models(self, *ids: str, count: int = 0, handle: str = "") -> tuple[list[str], str]:
        request = pb.RetrieveModelsRequest(model_ids=ids, models_count=count, model_handle=handle)
        reply = await self.unary("RetrieveModels", request)
        return [info.model_id for info in reply.model_infos], reply.next_model_handle

    async def upload_chunks(self, chunks: Iterable[pb.CreateVersionRequestChunk]) -> pb.ModelVersionInfo:
        async with self.channel.call(METHODS["CreateVersion"]) as call:
            for chunk in chunks:
                try:
                    await call.send(chunk)
                except RpcError:
                    break  # refused already
            else:
                await call.done_sending()
            reply: pb.CreateVersionReply = await call.receive()
            return reply.version_info

    async def upload(
        self, model_id: str, data: bytes = b"", *, archived: bool = True, chunk: int = 1000, **fields: Any
    ) -> pb.ModelVersionInfo:
        fields.setdefault("data_size", len(data))
        info = pb.ModelVersionInfo(model_id=model_id, archived=archived, **fields)
        pieces = [data[start : start + chunk] for start in range(0, len(data), chunk)]
        return await self.upload_chunks([header(info), *(body(piece) for piece in pieces)])

    async def publish(self, model_id: str, data: bytes = b"") -> int:
        return (await self.upload(model_id, data, archived=False)).version_number

    async def store(self, model_id: str, data: bytes = b"") -> int:
        return (await self.upload(model_id, data)).version_number

    async def infos(
        self, model_id: str, *numbers: int, count: int = 0, handle: str = ""
    ) -> tuple[list[pb.ModelVersionInfo], str]:
        request = pb.RetrieveVersionInfosRequest(
            model_id=model_id, version_numbers=numbers, versions_count=count, version_handle=handle
        )
        reply = await self.unary("RetrieveVersionInfos", request)
        return list(reply.version_infos), reply.next_version_handle

    async def numbers(self, model_id: str, *numbers: int, **options: Any) -> list[int]:
        return [info.version_number for info in (await self.infos(model_id, *numbers, **options))[0]]

    async def chunks(self, model_id: str, number: int = -1) -> list[bytes]:
        async with self.channel.call(METHODS["RetrieveVersionData"]) as call:
            await call.send(pb.RetrieveVersionDataRequest(model_id=model_id, version_number=number))
            await call.done_sending()
            return [chunk.data_chunk async for chunk in call]

    async def data(self, model_id: str, number: int = -1) -> bytes:
        return b"".join(await self.chunks(model_id, number))

    @asynccontextmanager
    async def following(self, model_id: str) -> AsyncIterator[ClientCall]:
        async with self.channel.call(METHODS["VersionUpdate"]) as call:
            await call.send(pb.VersionUpdateRequest(model_id=model_id))
            await call.done_sending()
            await call.wait_initial_metadata()
            yield call


def header(info: pb.ModelVersionInfo | None = None, **fields: Any) -> pb.CreateVersionRequestChunk:
    info = info or pb.ModelVersionInfo(**fields)
    return pb.CreateVersionRequestChunk(header=pb.CreateVersionRequestChunk.Header(version_info=info))


def body(data: bytes) -> pb.CreateVersionRequestChunk:
    return pb.CreateVersionRequestChunk(body=pb.CreateVersionRequestChunk.Body(data_chunk=data))


def hash_of(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


@asynccontextmanager
async def open_harness(
    disk: SimDisk | None = None, *, wire: bool = False, store: BlobStore | None = None, **limits: Any
) -> AsyncIterator[Harness]:
    disk = disk or SimDisk(random.Random(1))
    registry = ModelRegistry(
        store or LocalBlobs("root", files=disk),
        config=ModelRegistryConfig(**limits),
        host=Host(wall_clock=lambda: START_NS + round(trio.current_time() * 1e9), runner=inline_runner),
    )
    open_channel = wire_channel if wire else InProcessChannel
    async with registry, open_channel(model_registry_services(registry)) as channel:
        yield Harness(registry, channel, disk)


class refused:  # noqa: N801  reads like pytest.raises
    """Assert that a block ends with a status, and that its text says something."""

    def __init__(self, code: StatusCode, *words: str) -> None:
        self._code = code
        self._words = words

    def __enter__(self) -> refused:
        self._raises = pytest.raises(RpcError)
        self._caught = self._raises.__enter__()
        return self

    def __exit__(self, *details: Any) -> bool:
        swallowed = bool(self._raises.__exit__(*details))
        error = self._caught.value
        assert error.code is self._code, error
        for word in self._words:
            assert word in error.message, error
        return swallowed
