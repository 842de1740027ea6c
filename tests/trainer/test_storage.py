"""Pages of rows: where they begin, and how much is in one."""

from __future__ import annotations

import pytest

from trio_cogment.trainer.storage import Row, page

DATA = [b"aa", b"bbb", b"c", b"dddd"]


@pytest.mark.parametrize(
    ("after", "limit", "max_bytes", "expected"),
    [
        (0, 9, 100, [11, 12, 13, 14]),
        (10, 9, 100, [11, 12, 13, 14]),
        (11, 9, 100, [12, 13, 14]),
        (14, 9, 100, []),
        (99, 9, 100, []),
        (0, 2, 100, [11, 12]),
        (12, 1, 100, [13]),
        # As much as there is room for, and the one with which it is full.
        (0, 9, 1, [11]),
        (0, 9, 2, [11]),
        (0, 9, 3, [11, 12]),
        (0, 9, 5, [11, 12]),
        (0, 9, 6, [11, 12, 13]),
    ],
)
def test_a_page(after: int, limit: int, max_bytes: int, expected: list[int]) -> None:
    found = page(11, DATA, after, limit, max_bytes)
    assert found == [Row(seq, DATA[seq - 11]) for seq in expected]
