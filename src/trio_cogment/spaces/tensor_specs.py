"""Specifications of dm_env_rpc's tensors: what an action or an observation has to be, and checking received ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.errors import SpaceError
from trio_cogment.spaces.tensors import (
    BY_NAME,
    BY_NUMBER,
    MAX_DIMENSIONS,
    TensorType,
    in_shape,
    read_elements,
    shape_for,
    tensor_type,
    write_elements,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """What a tensor has to be.

    Attributes:
        name: unique among the actions, or among the observations; a dot means nesting.
        shape: of the tensor; a dimension of -1, at most one, is of any length.
        type: of the elements.
        minimum: the lowest values, which are allowed: an array of the shape, or without dimensions for all elements;
            None if there is no bound.
        maximum: the highest values, likewise.
    """

    name: str
    shape: tuple[int, ...] = ()
    type: TensorType = field(default=BY_NAME["float32"])
    minimum: NDArray[Any] | None = None
    maximum: NDArray[Any] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        dtype: str,
        shape: Iterable[int] = (),
        minimum: ArrayLike | None = None,
        maximum: ArrayLike | None = None,
    ) -> TensorSpec:
        """Return a specification.

        Raises:
            SpaceError: the type or the shape is none of dm_env_rpc's, or the bounds make no sense; the text names the
                specification.
        """
        row = BY_NAME.get(dtype)
        if row is None:
            raise SpaceError(f"dtype: expected one of {', '.join(BY_NAME)}; got {dtype}", (), name)
        found = tuple(shape)
        try:
            if sum(length < 0 for length in found) > 1 or len(found) > MAX_DIMENSIONS:
                raise SpaceError(
                    f"shape: expected at most one negative dimension of at most {MAX_DIMENSIONS}, got {found}"
                )
            low, high = (_bound(bound, row, found, end) for bound, end in ((minimum, "min"), (maximum, "max")))
            if low is not None and high is not None and not (low <= high).all():
                raise SpaceError("min: expected no value above that of max")
        except SpaceError as error:
            raise error.of(name) from None
        return cls(name, found, row, low, high)

    @classmethod
    def from_message(cls, message: pb.TensorSpec) -> TensorSpec:
        """Return a specification that was received; see `of` for what is raised."""
        row = BY_NUMBER.get(message.dtype)
        if row is None:
            known = ", ".join(f"{number} ({row.name})" for number, row in sorted(BY_NUMBER.items()))
            raise SpaceError(f"dtype: expected one of {known}; got {message.dtype}", (), message.name)
        bounds = {}
        for end in ("min", "max"):
            payload = getattr(message, end).WhichOneof("payload")
            if payload is None:
                continue
            if payload != row.payload:
                raise SpaceError(f"{end}: expected {row.payload}, as dtype says; got {payload}", (), message.name)
            elements = read_elements(getattr(getattr(message, end), payload), row)
            # One element is a bound for all, whatever the shape.
            bounds[end] = elements.reshape(()) if len(elements) == 1 else elements
        shape = tuple(message.shape)
        for end, elements in bounds.items():
            if elements.ndim and elements.size == math.prod(shape) and min(shape, default=0) >= 0:
                bounds[end] = elements.reshape(shape)  # others are refused below
        return cls.of(message.name, row.name, shape, bounds.get("min"), bounds.get("max"))

    def message(self) -> pb.TensorSpec:
        """Return the specification as it is sent."""
        message = pb.TensorSpec(name=self.name, shape=self.shape)
        message.dtype = pb.DataType.Name(self.type.number)  # type: ignore[assignment]  # by name: the stub wants the enum
        for end, bound in (("min", self.minimum), ("max", self.maximum)):
            if bound is not None:
                write_elements(getattr(getattr(message, end), self.type.payload), self.type, bound)
        return message

    def check(self, tensor: pb.Tensor) -> NDArray[Any]:
        """Return a received tensor as an array of this specification's shape and type.

        One element fills the shape, and one negative dimension follows from the number of elements.

        Raises:
            SpaceError: the type, the rank, the shape or a value is not what it has to be; the text names the
                specification and, for a value, the element.
        """
        try:
            row = tensor_type(tensor)
            if row is not self.type:
                raise SpaceError(f"dtype: expected {self.type.name} ({self.type.payload}), got {row.name}")
            if len(tensor.shape) != len(self.shape):
                raise SpaceError(f"shape: expected {list(self.shape)}, got {list(tensor.shape)}")
            elements = read_elements(getattr(tensor, row.payload), row)
            shape = shape_for(tensor.shape, len(elements), self.shape)
            if any(wanted not in (-1, length) for wanted, length in zip(self._any_length(), shape, strict=True)):
                raise SpaceError(f"shape: expected {list(self.shape)}, got {list(shape)}")
            array = in_shape(elements, shape)
            self._check_bounds(array)
        except SpaceError as error:
            raise error.of(self.name) from None
        return array

    def _any_length(self) -> Iterable[int]:
        return (max(length, -1) for length in self.shape)

    def _check_bounds(self, array: NDArray[Any]) -> None:
        # NaN is not within any bounds.
        if self.minimum is not None and not (inside := array >= self.minimum).all():
            raise self._outside(array, inside, self.minimum, "at least")
        if self.maximum is not None and not (inside := array <= self.maximum).all():
            raise self._outside(array, inside, self.maximum, "at most")

    def _outside(self, array: NDArray[Any], inside: NDArray[Any], bound: NDArray[Any], words: str) -> SpaceError:
        index = tuple(int(position) for position in np.argwhere(~np.asarray(inside))[0])
        limit = np.broadcast_to(bound, array.shape)[index].item()
        return OutOfBoundsError(f"expected {words} {limit}, got {array[index].item()}", index)


class OutOfBoundsError(SpaceError):
    """A value is outside of the bounds of its specification."""


def _bound(given: ArrayLike | None, row: TensorType, shape: tuple[int, ...], end: str) -> NDArray[Any] | None:
    if given is None:
        return None
    if not row.is_number:
        raise SpaceError(f"{end}: expected none, {row.name} has no bounds")
    array = np.asarray(given)
    if array.dtype.kind not in "fiu" or (array.dtype.kind == "f" and np.isnan(array).any()):
        raise SpaceError(f"{end}: expected numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        bound = array.astype(row.dtype)
    if row.dtype.kind != "f" and not (bound == array).all():
        raise SpaceError(f"{end}: expected {row.name}, got {array.tolist()}")
    if bound.shape not in ((), shape):
        raise SpaceError(f"{end}: expected one number, or numbers of the shape {shape}; got {bound.shape}")
    bound.flags.writeable = False
    return bound


def check_names(specs: Mapping[int, TensorSpec]) -> None:
    """Check that the names are unique, and that none is nested in another.

    Raises:
        SpaceError: two have the same name, or one name is the beginning of another's nesting.
    """
    names: set[str] = set()
    for spec in specs.values():
        if spec.name in names:
            raise SpaceError(f"expected names that are unique, got {spec.name!r} twice", (), "specs")
        names.add(spec.name)
    for name in names:
        parent = name
        while "." in parent:
            parent = parent.rpartition(".")[0]
            if parent in names:
                raise SpaceError(f"expected {parent!r} not to be nested in {name!r}", (), "specs")
