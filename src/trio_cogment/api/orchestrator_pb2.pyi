from trio_cogment.api import common_pb2 as _common_pb2
from trio_cogment.api import environment_pb2 as _environment_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TrialStartRequest(_message.Message):
    __slots__ = ("config", "params", "user_id", "trial_id_requested", "take_up")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TRIAL_ID_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    TAKE_UP_FIELD_NUMBER: _ClassVar[int]
    config: _common_pb2.SerializedMessage
    params: _common_pb2.TrialParams
    user_id: str
    trial_id_requested: str
    take_up: TakeUp
    def __init__(self, config: _Optional[_Union[_common_pb2.SerializedMessage, _Mapping]] = ..., params: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ..., user_id: _Optional[str] = ..., trial_id_requested: _Optional[str] = ..., take_up: _Optional[_Union[TakeUp, _Mapping]] = ...) -> None: ...

class TakeUp(_message.Message):
    __slots__ = ("trial_id", "tick_id")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    tick_id: int
    def __init__(self, trial_id: _Optional[str] = ..., tick_id: _Optional[int] = ...) -> None: ...

class TrialStartReply(_message.Message):
    __slots__ = ("trial_id",)
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    def __init__(self, trial_id: _Optional[str] = ...) -> None: ...

class TerminateTrialRequest(_message.Message):
    __slots__ = ("hard_termination",)
    HARD_TERMINATION_FIELD_NUMBER: _ClassVar[int]
    hard_termination: bool
    def __init__(self, hard_termination: bool = ...) -> None: ...

class TerminateTrialReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrialInfoRequest(_message.Message):
    __slots__ = ("get_latest_observation", "get_actor_list")
    GET_LATEST_OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    GET_ACTOR_LIST_FIELD_NUMBER: _ClassVar[int]
    get_latest_observation: bool
    get_actor_list: bool
    def __init__(self, get_latest_observation: bool = ..., get_actor_list: bool = ...) -> None: ...

class TrialInfo(_message.Message):
    __slots__ = ("trial_id", "state", "env_name", "tick_id", "trial_duration", "latest_observation", "actors_in_trial", "properties", "end", "awaited", "samples_lost", "datalog_trouble", "owner", "run_id", "waits_for_datalog", "tick_rate")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENV_NAME_FIELD_NUMBER: _ClassVar[int]
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TRIAL_DURATION_FIELD_NUMBER: _ClassVar[int]
    LATEST_OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    ACTORS_IN_TRIAL_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_LOST_FIELD_NUMBER: _ClassVar[int]
    DATALOG_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_DATALOG_FIELD_NUMBER: _ClassVar[int]
    TICK_RATE_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    state: _common_pb2.TrialState
    env_name: str
    tick_id: int
    trial_duration: int
    latest_observation: _environment_pb2.ObservationSet
    actors_in_trial: _containers.RepeatedCompositeFieldContainer[_common_pb2.TrialActor]
    properties: _containers.ScalarMap[str, str]
    end: _common_pb2.EndOfTrial
    awaited: _containers.RepeatedScalarFieldContainer[str]
    samples_lost: int
    datalog_trouble: str
    owner: str
    run_id: str
    waits_for_datalog: bool
    tick_rate: TickRate
    def __init__(self, trial_id: _Optional[str] = ..., state: _Optional[_Union[_common_pb2.TrialState, str]] = ..., env_name: _Optional[str] = ..., tick_id: _Optional[int] = ..., trial_duration: _Optional[int] = ..., latest_observation: _Optional[_Union[_environment_pb2.ObservationSet, _Mapping]] = ..., actors_in_trial: _Optional[_Iterable[_Union[_common_pb2.TrialActor, _Mapping]]] = ..., properties: _Optional[_Mapping[str, str]] = ..., end: _Optional[_Union[_common_pb2.EndOfTrial, _Mapping]] = ..., awaited: _Optional[_Iterable[str]] = ..., samples_lost: _Optional[int] = ..., datalog_trouble: _Optional[str] = ..., owner: _Optional[str] = ..., run_id: _Optional[str] = ..., waits_for_datalog: bool = ..., tick_rate: _Optional[_Union[TickRate, _Mapping]] = ...) -> None: ...

class TickRate(_message.Message):
    __slots__ = ("hz", "missed_ticks", "late_actions", "absent_actions")
    HZ_FIELD_NUMBER: _ClassVar[int]
    MISSED_TICKS_FIELD_NUMBER: _ClassVar[int]
    LATE_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ABSENT_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    hz: float
    missed_ticks: int
    late_actions: int
    absent_actions: int
    def __init__(self, hz: _Optional[float] = ..., missed_ticks: _Optional[int] = ..., late_actions: _Optional[int] = ..., absent_actions: _Optional[int] = ...) -> None: ...

class TrialInfoReply(_message.Message):
    __slots__ = ("trial",)
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    trial: _containers.RepeatedCompositeFieldContainer[TrialInfo]
    def __init__(self, trial: _Optional[_Iterable[_Union[TrialInfo, _Mapping]]] = ...) -> None: ...

class TrialListRequest(_message.Message):
    __slots__ = ("filter", "full_info", "trial_ids", "when_stored")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FULL_INFO_FIELD_NUMBER: _ClassVar[int]
    TRIAL_IDS_FIELD_NUMBER: _ClassVar[int]
    WHEN_STORED_FIELD_NUMBER: _ClassVar[int]
    filter: _containers.RepeatedScalarFieldContainer[_common_pb2.TrialState]
    full_info: bool
    trial_ids: _containers.RepeatedScalarFieldContainer[str]
    when_stored: bool
    def __init__(self, filter: _Optional[_Iterable[_Union[_common_pb2.TrialState, str]]] = ..., full_info: bool = ..., trial_ids: _Optional[_Iterable[str]] = ..., when_stored: bool = ...) -> None: ...

class TrialListEntry(_message.Message):
    __slots__ = ("trial_id", "state", "info")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    state: _common_pb2.TrialState
    info: TrialInfo
    def __init__(self, trial_id: _Optional[str] = ..., state: _Optional[_Union[_common_pb2.TrialState, str]] = ..., info: _Optional[_Union[TrialInfo, _Mapping]] = ...) -> None: ...
