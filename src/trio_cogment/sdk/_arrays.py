"""Arrays in payloads: the `Array` message of cogment-lab and cogment-verse as NumPy arrays.

NumPy is imported when the first array is requested: `pip install trio-cogment[arrays]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from trio_cogment.base.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

_ARRAY_FIELDS = ("dtype", "shape", "raw_data", "npy_data")
#: The field of an observation or action that holds the array.
_WRAPPER_FIELD = "value"


def array_message(payload: Any) -> Message | None:
    """Return the `Array` message that a payload is, or holds in its field `value`; None if there is none."""
    if not isinstance(payload, Message):
        return None
    if all(name in payload.DESCRIPTOR.fields_by_name for name in _ARRAY_FIELDS):
        return payload
    inner = payload.DESCRIPTOR.fields_by_name.get(_WRAPPER_FIELD)
    if inner is None or inner.message_type is None or inner.is_repeated:
        return None
    found: Message = getattr(payload, _WRAPPER_FIELD)
    return array_message(found) if payload.HasField(_WRAPPER_FIELD) else None


def as_array(payload: Any) -> np.ndarray[Any, Any]:
    """Return the array that a payload is, or holds in its field `value`.

    The array is read-only: copy it to change it.

    Raises:
        InvalidArgumentError: the payload is not an array, its type is unknown, or its data does not match its shape.
        MissingExtraError: NumPy is not installed.
    """
    message = array_message(payload)
    if message is None:
        raise InvalidArgumentError(f"payload: expected an array, got {type(payload).__name__}")
    from trio_cogment.spaces.arrays import decode_array  # imports NumPy
    from trio_cogment.spaces.errors import SpaceError

    try:
        return decode_array(message)
    except SpaceError as error:
        raise error.of("array") from None
