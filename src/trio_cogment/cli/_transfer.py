"""Files that are sent or received in pieces: standard input and output too, with progress on a terminal."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import click
import trio

from trio_cogment.cli._client_run import show
from trio_cogment.cli._settings import ClientSettings, Failure
from trio_cogment.host.files import open_beside

#: Reads the next bytes; none are the end.
Read: TypeAlias = Callable[[], Awaitable[bytes]]

#: What is read at a time.
_PIECE_BYTES = 256 * 1024


def _failure(path: Path | None, error: OSError) -> Failure:
    return Failure(f"--file: {path or 'standard output'}: {error.strerror or error}")


class Target:
    """Where pieces are written to; each write waits until the system has it."""

    def __init__(self, file: BinaryIO, path: Path | None) -> None:
        self._file = file
        self._path = path

    async def write(self, data: bytes) -> None:
        """Write all of a piece.

        Raises:
            Failure: there is no room, or no reader any more.
        """
        try:
            # A pipe that nobody reads: Control-C must end the wait.
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

    The file has its new content when the block has been left in good order, and its old one before, and otherwise. A
    link stays one; what is no file (a pipe, a device) stays what it is, and is written to as the pieces come.

    Raises:
        Failure: it cannot be written.
    """
    if path is None:
        if sys.stdout.isatty():
            raise Failure("--file: a terminal is no place for bytes: expected a path, or a pipe")
        yield Target(sys.stdout.buffer, None)
        return
    try:
        # To open a pipe is to wait for its reader: Control-C must end that.
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
    """Open what is written to: a file, its name, and the name it gets once it is whole; None: it has that already."""
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
    """Open a file: gives what reads its next bytes, and its size if it has one. None is standard input.

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
    """As `open_source`, with a size in any case: what comes through a pipe waits in a temporary file.

    Raises:
        Failure: it cannot be read, or not be kept.
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


@contextmanager
def progress(text: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show how far a transfer is, on stderr if it is a terminal; what this gives is called with what is done so far."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    # It takes time to import, and few look.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)


class Patience:
    """Notices that nothing goes on any more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._scope = trio.CancelScope()
        self.renew()

    def renew(self) -> None:
        """Something went on."""
        self._scope.deadline = trio.current_time() + self._seconds

    async def wait(self) -> None:
        """Return when nothing has gone on for too long."""
        with self._scope:
            await trio.sleep_forever()


@asynccontextmanager
async def patience_of(settings: ClientSettings) -> AsyncIterator[Patience]:
    """Give up when nothing goes on for as long as `--timeout` says; what goes on takes as long as it takes.

    A task, not a deadline: a call that is opened under a deadline keeps it, though progress moves it.
    """
    patience = Patience(settings.timeout_seconds)
    gave_up = False

    async def watch(scope: trio.CancelScope) -> None:
        nonlocal gave_up
        await patience.wait()
        gave_up = True
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        yield patience
        nursery.cancel_scope.cancel()
    if gave_up:
        raise Failure(f"nothing went on for {settings.timeout_seconds:g} s (--timeout)")


def report(settings: ClientSettings, message: str, data: Any, *, to_stderr: bool = False) -> None:
    """Print how a transfer went; on stderr, and as text only, where standard output is taken."""
    if not to_stderr:
        show(settings, message, data)
    elif settings.output == "text":
        click.echo(message, err=True)
