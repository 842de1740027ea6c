"""Payloads of `trio_cogment.rl`, which come with their spaces: each leaf of a space is a tensor.

Tensors of most types have their elements in one piece, as arrays in messages have. So they are copied, from bytes to
bytes, and no array of NumPy's is made. What does not have the form that its space leads to expect takes the way of
`SpaceTensors`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping

import numpy as np
from google.protobuf.message import DecodeError

from trio_cogment.api import spaces_pb2
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    RemoteProtocolError,
    RpcError,
    StatusCode,
)
from trio_cogment.budget.made_once import LARGE_BYTES
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import Numbering, Verdict
from trio_cogment.spaces import SpaceError, decode_observation, encode_action
from trio_cogment.spaces.arrays import encode_array
from trio_cogment.spaces.base import ArraySpace, Space, rounded
from trio_cogment.spaces.composite import Dict, Tuple
from trio_cogment.spaces.envelopes import action_form
from trio_cogment.spaces.errors import Path
from trio_cogment.spaces.forms import constant_parts
from trio_cogment.spaces.space_tensors import SpaceTensors
from trio_cogment.spaces.tensor_specs import OutOfBoundsError, TensorSpec
from trio_cogment.spaces.tensors import encode_tensor

#: The names of what is one tensor, not a mapping of several.
ACTION, OBSERVATION = "action", "observation"
#: Of these types the message of a tensor has the elements in one piece, little-endian.
_IN_ONE_PIECE = frozenset({"float32", "float64", "int8", "uint8"})
#: Of one element, by NumPy's names.
_FORMATS = {"int32": "<i", "uint32": "<I", "int64": "<q", "uint64": "<Q", "float32": "<f", "float64": "<d"}


class ParsedObservations:
    """The payloads of a world as messages.

    A step looks at a payload twice, and many slots may have the same one. So the last one is kept, but of a large one
    no more than what it says beside its value, which would be kept for as long as nobody steps.
    """

    def __init__(self) -> None:
        self._last: tuple[bytes, spaces_pb2.Observation] = (b"", spaces_pb2.Observation())
        self._spaces: tuple[bytes, bytes] = (b"", b"")

    def whole(self, content: bytes) -> spaces_pb2.Observation:
        """Return a payload as a message.

        Raises:
            RemoteProtocolError: it is none.
        """
        if len(content) >= LARGE_BYTES:
            return _parsed(content)
        return self.but_value(content)

    def but_value(self, content: bytes) -> spaces_pb2.Observation:
        """Return the same, which may have no value."""
        last, message = self._last
        if content is not last:
            message = _parsed(content)
            if len(content) >= LARGE_BYTES:
                message = _without_value(message)
            self._last = content, message
        return message

    def spaces(self, content: bytes) -> bytes:
        """Return a digest of the spaces in a payload; they may be large, and the same for many."""
        last, digest = self._spaces
        if content is not last:
            said = self.but_value(content)
            both = hashlib.blake2b(said.observation_space.SerializeToString(deterministic=True))
            both.update(said.action_space.SerializeToString(deterministic=True))
            digest = both.digest()
            self._spaces = content, digest
        return digest


def _parsed(content: bytes) -> spaces_pb2.Observation:
    try:
        return spaces_pb2.Observation.FromString(content)
    except DecodeError:
        raise RemoteProtocolError("the environment's observation: expected a trio_cogment.spaces.Observation") from None


def _without_value(message: spaces_pb2.Observation) -> spaces_pb2.Observation:
    """Return a message of its own: what belongs to another keeps all of that."""
    found = spaces_pb2.Observation(terminated=message.terminated, truncated=message.truncated)
    for name in ("observation_space", "action_space"):
        if message.HasField(name):
            getattr(found, name).CopyFrom(getattr(message, name))
    return found


class EnvelopeMapping:
    """A `SlotMapping` for messages `Observation` and `Action` of `trio_cogment.spaces`.

    Args:
        first: the slot's first observation of a trial, which has the spaces.
        parsed: the payloads of the world.
        expose_discount: there is an observation `discount`.
        require_actions: a step has to have every action.

    Raises:
        FailedPreconditionError: there are no spaces, or they have no tensors.
    """

    def __init__(
        self,
        first: bytes,
        *,
        parsed: ParsedObservations | None = None,
        expose_discount: bool = False,
        require_actions: bool = False,
    ) -> None:
        self._parsed = parsed or ParsedObservations()
        try:
            message = self._parsed.whole(first)
            observation = decode_observation(message)
            if observation.observation_space is None or observation.action_space is None:
                raise FailedPreconditionError("the environment's first observation came without its spaces")
            self._observations = SpaceTensors(observation.observation_space, OBSERVATION)
            self._actions = SpaceTensors(observation.action_space, ACTION)
            self._numbering = Numbering(self._actions.specs, self._observations.specs, expose_discount=expose_discount)
        except SpaceError as error:
            raise FailedPreconditionError(f"a space of the environment has no tensors: {error}") from None
        self.specs, self.numbers = self._numbering.specs, self._numbering.numbers
        self._first = _without_value(message)
        self._leaves = {uid: index for index, uid in enumerate(self._numbering.observations)}
        self._readers = {
            uid: ArrayReader(self._observations.space, path, leaf, spec)
            for (uid, spec), (path, leaf) in zip(
                self._numbering.observations.items(), self._observations.space.leaves(), strict=True
            )
            if isinstance(leaf, ArraySpace) and 0 not in leaf.shape
        }
        self._form = action_form(self._actions.space)
        self._writers: dict[int, ElementsWriter] = {}
        self._defaults: list[bytes] = []
        self._require_actions = require_actions
        try:
            self.default_action = self._encoded([None] * len(self._actions.specs))
        except SpaceError:
            # Nothing stands for an action in its space; who plays for an agent that is away sends an empty message.
            self.default_action = b""
        form = self._form
        if form is not None and (elements := form.cut(self.default_action)) is not None:
            self._defaults = elements
            specs = self._numbering.actions.items()
            for (uid, spec), leaf in zip(specs, form.leaves, strict=True):
                self._writers[uid] = ElementsWriter(leaf, spec)

    def action(self, tensors: Mapping[int, pb.Tensor]) -> bytes:
        """See `SlotMapping.action`."""
        self._numbering.check_actions(tensors, all_of_them=self._require_actions)
        if self._form is not None and self._writers:
            try:
                elements = self._defaults.copy()
                for uid in tensors:  # not `items`, which of messages is a function of Python
                    elements[uid - 1] = self._writers[uid].elements(tensors[uid])
                return self._form.join(elements)
            except SpaceError:
                pass  # the other way says which part it is
        try:
            return self._encoded([tensors.get(uid) for uid in self._numbering.actions])
        except SpaceError as error:
            self._refuse(tensors, error)
            raise InvalidArgumentError(f"actions: {error}") from None

    def _refuse(self, tensors: Mapping[int, pb.Tensor], error: SpaceError) -> None:
        """Raise the error of the tensor that is to blame, if one is."""
        for uid, tensor in tensors.items():
            spec = self._numbering.actions[uid]
            try:
                spec.check(tensor)
            except OutOfBoundsError as found:
                raise RpcError(StatusCode.OUT_OF_RANGE, f"actions: UID {uid}: {found}") from None
            except SpaceError as found:
                raise InvalidArgumentError(f"actions: UID {uid}: {found}") from None

    def _encoded(self, tensors: list[pb.Tensor | None]) -> bytes:
        content: bytes = encode_action(self._actions.value(tensors), self._actions.space).SerializeToString()
        return content

    def check_requested(self, uids: Collection[int]) -> None:
        """See `SlotMapping.check_requested`."""
        self._numbering.check_requested(uids)

    def fill(
        self, response: pb.StepResponse, content: bytes, uids: Collection[int], reward: float, discount: float
    ) -> None:
        """See `SlotMapping.fill`."""
        wanted, others = frozenset(uids), set()
        self._numbering.fill_numbers(response, wanted, reward, discount)
        if wanted <= self.numbers:
            return
        message = self._parsed.whole(content)
        for uid in wanted - self.numbers:
            reader = self._readers.get(uid)
            if reader is None or not reader.read(message, response.observations[uid]):
                others.add(uid)
        if others:
            self._fill_others(response, message, others)

    def _fill_others(self, response: pb.StepResponse, message: spaces_pb2.Observation, uids: Collection[int]) -> None:
        leaves = {self._leaves[uid]: uid for uid in uids}
        try:
            value = decode_observation(message, self._observations.space).value
        except SpaceError as error:
            raise RemoteProtocolError(f"the environment's observation: {error}") from None
        for index, tensor in self._observations.some_tensors(value, leaves):
            response.observations[leaves[index]].CopyFrom(tensor)

    def verdict(self, content: bytes) -> Verdict | None:
        """See `SlotMapping.verdict`."""
        message = self._parsed.but_value(content)
        if message.terminated:
            return Verdict.TERMINATED
        return Verdict.TRUNCATED if message.truncated else Verdict.GOING_ON

    def describes(self, content: bytes) -> bool:
        """See `SlotMapping.describes`."""
        message = self._parsed.but_value(content)
        if not (message.HasField("observation_space") and message.HasField("action_space")):
            return True
        first = self._first
        if (message.observation_space, message.action_space) == (first.observation_space, first.action_space):
            return True
        try:
            found = decode_observation(self._parsed.whole(content))
        except SpaceError:
            return False
        return bool(found.observation_space == self._observations.space and found.action_space == self._actions.space)


# Arrays within observations and actions


class ArrayReader:
    """Reads an array of observations into tensors.

    Args:
        space: of the observations.
        path: of the array.
        leaf: its space; the array has elements.
        spec: of its tensor.
    """

    def __init__(self, space: Space, path: Path, leaf: ArraySpace, spec: TensorSpec) -> None:
        self._way = _way(space, path)
        array = encode_array(np.zeros(leaf.shape, leaf.dtype))
        self._dtype, self._shape, self._size = array.dtype, list(leaf.shape), len(array.raw_data)
        self._row, self._numpy = spec.type, leaf.dtype
        self._parts: list[bytes] | None = None
        if spec.type.name in _IN_ONE_PIECE and spec.type.dtype == leaf.dtype:
            filled = (np.frombuffer(byte * self._size, leaf.dtype).reshape(leaf.shape) for byte in (b"\x00", b"\x01"))
            zeros, ones = (encode_tensor(each).SerializeToString() for each in filled)
            self._parts = constant_parts(zeros, ones, [self._size])

    def read(self, message: spaces_pb2.Observation, tensor: pb.Tensor) -> bool:
        """Write the array of an observation into an empty tensor; False if it has another form."""
        array = self._found(message)
        if array is None:
            return False
        content = array.raw_data
        if len(content) != self._size or array.dtype != self._dtype or array.shape != self._shape:
            return False
        if self._parts is not None:
            before, behind = self._parts
            tensor.MergeFromString(before + content + behind)
        else:
            holder = getattr(tensor, self._row.payload)
            holder.SetInParent()
            holder.array.extend(np.frombuffer(content, self._numpy).tolist())
            tensor.shape.extend(self._shape)
        return True

    def _found(self, message: spaces_pb2.Observation) -> spaces_pb2.Array | None:
        if not self._way:
            return message.value
        value = message.nested
        for key, position in self._way:
            try:
                if key is None:
                    value = value.tuple.items[position]
                    continue
                field = value.dict.fields[position]
            except IndexError:
                return None
            if field.key != key:
                return None
            value = field.value
        return value.array


def _way(space: Space, path: Path) -> list[tuple[str | None, int]]:
    """Return the keys, None in a tuple, and the positions that lead to a part."""
    found: list[tuple[str | None, int]] = []
    for step in path:
        if isinstance(space, Dict) and isinstance(step, str):
            found.append((step, list(space.spaces).index(step)))
            space = space.spaces[step]
        else:
            assert isinstance(space, Tuple)
            assert isinstance(step, int)
            found.append((None, step))
            space = space.spaces[step]
    return found


class ElementsWriter:
    """Makes the elements of an array in an action of a tensor.

    Args:
        leaf: the space of the array.
        spec: of the tensor.
    """

    def __init__(self, leaf: ArraySpace, spec: TensorSpec) -> None:
        self._leaf, self._spec = leaf, spec
        self._payload = spec.type.payload
        self._format: struct.Struct | None = None
        self._one_byte = False
        if leaf.shape == () and leaf.dtype == spec.type.dtype:
            self._low, self._high = (np.asarray(bound).item() for bound in leaf.bounds())
            self._one_byte = spec.type.raw
            self._signed = leaf.dtype.kind == "i"
            if spec.type.name in _FORMATS:
                self._format = struct.Struct(_FORMATS[spec.type.name])

    def elements(self, tensor: pb.Tensor) -> bytes:
        """Return the elements.

        Raises:
            SpaceError: the tensor is not what its specification says.
        """
        if (self._format is not None or self._one_byte) and not tensor.shape:
            array = getattr(tensor, self._payload).array
            if len(array) == 1:
                value = array[0]
                if self._one_byte and self._signed and value > 127:
                    value -= 256
                # NaN is not within any bounds.
                if self._low <= value <= self._high:
                    return array if self._format is None else self._format.pack(value)
        found = self._spec.check(tensor)
        leaf = self._leaf
        found = rounded(found, leaf.row) if leaf.row.kind == "f" else found.astype(leaf.dtype)
        if not leaf.within(found):
            raise SpaceError("expected a value of the space", (), self._spec.name)
        return found.tobytes()
