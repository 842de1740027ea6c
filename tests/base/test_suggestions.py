"""Suggestions for misspelt names."""

from __future__ import annotations

import pytest

from trio_cogment.base.suggestions import similar, suggestion, with_suggestion

KNOWN = ["player", "judge"]


@pytest.mark.parametrize(("name", "found"), [("playr", "player"), ("player", "player"), ("zebra", None)])
def test_the_name_that_is_most_like_it(name: str, found: str | None) -> None:
    assert similar(name, KNOWN) == found
    assert similar(name, []) is None


def test_how_alike_they_have_to_be() -> None:
    assert similar("pla", KNOWN, cutoff=0.5) == "player"
    assert similar("pla", KNOWN, cutoff=0.8) is None


def test_what_an_error_says() -> None:
    assert suggestion("playr", iter(KNOWN)) == "did you mean 'player'?"
    assert suggestion("zebra", iter(KNOWN)) == "expected one of player, judge"
    assert suggestion("zebra", []) == "expected one of none"
    assert suggestion("zebra", KNOWN, "ask somebody") == "ask somebody"
    assert with_suggestion("no such class", "playr", KNOWN) == "no such class; did you mean 'player'?"
    assert with_suggestion("no such class", "zebra", KNOWN) == "no such class"
