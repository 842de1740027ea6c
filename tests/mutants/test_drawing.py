"""Drawings of mutants depend on the seed and the source alone, and are other programs than the source."""

from __future__ import annotations

import pytest

from tests.mutants import drawing
from tests.mutants.drawing import SOURCE, draw, same_program

PACKAGE = "trial/recording"


def test_the_same_seed_draws_the_same() -> None:
    first, again, other = draw(PACKAGE, 12, "1"), draw(PACKAGE, 12, "1"), draw(PACKAGE, 12, "2")
    assert first == again
    assert len({mutant.name for mutant in first}) == 12
    assert first != other
    assert draw(PACKAGE, 6, "1") == first[:6]


def test_a_draw_may_be_of_some_modules_alone() -> None:
    first, *_ = draw(PACKAGE, 1, "1")
    some = draw(PACKAGE, 12, "1", within=first.file)
    assert {mutant.file for mutant in some} == {first.file}
    assert some == draw(PACKAGE, 12, "1", within=first.file)
    assert draw(PACKAGE, 12, "1", within="no such module") == []


def test_a_mutant_is_python_and_another_program() -> None:
    for mutant in draw(PACKAGE, 12, "3"):
        source = (SOURCE / mutant.file).read_text()
        before, after = (compile(text, mutant.file, "exec", dont_inherit=True) for text in (source, mutant.source))
        assert not same_program(before, after)
        head, *lines = mutant.diff().splitlines()
        assert mutant.name in head
        assert tuple(line[1:].strip() for line in lines if line.startswith("-")) == mutant.removed
        assert tuple(line[1:].strip() for line in lines if line.startswith("+")) == mutant.added


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("def f():\n    return 1", "\n\ndef f():\n    return (1)", True),
        ("def f():\n    return 1", "def f():\n    return 2", False),
        ("def f():\n    return 1", "def f():\n    return True", False),
        ("def f():\n    def g(): return 1", "def f():\n    def g(): return 2", False),
        ("x = 1", "x = 2", False),
    ],
)
def test_programs_are_the_same_but_for_their_words(one: str, other: str, same: bool) -> None:
    before, after = (compile(text, "module", "exec") for text in (one, other))
    assert drawing.same_program(before, after) is same
