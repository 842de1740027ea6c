"""Values of a space as named tensors, and the other way round: spaces that tensors' specifications describe."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from trio_cogment.api import spaces_pb2
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import ArraySpace, Space, rounded
from trio_cogment.spaces.box import Box
from trio_cogment.spaces.composite import Dict
from trio_cogment.spaces.composite import Sequence as SequenceSpace
from trio_cogment.spaces.elementary import Discrete, Text
from trio_cogment.spaces.errors import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import encode_tensor, encode_text, type_for
from trio_cogment.spaces.values import decode_value, encode_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What a string of a specification can be: dm_env_rpc knows no limit.
MAX_TEXT = 2**20
#: The characters of a `Text` that stands for any string: those of Unicode that are not surrogates are too many to list.
PRINTABLE = "".join(map(chr, [9, 10, 13, *range(32, 127), *range(160, 0x2000)]))


class SpaceTensors:
    """The tensors that a value of a space is written as: one for each leaf that is neither a `Dict` nor a `Tuple`.

    Arrays and numbers are tensors of their own type, or of the next wider one; bounds are those of the space. A `Text`
    is a string; a `Sequence`, `Graph` or `OneOf` is an `Any` with a message `Value`.

    Attributes:
        space: the space.
        specs: one for each leaf, in order. Their names are the keys, joined by dots, below the root's name.
    """

    def __init__(self, space: Space, root: str) -> None:
        """Describe a space.

        Args:
            space: the space.
            root: the name of the tensor if the space is one leaf; otherwise the keys alone are the names.

        Raises:
            SpaceError: a key is empty or contains a dot, which means nesting in dm_env_rpc.
        """
        self.space = space
        self._leaves: list[Space] = []
        self.specs: list[TensorSpec] = []
        for path, leaf in space.leaves():
            keys = [str(key) for key in path] or [root]
            if any(not key or "." in key for key in keys) and path:
                raise SpaceError("expected keys without dots that are not empty", path, "space")
            self._leaves.append(leaf)
            self.specs.append(_spec_of_leaf(".".join(keys), leaf))

    def tensors(self, value: Any) -> list[pb.Tensor]:
        """Return a value of the space as tensors, in the order of `specs`."""
        return [
            _tensor_of_leaf(leaf, spec, part)
            for leaf, spec, part in zip(self._leaves, self.specs, self.space.leaf_values(value), strict=True)
        ]

    def some_tensors(self, value: Any, wanted: Collection[int]) -> Iterator[tuple[int, pb.Tensor]]:
        """Yield those tensors of a value whose positions in `specs` are wanted, with their positions."""
        for index, (leaf, spec, part) in enumerate(
            zip(self._leaves, self.specs, self.space.leaf_values(value), strict=True)
        ):
            if index in wanted:
                yield index, _tensor_of_leaf(leaf, spec, part)

    def value(self, tensors: Sequence[pb.Tensor | None]) -> Any:
        """Return the value that tensors stand for.

        Args:
            tensors: in the order of `specs`; None for one that was not sent: zeros within the bounds, or an empty
                string.

        Raises:
            SpaceError: one is not what its specification says, or not in the space.
        """
        parts = [
            _default_of_leaf(leaf, spec) if tensor is None else _leaf_of_tensor(leaf, spec, tensor)
            for leaf, spec, tensor in zip(self._leaves, self.specs, tensors, strict=True)
        ]
        return self.space.check(self.space.from_leaf_values(iter(parts)))


def _spec_of_leaf(name: str, leaf: Space) -> TensorSpec:
    if isinstance(leaf, Text):
        return TensorSpec.of(name, "str")
    if not isinstance(leaf, ArraySpace):
        return TensorSpec.of(name, "object")
    row = type_for(leaf.dtype)
    if not row.is_number:
        return TensorSpec.of(name, row.name, leaf.shape)
    low, high = (np.broadcast_to(np.asarray(bound), leaf.shape) for bound in leaf.bounds())
    return TensorSpec.of(name, row.name, leaf.shape, _shortest(low, leaf), _shortest(high, leaf))


def _shortest(bound: NDArray[Any], leaf: ArraySpace) -> NDArray[Any] | None:
    """Return a bound as one number if it is the same for all elements; None if it is none."""
    if not bound.size:
        return None
    if (bound == bound.flat[0]).all():
        bound = np.asarray(bound.flat[0])
    if bound.dtype.kind == "f" and np.isinf(bound).all():
        return None
    return bound


def _tensor_of_leaf(leaf: Space, spec: TensorSpec, value: Any) -> pb.Tensor:
    if isinstance(leaf, ArraySpace):
        array = np.asarray(value)
        return encode_tensor(array if array.dtype == spec.type.dtype else array.astype(spec.type.dtype))
    if isinstance(leaf, Text):
        return encode_text(value)
    packed = AnyMessage()
    packed.Pack(encode_value(value, leaf))
    holder = np.empty((), object)
    holder[()] = packed
    return encode_tensor(holder)


def _leaf_of_tensor(leaf: Space, spec: TensorSpec, tensor: pb.Tensor) -> Any:
    array = spec.check(tensor)
    if isinstance(leaf, ArraySpace):
        if array.dtype == leaf.dtype:
            return array
        return rounded(array, leaf.row) if leaf.row.kind == "f" else array.astype(leaf.dtype)
    if isinstance(leaf, Text):
        # Not of the array: NumPy takes NUL characters at the end of a string for padding.
        return tensor.strings.array[0]
    message = spaces_pb2.Value()
    packed: Any = array[()]
    try:
        found = packed.Unpack(message)
    except DecodeError:
        found = False
    if not found:
        expected = message.DESCRIPTOR.full_name
        raise SpaceError(f"expected a message {expected}, got {packed.type_url.rpartition('/')[2]}", (), spec.name)
    return decode_value(message, leaf)


def _default_of_leaf(leaf: Space, spec: TensorSpec) -> Any:
    if isinstance(leaf, ArraySpace):
        zeros = np.zeros(leaf.shape, leaf.dtype)
        return zeros if zeros.dtype.kind == "b" else np.clip(zeros, *leaf.bounds()).astype(leaf.dtype)
    if isinstance(leaf, Text) and not leaf.min_length:
        return ""
    raise SpaceError("expected a value, and none was sent", (), spec.name)


def space_of_specs(specs: Iterable[TensorSpec]) -> Dict:
    """Return the space of the tensors that specifications describe: a `Dict`, nested at the dots of their names.

    An integer without dimensions and with both bounds is a `Discrete`. A string is a `Text`, of characters below
    U+2000. A tensor whose first dimension is of any length is a `Sequence` of the rest, stacked.

    Raises:
        SpaceError: there is no space for one: messages, arrays of strings, another dimension of any length. The text
            names the specification.
    """
    tree: dict[str, Any] = {}
    for spec in specs:
        *parents, last = spec.name.split(".")
        branch = tree
        for key in parents:
            branch = branch.setdefault(key, {})
            if not isinstance(branch, dict):
                raise SpaceError(f"expected no tensor above it that is a part of {spec.name!r}", (), spec.name)
        if last in branch:
            raise SpaceError("expected a name that is unique", (), spec.name)
        branch[last] = _space_of_spec(spec)
    return _dict_of(tree)


def _dict_of(tree: Mapping[str, Any]) -> Dict:
    return Dict({key: _dict_of(part) if isinstance(part, dict) else part for key, part in tree.items()})


def _space_of_spec(spec: TensorSpec) -> Space:
    if spec.type.name == "str" and spec.shape == ():
        return Text(MAX_TEXT, 0, PRINTABLE)
    if spec.type.name in ("str", "object"):
        raise SpaceError(f"expected numbers or one string, got {spec.type.name} {spec.shape}", (), spec.name)
    low, high = _ends(spec)
    if min(spec.shape, default=0) >= 0:
        if spec.shape == () and spec.type.dtype.kind in "iu" and None not in (spec.minimum, spec.maximum):
            count = int(high) - int(low) + 1
            if count < 2**63 and int(low) < 2**63:
                return Discrete(count, int(low), spec.type.name)
        return Box(low, high, spec.shape, spec.type.name)
    if spec.shape[0] >= 0:
        raise SpaceError(f"expected only the first dimension to be of any length, got {spec.shape}", (), spec.name)
    return SequenceSpace(Box(low, high, spec.shape[1:], spec.type.name), stack=True)


def _ends(spec: TensorSpec) -> tuple[Any, Any]:
    dtype = spec.type.dtype
    if dtype.kind == "b":
        ends: tuple[Any, Any] = (0, 1)
    elif dtype.kind == "f":
        ends = (-np.inf, np.inf)
    else:
        ends = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = (end if bound is None else bound for end, bound in zip(ends, (spec.minimum, spec.maximum), strict=True))
    return low, high
