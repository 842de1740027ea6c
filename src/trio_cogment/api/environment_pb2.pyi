from trio_cogment.api import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ObservationSet(_message.Message):
    __slots__ = ("tick_id", "timestamp", "observations", "actors_map", "checkpoint")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTORS_MAP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    timestamp: int
    observations: _containers.RepeatedScalarFieldContainer[bytes]
    actors_map: _containers.RepeatedScalarFieldContainer[int]
    checkpoint: _common_pb2.Checkpoint
    def __init__(self, tick_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., observations: _Optional[_Iterable[bytes]] = ..., actors_map: _Optional[_Iterable[int]] = ..., checkpoint: _Optional[_Union[_common_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class ActionSet(_message.Message):
    __slots__ = ("tick_id", "timestamp", "actions", "unavailable_actors")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_ACTORS_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    timestamp: int
    actions: _containers.RepeatedScalarFieldContainer[bytes]
    unavailable_actors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tick_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., actions: _Optional[_Iterable[bytes]] = ..., unavailable_actors: _Optional[_Iterable[int]] = ...) -> None: ...

class EnvInitialInput(_message.Message):
    __slots__ = ("name", "impl_name", "tick_id", "actors_in_trial", "config", "taken_up", "checkpoints", "tick_hz")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IMPL_NAME_FIELD_NUMBER: _ClassVar[int]
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    ACTORS_IN_TRIAL_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TAKEN_UP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    TICK_HZ_FIELD_NUMBER: _ClassVar[int]
    name: str
    impl_name: str
    tick_id: int
    actors_in_trial: _containers.RepeatedCompositeFieldContainer[_common_pb2.TrialActor]
    config: _common_pb2.SerializedMessage
    taken_up: _common_pb2.TakenUp
    checkpoints: _common_pb2.CheckpointInterval
    tick_hz: float
    def __init__(self, name: _Optional[str] = ..., impl_name: _Optional[str] = ..., tick_id: _Optional[int] = ..., actors_in_trial: _Optional[_Iterable[_Union[_common_pb2.TrialActor, _Mapping]]] = ..., config: _Optional[_Union[_common_pb2.SerializedMessage, _Mapping]] = ..., taken_up: _Optional[_Union[_common_pb2.TakenUp, _Mapping]] = ..., checkpoints: _Optional[_Union[_common_pb2.CheckpointInterval, _Mapping]] = ..., tick_hz: _Optional[float] = ...) -> None: ...

class EnvInitialOutput(_message.Message):
    __slots__ = ("takes_up",)
    TAKES_UP_FIELD_NUMBER: _ClassVar[int]
    takes_up: bool
    def __init__(self, takes_up: bool = ...) -> None: ...

class EnvRunTrialInput(_message.Message):
    __slots__ = ("state", "init_input", "action_set", "message", "details", "end")
    STATE_FIELD_NUMBER: _ClassVar[int]
    INIT_INPUT_FIELD_NUMBER: _ClassVar[int]
    ACTION_SET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    state: _common_pb2.CommunicationState
    init_input: EnvInitialInput
    action_set: ActionSet
    message: _common_pb2.Message
    details: str
    end: _common_pb2.EndOfTrial
    def __init__(self, state: _Optional[_Union[_common_pb2.CommunicationState, str]] = ..., init_input: _Optional[_Union[EnvInitialInput, _Mapping]] = ..., action_set: _Optional[_Union[ActionSet, _Mapping]] = ..., message: _Optional[_Union[_common_pb2.Message, _Mapping]] = ..., details: _Optional[str] = ..., end: _Optional[_Union[_common_pb2.EndOfTrial, _Mapping]] = ...) -> None: ...

class EnvRunTrialOutput(_message.Message):
    __slots__ = ("state", "init_output", "observation_set", "reward", "message", "details")
    STATE_FIELD_NUMBER: _ClassVar[int]
    INIT_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_SET_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    state: _common_pb2.CommunicationState
    init_output: EnvInitialOutput
    observation_set: ObservationSet
    reward: _common_pb2.Reward
    message: _common_pb2.Message
    details: str
    def __init__(self, state: _Optional[_Union[_common_pb2.CommunicationState, str]] = ..., init_output: _Optional[_Union[EnvInitialOutput, _Mapping]] = ..., observation_set: _Optional[_Union[ObservationSet, _Mapping]] = ..., reward: _Optional[_Union[_common_pb2.Reward, _Mapping]] = ..., message: _Optional[_Union[_common_pb2.Message, _Mapping]] = ..., details: _Optional[str] = ...) -> None: ...
