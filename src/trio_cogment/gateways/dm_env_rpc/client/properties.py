"""The extension of dm_env_rpc for properties: its requests and replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from trio_cogment.api.dm_env_rpc import properties_pb2 as pb
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import decode_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Property:
    """A property of a server, or of the world that was joined.

    Attributes:
        key: its name.
        spec: of its value; None for one that has no value and is only a group of others.
        readable: it can be read.
        writable: it can be written.
        listable: it has properties below it.
        description: for people.
    """

    key: str
    spec: TensorSpec | None
    readable: bool
    writable: bool
    listable: bool
    description: str = ""

    @classmethod
    def of(cls, message: pb.PropertySpec) -> Property:
        """Return a property that was received.

        Raises:
            SpaceError: its specification makes no sense.
        """
        has_value = message.is_readable or message.is_writable
        return cls(
            message.spec.name,
            TensorSpec.from_message(message.spec) if has_value else None,
            message.is_readable,
            message.is_writable,
            message.is_listable,
            message.description,
        )


def packed(request: pb.PropertyRequest) -> AnyMessage:
    """Return a request as the content of an extension."""
    found = AnyMessage()
    found.Pack(request)
    return found


def answered(server: str, kind: str, content: AnyMessage) -> Any:
    """Return the answer of one kind in the content of an extension.

    Raises:
        RemoteProtocolError: it is none.
    """
    response = pb.PropertyResponse()
    try:
        found = content.Unpack(response) and response.WhichOneof("payload")
    except DecodeError:
        found = None
    if found != kind:
        got = found or content.type_url.rpartition("/")[2] or "nothing"
        raise RemoteProtocolError(f"{server}: extension: expected the answer {kind} of properties, got {got}")
    return getattr(response, kind)


def value_of(server: str, key: str, answer: pb.ReadPropertyResponse) -> NDArray[Any]:
    """Return the value that a property was read as.

    Raises:
        RemoteProtocolError: it is not a tensor that makes sense.
    """
    try:
        return decode_tensor(answer.value)
    except SpaceError as error:
        raise RemoteProtocolError(f"{server}: {error.of(f'property {key!r}')}") from None


def properties_of(server: str, answer: pb.ListPropertyResponse) -> list[Property]:
    """Return the properties that were listed.

    Raises:
        RemoteProtocolError: the specification of one makes no sense.
    """
    try:
        return [Property.of(each) for each in answer.values]
    except SpaceError as error:
        raise RemoteProtocolError(f"{server}: properties: {error}") from None
