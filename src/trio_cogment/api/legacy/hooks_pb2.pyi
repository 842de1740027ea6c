from trio_cogment.api.legacy import common_pb2 as _common_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TrialContext(_message.Message):
    __slots__ = ("params", "trial_id", "user_id")
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    params: _common_pb2.TrialParams
    trial_id: str
    user_id: str
    def __init__(self, params: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ..., trial_id: _Optional[str] = ..., user_id: _Optional[str] = ...) -> None: ...
