"""The message types of a project, as classes: in a descriptor pool of their own, or in one that is given."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

import google.protobuf
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from trio_cogment.base.errors import InvalidArgumentError

#: The folder of the types that come with protobuf.
WELL_KNOWN = "google/protobuf/"


class MessageTypes(Mapping[str, type[Message]]):
    """Message classes by full name, in the order of their files.

    Projects with the same names do not disturb each other: each has a pool. Types that come with protobuf are those
    of `google.protobuf`; within a message of the project, such a field is of a class of its own with the same methods.
    In a pool that is given, all types are those of the pool.

    Args:
        files: the descriptors, each after those that it imports.
        pool: the pool to which they are added; by default a new one.

    Raises:
        InvalidArgumentError: the pool has another file or message with one of these names.
    """

    def __init__(self, files: FileDescriptorSet, pool: DescriptorPool | None = None) -> None:
        self._is_own = pool is None
        self._pool = DescriptorPool() if pool is None else pool
        self._files: dict[str, str] = {}
        for file in files.file:
            self._add(file)
            self._files.update(dict.fromkeys(message_names(file), file.name))

    def _add(self, file: FileDescriptorProto) -> None:
        if file.name.startswith(WELL_KNOWN) and self._pool is Default():
            _import_well_known(file.name)
            return
        try:
            self._pool.AddSerializedFile(without_json_names(file).SerializeToString(deterministic=True))
        except TypeError:  # what protobuf raises
            raise InvalidArgumentError(
                f"{file.name}: the descriptor pool has another file of this name, or other messages with its names; "
                "use one pool for each project, or restart the program after a change of its protos"
            ) from None

    def __getitem__(self, name: str) -> type[Message]:
        file = self._files[name]
        if file.startswith(WELL_KNOWN) and self._is_own:
            _import_well_known(file)
            return GetMessageClass(Default().FindMessageTypeByName(name))
        return GetMessageClass(self._pool.FindMessageTypeByName(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def file_of(self, name: str) -> str:
        """Return the path of the proto that declares a type."""
        return self._files[name]


def well_known_protos() -> list[str]:
    """Return the paths of the protos that come with protobuf, such as `google/protobuf/struct.proto`."""
    modules = [found.name for found in pkgutil.iter_modules(google.protobuf.__path__)]
    return [f"{WELL_KNOWN}{name.removesuffix('_pb2')}.proto" for name in modules if name.endswith("_pb2")]


def well_known_file(name: str) -> str | None:
    """Return the path of the proto that comes with protobuf and declares a message; None if none does."""
    for file in well_known_protos():
        _import_well_known(file)
    try:
        found = Default().FindMessageTypeByName(name).file.name
    except KeyError:
        return None
    return found if found.startswith(WELL_KNOWN) else None


def _import_well_known(file: str) -> None:
    """Import the module of a proto that comes with protobuf, which adds it to the default pool."""
    importlib.import_module(f"{file.removesuffix('.proto').replace('/', '.')}_pb2")


def message_names(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the full names of all messages in a file, except for the entries of maps."""

    def within(prefix: str, message: DescriptorProto) -> Iterator[str]:
        if not message.options.map_entry:
            name = f"{prefix}{message.name}"
            yield name
            for nested in message.nested_type:
                yield from within(f"{name}.", nested)

    for message in file.message_type:
        yield from within(f"{file.package}." if file.package else "", message)


def without_json_names(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a file as protoc's own modules hold it: protobuf refuses a second one of that name only if it differs."""
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    messages: list[FileDescriptorProto | DescriptorProto] = [copy]
    while messages:
        message = messages.pop()
        fields = [*message.extension, *(message.field if isinstance(message, DescriptorProto) else ())]
        for field in fields:
            first, *others = field.name.split("_")
            if field.json_name == first + "".join(word[:1].upper() + word[1:] for word in others):
                field.ClearField("json_name")
        messages += message.nested_type if isinstance(message, DescriptorProto) else message.message_type
    return copy
