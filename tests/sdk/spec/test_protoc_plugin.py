"""The plugin of protoc and its answers: modules, or in a sentence why there are none."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from trio_cogment.sdk.spec.generation import grpc_modules
from trio_cogment.sdk.spec.generation.protoc_plugin import answer, main


@pytest.mark.parametrize(
    ("service", "method", "name"),
    [("Greeter", "import", "import"), ("None", "Greet", "None")],
    ids=["method", "service"],
)
def test_a_keyword_is_refused(service: str, method: str, name: str) -> None:
    file = FileDescriptorProto(name="one.proto", message_type=[DescriptorProto(name="Text")])
    file.service.add(name=service).method.add(name=method, input_type=".Text", output_type=".Text")
    response = answer(CodeGeneratorRequest(file_to_generate=["one.proto"], proto_file=[file]))
    assert response.error == f"trio_grpc: one.proto: {service}: {name!r} is a keyword of Python; use rpc.methods_of"
    assert not response.file


def test_options_are_refused() -> None:
    assert answer(CodeGeneratorRequest(parameter="fast")).error == "trio_grpc: there are no options; got 'fast'"


def test_protos_whose_modules_have_similar_names_do_not_mix() -> None:
    files = [
        FileDescriptorProto(name="a/b_c.proto", package="one", message_type=[DescriptorProto(name="Text")]),
        FileDescriptorProto(name="a_b/c.proto", package="two", message_type=[DescriptorProto(name="Text")]),
        FileDescriptorProto(name="all.proto", dependency=["a/b_c.proto", "a_b/c.proto"]),
    ]
    files[2].service.add(name="S").method.add(name="M", input_type=".one.Text", output_type=".two.Text")
    [text] = grpc_modules(files, ["all.proto"]).values()
    assert "import a.b_c_pb2 as _a_b_c_pb2\n" in text
    assert "import a_b.c_pb2 as _a_b_c_pb22\n" in text
    assert "rpc.UnaryUnaryMethod[_a_b_c_pb2.Text, _a_b_c_pb22.Text]" in text


def test_the_answer_has_the_files_that_were_asked_for() -> None:
    first = FileDescriptorProto(name="one.proto", message_type=[DescriptorProto(name="Text")])
    first.service.add(name="Greeter").method.add(name="Greet", input_type=".Text", output_type=".Text")
    second = FileDescriptorProto(name="two.proto", message_type=[DescriptorProto(name="Number")])
    response = answer(CodeGeneratorRequest(file_to_generate=["one.proto"], proto_file=[second, first]))
    assert not response.error
    assert {file.name: file.content for file in response.file} == grpc_modules([second, first], ["one.proto"])
    assert [file.name for file in response.file] == ["one_grpc.py"]
    assert response.supported_features & CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL


def test_the_program_reads_its_input_and_writes_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    request = CodeGeneratorRequest(parameter="fast")
    given, taken = io.BytesIO(request.SerializeToString()), io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=given))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=taken))
    main()
    assert taken.getvalue() == answer(request).SerializeToString()
