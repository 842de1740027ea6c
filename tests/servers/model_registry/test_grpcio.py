"""grpcio as the client, over real sockets, with real threads and files: every call, and what may go wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio

from tests.servers.model_registry.helpers import body, hash_of, header
from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.base.config import ModelRegistryConfig
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services

MIB = 2**20
Code = grpc.StatusCode


class Stub:
    """Calls of grpcio, without generated code."""

    def __init__(self, channel: Any) -> None:
        service = pb.DESCRIPTOR.services_by_name["ModelRegistrySP"]
        for method in service.methods:
            shapes = [
                "stream" if streaming else "unary" for streaming in (method.client_streaming, method.server_streaming)
            ]
            kind = "_".join(shapes)
            call = getattr(channel, kind)(
                f"/{service.full_name}/{method.name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=getattr(pb, method.output_type.name, pb.ModelInfo).FromString,
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def create(self, model_id: str) -> None:
        self.CreateOrUpdateModel(pb.CreateOrUpdateModelRequest(model_info=pb.ModelInfo(model_id=model_id)))

    def upload(self, model_id: str, data: bytes, *, archived: bool, **fields: Any) -> pb.ModelVersionInfo:
        info = pb.ModelVersionInfo(model_id=model_id, archived=archived, **{"data_size": len(data), **fields})
        pieces = [body(data[start : start + 2 * MIB]) for start in range(0, len(data), 2 * MIB)]
        reply: pb.CreateVersionReply = self.CreateVersion(iter([header(info), *pieces]))
        return reply.version_info

    def data(self, model_id: str, number: int = -1) -> list[bytes]:
        request = pb.RetrieveVersionDataRequest(model_id=model_id, version_number=number)
        return [chunk.data_chunk for chunk in self.RetrieveVersionData(request)]


@asynccontextmanager
async def served(root: Path, **limits: Any) -> AsyncIterator[tuple[ModelRegistry, str]]:
    registry = ModelRegistry(root, config=ModelRegistryConfig(**limits))
    async with registry, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        serving = await nursery.start(partial(serve, model_registry_services(registry), listeners))
        yield registry, f"127.0.0.1:{serving.port}"
        nursery.cancel_scope.cancel()


async def with_stub(root: Path, function: Callable[[Stub], None], **limits: Any) -> ModelRegistry:
    """Run a function in a thread, with a stub for a registry that runs here."""

    def run(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            function(Stub(channel))

    with trio.fail_after(40):
        async with served(root, **limits) as (registry, address):
            await trio.to_thread.run_sync(run, address)
    return registry


def code_of(function: Callable[..., object], *args: object, **options: object) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        function(*args, **options)
    return caught.value.code()


@pytest.mark.parametrize("archived", [False, True], ids=["transient", "archived"])
async def test_a_large_version_there_and_back(archived: bool, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096 * 9  # 9 MiB

    def use(stub: Stub) -> None:
        stub.create("m")
        for number in (1, 2):
            info = stub.upload("m", data, archived=archived, data_hash=hash_of(data))
            assert (info.version_number, info.data_size, info.data_hash) == (number, len(data), hash_of(data))
        chunks = stub.data("m", -2)
        assert [len(chunk) for chunk in chunks] == [2 * MIB] * 4 + [MIB]
        assert b"".join(chunks) == data
        assert stub.data("m", 2) == chunks
        reply = stub.RetrieveVersionInfos(pb.RetrieveVersionInfosRequest(model_id="m", versions_count=10))
        assert [info.version_number for info in reply.version_infos] == [1, 2]

    await with_stub(tmp_path, use)


async def test_statuses(tmp_path: Path) -> None:
    """The reference dies of some of these, and answers others with what says nothing."""

    def use(stub: Stub) -> None:
        assert code_of(stub.CreateOrUpdateModel, pb.CreateOrUpdateModelRequest()) is Code.INVALID_ARGUMENT
        assert code_of(stub.create, "") is Code.INVALID_ARGUMENT
        assert code_of(stub.DeleteModel, pb.DeleteModelRequest(model_id="m")) is Code.NOT_FOUND
        assert code_of(stub.upload, "m", b"x", archived=True) is Code.NOT_FOUND
        stub.create("m")
        count = pb.RetrieveModelsRequest(model_ids=["m"], models_count=10)
        assert [info.model_id for info in stub.RetrieveModels(count).model_infos] == ["m"]
        far = pb.RetrieveModelsRequest(model_ids=["m"], model_handle="5")
        assert stub.RetrieveModels(far).next_model_handle == "5"
        assert code_of(stub.CreateVersion, iter([])) is Code.INVALID_ARGUMENT
        assert code_of(stub.CreateVersion, iter([body(b"x")])) is Code.INVALID_ARGUMENT
        empty = pb.CreateVersionRequestChunk(header=pb.CreateVersionRequestChunk.Header())
        assert code_of(stub.CreateVersion, iter([empty])) is Code.INVALID_ARGUMENT
        for archived in (False, True):
            assert code_of(stub.upload, "m", b"x" * 20 * MIB, archived=archived, data_size=1) is Code.INVALID_ARGUMENT
            assert code_of(stub.upload, "m", b"x", archived=archived, data_hash="no") is Code.INVALID_ARGUMENT
            assert code_of(stub.upload, "m", b"x", archived=archived, data_size=2) is Code.INVALID_ARGUMENT
        assert code_of(stub.data, "m") is Code.NOT_FOUND
        assert code_of(stub.data, "m", 0) is Code.NOT_FOUND
        assert stub.upload("m", b"", archived=True).version_number == 1
        assert stub.data("m") == [b""]

    await with_stub(tmp_path, use)


async def test_a_stream_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    def use(stub: Stub) -> None:
        stub.create("m")

        def chunks() -> Iterator[pb.CreateVersionRequestChunk]:
            yield header(model_id="m", archived=True, data_size=10 * MIB)
            yield body(b"x" * MIB)
            raise OSError("the client's disk")

        with pytest.raises(grpc.RpcError):
            stub.CreateVersion(chunks())
        assert stub.upload("m", b"x", archived=True).version_number == 1

    await with_stub(tmp_path, use)
    assert SystemFiles().names(str(tmp_path)) == [".lock", "m"]


async def test_following_and_leaving(tmp_path: Path) -> None:
    def use(stub: Stub) -> None:
        stub.create("m")
        first = stub.VersionUpdate(pb.VersionUpdateRequest(model_id="m"))
        stub.upload("m", b"1", archived=True)
        assert next(first).version_info.version_number == 1
        second = stub.VersionUpdate(pb.VersionUpdateRequest(model_id="m"))
        assert next(second).version_info.version_number == 1
        stub.upload("m", b"2", archived=False)
        assert next(first).version_info.version_number == 2
        first.cancel()
        stub.upload("m", b"3", archived=False)
        assert [next(second).version_info.version_number for _ in range(2)] == [2, 3]
        stub.DeleteModel(pb.DeleteModelRequest(model_id="m"))
        assert code_of(next, second) is Code.NOT_FOUND

    registry = await with_stub(tmp_path, use)
    assert not registry.models


async def test_two_processes_worth_of_threads_at_once(tmp_path: Path) -> None:
    """Real threads beneath: numbers are unique and in order, and every version is what its uploader sent."""
    async with served(tmp_path, storage_threads=4) as (registry, address):
        seen: dict[int, bytes] = {}

        def upload(index: int) -> None:
            with grpc.insecure_channel(address) as channel:
                stub = Stub(channel)
                for turn in range(5):
                    data = b"%d-%d." % (index, turn) * 50_000
                    seen[stub.upload("m", data, archived=turn % 2 == 0).version_number] = data

        await registry.create_or_update(pb.ModelInfo(model_id="m"))
        async with trio.open_nursery() as nursery:
            for index in range(6):
                nursery.start_soon(trio.to_thread.run_sync, upload, index)
        assert sorted(seen) == list(range(1, 31)) == registry.models["m"].numbers

        def check() -> None:
            with grpc.insecure_channel(address) as channel:
                for number, data in seen.items():
                    assert b"".join(Stub(channel).data("m", number)) == data

        await trio.to_thread.run_sync(check)
