"""Messages as JSON and back, with the conventions of the reference's web proxy.

Fields have the names of the protos and are there without a value, too, but for those of our own. Enums are names,
integers of 64 bits texts, bytes base64. A field that nobody knows is refused. What has no declared type is bytes, and
so base64.

What participants add to rewards and messages (an `Any`) is any JSON: in a `google.protobuf.Value`, unless it is an
object whose `@type` names a message of the project.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Value

from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.sdk.spec import Payload
from trio_cogment.sdk.spec.fields import is_map, is_well_known

_TYPE = "@type"
_TYPE_PREFIX = "type.googleapis.com/"
#: Errors of the parser may have the whole input in them.
_LONGEST_TEXT = 500
#: What the reference has no field for has a higher number, in its own package.
_REFERENCE_PACKAGE = "cogmentAPI"
_REFERENCE_FIELDS = 1000
_PARSE_ERRORS = (json_format.Error, ValueError, TypeError, AttributeError, RecursionError)


def loads(body: bytes) -> Any:
    """Return what a body holds.

    Raises:
        InvalidArgumentError: it is not JSON.
    """
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"body: expected JSON: {str(error)[:_LONGEST_TEXT]}") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"there is no {name}")


def dumps(document: Any) -> bytes:
    """Return a document as JSON."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def to_json(message: Message) -> Any:
    """Return a message as JSON.

    Raises:
        RemoteProtocolError: an `Any` in it holds something that nobody here knows.
    """
    try:
        document = json_format.MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=_pool(message.DESCRIPTOR),
        )
    except _PARSE_ERRORS as error:
        kind = message.DESCRIPTOR.full_name
        raise RemoteProtocolError(f"a {kind} cannot be written as JSON: {str(error)[:_LONGEST_TEXT]}") from None
    _complete(document, message.DESCRIPTOR)
    return document


def _complete(document: Any, kind: Any) -> None:
    """Write null for each message that is not set, as the reference does and Python's protobuf does not.

    Fields of our own are there only where they have a value: the reference does not know them.
    """
    if is_well_known(kind) or not isinstance(document, dict):
        return
    is_reference = kind.file.package == _REFERENCE_PACKAGE
    for field in kind.fields:
        if is_reference and field.number > _REFERENCE_FIELDS and not document.get(field.name):
            document.pop(field.name, None)
            continue
        if field.message_type is None or field.containing_oneof is not None:
            if field.message_type is not None and field.name in document:
                _complete(document[field.name], field.message_type)
            continue
        value = document.get(field.name)
        if is_map(field):
            of_value = field.message_type.fields_by_name["value"].message_type
            for item in (value or {}).values() if of_value is not None else ():
                _complete(item, of_value)
        elif field.is_repeated:
            for item in value or ():
                _complete(item, field.message_type)
        elif value is None:
            document[field.name] = None
        else:
            _complete(value, field.message_type)


def _pool(kind: Any) -> Any:
    # The types that protobuf declares name a class that there is not at run time.
    return kind.file.pool


def from_json(value: Any, kind: type[Message], where: str) -> Any:
    """Return the message that an object says.

    Args:
        value: the object.
        kind: of the message.
        where: names the field in errors.

    Raises:
        InvalidArgumentError: it says no such message.
    """
    name = kind.DESCRIPTOR.full_name
    if not isinstance(value, dict) and not is_well_known(kind.DESCRIPTOR):
        raise InvalidArgumentError(f"{where}: expected an object ({name})")
    try:
        return json_format.ParseDict(value, kind(), descriptor_pool=_pool(kind.DESCRIPTOR))
    except _PARSE_ERRORS as error:
        raise InvalidArgumentError(f"{where}: expected {name}: {str(error)[:_LONGEST_TEXT]}") from None


def payload_to_json(payload: Payload) -> Any:
    """Return an observation, an action or a configuration as JSON."""
    return base64.b64encode(payload).decode() if isinstance(payload, bytes) else to_json(payload)


def payload_from_json(value: Any, kind: type[Message] | None, where: str) -> Payload:
    """Return the payload that a value says.

    Args:
        value: as JSON.
        kind: its declared type; None: there is none, and it is bytes.
        where: names the field in errors.

    Raises:
        InvalidArgumentError: it says no such payload.
    """
    if kind is not None:
        message: Message = from_json(value, kind, where)
        return message
    try:
        if not isinstance(value, str):
            raise TypeError
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidArgumentError(f"{where}: no type is declared for it: expected bytes as base64") from None


def any_to_json(packed: AnyMessage, types: Mapping[str, type[Message]]) -> Any:
    """Return what an `Any` holds.

    Args:
        packed: the message; one of a type that nobody knows becomes its type and base64.
        types: messages of the project, by their full names.
    """
    name = packed.type_url.rpartition("/")[2]
    kind = Value if name == Value.DESCRIPTOR.full_name else types.get(name)
    if kind is not None:
        try:
            document = to_json(kind.FromString(packed.value))
        except (DecodeError, RemoteProtocolError):
            pass
        else:
            if kind is Value:
                return document
            beside = {"value": document} if is_well_known(kind.DESCRIPTOR) else document
            return {_TYPE: packed.type_url, **beside}
    return {_TYPE: packed.type_url, "value": base64.b64encode(packed.value).decode()}


def any_from_json(value: Any, types: Mapping[str, type[Message]], where: str) -> Message:
    """Return what a value says, to be put into an `Any`.

    Raises:
        InvalidArgumentError: its `@type` is not known, or it is no such message.
    """
    if not (isinstance(value, dict) and _TYPE in value):
        message: Message = from_json(value, Value, where)
        return message
    url = value[_TYPE]
    kind = types.get(url.rpartition("/")[2]) if isinstance(url, str) else None
    if kind is None:
        raise InvalidArgumentError(
            f"{where}: {_TYPE}: expected {_TYPE_PREFIX} and the full name of a message of the project"
        )
    item = {name: item for name, item in value.items() if name != _TYPE}
    found: Message = from_json(item.get("value") if is_well_known(kind.DESCRIPTOR) else item, kind, where)
    return found
