"""Calls of asynchronous functions from elsewhere: their results, and their ends."""

from __future__ import annotations

import pytest
import trio

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.sdk.bridges.call import Call


async def double(number: int, *, plus: int = 0) -> int:
    await trio.lowlevel.checkpoint()
    if number < 0:
        raise ValueError(number)
    return 2 * number + plus


async def test_a_call_returns_what_its_function_does() -> None:
    ended: list[str] = []
    call = Call(double, (3,), {"plus": 1}, on_end=lambda: ended.append("yes"), noun="platform")
    assert not call.is_over()
    async with trio.open_nursery() as nursery:
        call.start_in(nursery)
    assert (call.is_over(), call.result(), ended) == (True, 7, ["yes"])


async def test_a_call_raises_what_its_function_does() -> None:
    call = Call(double, (-1,), noun="platform")
    async with trio.open_nursery() as nursery:
        call.start_in(nursery)
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            call.result()


async def test_a_call_that_never_begins_is_over_all_the_same() -> None:
    """Whoever waits for it would wait for ever."""
    ended: list[str] = []
    call = Call(double, (3,), on_end=lambda: ended.append("yes"), noun="platform")
    call.refuse()
    assert (call.is_over(), ended) == (True, ["yes"])
    with pytest.raises(FailedPreconditionError, match="the platform was closed before the call returned"):
        call.result()
