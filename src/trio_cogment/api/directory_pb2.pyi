from trio_cogment.api import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ServiceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN_SERVICE: _ClassVar[ServiceType]
    TRIAL_LIFE_CYCLE_SERVICE: _ClassVar[ServiceType]
    CLIENT_ACTOR_CONNECTION_SERVICE: _ClassVar[ServiceType]
    ACTOR_SERVICE: _ClassVar[ServiceType]
    ENVIRONMENT_SERVICE: _ClassVar[ServiceType]
    PRE_HOOK_SERVICE: _ClassVar[ServiceType]
    DATALOG_SERVICE: _ClassVar[ServiceType]
    DATASTORE_SERVICE: _ClassVar[ServiceType]
    MODEL_REGISTRY_SERVICE: _ClassVar[ServiceType]
    DIRECTORY_SERVICE: _ClassVar[ServiceType]
    OTHER_SERVICE: _ClassVar[ServiceType]
UNKNOWN_SERVICE: ServiceType
TRIAL_LIFE_CYCLE_SERVICE: ServiceType
CLIENT_ACTOR_CONNECTION_SERVICE: ServiceType
ACTOR_SERVICE: ServiceType
ENVIRONMENT_SERVICE: ServiceType
PRE_HOOK_SERVICE: ServiceType
DATALOG_SERVICE: ServiceType
DATASTORE_SERVICE: ServiceType
MODEL_REGISTRY_SERVICE: ServiceType
DIRECTORY_SERVICE: ServiceType
OTHER_SERVICE: ServiceType

class ServiceEndpoint(_message.Message):
    __slots__ = ("protocol", "host", "port")
    class Protocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[ServiceEndpoint.Protocol]
        GRPC: _ClassVar[ServiceEndpoint.Protocol]
        GRPC_SSL: _ClassVar[ServiceEndpoint.Protocol]
        COGMENT: _ClassVar[ServiceEndpoint.Protocol]
    UNKNOWN: ServiceEndpoint.Protocol
    GRPC: ServiceEndpoint.Protocol
    GRPC_SSL: ServiceEndpoint.Protocol
    COGMENT: ServiceEndpoint.Protocol
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    protocol: ServiceEndpoint.Protocol
    host: str
    port: int
    def __init__(self, protocol: _Optional[_Union[ServiceEndpoint.Protocol, str]] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ServiceDetails(_message.Message):
    __slots__ = ("type", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    type: ServiceType
    properties: _containers.ScalarMap[str, str]
    def __init__(self, type: _Optional[_Union[ServiceType, str]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class FullServiceData(_message.Message):
    __slots__ = ("endpoint", "service_id", "details", "permanent")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    endpoint: ServiceEndpoint
    service_id: int
    details: ServiceDetails
    permanent: bool
    def __init__(self, endpoint: _Optional[_Union[ServiceEndpoint, _Mapping]] = ..., service_id: _Optional[int] = ..., details: _Optional[_Union[ServiceDetails, _Mapping]] = ..., permanent: bool = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("endpoint", "details", "permanent")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    endpoint: ServiceEndpoint
    details: ServiceDetails
    permanent: bool
    def __init__(self, endpoint: _Optional[_Union[ServiceEndpoint, _Mapping]] = ..., details: _Optional[_Union[ServiceDetails, _Mapping]] = ..., permanent: bool = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("status", "error_msg", "service_id", "secret")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[RegisterReply.Status]
        OK: _ClassVar[RegisterReply.Status]
        FAILED: _ClassVar[RegisterReply.Status]
    UNKNOWN: RegisterReply.Status
    OK: RegisterReply.Status
    FAILED: RegisterReply.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MSG_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    status: RegisterReply.Status
    error_msg: str
    service_id: int
    secret: str
    def __init__(self, status: _Optional[_Union[RegisterReply.Status, str]] = ..., error_msg: _Optional[str] = ..., service_id: _Optional[int] = ..., secret: _Optional[str] = ...) -> None: ...

class DeregisterRequest(_message.Message):
    __slots__ = ("service_id", "secret")
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    service_id: int
    secret: str
    def __init__(self, service_id: _Optional[int] = ..., secret: _Optional[str] = ...) -> None: ...

class DeregisterReply(_message.Message):
    __slots__ = ("status", "error_msg")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[DeregisterReply.Status]
        OK: _ClassVar[DeregisterReply.Status]
        FAILED: _ClassVar[DeregisterReply.Status]
    UNKNOWN: DeregisterReply.Status
    OK: DeregisterReply.Status
    FAILED: DeregisterReply.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MSG_FIELD_NUMBER: _ClassVar[int]
    status: DeregisterReply.Status
    error_msg: str
    def __init__(self, status: _Optional[_Union[DeregisterReply.Status, str]] = ..., error_msg: _Optional[str] = ...) -> None: ...

class InquireRequest(_message.Message):
    __slots__ = ("service_id", "details")
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    service_id: int
    details: ServiceDetails
    def __init__(self, service_id: _Optional[int] = ..., details: _Optional[_Union[ServiceDetails, _Mapping]] = ...) -> None: ...

class InquireReply(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: FullServiceData
    def __init__(self, data: _Optional[_Union[FullServiceData, _Mapping]] = ...) -> None: ...
