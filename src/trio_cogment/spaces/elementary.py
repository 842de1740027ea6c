"""The other spaces that have no others inside: `Discrete`, `MultiDiscrete`, `MultiBinary`, `Text`."""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import (
    ArraySpace,
    Space,
    check_tuple,
    described,
    dtype_row,
    frozen,
    integer,
    integer_range,
    numbers,
    shape_of,
    shown,
)
from trio_cogment.spaces.dtypes import BY_NAME
from trio_cogment.spaces.errors import SpaceError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ALPHANUMERIC = "".join(sorted(string.ascii_letters + string.digits))
_MAX_TEXT = 2**31 - 1


class Discrete(ArraySpace):
    """The `n` integers from `start` on."""

    __slots__ = ("n", "row", "start")
    shape = ()

    def __init__(self, n: int, start: int = 0, dtype: Any = "int64") -> None:
        """Make a space of `n` integers.

        Raises:
            SpaceError: `n` is not positive, or the type has not all the values.
        """
        self.row = dtype_row(dtype, "iu")
        lowest, highest = integer_range(self.dtype)
        self.start = integer(start, "start", max(lowest, -(2**63)), min(highest, 2**63 - 1))
        self.n = integer(n, "n", 1, min(highest - self.start + 1, 2**63 - 1))

    def bounds(self) -> tuple[int, int]:
        """Return the first and the last integer."""
        return self.start, self.start + self.n - 1

    def fits(self, dtype: np.dtype[Any]) -> bool:
        """Any integer fits; its value decides."""
        return dtype.kind in "iu"

    def check(self, value: Any, rounding: bool = False) -> np.integer[Any]:
        """Return an integer as NumPy's; see `Space.check`."""
        is_number = isinstance(value, np.ndarray | np.generic) and value.shape == () and value.dtype.kind in "iu"
        if not is_number and not isinstance(value, int):
            raise SpaceError(f"expected an integer, got {described(value)}")
        number = int(value)
        low, high = self.bounds()
        if not low <= number <= high:
            raise SpaceError(f"expected {low} to {high}, got {number}")
        if isinstance(value, np.integer) and value.dtype == self.dtype:
            return value
        found: np.integer[Any] = self.dtype.type(number)
        return found

    def sample(self, generator: np.random.Generator) -> np.integer[Any]:
        """Return one of the integers."""
        found: np.integer[Any] = self.dtype.type(
            generator.integers(*self.bounds(), dtype=self.dtype.type, endpoint=True)
        )
        return found

    def sample_batch(self, generator: np.random.Generator, count: int) -> NDArray[Any]:
        """Return this many of the integers."""
        return np.asarray(generator.integers(*self.bounds(), count, dtype=self.dtype, endpoint=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Discrete) and (self.n, self.start, self.row) == (other.n, other.start, other.row)

    def __hash__(self) -> int:
        return hash((self.n, self.start, self.row))

    def __repr__(self) -> str:
        start = f", start={self.start}" if self.start else ""
        dtype = "" if self.row is BY_NAME["int64"] else f", dtype={self.row.name!r}"
        return f"Discrete({self.n}{start}{dtype})"


class MultiDiscrete(ArraySpace):
    """Arrays of integers: element `i` is one of the `nvec[i]` integers from `start[i]` on."""

    __slots__ = ("_last", "nvec", "row", "shape", "start")

    def __init__(self, nvec: ArrayLike, start: ArrayLike | None = None, dtype: Any = "int64") -> None:
        """Make a space of arrays.

        Args:
            nvec: how many integers each element can be, an array of the space's shape.
            start: the first one of each; by default zeros.
            dtype: a type of integers.

        Raises:
            SpaceError: one is not positive, the shapes differ, or the type has not all the values.
        """
        self.row = dtype_row(dtype, "iu")
        self.nvec = self._integers(nvec, "nvec")
        self.shape = self.nvec.shape
        self.start = frozen(np.zeros(self.shape, self.dtype)) if start is None else self._integers(start, "start")
        if self.start.shape != self.shape:
            raise SpaceError(f"start: expected the shape {self.shape}, got {self.start.shape}")
        # Without any, lists could not tell the shape.
        if not self.nvec.size or not (self.nvec > 0).all():
            raise SpaceError("nvec: expected positive integers")
        pairs = zip(self.nvec.ravel().tolist(), self.start.ravel().tolist(), strict=True)
        last = [first + count - 1 for count, first in pairs]
        highest = integer_range(self.dtype)[1]
        if max(last, default=0) > highest:
            raise SpaceError(f"nvec: expected values up to {highest} for {self.row.name}, got {max(last)}")
        self._last = frozen(np.array(last, self.dtype).reshape(self.shape))

    def _integers(self, given: ArrayLike, field: str) -> NDArray[Any]:
        array = numbers(given, field)
        if array.size and array.dtype.kind not in "iu":
            raise SpaceError(f"{field}: expected integers, got {shown(given)}")
        shape_of(array.shape, field)
        lowest, highest = integer_range(self.dtype)
        if array.size and not lowest <= int(array.min()) <= int(array.max()) <= highest:
            raise SpaceError(f"{field}: expected values from {lowest} to {highest} for {self.row.name}")
        return frozen(array.astype(self.dtype))

    def bounds(self) -> tuple[Any, Any]:
        """Return the first and the last integer of each element."""
        return self.start, self._last

    def sample(self, generator: np.random.Generator) -> NDArray[Any]:
        """Return an array of integers."""
        return np.asarray(self.sample_batch(generator, 1)[0])

    def sample_batch(self, generator: np.random.Generator, count: int) -> NDArray[Any]:
        """Return this many arrays, stacked."""
        shape = (count, *self.shape)
        drawn: NDArray[Any] = generator.integers(self.start, self._last, shape, self.dtype, endpoint=True)
        return drawn

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, MultiDiscrete)
            and self.row is other.row
            and np.array_equal(self.nvec, other.nvec)
            and np.array_equal(self.start, other.start)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.row))

    def __repr__(self) -> str:
        start = f", start={self.start.tolist()}" if self.start.any() else ""
        dtype = "" if self.row is BY_NAME["int64"] else f", dtype={self.row.name!r}"
        return f"MultiDiscrete({self.nvec.tolist()}{start}{dtype})"


class MultiBinary(ArraySpace):
    """Arrays of zeros and ones.

    Attributes:
        n: the shape, or its only number. `MultiBinary(3)` and `MultiBinary((3,))` differ, as in Gymnasium.
    """

    __slots__ = ("n", "shape")
    row = BY_NAME["int8"]

    def __init__(self, n: int | Iterable[int]) -> None:
        """Make a space of arrays of this shape.

        Raises:
            SpaceError: it is not a shape of at least one element.
        """
        if isinstance(n, Iterable):
            self.shape = shape_of(n, "n")
            self.n: int | tuple[int, ...] = self.shape
        else:
            self.n = integer(n, "n", 1, 2**31 - 1)
            self.shape = (self.n,)
        if not all(1 <= length < 2**31 for length in self.shape):
            raise SpaceError(f"n: expected positive numbers below 2**31, got {self.n}")

    def bounds(self) -> tuple[int, int]:
        """Return 0 and 1."""
        return 0, 1

    def fits(self, dtype: np.dtype[Any]) -> bool:
        """Any integer or bool fits; its value decides."""
        return dtype.kind in "iub"

    def sample(self, generator: np.random.Generator) -> NDArray[Any]:
        """Return an array of zeros and ones."""
        return generator.integers(0, 2, self.shape, np.int8)

    def sample_batch(self, generator: np.random.Generator, count: int) -> NDArray[Any]:
        """Return this many arrays, stacked."""
        return generator.integers(0, 2, (count, *self.shape), np.int8)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MultiBinary) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)

    def __repr__(self) -> str:
        return f"MultiBinary({self.n})"


class Text(Space):
    """Strings of some characters, with a length within bounds.

    Attributes:
        charset: the characters, sorted, each once.
    """

    __slots__ = ("charset", "max_length", "min_length")

    def __init__(self, max_length: int, min_length: int = 1, charset: Iterable[str] = ALPHANUMERIC) -> None:
        """Make a space of strings.

        Args:
            max_length: in characters, as is `min_length`.
            min_length: at most `max_length`.
            charset: a string, or a set of characters.

        Raises:
            SpaceError: the lengths are not a range, there is no character, or one of the characters is not exactly one.
        """
        self.max_length = integer(max_length, "max_length", 0, _MAX_TEXT)
        self.min_length = integer(min_length, "min_length", 0, self.max_length)
        characters = set(charset)
        if any(not isinstance(character, str) or len(character) != 1 for character in characters):
            raise SpaceError("charset: expected single characters")
        if not characters and self.max_length:
            raise SpaceError("charset: expected at least one character")
        self.charset = "".join(sorted(characters))

    def check(self, value: Any, rounding: bool = False) -> str:
        """Return a string; see `Space.check`."""
        if not isinstance(value, str):
            raise SpaceError(f"expected a string, got {described(value)}")
        if not self.min_length <= len(value) <= self.max_length:
            raise SpaceError(f"expected {self.min_length} to {self.max_length} characters, got {len(value)}")
        foreign = sorted(set(value) - set(self.charset))
        if foreign:
            raise SpaceError(f"expected characters of {self.charset!r}, got {foreign[0]!r}")
        return str(value)

    def check_batch(self, batch: Any, rounding: bool = False) -> tuple[tuple[str, ...], int]:
        """Return a tuple of strings and how many they are; see `Space.check_batch`."""
        return check_tuple(self, batch, rounding)

    def sample(self, generator: np.random.Generator) -> str:
        """Return a string: all lengths are equally likely, and all characters."""
        length = int(generator.integers(self.min_length, self.max_length, endpoint=True))
        positions = generator.integers(0, len(self.charset), length) if length else ()
        return "".join(self.charset[position] for position in positions)

    def sample_batch(self, generator: np.random.Generator, count: int) -> tuple[str, ...]:
        """Return this many strings."""
        return tuple(self.sample(generator) for _ in range(count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int, str]:
        return self.min_length, self.max_length, self.charset

    def __repr__(self) -> str:
        return f"Text({self.max_length}, min_length={self.min_length}, charset={self.charset!r})"


#: The longest text of `any_text`, in characters.
LONGEST_TEXT = 65536


def any_text() -> Text:
    """Return the space of texts whose own space has no bounds: printable characters of ASCII, tabs and newlines.

    Texts that are seen are not held to these bounds, those that are said are.
    """
    return Text(LONGEST_TEXT, 0, string.printable)
