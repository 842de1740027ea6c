"""A record is what a frozen dataclass with slots is, in everything but the way it is made."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.records import record


@record()
class Point:
    """With a default, one that is made, and one that is neither shown nor compared."""

    x: int
    y: int = 0
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list, repr=False, compare=False)


@record(kw_only=True)
class Named(Point):
    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: expected one")


@dataclass(frozen=True, slots=True)
class Reference:
    x: int
    y: int = 0
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list, repr=False, compare=False)


Given = tuple[int, int, tuple[str, ...], list[str]]
SMALL = st.integers(0, 2)
TAGS = st.lists(st.text(max_size=1), max_size=1).map(tuple)
VALUES: st.SearchStrategy[Given] = st.tuples(SMALL, SMALL, TAGS, st.just([]))


@given(VALUES, VALUES)
def test_it_compares_hashes_and_shows_as_a_dataclass_does(one: Given, other: Given) -> None:
    assert (Point(*one) == Point(*other)) == (Reference(*one) == Reference(*other))
    assert (hash(Point(*one)) == hash(Point(*other))) == (hash(Reference(*one)) == hash(Reference(*other)))
    assert repr(Point(*one)) == repr(Reference(*one)).replace("Reference", "Point")
    assert asdict(Point(*one)) == asdict(Reference(*one))


def test_what_is_left_out_of_comparisons_is_left_out() -> None:
    assert Point(1, notes=["a"]) == Point(1, notes=["b"])
    assert Point(1) != Named(x=1, name="a")


@pytest.mark.parametrize("name", ["x", "y", "notes", "other", "__class__"])
def test_nothing_changes(name: str) -> None:
    point: Any = Point(1, 2)
    with pytest.raises(AttributeError):
        setattr(point, name, 3)
    with pytest.raises(FrozenInstanceError):
        delattr(point, name)
    assert point == Point(1, 2)
    assert not hasattr(point, "__dict__")


def test_it_is_checked_and_copied_like_any_other() -> None:
    with pytest.raises(ValueError, match="name"):
        Named(x=1, name="")
    with pytest.raises(TypeError):
        Named(1, name="a", other=2)  # type: ignore[call-arg]  # neither by position, nor others
    made = Named(x=1, name="a")
    assert [each.name for each in fields(made)] == ["x", "y", "tags", "notes", "name"]
    assert replace(made, y=5) == Named(x=1, y=5, name="a")
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again == made
        with pytest.raises(FrozenInstanceError):
            setattr(again, "x", 2)  # noqa: B010  type checkers know that it is frozen
