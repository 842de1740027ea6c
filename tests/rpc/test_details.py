"""Details of a status, both ways, also with grpcio-status on the other side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import trio
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from purerpc import Cardinality, RPCSignature, Service

from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import (
    Channel,
    InProcessChannel,
    Method,
    ServerCall,
    detailed_error,
    details_of,
    find_detail,
    open_listeners,
    serve,
)

FAIL = Method("/test.Details/Fail", Cardinality.UNARY_UNARY, Action, Observation)
INFO = error_details_pb2.ErrorInfo(reason="TOO_OLD", domain="trials", metadata={"age": "7"})
HELP = error_details_pb2.DebugInfo(detail="more")


def service() -> Service:
    async def fail(call: ServerCall) -> None:
        call.set_trailing_metadata({"x-own": "1"})
        raise detailed_error(StatusCode.FAILED_PRECONDITION, "too old: ä", [INFO, HELP], [("x-more", "2")])

    made = Service("test.Details")
    made.add_method("Fail", fail, RPCSignature(FAIL.cardinality, Action, Observation))
    return made


def check_error(error: RpcError) -> None:
    assert (error.code, error.message) == (StatusCode.FAILED_PRECONDITION, "too old: ä")
    assert find_detail(error, error_details_pb2.ErrorInfo) == INFO
    assert find_detail(error, error_details_pb2.DebugInfo) == HELP
    assert find_detail(error, error_details_pb2.RetryInfo) is None
    assert [detail.TypeName() for detail in details_of(error)] == ["google.rpc.ErrorInfo", "google.rpc.DebugInfo"]
    assert status_pb2.Status.FromString(error.details).code == 9


async def test_in_process_and_over_a_socket_they_arrive() -> None:
    errors = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(serve, [service()], await open_listeners("127.0.0.1"))
            async with InProcessChannel([service()]) as inside, Channel("127.0.0.1", serving.port) as outside:
                for channel in (inside, outside):
                    async with channel.call(FAIL) as call:
                        with pytest.raises(RpcError) as caught:
                            await call.receive()
                        assert call.trailing_metadata == caught.value.trailing_metadata
                        errors.append(caught.value)
            nursery.cancel_scope.cancel()
    for error in errors:
        check_error(error)
        assert [name for name, _ in error.trailing_metadata] == ["x-own", "x-more", "grpc-status-details-bin"]
    assert errors[0].trailing_metadata == errors[1].trailing_metadata


async def test_grpcio_status_reads_ours() -> None:
    def run(port: int) -> Any:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(FAIL.path, Action.SerializeToString, Observation.FromString)
            with pytest.raises(grpc.RpcError) as caught:
                call(Action(), timeout=30)
            return rpc_status.from_call(caught.value)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(serve, [service()], await open_listeners("127.0.0.1"))
            status = await trio.to_thread.run_sync(run, serving.port)
            nursery.cancel_scope.cancel()
    assert (status.code, status.message) == (code_pb2.FAILED_PRECONDITION, "too old: ä")
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info == INFO


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio ships no types
    def service(self, details: Any) -> Any:
        def fail(request: Action, context: Any) -> Observation:
            status = status_pb2.Status(code=9, message="too old: ä")
            status.details.add().Pack(INFO)
            status.details.add().Pack(HELP)
            context.abort_with_status(rpc_status.to_status(status))
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(fail, Action.FromString, Observation.SerializeToString)


async def test_we_read_those_of_grpcio_status() -> None:
    with ThreadPoolExecutor(2) as pool, trio.fail_after(60):
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((_Handler(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        async with Channel("127.0.0.1", port) as channel:
            with pytest.raises(RpcError) as caught:
                await channel.unary(FAIL, Action())
        await trio.to_thread.run_sync(server.stop(None).wait)
    check_error(caught.value)


def test_details_that_cannot_be_read_are_none() -> None:
    for details in (b"", b"\xff\xff"):
        error = RpcError(StatusCode.INTERNAL, "text", [("grpc-status-details-bin", details)])
        assert error.details == details
        assert details_of(error) == ()
        assert find_detail(error, error_details_pb2.ErrorInfo) is None
    assert RpcError(StatusCode.INTERNAL).details == b""
    assert details_of(RpcError(StatusCode.INTERNAL)) == ()
    broken = Packed(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff")
    error = detailed_error(StatusCode.ABORTED, "", [broken, INFO])
    assert details_of(error)[0] == broken
    assert find_detail(error, error_details_pb2.ErrorInfo) == INFO
