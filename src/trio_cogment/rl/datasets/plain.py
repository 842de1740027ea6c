"""Values in every kind of data set: needs NumPy, and neither Arrow nor Minari.

Information is stored as JSON. What JSON has no type for is told beside it, also as JSON, where there is such a thing: a
string for a value, `float32[2, 3]`, `int64` for a scalar, `bytes`; and for what has parts an object with its type and
their types by key or place: `{"tuple": {"1": "bool"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from trio_cogment.spaces import ArraySpace, Space, SpaceError
from trio_cogment.spaces.base import described
from trio_cogment.spaces.composite import GraphValue, is_graph
from trio_cogment.spaces.masks import mask_in, may_be_mask


def array_in(space: ArraySpace, value: Any) -> Any:
    """Return an array or number that has a space's shape, and a type that its type can take.

    Bounds do not matter: what was observed, was observed. Python's numbers are taken where the space has no dimensions,
    if its type holds them: trials take such actions.

    Raises:
        SpaceError: it has another shape or type.
    """
    if type(value) in (bool, int, float) and not space.shape:
        return _number_in(space, value)
    if not isinstance(value, np.ndarray | np.generic):
        raise SpaceError(f"expected an array, got {described(value)}")
    if value.shape != space.shape:
        raise SpaceError(f"expected the shape {space.shape}, got {value.shape}")
    if value.dtype != space.dtype and not space.fits(value.dtype):
        raise SpaceError(f"expected {space.row.name}, got {value.dtype}")
    return value


def _number_in(space: ArraySpace, value: float) -> Any:
    kinds = {bool: "b", int: "iuf", float: "f"}[type(value)]
    if space.dtype.kind in kinds:
        try:
            with np.errstate(over="ignore"):
                found = np.asarray(value).astype(space.dtype)
            if space.dtype.kind == "f" or int(found) == value:
                return found
        except (OverflowError, TypeError):  # no integer of NumPy is that large
            pass
    raise SpaceError(f"expected {space.row.name}, got {value!r}")


def stored_mask(space: Space, mask: Any) -> Any:
    """Return a mask that is stored as `mask_in` does; None for what is none, which older versions have stored as one.

    Raises:
        SpaceError: it means no mask of the space.
    """
    try:
        return mask_in(space, mask) if may_be_mask(space, mask) else None
    except SpaceError as error:
        raise error.of("action_mask") from None


def as_json(value: Any) -> str:
    """Return information as JSON; arrays become lists, bytes text of hexadecimal digits."""
    return json.dumps(value, default=_plainly, ensure_ascii=False)


def types_of(value: Any) -> Any:
    """Return the types of a value that `as_json` loses; None if it loses none."""
    if isinstance(value, np.ndarray):
        return f"{_dtype_name(value)}{list(value.shape)}"
    if isinstance(value, np.generic):
        return _dtype_name(value)
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, dict):
        return _types_of_parts("dict", value.items())
    if isinstance(value, list):
        return _types_of_parts("list", enumerate(value))
    if isinstance(value, tuple):
        kind = "graph" if is_graph(value) else "tuple"
        return _types_of_parts(kind, enumerate(value)) or {kind: {}}
    return None


def _types_of_parts(kind: str, parts: Iterable[tuple[Any, Any]]) -> dict[str, Any] | None:
    found = {str(key): types for key, part in parts if (types := types_of(part)) is not None}
    return {kind: found} if found else None


def _dtype_name(value: Any) -> str:
    return "str" if value.dtype.kind == "U" else str(value.dtype.name)


def restored(value: Any, types: Any) -> Any:
    """Return a value with the types that it had before it was JSON; see `types_of`."""
    if types is None:
        return value
    if types == "bytes":
        return bytes.fromhex(value)
    if isinstance(types, str):
        name, bracket, shape = types.partition("[")
        array = np.array(value, name).reshape(json.loads(f"[{shape}") if bracket else ())
        return array if bracket else array[()]
    ((kind, parts),) = types.items()
    if kind == "dict":
        return {key: restored(part, parts.get(key)) for key, part in value.items()}
    items = [restored(part, parts.get(str(place))) for place, part in enumerate(value)]
    return GraphValue(*items) if kind == "graph" else tuple(items) if kind == "tuple" else items


def _plainly(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.hex() if isinstance(value, bytes) else str(value)
