"""Ids of the legacy API and names of today's."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.legacy.actor_ids import ENVIRONMENT, ActorIds, ids_in, name_actors

CLASSES = ("plane", "drone", "tower")
ACTORS = [("t", "tower"), ("d1", "drone"), ("p", "plane"), ("d2", "drone")]


def test_ids_are_grouped_by_class_and_not_in_the_order_of_the_parameters() -> None:
    ids = ActorIds(CLASSES, ACTORS, "world")
    assert [member.name for member in ids.members] == ["p", "d1", "d2", "t"]
    assert [member.actor_id for member in ids.members] == [0, 1, 2, 3]
    assert [member.id_in_class for member in ids.members] == [0, 0, 1, 0]
    assert ids.counts == (1, 2, 1)


def test_classes_without_actors_are_counted() -> None:
    assert ActorIds(CLASSES, [("t", "tower")]).counts == (0, 0, 1)


def test_names_and_ids() -> None:
    ids = ActorIds(CLASSES, ACTORS, "world")
    assert [ids.id_of(name) for name in ("p", "d2", "world", "nobody", "")] == [0, 2, ENVIRONMENT, None, None]
    assert [ids.name_of(number) for number in (0, 2, -1, 4, -2)] == ["p", "d2", "world", None, None]


def test_what_the_actors_have_is_sorted() -> None:
    ids = ActorIds(CLASSES, ACTORS)
    assert ids.by_id(["t", "d1", "p", "d2"]) == ["p", "d1", "d2", "t"]
    assert ids.by_place(["p", "d1", "d2", "t"]) == ["t", "d1", "p", "d2"]


@given(st.lists(st.sampled_from(CLASSES), max_size=12), st.permutations(CLASSES))
def test_both_orders_are_inverse_to_each_other(actors: list[str], classes: list[str]) -> None:
    ids = ActorIds(classes, [(f"actor {number}", name) for number, name in enumerate(actors)])
    items = [object() for _ in actors]
    assert ids.by_place(ids.by_id(items)) == items
    assert ids.by_id(ids.by_place(items)) == items
    assert sum(ids.counts) == len(ids) == len(actors)
    # What the published SDK computes of the counts alone.
    expected = [name for name, count in zip(classes, ids.counts, strict=True) for _ in range(count)]
    assert [member.actor_class for member in ids.members] == expected
    assert all(ids.id_of(member.name) == member.actor_id for member in ids.members)
    assert all(ids.name_of(member.actor_id) == member.name for member in ids.members)
    places = [member.place for member in ids.members if member.actor_class == "drone"]
    assert places == sorted(places)


@given(st.lists(st.sampled_from(CLASSES), max_size=12))
def test_in_the_order_of_the_classes_nothing_is_moved(actors: list[str]) -> None:
    actors.sort(key=CLASSES.index)
    ids = ActorIds(CLASSES, [(f"actor {number}", name) for number, name in enumerate(actors)])
    items = random.Random(0).sample(range(100), len(actors))
    assert ids.by_id(items) == ids.by_place(items) == items


def test_a_class_that_the_project_does_not_have() -> None:
    with pytest.raises(InvalidArgumentError, match=r"actor 'x': expected .*\('plane', 'drone', 'tower'\), got 'ship'"):
        ActorIds(CLASSES, [("x", "ship")])


def test_two_actors_of_one_name() -> None:
    with pytest.raises(InvalidArgumentError, match="a name of its own"):
        ActorIds(CLASSES, [("x", "plane"), ("x", "drone")])


def test_ids_of_parameters() -> None:
    params = TrialParams()
    for name, actor_class in ACTORS:
        params.actors.add(name=name, actor_class=actor_class)
    assert ids_in(params, CLASSES, "world").members == ActorIds(CLASSES, ACTORS).members


def test_actors_without_names_get_one() -> None:
    params = TrialParams()
    for actor_class, name in (("drone", ""), ("plane", ""), ("drone", "own"), ("drone", ""), ("plane", "")):
        params.actors.add(name=name, actor_class=actor_class)
    name_actors(params.actors, {"plane": ["pilot"]})
    assert [actor.name for actor in params.actors] == ["drone_0", "pilot", "own", "drone_2", "plane_1"]
