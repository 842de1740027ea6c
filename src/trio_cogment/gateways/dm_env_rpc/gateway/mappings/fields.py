"""Messages of any type as tensors: one for each field, down to the fields of messages within messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import FieldAnnotation
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.field_types import is_array, leaf_of, presence_of, there_of
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.leaves import ANY, Leaf
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.errors import MAX_DEPTH

#: A type with more is refused: it can be a tensor as a whole.
MAX_LEAVES = 4096
_PRESENT = "_present"


class FieldsSide:
    """A `Side`: each field of a message is a tensor; the names of nested ones are joined by dots.

    Fields of a `oneof` are all there; those that are not set have their defaults. Of an action at most one of them may
    be sent.

    Args:
        kind: the type of the message.
        notes: annotations of fields.
        is_action: only what can be written.
        presence: fields that may be absent have a tensor that says whether they are there.

    Raises:
        InvalidArgumentError: an annotation names no field, or does not go with it; or there are too many fields.
    """

    def __init__(
        self, kind: type[Message], notes: Mapping[str, FieldAnnotation], *, is_action: bool, presence: bool = False
    ) -> None:
        self._kind = kind
        walk = _Walk(notes, presence=presence and not is_action)
        descriptor: Any = kind.DESCRIPTOR
        self._leaves = list(walk.leaves(descriptor, (), (), (descriptor,)))
        for name in notes:
            if name not in walk.seen:
                raise InvalidArgumentError(f"{name}: {kind.DESCRIPTOR.full_name} has no such field")
        self.specs = [leaf.spec for leaf in self._leaves]

    def read(self, content: bytes, wanted: Collection[int]) -> Iterator[tuple[int, pb.Tensor]]:
        """See `Side`."""
        if wanted:
            message = self._kind.FromString(content)
            for index in wanted:
                yield index, self._leaves[index].read(message)

    def write(self, tensors: Mapping[int, pb.Tensor]) -> bytes:
        """See `Side`."""
        message = self._kind()
        chosen: dict[str, str] = {}
        for index, tensor in tensors.items():
            leaf = self._leaves[index]
            for group, arm in leaf.arms:
                if chosen.setdefault(group, arm) != arm:
                    expected = f"actions of one of {chosen[group]!r} and {arm!r}, which exclude each other"
                    raise SpaceError(f"expected {expected}", (), leaf.spec.name)
            leaf.write(message, tensor)
        return message.SerializeToString()


class _Walk:
    """Finds the leaves of a type.

    Args:
        notes: annotations of fields.
        presence: see `FieldsSide`.

    Attributes:
        seen: the names of all fields that were come by.
    """

    def __init__(self, notes: Mapping[str, FieldAnnotation], *, presence: bool) -> None:
        self.seen: set[str] = set()
        self._notes = notes
        self._presence = presence
        self._count = 0

    def leaves(
        self,
        descriptor: Descriptor,
        parents: tuple[str, ...],
        arms: tuple[tuple[str, str], ...],
        above: tuple[Descriptor, ...],
    ) -> Iterator[Leaf]:
        """Yield those of a message.

        Args:
            descriptor: of the message.
            parents: the fields that lead to it.
            arms: see `Leaf`.
            above: the types of the messages that it is in, and its own.
        """
        for field in sorted(descriptor.fields, key=lambda each: each.index):
            name = ".".join((*parents, field.name))
            self.seen.add(name)
            note = self._notes.get(name)
            if note is not None and note.skip:
                self.seen.update(each for each in self._notes if each.startswith(f"{name}."))
                continue
            group = field.containing_oneof
            own = arms
            if group is not None and len(group.fields) > 1:
                own = (*arms, (".".join((*parents, group.name)), name))
            yield from self._of_field(field, name, note, parents, own, above)
            if self._presence and field.has_presence and not _is_empty(field):
                yield self._counted(presence_of(field, name + _PRESENT, parents, own))

    def _of_field(
        self,
        field: FieldDescriptor,
        name: str,
        note: FieldAnnotation | None,
        parents: tuple[str, ...],
        arms: tuple[tuple[str, str], ...],
        above: tuple[Descriptor, ...],
    ) -> Iterator[Leaf]:
        kind = field.message_type
        stays_whole = (
            kind is None
            or field.is_repeated
            or kind.full_name == ANY
            or kind in above
            or len(above) >= MAX_DEPTH
            or (note is not None and note.dtype is not None and is_array(field))
        )
        if stays_whole:
            yield self._counted(leaf_of(field, name, note, parents, arms))
        elif _is_empty(field):
            yield self._counted(there_of(field, name, parents, arms))
        else:
            assert kind is not None
            if note is not None and note != FieldAnnotation():
                raise InvalidArgumentError(f"{name}: expected annotations of its fields: {kind.full_name} is a message")
            yield from self.leaves(kind, (*parents, field.name), arms, (*above, kind))

    def _counted(self, leaf: Leaf) -> Leaf:
        self._count += 1
        if self._count > MAX_LEAVES:
            raise InvalidArgumentError(f"expected a type of at most {MAX_LEAVES} fields; the layer 'raw' has no limit")
        return leaf


def _is_empty(field: FieldDescriptor) -> bool:
    return field.message_type is not None and not field.message_type.fields
