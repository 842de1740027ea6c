"""Descriptors as protobufjs has them: its JSON description, and TypeScript declarations of its classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from trio_cogment.base.errors import InvalidArgumentError

_Field = FieldDescriptorProto
#: The names of scalar types, and their types in TypeScript.
_SCALARS: dict[int, tuple[str, str]] = {
    _Field.TYPE_DOUBLE: ("double", "number"),
    _Field.TYPE_FLOAT: ("float", "number"),
    _Field.TYPE_INT64: ("int64", "number | Long"),
    _Field.TYPE_UINT64: ("uint64", "number | Long"),
    _Field.TYPE_INT32: ("int32", "number"),
    _Field.TYPE_FIXED64: ("fixed64", "number | Long"),
    _Field.TYPE_FIXED32: ("fixed32", "number"),
    _Field.TYPE_BOOL: ("bool", "boolean"),
    _Field.TYPE_STRING: ("string", "string"),
    _Field.TYPE_BYTES: ("bytes", "Uint8Array"),
    _Field.TYPE_UINT32: ("uint32", "number"),
    _Field.TYPE_SFIXED32: ("sfixed32", "number"),
    _Field.TYPE_SFIXED64: ("sfixed64", "number | Long"),
    _Field.TYPE_SINT32: ("sint32", "number"),
    _Field.TYPE_SINT64: ("sint64", "number | Long"),
}
_NEVER_PACKED = {_Field.TYPE_STRING, _Field.TYPE_BYTES, _Field.TYPE_MESSAGE}


def description(files: FileDescriptorSet) -> dict[str, Any]:
    """Return what `protobuf.Root.fromJSON` reads.

    Raises:
        InvalidArgumentError: a message has a group.
    """
    root: dict[str, Any] = {}
    for file in files.file:
        inside = root
        for part in file.package.split(".") if file.package else ():
            inside = inside.setdefault("nested", {}).setdefault(part, {})
        nested = inside.setdefault("nested", {})
        nested.update({enum.name: _enum(enum) for enum in file.enum_type})
        nested.update({message.name: _message(file, message) for message in file.message_type})
    return root


def field_name(file: FileDescriptorProto, name: str) -> str:
    """Return the name of a field in JavaScript, as protobufjs converts it; its own types keep theirs."""
    if file.name == "google/protobuf/any.proto":
        return name
    return name[:1] + re.sub("_([a-z])", lambda found: found[1].upper(), name[1:])


def _enum(enum: EnumDescriptorProto) -> dict[str, Any]:
    values = {value.name: value.number for value in enum.value}
    return {"options": {"allow_alias": True}, "values": values} if enum.options.allow_alias else {"values": values}


def _message(file: FileDescriptorProto, message: DescriptorProto) -> dict[str, Any]:
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    fields: dict[str, Any] = {}
    oneofs: dict[str, list[str]] = {}
    for field in message.field:
        name = field_name(file, field.name)
        fields[name] = _field(file, message, field, maps)
        if field.HasField("oneof_index") and not field.proto3_optional:
            oneofs.setdefault(field_name(file, message.oneof_decl[field.oneof_index].name), []).append(name)
    described: dict[str, Any] = {"fields": fields}
    if oneofs:
        described["oneofs"] = {name: {"oneof": members} for name, members in oneofs.items()}
    nested = {enum.name: _enum(enum) for enum in message.enum_type}
    nested.update({inner.name: _message(file, inner) for inner in message.nested_type if inner.name not in maps})
    if nested:
        described["nested"] = nested
    return described


def _field(
    file: FileDescriptorProto, message: DescriptorProto, field: _Field, maps: dict[str, DescriptorProto]
) -> dict[str, Any]:
    entry = maps.get(field.type_name.rpartition(".")[2]) if field.type == _Field.TYPE_MESSAGE else None
    if entry is not None:
        key, value = entry.field
        return {"keyType": _type(file, message, key), "type": _type(file, message, value), "id": field.number}
    described: dict[str, Any] = {"type": _type(file, message, field), "id": field.number}
    options: dict[str, Any] = {}
    if field.label == _Field.LABEL_REPEATED:
        described = {"rule": "repeated", **described}
        packed = field.options.packed if field.options.HasField("packed") else file.syntax != ""
        if not packed and field.type not in _NEVER_PACKED:
            options["packed"] = False
    elif field.label == _Field.LABEL_REQUIRED:
        described = {"rule": "required", **described}
    elif field.proto3_optional:
        options["proto3_optional"] = True
    if field.default_value and field.type != _Field.TYPE_BYTES:
        options["default"] = _default(field)
    return {**described, "options": options} if options else described


def _default(field: _Field) -> object:
    text = field.default_value
    if field.type in {_Field.TYPE_STRING, _Field.TYPE_ENUM}:
        return text
    if field.type == _Field.TYPE_BOOL:
        return text == "true"
    number = float(text)
    return int(text) if number.is_integer() and field.type not in {_Field.TYPE_DOUBLE, _Field.TYPE_FLOAT} else number


def _type(file: FileDescriptorProto, message: DescriptorProto, field: _Field) -> str:
    if field.type == _Field.TYPE_GROUP:
        raise InvalidArgumentError(
            f"{file.name}: {message.name}.{field.name} is a group, which JavaScript does not support; use a message"
        )
    return field.type_name if field.type_name else _SCALARS[field.type][0]


def declarations(files: FileDescriptorSet) -> str:
    """Return the TypeScript declarations of the classes."""
    lines = ['import type { Long } from "protobufjs";', 'import type { Message } from "./CogTypes";', ""]
    for file in files.file:
        body = [line for enum in file.enum_type for line in _enum_declaration(enum)]
        body += [line for message in file.message_type for line in _class_declaration(file, message)]
        if file.package and body:
            lines += [f"export declare namespace {file.package} {{", *(f"  {line}" for line in body), "}"]
        else:
            lines += [
                line.replace("export ", "export declare ", 1) if line.startswith("export ") else line for line in body
            ]
    return "\n".join([*lines, ""])


def _enum_declaration(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"export enum {enum.name} {{ {', '.join(f'{value.name} = {value.number}' for value in enum.value)} }}"


def _class_declaration(file: FileDescriptorProto, message: DescriptorProto) -> Iterator[str]:
    name = message.name
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    fields = [(field_name(file, field.name), _typescript(field, maps)) for field in message.field]
    yield f"export interface I{name} {{"
    yield from (f"  {field}?: {kind} | null;" for field, kind in fields)
    yield "}"
    yield f"export class {name} extends Message implements I{name} {{"
    yield f"  constructor(properties?: I{name});"
    yield from (f"  {field}: {kind};" for field, kind in fields)
    yield f"  static create(properties?: I{name}): {name};"
    yield f"  static decode(reader: import('protobufjs').Reader | Uint8Array, length?: number): {name};"
    yield f"  static fromObject(object: {{ [key: string]: any }}): {name};"
    yield "}"
    inner = [line for enum in message.enum_type for line in _enum_declaration(enum)]
    for nested in message.nested_type:
        if nested.name not in maps:
            inner += _class_declaration(file, nested)
    if inner:
        yield f"export namespace {name} {{"
        yield from (f"  {line}" for line in inner)
        yield "}"


def _typescript(field: _Field, maps: dict[str, DescriptorProto]) -> str:
    if field.type == _Field.TYPE_MESSAGE and (entry := maps.get(field.type_name.rpartition(".")[2])) is not None:
        return f"{{ [key: string]: {_typescript(entry.field[1], {})} }}"
    kind = field.type_name.removeprefix(".") or _SCALARS[field.type][1]
    if field.type == _Field.TYPE_MESSAGE:
        before, dot, last = kind.rpartition(".")
        kind = f"{before}{dot}I{last}"
    if field.label == _Field.LABEL_REPEATED:
        return f"({kind})[]"
    return kind
