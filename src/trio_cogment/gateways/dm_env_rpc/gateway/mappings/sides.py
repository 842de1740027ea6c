"""Shared parts of the mappings of observations and of actions: a list of tensors stands for a payload."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError, RpcError, StatusCode
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import Numbering, Verdict
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import OutOfBoundsError, TensorSpec

TYPE_URLS = "type.googleapis.com/"


class Side(Protocol):
    """The payloads of one type as tensors."""

    @property
    def specs(self) -> Sequence[TensorSpec]:
        """Of the tensors, in order."""

    def read(self, content: bytes, wanted: Collection[int]) -> Iterator[tuple[int, pb.Tensor]]:
        """Yield those tensors of a payload whose positions in `specs` are wanted, with their positions.

        Raises:
            DecodeError: the payload is not of its type.
            SpaceError: a part of it does not fit its specification.
        """

    def write(self, tensors: Mapping[int, pb.Tensor]) -> bytes:
        """Return the payload that tensors stand for.

        Args:
            tensors: by their positions in `specs`.

        Raises:
            SpaceError: one is not what its specification says.
        """


class WholeSide:
    """A `Side`: a message is one tensor, an `Any`.

    Args:
        name: of the tensor.
        kind: the type of the message.
    """

    def __init__(self, name: str, kind: type[Message]) -> None:
        self.specs = [TensorSpec.of(name, "object")]
        self._kind = kind
        self._full_name = kind.DESCRIPTOR.full_name

    def read(self, content: bytes, wanted: Collection[int]) -> Iterator[tuple[int, pb.Tensor]]:
        """See `Side`."""
        if wanted:
            self._kind.FromString(content)
            tensor = pb.Tensor()
            tensor.protos.array.add(type_url=TYPE_URLS + self._full_name, value=content)
            yield 0, tensor

    def write(self, tensors: Mapping[int, pb.Tensor]) -> bytes:
        """See `Side`."""
        if 0 not in tensors:
            return b""
        packed: Any = self.specs[0].check(tensors[0])[()]
        return content_of(packed, self._kind, self.specs[0].name)


class BytesSide:
    """A `Side`: a payload without a type is one tensor of its bytes.

    Args:
        name: of the tensor.
    """

    def __init__(self, name: str) -> None:
        self.specs = [TensorSpec.of(name, "uint8", (-1,))]

    def read(self, content: bytes, wanted: Collection[int]) -> Iterator[tuple[int, pb.Tensor]]:
        """See `Side`."""
        if wanted:
            tensor = pb.Tensor(shape=[len(content)])
            tensor.uint8s.array = content
            yield 0, tensor

    def write(self, tensors: Mapping[int, pb.Tensor]) -> bytes:
        """See `Side`."""
        return self.specs[0].check(tensors[0]).tobytes() if 0 in tensors else b""


def content_of(packed: AnyMessage, kind: type[Message], name: str) -> bytes:
    """Return the bytes of a message of a type within an `Any`.

    Raises:
        SpaceError: it is another one, or not valid.
    """
    expected = kind.DESCRIPTOR.full_name
    found = packed.type_url.rpartition("/")[2]
    if found != expected:
        raise SpaceError(f"expected a message {expected}, got {found[:200]!r}", (), name)
    try:
        kind.FromString(packed.value)
    except DecodeError:
        raise SpaceError(f"expected a valid message {expected}", (), name) from None
    return packed.value


class TwoSides:
    """A `SlotMapping` of two `Side`s.

    Args:
        actions: of the actions.
        observations: of the observations.
        expose_discount: there is an observation `discount`.
        require_actions: a step has to have every action.

    Raises:
        FailedPreconditionError: names of tensors clash.
    """

    def __init__(
        self, actions: Side, observations: Side, *, expose_discount: bool = False, require_actions: bool = False
    ) -> None:
        self._actions, self._observations = actions, observations
        self._numbering = Numbering(actions.specs, observations.specs, expose_discount=expose_discount)
        self._first = len(actions.specs) + 1
        self._require_actions = require_actions
        self.specs, self.numbers = self._numbering.specs, self._numbering.numbers
        self.default_action = actions.write({})

    def action(self, tensors: Mapping[int, pb.Tensor]) -> bytes:
        """See `SlotMapping.action`."""
        self._numbering.check_actions(tensors, all_of_them=self._require_actions)
        try:
            return self._actions.write({uid - 1: tensor for uid, tensor in tensors.items()})
        except SpaceError as error:
            refused = next((uid for uid, spec in self._numbering.actions.items() if spec.name == error.root), None)
            text = f"actions: {error}" if refused is None else f"actions: UID {refused}: {error}"
            if isinstance(error, OutOfBoundsError):
                raise RpcError(StatusCode.OUT_OF_RANGE, text) from None
            raise InvalidArgumentError(text) from None

    def check_requested(self, uids: Collection[int]) -> None:
        """See `SlotMapping.check_requested`."""
        self._numbering.check_requested(uids)

    def fill(
        self, response: pb.StepResponse, content: bytes, uids: Collection[int], reward: float, discount: float
    ) -> None:
        """See `SlotMapping.fill`."""
        self._numbering.fill_numbers(response, uids, reward, discount)
        observations, first = self._numbering.observations, self._first
        wanted = {uid - first for uid in uids if uid in observations}
        if not wanted:
            return
        try:
            for index, tensor in self._observations.read(content, wanted):
                response.observations[first + index].CopyFrom(tensor)
        except DecodeError:
            raise RemoteProtocolError("the environment's observation is not a message of its type") from None
        except SpaceError as error:
            raise RemoteProtocolError(f"the environment's observation: {error}") from None

    def verdict(self, content: bytes) -> Verdict | None:
        """See `SlotMapping.verdict`: such payloads say nothing."""
        return None

    def describes(self, content: bytes) -> bool:
        """See `SlotMapping.describes`: the types are those of the project."""
        return True
