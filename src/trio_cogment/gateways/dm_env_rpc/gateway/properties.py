"""The extension of dm_env_rpc for properties, as a gateway answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2, properties_pb2
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError, RpcError, StatusCode, UnimplementedError
from trio_cogment.gateways.dm_env_rpc.gateway.property_table import EACH, TABLE, Place, Row
from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import NotThatError, described
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import decode_tensor, fill_tensor

_LONGEST_SHOWN = 100


def answer_extension(extension: AnyMessage, place: Place) -> AnyMessage:
    """Return the answer to an extension request.

    Args:
        extension: of the request.
        place: who asks.

    Raises:
        UnimplementedError: it is not about properties.
        InvalidArgumentError: it makes no sense, the property cannot be listed, or the value is not of its type.
        NotFoundError: there is no such property.
        RpcError: PERMISSION_DENIED: the property cannot be read, or not be written.
        FailedPreconditionError: it needs a trial, and there is none.
    """
    request = properties_pb2.PropertyRequest()
    kind = None
    try:
        if not extension.Unpack(request):
            name = extension.type_url.rpartition("/")[2][:_LONGEST_SHOWN]
            raise UnimplementedError(f"extension: expected {request.DESCRIPTOR.full_name}, got {name!r}")
        kind = request.WhichOneof("payload")
    except DecodeError:
        raise InvalidArgumentError("extension: expected a valid PropertyRequest") from None
    if kind is None:
        raise InvalidArgumentError(f"extension: expected one of {', '.join(_ANSWERS)}; got none")
    response = properties_pb2.PropertyResponse()
    _ANSWERS[kind](getattr(request, kind), getattr(response, kind), place)
    found = AnyMessage()
    found.Pack(response)
    return found


def _read(request: Any, response: Any, place: Place) -> None:
    row, place = _found(request.key, place)
    if row.read is None:
        raise _denied(request.key, "read")
    fill_tensor(response.value, row.read(place))


def _write(request: Any, response: Any, place: Place) -> None:
    row, place = _found(request.key, place)
    if row.write is None:
        raise _denied(request.key, "written")
    name = _shown(request.key)
    try:
        value = decode_tensor(request.value)
    except SpaceError as error:
        raise InvalidArgumentError(str(error.of(f"property {name!r}"))) from None
    try:
        row.write(place, value)
    except NotThatError as error:
        raise InvalidArgumentError(f"property {name!r}: expected {error}, got {described(value)}") from None
    response.SetInParent()


def _list(request: Any, response: Any, place: Place) -> None:
    if request.key:
        _found(request.key, place)
    below = list(_below(request.key, place))
    if not below and not _is_listable(request.key):
        raise InvalidArgumentError(f"property {_shown(request.key)!r}: there is nothing below it to list")
    response.SetInParent()
    for name, row in below:
        response.values.add(
            spec=_spec(name, row),
            is_readable=row.read is not None,
            is_writable=row.write is not None,
            is_listable=_is_listable(name),
            description=row.text,
        )


_ANSWERS: Mapping[str, Callable[[Any, Any, Place], None]] = {
    "read_property": _read,
    "write_property": _write,
    "list_property": _list,
}


def _found(name: str, place: Place) -> tuple[Row, Place]:
    """Return the row of a property, and the place with its item.

    Raises:
        NotFoundError: there is none.
    """
    row = TABLE.get(name) if not name.endswith(EACH) else None
    for pattern, each in _ITEMS.items():
        item = name[len(pattern) - 1 :]
        if row is None and name.startswith(pattern[:-1]) and _is_there(each, place) and item in _items(each, place):
            row, place = each, replace(place, item=item)
    if row is None or not _is_there(row, place):
        before = "" if row is None else "; it is there after JoinWorld"
        raise NotFoundError(f"there is no property {_shown(name)!r}{before}")
    return row, place


def _below(name: str, place: Place) -> Iterator[tuple[str, Row]]:
    """Yield the properties right below one."""
    for key, row in TABLE.items():
        if key.rpartition(".")[0] != name or not _is_there(row, place):
            continue
        if row.items is None:
            yield key, row
        else:
            yield from ((key.removesuffix(EACH) + item, row) for item in row.items(place))


def _is_listable(name: str) -> bool:
    return not name or any(key.rpartition(".")[0] == name for key in TABLE)


def _is_there(row: Row, place: Place) -> bool:
    return place.record is not None or not row.joined


def _items(row: Row, place: Place) -> set[str]:
    return set() if row.items is None else set(row.items(place))


def _spec(name: str, row: Row) -> dm_env_rpc_pb2.TensorSpec:
    return TensorSpec.of(name, row.dtype, row.shape).message() if row.dtype else dm_env_rpc_pb2.TensorSpec(name=name)


def _denied(name: str, doing: str) -> RpcError:
    return RpcError(StatusCode.PERMISSION_DENIED, f"property {_shown(name)!r}: it cannot be {doing}")


def _shown(name: str) -> str:
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."


_ITEMS = {name: row for name, row in TABLE.items() if row.items is not None}
