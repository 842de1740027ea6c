"""Print the layout of the generated modules of a package as JSON: messages, enums and services of every file.

Runs in either environment: `python dump_descriptors.py <package>`, where the package's modules are named `*_pb2`.
"""

import importlib
import json
import pkgutil
import sys
from typing import Any

from google.protobuf import descriptor_pb2

FieldProto = descriptor_pb2.FieldDescriptorProto


def enum(proto: descriptor_pb2.EnumDescriptorProto) -> dict[str, int]:
    return {value.name: value.number for value in proto.value}


def field(proto: descriptor_pb2.FieldDescriptorProto, oneofs: list[str]) -> dict[str, Any]:
    return {
        "number": proto.number,
        "type": FieldProto.Type.Name(proto.type),
        "label": FieldProto.Label.Name(proto.label),
        "type_name": proto.type_name,
        "oneof": oneofs[proto.oneof_index] if proto.HasField("oneof_index") else None,
        "optional": proto.proto3_optional,
        "json_name": proto.json_name,
        "packed": proto.options.packed if proto.options.HasField("packed") else None,
    }


def message(prefix: str, proto: descriptor_pb2.DescriptorProto, found: dict[str, Any]) -> None:
    name = f"{prefix}.{proto.name}"
    oneofs = [oneof.name for oneof in proto.oneof_decl]
    found["messages"][name] = {
        "fields": {part.name: field(part, oneofs) for part in proto.field},
        "oneofs": oneofs,
        "map_entry": proto.options.map_entry,
    }
    for nested in proto.nested_type:
        message(name, nested, found)
    for nested_enum in proto.enum_type:
        found["enums"][f"{name}.{nested_enum.name}"] = enum(nested_enum)


def dump(package: str) -> dict[str, Any]:
    files: dict[str, Any] = {}
    found: dict[str, Any] = {"files": files, "messages": {}, "enums": {}, "services": {}}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if not module.name.endswith("_pb2"):
            continue
        proto = descriptor_pb2.FileDescriptorProto()
        importlib.import_module(f"{package}.{module.name}").DESCRIPTOR.CopyToProto(proto)
        files[proto.name] = {"package": proto.package, "syntax": proto.syntax}
        prefix = f".{proto.package}"
        for part in proto.message_type:
            message(prefix, part, found)
        for part_enum in proto.enum_type:
            found["enums"][f"{prefix}.{part_enum.name}"] = enum(part_enum)
        for service in proto.service:
            found["services"][f"{prefix}.{service.name}"] = {
                method.name: {
                    "input": method.input_type,
                    "output": method.output_type,
                    "client_streaming": method.client_streaming,
                    "server_streaming": method.server_streaming,
                }
                for method in service.method
            }
    return found


if __name__ == "__main__":
    json.dump(dump(sys.argv[1]), sys.stdout)
