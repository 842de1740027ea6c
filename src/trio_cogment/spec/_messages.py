"""The message types of a project, as classes, in a descriptor pool of their own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

#: The folder of the types that come with protobuf.
WELL_KNOWN = "google/protobuf/"


class MessageTypes(Mapping[str, type[Message]]):
    """Message classes by full name, in the order of their files.

    Projects with the same names do not disturb each other: each has a pool. Types that come with protobuf are those
    of `google.protobuf`; within a message of the project, such a field is of a class of its own with the same methods.

    Args:
        files: the descriptors, each after those that it imports.
    """

    def __init__(self, files: FileDescriptorSet) -> None:
        self._pool = DescriptorPool()
        self._files: dict[str, str] = {}
        for file in files.file:
            self._pool.AddSerializedFile(file.SerializeToString())
            self._files.update(dict.fromkeys(message_names(file), file.name))

    def __getitem__(self, name: str) -> type[Message]:
        file = self._files[name]
        if file.startswith(WELL_KNOWN):
            importlib.import_module(f"{file.removesuffix('.proto').replace('/', '.')}_pb2")
            return GetMessageClass(Default().FindMessageTypeByName(name))
        return GetMessageClass(self._pool.FindMessageTypeByName(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def file_of(self, name: str) -> str:
        """Return the path of the proto that declares a type."""
        return self._files[name]


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
