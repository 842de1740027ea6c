"""The spaces that are made of others: `Dict`, `Tuple`, `Sequence`, `Graph`, `OneOf`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import Space, check_tuple, described, integer
from trio_cogment.spaces.errors import Path, SpaceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: As in Gymnasium, a sampled sequence has four values on average, and a graph has up to ten nodes.
_SEQUENCE_ENDS = 0.25
_SAMPLED_NODES = 10


class Dict(Space):
    """Dicts with one value of a space for each key.

    Attributes:
        spaces: by key, in the order in which they were given. The order does not matter for what is equal.
    """

    __slots__ = ("spaces",)

    def __init__(self, spaces: Mapping[str, Space] | Iterable[tuple[str, Space]]) -> None:
        """Make a space of dicts.

        Raises:
            SpaceError: a key is not a string, or what it leads to is not a space.
        """
        self.spaces = dict(spaces)
        for key, space in self.spaces.items():
            if not isinstance(key, str):
                raise SpaceError(f"expected strings as keys, got {described(key)}", root="space")
            _require_space(space, key)

    def check(self, value: Any, rounding: bool = False) -> dict[str, Any]:
        """Return a dict with the keys in the space's order; see `Space.check`."""
        return {key: part(space.check, key, value[key], rounding) for key, space in self._items(value)}

    def check_batch(self, batch: Any, rounding: bool = False) -> tuple[dict[str, Any], int | None]:
        """Return a dict of batches and how many values are in each; see `Space.check_batch`."""
        checked = {key: part(space.check_batch, key, batch[key], rounding) for key, space in self._items(batch)}
        return {key: found for key, (found, _) in checked.items()}, _common({k: n for k, (_, n) in checked.items()})

    def _items(self, value: Any) -> Iterable[tuple[str, Space]]:
        if not isinstance(value, Mapping):
            raise SpaceError(f"expected a dict, got {described(value)}")
        if value.keys() != self.spaces.keys():
            missing = ", ".join(map(repr, self.spaces.keys() - value.keys()))
            extra = ", ".join(map(repr, value.keys() - self.spaces.keys()))
            what = " and ".join([f"no {missing}"] * bool(missing) + [f"{extra}, too"] * bool(extra))
            raise SpaceError(f"expected the keys {', '.join(map(repr, self.spaces)) or '(none)'}; got {what}")
        return self.spaces.items()

    def sample(self, generator: np.random.Generator) -> dict[str, Any]:
        """Return a dict of values."""
        return {key: space.sample(generator) for key, space in self.spaces.items()}

    def sample_batch(self, generator: np.random.Generator, count: int) -> dict[str, Any]:
        """Return a dict of batches."""
        return {key: space.sample_batch(generator, count) for key, space in self.spaces.items()}

    def leaves(self) -> Iterator[tuple[Path, Space]]:
        """Yield the leaves of all spaces; see `Space.leaves`."""
        for key, space in self.spaces.items():
            yield from (((key, *path), leaf) for path, leaf in space.leaves())

    def leaf_values(self, value: Any) -> Iterator[Any]:
        """Yield the values of the leaves; see `Space.leaf_values`."""
        for key, space in self.spaces.items():
            yield from space.leaf_values(value[key])

    def from_leaf_values(self, values: Iterator[Any]) -> dict[str, Any]:
        """Return the dict of these leaves; see `Space.from_leaf_values`."""
        return {key: space.from_leaf_values(values) for key, space in self.spaces.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dict) and self.spaces == other.spaces

    def __hash__(self) -> int:
        return hash(frozenset(self.spaces.items()))

    def __repr__(self) -> str:
        return f"Dict({self.spaces})"


class Tuple(Space):
    """Tuples with one value of each space."""

    __slots__ = ("spaces",)

    def __init__(self, spaces: Iterable[Space]) -> None:
        """Make a space of tuples.

        Raises:
            SpaceError: one of them is not a space.
        """
        self.spaces = tuple(spaces)
        for position, space in enumerate(self.spaces):
            _require_space(space, position)

    def check(self, value: Any, rounding: bool = False) -> tuple[Any, ...]:
        """Return a tuple; see `Space.check`."""
        return tuple(part(space.check, position, value[position], rounding) for position, space in self._items(value))

    def check_batch(self, batch: Any, rounding: bool = False) -> tuple[tuple[Any, ...], int | None]:
        """Return a tuple of batches and how many values are in each; see `Space.check_batch`."""
        checked = [
            part(space.check_batch, position, batch[position], rounding) for position, space in self._items(batch)
        ]
        return tuple(found for found, _ in checked), _common(dict(enumerate(count for _, count in checked)))

    def _items(self, value: Any) -> Iterable[tuple[int, Space]]:
        if not isinstance(value, tuple):
            raise SpaceError(f"expected a tuple, got {described(value)}")
        if len(value) != len(self.spaces):
            raise SpaceError(f"expected a tuple of {len(self.spaces)}, got one of {len(value)}")
        return enumerate(self.spaces)

    def sample(self, generator: np.random.Generator) -> tuple[Any, ...]:
        """Return a tuple of values."""
        return tuple(space.sample(generator) for space in self.spaces)

    def sample_batch(self, generator: np.random.Generator, count: int) -> tuple[Any, ...]:
        """Return a tuple of batches."""
        return tuple(space.sample_batch(generator, count) for space in self.spaces)

    def leaves(self) -> Iterator[tuple[Path, Space]]:
        """Yield the leaves of all spaces; see `Space.leaves`."""
        for position, space in enumerate(self.spaces):
            yield from (((position, *path), leaf) for path, leaf in space.leaves())

    def leaf_values(self, value: Any) -> Iterator[Any]:
        """Yield the values of the leaves; see `Space.leaf_values`."""
        for space, inner in zip(self.spaces, value, strict=True):
            yield from space.leaf_values(inner)

    def from_leaf_values(self, values: Iterator[Any]) -> tuple[Any, ...]:
        """Return the tuple of these leaves; see `Space.from_leaf_values`."""
        return tuple(space.from_leaf_values(values) for space in self.spaces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tuple) and self.spaces == other.spaces

    def __hash__(self) -> int:
        return hash(self.spaces)

    def __repr__(self) -> str:
        return f"Tuple({', '.join(map(repr, self.spaces))})"


class Sequence(Space):
    """Any number of values of one space.

    Attributes:
        space: of each value.
        stack: the values come as a batch (see `Space.check_batch`), not as a tuple.
    """

    __slots__ = ("space", "stack")

    def __init__(self, space: Space, stack: bool = False) -> None:
        """Make a space of sequences.

        Raises:
            SpaceError: it is not a space.
        """
        _require_space(space)
        self.space = space
        self.stack = bool(stack)

    def check(self, value: Any, rounding: bool = False) -> Any:
        """Return a tuple, or a batch; see `Space.check`."""
        return (self.space.check_batch(value, rounding) if self.stack else check_tuple(self.space, value, rounding))[0]

    def check_batch(self, batch: Any, rounding: bool = False) -> tuple[tuple[Any, ...], int]:
        """Return a tuple of sequences and how many they are; see `Space.check_batch`."""
        return check_tuple(self, batch, rounding)

    def sample(self, generator: np.random.Generator) -> Any:
        """Return a sequence of at least one value, four on average."""
        count = int(generator.geometric(_SEQUENCE_ENDS))
        if self.stack:
            return self.space.sample_batch(generator, count)
        return tuple(self.space.sample(generator) for _ in range(count))

    def sample_batch(self, generator: np.random.Generator, count: int) -> tuple[Any, ...]:
        """Return this many sequences."""
        return tuple(self.sample(generator) for _ in range(count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and (self.space, self.stack) == (other.space, other.stack)

    def __hash__(self) -> int:
        return hash((self.space, self.stack))

    def __repr__(self) -> str:
        return f"Sequence({self.space!r}{', stack=True' if self.stack else ''})"


class GraphValue(NamedTuple):
    """A value of a `Graph`; Gymnasium's `GraphInstance` has the same parts.

    Attributes:
        nodes: a batch of values of the node space.
        edges: a batch of values of the edge space, or None.
        edge_links: for each edge the positions of its two nodes, or None if there are no edges.
    """

    nodes: Any
    edges: Any = None
    edge_links: NDArray[Any] | None = None


class Graph(Space):
    """Graphs: values of one space at the nodes, and values of another, or none, at the edges."""

    __slots__ = ("edge_space", "node_space")

    def __init__(self, node_space: Space, edge_space: Space | None) -> None:
        """Make a space of graphs.

        Raises:
            SpaceError: one of them is not a space.
        """
        _require_space(node_space, "node_space")
        if edge_space is not None:
            _require_space(edge_space, "edge_space")
        self.node_space = node_space
        self.edge_space = edge_space

    def check(self, value: Any, rounding: bool = False) -> GraphValue:
        """Return a graph; see `Space.check`."""
        if not is_graph(value):
            raise SpaceError(f"expected a graph (nodes, edges, edge_links), got {described(value)}")
        nodes, count = part(self.node_space.check_batch, "nodes", value.nodes, rounding)
        if value.edges is None and value.edge_links is None:
            return GraphValue(nodes)
        if value.edges is None or value.edge_links is None:
            raise SpaceError("expected both edges and edge_links, or neither")
        if self.edge_space is None:
            raise SpaceError("expected no edges, because there is no space for them").inside("edges")
        edges, edge_count = part(self.edge_space.check_batch, "edges", value.edges, rounding)
        return GraphValue(nodes, edges, part(_check_links, "edge_links", value.edge_links, edge_count, count))

    def check_batch(self, batch: Any, rounding: bool = False) -> tuple[tuple[Any, ...], int]:
        """Return a tuple of graphs and how many they are; see `Space.check_batch`."""
        return check_tuple(self, batch, rounding)

    def sample(self, generator: np.random.Generator) -> GraphValue:
        """Return a graph of one to ten nodes."""
        count = int(generator.integers(1, _SAMPLED_NODES, endpoint=True))
        nodes = self.node_space.sample_batch(generator, count)
        edge_count = int(generator.integers(count * (count - 1), endpoint=True))
        if not edge_count or self.edge_space is None:
            return GraphValue(nodes)
        links = generator.integers(0, count, (edge_count, 2), np.int32)
        return GraphValue(nodes, self.edge_space.sample_batch(generator, edge_count), links)

    def sample_batch(self, generator: np.random.Generator, count: int) -> tuple[GraphValue, ...]:
        """Return this many graphs."""
        return tuple(self.sample(generator) for _ in range(count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Space, Space | None]:
        return self.node_space, self.edge_space

    def __repr__(self) -> str:
        return f"Graph({self.node_space!r}, {self.edge_space!r})"


class OneOf(Space):
    """A value of one of several spaces, with the position of that space: `(1, value)`."""

    __slots__ = ("spaces",)

    def __init__(self, spaces: Iterable[Space]) -> None:
        """Make a space of alternatives.

        Raises:
            SpaceError: there is none, or one of them is not a space.
        """
        self.spaces = tuple(spaces)
        if not self.spaces:
            raise SpaceError("expected at least one space", root="space")
        for position, space in enumerate(self.spaces):
            _require_space(space, position)

    def check(self, value: Any, rounding: bool = False) -> tuple[np.int64, Any]:
        """Return a pair of position and value; see `Space.check`."""
        if not isinstance(value, tuple) or len(value) != 2:
            raise SpaceError(f"expected a pair of a space's position and a value, got {described(value)}")
        position = part(integer, 0, value[0], "position", 0, len(self.spaces) - 1)
        return np.int64(position), part(self.spaces[position].check, 1, value[1], rounding)

    def check_batch(self, batch: Any, rounding: bool = False) -> tuple[tuple[Any, ...], int]:
        """Return a tuple of pairs and how many they are; see `Space.check_batch`."""
        return check_tuple(self, batch, rounding)

    def sample(self, generator: np.random.Generator) -> tuple[np.int64, Any]:
        """Return a value of one of the spaces, all of which are equally likely."""
        position = int(generator.integers(len(self.spaces)))
        return np.int64(position), self.spaces[position].sample(generator)

    def sample_batch(self, generator: np.random.Generator, count: int) -> tuple[Any, ...]:
        """Return this many pairs."""
        return tuple(self.sample(generator) for _ in range(count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneOf) and self.spaces == other.spaces

    def __hash__(self) -> int:
        return hash(self.spaces)

    def __repr__(self) -> str:
        return f"OneOf({', '.join(map(repr, self.spaces))})"


def part(function: Callable[..., Any], key: str | int, *arguments: Any) -> Any:
    """Call a function for one part of a whole; an error that it raises tells where that part is."""
    try:
        return function(*arguments)
    except SpaceError as error:
        raise error.inside(key) from None


def is_graph(value: Any) -> bool:
    """Whether it is a `GraphValue`, or Gymnasium's `GraphInstance`, which is one in all but the class."""
    return isinstance(value, tuple) and getattr(value, "_fields", None) == GraphValue._fields


def _check_links(links: Any, edges: int | None, nodes: int | None) -> NDArray[Any]:
    if not isinstance(links, np.ndarray) or links.dtype.kind not in "iu" or links.ndim != 2 or links.shape[1] != 2:
        raise SpaceError(f"expected an array of integers of the shape (n, 2), got {described(links)}")
    if edges not in (None, len(links)):
        raise SpaceError(f"expected as many as there are edges, {edges}; got {len(links)}")
    last = 2**31 - 1 if nodes is None else nodes - 1
    if links.size and not 0 <= int(links.min()) <= int(links.max()) <= last:
        raise SpaceError(f"expected positions of nodes from 0 to {last}, got {links.min()} to {links.max()}")
    # Gymnasium samples `int32`; what comes in another type was meant the same.
    return links.astype(np.int32, copy=False)


def _common(counts: Mapping[Any, int | None]) -> int | None:
    """Return how many values are in each of the batches, if they tell."""
    told = {key: count for key, count in counts.items() if count is not None}
    if len(set(told.values())) > 1:
        raise SpaceError(f"expected batches of one length, got {', '.join(f'{key}: {n}' for key, n in told.items())}")
    return next(iter(told.values()), None)


def _require_space(space: object, *keys: str | int) -> None:
    if not isinstance(space, Space):
        raise SpaceError(f"expected a space, got {described(space)}", keys, "space")
