"""The status of a call whose answer, or request, is not as it should be, is what `docs/grpc-statuses.md` says."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import trio
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from tests.rpc.status_rows import REQUESTS, RESPONSES, answering, documented, statuses_of
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import Channel, ServerCall, bind, open_listeners, serve
from trio_cogment.testing.conformance.channel import ECHO_ONE

DEADLINE_SECONDS = 1.0


def column(title: str, name: str) -> dict[str, str]:
    return {row: cells[name] for row, cells in documented(title).items()}


def test_the_page_has_all_rows() -> None:
    assert list(documented("What a server answers")) == list(RESPONSES)
    assert list(documented("What a client asks")) == list(REQUESTS)


# --- what a server answers ---


async def _our_statuses(port: int) -> dict[str, str]:
    found = {}
    for number, name in enumerate(RESPONSES):
        method = replace(ECHO_ONE, path=f"/rows/{number}")
        async with Channel("127.0.0.1", port) as channel:
            try:
                await channel.unary(method, Action(), timeout=DEADLINE_SECONDS)
                found[name] = "OK"
            except RpcError as error:
                found[name] = error.code.name
    return found


def _grpcios_statuses(port: int) -> dict[str, str]:
    found = {}
    for number, name in enumerate(RESPONSES):
        # What grpcio refuses of one answer may spoil the next on its connection.
        options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            call = channel.unary_unary(f"/rows/{number}", _serialize, Observation.FromString)
            try:
                call(Action(), timeout=DEADLINE_SECONDS)
                found[name] = "OK"
            except grpc.RpcError as error:
                found[name] = error.code().name
    return found


def _serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())


async def test_our_status_for_each_answer_is_that_of_the_page() -> None:
    async with answering(RESPONSES) as port:
        assert await _our_statuses(port) == column("What a server answers", "here")


async def test_grpcios_status_for_each_answer_is_that_of_the_page() -> None:
    async with answering(RESPONSES) as port:
        found = await trio.to_thread.run_sync(_grpcios_statuses, port)
        assert found == column("What a server answers", "grpcio")


# --- what a client asks ---


def _rows_service() -> ServiceDescriptor:
    file = descriptor_pb2.FileDescriptorProto(name="rows.proto", package="rows", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    note = file.message_type.add(name="Note")
    note.field.add(name="tick_id", number=1, type=field.TYPE_SINT64, label=field.LABEL_OPTIONAL)
    service = file.service.add(name="Rows")
    for name in ("Echo", "Raise", "Wait"):
        service.method.add(name=name, input_type=".rows.Note", output_type=".rows.Note")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName("rows.Rows")


class Rows:
    """The handlers, as users write them."""

    async def Echo(self, request: Any, call: ServerCall) -> Any:
        return request

    async def Raise(self, request: Any, call: ServerCall) -> Any:
        raise ValueError("swordfish")

    async def Wait(self, request: Any, call: ServerCall) -> Any:
        await trio.sleep_forever()


def _grpcio_handlers(over: threading.Event) -> Any:
    def echo(request: Action, _: Any) -> Action:
        return request

    def fail(request: Action, _: Any) -> Action:
        raise ValueError("swordfish")

    def wait(request: Action, _: Any) -> Action:
        over.wait()
        return request

    functions = {"Echo": echo, "Raise": fail, "Wait": wait}
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(function, Action.FromString, _serialize)
        for name, function in functions.items()
    }
    return grpc.method_handlers_generic_handler("rows.Rows", handlers)


async def test_our_status_for_each_request_is_that_of_the_page() -> None:
    async with trio.open_nursery() as nursery:
        services = [bind(_rows_service(), Rows())]
        serving = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
        assert await statuses_of(serving.port) == column("What a client asks", "here")
        nursery.cancel_scope.cancel()


async def test_grpcios_status_for_each_request_is_that_of_the_page() -> None:
    over = threading.Event()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[_grpcio_handlers(over)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        assert await statuses_of(port) == column("What a client asks", "grpcio")
    finally:
        over.set()
        await trio.to_thread.run_sync(server.stop(0).wait)
