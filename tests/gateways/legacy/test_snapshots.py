"""Observation sets of old environments: whole observations and deltas."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.struct_pb2 import ListValue, Value
from google.protobuf.wrappers_pb2 import Int64Value

from trio_cogment.api.legacy.environment_pb2 import ObservationSet
from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.gateways.legacy.actor_ids import ActorIds
from trio_cogment.gateways.legacy.deltas import ApplyDelta, applying, function_named, merging, replacing
from trio_cogment.gateways.legacy.snapshots import Snapshots

IDS = ActorIds(("a", "b"), [("second", "b"), ("first", "a"), ("third", "b")])


def observation_set(*entries: tuple[bytes, bool], actors_map: list[int]) -> ObservationSet:
    made = ObservationSet(actors_map=actors_map)
    for content, snapshot in entries:
        made.observations.add(content=content, snapshot=snapshot)
    return made


def added(before: Any, delta: Any) -> Any:
    return Int64Value(value=before.value + delta.value)


def number(value: int) -> bytes:
    return Int64Value(value=value).SerializeToString()


ADDING = applying(added, Int64Value, Int64Value)


def test_whole_observations() -> None:
    taken = Snapshots(IDS, {}).take(observation_set((b"x", True), (b"y", True), actors_map=[1, 0, 1]))
    assert taken == [b"y", b"x", b"y"]


def test_deltas_are_applied_for_each_actor_and_not_for_each_entry() -> None:
    snapshots = Snapshots(IDS, {"a": ADDING, "b": ADDING})
    snapshots.take(observation_set((number(1), True), (number(10), True), actors_map=[0, 1, 0]))
    taken = snapshots.take(observation_set((number(5), False), actors_map=[0, 0, 0]))
    assert taken == [number(6), number(15), number(6)]
    # Mixed, in any order and at any time.
    taken = snapshots.take(observation_set((number(1), False), (number(2), True), actors_map=[0, 1, 0]))
    assert taken == [number(7), number(2), number(7)]


def test_actors_that_share_an_entry_and_a_past_share_the_result() -> None:
    calls = []

    def apply(before: bytes | None, delta: bytes) -> bytes:
        calls.append((before, delta))
        return (before or b"") + delta

    snapshots = Snapshots(IDS, {"a": apply, "b": apply})
    assert snapshots.take(observation_set((b"x", False), actors_map=[0, 0, 0])) == [b"x", b"x", b"x"]
    assert calls == [(None, b"x"), (None, b"x")]  # one for each class


def test_without_a_delta_type_a_delta_replaces() -> None:
    snapshots = Snapshots(IDS, {"a": replacing, "b": replacing})
    assert snapshots.take(observation_set((b"x", False), actors_map=[0, 0, 0])) == [b"x", b"x", b"x"]


def test_merging() -> None:
    apply = merging(ListValue)
    one, two = (ListValue(values=[Value(number_value=each)]).SerializeToString() for each in (1, 2))
    assert ListValue.FromString(apply(apply(None, one), two)).values[:] == [
        Value(number_value=1),
        Value(number_value=2),
    ]
    assert merging(Int64Value)(number(3), number(4)) == number(4)
    assert merging(Int64Value)(number(3), b"") == number(3)


@pytest.mark.parametrize(
    ("actors_map", "text"),
    [
        ([0, 0], "actors_map: expected one entry for each of 3 actors, got 2"),
        ([0, 0, 0, 0], "got 4"),
        ([0, 0, 1], r"actors_map\[2\]: expected the index of one of 1 observations, got 1"),
        ([0, -1, 0], r"actors_map\[1\]: .* got -1"),
    ],
)
def test_sets_that_do_not_fit(actors_map: list[int], text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        Snapshots(IDS, {}).take(observation_set((b"x", True), actors_map=actors_map))


def test_a_delta_that_nobody_can_apply_is_no_observation() -> None:
    snapshots = Snapshots(IDS, {"a": replacing})
    with pytest.raises(RemoteProtocolError, match="a delta for an actor of class 'b': expected a whole observation"):
        snapshots.take(observation_set((b"x", False), actors_map=[0, 0, 0]))


def test_a_wrong_set_changes_nothing() -> None:
    snapshots = Snapshots(IDS, {"a": ADDING})
    snapshots.take(observation_set((number(1), True), actors_map=[0, 0, 0]))
    with pytest.raises(RemoteProtocolError):
        snapshots.take(observation_set((number(5), False), actors_map=[0, 0, 0]))
    taken = snapshots.take(observation_set((number(2), False), (number(9), True), actors_map=[0, 1, 1]))
    assert taken[0] == number(3)


def failing(before: Any, delta: Any) -> Any:
    raise KeyError("secret")


@pytest.mark.parametrize(
    ("apply", "delta", "text"),
    [
        (applying(failing, Int64Value, Int64Value), b"", "the function that applies deltas failed: KeyError$"),
        (applying(lambda before, delta: None, Int64Value, Int64Value), b"", "expected a google.protobuf.Int64Value"),
        (applying(lambda before, delta: Value(), Int64Value, Int64Value), b"", "as its result, got Value"),
        (ADDING, b"\xff", "delta: 1 bytes, not a valid google.protobuf.Int64Value"),
        (merging(Int64Value), b"\xff", "delta: 1 bytes, not a valid google.protobuf.Int64Value"),
    ],
)
def test_deltas_that_cannot_be_applied(apply: ApplyDelta, delta: bytes, text: str) -> None:
    snapshots = Snapshots(ActorIds("a", [("x", "a")]), {"a": apply})
    with pytest.raises(RemoteProtocolError, match=f"a delta for an actor of class 'a': .*{text}"):
        snapshots.take(observation_set((delta, False), actors_map=[0]))


def test_functions_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("deltas_of_a_project")
    module.__dict__.update(added=added, number=1)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert function_named("deltas_of_a_project:added") is added
    for text, reason in (
        ("deltas_of_a_project:number", "has no function 'number'"),
        ("deltas_of_a_project:missing", "has no function 'missing'"),
        ("deltas_of_a_project", "expected module:function"),
        ("no_such_module_here:f", "cannot be imported"),
        (".:f", "cannot be imported"),
    ):
        with pytest.raises(InvalidArgumentError, match=reason):
            function_named(text)
