from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNKNOWN: _ClassVar[DType]
    DTYPE_FLOAT32: _ClassVar[DType]
    DTYPE_FLOAT64: _ClassVar[DType]
    DTYPE_INT8: _ClassVar[DType]
    DTYPE_INT32: _ClassVar[DType]
    DTYPE_INT64: _ClassVar[DType]
    DTYPE_UINT8: _ClassVar[DType]
    DTYPE_STRING: _ClassVar[DType]
    DTYPE_BOOL: _ClassVar[DType]
    DTYPE_INT16: _ClassVar[DType]
    DTYPE_UINT16: _ClassVar[DType]
    DTYPE_UINT32: _ClassVar[DType]
    DTYPE_UINT64: _ClassVar[DType]
    DTYPE_FLOAT16: _ClassVar[DType]
DTYPE_UNKNOWN: DType
DTYPE_FLOAT32: DType
DTYPE_FLOAT64: DType
DTYPE_INT8: DType
DTYPE_INT32: DType
DTYPE_INT64: DType
DTYPE_UINT8: DType
DTYPE_STRING: DType
DTYPE_BOOL: DType
DTYPE_INT16: DType
DTYPE_UINT16: DType
DTYPE_UINT32: DType
DTYPE_UINT64: DType
DTYPE_FLOAT16: DType

class Array(_message.Message):
    __slots__ = ("dtype", "shape", "raw_data", "npy_data", "double_data", "int32_data", "int64_data", "uint32_data", "string_data", "scalar")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_FIELD_NUMBER: _ClassVar[int]
    NPY_DATA_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DATA_FIELD_NUMBER: _ClassVar[int]
    INT32_DATA_FIELD_NUMBER: _ClassVar[int]
    INT64_DATA_FIELD_NUMBER: _ClassVar[int]
    UINT32_DATA_FIELD_NUMBER: _ClassVar[int]
    STRING_DATA_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    dtype: DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    raw_data: bytes
    npy_data: bytes
    double_data: _containers.RepeatedScalarFieldContainer[float]
    int32_data: _containers.RepeatedScalarFieldContainer[int]
    int64_data: _containers.RepeatedScalarFieldContainer[int]
    uint32_data: _containers.RepeatedScalarFieldContainer[int]
    string_data: _containers.RepeatedScalarFieldContainer[str]
    scalar: bool
    def __init__(self, dtype: _Optional[_Union[DType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., raw_data: _Optional[bytes] = ..., npy_data: _Optional[bytes] = ..., double_data: _Optional[_Iterable[float]] = ..., int32_data: _Optional[_Iterable[int]] = ..., int64_data: _Optional[_Iterable[int]] = ..., uint32_data: _Optional[_Iterable[int]] = ..., string_data: _Optional[_Iterable[str]] = ..., scalar: bool = ...) -> None: ...

class Discrete(_message.Message):
    __slots__ = ("n", "start", "dtype")
    N_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    n: int
    start: int
    dtype: DType
    def __init__(self, n: _Optional[int] = ..., start: _Optional[int] = ..., dtype: _Optional[_Union[DType, str]] = ...) -> None: ...

class Box(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: Array
    high: Array
    def __init__(self, low: _Optional[_Union[Array, _Mapping]] = ..., high: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class MultiBinary(_message.Message):
    __slots__ = ("n", "tuple")
    N_FIELD_NUMBER: _ClassVar[int]
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    n: Array
    tuple: bool
    def __init__(self, n: _Optional[_Union[Array, _Mapping]] = ..., tuple: bool = ...) -> None: ...

class MultiDiscrete(_message.Message):
    __slots__ = ("nvec", "start")
    NVEC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    nvec: Array
    start: Array
    def __init__(self, nvec: _Optional[_Union[Array, _Mapping]] = ..., start: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Dict(_message.Message):
    __slots__ = ("spaces",)
    class SubSpace(_message.Message):
        __slots__ = ("key", "space")
        KEY_FIELD_NUMBER: _ClassVar[int]
        SPACE_FIELD_NUMBER: _ClassVar[int]
        key: str
        space: Space
        def __init__(self, key: _Optional[str] = ..., space: _Optional[_Union[Space, _Mapping]] = ...) -> None: ...
    SPACES_FIELD_NUMBER: _ClassVar[int]
    spaces: _containers.RepeatedCompositeFieldContainer[Dict.SubSpace]
    def __init__(self, spaces: _Optional[_Iterable[_Union[Dict.SubSpace, _Mapping]]] = ...) -> None: ...

class Text(_message.Message):
    __slots__ = ("max_length", "min_length", "charset")
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MIN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHARSET_FIELD_NUMBER: _ClassVar[int]
    max_length: int
    min_length: int
    charset: str
    def __init__(self, max_length: _Optional[int] = ..., min_length: _Optional[int] = ..., charset: _Optional[str] = ...) -> None: ...

class Tuple(_message.Message):
    __slots__ = ("spaces",)
    SPACES_FIELD_NUMBER: _ClassVar[int]
    spaces: _containers.RepeatedCompositeFieldContainer[Space]
    def __init__(self, spaces: _Optional[_Iterable[_Union[Space, _Mapping]]] = ...) -> None: ...

class Sequence(_message.Message):
    __slots__ = ("space", "stack")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    space: Space
    stack: bool
    def __init__(self, space: _Optional[_Union[Space, _Mapping]] = ..., stack: bool = ...) -> None: ...

class Graph(_message.Message):
    __slots__ = ("node_space", "edge_space")
    NODE_SPACE_FIELD_NUMBER: _ClassVar[int]
    EDGE_SPACE_FIELD_NUMBER: _ClassVar[int]
    node_space: Space
    edge_space: Space
    def __init__(self, node_space: _Optional[_Union[Space, _Mapping]] = ..., edge_space: _Optional[_Union[Space, _Mapping]] = ...) -> None: ...

class OneOf(_message.Message):
    __slots__ = ("spaces",)
    SPACES_FIELD_NUMBER: _ClassVar[int]
    spaces: _containers.RepeatedCompositeFieldContainer[Space]
    def __init__(self, spaces: _Optional[_Iterable[_Union[Space, _Mapping]]] = ...) -> None: ...

class Space(_message.Message):
    __slots__ = ("discrete", "box", "dict", "multi_binary", "multi_discrete", "text", "tuple", "sequence", "graph", "one_of")
    DISCRETE_FIELD_NUMBER: _ClassVar[int]
    BOX_FIELD_NUMBER: _ClassVar[int]
    DICT_FIELD_NUMBER: _ClassVar[int]
    MULTI_BINARY_FIELD_NUMBER: _ClassVar[int]
    MULTI_DISCRETE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    ONE_OF_FIELD_NUMBER: _ClassVar[int]
    discrete: Discrete
    box: Box
    dict: Dict
    multi_binary: MultiBinary
    multi_discrete: MultiDiscrete
    text: Text
    tuple: Tuple
    sequence: Sequence
    graph: Graph
    one_of: OneOf
    def __init__(self, discrete: _Optional[_Union[Discrete, _Mapping]] = ..., box: _Optional[_Union[Box, _Mapping]] = ..., dict: _Optional[_Union[Dict, _Mapping]] = ..., multi_binary: _Optional[_Union[MultiBinary, _Mapping]] = ..., multi_discrete: _Optional[_Union[MultiDiscrete, _Mapping]] = ..., text: _Optional[_Union[Text, _Mapping]] = ..., tuple: _Optional[_Union[Tuple, _Mapping]] = ..., sequence: _Optional[_Union[Sequence, _Mapping]] = ..., graph: _Optional[_Union[Graph, _Mapping]] = ..., one_of: _Optional[_Union[OneOf, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("array", "text", "tuple", "list", "dict", "graph", "null", "boolean", "integer", "real", "data")
    class Null(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Items(_message.Message):
        __slots__ = ("items",)
        ITEMS_FIELD_NUMBER: _ClassVar[int]
        items: _containers.RepeatedCompositeFieldContainer[Value]
        def __init__(self, items: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...
    class Fields(_message.Message):
        __slots__ = ("fields",)
        class Field(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: Value
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
        FIELDS_FIELD_NUMBER: _ClassVar[int]
        fields: _containers.RepeatedCompositeFieldContainer[Value.Fields.Field]
        def __init__(self, fields: _Optional[_Iterable[_Union[Value.Fields.Field, _Mapping]]] = ...) -> None: ...
    class Graph(_message.Message):
        __slots__ = ("nodes", "edges", "edge_links")
        NODES_FIELD_NUMBER: _ClassVar[int]
        EDGES_FIELD_NUMBER: _ClassVar[int]
        EDGE_LINKS_FIELD_NUMBER: _ClassVar[int]
        nodes: Value
        edges: Value
        edge_links: Array
        def __init__(self, nodes: _Optional[_Union[Value, _Mapping]] = ..., edges: _Optional[_Union[Value, _Mapping]] = ..., edge_links: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    DICT_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    NULL_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    array: Array
    text: str
    tuple: Value.Items
    list: Value.Items
    dict: Value.Fields
    graph: Value.Graph
    null: Value.Null
    boolean: bool
    integer: int
    real: float
    data: bytes
    def __init__(self, array: _Optional[_Union[Array, _Mapping]] = ..., text: _Optional[str] = ..., tuple: _Optional[_Union[Value.Items, _Mapping]] = ..., list: _Optional[_Union[Value.Items, _Mapping]] = ..., dict: _Optional[_Union[Value.Fields, _Mapping]] = ..., graph: _Optional[_Union[Value.Graph, _Mapping]] = ..., null: _Optional[_Union[Value.Null, _Mapping]] = ..., boolean: bool = ..., integer: _Optional[int] = ..., real: _Optional[float] = ..., data: _Optional[bytes] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("value", "active", "alive", "rendered_frame", "nested", "reward", "terminated", "truncated", "action_mask", "info", "frame_media_type", "observation_space", "action_space")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    RENDERED_FRAME_FIELD_NUMBER: _ClassVar[int]
    NESTED_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ACTION_MASK_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    FRAME_MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_SPACE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    value: Array
    active: bool
    alive: bool
    rendered_frame: bytes
    nested: Value
    reward: float
    terminated: bool
    truncated: bool
    action_mask: Value
    info: Value.Fields
    frame_media_type: str
    observation_space: Space
    action_space: Space
    def __init__(self, value: _Optional[_Union[Array, _Mapping]] = ..., active: bool = ..., alive: bool = ..., rendered_frame: _Optional[bytes] = ..., nested: _Optional[_Union[Value, _Mapping]] = ..., reward: _Optional[float] = ..., terminated: bool = ..., truncated: bool = ..., action_mask: _Optional[_Union[Value, _Mapping]] = ..., info: _Optional[_Union[Value.Fields, _Mapping]] = ..., frame_media_type: _Optional[str] = ..., observation_space: _Optional[_Union[Space, _Mapping]] = ..., action_space: _Optional[_Union[Space, _Mapping]] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("value", "nested")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NESTED_FIELD_NUMBER: _ClassVar[int]
    value: Array
    nested: Value
    def __init__(self, value: _Optional[_Union[Array, _Mapping]] = ..., nested: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
