"""Details of a status: messages beside its code and text, as `google.rpc.Status` carries them.

A server raises `detailed_error(...)`; a client finds the messages with `details_of` or `find_detail`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from trio_cogment.base.errors import STATUS_DETAILS, RpcError, StatusCode
from trio_cogment.rpc._protos.status_pb2 import Status

_M = TypeVar("_M", bound=Message)


def detailed_error(
    code: StatusCode,
    message: str,
    details: Sequence[Message],
    trailing_metadata: Sequence[tuple[str, str | bytes]] = (),
) -> RpcError:
    """Return an error that carries messages, in order.

    Args:
        code: the status.
        message: its text.
        details: messages of any type, for example of `google.rpc.error_details`; an `Any` goes as it is.
        trailing_metadata: goes with it.
    """
    status = Status(code=code, message=message)
    for detail in details:
        packed = detail if isinstance(detail, Any) else Any()
        if packed is not detail:
            packed.Pack(detail)
        status.details.add(type_url=packed.type_url, value=packed.value)
    return RpcError(code, message, [*trailing_metadata, (STATUS_DETAILS, status.SerializeToString())])


def details_of(error: RpcError) -> tuple[Any, ...]:
    """Return the messages that came with an error, packed; none if what came is not readable."""
    try:
        status = Status.FromString(error.details)
    except DecodeError:
        return ()
    return tuple(Any(type_url=detail.type_url, value=detail.value) for detail in status.details)


def find_detail(error: RpcError, kind: type[_M]) -> _M | None:
    """Return the first message of type `kind` that came with an error, None if there is none or it is not readable."""
    for packed in details_of(error):
        if packed.TypeName() == kind.DESCRIPTOR.full_name:
            found = kind()
            try:
                packed.Unpack(found)
            except DecodeError:
                continue
            return found
    return None
