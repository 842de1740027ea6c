"""Whatever a client sends as settings and properties is taken or refused, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.gateways.dm_env_rpc.gateway.projects import shop
from tests.gateways.dm_env_rpc.gateway.test_profile import profile
from tests.gateways.dm_env_rpc.gateway.test_properties import joined
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.api.dm_env_rpc import properties_pb2
from trio_cogment.base.errors import CogmentError, StatusCode, status_of
from trio_cogment.gateways.dm_env_rpc.gateway.properties import TABLE, answer_extension
from trio_cogment.gateways.dm_env_rpc.gateway.records import Sending

FIELDS = [field.name for field in shop().message("shop.EnvironmentConfig").DESCRIPTOR.fields]
NAMES = st.one_of(
    st.sampled_from(["seed", "max_steps", "env_config", "start_when", "on_leave", "presence", "world_name"]),
    st.builds(
        ".".join,
        st.lists(st.sampled_from([*FIELDS, "env", "trial", "size", "inner", "a", "", "value"]), min_size=1, max_size=4),
    ).map(lambda path: f"env.{path}"),
    st.sampled_from(["actors.anna.config.level", "actors.robot.implementation", "trial.label", "trial."]),
    st.text(max_size=5),
)
REQUEST = properties_pb2.PropertyRequest.DESCRIPTOR.full_name
KINDS = ["floats", "doubles", "int8s", "int64s", "uint8s", "uint64s", "bools", "strings", "protos"]
REFUSALS = (StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND, StatusCode.PERMISSION_DENIED)
MESSAGES = st.builds(
    AnyMessage,
    type_url=st.sampled_from(["", "x", "type.googleapis.com/shop.Level", "type.googleapis.com/shop.Seen"]),
    value=st.binary(max_size=4),
)
SHAPES = st.lists(st.one_of(st.integers(-2, 3), st.sampled_from([2**31 - 1, -(2**31)])), max_size=4)


@st.composite
def tensors(draw: st.DrawFn) -> pb.Tensor:
    tensor = pb.Tensor(shape=draw(SHAPES))
    kind = draw(st.sampled_from(KINDS))
    if kind in ("int8s", "uint8s"):
        getattr(tensor, kind).array = draw(st.binary(max_size=4))
        return tensor
    elements: dict[str, st.SearchStrategy[Any]] = {
        "floats": st.floats(width=32),
        "doubles": st.floats(),
        "int64s": st.integers(-(2**63), 2**63 - 1),
        "uint64s": st.integers(0, 2**64 - 1),
        "bools": st.booleans(),
        "strings": st.sampled_from(["", "all", "WILD", "x", "\0"]),
        "protos": MESSAGES,
    }
    holder = getattr(tensor, kind)
    holder.SetInParent()
    for element in draw(st.lists(elements[kind], max_size=3)):
        if kind == "protos":
            holder.array.add(type_url=element.type_url, value=element.value)
        else:
            holder.array.append(element)
    return tensor


def outcome(of: Callable[[], Any]) -> tuple[StatusCode, str, Any]:
    """Return the status with which a request ends, its text, and the result; another exception is a failure."""
    try:
        return StatusCode.OK, "", of()
    except CogmentError as error:
        return *status_of(error), None


#: As lists within lists it would take all memory.
EMPTY = pb.Tensor(shape=[2**31 - 1, 0], floats=pb.Tensor.FloatArray())


@settings(max_examples=400, deadline=None)
@example({"env.anything.seed": EMPTY})
@given(st.dictionaries(NAMES, tensors(), max_size=3))
def test_settings(given: dict[str, pb.Tensor]) -> None:
    chosen = profile()
    before = chosen.templates["default"].params.SerializeToString(deterministic=True)
    code, text, world = outcome(lambda: chosen.create_world(given))
    assert code in (StatusCode.OK, StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND)
    assert len(text) < 1000
    if code is StatusCode.OK:
        chosen.trial(chosen.after_trial(world), "w")
    assert chosen.templates["default"].params.SerializeToString(deterministic=True) == before


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.sampled_from([*sorted(TABLE), "messages.out.env", "feedback.ben.2"]), st.text(max_size=5)),
    st.sampled_from(["read_property", "write_property", "list_property"]),
    tensors(),
)
def test_properties(key: str, kind: str, value: pb.Tensor) -> None:
    request = properties_pb2.PropertyRequest()
    getattr(request, kind).key = key
    if kind == "write_property":
        request.write_property.value.CopyFrom(value)
    extension = AnyMessage()
    extension.Pack(request)
    sent: list[object] = []
    place = joined(Sending(message=lambda *what: sent.append(what), reward=lambda *what: sent.append(what)))
    code, _, _ = outcome(lambda: answer_extension(extension, place))
    assert code in (StatusCode.OK, *REFUSALS)
    assert bool(sent) == (code is StatusCode.OK and kind == "write_property")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["", "/", f"x/{REQUEST}"]), st.binary(max_size=8))
def test_extensions(type_url: str, content: bytes) -> None:
    code, _, _ = outcome(lambda: answer_extension(AnyMessage(type_url=type_url, value=content), joined()))
    assert code in (StatusCode.OK, StatusCode.UNIMPLEMENTED, *REFUSALS)
