from __future__ import annotations

import pytest

from trio_cogment.trial._addressing import resolve
from trio_cogment.trial._participant import Actor

from .harness import actor, make_params


def names(pattern: str) -> list[str]:
    params = make_params(actor("a", "k"), actor("b", "l"), actor("k.b", "l"), actor("k.a", "k"))
    return [found.name for found in resolve(pattern, [Actor(index, params) for index in range(4)])]


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
