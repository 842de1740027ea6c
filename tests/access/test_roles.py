"""Grants: what they may name, for how many trials and actors they are, and whom a seat's is for."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.access import Grant, Quotas, Role
from trio_cogment.access.roles import MAX_ACCOUNT_CHARACTERS, MAX_NAME_CHARACTERS, MAX_NAMES, MAX_PATTERN_CHARACTERS
from trio_cogment.base.errors import InvalidArgumentError

LIMITS = [("name", MAX_NAME_CHARACTERS), ("owner", MAX_ACCOUNT_CHARACTERS)]
PATTERNS = ["trials", "classes", "actors"]


def held(**given: Any) -> Grant:
    return Grant(**{"name": "ann", **given})


@pytest.mark.parametrize(("what", "most"), LIMITS)
def test_names_are_as_long_as_they_may_be(what: str, most: int) -> None:
    assert getattr(held(**{what: "x" * most}), what) == "x" * most
    with pytest.raises(InvalidArgumentError, match=f"^{what}: expected 1 to {most} printable characters, got 'x+'$"):
        held(**{what: "x" * (most + 1)})


@pytest.mark.parametrize("what", PATTERNS)
def test_so_many_patterns_of_such_a_length(what: str) -> None:
    most = tuple(f"n{number}" for number in range(MAX_NAMES))
    assert getattr(held(**{what: most}), what) == most
    with pytest.raises(InvalidArgumentError, match=f"^{what}: expected {MAX_NAMES} at most, got {MAX_NAMES + 1}$"):
        held(**{what: (*most, "one more")})
    assert held(**{what: ("x" * MAX_PATTERN_CHARACTERS,)})
    for bad in ("x" * (MAX_PATTERN_CHARACTERS + 1), "", "a\nb"):
        with pytest.raises(InvalidArgumentError, match=f"^{what}: expected 1 to {MAX_PATTERN_CHARACTERS} printable"):
            held(**{what: ("fine", bad)})


@pytest.mark.parametrize("name", ["", "a\nb", "a#b", " ann", "ann "])
def test_a_name_is_a_line_that_a_file_can_have(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^name: expected "):
        held(name=name)


@pytest.mark.parametrize(
    ("patterns", "one"),
    [((), ""), (("t",), "t"), (("=t",), "t"), (("=t*",), "t*"), (("t*",), ""), (("*",), ""), (("t", "u"), "")],
)
def test_one_trial_is_named_whole_and_alone(patterns: tuple[str, ...], one: str) -> None:
    grant = held(trials=patterns)
    assert grant.one_trial == one
    assert grant.names_trial(one or "t")


@pytest.mark.parametrize("what", ["trials", "actors"])
def test_a_seat_is_one_actor_of_one_trial(what: str) -> None:
    one = {"trials": ("t",), "actors": ("a",), "roles": frozenset([Role.SEAT])}
    assert held(**one).one_trial == "t"
    assert held(**one | {what: ("=x*",)})
    for patterns in ((), ("x*",), ("x", "y")):
        with pytest.raises(InvalidArgumentError, match=r"^role seat: expected one trial and one actor, each without"):
            held(**one | {what: patterns})


def test_patterns() -> None:
    grant = held(trials=("lab-*", "=free*"), classes=("player",), actors=("=ann",))
    assert grant.names_actor("lab-1", "player", "ann")
    assert grant.names_actor("free*", "player", "ann")
    for trial_id, actor_class, name in [
        ("lab", "player", "ann"),
        ("free", "player", "ann"),
        ("freed", "player", "ann"),
        ("lab-1", "players", "ann"),
        ("lab-1", "player", "=ann"),
        ("lab-1", "player", "anna"),
    ]:
        assert not grant.names_actor(trial_id, actor_class, name)
    assert held().names_actor("any", "of", "them")


@pytest.mark.parametrize("field", ["trials", "stored_bytes", "models"])
def test_quotas_are_whole_numbers_from_0_on(field: str) -> None:
    for number in (0, 1, 2**63 - 1, None):
        assert getattr(Quotas(**{field: number}), field) == number
    for wrong in (-1, 2**63, 1.0, "1", True):
        given: Any = {field: wrong}
        with pytest.raises(
            InvalidArgumentError, match=f"^quota {field}: expected a whole number from 0 on, got {wrong!r}$"
        ):
            Quotas(**given)


@pytest.mark.parametrize(
    ("quotas", "text"),
    [
        (Quotas(), ""),
        (Quotas(trials=0), "trials=0"),
        (Quotas(trials=2, stored_bytes=1024, models=3), "trials=2 stored_bytes=1024 models=3"),
    ],
)
def test_quotas_as_text(quotas: Quotas, text: str) -> None:
    assert quotas.text() == text
    assert Quotas.parse(text) == quotas


@pytest.mark.parametrize("text", ["trials", "trials=many", "seats=2", "trials=-1", "trials=1=2"])
def test_text_that_is_no_quotas(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="quota"):
        Quotas.parse(text)
