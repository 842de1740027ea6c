"""`Box`: arrays whose elements are within bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import ArraySpace, dtype_row, frozen, integer_range, numbers, shape_of, shown
from trio_cogment.spaces.errors import SpaceError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


#: Bounds of more elements that are all the same are kept as one number: those of pictures are as large as the pictures.
_FEW = 1024


class Box(ArraySpace):
    """Arrays whose elements are within bounds.

    Attributes:
        low: the lowest values, a read-only array of the space's shape and type.
        high: the highest values, likewise. Infinite ones mean that there is no bound.
    """

    __slots__ = ("_ends", "_whole", "high", "low", "row", "shape")

    def __init__(
        self,
        low: ArrayLike,
        high: ArrayLike,
        shape: Iterable[int] | None = None,
        dtype: Any = "float32",
    ) -> None:
        """Make a box.

        Args:
            low: the lowest value of each element, or of all.
            high: the highest values, likewise.
            shape: by default that of `low` and `high`; `(1,)` if both are single numbers, as in Gymnasium.
            dtype: a type of numbers, or bool.

        Raises:
            SpaceError: the bounds do not fit the type or the shape, are NaN, or the low ones are above the high ones.
        """
        self.row = dtype_row(dtype, "fiub")
        if shape is None:
            shape = self._shape_of_bounds(low, high)
        self.shape = shape_of(shape, "shape")
        self.low = self._bound(low, "low")
        self.high = self._bound(high, "high")
        if not (self.low <= self.high).all():
            raise SpaceError("low: expected no value above that of high")
        self._ends, self._whole = self._ends_of_all()
        if self._ends is not None and self.low.size > _FEW:
            self.low, self.high = (np.broadcast_to(end, self.shape) for end in self._ends)

    @staticmethod
    def _shape_of_bounds(low: ArrayLike, high: ArrayLike) -> tuple[int, ...]:
        shapes = [numbers(low, "low").shape, numbers(high, "high").shape]
        if not any(shapes) and not isinstance(low, np.ndarray) and not isinstance(high, np.ndarray):
            return (1,)
        return max(shapes, key=len)

    def _bound(self, given: ArrayLike, field: str) -> NDArray[Any]:
        array = numbers(given, field)
        try:
            np.broadcast_to(array, self.shape)
        except ValueError:
            raise SpaceError(f"{field}: expected one number, or numbers of the shape {self.shape}") from None
        if self.row.kind == "f":
            with np.errstate(over="ignore"):
                converted = array.astype(self.dtype)
        else:
            converted = _as_integers(array, self.dtype, field)
        return frozen(np.broadcast_to(converted, self.shape))

    def _ends_of_all(self) -> tuple[tuple[Any, Any] | None, bool]:
        """Return the bounds if all elements have the same, and whether these are the ends of a type of integers."""
        if not self.low.size or (self.low != self.low.flat[0]).any() or (self.high != self.high.flat[0]).any():
            return None, False
        ends = self.low.flat[0], self.high.flat[0]
        return ends, self.row.kind != "f" and (int(ends[0]), int(ends[1])) == integer_range(self.dtype)

    def within(self, array: NDArray[Any]) -> bool:
        """Whether all elements are within the bounds; images, which use all of `uint8`, are not looked at."""
        if self._whole and array.dtype == self.dtype:
            return True
        if self._ends is None or not array.size:
            return super().within(array)
        low, high = self._ends
        # The least of some numbers and NaN is NaN.
        return bool(low <= array.min() and array.max() <= high)

    def bounds(self) -> tuple[Any, Any]:
        """Return `low` and `high`."""
        return self.low, self.high

    def sample(self, generator: np.random.Generator) -> NDArray[Any]:
        """Return an array: uniform between bounds, exponential above or below one, normal without any."""
        return self._sampled(generator, self.shape)

    def sample_batch(self, generator: np.random.Generator, count: int) -> NDArray[Any]:
        """Return this many arrays, stacked."""
        return self._sampled(generator, (count, *self.shape))

    def _sampled(self, generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
        if self.row.kind == "b":
            drawn = generator.integers(self.low.astype("u1"), self.high.astype("u1"), shape, "u1", endpoint=True)
            return np.asarray(drawn, self.dtype)
        if self.row.kind != "f":
            return np.asarray(generator.integers(self.low, self.high, shape, self.dtype, endpoint=True))
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        below, above = np.isfinite(low), np.isfinite(high)
        first, last = np.where(below, low, 0.0), np.where(above, high, 0.0)
        part = generator.random(shape)
        # Not `high - low`, which may be beyond the range of floats.
        within = first * (1 - part) + last * part
        distance = generator.exponential(size=shape)
        free = generator.normal(size=shape)
        one_sided = np.where(below, first + distance, last - distance)
        drawn = np.where(below & above, within, np.where(below | above, one_sided, free))
        most = np.finfo(self.dtype).max
        drawn = np.clip(drawn, -float(most), float(most)).astype(self.dtype)
        return np.asarray(np.clip(drawn, self.low, self.high))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Box)
            and (self.shape, self.row) == (other.shape, other.row)
            and np.array_equal(self.low, other.low)
            and np.array_equal(self.high, other.high)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.row))

    def __repr__(self) -> str:
        return f"Box({_short(self.low)}, {_short(self.high)}, {self.shape}, {self.row.name})"


def _as_integers(array: NDArray[Any], dtype: np.dtype[Any], field: str) -> NDArray[Any]:
    """Return bounds in a type of integers, or bool; as in Gymnasium, an infinite one is the end of the range."""
    lowest, highest = integer_range(dtype)
    if array.dtype.kind == "f":
        if not (np.isinf(array) | (array == np.floor(array))).all():
            raise SpaceError(f"{field}: expected integers, got {shown(array)}")
        ends = {float("-inf"): lowest, float("inf"): highest}
        values = [ends[value] if value in ends else int(value) for value in array.ravel().tolist()]
        # Objects, because neither floats nor one type of integers hold them all.
        array = np.array(values, dtype=object).reshape(array.shape)
    if array.size and not (lowest <= int(array.min()) and int(array.max()) <= highest):
        raise SpaceError(f"{field}: expected values from {lowest} to {highest}, got {shown(array)}")
    return array.astype(dtype)


def _short(array: NDArray[Any]) -> str:
    return str(array.flat[0]) if array.size and (array == array.flat[0]).all() else str(array)
