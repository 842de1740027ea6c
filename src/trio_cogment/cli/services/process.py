"""A server process from its start to its end: signals, the status file, and the time that a stop may take."""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import trio

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.opening import EarlySignals

INITIALIZING = b"I"
READY = b"R"
TERMINATED = b"T"

#: How long a stop may take before everything is cancelled; with the shielded ends that follow it stays below 5 s.
STOP_SECONDS = 1.5

_log = logging.getLogger(__name__)


class Stop:
    """What a signal does: a start is cancelled at once, a server that serves gets time for an orderly stop.

    Attributes:
        asked: set by the first signal.
        starting: the start runs in it.
        finished: everything runs in it; cancelled when the stop takes too long.
        give_up_seconds: when after the signal the process ends, even if something does not: code of users in a worker
            thread cannot be cancelled. By default that is waited for, as something is being written.
    """

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.starting = trio.CancelScope()
        self.finished = trio.CancelScope()
        self.give_up_seconds = math.inf

    async def run(self) -> None:
        """Ask for the stop, and cancel everything after `STOP_SECONDS`."""
        self.asked.set()
        self.starting.cancel()
        await trio.sleep(STOP_SECONDS)
        self.finished.cancel()


class StatusFile:
    """A file or FIFO that tells a supervisor how far the server is, if one is wanted; until it is opened, nothing.

    It is one descriptor, open from `I` to `T`: the reader of a FIFO sees the end of the file after `T`.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._descriptor: int | None = None

    async def open(self, path: Path) -> None:
        """Open the file, and empty it.

        Raises:
            Failure: it cannot be opened.
        """
        try:
            # Opening a FIFO waits for its reader; a signal must be able to end the wait.
            self._descriptor = await trio.to_thread.run_sync(_open, path, abandon_on_cancel=True)
        except OSError as error:
            raise Failure(f"--status_file: {path}: {error.strerror or error}") from error
        self._path = path

    def write(self, letter: bytes) -> None:
        """Add a letter. A reader that has gone or a full disk does not stop the server."""
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, letter)
        except OSError as error:
            _log.warning("status file %s: %s", self._path, error.strerror)

    def close(self) -> None:
        """Write `T` and close the file, once."""
        self.write(TERMINATED)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)


async def run_until_signal(
    serve: Callable[[StatusFile, Stop], Awaitable[None]], early: EarlySignals | None = None
) -> Failure | None:
    """Run a server until SIGTERM or SIGINT have stopped it; a second signal ends the process at once.

    Args:
        serve: returns some time after `Stop.asked` is set; it writes what it has reached to the status file.
        early: a signal may have come already.

    Returns:
        Why it could not start; None after a signal.
    """
    failure: Failure | None = None
    status, stop = StatusFile(), Stop()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, stop, status, early is not None and early.came)
            try:
                with stop.finished:
                    await serve(status, stop)
            except Failure as error:
                failure = error
            finally:
                status.close()
            nursery.cancel_scope.cancel()
    return failure


async def _watch_signals(signals: AsyncIterator[int], stop: Stop, status: StatusFile, came: bool) -> None:
    if not came:
        await anext(signals)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop.run)
        with trio.move_on_after(stop.give_up_seconds):
            async for number in signals:
                # A second signal means: do not wait for the orderly stop.
                status.close()
                os._exit(128 + number)
        _log.warning(
            "code has not ended %g seconds after the signal; the process ends without it", stop.give_up_seconds
        )
        status.close()
        os._exit(1)
