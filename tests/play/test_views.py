"""Views of messages, forms of actions, and actions from answers."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import Int64Value, UInt32Value, UInt64Value
from hypothesis import given
from hypothesis import strategies as st

from tests.play.pages import read_message
from trio_cogment.api import common_pb2, spaces_pb2
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.play.codec_choice import codec_for
from trio_cogment.play.codecs import BytesCodec, MessageCodec
from trio_cogment.play.forms import message_form, message_of, options
from trio_cogment.play.page_messages import Act, Allowance, parse
from trio_cogment.play.space_codec import SpaceCodec
from trio_cogment.play.views import (
    MAX_PARTS,
    MAX_TEXT_CHARACTERS,
    View,
    finite,
    message_view,
    page_message,
)
from trio_cogment.rl import RL_SPEC
from trio_cogment.sdk.spec import ActorClass
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Frame,
    Graph,
    MultiBinary,
    MultiDiscrete,
    Observation,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
    decode_action,
    encode_observation,
)

PNG = b"\x89PNG\r\n\x1a\n and so on"


def part(view: View, name: str) -> dict[str, Any]:
    [found] = [each for each in view.parts if each["name"] == name]
    return found


# Views


def test_a_message_is_shown_by_its_fields() -> None:
    params = common_pb2.TrialParams(max_steps=7)
    params.actors.add(name="ann", actor_class="player")
    params.environment.name = "<b>env</b>"
    params.environment.config.content = PNG
    params.properties["a"] = "b"
    view = message_view(params)
    assert part(view, "max_steps") == {"name": "max_steps", "kind": "value", "value": 7}
    assert part(view, "environment.name")["text"] == "<b>env</b>"
    assert part(view, "environment.config.content") == {
        "name": "environment.config.content",
        "kind": "image",
        "blob": 0,
    }
    assert view.blobs == [("image/png", PNG)]
    assert part(view, "actors")["kind"] == "json"
    assert part(view, "actors")["value"] == [{"name": "ann", "actor_class": "player"}]
    assert part(view, "properties")["value"] == {"a": "b"}


def test_free_form_messages_are_json() -> None:
    message = struct_pb2.Struct()
    message.update({"a": [1, 2]})
    [shown] = message_view(message).parts
    assert shown["value"] == {"a": [1.0, 2.0]}


def test_what_can_run_scripts_is_no_picture() -> None:
    view = View()
    view.add_bytes("a", b"<svg onload=alert(1)>", "image/svg+xml")
    assert view.parts[0]["kind"] == "text"
    assert view.blobs == []


def test_views_are_bounded() -> None:
    view = View()
    for number in range(2 * MAX_PARTS):
        view.add_json(str(number), number)
    assert len(view.parts) == MAX_PARTS + 1
    view = View()
    view.add_text("", "x" * (MAX_TEXT_CHARACTERS + 1))
    assert len(view.parts[0]["text"]) == MAX_TEXT_CHARACTERS + 1
    view.add_json("", ["x" * MAX_TEXT_CHARACTERS])
    assert view.parts[1]["kind"] == "text"
    for length in (MAX_TEXT_CHARACTERS, MAX_TEXT_CHARACTERS + 1):
        value = ["x" * (length - len('[""]'))]
        view.add_json("", value)
        assert view.parts[-1].get("value") == (value if length == MAX_TEXT_CHARACTERS else None)
    view.add_text("", "x" * MAX_TEXT_CHARACTERS)
    assert view.parts[-1]["text"] == "x" * MAX_TEXT_CHARACTERS


def test_lists_are_grids_if_they_are() -> None:
    view = View()
    view.add_json("grid", [[1, 2], [3, 4]])
    view.add_json("numbers", [1, 2])
    view.add_json("ragged", [[1], [2, 3]])
    view.add_json("empty", [[]])
    assert [each["kind"] for each in view.parts] == ["grid", "numbers", "json", "json"]


@given(st.recursive(st.floats() | st.text() | st.none() | st.integers(), st.lists))
def test_all_is_json_in_the_end(value: Any) -> None:
    json.dumps(finite(value), allow_nan=False)


def test_numbers_that_json_does_not_have_are_texts() -> None:
    inf, nan = float("inf"), float("nan")
    assert finite({"a": [inf, -inf, nan, 1.5], 2: (inf,), "t": True}) == {
        "a": ["Infinity", "-Infinity", "NaN", 1.5],
        "2": ["Infinity"],
        "t": True,
    }


def test_a_message_to_a_page_has_its_blobs_behind_it() -> None:
    data = page_message({"type": "seat"}, [("image/png", b"one"), ("image/png", b"")])
    read = read_message(data)
    assert read["blob"] == [b"one", b""]
    assert read["blobs"] == [{"type": "image/png", "size": 3}, {"type": "image/png", "size": 0}]


# Forms of messages


def form_of(kind: Any) -> dict[str, Any]:
    return message_form(kind.DESCRIPTOR)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [(Int64Value, -(2**63), 2**63 - 1), (UInt64Value, 0, 2**64 - 1), (UInt32Value, 0, 2**32 - 1)],
)
def test_whole_numbers_have_all_their_bits(kind: Any, low: int, high: int) -> None:
    """An id of 64 bits can be given as it is shown."""
    [field] = form_of(kind)["fields"]
    assert (field["form"]["low"], field["form"]["high"]) == (low, high)


def test_the_form_of_a_message() -> None:
    form = form_of(common_pb2.TrialParams)
    fields = {field["name"]: field for field in form["fields"]}
    assert fields["max_steps"]["form"]["integer"]
    assert fields["max_steps"]["form"]["low"] == 0
    assert fields["actors"]["form"]["kind"] == "sequence"
    assert fields["properties"]["form"]["kind"] == "json"
    assert fields["environment"]["optional"]


def test_alternatives_are_told() -> None:
    form = form_of(common_pb2.ActorInitialOutput)
    assert {field.get("alternatives") for field in form["fields"]} == {"slot_selection"}


def test_messages_of_themselves_end() -> None:
    json.dumps(form_of(spaces_pb2.Space))
    json.dumps(form_of(struct_pb2.Value))


@pytest.mark.parametrize("answer", [None, [], "x", {"max_steps": "x"}, {"none": 1}, {"max_steps": -1}, {"actors": 1}])
def test_an_answer_that_is_no_message(answer: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="action: "):
        message_of(answer, common_pb2.TrialParams)


def test_an_answer_that_is() -> None:
    params = message_of({"max_steps": 3, "actors": [{"name": "ann"}]}, common_pb2.TrialParams)
    assert params == common_pb2.TrialParams(max_steps=3, actors=[common_pb2.ActorParams(name="ann")])


def test_keys_are_those_one_expects() -> None:
    found = options([0, 1, 2], ["left", "right", "Fire"])
    assert [option["keys"] for option in found] == [["ArrowLeft", "1"], ["ArrowRight", "2"], ["Space", "3"]]
    found = options([5, 6], [], [True, False])
    assert [(option["label"], option.get("allowed", True)) for option in found] == [("5", True), ("6", False)]
    every = [key for option in options(range(60), ["left"] * 60) for key in option["keys"]]
    assert len(every) == len(set(every))


def test_enums_are_choices() -> None:
    form = form_of(TrialInfo)
    [state] = [field["form"] for field in form["fields"] if field["name"] == "state"]
    assert state["kind"] == "choice"
    assert "pending" in {option["label"] for option in state["options"]}


def test_bytes_of_no_type() -> None:
    codec = codec_for(ActorClass("player"))
    assert isinstance(codec, BytesCodec)
    form = {"kind": "text", "least": 0, "most": 65536, "characters": None, "bytes": True}
    assert codec.form() == {"kind": "object", "fields": [{"name": "base64", "form": form, "optional": False}]}
    assert codec.observe(b"x")
    assert codec.view().parts[0]["text"] == "1 bytes: 78"
    assert codec.action({"base64": "AQI="}) == b"\x01\x02"
    wrong: Any
    for wrong in ({"base64": "?"}, {"base64": 1}, {}, None):
        with pytest.raises(InvalidArgumentError, match="base64"):
            codec.action(wrong)


def test_codecs_are_chosen_by_type() -> None:
    assert isinstance(codec_for(RL_SPEC.actor_class("player")), SpaceCodec)
    messages = ActorClass("player", observation=TrialInfo, action=TrialInfo)
    assert type(codec_for(messages)) is MessageCodec


# Spaces


def seen(space: Space, value: Any = None, mask: Any = None, **more: Any) -> SpaceCodec:
    """Return a codec that has taken one observation."""
    codec = SpaceCodec(("left", "right"))
    value = np.float32(0) if value is None else value
    asks = codec.observe(encode_observation(Observation(value, action_space=space, action_mask=mask, **more)))
    assert asks == (more.get("active", True) and more.get("alive", True))
    return codec


SPACES: list[tuple[Space, str, Any]] = [
    (Discrete(2), "choice", 1),
    (Discrete(3, start=-1), "choice", -1),
    (Discrete(1000), "number", 999),
    (Box(-1, 1, (2,), "float32"), "sliders", [0.5, -1]),
    (Box(-1, 1, (), "float32"), "number", 0.5),
    (Box(0, 255, (100, 100), "uint8"), "json", np.zeros((100, 100), int).tolist()),
    (Box(-np.inf, np.inf, (1,), "float64"), "sliders", [3.0]),
    (MultiDiscrete([2, 3]), "choices", [1, 2]),
    (MultiDiscrete([2, 1000]), "sliders", [1, 2]),
    (MultiBinary(3), "switches", [1, 0, 1]),
    (MultiBinary(300), "json", [0] * 300),
    (Text(5), "text", "abc"),
    (Dict({"a": Discrete(2), "b": Text(3)}), "object", {"a": 1, "b": "x"}),
    (Tuple((Discrete(2), Discrete(2))), "list", [1, 0]),
    (Sequence(Discrete(2)), "sequence", [1, 0, 1]),
    (OneOf((Discrete(2), Text(3))), "one_of", [1, "abc"]),
    (Graph(Discrete(2), None), "json", {"nodes": [1, 0]}),
]


@pytest.mark.parametrize(("space", "kind", "answer"), SPACES, ids=[kind for _, kind, _ in SPACES])
def test_every_space_has_a_form(space: Space, kind: str, answer: Any) -> None:
    codec = seen(space)
    form = codec.form()
    assert form["kind"] == kind
    json.dumps(form, allow_nan=False)
    decode_action(codec.action(answer), space)


@pytest.mark.parametrize(("space", "kind", "answer"), SPACES, ids=[kind for _, kind, _ in SPACES])
def test_nonsense_is_no_action(space: Space, kind: str, answer: Any) -> None:
    wrong: Any
    for wrong in (None, [[]], {"x": 1}, "", 1e99, -7):
        with pytest.raises(CogmentError, match="action"):
            seen(space).action(wrong)


def test_what_a_mask_forbids() -> None:
    codec = seen(Discrete(2), mask=np.array([0, 1], np.int8))
    assert [option.get("allowed", True) for option in codec.form()["options"]] == [False, True]
    codec.action(1)
    with pytest.raises(CogmentError, match="allowed now"):
        codec.action(0)
    nothing = np.zeros(2, np.int8)  # as for whom it is not the turn of
    waits = SpaceCodec()
    waits.observe(encode_observation(Observation(None, action_space=Discrete(2), action_mask=nothing, active=False)))
    assert [option.get("allowed", True) for option in waits.form()["options"]] == [False, False]
    acts = seen(Discrete(2), mask=nothing)
    assert [option.get("allowed", True) for option in acts.form()["options"]] == [True, False]
    codec = seen(MultiBinary(2), mask=np.array([1, 2], np.int8))
    assert codec.form()["fixed"] == [1, None]
    codec = seen(MultiDiscrete([2, 2]), mask=(np.array([1, 0], np.int8), np.array([1, 1], np.int8)))
    assert [option.get("allowed", True) for option in codec.form()["forms"][0]["options"]] == [True, False]
    wrong = seen(Discrete(2), mask=np.array([1, 1, 1], np.int8))
    assert wrong.form()["kind"] == "choice"


def test_who_is_not_asked_answers_nothing() -> None:
    codec = seen(Discrete(2), active=False)
    assert codec.idle() == spaces_pb2.Action()
    assert part(seen(Discrete(2), alive=False).view(), "")["text"] == "You are out."
    won = seen(Discrete(2), alive=False, terminated=True).view()
    assert "You are out." not in [each.get("text") for each in won.parts]  # as if somebody had lost


def test_observations_are_shown_by_what_they_are() -> None:
    value = {
        "board": np.arange(4).reshape(2, 2),
        "eye": np.zeros((16, 16, 3), np.uint8),
        "large": np.zeros((50, 50), np.float32),
        "words": "hello",
        "pair": (np.int64(1), b"\x00"),
    }
    frame = Frame(b"a drawing", "text/plain; charset=utf-8")
    more: Any = {"reward": 1.5, "info": {"lives": 3}, "frame": frame, "truncated": True}
    codec = SpaceCodec()
    message = encode_observation(Observation(value, action_space=Discrete(2), **more))
    codec.observe(message)
    view = codec.view()
    assert part(view, "observation.board")["rows"] == [[0, 1], [2, 3]]
    assert part(view, "observation.eye")["kind"] == "image"
    assert view.blobs[0][1].startswith(b"\x89PNG")
    assert part(view, "observation.large")["shape"] == [50, 50]
    assert part(view, "observation.words")["text"] == "hello"
    assert part(view, "observation.pair[0]")["value"] == 1
    assert part(view, "reward")["value"] == 1.5
    assert part(view, "info.lives")["value"] == 3
    assert part(view, "")["text"] == "a drawing"
    assert part(view, "truncated")["text"] == "the time is over"


def test_a_newcomer_gets_the_spaces() -> None:
    codec = seen(Discrete(2))
    later = encode_observation(Observation(np.float32(1)))
    codec.observe(later)
    assert not later.HasField("action_space")
    assert codec.for_newcomer(later).HasField("action_space")


def test_an_observation_without_spaces() -> None:
    with pytest.raises(InvalidArgumentError, match="action_space"):
        SpaceCodec().observe(encode_observation(Observation(np.float32(1))))
    assert SpaceCodec().form()["kind"] == "json"


# What pages say


_ANSWERS = st.recursive(st.none() | st.text() | st.integers() | st.floats(), st.lists)
_SAID = _ANSWERS.map(lambda value: json.dumps({"type": "act", "tick": 0, "action": value}).encode())


@given(st.binary() | _SAID)
def test_whatever_a_page_says_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidArgumentError):
        assert isinstance(parse(data), Act)


def nested(depth: int) -> bytes:
    return b'{"type":"act","tick":0,"action":' + b"[" * depth + b"]" * depth + b"}"


def test_actions_are_only_so_deep() -> None:
    assert isinstance(parse(nested(39)), Act)
    assert isinstance(parse(nested(37).replace(b"[]", b'[{"a":1}]')), Act)
    for deeper in (nested(40), nested(100)):
        with pytest.raises(InvalidArgumentError, match=r"^action: expected depth 40 at most$"):
            parse(deeper)


def test_an_allowance_fills_with_time() -> None:
    allowance = Allowance(2, 3, now=10)
    assert [allowance.take(10) for _ in range(4)] == [True, True, True, False]
    assert [allowance.take(10.5) for _ in range(2)] == [True, False]
    assert [allowance.take(100) for _ in range(4)] == [True, True, True, False]


def test_parts_of_lists_and_maps_are_as_readable_as_single_ones() -> None:
    """Bytes are base64, enumerations have names, numbers of 32 bits are as short as they were."""
    described = FileDescriptorProto(name="lists.proto", package="lists", syntax="proto3")
    of = described.message_type.add(name="Many")
    color = described.enum_type.add(name="Color")
    for number, name in enumerate(("RED", "BLUE")):
        color.value.add(name=name, number=number)
    kinds: list[tuple[str, Any, str]] = [
        ("data", FieldDescriptor.TYPE_BYTES, ""),
        ("small", FieldDescriptor.TYPE_FLOAT, ""),
        ("colors", FieldDescriptor.TYPE_ENUM, ".lists.Color"),
        ("inner", FieldDescriptor.TYPE_MESSAGE, ".lists.Many"),
    ]
    for number, (name, kind, type_name) in enumerate(kinds, 1):
        field = of.field.add(name=name, number=number, type=kind, label=FieldDescriptor.LABEL_REPEATED)
        if type_name:
            field.type_name = type_name
    of.field.add(name="one", number=9, type=FieldDescriptor.TYPE_ENUM, type_name=".lists.Color")
    pool = DescriptorPool()
    pool.Add(described)
    kind = GetMessageClass(pool.FindMessageTypeByName("lists.Many"))
    view = message_view(kind(data=[b"\xff\x00"], small=[0.1], colors=[1, 7], inner=[kind(one=1)], one=7))
    shown = {each["name"]: each for each in view.parts}
    assert shown["data"]["value"] == ["/wA="]
    assert shown["small"]["values"] == [0.1]
    assert shown["colors"]["value"] == ["BLUE", "7"]
    assert shown["one"]["text"] == "7"
    assert "BLUE" in json.dumps(shown["inner"])
