"""Health and reflection of a server process, asked by grpcio's own clients."""

from __future__ import annotations

import grpc
import pytest
import trio
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.cli.process import PATIENCE_SECONDS, server

LIFECYCLE = "cogmentAPI.TrialLifecycleSP"
STANDARD = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}


def ask(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", LIFECYCLE):
            request = health_pb2.HealthCheckRequest(service=name)
            assert stub.Check(request, timeout=PATIENCE_SECONDS).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=PATIENCE_SECONDS)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == {LIFECYCLE, "cogmentAPI.ClientActorSP", *STANDARD}
        # A call with nothing in hand but what the server says about itself.
        pool = DescriptorPool(database)
        method = pool.FindServiceByName(LIFECYCLE).FindMethodByName("Version")
        answer = channel.unary_unary(
            f"/{LIFECYCLE}/{method.name}",
            lambda request: request.SerializeToString(),
            GetMessageClass(method.output_type).FromString,
        )(GetMessageClass(method.input_type)(), timeout=PATIENCE_SECONDS)
        assert "trio-cogment" in str(answer)


SERVE = ("serve", "--host=127.0.0.1", "--port=0")
ORCHESTRATOR = ("services", "orchestrator", "--lifecycle_port=0", "--actor_port=0")


@pytest.mark.parametrize("command", [SERVE, ORCHESTRATOR], ids=lambda command: command[0])
async def test_standard_services_of_a_server_process(command: tuple[str, ...]) -> None:
    async with server(*command) as process:
        await trio.to_thread.run_sync(ask, process.port)


def watch(port: int, watching: trio.Event) -> tuple[list[int], grpc.StatusCode]:
    seen = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        responses = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS)
        try:
            for response in responses:
                seen.append(response.status)
                trio.from_thread.run_sync(watching.set)
        except grpc.RpcError as error:
            return seen, error.code()
    raise AssertionError("the server ended the watch with OK")


async def test_who_watches_hears_of_the_stop() -> None:
    watching = trio.Event()
    results = []
    async with server(*SERVE) as process, trio.open_nursery() as nursery:

        async def keep() -> None:
            results.append(await trio.to_thread.run_sync(watch, process.port, watching))

        nursery.start_soon(keep)
        await watching.wait()
        await process.stop()
    assert results == [([1, 2], grpc.StatusCode.UNAVAILABLE)]
