from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TrialState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[TrialState]
    INITIALIZING: _ClassVar[TrialState]
    PENDING: _ClassVar[TrialState]
    RUNNING: _ClassVar[TrialState]
    TERMINATING: _ClassVar[TrialState]
    ENDED: _ClassVar[TrialState]

class CommunicationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN_COM_STATE: _ClassVar[CommunicationState]
    NORMAL: _ClassVar[CommunicationState]
    HEARTBEAT: _ClassVar[CommunicationState]
    LAST: _ClassVar[CommunicationState]
    LAST_ACK: _ClassVar[CommunicationState]
    END: _ClassVar[CommunicationState]

class EndCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_CAUSE_UNKNOWN: _ClassVar[EndCause]
    END_CAUSE_ENVIRONMENT: _ClassVar[EndCause]
    END_CAUSE_STEP_LIMIT: _ClassVar[EndCause]
    END_CAUSE_SOFT_TERMINATION: _ClassVar[EndCause]
    END_CAUSE_HARD_TERMINATION: _ClassVar[EndCause]
    END_CAUSE_PARTICIPANT_FAILED: _ClassVar[EndCause]
    END_CAUSE_PARTICIPANT_LEFT: _ClassVar[EndCause]
    END_CAUSE_PARTICIPANT_LOST: _ClassVar[EndCause]
    END_CAUSE_PARTICIPANT_REFUSED: _ClassVar[EndCause]
    END_CAUSE_PARTICIPANT_MISSING: _ClassVar[EndCause]
    END_CAUSE_ACTION_MISSING: _ClassVar[EndCause]
    END_CAUSE_ACKNOWLEDGEMENT_MISSING: _ClassVar[EndCause]
    END_CAUSE_INACTIVITY: _ClassVar[EndCause]
    END_CAUSE_PATIENCE: _ClassVar[EndCause]
    END_CAUSE_NOT_STARTED: _ClassVar[EndCause]
    END_CAUSE_SERVER_STOPPED: _ClassVar[EndCause]
    END_CAUSE_INTERNAL: _ClassVar[EndCause]
UNKNOWN: TrialState
INITIALIZING: TrialState
PENDING: TrialState
RUNNING: TrialState
TERMINATING: TrialState
ENDED: TrialState
UNKNOWN_COM_STATE: CommunicationState
NORMAL: CommunicationState
HEARTBEAT: CommunicationState
LAST: CommunicationState
LAST_ACK: CommunicationState
END: CommunicationState
END_CAUSE_UNKNOWN: EndCause
END_CAUSE_ENVIRONMENT: EndCause
END_CAUSE_STEP_LIMIT: EndCause
END_CAUSE_SOFT_TERMINATION: EndCause
END_CAUSE_HARD_TERMINATION: EndCause
END_CAUSE_PARTICIPANT_FAILED: EndCause
END_CAUSE_PARTICIPANT_LEFT: EndCause
END_CAUSE_PARTICIPANT_LOST: EndCause
END_CAUSE_PARTICIPANT_REFUSED: EndCause
END_CAUSE_PARTICIPANT_MISSING: EndCause
END_CAUSE_ACTION_MISSING: EndCause
END_CAUSE_ACKNOWLEDGEMENT_MISSING: EndCause
END_CAUSE_INACTIVITY: EndCause
END_CAUSE_PATIENCE: EndCause
END_CAUSE_NOT_STARTED: EndCause
END_CAUSE_SERVER_STOPPED: EndCause
END_CAUSE_INTERNAL: EndCause

class VersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VersionInfo(_message.Message):
    __slots__ = ("versions",)
    class Version(_message.Message):
        __slots__ = ("name", "version")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        name: str
        version: str
        def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[VersionInfo.Version]
    def __init__(self, versions: _Optional[_Iterable[_Union[VersionInfo.Version, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("statuses",)
    class StatusesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.ScalarMap[str, str]
    def __init__(self, statuses: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SerializedMessage(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class TrialActor(_message.Message):
    __slots__ = ("name", "actor_class")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTOR_CLASS_FIELD_NUMBER: _ClassVar[int]
    name: str
    actor_class: str
    def __init__(self, name: _Optional[str] = ..., actor_class: _Optional[str] = ...) -> None: ...

class DatalogParams(_message.Message):
    __slots__ = ("endpoint", "exclude_fields")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELDS_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    exclude_fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, endpoint: _Optional[str] = ..., exclude_fields: _Optional[_Iterable[str]] = ...) -> None: ...

class EnvironmentParams(_message.Message):
    __slots__ = ("name", "endpoint", "implementation", "config", "tick_hz")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    IMPLEMENTATION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TICK_HZ_FIELD_NUMBER: _ClassVar[int]
    name: str
    endpoint: str
    implementation: str
    config: SerializedMessage
    tick_hz: float
    def __init__(self, name: _Optional[str] = ..., endpoint: _Optional[str] = ..., implementation: _Optional[str] = ..., config: _Optional[_Union[SerializedMessage, _Mapping]] = ..., tick_hz: _Optional[float] = ...) -> None: ...

class ActorParams(_message.Message):
    __slots__ = ("name", "actor_class", "endpoint", "implementation", "config", "initial_connection_timeout", "response_timeout", "optional", "default_action", "observe_every", "hold_action")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTOR_CLASS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    IMPLEMENTATION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    INITIAL_CONNECTION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_ACTION_FIELD_NUMBER: _ClassVar[int]
    OBSERVE_EVERY_FIELD_NUMBER: _ClassVar[int]
    HOLD_ACTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    actor_class: str
    endpoint: str
    implementation: str
    config: SerializedMessage
    initial_connection_timeout: float
    response_timeout: float
    optional: bool
    default_action: SerializedMessage
    observe_every: int
    hold_action: bool
    def __init__(self, name: _Optional[str] = ..., actor_class: _Optional[str] = ..., endpoint: _Optional[str] = ..., implementation: _Optional[str] = ..., config: _Optional[_Union[SerializedMessage, _Mapping]] = ..., initial_connection_timeout: _Optional[float] = ..., response_timeout: _Optional[float] = ..., optional: bool = ..., default_action: _Optional[_Union[SerializedMessage, _Mapping]] = ..., observe_every: _Optional[int] = ..., hold_action: bool = ...) -> None: ...

class TrialParams(_message.Message):
    __slots__ = ("trial_config", "datalog", "environment", "actors", "max_steps", "max_inactivity", "nb_buffered_ticks", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRIAL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    DATALOG_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ACTORS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    MAX_INACTIVITY_FIELD_NUMBER: _ClassVar[int]
    NB_BUFFERED_TICKS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    trial_config: SerializedMessage
    datalog: DatalogParams
    environment: EnvironmentParams
    actors: _containers.RepeatedCompositeFieldContainer[ActorParams]
    max_steps: int
    max_inactivity: int
    nb_buffered_ticks: int
    properties: _containers.ScalarMap[str, str]
    def __init__(self, trial_config: _Optional[_Union[SerializedMessage, _Mapping]] = ..., datalog: _Optional[_Union[DatalogParams, _Mapping]] = ..., environment: _Optional[_Union[EnvironmentParams, _Mapping]] = ..., actors: _Optional[_Iterable[_Union[ActorParams, _Mapping]]] = ..., max_steps: _Optional[int] = ..., max_inactivity: _Optional[int] = ..., nb_buffered_ticks: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("tick_id", "timestamp", "content")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    timestamp: int
    content: bytes
    def __init__(self, tick_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("tick_id", "timestamp", "content")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    timestamp: int
    content: bytes
    def __init__(self, tick_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("tick_id", "sender_name", "receiver_name", "payload")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_NAME_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    sender_name: str
    receiver_name: str
    payload: _any_pb2.Any
    def __init__(self, tick_id: _Optional[int] = ..., sender_name: _Optional[str] = ..., receiver_name: _Optional[str] = ..., payload: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class RewardSource(_message.Message):
    __slots__ = ("sender_name", "value", "confidence", "user_data")
    SENDER_NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    USER_DATA_FIELD_NUMBER: _ClassVar[int]
    sender_name: str
    value: float
    confidence: float
    user_data: _any_pb2.Any
    def __init__(self, sender_name: _Optional[str] = ..., value: _Optional[float] = ..., confidence: _Optional[float] = ..., user_data: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class Reward(_message.Message):
    __slots__ = ("tick_id", "receiver_name", "value", "sources")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    receiver_name: str
    value: float
    sources: _containers.RepeatedCompositeFieldContainer[RewardSource]
    def __init__(self, tick_id: _Optional[int] = ..., receiver_name: _Optional[str] = ..., value: _Optional[float] = ..., sources: _Optional[_Iterable[_Union[RewardSource, _Mapping]]] = ...) -> None: ...

class ActorInitialInput(_message.Message):
    __slots__ = ("actor_name", "actor_class", "impl_name", "env_name", "config", "tick_hz", "observe_every")
    ACTOR_NAME_FIELD_NUMBER: _ClassVar[int]
    ACTOR_CLASS_FIELD_NUMBER: _ClassVar[int]
    IMPL_NAME_FIELD_NUMBER: _ClassVar[int]
    ENV_NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TICK_HZ_FIELD_NUMBER: _ClassVar[int]
    OBSERVE_EVERY_FIELD_NUMBER: _ClassVar[int]
    actor_name: str
    actor_class: str
    impl_name: str
    env_name: str
    config: SerializedMessage
    tick_hz: float
    observe_every: int
    def __init__(self, actor_name: _Optional[str] = ..., actor_class: _Optional[str] = ..., impl_name: _Optional[str] = ..., env_name: _Optional[str] = ..., config: _Optional[_Union[SerializedMessage, _Mapping]] = ..., tick_hz: _Optional[float] = ..., observe_every: _Optional[int] = ...) -> None: ...

class ActorInitialOutput(_message.Message):
    __slots__ = ("actor_class", "actor_name")
    ACTOR_CLASS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_NAME_FIELD_NUMBER: _ClassVar[int]
    actor_class: str
    actor_name: str
    def __init__(self, actor_class: _Optional[str] = ..., actor_name: _Optional[str] = ...) -> None: ...

class ActorRunTrialInput(_message.Message):
    __slots__ = ("state", "init_input", "observation", "reward", "message", "details", "end")
    STATE_FIELD_NUMBER: _ClassVar[int]
    INIT_INPUT_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    state: CommunicationState
    init_input: ActorInitialInput
    observation: Observation
    reward: Reward
    message: Message
    details: str
    end: EndOfTrial
    def __init__(self, state: _Optional[_Union[CommunicationState, str]] = ..., init_input: _Optional[_Union[ActorInitialInput, _Mapping]] = ..., observation: _Optional[_Union[Observation, _Mapping]] = ..., reward: _Optional[_Union[Reward, _Mapping]] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., details: _Optional[str] = ..., end: _Optional[_Union[EndOfTrial, _Mapping]] = ...) -> None: ...

class ActorRunTrialOutput(_message.Message):
    __slots__ = ("state", "init_output", "action", "reward", "message", "details")
    STATE_FIELD_NUMBER: _ClassVar[int]
    INIT_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    state: CommunicationState
    init_output: ActorInitialOutput
    action: Action
    reward: Reward
    message: Message
    details: str
    def __init__(self, state: _Optional[_Union[CommunicationState, str]] = ..., init_output: _Optional[_Union[ActorInitialOutput, _Mapping]] = ..., action: _Optional[_Union[Action, _Mapping]] = ..., reward: _Optional[_Union[Reward, _Mapping]] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., details: _Optional[str] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("tick_id", "content", "size", "crc32")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    content: bytes
    size: int
    crc32: int
    def __init__(self, tick_id: _Optional[int] = ..., content: _Optional[bytes] = ..., size: _Optional[int] = ..., crc32: _Optional[int] = ...) -> None: ...

class PastTick(_message.Message):
    __slots__ = ("observations", "actions", "unavailable_actors")
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_ACTORS_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.RepeatedScalarFieldContainer[bytes]
    actions: _containers.RepeatedScalarFieldContainer[bytes]
    unavailable_actors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, observations: _Optional[_Iterable[bytes]] = ..., actions: _Optional[_Iterable[bytes]] = ..., unavailable_actors: _Optional[_Iterable[int]] = ...) -> None: ...

class TakenUp(_message.Message):
    __slots__ = ("trial_id", "tick_id", "checkpoint", "past")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    tick_id: int
    checkpoint: Checkpoint
    past: _containers.RepeatedCompositeFieldContainer[PastTick]
    def __init__(self, trial_id: _Optional[str] = ..., tick_id: _Optional[int] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., past: _Optional[_Iterable[_Union[PastTick, _Mapping]]] = ...) -> None: ...

class CheckpointInterval(_message.Message):
    __slots__ = ("ticks", "seconds")
    TICKS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    ticks: int
    seconds: float
    def __init__(self, ticks: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class ParticipantLoss(_message.Message):
    __slots__ = ("participant", "cause", "reason", "required", "tick_id", "traceback")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    participant: str
    cause: EndCause
    reason: str
    required: bool
    tick_id: int
    traceback: str
    def __init__(self, participant: _Optional[str] = ..., cause: _Optional[_Union[EndCause, str]] = ..., reason: _Optional[str] = ..., required: bool = ..., tick_id: _Optional[int] = ..., traceback: _Optional[str] = ...) -> None: ...

class EndOfTrial(_message.Message):
    __slots__ = ("cause", "participant", "reason", "ticks", "losses", "samples_pending", "samples_lost")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PENDING_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_LOST_FIELD_NUMBER: _ClassVar[int]
    cause: EndCause
    participant: str
    reason: str
    ticks: int
    losses: _containers.RepeatedCompositeFieldContainer[ParticipantLoss]
    samples_pending: bool
    samples_lost: int
    def __init__(self, cause: _Optional[_Union[EndCause, str]] = ..., participant: _Optional[str] = ..., reason: _Optional[str] = ..., ticks: _Optional[int] = ..., losses: _Optional[_Iterable[_Union[ParticipantLoss, _Mapping]]] = ..., samples_pending: bool = ..., samples_lost: _Optional[int] = ...) -> None: ...
