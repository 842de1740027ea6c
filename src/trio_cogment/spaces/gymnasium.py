"""Spaces of Gymnasium as spaces of this package, and back; `messages` makes the wire format of these.

The extra `gym` brings Gymnasium, which is imported when it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from trio_cogment.base.errors import MissingExtraError
from trio_cogment.spaces.base import Space, described
from trio_cogment.spaces.box import Box
from trio_cogment.spaces.composite import Dict, Graph, OneOf, Sequence, Tuple
from trio_cogment.spaces.elementary import Discrete, MultiBinary, MultiDiscrete, Text, any_text
from trio_cogment.spaces.errors import SpaceError
from trio_cogment.spaces.messages import check_depth, inside


def from_gymnasium(space: Any) -> Space:
    """Return a space of Gymnasium as one of ours.

    Subclasses of Gymnasium's spaces count as what they are derived from. Any other space whose values are strings (its
    `dtype` is `str`) becomes `Text`.

    Raises:
        SpaceError: it is none of Gymnasium's spaces, or has a type of elements that messages do not have.
    """
    # Whoever has such a space has imported Gymnasium.
    module = sys.modules.get("gymnasium.spaces")
    try:
        return _from(space, module, 0)
    except SpaceError as error:
        raise error.of("space") from None


def to_gymnasium(space: Space) -> Any:
    """Return one of our spaces as Gymnasium's.

    Raises:
        MissingExtraError: Gymnasium is not installed.
        SpaceError: Gymnasium has no such space: its boxes have no empty ranges of integers, for example.
    """
    try:
        import gymnasium.spaces as module
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise MissingExtraError.of("gymnasium", "gym") from error
    try:
        return _to(space, module, 0)
    except SpaceError as error:
        raise error.of("space") from None


def _from(space: Any, module: Any, depth: int) -> Space:
    check_depth(depth)
    for name, reader in _READERS.items():
        kind = getattr(module, name, None)  # `OneOf` came with Gymnasium 1.0
        if kind is not None and isinstance(space, kind):
            return reader(space, module, depth + 1)
    if module is not None and isinstance(space, module.Space) and getattr(space.dtype, "kind", "") == "U":
        return any_text()  # a space of strings of somebody's own, as MiniGrid's missions are
    raise SpaceError(f"expected one of gymnasium.spaces.{', '.join(_READERS)}; got {described(space)}")


def _from_part(space: Any, module: Any, depth: int, *keys: str | int) -> Space:
    with inside(*keys):
        return _from(space, module, depth)


def _from_parts(space: Any, module: Any, depth: int) -> list[Space]:
    return [_from_part(inner, module, depth, position) for position, inner in enumerate(space.spaces)]


def _from_dict(space: Any, module: Any, depth: int) -> Dict:
    for key in space.spaces:
        if not isinstance(key, str):
            raise SpaceError(f"expected strings as keys, got {described(key)}")
    return Dict([(key, _from_part(inner, module, depth, key)) for key, inner in space.spaces.items()])


def _from_graph(space: Any, module: Any, depth: int) -> Graph:
    edges = space.edge_space
    return Graph(
        _from_part(space.node_space, module, depth, "node_space"),
        None if edges is None else _from_part(edges, module, depth, "edge_space"),
    )


_READERS: dict[str, Callable[[Any, Any, int], Space]] = {
    "Box": lambda space, _module, _depth: Box(space.low, space.high, space.shape, space.dtype),
    "Discrete": lambda space, _module, _depth: Discrete(space.n, space.start, space.dtype),
    "MultiDiscrete": lambda space, _module, _depth: MultiDiscrete(space.nvec, space.start, space.dtype),
    "MultiBinary": lambda space, _module, _depth: MultiBinary(space.n),
    "Text": lambda space, _module, _depth: Text(space.max_length, space.min_length, space.characters),
    "Dict": _from_dict,
    "Tuple": lambda space, module, depth: Tuple(_from_parts(space, module, depth)),
    "Sequence": lambda space, module, depth: Sequence(
        _from_part(space.feature_space, module, depth, "space"), space.stack
    ),
    "Graph": _from_graph,
    "OneOf": lambda space, module, depth: OneOf(_from_parts(space, module, depth)),
}


def _to(space: Space, module: Any, depth: int) -> Any:
    check_depth(depth)
    writer = _WRITERS.get(type(space))
    if writer is None:
        raise SpaceError(f"expected a space, got {described(space)}")
    try:
        return writer(space, module, depth + 1)
    except (ValueError, TypeError, OverflowError, AssertionError) as error:
        raise SpaceError(f"Gymnasium has no such {type(space).__name__}: {error}") from error


def _to_part(space: Space, module: Any, depth: int, *keys: str | int) -> Any:
    with inside(*keys):
        return _to(space, module, depth)


def _to_parts(spaces: tuple[Space, ...], module: Any, depth: int) -> list[Any]:
    return [_to_part(inner, module, depth, position) for position, inner in enumerate(spaces)]


def _to_discrete(space: Discrete, module: Any, _depth: int) -> Any:
    if space.row.name == "int64":
        return module.Discrete(space.n, start=space.start)
    return module.Discrete(space.n, start=space.start, dtype=space.dtype)


def _to_dict(space: Dict, module: Any, depth: int) -> Any:
    # Pairs, because Gymnasium sorts the keys of a dict.
    return module.Dict([(key, _to_part(inner, module, depth, key)) for key, inner in space.spaces.items()])


def _to_graph(space: Graph, module: Any, depth: int) -> Any:
    edges = space.edge_space
    return module.Graph(
        _to_part(space.node_space, module, depth, "node_space"),
        None if edges is None else _to_part(edges, module, depth, "edge_space"),
    )


_WRITERS: dict[type[Space], Callable[[Any, Any, int], Any]] = {
    Box: lambda space, module, _depth: module.Box(space.low, space.high, space.shape, space.dtype),
    Discrete: _to_discrete,
    MultiDiscrete: lambda space, module, _depth: module.MultiDiscrete(space.nvec, space.dtype, start=space.start),
    MultiBinary: lambda space, module, _depth: module.MultiBinary(space.n),
    Text: lambda space, module, _depth: module.Text(
        space.max_length, min_length=space.min_length, charset=space.charset
    ),
    Dict: _to_dict,
    Tuple: lambda space, module, depth: module.Tuple(_to_parts(space.spaces, module, depth)),
    Sequence: lambda space, module, depth: module.Sequence(
        _to_part(space.space, module, depth, "space"), stack=space.stack
    ),
    Graph: _to_graph,
    OneOf: lambda space, module, depth: module.OneOf(_to_parts(space.spaces, module, depth)),
}
