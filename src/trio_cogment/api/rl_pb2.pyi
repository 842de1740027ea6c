from trio_cogment.api import spaces_pb2 as _spaces_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnvironmentConfig(_message.Message):
    __slots__ = ("id", "arguments", "seed", "options", "instance", "frames_for", "spec")
    ID_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FOR_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    id: str
    arguments: _spaces_pb2.Value.Fields
    seed: int
    options: _spaces_pb2.Value.Fields
    instance: str
    frames_for: _containers.RepeatedScalarFieldContainer[str]
    spec: str
    def __init__(self, id: _Optional[str] = ..., arguments: _Optional[_Union[_spaces_pb2.Value.Fields, _Mapping]] = ..., seed: _Optional[int] = ..., options: _Optional[_Union[_spaces_pb2.Value.Fields, _Mapping]] = ..., instance: _Optional[str] = ..., frames_for: _Optional[_Iterable[str]] = ..., spec: _Optional[str] = ...) -> None: ...
