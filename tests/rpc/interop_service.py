"""gRPC's interoperability test service: its messages, and a server of ours and one of grpcio."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import trio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from purerpc import Service

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Method, ServerCall, bind, methods_of

FOLDER = Path(__file__).parent / "protos"
INITIAL = "x-grpc-test-echo-initial"
TRAILING = "x-grpc-test-echo-trailing-bin"


@cache
def pool() -> DescriptorPool:
    made = DescriptorPool()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "interop"
        assert protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", "interop.proto"]) == 0
        for file in FileDescriptorSet.FromString(out.read_bytes()).file:
            made.AddSerializedFile(file.SerializeToString())
    return made


def service(name: str = "TestService") -> ServiceDescriptor:
    return pool().FindServiceByName(f"grpc.testing.{name}")


def methods() -> dict[str, Method]:
    return methods_of(service())


def unimplemented_service_method() -> Method:
    return methods_of(service("UnimplementedService"))["UnimplementedCall"]


def message(name: str) -> Any:
    return GetMessageClass(pool().FindMessageTypeByName(f"grpc.testing.{name}"))


def output(size: int) -> Any:
    return message("StreamingOutputCallResponse")(payload={"body": bytes(size)})


class OurServer:
    """The service on Trio.

    Attributes:
        duplex_ended: the handler of a FullDuplexCall has.
    """

    def __init__(self) -> None:
        self.duplex_ended = trio.Event()

    def service(self) -> Service:
        return bind(service(), self)

    def _echo(self, call: ServerCall) -> None:
        call.set_initial_metadata([pair for pair in call.metadata if pair[0] == INITIAL])
        call.set_trailing_metadata([pair for pair in call.metadata if pair[0] == TRAILING])

    def _fail(self, status: Any) -> None:
        if status.code:
            raise RpcError(StatusCode(status.code), status.message)

    async def EmptyCall(self, request: Any, call: ServerCall) -> Any:
        return request

    async def UnaryCall(self, request: Any, call: ServerCall) -> Any:
        self._echo(call)
        self._fail(request.response_status)
        return message("SimpleResponse")(payload={"body": bytes(request.response_size)})

    async def StreamingInputCall(self, call: ServerCall) -> Any:
        size = 0
        async for request in call:
            size += len(request.payload.body)
        return message("StreamingInputCallResponse")(aggregated_payload_size=size)

    async def StreamingOutputCall(self, request: Any, call: ServerCall) -> None:
        await self._answer(request, call)

    async def FullDuplexCall(self, call: ServerCall) -> None:
        self._echo(call)
        try:
            async for request in call:
                self._fail(request.response_status)
                await self._answer(request, call)
        finally:
            self.duplex_ended.set()

    async def _answer(self, request: Any, call: ServerCall) -> None:
        for parameters in request.response_parameters:
            if parameters.interval_us:
                await trio.sleep(parameters.interval_us / 1e6)
            await call.send(output(parameters.size))


class GrpcioServer:
    """The service on grpcio's threads.

    Attributes:
        duplex_ended: a FullDuplexCall has.
    """

    def __init__(self) -> None:
        self.duplex_ended = threading.Event()

    def _echo(self, context: Any) -> None:
        given = context.invocation_metadata()
        context.send_initial_metadata([pair for pair in given if pair[0] == INITIAL])
        context.set_trailing_metadata([pair for pair in given if pair[0] == TRAILING])

    def _fail(self, status: Any, context: Any) -> None:
        if status.code:
            codes = {code.value[0]: code for code in grpc.StatusCode}
            context.abort(codes[status.code], status.message)

    def EmptyCall(self, request: Any, context: Any) -> Any:
        return request

    def UnaryCall(self, request: Any, context: Any) -> Any:
        self._echo(context)
        self._fail(request.response_status, context)
        return message("SimpleResponse")(payload={"body": bytes(request.response_size)})

    def StreamingInputCall(self, requests: Iterator[Any], context: Any) -> Any:
        size = sum(len(request.payload.body) for request in requests)
        return message("StreamingInputCallResponse")(aggregated_payload_size=size)

    def StreamingOutputCall(self, request: Any, context: Any) -> Iterator[Any]:
        yield from self._answers(request)

    def FullDuplexCall(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(self.duplex_ended.set)
        self._echo(context)
        for request in requests:
            self._fail(request.response_status, context)
            yield from self._answers(request)

    def _answers(self, request: Any) -> Iterator[Any]:
        for parameters in request.response_parameters:
            time.sleep(parameters.interval_us / 1e6)
            yield output(parameters.size)

    def handlers(self) -> Any:
        kinds = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }
        made = {
            method.name: kinds[method.client_streaming, method.server_streaming](
                getattr(self, method.name),
                GetMessageClass(method.input_type).FromString,
                GetMessageClass(method.output_type).SerializeToString,
            )
            for method in service().methods
            if hasattr(self, method.name)
        }
        return grpc.method_handlers_generic_handler(service().full_name, made)

    @contextmanager
    def serving(self, credentials: Any = None) -> Iterator[int]:
        """Serve for the time of the block; gives the port."""
        with ThreadPoolExecutor(8) as threads:
            server = grpc.server(threads)
            server.add_generic_rpc_handlers((self.handlers(),))
            if credentials is None:
                port = server.add_insecure_port("127.0.0.1:0")
            else:
                port = server.add_secure_port("127.0.0.1:0", credentials)
            server.start()
            try:
                yield port
            finally:
                server.stop(None).wait()
