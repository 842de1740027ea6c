"""An expression is looked for in lines, and one that takes too long holds nobody up."""

from __future__ import annotations

import re

import pytest
import trio

from trio_cogment.cli.launching._expressions import compiled
from trio_cogment.cli.launching._line_matcher import LINE_BYTES, LineMatcher, LineTooSlowError

#: Python's `re` tries each way to cut such a line in two.
SLOW, LINE = "(a+)+$", b"a" * 64 + b"!"
PATIENCE_SECONDS = 60


async def test_lines_are_looked_at_one_after_the_other() -> None:
    matcher = LineMatcher(compiled(r"Listening \[port:\d+\]"))
    assert not await matcher.search([b"", b"Listening [port:x]", "ä€".encode(), b"\xff"])
    assert await matcher.search([b"no", b"yes: Listening [port:9000]", b"no"])
    await matcher.aclose()
    assert not await matcher.search([b"Listening [port:9000]"])


async def test_flags_hold() -> None:
    for pattern in (re.compile("READY", re.IGNORECASE), compiled("(?i)READY")):
        matcher = LineMatcher(pattern)
        assert await matcher.search([b"ready"])
        await matcher.aclose()
    ascii_only = LineMatcher(compiled(r"^\w+$"))
    assert not await ascii_only.search(["ä".encode()])
    await ascii_only.aclose()


async def test_a_line_that_takes_too_long_is_given_up() -> None:
    matcher = LineMatcher(re.compile(SLOW))
    with trio.fail_after(PATIENCE_SECONDS):
        with pytest.raises(LineTooSlowError):
            await matcher.search([b"b", LINE, b"aaa"])
        assert await matcher.search([b"aaa"])
        await matcher.aclose()


async def test_a_cancelled_search_leaves_nothing() -> None:
    matcher = LineMatcher(re.compile(SLOW))
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(matcher.search, [LINE])
            while matcher._process is None:  # until it has started
                await trio.lowlevel.checkpoint()
            process = matcher._process
            nursery.cancel_scope.cancel()
        assert process.returncode is not None
        assert await matcher.search([b"aaa"])
        await matcher.aclose()


async def test_a_search_that_is_closed_meanwhile_finds_nothing_and_was_not_too_slow() -> None:
    """The other output of a script was matched: nobody waits for this one any more."""
    matcher = LineMatcher(re.compile(SLOW))
    found: list[bool] = []

    async def search() -> None:
        found.append(await matcher.search([LINE, b"aaa"]))

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(search)
            nursery.start_soon(search)
            while matcher._process is None:  # until it has started
                await trio.lowlevel.checkpoint()
            process = matcher._process
            await matcher.aclose()
    assert found == [False, False]
    assert process.returncode is not None


async def test_the_end_of_a_long_line_is_not_looked_at() -> None:
    matcher = LineMatcher(re.compile("end"))
    assert not await matcher.search([b"x" * LINE_BYTES + b"end"])
    assert await matcher.search([b"x" * (LINE_BYTES - 3) + b"end"])
    await matcher.aclose()
