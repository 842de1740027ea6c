"""Fields of configurations from settings: `level.size` is the field `size` of the message `level`.

A message of any protobuf type, whichever the project declares. Lists of numbers are vectors; keys of maps, of
`google.protobuf.Struct` and of `trio_cogment.spaces.Value.Fields` are parts of the name, too. Whatever else a message
has within it can be given whole, as an `Any` in a tensor of the type PROTO.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from trio_cogment.base.suggestions import suggestion
from trio_cogment.gateways.dm_env_rpc.gateway import setting_values as values
from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import NotThatError
from trio_cogment.sdk.spec.fields import Integers, by_type, enum_numbers, is_map, is_wrapper, other_choice
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.values import fill_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STRUCT = "google.protobuf.Struct"
_FIELDS = "trio_cogment.spaces.Value.Fields"
#: More parts are refused: who receives the message reads a hundred levels only.
MAX_DEPTH = 24


class UnknownFieldError(LookupError):
    """A message has no such field; the text says which it has."""


def set_field(message: Any, path: str, value: NDArray[Any]) -> None:
    """Set a field of a message, and within it.

    Args:
        message: the configuration, which is changed.
        path: the names of fields, joined by dots.
        value: of the setting.

    Raises:
        UnknownFieldError: there is no such field.
        NotThatError: the value is not of its type.
    """
    parts = path.split(".")
    if len(parts) > MAX_DEPTH:
        raise UnknownFieldError(f"expected at most {MAX_DEPTH} names")
    if not all(parts):
        raise UnknownFieldError("expected names of fields, joined by dots")
    _set_within(message, parts, value)


def excluded_by(message: Any, path: str) -> str | None:
    """Return the field that has taken the place of one that was set, as both are of one `oneof`; None: none has."""
    for name in path.split("."):
        descriptor = getattr(message, "DESCRIPTOR", None)
        field = None if descriptor is None else descriptor.fields_by_name.get(name)
        if field is None:  # within a map, or values of any names
            return None
        if (other := other_choice(message, field)) is not None:
            return other
        message = getattr(message, name)
    return None


def _set_within(message: Any, parts: list[str], value: NDArray[Any]) -> None:
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == _STRUCT:
        _set_in_struct(message, parts, value)
        return
    if descriptor.full_name == _FIELDS:
        _set_in_fields(message, parts, value)
        return
    name, rest = parts[0], parts[1:]
    field = descriptor.fields_by_name.get(name)
    if field is None:
        raise _unknown(name, descriptor)
    if (other := other_choice(message, field)) is not None:
        message.ClearField(other)
    if is_map(field):
        _set_in_map(getattr(message, name), field, rest, value)
    elif field.is_repeated:
        _no_more(rest, name)
        _set_list(message, field, value)
    elif field.message_type is None:
        _no_more(rest, name)
        setattr(message, name, scalar(field, value))
    else:
        target = getattr(message, name)
        target.SetInParent()
        _set_message(target, rest, value)


def _set_message(target: Any, rest: list[str], value: NDArray[Any]) -> None:
    if rest:
        _set_within(target, rest, value)
    elif is_wrapper(target.DESCRIPTOR):
        _set_within(target, ["value"], value)
    else:
        _set_whole(target, value)


def _set_whole(target: Any, value: NDArray[Any]) -> None:
    full_name = target.DESCRIPTOR.full_name
    if value.ndim or value.dtype.kind != "O":
        raise NotThatError(f"a setting for each field of {full_name}, or one message of this type")
    given = value.item()
    if full_name == "google.protobuf.Any":
        target.type_url, target.value = given.type_url, given.value
        return
    if given.type_url.rpartition("/")[2] != full_name:
        raise NotThatError(f"a message of the type {full_name}")
    try:
        target.ParseFromString(given.value)
    except DecodeError:
        raise NotThatError(f"a valid message of the type {full_name}") from None


def _set_list(message: Any, field: FieldDescriptor, value: NDArray[Any]) -> None:
    if value.ndim != 1:
        raise NotThatError(f"a vector, for the list {field.name}")
    message.ClearField(field.name)
    target = getattr(message, field.name)
    for element in range(value.size):
        one = value[element : element + 1].reshape(())
        if field.message_type is None:
            target.append(scalar(field, one))
        else:
            _set_message(target.add(), [], one)


def _set_in_map(target: Any, field: FieldDescriptor, parts: list[str], value: NDArray[Any]) -> None:
    assert field.message_type is not None
    key_field, value_field = field.message_type.fields
    if key_field.type != FieldDescriptor.TYPE_STRING:
        raise UnknownFieldError("a map has settings only if its keys are strings")
    if not parts:
        raise UnknownFieldError("expected a key of this map, after another dot")
    if value_field.message_type is not None:
        _set_message(target[parts[0]], parts[1:], value)
    else:
        target[".".join(parts)] = scalar(value_field, value)


def _set_in_struct(message: Any, parts: list[str], value: NDArray[Any]) -> None:
    entry = message.fields[parts[0]]
    if len(parts) > 1:
        entry.struct_value.SetInParent()
        _set_in_struct(entry.struct_value, parts[1:], value)
        return
    found = values.plain(value)
    _fill_struct_value(entry, found if isinstance(found, str | bool | int | float | list) else value.tolist())


def _fill_struct_value(entry: Any, found: Any) -> None:
    if isinstance(found, list):
        entry.list_value.SetInParent()
        for each in found:
            _fill_struct_value(entry.list_value.values.add(), each)
    elif isinstance(found, str):
        entry.string_value = found
    elif isinstance(found, bool):
        entry.bool_value = found
    else:
        if found != float(found) and found == found:
            raise NotThatError("numbers that a floating-point number of 64 bits can be")
        entry.number_value = found


def _set_in_fields(message: Any, parts: list[str], value: NDArray[Any]) -> None:
    entry = next((each.value for each in message.fields if each.key == parts[0]), None)
    if entry is None:
        added = message.fields.add()
        added.key, entry = parts[0], added.value
    if len(parts) > 1:
        entry.dict.SetInParent()
        _set_in_fields(entry.dict, parts[1:], value)
        return
    entry.Clear()
    try:
        fill_value(entry, values.plain(value))
    except SpaceError as error:
        raise NotThatError(error.reason) from None


# Scalars


def scalar(field: FieldDescriptor, value: NDArray[Any]) -> Any:
    """Return a value for a field that is not a message, or for an item of such a list.

    Raises:
        NotThatError: it is not of the field's type, or would lose something.
    """
    if field.enum_type is not None:
        return _enum(field.enum_type, value)
    return _READERS[field.type](value)


def _enum(enum: EnumDescriptor, value: NDArray[Any]) -> int:
    numbers = enum_numbers(enum)
    if not value.ndim and value.dtype.kind in "iufU":
        found = value.item()
        chosen = numbers.get(found) if isinstance(found, str) else found
        if chosen is not None and chosen in numbers.values():
            return int(chosen)
    raise NotThatError(f"one of {', '.join(numbers)}, or its number")


def _integer(integers: Integers) -> Callable[[NDArray[Any]], int]:
    return lambda value: values.integer(value, integers.least, integers.most)


def _number(bits: int) -> Callable[[NDArray[Any]], float]:
    return lambda value: values.number(value, bits=bits)


_READERS: dict[int, Callable[[NDArray[Any]], Any]] = by_type(
    text=values.text, content=values.content, boolean=values.boolean, number=_number, integer=_integer
)


def _no_more(rest: list[str], name: str) -> None:
    if rest:
        raise UnknownFieldError(f"{name} has no fields")


def _unknown(name: str, descriptor: Descriptor) -> UnknownFieldError:
    known = sorted(field.name for field in descriptor.fields)
    return UnknownFieldError(f"{descriptor.full_name} has no field {name!r}; {suggestion(name, known)}")
