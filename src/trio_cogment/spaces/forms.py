"""The bytes of values whose parts are arrays: all but the elements is the same for every value of such a space.

So a message with such a value is written by joining bytes, and read by cutting them, without any message in between.
What is written is, byte for byte, what `fill_value` and protobuf write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import ArraySpace, Space
from trio_cogment.spaces.composite import Dict, Tuple
from trio_cogment.spaces.elementary import Discrete

#: Adds the bytes of a value's elements to a list; False if the value has not the form that its space leads to expect.
_Collect = Callable[[Any, list[bytes]], bool]


class Form:
    """The bytes of a space's values within messages of one type.

    Attributes:
        leaves: the spaces of the arrays, in order.
        sizes: of their elements, in bytes.
    """

    def __init__(self, space: Space, leaves: Sequence[ArraySpace], parts: Sequence[bytes]) -> None:
        """Take the pieces of a form; see `Form.of`.

        Args:
            space: of the values.
            leaves: of the space.
            parts: what is the same for all values: before, between and behind the elements.
        """
        self.leaves = tuple(leaves)
        self.sizes = tuple(_size(leaf) for leaf in leaves)
        self._space = space
        self._collect = _collector(space)
        self._readers = [_reader(leaf) for leaf in leaves]
        self._joined: list[bytes] = [b""] * (2 * len(parts) - 1)
        self._joined[::2] = parts
        #: Where constant parts and elements are.
        self._constant: list[tuple[slice, bytes]] = []
        self._elements: list[slice] = []
        position = 0
        for part, size in zip(parts, (*self.sizes, 0), strict=True):
            self._constant.append((slice(position, position + len(part)), part))
            position += len(part)
            self._elements.append(slice(position, position + size))
            position += size
        self._elements.pop()
        self._length = position

    @classmethod
    def of(cls, space: Space, serialized: Callable[[Any], bytes]) -> Form | None:
        """Return the form of a space's values; None if they have none, because a part is not an array.

        Args:
            space: the space.
            serialized: returns the bytes of a message with a value. It does not look at what the elements are.
        """
        leaves = [leaf for _, leaf in space.leaves()]
        if not leaves or not all(isinstance(leaf, ArraySpace) and _size(leaf) for leaf in leaves):
            return None
        arrays = [leaf for leaf in leaves if isinstance(leaf, ArraySpace)]
        zeros, ones = (
            serialized(space.from_leaf_values(iter([_filled(leaf, byte) for leaf in arrays])))
            for byte in (b"\x00", b"\x01")
        )
        return cls(space, arrays, constant_parts(zeros, ones, [_size(leaf) for leaf in arrays]))

    def join(self, elements: Sequence[bytes]) -> bytes:
        """Return the message with these elements, which are of the `sizes`."""
        joined = self._joined.copy()
        joined[1::2] = elements
        return b"".join(joined)

    def encode(self, value: Any) -> bytes | None:
        """Return the message with a value; None if it is not of the very types that the space's values have."""
        elements: list[bytes] = []
        return self.join(elements) if self._collect(value, elements) else None

    def cut(self, content: bytes) -> list[bytes] | None:
        """Return the elements in a message; None if the message has not this form."""
        if len(content) != self._length:
            return None
        for where, constant in self._constant:
            if content[where] != constant:
                return None
        return [content[where] for where in self._elements]

    def decode(self, content: bytes) -> Any:
        """Return the value in a message, whose arrays can be written to; None if the message has not this form.

        Raises:
            SpaceError: the value is not in the space.
        """
        elements = self.cut(content)
        if elements is None:
            return None
        return self._space.from_leaf_values(
            iter([read(raw) for read, raw in zip(self._readers, elements, strict=True)])
        )


def constant_parts(zeros: bytes, ones: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Return what is the same for all values: before, between and behind the elements.

    Args:
        zeros: a message whose elements are bytes 0.
        ones: the same message with bytes 1.
        sizes: of the elements of each array, in bytes; none is empty.
    """
    parts, start, position = [], 0, 0
    for size in sizes:
        while zeros[position] == ones[position]:
            position += 1
        parts.append(zeros[start:position])
        start = position = position + size
    return [*parts, zeros[start:]]


def _size(leaf: Space) -> int:
    """Return how many bytes the elements are; 0: it has no form. Bytes that are not bools have to be looked for."""
    if not isinstance(leaf, ArraySpace) or leaf.row.kind == "b":
        return 0
    size = leaf.dtype.itemsize
    for length in leaf.shape:
        size *= length
    return size


def _reader(leaf: ArraySpace) -> Callable[[bytes], Any]:
    """Return what makes elements a value, which can be written to, and checks it."""
    dtype, shape, check = leaf.dtype, leaf.shape, leaf.check_elements
    if isinstance(leaf, Discrete):
        return lambda raw: leaf.check(np.frombuffer(raw, dtype)[0])
    return lambda raw: check(np.frombuffer(bytearray(raw), dtype).reshape(shape))


def _array(leaf: ArraySpace, raw: bytes) -> Any:
    if isinstance(leaf, Discrete):
        return np.frombuffer(raw, leaf.dtype)[0]
    return np.frombuffer(bytearray(raw), leaf.dtype).reshape(leaf.shape)


def _filled(leaf: ArraySpace, byte: bytes) -> Any:
    return _array(leaf, byte * _size(leaf))


def _collector(space: Space) -> _Collect:
    if isinstance(space, Dict):
        return _dict_collector(list(space.spaces), [(key, _collector(part)) for key, part in space.spaces.items()])
    if isinstance(space, Tuple):
        return _tuple_collector([_collector(part) for part in space.spaces])
    assert isinstance(space, ArraySpace)
    if isinstance(space, Discrete):
        return _number_collector(space.dtype.type)
    return _array_collector(space.dtype, space.shape)


def _dict_collector(keys: list[str], parts: Sequence[tuple[str, _Collect]]) -> _Collect:
    def collect(value: Any, elements: list[bytes]) -> bool:
        return type(value) is dict and list(value) == keys and all(part(value[key], elements) for key, part in parts)

    return collect


def _tuple_collector(parts: Sequence[_Collect]) -> _Collect:
    def collect(value: Any, elements: list[bytes]) -> bool:
        if type(value) is not tuple or len(value) != len(parts):
            return False
        return all(part(inner, elements) for part, inner in zip(parts, value, strict=True))

    return collect


def _number_collector(kind: type[Any]) -> _Collect:
    def collect(value: Any, elements: list[bytes]) -> bool:
        if type(value) is not kind:
            return False
        elements.append(value.tobytes())
        return True

    return collect


def _array_collector(dtype: np.dtype[Any], shape: tuple[int, ...]) -> _Collect:
    def collect(value: Any, elements: list[bytes]) -> bool:
        if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
            return False
        elements.append(value.tobytes())
        return True

    return collect
