"""Names and patterns of receivers."""

from __future__ import annotations

import pytest

from trio_cogment.base.addressing import ActorAddresses

ACTORS = (("a", "k"), ("b", "l"), ("k.b", "l"), ("k.a", "k"))


def names(pattern: str) -> list[str]:
    return [ACTORS[index][0] for index in ActorAddresses(ACTORS).resolve(pattern)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["a"]),
        ("*", ["a", "b", "k.b", "k.a"]),
        ("k.*", ["a", "k.a"]),
        # An exact name comes before the class and name it could be.
        ("k.a", ["k.a"]),
        ("k.b", ["k.b"]),
        ("l.k.b", ["k.b"]),
        ("l.b", ["b"]),
        ("l.a", []),
        ("k.", []),
        ("nobody", []),
    ],
)
def test_resolve(pattern: str, expected: list[str]) -> None:
    assert names(pattern) == expected


def test_the_first_of_several_with_a_name_has_it() -> None:
    addresses = ActorAddresses([("a", "k"), ("a", "l")])
    assert (addresses.resolve("a"), addresses.by_name) == ((0,), {"a": 0})
    assert list(addresses.resolve("l.a")) == [1]


def test_nobody() -> None:
    assert not ActorAddresses(()).resolve("*")
