"""Spaces as forms, part by part; values of spaces as views; and what a newcomer is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trio_cogment.api import spaces_pb2
from trio_cogment.play.space_codec import SpaceCodec
from trio_cogment.play.views import View
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Frame,
    MultiBinary,
    MultiDiscrete,
    Observation,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
    encode_observation,
)


def taken(space: Space | None, value: Any = None, labels: tuple[str, ...] = (), **more: Any) -> tuple[SpaceCodec, Any]:
    """Return a codec that has taken an observation, and this."""
    codec = SpaceCodec(labels)
    value = np.float32(0) if value is None else value
    message = encode_observation(Observation(value, action_space=space, **more))
    codec.observe(message)
    return codec, message


def form(space: Space, mask: Any = None, labels: tuple[str, ...] = ()) -> dict[str, Any]:
    return taken(space, labels=labels, action_mask=mask)[0].form()


def option(value: int, *keys: str, label: str = "", **more: Any) -> dict[str, Any]:
    return {"value": value, "label": label or str(value), "keys": list(keys), **more}


def number(low: Any, high: Any, initial: Any, *, integer: bool = False) -> dict[str, Any]:
    return {"kind": "number", "low": low, "high": high, "integer": integer, "initial": initial}


ONE_OF_TWO = {"kind": "choice", "options": [option(0, "1"), option(1, "2")]}
WORDS = {"kind": "text", "least": 2, "most": 5, "characters": "ab", "bytes": False}


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Discrete(2), ONE_OF_TWO),
        (Discrete(2, start=-1), {"kind": "choice", "options": [option(-1, "1"), option(0, "2")]}),
        (Discrete(65), number(0, 64, 0, integer=True)),
        (Discrete(100, start=5), number(5, 104, 5, integer=True)),
        (Discrete(100, start=-200), number(-200, -101, -101, integer=True)),
        (Box(-1, 3, (), "float32"), number(-1, 3, 1)),
        (Box(0, np.inf, (), "float64"), number(0, None, 0)),
        (Box(2, np.inf, (), "float64"), number(2, None, 2)),
        (Box(-np.inf, -2, (), "float64"), number(None, -2, -2)),
        (Box(-np.inf, 2, (), "float64"), number(None, 2, 0)),
        (Box(-np.inf, np.inf, (), "float64"), number(None, None, 0)),
        (Box(-1e9, 1e9, (), "float64"), number(-1e9, 1e9, 0)),
        (Box(-2e9, 2e9, (), "float64"), number(None, None, 0)),
        (Box(-1, 4, (), "int8"), number(-1, 4, 0, integer=True)),
        (
            Box(np.array([0, 1], np.float32), np.array([1, 5], np.float32)),
            {"kind": "sliders", "shape": [2], "forms": [number(0, 1, 0.5), number(1, 5, 3)]},
        ),
        (
            MultiDiscrete([2, 3]),
            {
                "kind": "choices",
                "shape": [2],
                # Keys are for one of them.
                "forms": [ONE_OF_TWO, {"kind": "choice", "options": [option(0), option(1), option(2)]}],
            },
        ),
        (
            MultiDiscrete([2, 2], start=[40, -100]),
            {
                "kind": "choices",
                "shape": [2],
                "forms": [
                    {"kind": "choice", "options": [option(40, "1"), option(41, "2")]},
                    {"kind": "choice", "options": [option(-100), option(-99)]},
                ],
            },
        ),
        (
            MultiDiscrete([2, 65]),
            {"kind": "sliders", "shape": [2], "forms": [number(0, 1, 0, integer=True), number(0, 64, 0, integer=True)]},
        ),
        (MultiBinary((2, 2)), {"kind": "switches", "shape": [2, 2], "fixed": [None] * 4}),
        (MultiBinary(65), {"kind": "json", "about": repr(MultiBinary(65))}),
        (Box(0, 1, (65,), "float32"), {"kind": "json", "about": repr(Box(0, 1, (65,), "float32"))}),
        (Text(5, min_length=2, charset="ab"), WORDS),
        (Text(5), {"kind": "text", "least": 1, "most": 5, "characters": "letters and digits", "bytes": False}),
        (
            Dict({"a": Discrete(2), "b": Text(5, min_length=2, charset="ab")}),
            {
                "kind": "object",
                "fields": [
                    {"name": "a", "form": ONE_OF_TWO, "optional": False},
                    {"name": "b", "form": WORDS, "optional": False},
                ],
            },
        ),
        (
            Tuple((Discrete(2), MultiBinary(1))),
            {"kind": "list", "forms": [ONE_OF_TWO, {"kind": "switches", "shape": [1], "fixed": [None]}]},
        ),
        (Sequence(Discrete(2)), {"kind": "sequence", "form": ONE_OF_TWO}),
        (OneOf((Discrete(2), Discrete(2))), {"kind": "one_of", "forms": [ONE_OF_TWO, ONE_OF_TWO]}),
    ],
    ids=repr,
)
def test_the_form_of_a_space(space: Space, expected: dict[str, Any]) -> None:
    assert form(space) == expected


@pytest.mark.parametrize("kind", ["choice", "number"])
def test_so_many_are_chosen_from_by_name(kind: str) -> None:
    most = 64
    assert form(Discrete(most if kind == "choice" else most + 1))["kind"] == kind
    several = form(MultiDiscrete([most if kind == "choice" else most + 1]))
    assert several["forms"][0]["kind"] == kind
    assert len(form(MultiDiscrete([2] * most))["forms"]) == most
    assert form(MultiDiscrete([2] * (most + 1)))["kind"] == "json"
    assert form(MultiBinary(most))["kind"] == "switches"
    assert form(Box(0, 1, (most,), "float32"))["kind"] == "sliders"


def test_labels_are_for_a_choice() -> None:
    found = form(Discrete(3, start=1), labels=("left", "right"))
    assert found["options"] == [
        option(1, "ArrowLeft", "1", label="left"),
        option(2, "ArrowRight", "2", label="right"),
        option(3, "3"),
    ]


def test_masks_within() -> None:
    space = Dict({"a": Discrete(2), "b": Tuple((MultiBinary(2), MultiDiscrete([2, 2])))})
    mask = {
        "a": np.array([0, 1], np.int8),
        "b": (np.array([2, 1], np.int8), (np.array([1, 1], np.int8), np.array([1, 0], np.int8))),
    }
    a, b = (field["form"] for field in form(space, mask)["fields"])
    assert a["options"] == [option(0, "1", allowed=False), option(1, "2")]
    switches, choices = b["forms"]
    assert switches["fixed"] == [None, 1]
    assert choices["forms"] == [
        ONE_OF_TWO,
        {"kind": "choice", "options": [option(0), option(1, allowed=False)]},
    ]


# Observations


def shown(value: Any, **more: Any) -> View:
    codec, _ = taken(Discrete(2), value, **more)
    return codec.view()


def one(value: Any) -> dict[str, Any]:
    [found] = shown(value).parts
    assert found.pop("name") == "observation"
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.1), {"kind": "value", "value": 0.1}),
        (np.float64(0.1), {"kind": "value", "value": 0.1}),
        (np.array([0.1, 0.5], np.float32), {"kind": "numbers", "values": [0.1, 0.5]}),
        (np.zeros((2, 2), np.int8), {"kind": "grid", "rows": [[0, 0], [0, 0]]}),
        (np.zeros(1024, np.int8), {"kind": "numbers", "values": [0] * 1024}),
        (
            np.arange(1025, dtype=np.int32),
            {"kind": "array", "shape": [1025], "dtype": "int32", "low": 0, "high": 1024},
        ),
        ("hello", {"kind": "text", "text": "hello"}),
        (b"\x00\x01", {"kind": "text", "text": "2 bytes: 00 01"}),
        (True, {"kind": "value", "value": True}),
    ],
)
def test_a_value_is_shown_by_what_it_is(value: Any, expected: dict[str, Any]) -> None:
    assert one(value) == expected


@pytest.mark.parametrize("shape", [(8, 8), (8, 9, 1), (9, 8, 3), (8, 8, 4)])
def test_arrays_of_bytes_are_pictures(shape: tuple[int, ...]) -> None:
    view = shown(np.zeros(shape, np.uint8))
    assert view.parts == [{"name": "observation", "kind": "image", "blob": 0}]
    assert view.blobs[0][0] == "image/png"


@pytest.mark.parametrize("shape", [(7, 8), (8, 7), (8, 8, 2), (8, 8, 5), (64,), (8, 8, 3, 1)])
def test_other_arrays_of_bytes_are_none(shape: tuple[int, ...]) -> None:
    assert shown(np.zeros(shape, np.uint8)).blobs == []


def test_other_arrays_are_no_pictures() -> None:
    assert shown(np.zeros((8, 8), np.int8)).blobs == []


def test_all_that_is_beside_the_value() -> None:
    frame = Frame(b"caf\xe9", "text/plain")
    view = shown(
        {"a": (np.int64(1), np.int64(2))}, reward=0.5, info={"lives": np.int64(3)}, frame=frame, terminated=True
    )
    assert view.parts == [
        {"name": "", "kind": "text", "text": "caf\N{REPLACEMENT CHARACTER}"},
        {"name": "observation.a[0]", "kind": "value", "value": 1},
        {"name": "observation.a[1]", "kind": "value", "value": 2},
        {"name": "reward", "kind": "value", "value": 0.5},
        {"name": "info.lives", "kind": "value", "value": 3},
        {"name": "terminated", "kind": "text", "text": "the task has ended"},
    ]
    drawn = shown(np.int64(1), frame=Frame(b"\xff\xd8\xff", "image/jpeg"))
    assert drawn.parts[0] == {"name": "", "kind": "image", "blob": 0}
    assert drawn.blobs == [("image/jpeg", b"\xff\xd8\xff")]


@pytest.mark.parametrize("more", [{"terminated": True}, {"truncated": True}, {}])
def test_who_is_out_is_told_so_unless_it_is_over(more: dict[str, bool]) -> None:
    texts = [part.get("text") for part in shown(np.int64(1), alive=False, **more).parts]
    assert ("You are out." in texts) is not bool(more)


# Newcomers


def test_a_newcomer_is_told_both_spaces() -> None:
    codec, first = taken(Discrete(2), np.int64(0), observation_space=Discrete(5))
    assert codec.for_newcomer(first) is first
    later = encode_observation(Observation(np.int64(3)))
    codec.observe(later)
    expected = spaces_pb2.Observation()
    expected.CopyFrom(later)
    expected.action_space.CopyFrom(first.action_space)
    expected.observation_space.CopyFrom(first.observation_space)
    assert codec.for_newcomer(later) == expected
    assert not later.HasField("action_space")


def test_an_observation_space_that_there_was_not_is_not_made() -> None:
    codec, _ = taken(Discrete(2))
    later = encode_observation(Observation(np.float32(3)))
    assert not codec.for_newcomer(later).HasField("observation_space")
    assert SpaceCodec().for_newcomer(later) is later


def test_the_spaces_of_a_later_observation_are_the_newest() -> None:
    codec, _ = taken(Discrete(2))
    codec.observe(encode_observation(Observation(np.float32(0), action_space=Discrete(3))))
    assert len(codec.form()["options"]) == 3
