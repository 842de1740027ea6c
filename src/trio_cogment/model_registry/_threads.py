"""Where blocking functions run, and what their failures mean to a caller."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import trio

from trio_cogment.errors import ResourceExhaustedError, UnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NO_ROOM = frozenset([errno.ENOSPC, errno.EDQUOT])


class Runner(Protocol):
    """Runs a blocking function to its end and returns (or raises) what it does.

    It may raise `trio.Cancelled` before the function has begun, never after.
    """

    async def __call__(self, function: Callable[..., T], *args: object) -> T:
        """See the class."""


class ThreadRunner:
    """Runs functions in worker threads.

    Args:
        threads: how many at a time; more wait.
    """

    def __init__(self, threads: int) -> None:
        self._limiter = trio.CapacityLimiter(threads)

    async def __call__(self, function: Callable[..., T], *args: object) -> T:
        """See `Runner`."""
        return await trio.to_thread.run_sync(function, *args, limiter=self._limiter)


async def run_inline(function: Callable[..., T], *args: object) -> T:
    """Run a function in this very task: a `Runner` for simulations, where nothing really blocks."""
    await trio.lowlevel.checkpoint()
    return function(*args)


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn what the storage raises into what a caller is told; the log has the rest.

    Raises:
        ResourceExhaustedError: there is no room.
        UnavailableError: anything else is wrong.
        FileExistsError: as it is; whoever may meet one knows what to do.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        logger.error("model registry: %s: %s", doing, error)
        if error.errno in _NO_ROOM:
            raise ResourceExhaustedError(f"{doing}: there is no room left in the storage") from error
        reason = os.strerror(error.errno) if error.errno else "unknown error"
        raise UnavailableError(f"{doing}: the storage failed: {reason}") from error
