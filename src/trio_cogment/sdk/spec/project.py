"""Projects: `cogment.yaml` and its protos, read, compiled in memory and checked."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from trio_cogment.sdk.spec._messages import MessageTypes
from trio_cogment.sdk.spec._project_file import Declared, ProjectFile
from trio_cogment.sdk.spec._protoc import compile_protos
from trio_cogment.sdk.spec._types import ActorClass, Spec, advice, resolve


class Project:
    """A project: its file, its protos and its types.

    Args:
        path: the project file, or its folder.
        pool: see `load_spec`.
        legacy: see `ProjectFile`.

    Attributes:
        declared: what the file says.
        files: the descriptors of the protos and of all they import, each after those that it imports.
        messages: the message types, by full name.
        spec: the types, for the SDK.

    Raises:
        InvalidArgumentError: the file or a proto cannot be read or is invalid, or a type does not exist; the text names
            the file, the line and what to do. Or the pool has other messages with these names.
        FailedPreconditionError: there are protos, and `grpcio-tools` is not installed.
    """

    def __init__(self, path: str | Path, *, pool: DescriptorPool | None = None, legacy: bool = False) -> None:
        self.declared = declared = ProjectFile(path, legacy=legacy)
        protos = [proto.text for proto in declared.protos]
        self.files = compile_protos(declared.folder, protos) if protos else FileDescriptorSet()
        self.messages = MessageTypes(self.files, pool)
        self.spec = Spec(
            actor_classes=tuple(
                ActorClass(
                    found.name,
                    observation=self.messages[self.full_name(found.observation)],
                    action=self.messages[self.full_name(found.action)],
                    config=None if found.config is None else self.messages[self.full_name(found.config)],
                )
                for found in declared.actor_classes
            ),
            environment_config=self._optional(declared.environment_config),
            trial_config=self._optional(declared.trial_config),
            messages=self.messages,
        )

    def _optional(self, declared: Declared | None) -> type | None:
        return None if declared is None else self.messages[self.full_name(declared)]

    def full_name(self, declared: Declared) -> str:
        """Return the full name of a declared type.

        Raises:
            InvalidArgumentError: there is no such message.
        """
        name = resolve(self.messages, declared.text)
        if name is None:
            text = f"{declared.what}: there is no message {declared.text!r}; {advice(self.messages, declared.text)}"
            raise self.declared.file.fault(declared.node, text)
        return name


def load_spec(path: str | Path = ".", *, pool: DescriptorPool | None = None, legacy: bool = False) -> Spec:
    """Return the types of a project; its protos are compiled in memory, and nothing is written.

    Every call compiles again, which takes a fraction of a second, and makes new classes: call it once per process, or
    use what `trio-cogment generate` writes. It blocks the thread.

    Args:
        path: the project file, or the folder of `cogment.yaml`.
        pool: the descriptor pool in which the messages are made; by default a new one. In protobuf's default pool,
            `descriptor_pool.Default()`, they are the classes of generated modules, if there are any, and go together
            with all other messages of the program, such as its `Timestamp`; another project with the same names does
            not fit into that pool.
        legacy: read a file of the legacy API, too, whose classes have an `id` instead of a name.

    Raises:
        InvalidArgumentError: the file or a proto cannot be read or is invalid, or a type does not exist; the text names
            the file, the line and what to do. Or the pool has other messages with these names.
        FailedPreconditionError: there are protos, and `grpcio-tools` is not installed.
    """
    return Project(path, pool=pool, legacy=legacy).spec
