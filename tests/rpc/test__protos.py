"""The messages of the standard services get along with everybody else's, of whatever version."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.rpc import status_pb2 as public_status_pb2
from grpc_health.v1 import health_pb2 as public_health_pb2
from grpc_reflection.v1alpha import reflection_pb2 as public_reflection_pb2

from trio_cogment.rpc._protos import health_pb2, reflection_v1_pb2, reflection_v1alpha_pb2, status_pb2


def test_they_are_what_is_published() -> None:
    for ours, public in (
        (reflection_v1alpha_pb2, public_reflection_pb2),
        (status_pb2, public_status_pb2),
    ):
        assert ours.DESCRIPTOR.serialized_pb == public.DESCRIPTOR.serialized_pb
    assert health_pb2.DESCRIPTOR.name == public_health_pb2.DESCRIPTOR.name  # grpcio of this version has no List
    for name, message in public_health_pb2.DESCRIPTOR.message_types_by_name.items():
        fields = [(field.name, field.number) for field in message.fields]
        assert [(field.name, field.number) for field in getattr(health_pb2, name).DESCRIPTOR.fields] == fields
    assert reflection_v1_pb2.DESCRIPTOR.name == "grpc/reflection/v1/reflection.proto"
    assert (
        reflection_v1_pb2.ServerReflectionRequest.DESCRIPTOR.full_name == "grpc.reflection.v1.ServerReflectionRequest"
    )


DIFFERENT = """
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
for name, package, message in (
    ("grpc_health/v1/health.proto", "grpc.health.v1", "HealthCheckRequest"),
    ("health.proto", "grpc.health.v1", "HealthCheckResponse"),
    ("google/rpc/status.proto", "google.rpc", "Status"),
):
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    file.message_type.add(name=message)
    Default().AddSerializedFile(file.SerializeToString())
"""
USE = """
import trio_cogment.rpc as rpc
assert rpc.standard_services([]) and rpc.detailed_error(rpc.StatusCode.ABORTED, "text", []).details
"""


@pytest.mark.parametrize("code", [DIFFERENT + USE, USE + DIFFERENT], ids=["after", "before"])
def test_other_versions_in_the_same_process_do_not_collide(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_grpcio_is_not_needed() -> None:
    code = USE + "import sys; sys.exit(any(name == 'grpc' or name.startswith('grpc.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
