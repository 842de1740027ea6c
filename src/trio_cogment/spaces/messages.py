"""Spaces as messages `Space`, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces.arrays import decode_array, encode_array
from trio_cogment.spaces.base import Space
from trio_cogment.spaces.box import Box
from trio_cogment.spaces.composite import Dict, Graph, OneOf, Sequence, Tuple
from trio_cogment.spaces.dtypes import BY_NAME, dtype_of_number
from trio_cogment.spaces.elementary import Discrete, MultiBinary, MultiDiscrete, Text
from trio_cogment.spaces.errors import MAX_DEPTH, SpaceError

#: Spaces that take so few bytes as messages are kept: each trial tells its spaces again.
_MAX_KEPT_BYTES = 4096


def encode_space(space: Space) -> pb.Space:
    """Return a space as a message.

    Raises:
        SpaceError: it is nested too deeply, or its text is not what protobuf can carry.
    """
    with _about_space():
        return _encode(space, 0)


def decode_space(message: pb.Space) -> Space:
    """Return a message as a space.

    Raises:
        SpaceError: the kind of the space is unknown, it is nested too deeply, or it makes no sense.
    """
    data = message.SerializeToString()
    if len(data) <= _MAX_KEPT_BYTES:
        return _kept(data)
    with _about_space():
        return _decode(message, 0)


@lru_cache(64)
def _kept(data: bytes) -> Space:
    with _about_space():
        return _decode(pb.Space.FromString(data), 0)


def _encode(space: Space, depth: int) -> pb.Space:
    check_depth(depth)
    writer = _WRITERS.get(type(space))
    if writer is None:
        raise SpaceError(f"expected a space, got {type(space).__name__}")
    try:
        return writer(space, depth + 1)
    except UnicodeEncodeError as error:
        raise SpaceError(f"expected text that UTF-8 can encode: {error.reason}") from error


def _encode_part(space: Space, depth: int, *keys: str | int) -> pb.Space:
    with inside(*keys):
        return _encode(space, depth)


def _parts(spaces: tuple[Space, ...], depth: int) -> list[pb.Space]:
    return [_encode_part(space, depth, position) for position, space in enumerate(spaces)]


def _of_discrete(space: Discrete, _depth: int) -> pb.Space:
    # Left out where it is what readers take for granted.
    dtype = pb.DTYPE_UNKNOWN if space.row is BY_NAME["int64"] else space.row.number
    return pb.Space(discrete=pb.Discrete(n=space.n, start=space.start, dtype=dtype))


def _of_box(space: Box, _depth: int) -> pb.Space:
    return pb.Space(box=pb.Box(low=encode_array(space.low), high=encode_array(space.high)))


def _of_multi_binary(space: MultiBinary, _depth: int) -> pb.Space:
    from trio_cogment.spaces._numpy import np

    sizes = encode_array(np.array(space.shape, np.int32))
    return pb.Space(multi_binary=pb.MultiBinary(n=sizes, tuple=isinstance(space.n, tuple) and len(space.n) == 1))


def _of_multi_discrete(space: MultiDiscrete, _depth: int) -> pb.Space:
    start = encode_array(space.start) if space.start.any() else None
    return pb.Space(multi_discrete=pb.MultiDiscrete(nvec=encode_array(space.nvec), start=start))


def _of_text(space: Text, _depth: int) -> pb.Space:
    text = pb.Text(max_length=space.max_length, min_length=space.min_length, charset=space.charset)
    return pb.Space(text=text)


def _of_dict(space: Dict, depth: int) -> pb.Space:
    parts = [pb.Dict.SubSpace(key=key, space=_encode_part(inner, depth, key)) for key, inner in space.spaces.items()]
    return pb.Space(dict=pb.Dict(spaces=parts))


def _of_tuple(space: Tuple, depth: int) -> pb.Space:
    return pb.Space(tuple=pb.Tuple(spaces=_parts(space.spaces, depth)))


def _of_sequence(space: Sequence, depth: int) -> pb.Space:
    return pb.Space(sequence=pb.Sequence(space=_encode_part(space.space, depth, "space"), stack=space.stack))


def _of_graph(space: Graph, depth: int) -> pb.Space:
    edges = None if space.edge_space is None else _encode_part(space.edge_space, depth, "edge_space")
    return pb.Space(graph=pb.Graph(node_space=_encode_part(space.node_space, depth, "node_space"), edge_space=edges))


def _of_one_of(space: OneOf, depth: int) -> pb.Space:
    return pb.Space(one_of=pb.OneOf(spaces=_parts(space.spaces, depth)))


_WRITERS: dict[type[Space], Callable[[Any, int], pb.Space]] = {
    Discrete: _of_discrete,
    Box: _of_box,
    MultiBinary: _of_multi_binary,
    MultiDiscrete: _of_multi_discrete,
    Text: _of_text,
    Dict: _of_dict,
    Tuple: _of_tuple,
    Sequence: _of_sequence,
    Graph: _of_graph,
    OneOf: _of_one_of,
}


def _decode(message: pb.Space, depth: int) -> Space:
    check_depth(depth)
    kind = message.WhichOneof("kind")
    if kind is None:
        raise SpaceError(f"kind: expected one of {', '.join(_READERS)}; got none, or one of a newer version")
    return _READERS[kind](getattr(message, kind), depth + 1)


def _decode_part(message: pb.Space, depth: int, *keys: str | int) -> Space:
    with inside(*keys):
        return _decode(message, depth)


def _to_discrete(message: pb.Discrete, _depth: int) -> Discrete:
    dtype = dtype_of_number(message.dtype).name if message.dtype else "int64"
    return Discrete(message.n, message.start, dtype)


def _to_box(message: pb.Box, _depth: int) -> Box:
    with inside("low"):
        low = decode_array(message.low)
    with inside("high"):
        high = decode_array(message.high)
    if low.dtype != high.dtype or low.shape != high.shape:
        raise SpaceError(f"high: expected {low.dtype} {low.shape} as in low, got {high.dtype} {high.shape}")
    return Box(low, high, low.shape, low.dtype)


def _to_multi_binary(message: pb.MultiBinary, _depth: int) -> MultiBinary:
    with inside("n"):
        sizes = decode_array(message.n)
    if sizes.ndim != 1:
        raise SpaceError(f"n: expected an array with one dimension, got {sizes.shape}")
    single = len(sizes) == 1 and not message.tuple
    return MultiBinary(sizes[0] if single else sizes.tolist())


def _to_multi_discrete(message: pb.MultiDiscrete, _depth: int) -> MultiDiscrete:
    with inside("nvec"):
        nvec = decode_array(message.nvec)
    if not message.HasField("start"):
        return MultiDiscrete(nvec, dtype=nvec.dtype)
    with inside("start"):
        start = decode_array(message.start)
    return MultiDiscrete(nvec, start, nvec.dtype)


def _to_text(message: pb.Text, _depth: int) -> Text:
    return Text(message.max_length, message.min_length, message.charset)


def _to_dict(message: pb.Dict, depth: int) -> Dict:
    keys = [part.key for part in message.spaces]
    if len(set(keys)) < len(keys):
        raise SpaceError(
            f"expected each key once, got {', '.join(sorted({key for key in keys if keys.count(key) > 1}))}"
        )
    return Dict([(part.key, _decode_part(part.space, depth, part.key)) for part in message.spaces])


def _to_parts(message: pb.Tuple | pb.OneOf, depth: int) -> list[Space]:
    return [_decode_part(part, depth, position) for position, part in enumerate(message.spaces)]


def _to_tuple(message: pb.Tuple, depth: int) -> Tuple:
    return Tuple(_to_parts(message, depth))


def _to_sequence(message: pb.Sequence, depth: int) -> Sequence:
    return Sequence(_decode_part(message.space, depth, "space"), message.stack)


def _to_graph(message: pb.Graph, depth: int) -> Graph:
    nodes = _decode_part(message.node_space, depth, "node_space")
    has_edges = message.HasField("edge_space")
    return Graph(nodes, _decode_part(message.edge_space, depth, "edge_space") if has_edges else None)


def _to_one_of(message: pb.OneOf, depth: int) -> OneOf:
    return OneOf(_to_parts(message, depth))


_READERS: dict[str, Callable[[Any, int], Space]] = {
    "discrete": _to_discrete,
    "box": _to_box,
    "dict": _to_dict,
    "multi_binary": _to_multi_binary,
    "multi_discrete": _to_multi_discrete,
    "text": _to_text,
    "tuple": _to_tuple,
    "sequence": _to_sequence,
    "graph": _to_graph,
    "one_of": _to_one_of,
}


def check_depth(depth: int) -> None:
    """Raise `SpaceError` if something is nested deeper than `MAX_DEPTH`."""
    if depth >= MAX_DEPTH:
        raise SpaceError(f"expected at most {MAX_DEPTH} levels of nesting")


@contextmanager
def inside(*keys: str | int) -> Iterator[None]:
    """Let the errors within tell where in the whole they are."""
    try:
        yield
    except SpaceError as error:
        raise error.inside(*keys) from None


@contextmanager
def _about_space() -> Iterator[None]:
    try:
        yield
    except SpaceError as error:
        raise error.of("space") from None
