"""A program that does not run on Trio learns what it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from trio_cogment import connect, open_platform
from trio_cogment.base.host.running import require_trio


async def test_a_task_of_trio() -> None:
    require_trio("this")


def test_ordinary_code() -> None:
    with pytest.raises(RuntimeError, match=r"^this needs Trio: start the program with trio\.run"):
        require_trio("this")


@pytest.mark.parametrize("entrance", [open_platform, connect])
def test_a_program_on_asyncio(entrance: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    async def main() -> None:
        async with entrance():
            raise AssertionError("it was entered")

    with pytest.raises(RuntimeError, match=rf"^{entrance.__name__} needs Trio: .* asyncio use trio_cogment\.aio"):
        asyncio.run(main())
