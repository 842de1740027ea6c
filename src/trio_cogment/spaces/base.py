"""The interface of all spaces, and the spaces whose values are arrays or numbers."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.dtypes import BY_NAME, DType, dtype_of_kind
from trio_cogment.spaces.errors import Path, SpaceError

if TYPE_CHECKING:
    from numpy.typing import NDArray


_NUMPY = {name: np.dtype(name) for name in BY_NAME}


class Space(ABC):
    """A set of values, as those of Gymnasium: what an observation or an action can be.

    Spaces are immutable, and equal if they hold the same values of the same types.
    """

    __slots__ = ()

    @abstractmethod
    def check(self, value: Any, rounding: bool = False) -> Any:
        """Return a value of this space in the types that Gymnasium's spaces give; it is the same object if it has them.

        What NumPy converts without loss is accepted: an int where the space has `int64`, `uint8` where it has `int32`.
        Arrays are not made of lists.

        Args:
            value: what is looked at.
            rounding: where the space has floating-point numbers, accept numbers of any precision, and integers, and
                round them to the space's; where it has a single one, Python's numbers, too.

        Raises:
            SpaceError: the value is not in the space; the text names the part that is not.
        """

    @abstractmethod
    def check_batch(self, batch: Any, rounding: bool = False) -> tuple[Any, int | None]:
        """Return a batch of values in the types that Gymnasium's `batch_space` gives, and how many values are in it.

        Values that are arrays or numbers are stacked along a new first dimension; a batch of a `Dict` is a dict of
        batches, one of a `Tuple` a tuple of batches; of all other spaces it is a tuple of values. A batch of dicts or
        tuples that have nothing inside does not tell how many they are: None.

        Args:
            batch: what is looked at.
            rounding: see `check`.

        Raises:
            SpaceError: it is not a batch of values of the space; the text names the part that is wrong.
        """

    @abstractmethod
    def sample(self, generator: np.random.Generator) -> Any:
        """Return a value, drawn with the given generator."""

    @abstractmethod
    def sample_batch(self, generator: np.random.Generator, count: int) -> Any:
        """Return a batch of values; see `check_batch`."""

    def contains(self, value: Any) -> bool:
        """Whether `check` accepts the value."""
        try:
            self.check(value)
        except SpaceError:
            return False
        return True

    def leaves(self) -> Iterator[tuple[Path, Space]]:
        """Yield the parts that are neither `Dict` nor `Tuple`, each with its path, in order."""
        yield (), self

    def leaf_values(self, value: Any) -> Iterator[Any]:
        """Yield the values of the `leaves` of a value of this space, in the same order."""
        yield value

    def from_leaf_values(self, values: Iterator[Any]) -> Any:
        """Return the value whose `leaf_values` these are; takes no more of them than it needs."""
        return next(values)


class ArraySpace(Space):
    """A space whose values are arrays of one shape and type, or numbers.

    Attributes:
        shape: of each value.
        row: the type of the elements.
    """

    __slots__ = ()
    shape: tuple[int, ...]
    row: DType

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of the elements."""
        return _NUMPY[self.row.name]

    @abstractmethod
    def bounds(self) -> tuple[Any, Any]:
        """Return the lowest and the highest value of each element, which both are allowed."""

    def fits(self, dtype: np.dtype[Any]) -> bool:
        """Whether elements of this type can be elements of the space's values."""
        return np.can_cast(dtype, self.dtype)

    def check(self, value: Any, rounding: bool = False) -> Any:
        """Return a value of this space in the types that Gymnasium's spaces give; see `Space.check`."""
        if rounding and isinstance(value, float | int) and self.shape == () and self.row.kind == "f":
            value = np.asarray(value, np.float64)
        array = self._array(value, rounding)
        if array.shape != self.shape:
            raise SpaceError(f"expected the shape {self.shape}, got {array.shape}")
        return self.check_elements(array)

    def check_batch(self, batch: Any, rounding: bool = False) -> tuple[Any, int]:
        """Return a batch of values and how many they are; see `Space.check_batch`."""
        array = self._array(batch, rounding)
        if array.ndim == 0 or array.shape[1:] != self.shape:
            raise SpaceError(f"expected the shape {('n', *self.shape)}, got {array.shape}".replace("'n'", "n"))
        return self.check_elements(array), len(array)

    def _array(self, value: Any, rounding: bool) -> NDArray[Any]:
        if type(value) is not np.ndarray:
            if not isinstance(value, np.ndarray | np.generic) or isinstance(value, np.ma.MaskedArray):
                raise SpaceError(f"expected an array, got {described(value)}")
            value = np.asarray(value)
        array: NDArray[Any] = value
        if array.dtype == self.dtype:
            return array
        if rounding and self.row.kind == "f" and array.dtype.kind in "fiu":
            return rounded(array, self.row)
        if not self.fits(array.dtype):
            raise SpaceError(f"expected {self.row.name}, got {array.dtype}")
        return array

    def within(self, array: NDArray[Any]) -> bool:
        """Whether all elements of an array, of the space's shape or more dimensions, are within the bounds."""
        low, high = self.bounds()
        # NaN is not within any bounds.
        return bool((array >= low).all() and (array <= high).all())

    def check_elements(self, array: NDArray[Any]) -> Any:
        """Return an array, or a batch, whose shape and type are right, if its elements are within the bounds.

        Raises:
            SpaceError: one is not; the path leads to it.
        """
        if not self.within(array):
            raise self._outside(array, *self.bounds())
        return array if array.dtype == self.dtype and array.dtype.isnative else array.astype(self.dtype)

    def _outside(self, array: NDArray[Any], low: Any, high: Any) -> SpaceError:
        where = np.argwhere(~((array >= low) & (array <= high)))[0]
        index = tuple(int(position) for position in where)
        lowest, highest = (np.broadcast_to(bound, array.shape)[index].item() for bound in (low, high))
        return SpaceError(f"expected {lowest} to {highest}, got {array[index].item()}").inside(*index)


def rounded(array: NDArray[Any], row: DType) -> NDArray[Any]:
    """Return numbers as floating-point numbers of a type: they may lose digits, but not their size.

    Raises:
        SpaceError: one of them is beyond the range of the type; the path leads to it.
    """
    with np.errstate(over="ignore"):
        found = array.astype(_NUMPY[row.name])
    lost = np.isinf(found) & ~np.isinf(array)
    if lost.any():
        index = tuple(int(position) for position in np.argwhere(lost)[0])
        raise SpaceError(f"expected a number of {row.name}, got {array[index]!s}").inside(*index)
    return found


def check_tuple(space: Space, batch: Any, rounding: bool = False) -> tuple[tuple[Any, ...], int]:
    """Return a batch that is a tuple of values, and how many they are.

    Args:
        space: of the values.
        batch: what is looked at.
        rounding: see `Space.check`.

    Raises:
        SpaceError: it is not a tuple, or one of the values is not in the space.
    """
    if not isinstance(batch, tuple):
        raise SpaceError(f"expected a tuple, got {described(batch)}")
    found = []
    for position, value in enumerate(batch):
        try:
            found.append(space.check(value, rounding))
        except SpaceError as error:
            raise error.inside(position) from None
    return tuple(found), len(found)


def shape_of(given: Any, field: str) -> tuple[int, ...]:
    """Return a shape.

    Raises:
        SpaceError: it is not a sequence of integers that are not negative.
    """
    try:
        shape = tuple(integer(length, field, 0, 2**32 - 1) for length in given)
    except TypeError:
        raise SpaceError(f"{field}: expected a sequence of integers, got {shown(given)}") from None
    if len(shape) > 32:
        raise SpaceError(f"{field}: expected at most 32 dimensions, got {len(shape)}")
    return shape


def integer(given: Any, field: str, lowest: int = -(2**63), highest: int = 2**63 - 1) -> int:
    """Return an integer, NumPy's included, as Python's.

    Raises:
        SpaceError: it is none, or out of range.
    """
    if isinstance(given, bool | np.bool_) or not isinstance(given, int | np.integer):
        raise SpaceError(f"{field}: expected an integer, got {shown(given)}")
    if not lowest <= given <= highest:
        raise SpaceError(f"{field}: expected {lowest} to {highest}, got {given}")
    return int(given)


def numbers(given: Any, field: str) -> NDArray[Any]:
    """Return numbers, or nested sequences of them, as an array that has exactly their values.

    NumPy makes floats of integers that are in no one type of its own, and objects of what has no shape.

    Raises:
        SpaceError: they are not numbers, are NaN, or their lengths differ.
    """
    try:
        array = np.asarray(given)
        if not isinstance(given, np.ndarray | np.generic) and array.dtype.kind in "fO":
            array = _of_mixed(np.array(given, dtype=object))
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise SpaceError(f"{field}: expected numbers, in lists of one length, got {shown(given)}") from None
    if (array.size and array.dtype.kind not in "fiub") or (array.dtype.kind == "f" and np.isnan(array).any()):
        raise SpaceError(f"{field}: expected numbers, got {shown(given)}")
    return array


def _of_mixed(objects: NDArray[Any]) -> NDArray[Any]:
    values = objects.ravel().tolist()
    if not values or not all(isinstance(value, int | np.integer) for value in values):
        return objects.astype(np.float64)
    # Integers beyond 64 bits raise OverflowError.
    return np.array([int(value) for value in values], np.int64 if min(values) < 0 else np.uint64).reshape(objects.shape)


def dtype_row(given: Any, kinds: str) -> DType:
    """Return the row of an element type that is given as NumPy accepts it.

    Args:
        given: a name, a type, or a NumPy dtype.
        kinds: the letters of the kinds that are allowed.

    Raises:
        SpaceError: there is none, or it is of another kind.
    """
    try:
        dtype = np.dtype(given)
    except (TypeError, ValueError):
        raise SpaceError(f"dtype: expected one of {_names(kinds)}; got {shown(given)}") from None
    row = dtype_of_kind(dtype.kind, dtype.itemsize, dtype)
    if row.kind not in kinds:
        raise SpaceError(f"dtype: expected one of {_names(kinds)}; got {row.name}")
    return row


def _names(kinds: str) -> str:
    return ", ".join(name for name, row in BY_NAME.items() if row.kind in kinds)


def integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the lowest and the highest value of a type of integers, or bool."""
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only copy in C order and the machine's byte order."""
    copy = array.astype(array.dtype.newbyteorder("="), order="C")
    copy.flags.writeable = False
    return copy


def shown(value: object) -> str:
    """Return what an error shows of a value: what it is, as short as need be."""
    return reprlib.repr(value)


def described(value: object) -> str:
    """Return what an error says that a value is."""
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return f"an array of {value.dtype} {value.shape}"
    if isinstance(value, float | str | np.generic):
        return f"{type(value).__name__} {shown(value)}"
    return type(value).__name__
