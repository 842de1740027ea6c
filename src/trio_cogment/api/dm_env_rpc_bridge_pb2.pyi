from trio_cogment.api import spaces_pb2 as _spaces_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BridgeConfig(_message.Message):
    __slots__ = ("server", "create_settings", "seed", "reset_settings", "instance", "world_name", "join_settings", "actor_join_settings", "observations", "end_when", "on_error", "single_use")
    class EndWhen(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ALL: _ClassVar[BridgeConfig.EndWhen]
        ANY: _ClassVar[BridgeConfig.EndWhen]
    ALL: BridgeConfig.EndWhen
    ANY: BridgeConfig.EndWhen
    class OnError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        END_TRIAL: _ClassVar[BridgeConfig.OnError]
        REPEAT: _ClassVar[BridgeConfig.OnError]
    END_TRIAL: BridgeConfig.OnError
    REPEAT: BridgeConfig.OnError
    class ActorJoinSettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _spaces_pb2.Value.Fields
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_spaces_pb2.Value.Fields, _Mapping]] = ...) -> None: ...
    SERVER_FIELD_NUMBER: _ClassVar[int]
    CREATE_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    RESET_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    WORLD_NAME_FIELD_NUMBER: _ClassVar[int]
    JOIN_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_JOIN_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    END_WHEN_FIELD_NUMBER: _ClassVar[int]
    ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    SINGLE_USE_FIELD_NUMBER: _ClassVar[int]
    server: str
    create_settings: _spaces_pb2.Value.Fields
    seed: int
    reset_settings: _spaces_pb2.Value.Fields
    instance: str
    world_name: str
    join_settings: _spaces_pb2.Value.Fields
    actor_join_settings: _containers.MessageMap[str, _spaces_pb2.Value.Fields]
    observations: _containers.RepeatedScalarFieldContainer[str]
    end_when: BridgeConfig.EndWhen
    on_error: BridgeConfig.OnError
    single_use: bool
    def __init__(self, server: _Optional[str] = ..., create_settings: _Optional[_Union[_spaces_pb2.Value.Fields, _Mapping]] = ..., seed: _Optional[int] = ..., reset_settings: _Optional[_Union[_spaces_pb2.Value.Fields, _Mapping]] = ..., instance: _Optional[str] = ..., world_name: _Optional[str] = ..., join_settings: _Optional[_Union[_spaces_pb2.Value.Fields, _Mapping]] = ..., actor_join_settings: _Optional[_Mapping[str, _spaces_pb2.Value.Fields]] = ..., observations: _Optional[_Iterable[str]] = ..., end_when: _Optional[_Union[BridgeConfig.EndWhen, str]] = ..., on_error: _Optional[_Union[BridgeConfig.OnError, str]] = ..., single_use: bool = ...) -> None: ...
