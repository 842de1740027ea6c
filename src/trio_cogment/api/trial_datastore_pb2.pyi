from trio_cogment.api import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StoredTrialSampleField(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STORED_TRIAL_SAMPLE_FIELD_UNKNOWN: _ClassVar[StoredTrialSampleField]
    STORED_TRIAL_SAMPLE_FIELD_OBSERVATION: _ClassVar[StoredTrialSampleField]
    STORED_TRIAL_SAMPLE_FIELD_ACTION: _ClassVar[StoredTrialSampleField]
    STORED_TRIAL_SAMPLE_FIELD_REWARD: _ClassVar[StoredTrialSampleField]
    STORED_TRIAL_SAMPLE_FIELD_RECEIVED_REWARDS: _ClassVar[StoredTrialSampleField]
    STORED_TRIAL_SAMPLE_FIELD_SENT_REWARDS: _ClassVar[StoredTrialSampleField]
    STORED_TRIAL_SAMPLE_FIELD_RECEIVED_MESSAGES: _ClassVar[StoredTrialSampleField]
    STORED_TRIAL_SAMPLE_FIELD_SENT_MESSAGES: _ClassVar[StoredTrialSampleField]
STORED_TRIAL_SAMPLE_FIELD_UNKNOWN: StoredTrialSampleField
STORED_TRIAL_SAMPLE_FIELD_OBSERVATION: StoredTrialSampleField
STORED_TRIAL_SAMPLE_FIELD_ACTION: StoredTrialSampleField
STORED_TRIAL_SAMPLE_FIELD_REWARD: StoredTrialSampleField
STORED_TRIAL_SAMPLE_FIELD_RECEIVED_REWARDS: StoredTrialSampleField
STORED_TRIAL_SAMPLE_FIELD_SENT_REWARDS: StoredTrialSampleField
STORED_TRIAL_SAMPLE_FIELD_RECEIVED_MESSAGES: StoredTrialSampleField
STORED_TRIAL_SAMPLE_FIELD_SENT_MESSAGES: StoredTrialSampleField

class StoredTrialInfo(_message.Message):
    __slots__ = ("trial_id", "last_state", "user_id", "samples_count", "params", "ended_abnormally", "end", "storage_trouble", "orchestrator", "stored_bytes", "raw_bytes")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_STATE_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    ENDED_ABNORMALLY_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STORAGE_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    ORCHESTRATOR_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RAW_BYTES_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    last_state: _common_pb2.TrialState
    user_id: str
    samples_count: int
    params: _common_pb2.TrialParams
    ended_abnormally: bool
    end: _common_pb2.EndOfTrial
    storage_trouble: str
    orchestrator: str
    stored_bytes: int
    raw_bytes: int
    def __init__(self, trial_id: _Optional[str] = ..., last_state: _Optional[_Union[_common_pb2.TrialState, str]] = ..., user_id: _Optional[str] = ..., samples_count: _Optional[int] = ..., params: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ..., ended_abnormally: bool = ..., end: _Optional[_Union[_common_pb2.EndOfTrial, _Mapping]] = ..., storage_trouble: _Optional[str] = ..., orchestrator: _Optional[str] = ..., stored_bytes: _Optional[int] = ..., raw_bytes: _Optional[int] = ...) -> None: ...

class StoredTrialActorSampleReward(_message.Message):
    __slots__ = ("sender", "receiver", "reward", "confidence", "user_data")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    USER_DATA_FIELD_NUMBER: _ClassVar[int]
    sender: int
    receiver: int
    reward: float
    confidence: float
    user_data: int
    def __init__(self, sender: _Optional[int] = ..., receiver: _Optional[int] = ..., reward: _Optional[float] = ..., confidence: _Optional[float] = ..., user_data: _Optional[int] = ...) -> None: ...

class StoredTrialActorSampleMessage(_message.Message):
    __slots__ = ("sender", "receiver", "payload")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    sender: int
    receiver: int
    payload: int
    def __init__(self, sender: _Optional[int] = ..., receiver: _Optional[int] = ..., payload: _Optional[int] = ...) -> None: ...

class StoredTrialActorSample(_message.Message):
    __slots__ = ("actor", "observation", "action", "reward", "received_rewards", "sent_rewards", "received_messages", "sent_messages")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_REWARDS_FIELD_NUMBER: _ClassVar[int]
    SENT_REWARDS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SENT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    actor: int
    observation: int
    action: int
    reward: float
    received_rewards: _containers.RepeatedCompositeFieldContainer[StoredTrialActorSampleReward]
    sent_rewards: _containers.RepeatedCompositeFieldContainer[StoredTrialActorSampleReward]
    received_messages: _containers.RepeatedCompositeFieldContainer[StoredTrialActorSampleMessage]
    sent_messages: _containers.RepeatedCompositeFieldContainer[StoredTrialActorSampleMessage]
    def __init__(self, actor: _Optional[int] = ..., observation: _Optional[int] = ..., action: _Optional[int] = ..., reward: _Optional[float] = ..., received_rewards: _Optional[_Iterable[_Union[StoredTrialActorSampleReward, _Mapping]]] = ..., sent_rewards: _Optional[_Iterable[_Union[StoredTrialActorSampleReward, _Mapping]]] = ..., received_messages: _Optional[_Iterable[_Union[StoredTrialActorSampleMessage, _Mapping]]] = ..., sent_messages: _Optional[_Iterable[_Union[StoredTrialActorSampleMessage, _Mapping]]] = ...) -> None: ...

class StoredTrialSample(_message.Message):
    __slots__ = ("user_id", "trial_id", "tick_id", "timestamp", "state", "actor_samples", "payloads", "special_events", "default_actors", "unavailable_actors", "merged_samples", "end", "checkpoint", "held_actors")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_EVENTS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_ACTORS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_ACTORS_FIELD_NUMBER: _ClassVar[int]
    MERGED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    HELD_ACTORS_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    trial_id: str
    tick_id: int
    timestamp: int
    state: _common_pb2.TrialState
    actor_samples: _containers.RepeatedCompositeFieldContainer[StoredTrialActorSample]
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    special_events: _containers.RepeatedScalarFieldContainer[str]
    default_actors: _containers.RepeatedScalarFieldContainer[int]
    unavailable_actors: _containers.RepeatedScalarFieldContainer[int]
    merged_samples: _containers.RepeatedScalarFieldContainer[int]
    end: _common_pb2.EndOfTrial
    checkpoint: _common_pb2.Checkpoint
    held_actors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, user_id: _Optional[str] = ..., trial_id: _Optional[str] = ..., tick_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., state: _Optional[_Union[_common_pb2.TrialState, str]] = ..., actor_samples: _Optional[_Iterable[_Union[StoredTrialActorSample, _Mapping]]] = ..., payloads: _Optional[_Iterable[bytes]] = ..., special_events: _Optional[_Iterable[str]] = ..., default_actors: _Optional[_Iterable[int]] = ..., unavailable_actors: _Optional[_Iterable[int]] = ..., merged_samples: _Optional[_Iterable[int]] = ..., end: _Optional[_Union[_common_pb2.EndOfTrial, _Mapping]] = ..., checkpoint: _Optional[_Union[_common_pb2.Checkpoint, _Mapping]] = ..., held_actors: _Optional[_Iterable[int]] = ...) -> None: ...

class RetrieveTrialsRequest(_message.Message):
    __slots__ = ("trial_ids", "timeout", "trials_count", "trial_handle", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TRIAL_IDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TRIALS_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRIAL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    trial_ids: _containers.RepeatedScalarFieldContainer[str]
    timeout: int
    trials_count: int
    trial_handle: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, trial_ids: _Optional[_Iterable[str]] = ..., timeout: _Optional[int] = ..., trials_count: _Optional[int] = ..., trial_handle: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RetrieveTrialsReply(_message.Message):
    __slots__ = ("trial_infos", "next_trial_handle")
    TRIAL_INFOS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRIAL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    trial_infos: _containers.RepeatedCompositeFieldContainer[StoredTrialInfo]
    next_trial_handle: str
    def __init__(self, trial_infos: _Optional[_Iterable[_Union[StoredTrialInfo, _Mapping]]] = ..., next_trial_handle: _Optional[str] = ...) -> None: ...

class RetrieveSamplesRequest(_message.Message):
    __slots__ = ("trial_ids", "actor_names", "actor_classes", "actor_implementations", "selected_sample_fields", "max_reply_samples")
    TRIAL_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_NAMES_FIELD_NUMBER: _ClassVar[int]
    ACTOR_CLASSES_FIELD_NUMBER: _ClassVar[int]
    ACTOR_IMPLEMENTATIONS_FIELD_NUMBER: _ClassVar[int]
    SELECTED_SAMPLE_FIELDS_FIELD_NUMBER: _ClassVar[int]
    MAX_REPLY_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    trial_ids: _containers.RepeatedScalarFieldContainer[str]
    actor_names: _containers.RepeatedScalarFieldContainer[str]
    actor_classes: _containers.RepeatedScalarFieldContainer[str]
    actor_implementations: _containers.RepeatedScalarFieldContainer[str]
    selected_sample_fields: _containers.RepeatedScalarFieldContainer[StoredTrialSampleField]
    max_reply_samples: int
    def __init__(self, trial_ids: _Optional[_Iterable[str]] = ..., actor_names: _Optional[_Iterable[str]] = ..., actor_classes: _Optional[_Iterable[str]] = ..., actor_implementations: _Optional[_Iterable[str]] = ..., selected_sample_fields: _Optional[_Iterable[_Union[StoredTrialSampleField, str]]] = ..., max_reply_samples: _Optional[int] = ...) -> None: ...

class RetrieveSampleReply(_message.Message):
    __slots__ = ("trial_sample", "further_samples")
    TRIAL_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    FURTHER_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    trial_sample: StoredTrialSample
    further_samples: _containers.RepeatedCompositeFieldContainer[StoredTrialSample]
    def __init__(self, trial_sample: _Optional[_Union[StoredTrialSample, _Mapping]] = ..., further_samples: _Optional[_Iterable[_Union[StoredTrialSample, _Mapping]]] = ...) -> None: ...

class AddTrialRequest(_message.Message):
    __slots__ = ("user_id", "trial_params")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TRIAL_PARAMS_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    trial_params: _common_pb2.TrialParams
    def __init__(self, user_id: _Optional[str] = ..., trial_params: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ...) -> None: ...

class AddTrialReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AddSampleRequest(_message.Message):
    __slots__ = ("trial_sample",)
    TRIAL_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    trial_sample: StoredTrialSample
    def __init__(self, trial_sample: _Optional[_Union[StoredTrialSample, _Mapping]] = ...) -> None: ...

class AddSamplesReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteTrialsRequest(_message.Message):
    __slots__ = ("trial_ids",)
    TRIAL_IDS_FIELD_NUMBER: _ClassVar[int]
    trial_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trial_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTrialsReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrialSamplesFileHeader(_message.Message):
    __slots__ = ("version_info", "export_timestamp", "trial_params")
    class TrialParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _common_pb2.TrialParams
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ...) -> None: ...
    VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
    EXPORT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TRIAL_PARAMS_FIELD_NUMBER: _ClassVar[int]
    version_info: _common_pb2.VersionInfo
    export_timestamp: int
    trial_params: _containers.MessageMap[str, _common_pb2.TrialParams]
    def __init__(self, version_info: _Optional[_Union[_common_pb2.VersionInfo, _Mapping]] = ..., export_timestamp: _Optional[int] = ..., trial_params: _Optional[_Mapping[str, _common_pb2.TrialParams]] = ...) -> None: ...
