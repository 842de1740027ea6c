"""Check that Trio runs, where a program enters the package, so that an asyncio program learns what it lacks."""

from __future__ import annotations

import trio


def require_trio(name: str) -> None:
    """Raise an error that says what to do, unless Trio runs the caller.

    Args:
        name: of the function that needs Trio.

    Raises:
        RuntimeError: nothing runs the caller, or another event loop than Trio's.
    """
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            f"{name} needs Trio: start the program with trio.run(...). "
            "Programs on asyncio use trio_cogment.aio, ordinary functions trio_cogment.sync"
        )
