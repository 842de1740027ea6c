"""Transfers of files, in pieces: files, standard input and output, progress on a terminal, and the time limit."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

import click
import trio

from trio_cogment.base.host.beside import open_beside
from trio_cogment.cli.client.common import ClientSettings, show
from trio_cogment.cli.errors import Failure

#: Reads the next bytes; empty at the end.
Read: TypeAlias = Callable[[], Awaitable[bytes]]

#: How much is read at a time.
_PIECE_BYTES = 256 * 1024


def _failure(path: Path | None, error: OSError) -> Failure:
    return Failure(f"--file: {path or 'standard output'}: {error.strerror or error}")


class Target:
    """A file that pieces are written to; each write returns when the system has them."""

    def __init__(self, file: BinaryIO, path: Path | None) -> None:
        self._file = file
        self._path = path

    async def write(self, data: bytes) -> None:
        """Write all of a piece.

        Raises:
            Failure: the disk is full, or something else is wrong with the file.
            BrokenPipeError: the reader of the pipe has gone.
        """
        try:
            # While the reader of a pipe does not read, Control-C must end the wait.
            await trio.to_thread.run_sync(self._write, data, abandon_on_cancel=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _failure(self._path, error) from error

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        if self._path is None:
            self._file.flush()


@asynccontextmanager
async def open_target(path: Path | None) -> AsyncIterator[Target]:
    """Open a file for the time of an `async with` block; None is standard output.

    The file is replaced in one step when the block ends without an error; until then, and after an error, it has its
    old content. A link stays a link. A pipe or a device is written to as the pieces come.

    Raises:
        Failure: it cannot be written.
    """
    if path is None:
        if sys.stdout.isatty():
            raise Failure("--file: expected a path, or a pipe: a terminal is not a place for bytes")
        yield Target(sys.stdout.buffer, None)
        return
    try:
        # Opening a pipe waits for its reader: Control-C must end the wait.
        file, temporary, final = await trio.to_thread.run_sync(_open_beside, path, abandon_on_cancel=True)
    except OSError as error:
        raise _failure(path, error) from error
    whole = False
    try:
        yield Target(file, path)
        if temporary is None:
            await trio.to_thread.run_sync(file.flush, abandon_on_cancel=True)
        else:
            await trio.to_thread.run_sync(_put_in_place, file, temporary, final)
        whole = True
    except OSError as error:
        raise _failure(path, error) from error
    finally:
        file.close()
        if temporary is not None and not whole:
            temporary.unlink(missing_ok=True)


def _open_beside(path: Path) -> tuple[BinaryIO, Path | None, Path]:
    """Return the file to write to, its name (None: it is not a temporary one), and the name it gets in the end."""
    final = path.resolve()
    if final.exists() and not final.is_file() and not final.is_dir():
        return open(final, "wb"), None, final
    file, temporary = open_beside(str(final))
    return file, Path(temporary), final


def _put_in_place(file: BinaryIO, temporary: Path, path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    os.replace(temporary, path)


@asynccontextmanager
async def open_source(path: Path | None) -> AsyncIterator[tuple[Read, int | None]]:
    """Open a file, None: standard input; yields a function that reads its next bytes, and its size if it has one.

    Raises:
        Failure: it cannot be read.
    """
    if path is None:
        if sys.stdin.isatty():
            raise Failure("--file: a terminal has no bytes: expected a path, or a pipe")
        yield _reader(sys.stdin.buffer), None
        return
    try:
        file = await trio.to_thread.run_sync(lambda: open(path, "rb"))  # noqa: SIM115  closed below
    except OSError as error:
        raise _failure(path, error) from error
    try:
        size = os.fstat(file.fileno()).st_size
        yield _reader(file), size or None  # a FIFO has none
    except OSError as error:
        raise _failure(path, error) from error
    finally:
        file.close()


@asynccontextmanager
async def open_sized_source(path: Path | None) -> AsyncIterator[tuple[Read, int]]:
    """As `open_source`, with a size in any case: the content of a pipe goes through a temporary file.

    Raises:
        Failure: it cannot be read, or the temporary file cannot be written.
    """
    async with open_source(path) as (read, size):
        if size is not None:
            yield read, size
            return
        with tempfile.TemporaryFile() as file:
            size = 0
            try:
                while piece := await read():
                    size += len(piece)
                    await trio.to_thread.run_sync(file.write, piece)
                file.seek(0)
            except OSError as error:
                raise Failure(f"--file: {path or 'standard input'}: {error.strerror or error}") from error
            yield _reader(file), size


def _reader(file: BinaryIO) -> Read:
    # A pipe gives what it has.
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)

    async def read_piece() -> bytes:
        return await trio.to_thread.run_sync(read, _PIECE_BYTES, abandon_on_cancel=True)

    return read_piece


class ShowProgress(Protocol):
    """Shows how far something is."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show the amount done so far, and of how much, if that is known only now."""


@contextmanager
def progress(text: str, total: int | None) -> Iterator[ShowProgress]:
    """Show a progress bar on stderr if it is a terminal; yields a function to call with the amount done so far."""
    if not sys.stderr.isatty():
        yield lambda done, total=None: None
        return
    # Rich takes time to import, and is not needed without a terminal.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done, total=None: bar.update(task, completed=done, total=total)


class ProgressDeadline:
    """A deadline that progress renews."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._scope = trio.CancelScope()
        self.renew()

    def renew(self) -> None:
        """There was progress."""
        self._scope.deadline = trio.current_time() + self._seconds

    async def wait(self) -> None:
        """Return when there was no progress for too long."""
        with self._scope:
            await trio.sleep_forever()


@asynccontextmanager
async def progress_deadline(settings: ClientSettings) -> AsyncIterator[ProgressDeadline]:
    """Cancel the block when it makes no progress for the time of `--timeout`; a slow transfer goes on.

    This is a task and not a deadline, because a call keeps the deadline under which it was opened.

    Raises:
        Failure: there was no progress.
    """
    deadline = ProgressDeadline(settings.timeout_seconds)
    gave_up = False

    async def watch(scope: trio.CancelScope) -> None:
        nonlocal gave_up
        await deadline.wait()
        gave_up = True
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        yield deadline
        nursery.cancel_scope.cancel()
    if gave_up:
        raise Failure(f"no progress for {settings.timeout_seconds:g} s (--timeout)")


def report(settings: ClientSettings, message: str, data: Any, *, to_stderr: bool = False) -> None:
    """Print the result of a transfer; on stderr, and only as text, if standard output has the data."""
    if not to_stderr:
        show(settings, message, data)
    elif settings.output == "text":
        click.echo(message, err=True)
