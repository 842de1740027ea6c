from trio_cogment.api import common_pb2 as _common_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchLeftRequest(_message.Message):
    __slots__ = ("orchestrator",)
    ORCHESTRATOR_FIELD_NUMBER: _ClassVar[int]
    orchestrator: str
    def __init__(self, orchestrator: _Optional[str] = ...) -> None: ...

class LeftTrial(_message.Message):
    __slots__ = ("trial_id", "user_id", "params", "owner", "attempt", "samples_count")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_COUNT_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    user_id: str
    params: _common_pb2.TrialParams
    owner: str
    attempt: int
    samples_count: int
    def __init__(self, trial_id: _Optional[str] = ..., user_id: _Optional[str] = ..., params: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ..., owner: _Optional[str] = ..., attempt: _Optional[int] = ..., samples_count: _Optional[int] = ...) -> None: ...

class TakeOverRequest(_message.Message):
    __slots__ = ("trial_id", "attempt", "orchestrator")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ORCHESTRATOR_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    attempt: int
    orchestrator: str
    def __init__(self, trial_id: _Optional[str] = ..., attempt: _Optional[int] = ..., orchestrator: _Optional[str] = ...) -> None: ...

class TakeOverReply(_message.Message):
    __slots__ = ("attempt",)
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    def __init__(self, attempt: _Optional[int] = ...) -> None: ...

class GiveUpRequest(_message.Message):
    __slots__ = ("trial_id", "attempt", "end")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    attempt: int
    end: _common_pb2.EndOfTrial
    def __init__(self, trial_id: _Optional[str] = ..., attempt: _Optional[int] = ..., end: _Optional[_Union[_common_pb2.EndOfTrial, _Mapping]] = ...) -> None: ...

class GiveUpReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("trial_id", "attempt")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    attempt: int
    def __init__(self, trial_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
