"""Spaces as JSON, in the form that Minari (`minari.serialization`) writes into the metadata of datasets.

For the spaces that Minari knows, the text is the one that it writes, character by character; `Sequence`, `Graph` and
`OneOf` are written in the same manner. One difference is on purpose: the type of a `Discrete` is the true one, where
Minari always writes `int64`. Like Python's `json`, it has `Infinity`, which JSON has not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import Space, dtype_row, numbers, shape_of, shown
from trio_cogment.spaces.box import Box
from trio_cogment.spaces.composite import Dict, Graph, OneOf, Sequence, Tuple
from trio_cogment.spaces.elementary import Discrete, MultiBinary, MultiDiscrete, Text
from trio_cogment.spaces.errors import SpaceError
from trio_cogment.spaces.messages import check_depth, inside

if TYPE_CHECKING:
    from numpy.typing import NDArray


def to_json(space: Space) -> str:
    """Return a space as Minari's JSON.

    Raises:
        SpaceError: it is nested too deeply.
    """
    return json.dumps(to_jsonable(space))


def to_jsonable(space: Space) -> dict[str, Any]:
    """Return what `to_json` writes, for being part of a larger document.

    Raises:
        SpaceError: the space is nested too deeply.
    """
    return _write(space, 0)


def from_json(text: str | bytes) -> Space:
    """Return the space that Minari's JSON describes.

    Raises:
        SpaceError: the text is not JSON, or describes no space.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpaceError(f"expected JSON: {error}", root="space") from error
    return from_jsonable(found)


def from_jsonable(description: Any) -> Space:
    """Return the space that a part of a larger document describes; see `to_jsonable`.

    Raises:
        SpaceError: it describes no space; the text says which part does not.
    """
    try:
        return _read(description, 0)
    except SpaceError as error:
        raise error.of("space") from None


def _write(space: Space, depth: int) -> dict[str, Any]:
    check_depth(depth)
    writer = _WRITERS.get(type(space))
    if writer is None:
        raise SpaceError(f"expected a space, got {type(space).__name__}", root="space")
    return {"type": type(space).__name__, **writer(space, depth + 1)}


def _of_box(space: Box, _depth: int) -> dict[str, Any]:
    bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
    return {"dtype": space.row.name, "shape": list(space.shape), **bounds}


def _of_discrete(space: Discrete, _depth: int) -> dict[str, Any]:
    return {"dtype": space.row.name, "start": space.start, "n": space.n}


def _of_multi_discrete(space: MultiDiscrete, _depth: int) -> dict[str, Any]:
    return {"dtype": space.row.name, "nvec": space.nvec.tolist(), "start": space.start.tolist()}


def _of_multi_binary(space: MultiBinary, _depth: int) -> dict[str, Any]:
    return {"n": space.n}


def _of_text(space: Text, _depth: int) -> dict[str, Any]:
    return {"max_length": space.max_length, "min_length": space.min_length, "charset": space.charset}


def _of_dict(space: Dict, depth: int) -> dict[str, Any]:
    return {"subspaces": {key: _write(inner, depth) for key, inner in space.spaces.items()}}


def _of_several(space: Tuple | OneOf, depth: int) -> dict[str, Any]:
    return {"subspaces": [_write(inner, depth) for inner in space.spaces]}


def _of_sequence(space: Sequence, depth: int) -> dict[str, Any]:
    return {"subspace": _write(space.space, depth), "stack": space.stack}


def _of_graph(space: Graph, depth: int) -> dict[str, Any]:
    edges = None if space.edge_space is None else _write(space.edge_space, depth)
    return {"node_space": _write(space.node_space, depth), "edge_space": edges}


_WRITERS: dict[type[Space], Callable[[Any, int], dict[str, Any]]] = {
    Box: _of_box,
    Discrete: _of_discrete,
    MultiDiscrete: _of_multi_discrete,
    MultiBinary: _of_multi_binary,
    Text: _of_text,
    Dict: _of_dict,
    Tuple: _of_several,
    OneOf: _of_several,
    Sequence: _of_sequence,
    Graph: _of_graph,
}


def _read(description: Any, depth: int) -> Space:
    check_depth(depth)
    if not isinstance(description, dict):
        raise SpaceError(f"expected an object, got {shown(description)}")
    kind = _field(description, "type", str)
    reader = _READERS.get(kind)
    if reader is None:
        raise SpaceError(f"type: expected one of {', '.join(_READERS)}; got {shown(kind)}")
    return reader(description, depth + 1)


def _field(description: dict[str, Any], name: str, *types: type) -> Any:
    if name not in description:
        raise SpaceError(f"{name}: expected it, but there is none")
    value = description[name]
    if types and not isinstance(value, types):
        raise SpaceError(f"{name}: expected {' or '.join(kind.__name__ for kind in types)}, got {shown(value)}")
    return value


def _numbers(description: dict[str, Any], name: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return nested lists of numbers as an array.

    Without elements the lists cannot tell all of the shape, so that the shape that is known wins.
    """
    array = numbers(_field(description, name, list, int, float), name)
    if shape is not None and array.shape != shape:
        if array.size or 0 not in shape:
            raise SpaceError(f"{name}: expected the shape {shape}, got {array.shape}")
        array = np.empty(shape, array.dtype)
    return array


def _to_box(description: dict[str, Any], _depth: int) -> Box:
    dtype = dtype_row(_field(description, "dtype", str), "fiub")
    shape = shape_of(_field(description, "shape", list), "shape")
    low, high = (_numbers(description, name, shape) for name in ("low", "high"))
    return Box(low, high, shape, dtype.name)


def _to_discrete(description: dict[str, Any], _depth: int) -> Discrete:
    dtype = description.get("dtype", "int64")
    return Discrete(_field(description, "n"), description.get("start", 0), dtype)


def _to_multi_discrete(description: dict[str, Any], _depth: int) -> MultiDiscrete:
    nvec = _numbers(description, "nvec")
    start = _numbers(description, "start", nvec.shape) if "start" in description else None
    return MultiDiscrete(nvec, start, description.get("dtype", "int64"))


def _to_multi_binary(description: dict[str, Any], _depth: int) -> MultiBinary:
    return MultiBinary(_field(description, "n", int, list))


def _to_text(description: dict[str, Any], _depth: int) -> Text:
    charset = _field(description, "charset", str)
    return Text(_field(description, "max_length"), _field(description, "min_length"), charset)


def _to_dict(description: dict[str, Any], depth: int) -> Dict:
    parts = _field(description, "subspaces", dict)
    return Dict({key: _read_part(inner, depth, key) for key, inner in parts.items()})


def _to_parts(description: dict[str, Any], depth: int) -> list[Space]:
    parts = _field(description, "subspaces", list)
    return [_read_part(inner, depth, position) for position, inner in enumerate(parts)]


def _to_tuple(description: dict[str, Any], depth: int) -> Tuple:
    return Tuple(_to_parts(description, depth))


def _to_one_of(description: dict[str, Any], depth: int) -> OneOf:
    return OneOf(_to_parts(description, depth))


def _to_sequence(description: dict[str, Any], depth: int) -> Sequence:
    stack = bool(_field({"stack": False, **description}, "stack", bool))
    return Sequence(_read_part(_field(description, "subspace"), depth, "space"), stack)


def _to_graph(description: dict[str, Any], depth: int) -> Graph:
    nodes = _read_part(_field(description, "node_space"), depth, "node_space")
    edges = _field(description, "edge_space")
    return Graph(nodes, None if edges is None else _read_part(edges, depth, "edge_space"))


def _read_part(description: Any, depth: int, *keys: str | int) -> Space:
    with inside(*keys):
        return _read(description, depth)


_READERS: dict[str, Callable[[dict[str, Any], int], Space]] = {
    "Box": _to_box,
    "Discrete": _to_discrete,
    "MultiDiscrete": _to_multi_discrete,
    "MultiBinary": _to_multi_binary,
    "Text": _to_text,
    "Dict": _to_dict,
    "Tuple": _to_tuple,
    "OneOf": _to_one_of,
    "Sequence": _to_sequence,
    "Graph": _to_graph,
}
