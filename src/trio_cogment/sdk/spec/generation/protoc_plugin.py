"""The plugin of protoc: `protoc --trio_grpc_out=. greeter.proto` writes `greeter_grpc.py`, with typed stubs.

protoc starts it as `protoc-gen-trio_grpc`, with a `CodeGeneratorRequest` at its standard input, and takes a
`CodeGeneratorResponse` from its standard output (`google/protobuf/compiler/plugin.proto`).
"""

from __future__ import annotations

import sys

from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk.spec.generation._grpc import grpc_modules


def answer(request: CodeGeneratorRequest) -> CodeGeneratorResponse:
    """Return the files that protoc is to write, or what is wrong with its request."""
    response = CodeGeneratorResponse(supported_features=CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL)
    if request.parameter:
        response.error = f"trio_grpc: there are no options; got {request.parameter!r}"
        return response
    try:
        modules = grpc_modules(request.proto_file, request.file_to_generate)
    except InvalidArgumentError as error:
        response.error = f"trio_grpc: {error}"
        return response
    for path, text in modules.items():
        response.file.add(name=path, content=text)
    return response


def main() -> None:
    """Answer the request at standard input."""
    request = CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    sys.stdout.buffer.write(answer(request).SerializeToString())
