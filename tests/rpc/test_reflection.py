"""Server reflection, both versions, asked directly and through grpcio's reflection database."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import trio
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from purerpc import Service

from trio_cogment.api import common_pb2, datalog_pb2, orchestrator_pb2
from trio_cogment.rpc import (
    InProcessChannel,
    bind,
    methods_of,
    open_listeners,
    reflection_services,
    serve,
    standard_services,
)
from trio_cogment.rpc._protos import reflection_v1_pb2, reflection_v1alpha_pb2
from trio_cogment.testing.conformance.channel import CheckService

VERSIONS = [reflection_v1_pb2, reflection_v1alpha_pb2]
LIFECYCLE = "cogmentAPI.TrialLifecycleSP"


class Lifecycle:
    """A service of the API with one method that answers."""

    async def Version(self, request: common_pb2.VersionRequest, call: Any) -> common_pb2.VersionInfo:
        return common_pb2.VersionInfo(versions=[common_pb2.VersionInfo.Version(name="us", version="1")])


def lifecycle() -> Service:
    return bind(orchestrator_pb2.DESCRIPTOR.services_by_name["TrialLifecycleSP"], Lifecycle())


async def ask(version: Any, services: list[Service], *questions: dict[str, Any]) -> list[Any]:
    method = methods_of(version.DESCRIPTOR.services_by_name["ServerReflection"])["ServerReflectionInfo"]
    with trio.fail_after(30):
        async with InProcessChannel(reflection_services(services)) as channel, channel.call(method) as call:
            answers = []
            for question in questions:
                await call.send(version.ServerReflectionRequest(host="here", **question))
                answers.append(await call.receive())
            await call.done_sending()
            assert await call.receive() is None
    for question, answer in zip(questions, answers, strict=True):
        assert answer.valid_host == "here"
        assert answer.original_request == version.ServerReflectionRequest(host="here", **question)
    return answers


def files_of(answer: Any) -> list[str]:
    return [FileDescriptorProto.FromString(file).name for file in answer.file_descriptor_response.file_descriptor_proto]


@pytest.mark.parametrize("version", VERSIONS, ids=["v1", "v1alpha"])
async def test_services_and_files(version: Any) -> None:
    listed, by_name, *by_symbol = await ask(
        version,
        [lifecycle(), CheckService().service()],
        {"list_services": "*"},
        {"file_by_filename": "cogment/api/orchestrator.proto"},
        {"file_containing_symbol": LIFECYCLE},
        {"file_containing_symbol": f"{LIFECYCLE}.StartTrial"},
        {"file_containing_symbol": "cogmentAPI.TrialStartRequest"},
    )
    assert [service.name for service in listed.list_services_response.service] == [
        LIFECYCLE,
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "trio_cogment.testing.Check",
    ]
    assert set(files_of(by_name)) >= {
        "cogment/api/orchestrator.proto",
        "cogment/api/common.proto",
        "google/protobuf/any.proto",
    }
    for answer in by_symbol:
        assert files_of(answer) == files_of(by_name)
        assert files_of(answer)[0] == "cogment/api/orchestrator.proto"


@pytest.mark.parametrize("version", VERSIONS, ids=["v1", "v1alpha"])
async def test_what_is_not_known_is_said_so_and_the_stream_goes_on(version: Any) -> None:
    answers = await ask(
        version,
        [lifecycle()],
        {"file_by_filename": "nowhere.proto"},
        {"file_containing_symbol": "cogmentAPI.Nothing"},
        {"file_containing_symbol": f"{LIFECYCLE}.Nothing"},
        {"file_containing_symbol": ""},
        {"file_containing_extension": {"containing_type": "cogmentAPI.Action", "extension_number": 100}},
        {"file_containing_extension": {"containing_type": "cogmentAPI.Nothing", "extension_number": 100}},
        {"all_extension_numbers_of_type": "cogmentAPI.Nothing"},
        {},
        {"file_containing_symbol": LIFECYCLE},
    )
    assert [answer.error_response.error_code for answer in answers] == [5, 5, 5, 5, 5, 5, 5, 3, 0]


async def test_extensions() -> None:
    pool = DescriptorPool()
    file = FileDescriptorProto(name="extended.proto", package="extended", syntax="proto2")
    base = DescriptorProto(name="Base")
    base.extension_range.add(start=100, end=200)
    file.message_type.append(base)
    for number in (101, 100):
        file.extension.add(
            name=f"more{number}",
            number=number,
            extendee=".extended.Base",
            type=FieldDescriptorProto.TYPE_INT32,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
    service = file.service.add(name="Service")
    service.method.add(name="M", input_type=".extended.Base", output_type=".extended.Base")
    pool.Add(file)
    numbers, found = await ask(
        reflection_v1_pb2,
        [bind(pool.FindServiceByName("extended.Service"), object())],
        {"all_extension_numbers_of_type": "extended.Base"},
        {"file_containing_extension": {"containing_type": "extended.Base", "extension_number": 101}},
    )
    assert numbers.all_extension_numbers_response.base_type_name == "extended.Base"
    assert list(numbers.all_extension_numbers_response.extension_number) == [100, 101]
    assert files_of(found) == ["extended.proto"]


async def test_standard_services_describe_themselves() -> None:
    services = [lifecycle()]
    method = methods_of(reflection_v1_pb2.DESCRIPTOR.services_by_name["ServerReflection"])["ServerReflectionInfo"]
    async with InProcessChannel([*services, *standard_services(services)]) as channel, channel.call(method) as call:
        await call.send(reflection_v1_pb2.ServerReflectionRequest(list_services=""))
        names = [service.name for service in (await call.receive()).list_services_response.service]
        assert names == [
            LIFECYCLE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ]
        for name in names:
            await call.send(reflection_v1_pb2.ServerReflectionRequest(file_containing_symbol=name))
            assert files_of(await call.receive())


def call_by_reflection(port: int) -> Any:
    """Call `Version` with nothing but what the server says about itself."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        names = list(database.get_services())
        pool = DescriptorPool(database)
        method = pool.FindServiceByName(LIFECYCLE).FindMethodByName("Version")
        call = channel.unary_unary(
            f"/{LIFECYCLE}/Version",
            lambda request: request.SerializeToString(),
            GetMessageClass(method.output_type).FromString,
        )
        return names, call(GetMessageClass(method.input_type)(), timeout=30)


async def test_grpcio_database_and_dynamic_call() -> None:
    services = [lifecycle(), bind(datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"], object())]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            serving = await nursery.start(serve, [*services, *standard_services(services)], listeners)
            names, reply = await trio.to_thread.run_sync(call_by_reflection, serving.port)
            nursery.cancel_scope.cancel()
    assert len(names) == 5
    assert reply.versions[0].name == "us"
