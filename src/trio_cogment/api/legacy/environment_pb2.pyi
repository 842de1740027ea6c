from trio_cogment.api.legacy import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ObservationSet(_message.Message):
    __slots__ = ("tick_id", "timestamp", "observations", "actors_map")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTORS_MAP_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    timestamp: int
    observations: _containers.RepeatedCompositeFieldContainer[_common_pb2.ObservationData]
    actors_map: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tick_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., observations: _Optional[_Iterable[_Union[_common_pb2.ObservationData, _Mapping]]] = ..., actors_map: _Optional[_Iterable[int]] = ...) -> None: ...

class ActionSet(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, actions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class EnvStartRequest(_message.Message):
    __slots__ = ("trial_id", "config", "actor_counts", "trial_config")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    ACTOR_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TRIAL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    config: _common_pb2.EnvironmentConfig
    actor_counts: _containers.RepeatedScalarFieldContainer[int]
    trial_config: _common_pb2.TrialConfig
    def __init__(self, trial_id: _Optional[str] = ..., config: _Optional[_Union[_common_pb2.EnvironmentConfig, _Mapping]] = ..., actor_counts: _Optional[_Iterable[int]] = ..., trial_config: _Optional[_Union[_common_pb2.TrialConfig, _Mapping]] = ...) -> None: ...

class EnvStartReply(_message.Message):
    __slots__ = ("observation_set",)
    OBSERVATION_SET_FIELD_NUMBER: _ClassVar[int]
    observation_set: ObservationSet
    def __init__(self, observation_set: _Optional[_Union[ObservationSet, _Mapping]] = ...) -> None: ...

class EnvEndRequest(_message.Message):
    __slots__ = ("trial_id",)
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    def __init__(self, trial_id: _Optional[str] = ...) -> None: ...

class EnvEndReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EnvUpdateRequest(_message.Message):
    __slots__ = ("trial_id", "action_set", "reply_with_snapshot")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_SET_FIELD_NUMBER: _ClassVar[int]
    REPLY_WITH_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    action_set: ActionSet
    reply_with_snapshot: bool
    def __init__(self, trial_id: _Optional[str] = ..., action_set: _Optional[_Union[ActionSet, _Mapping]] = ..., reply_with_snapshot: bool = ...) -> None: ...

class EnvUpdateReply(_message.Message):
    __slots__ = ("observation_set", "feedbacks", "end_trial", "messages")
    OBSERVATION_SET_FIELD_NUMBER: _ClassVar[int]
    FEEDBACKS_FIELD_NUMBER: _ClassVar[int]
    END_TRIAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    observation_set: ObservationSet
    feedbacks: _containers.RepeatedCompositeFieldContainer[_common_pb2.Feedback]
    end_trial: bool
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    def __init__(self, observation_set: _Optional[_Union[ObservationSet, _Mapping]] = ..., feedbacks: _Optional[_Iterable[_Union[_common_pb2.Feedback, _Mapping]]] = ..., end_trial: bool = ..., messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ...) -> None: ...

class EnvOnMessageRequest(_message.Message):
    __slots__ = ("trial_id", "actor_id", "messages")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ...) -> None: ...

class EnvOnMessageReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
