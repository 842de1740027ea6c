"""Fields of configurations from tensors: every kind of field, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.gateways.dm_env_rpc.gateway.projects import shop
from trio_cogment.api import rl_pb2
from trio_cogment.gateways.dm_env_rpc.gateway.config_fields import UnknownFieldError, set_field
from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import NotThatError
from trio_cogment.spaces.values import decode_fields


def config() -> Any:
    return shop().message("shop.EnvironmentConfig")()


def a_level(**fields: Any) -> Any:
    packed = AnyMessage()
    packed.Pack(shop().message("shop.Level")(**fields))
    return np.array(packed, object)


def levels(*sizes: int) -> Any:
    found = np.empty(len(sizes), object)
    found[:] = [a_level(size=size).item() for size in sizes]
    return found


TAKEN: list[tuple[str, Any, dict[str, Any]]] = [
    ("seed", np.int64(-3), {"seed": "-3"}),
    ("seed", np.float64(7.0), {"seed": "7"}),
    ("seed", np.uint8(7), {"seed": "7"}),
    ("huge", np.uint64(2**64 - 1), {"huge": str(2**64 - 1)}),
    ("stock", np.int64(2**32 - 1), {"stock": 2**32 - 1}),
    ("price", np.float64(0.1), {"price": 0.1}),
    ("price", np.int64(2**60), {"price": float(2**60)}),
    ("rate", np.float64(0.5), {"rate": 0.5}),
    ("rate", np.float64(np.inf), {"rate": "Infinity"}),
    ("rate", np.int64(2**24 + 2), {"rate": float(2**24 + 2)}),
    ("open", np.bool_(True), {"open": True}),
    ("open", np.int64(1), {"open": True}),
    ("name", np.str_("corner"), {"name": "corner"}),
    ("picture", np.array([1, 2, 255], np.uint8), {"picture": "AQL/"}),
    ("mood", np.str_("WILD"), {"mood": "WILD"}),
    ("mood", np.int64(5), {"mood": "WILD"}),
    ("mood", np.float64(1.0), {"mood": "BUSY"}),
    ("level.size", np.int64(3), {"level": {"size": 3}}),
    ("level.inner.inner.size", np.int64(3), {"level": {"inner": {"inner": {"size": 3}}}}),
    ("level.weights", np.array([0.5, 1.0]), {"level": {"weights": [0.5, 1.0]}}),
    ("level", a_level(size=4), {"level": {"size": 4}}),
    ("sizes", np.array([1.0, 2.0]), {"sizes": ["1", "2"]}),
    ("sizes", np.array([], np.int64), {}),
    ("names", np.array(["a", "b"]), {"names": ["a", "b"]}),
    ("prices.bread", np.float64(2.5), {"prices": {"bread": 2.5}}),
    ("prices.rye.bread", np.int64(2), {"prices": {"rye.bread": 2.0}}),
    ("levels.first.size", np.int64(2), {"levels": {"first": {"size": 2}}}),
    ("anything.a.b", np.int64(2), {"anything": {"a": {"b": 2.0}}}),
    ("anything.text", np.str_("x"), {"anything": {"text": "x"}}),
    ("anything.flag", np.bool_(True), {"anything": {"flag": True}}),
    ("anything.table", np.array([[1, 2], [3, 4]]), {"anything": {"table": [[1.0, 2.0], [3.0, 4.0]]}}),
    ("wrapped", np.int64(5), {"wrapped": "5"}),
    ("wrapped.value", np.int64(5), {"wrapped": "5"}),
    ("several", levels(1, 2), {"several": [{"size": 1}, {"size": 2}]}),
    ("small", np.int64(1), {"small": 1}),
    ("maybe", np.int64(0), {"maybe": 0}),
]


@pytest.mark.parametrize(("path", "value", "expected"), TAKEN, ids=lambda each: str(each)[:40])
def test_a_field_is_set(path: str, value: Any, expected: dict[str, Any]) -> None:
    found = config()
    set_field(found, path, np.asarray(value))
    assert json_format.MessageToDict(found) == expected


REFUSED: list[tuple[str, Any, str]] = [
    ("stock", np.int64(-1), "an integer from 0 to 4294967295"),
    ("stock", np.int64(2**32), "an integer from 0 to 4294967295"),
    ("seed", np.float64(0.5), "an integer from -9223372036854775808"),
    ("seed", np.float64(np.nan), "an integer"),
    ("seed", np.array([1]), "an integer"),
    ("seed", np.bool_(True), "an integer"),
    ("seed", np.str_("1"), "an integer"),
    ("price", np.int64(2**53 + 1), "a number that a floating-point number of 64 bits can be"),
    ("price", np.str_("1"), "a number"),
    ("rate", np.int64(2**24 + 1), "a number that a floating-point number of 32 bits can be"),
    ("rate", np.float64(1e39), "a number of 32 bits"),
    ("open", np.int64(2), "true or false"),
    ("name", np.int64(2), "a string"),
    ("name", np.array(["a"]), "a string"),
    ("picture", np.array([1, 2]), "a vector of UINT8"),
    ("picture", np.array([[1, 2]], np.uint8), "a vector of UINT8"),
    ("mood", np.int64(2), "one of CALM, BUSY, WILD, or its number"),
    ("mood", np.str_("SAD"), "one of CALM, BUSY, WILD, or its number"),
    ("mood", np.array([1]), "one of CALM"),
    ("level", np.int64(2), "a setting for each field of shop.Level, or one message of this type"),
    ("sizes", np.int64(2), "a vector, for the list sizes"),
    ("sizes", np.array([[2]]), "a vector, for the list sizes"),
    ("sizes", np.array([0.5]), "an integer"),
    ("several", np.array([1, 2]), "a setting for each field of shop.Level"),
    ("anything", np.int64(2), "a setting for each field of google.protobuf.Struct, or one message"),
    ("anything.number", np.int64(2**53 + 1), "numbers that a floating-point number"),
    ("anything.message", a_level(), "numbers or strings"),
]


@pytest.mark.parametrize(("path", "value", "expected"), REFUSED, ids=lambda each: str(each)[:40])
def test_a_value_of_another_kind_is_refused(path: str, value: Any, expected: str) -> None:
    with pytest.raises(NotThatError, match=expected):
        set_field(config(), path, np.asarray(value))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("sed", r"shop.EnvironmentConfig has no field 'sed'; did you mean 'seed'\?"),
        ("level.colour", "shop.Level has no field 'colour'; expected one of inner, size, weights"),
        ("seed.x", "seed has no fields"),
        ("sizes.0", "sizes has no fields"),
        ("prices", "expected a key of this map, after another dot"),
        ("numbered.1", "a map has settings only if its keys are strings"),
        ("", "expected names of fields, joined by dots"),
        ("level.", "expected names of fields, joined by dots"),
        ("level" + ".inner" * 24, "expected at most 24 names"),
    ],
)
def test_a_name_that_is_of_no_field_is_refused(path: str, expected: str) -> None:
    with pytest.raises(UnknownFieldError, match=expected):
        set_field(config(), path, np.asarray(1))


def test_a_message_of_another_type_is_refused() -> None:
    other = AnyMessage()
    other.Pack(shop().message("shop.Seen")())
    with pytest.raises(NotThatError, match=r"a message of the type shop\.Level"):
        set_field(config(), "level", np.array(other, object))
    broken = AnyMessage(type_url="type.googleapis.com/shop.Level", value=b"\xff")
    with pytest.raises(NotThatError, match=r"a valid message of the type shop\.Level"):
        set_field(config(), "level", np.array(broken, object))


def test_a_message_may_be_of_any_type_where_the_field_is() -> None:
    found = config()
    set_field(found, "whatever", a_level(size=3))
    assert found.whatever.type_url == "type.googleapis.com/shop.Level"


def test_the_last_choice_counts() -> None:
    found = config()
    found.small = 3
    set_field(found, "large", np.asarray("x"))
    assert found.WhichOneof("kind") == "large"


def test_lists_are_replaced_and_messages_are_kept() -> None:
    found = config()
    found.sizes.extend([1, 2, 3])
    found.level.size = 4
    set_field(found, "sizes", np.asarray([5]))
    set_field(found, "level.weights", np.asarray([0.5]))
    assert list(found.sizes) == [5]
    assert (found.level.size, list(found.level.weights)) == (4, [0.5])


def test_arguments_of_environments_of_the_field() -> None:
    found = rl_pb2.EnvironmentConfig()
    for path, value in [
        ("arguments.size", np.int64(4)),
        ("arguments.level.name", np.str_("hard")),
        ("arguments.level.rate", np.float64(0.5)),
        ("arguments.weights", np.array([1.0, 2.0], np.float32)),
        ("arguments.names", np.array(["a", "b"])),
        ("arguments.size", np.int64(5)),
        ("options.narrow", np.int8(3)),
    ]:
        set_field(found, path, np.asarray(value))
    arguments = decode_fields(found.arguments)
    np.testing.assert_array_equal(arguments.pop("weights"), np.array([1.0, 2.0], np.float32))
    assert arguments == {"size": 5, "level": {"name": "hard", "rate": 0.5}, "names": ["a", "b"]}
    assert type(arguments["size"]) is int
    assert decode_fields(found.options)["narrow"].dtype == np.int8
