"""`compact`: makes chunks of the samples in a database that no datastore uses, and the file smaller; `erase_deleted`.

Nothing here knows of Trio: it is for a program that does nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from trio_cogment.base.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError
from trio_cogment.base.sqlite_hold import DatabaseHold
from trio_cogment.servers.datastore._sqlite import FORMAT
from trio_cogment.servers.datastore._sqlite_chunks import Merge
from trio_cogment.servers.datastore._sqlite_writer import SqliteWriter
from trio_cogment.servers.datastore.chunks import DEFAULT_LEVEL, MOST_LEVEL


class Compacted(NamedTuple):
    """What was done.

    Attributes:
        trials: whose samples were put together.
        bytes_before: of the file.
        bytes_after: of the file.
        given_back: what the file does not use was given back; False: there is no room on the disk for that.
    """

    trials: int
    bytes_before: int
    bytes_after: int
    given_back: bool


def compact(
    path: str, *, level: int = DEFAULT_LEVEL, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Compacted:
    """Put the samples of all trials that have ended together, as a datastore does in the background.

    It may be interrupted at any moment, and goes on where it was when it is called again: each step is a transaction.

    Args:
        path: of the database; no datastore may use it.
        level: of zstd's compression; 0: nothing is compressed.
        on_progress: called after each step with how many samples are done, and of how many.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: there is no such level.
        FailedPreconditionError: a datastore uses it, or it is no database of one; the text says which.
        ResourceExhaustedError: the disk is full.
        UnavailableError: the disk or the database is damaged.
    """
    if not 0 <= level <= MOST_LEVEL:
        raise InvalidArgumentError(f"level: expected 0 to {MOST_LEVEL}, got {level}")
    path = os.path.realpath(path)
    with _opened(path, level) as writer:
        before = os.path.getsize(path)
        trials = _merge_all(writer, on_progress)
        given_back = writer.give_back()
    return Compacted(trials, before, os.path.getsize(path), given_back)


def erase_deleted(path: str) -> None:
    """Have nothing of deleted trials be in a file, not even where it is unused. The file is written anew for that.

    Args:
        path: see `compact`, as the errors.

    Raises:
        FailedPreconditionError: as there; or another program is reading the file, which has everything still.
    """
    path = os.path.realpath(path)
    with _opened(path, DEFAULT_LEVEL) as writer:
        while writer.sweep():
            pass
        if not writer.give_back(always=True):
            raise ResourceExhaustedError(
                f"storage: {path}: no room on the disk to write the file anew; what was deleted can be in unused parts"
            )


def check_unused(path: str) -> None:
    """See that a file is one of a datastore, and that none uses it.

    Args:
        path: see `compact`, as the errors.
    """
    with _opened(os.path.realpath(path), DEFAULT_LEVEL):
        pass


@contextmanager
def _opened(path: str, level: int) -> Iterator[SqliteWriter]:
    if not os.path.exists(path):
        raise NotFoundError(f"storage: there is no file {path}")
    hold = DatabaseHold(FORMAT, path)
    try:
        hold.open()
        writer = SqliteWriter(path, full=True, max_bytes=0, clock=time.monotonic, missing=hold.missing, level=level)
        try:
            yield writer
        finally:
            writer.close()
    finally:
        hold.close()


def _merge_all(writer: SqliteWriter, on_progress: Callable[[int, int], None]) -> int:
    unmerged = writer.unmerged()
    total, done = sum(samples for _, samples in unmerged), 0
    on_progress(0, total)
    for number, samples in unmerged:
        merge: Merge | None = Merge(number, None)
        while merge is not None:
            on_progress(done + min(merge.samples, samples), total)
            merge = writer.merge_next(merge)
        done += samples
        on_progress(done, total)
    return len(unmerged)
