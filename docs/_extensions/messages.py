"""Writes a page of the messages of the API: their fields and types, from what protoc has made of `protos/`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

#: Those of the Cogment API, and those of this project.
MODULES = (
    *("common", "orchestrator", "hooks", "environment", "agent", "datalog", "trial_datastore", "model_registry"),
    *("directory", "spaces", "rl"),
)
_PACKAGE = "trio_cogment.api"
PAGE = f"{_PACKAGE}.messages"


def described_message(name: str) -> str | None:
    """Return the name under which the page describes a message, however its module is named."""
    module, _, message = name.removeprefix("trio_").removeprefix("cogment.api.").partition("_pb2.")
    return f"{_PACKAGE}.{module}_pb2.{message}" if message and module in MODULES else None


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Messages"
    yield ""
    yield "The protobuf messages of the Cogment API and of this project, as `trio_cogment.api` has them. Programs"
    yield "rarely make them: `trial_params`, `actor_params` and the sessions do. The sources in `protos/` say what the"
    yield "fields mean."
    for short in MODULES:
        name = f"{_PACKAGE}.{short}_pb2"
        described = importlib.import_module(name).DESCRIPTOR
        yield ""
        yield f"## {name}"
        yield ""
        yield "```{eval-rst}"
        yield f".. py:currentmodule:: {name}"
        for enum in described.enum_types_by_name.values():
            yield from _enum(enum, "")
        for message in described.message_types_by_name.values():
            yield from _message(message, "")
        yield "```"


def _enum(enum: EnumDescriptor, outer: str) -> Iterator[str]:
    yield from ("", f".. py:class:: {outer}{enum.name}", "")
    yield f"   {', '.join(f'`{value.name}`' for value in enum.values)}"


def _message(message: Descriptor, outer: str) -> Iterator[str]:
    if message.GetOptions().map_entry:
        return
    yield from ("", f".. py:class:: {outer}{message.name}")
    if message.fields:
        yield ""
        yield from (f"   - `{field.name}`: {_type(field)}" for field in message.fields)
    inner = f"{outer}{message.name}."
    for enum in message.enum_types:
        yield from _enum(enum, inner)
    for nested in message.nested_types:
        yield from _message(nested, inner)


def _type(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map from {_one(key)} to {_one(value)}"
    return f"repeated {_one(field)}" if field.is_repeated else _one(field)


def _one(field: FieldDescriptor) -> str:
    described = field.message_type or field.enum_type
    if described is None:
        return f"`{_SCALARS[field.type]}`"
    short = described.file.name.rpartition("/")[2].removesuffix(".proto")
    inner = described.full_name.removeprefix(f"{described.file.package}.")
    if short in MODULES:
        return f":py:class:`{inner} <{_PACKAGE}.{short}_pb2.{inner}>`"
    return f"`{described.full_name}`"


#: What the numbers of `FieldDescriptor.TYPE_...` mean, from 1 on; messages, groups and enumerations are none of them.
_SCALARS = dict(
    enumerate(
        (
            *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "", "", "bytes"),
            *("uint32", "", "sfixed32", "sfixed64", "sint32", "sint64"),
        ),
        1,
    )
)
