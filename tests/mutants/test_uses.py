"""Uses of what is made at import."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.mutants.uses import Uses

ONE = dedent(
    """\
    LIMIT = 5
    HALF: int = LIMIT // 2
    _ALONE = 7


    class Box:
        size = LIMIT

        def full(self, most=3):
            if (
                self.size
                > most
            ):
                return HALF
            return 0


    if HALF:
        print(_ALONE)
    """
)
OTHER = dedent(
    """\
    from one import LIMIT, Box


    def check(value):
        inner = 5
        return value < LIMIT


    def measure(box):
        return box.size
    """
)


@pytest.mark.parametrize(
    ("line", "used"),
    [
        (1, {("other", 6), ("one", 14), ("one", 11), ("other", 10)}),  # also by what is made of it
        (2, {("one", 14)}),
        (3, set()),  # only at import
        (7, {("one", 11), ("other", 10)}),  # an attribute
        (9, {("one", 10), ("one", 11), ("one", 12), ("one", 14), ("one", 15)}),  # a default: the function itself
        (14, set()),  # in a function, which is not run at import
    ],
)
def test_lines_that_use_what_a_line_makes_at_import(line: int, used: set[tuple[str, int]]) -> None:
    assert Uses({"one": ONE, "other": OTHER}).of("one", range(line, line + 1)) == used
