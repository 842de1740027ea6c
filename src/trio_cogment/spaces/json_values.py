"""Values of spaces as JSON, in the form that a person would write, and back.

Arrays are nested lists, numbers are numbers, dicts are objects, tuples and sequences are lists; a graph is an object
with `nodes`, `edges` and `edge_links`, an alternative (`OneOf`) a list of two: position and value. JSON has no numbers
for infinity and NaN: they are the strings `Infinity`, `-Infinity` and `NaN`. Bytes are an object with `base64`.

The way back needs the space, because the text does not say what is an array and of which type.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.spaces import (
    ArraySpace,
    Dict,
    Discrete,
    Graph,
    GraphValue,
    OneOf,
    Sequence,
    Space,
    SpaceError,
    Text,
    Tuple,
)
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import described, numbers, rounded, shown
from trio_cogment.spaces.composite import is_graph, part

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What stands for the numbers that JSON does not have.
NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
#: In the JSON of pages integers that JavaScript would round are texts.
_LARGE_INTEGER = re.compile(r"-?[0-9]{16,20}\Z")
#: Integers up to here are numbers of 64 bits with a fraction, too: what a peer writes as `3.0` is 3.
_EXACT = 2**53


def dumps(document: Any) -> str:
    """Return a document as JSON, as short as it can be.

    Raises:
        InvalidArgumentError: it holds infinity or NaN as a number.
    """
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InvalidArgumentError(f"expected what JSON has: {error}") from error


def loads(text: str | bytes) -> Any:
    """Return what a text holds as JSON; Python's `Infinity` and `NaN` are accepted.

    Raises:
        InvalidArgumentError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"expected JSON: {error}") from error


def to_json_value(value: Any) -> Any:
    """Return a value, of any space or of what an `info` may have, in the form of JSON.

    Raises:
        SpaceError: a part of it is nothing of that kind.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if is_graph(value):
        return {
            "nodes": to_json_value(value.nodes),
            "edges": to_json_value(value.edges),
            "edge_links": to_json_value(value.edge_links),
        }
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy
        return value.tolist() if _is_all_finite(value) else _finite(value.tolist())
    if isinstance(value, int | float):
        return _finite(value)
    if isinstance(value, dict):
        return {key: part(to_json_value, key, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [part(to_json_value, position, inner) for position, inner in enumerate(value)]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise SpaceError(f"expected what JSON can hold, an array, bytes or a graph; got {described(value)}")


def _is_all_finite(value: Any) -> bool:
    """Return whether no number of an array has to be replaced; a picture has too many to look at one by one."""
    kind = value.dtype.kind
    return kind in "biu" or (kind == "f" and bool(np.isfinite(value).all()))


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _NAMES.get(value, "NaN")
    return value


def from_json_value(found: Any, space: Space) -> Any:
    """Return the value of a space that JSON describes, in the types that `Space.check` gives.

    Raises:
        SpaceError: it describes none; the text names the part that does not.
    """
    try:
        return space.check(_read(found, space))
    except RecursionError:
        raise SpaceError("expected less nesting") from None


def _read(found: Any, space: Space) -> Any:
    """Return what JSON describes in the types of the space; whether it is in the space is checked afterwards."""
    if isinstance(space, ArraySpace):
        return _array(found, space, space.shape)
    for kind, reader in _READERS.items():
        if isinstance(space, kind):
            return reader(found, space)
    raise SpaceError(f"expected a space that JSON can describe, got {type(space).__name__}")


def _array(found: Any, space: ArraySpace, shape: tuple[int, ...]) -> Any:
    if isinstance(found, bool) and not _takes_bools(space):
        raise SpaceError(f"expected a number, got {found}")
    found = _with_numbers(found, space)
    if not isinstance(found, bool | int | float | list):
        raise SpaceError(f"expected {'a list' if shape else 'a number'}, got {shown(found)}")
    try:
        array = numbers(found, "array")
    except SpaceError:
        raise SpaceError(f"expected numbers, in lists of the shape {shape}; got {shown(found)}") from None
    if array.size == 0 and 0 in shape:
        # The lists of an array without elements do not tell all of its shape.
        array = np.empty(shape, array.dtype)
    return _cast(array, space)[()]


def _takes_bools(space: ArraySpace) -> bool:
    """Whether JSON's `true` and `false` stand for numbers of the space: for all, then, of what a bool can be."""
    return space.dtype.kind == "b" or (isinstance(space, Discrete) and (space.start, space.n) == (0, 2))


def _with_numbers(found: Any, space: ArraySpace) -> Any:
    """Return numbers in place of the texts that stand for them."""
    if isinstance(found, list):
        return [_with_numbers(inner, space) for inner in found]
    if isinstance(found, str):
        if space.dtype.kind == "f":
            return NOT_FINITE.get(found, found)
        if space.dtype.kind in "iu" and _LARGE_INTEGER.match(found):
            return int(found)
    return found


def _cast(array: NDArray[Any], space: ArraySpace) -> NDArray[Any]:
    dtype = space.dtype
    if dtype.kind == "f":
        return rounded(array, space.row)
    if array.dtype.kind == "f":
        if not ((array == array.round()) & (abs(array) <= _EXACT)).all():
            raise SpaceError(f"expected integers, got {shown(array.tolist())}")
        array = array.astype("int64")
    cast = array.astype(dtype)
    if not (cast == array).all():
        raise SpaceError(f"expected numbers of {space.row.name}, got {shown(array.tolist())}")
    return cast


def _text(found: Any, _space: Text) -> Any:
    return found


def _dict(found: Any, space: Dict) -> Any:
    if not isinstance(found, dict):
        raise SpaceError(f"expected an object, got {shown(found)}")
    # A key that is missing or foreign is found, and named, when the dict is checked.
    return {
        key: part(_read, key, inner, space.spaces[key]) if key in space.spaces else inner
        for key, inner in found.items()
    }


def _items(found: Any, count: int | None = None) -> list[Any]:
    if not isinstance(found, list):
        raise SpaceError(f"expected a list, got {shown(found)}")
    if count is not None and len(found) != count:
        raise SpaceError(f"expected a list of {count}, got one of {len(found)}")
    return found


def _tuple(found: Any, space: Tuple) -> Any:
    pairs = zip(_items(found, len(space.spaces)), space.spaces, strict=True)
    return tuple(part(_read, position, inner, own) for position, (inner, own) in enumerate(pairs))


def _sequence(found: Any, space: Sequence) -> Any:
    if space.stack:
        return _batch(found, space.space)
    return tuple(part(_read, position, inner, space.space) for position, inner in enumerate(_items(found)))


def _one_of(found: Any, space: OneOf) -> Any:
    position, inner = _items(found, 2)
    if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < len(space.spaces):
        raise SpaceError(f"expected a position from 0 to {len(space.spaces) - 1}, got {shown(position)}").inside(0)
    return position, part(_read, 1, inner, space.spaces[position])


def _graph(found: Any, space: Graph) -> Any:
    keys = ("nodes", "edges", "edge_links")
    if not isinstance(found, dict) or not {"nodes"} <= found.keys() <= set(keys):
        raise SpaceError(f"expected an object with {', '.join(keys)}; got {shown(found)}")
    nodes = part(_batch, "nodes", found["nodes"], space.node_space)
    edges, links = found.get("edges"), found.get("edge_links")
    if edges is not None and space.edge_space is not None:
        edges = part(_batch, "edges", edges, space.edge_space)
    if links is not None:
        links = part(numbers, "edge_links", _items(links), "links") if links else np.empty((0, 2), np.int32)
    return GraphValue(nodes, edges, links)


def _batch(found: Any, space: Space) -> Any:
    """Return a batch of values in the form of `Space.check_batch`."""
    if isinstance(space, ArraySpace):
        return _array(found, space, (len(_items(found)), *space.shape))
    if isinstance(space, Dict):
        if not isinstance(found, dict) or found.keys() != space.spaces.keys():
            raise SpaceError(f"expected an object with {', '.join(space.spaces) or 'nothing'}; got {shown(found)}")
        return {key: part(_batch, key, found[key], inner) for key, inner in space.spaces.items()}
    if isinstance(space, Tuple):
        pairs = zip(_items(found, len(space.spaces)), space.spaces, strict=True)
        return tuple(part(_batch, position, inner, own) for position, (inner, own) in enumerate(pairs))
    return tuple(part(_read, position, inner, space) for position, inner in enumerate(_items(found)))


_READERS: dict[type[Space], Callable[[Any, Any], Any]] = {
    Text: _text,
    Dict: _dict,
    Tuple: _tuple,
    Sequence: _sequence,
    OneOf: _one_of,
    Graph: _graph,
}
