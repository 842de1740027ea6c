from trio_cogment.api import common_pb2 as _common_pb2
from trio_cogment.api import environment_pb2 as _environment_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SampleInfo(_message.Message):
    __slots__ = ("tick_id", "timestamp", "state", "special_events", "out_of_sync", "end")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_EVENTS_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_SYNC_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    timestamp: int
    state: _common_pb2.TrialState
    special_events: _containers.RepeatedScalarFieldContainer[str]
    out_of_sync: bool
    end: _common_pb2.EndOfTrial
    def __init__(self, tick_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., state: _Optional[_Union[_common_pb2.TrialState, str]] = ..., special_events: _Optional[_Iterable[str]] = ..., out_of_sync: bool = ..., end: _Optional[_Union[_common_pb2.EndOfTrial, _Mapping]] = ...) -> None: ...

class DatalogSample(_message.Message):
    __slots__ = ("info", "observations", "actions", "rewards", "messages", "default_actors", "unavailable_actors", "held_actors")
    INFO_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_ACTORS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_ACTORS_FIELD_NUMBER: _ClassVar[int]
    HELD_ACTORS_FIELD_NUMBER: _ClassVar[int]
    info: SampleInfo
    observations: _environment_pb2.ObservationSet
    actions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Action]
    rewards: _containers.RepeatedCompositeFieldContainer[_common_pb2.Reward]
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    default_actors: _containers.RepeatedScalarFieldContainer[int]
    unavailable_actors: _containers.RepeatedScalarFieldContainer[int]
    held_actors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, info: _Optional[_Union[SampleInfo, _Mapping]] = ..., observations: _Optional[_Union[_environment_pb2.ObservationSet, _Mapping]] = ..., actions: _Optional[_Iterable[_Union[_common_pb2.Action, _Mapping]]] = ..., rewards: _Optional[_Iterable[_Union[_common_pb2.Reward, _Mapping]]] = ..., messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ..., default_actors: _Optional[_Iterable[int]] = ..., unavailable_actors: _Optional[_Iterable[int]] = ..., held_actors: _Optional[_Iterable[int]] = ...) -> None: ...

class RunTrialDatalogInput(_message.Message):
    __slots__ = ("trial_params", "sample")
    TRIAL_PARAMS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    trial_params: _common_pb2.TrialParams
    sample: DatalogSample
    def __init__(self, trial_params: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ..., sample: _Optional[_Union[DatalogSample, _Mapping]] = ...) -> None: ...

class RunTrialDatalogOutput(_message.Message):
    __slots__ = ("attempt", "lease_seconds")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    lease_seconds: float
    def __init__(self, attempt: _Optional[int] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class LogExporterSampleRequest(_message.Message):
    __slots__ = ("trial_params", "sample")
    TRIAL_PARAMS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    trial_params: _common_pb2.TrialParams
    sample: DatalogSample
    def __init__(self, trial_params: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ..., sample: _Optional[_Union[DatalogSample, _Mapping]] = ...) -> None: ...

class LogExporterSampleReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
