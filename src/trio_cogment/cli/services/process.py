"""A server process from its start to its end: signals, the status file, and the time that a stop may take."""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import trio

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services.early_signals import HANGUP, STOPPING, EarlySignals
from trio_cogment.cli.services.task_dump import task_lines

INITIALIZING = b"I"
READY = b"R"
TERMINATED = b"T"

#: How long a stop may take before everything is cancelled; with the shielded ends that follow it stays below 5 s.
STOP_SECONDS = 1.5

#: How long a stop waits for the list of tasks: stderr may be a pipe that nobody reads.
_TELL_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Stop:
    """What a signal does: a start is cancelled at once, a server that serves gets time for an orderly stop.

    Attributes:
        asked: set by the first signal.
        reason: the name of that signal, if it is known.
        starting: the start runs in it.
        finished: everything runs in it; cancelled when the stop takes too long.
        give_up_seconds: when after the signal the process ends, even if something does not: code of users in a worker
            thread cannot be cancelled. By default that is waited for, as something is being written.
    """

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.reason = "a signal"
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
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


async def run_until_signal(
    serve: Callable[[StatusFile, Stop], Awaitable[None]],
    early: EarlySignals | None = None,
    reload: Callable[[], object] = lambda: None,
) -> Failure | None:
    """Run a server until a signal has stopped it; a second one ends the process at once.

    SIGTERM, SIGINT and SIGQUIT stop it, and SIGHUP if its terminal is gone. SIGQUIT also tells on stderr, and in the
    log if that is a file, what every task is doing. Any other SIGHUP lets it read its files again.

    Args:
        serve: returns some time after `Stop.asked` is set; it writes what it has reached to the status file.
        early: a signal may have come already.
        reload: reads the files again; it blocks. What it raises is logged.

    Returns:
        Why it could not start; None after a signal.
    """
    failure: Failure | None = None
    status, stop = StatusFile(), Stop()
    early = early or EarlySignals()
    with trio.open_signal_receiver(*STOPPING, *HANGUP) as signals, _stacks_of_threads():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_Watch(stop, status, early, reload).run, signals)
            try:
                with stop.finished:
                    await serve(status, stop)
            except Failure as error:
                failure = error
            finally:
                status.close()
            nursery.cancel_scope.cancel()
    return failure


class _Watch:
    """Does what signals ask for."""

    def __init__(self, stop: Stop, status: StatusFile, early: EarlySignals, reload: Callable[[], object]) -> None:
        self._stop = stop
        self._status = status
        self._early = early
        self._reload = reload
        self._reading = trio.Lock()

    async def run(self, signals: AsyncIterator[int]) -> None:
        async with trio.open_nursery() as nursery:
            if not self._early.came:
                await self._until_stop(signals, nursery)
            nursery.start_soon(self._stop.run)
            with trio.move_on_after(self._stop.give_up_seconds):
                async for number in signals:
                    if self._is_stop(number):
                        # A second signal means: do not wait for the orderly stop.
                        self._status.close()
                        os._exit(128 + number)
            _log.warning(
                "code has not ended %g seconds after the signal; the process ends without it",
                self._stop.give_up_seconds,
            )
            self._status.close()
            os._exit(1)

    async def _until_stop(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if number == signal.SIGQUIT:
                nursery.start_soon(_tell, task_lines())
            if self._is_stop(number):
                self._stop.reason = signal.Signals(number).name
                return
            nursery.start_soon(self._read_again)

    def _is_stop(self, number: int) -> bool:
        return number not in HANGUP or self._early.terminal.is_gone()

    async def _read_again(self) -> None:
        async with self._reading:
            _reopen_log()
            try:
                await trio.to_thread.run_sync(self._reload, abandon_on_cancel=True)
            except Exception as error:  # noqa: BLE001  the server goes on with what it has read before
                _log.error("SIGHUP: the files could not be read again, and nothing has changed: %s", error)
            else:
                _log.info("SIGHUP: the files were read again")


def _reopen_log() -> None:
    """Let the log go on in a new file if somebody has moved the present one away."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.close()  # the next record opens it


async def _tell(lines: list[str]) -> None:
    """Write lines to stderr, and to the log if that is a file; in a thread, as nobody may read them.

    A server that stops at once still writes them to their end, unless that takes longer than _TELL_SECONDS.
    """

    def write() -> None:
        if sys.stderr is not None:
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()
        if any(isinstance(handler, logging.FileHandler) for handler in logging.getLogger().handlers):
            for line in lines:
                _log.warning("SIGQUIT: %s", line)

    try:
        with trio.move_on_after(_TELL_SECONDS, shield=True):
            await trio.to_thread.run_sync(write, abandon_on_cancel=True)
    except OSError:
        pass  # nobody can be told


@contextmanager
def _stacks_of_threads() -> Iterator[None]:
    """Let SIGQUIT also show what each thread is doing: at once, even when Python code keeps Trio from running.

    `faulthandler.register` would show code that never returns from C, too. But it reads stacks of threads that run, and
    that ends the process with SIGSEGV now and then.
    """
    before = signal.getsignal(signal.SIGQUIT) if hasattr(signal, "SIGQUIT") else None
    if not callable(before):
        yield
        return

    def tell(number: int, frame: FrameType | None) -> None:
        try:
            faulthandler.dump_traceback(sys.stderr)
        except (AttributeError, OSError, RuntimeError, ValueError):
            pass  # there is no stderr
        before(number, frame)

    signal.signal(signal.SIGQUIT, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGQUIT, before)
