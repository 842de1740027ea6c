from trio_cogment.api import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelInfo(_message.Message):
    __slots__ = ("model_id", "user_data")
    class UserDataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    USER_DATA_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    user_data: _containers.ScalarMap[str, str]
    def __init__(self, model_id: _Optional[str] = ..., user_data: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ModelVersionInfo(_message.Message):
    __slots__ = ("model_id", "version_number", "creation_timestamp", "archived", "data_hash", "data_size", "user_data")
    class UserDataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    CREATION_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    DATA_HASH_FIELD_NUMBER: _ClassVar[int]
    DATA_SIZE_FIELD_NUMBER: _ClassVar[int]
    USER_DATA_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    version_number: int
    creation_timestamp: int
    archived: bool
    data_hash: str
    data_size: int
    user_data: _containers.ScalarMap[str, str]
    def __init__(self, model_id: _Optional[str] = ..., version_number: _Optional[int] = ..., creation_timestamp: _Optional[int] = ..., archived: bool = ..., data_hash: _Optional[str] = ..., data_size: _Optional[int] = ..., user_data: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateOrUpdateModelRequest(_message.Message):
    __slots__ = ("model_info",)
    MODEL_INFO_FIELD_NUMBER: _ClassVar[int]
    model_info: ModelInfo
    def __init__(self, model_info: _Optional[_Union[ModelInfo, _Mapping]] = ...) -> None: ...

class CreateOrUpdateModelReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteModelRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    def __init__(self, model_id: _Optional[str] = ...) -> None: ...

class DeleteModelReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RetrieveModelsRequest(_message.Message):
    __slots__ = ("model_ids", "models_count", "model_handle")
    MODEL_IDS_FIELD_NUMBER: _ClassVar[int]
    MODELS_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODEL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    model_ids: _containers.RepeatedScalarFieldContainer[str]
    models_count: int
    model_handle: str
    def __init__(self, model_ids: _Optional[_Iterable[str]] = ..., models_count: _Optional[int] = ..., model_handle: _Optional[str] = ...) -> None: ...

class RetrieveModelsReply(_message.Message):
    __slots__ = ("model_infos", "next_model_handle")
    MODEL_INFOS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MODEL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    model_infos: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    next_model_handle: str
    def __init__(self, model_infos: _Optional[_Iterable[_Union[ModelInfo, _Mapping]]] = ..., next_model_handle: _Optional[str] = ...) -> None: ...

class CreateVersionRequestChunk(_message.Message):
    __slots__ = ("header", "body")
    class Header(_message.Message):
        __slots__ = ("version_info",)
        VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
        version_info: ModelVersionInfo
        def __init__(self, version_info: _Optional[_Union[ModelVersionInfo, _Mapping]] = ...) -> None: ...
    class Body(_message.Message):
        __slots__ = ("data_chunk",)
        DATA_CHUNK_FIELD_NUMBER: _ClassVar[int]
        data_chunk: bytes
        def __init__(self, data_chunk: _Optional[bytes] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    header: CreateVersionRequestChunk.Header
    body: CreateVersionRequestChunk.Body
    def __init__(self, header: _Optional[_Union[CreateVersionRequestChunk.Header, _Mapping]] = ..., body: _Optional[_Union[CreateVersionRequestChunk.Body, _Mapping]] = ...) -> None: ...

class CreateVersionReply(_message.Message):
    __slots__ = ("version_info",)
    VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
    version_info: ModelVersionInfo
    def __init__(self, version_info: _Optional[_Union[ModelVersionInfo, _Mapping]] = ...) -> None: ...

class RetrieveVersionInfosRequest(_message.Message):
    __slots__ = ("model_id", "version_numbers", "versions_count", "version_handle")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_COUNT_FIELD_NUMBER: _ClassVar[int]
    VERSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    version_numbers: _containers.RepeatedScalarFieldContainer[int]
    versions_count: int
    version_handle: str
    def __init__(self, model_id: _Optional[str] = ..., version_numbers: _Optional[_Iterable[int]] = ..., versions_count: _Optional[int] = ..., version_handle: _Optional[str] = ...) -> None: ...

class RetrieveVersionInfosReply(_message.Message):
    __slots__ = ("version_infos", "next_version_handle")
    VERSION_INFOS_FIELD_NUMBER: _ClassVar[int]
    NEXT_VERSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    version_infos: _containers.RepeatedCompositeFieldContainer[ModelVersionInfo]
    next_version_handle: str
    def __init__(self, version_infos: _Optional[_Iterable[_Union[ModelVersionInfo, _Mapping]]] = ..., next_version_handle: _Optional[str] = ...) -> None: ...

class RetrieveVersionDataRequest(_message.Message):
    __slots__ = ("model_id", "version_number")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    version_number: int
    def __init__(self, model_id: _Optional[str] = ..., version_number: _Optional[int] = ...) -> None: ...

class RetrieveVersionDataReplyChunk(_message.Message):
    __slots__ = ("data_chunk",)
    DATA_CHUNK_FIELD_NUMBER: _ClassVar[int]
    data_chunk: bytes
    def __init__(self, data_chunk: _Optional[bytes] = ...) -> None: ...

class VersionUpdateRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    def __init__(self, model_id: _Optional[str] = ...) -> None: ...

class VersionUpdateReply(_message.Message):
    __slots__ = ("version_info",)
    VERSION_INFO_FIELD_NUMBER: _ClassVar[int]
    version_info: ModelVersionInfo
    def __init__(self, version_info: _Optional[_Union[ModelVersionInfo, _Mapping]] = ...) -> None: ...
