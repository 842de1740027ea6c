"""Whatever counts bytes, messages, users or entries is counted again at set times of a run, and at rest."""

from __future__ import annotations

import trio

from trio_cogment.testing import Counts

#: How often everything is counted again.
COUNTED_SECONDS = 2.0


def check_counts(counts: Counts, *, at_rest: bool = False) -> None:
    """Whatever is counted is this many, and at rest nothing is left of it."""
    wrong = counts.wrong(at_rest=at_rest)
    assert not wrong, f"counted wrongly: {'; '.join(wrong)}"


async def count_now_and_then(counts: Counts) -> None:
    """Count everything again from time to time."""
    while True:
        await trio.sleep(COUNTED_SECONDS)
        check_counts(counts)
