"""Folders that are written under another name, and take their places when all of them are whole."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from trio_cogment.errors import AlreadyExistsError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Placement:
    """A folder that is whole, and its place.

    Attributes:
        written: the folder.
        target: its place, on the same file system.
        overwrite: what is there may be replaced; otherwise only an empty folder.
        replaced: where that is meanwhile; None if there is nothing.
    """

    written: Path
    target: Path
    overwrite: bool
    replaced: Path | None = None

    def put(self) -> None:
        """Move the folder to its place. If this raises, all is as before.

        Raises:
            AlreadyExistsError: something is there, which may not be replaced.
            OSError: it cannot be moved.
        """
        if os.path.lexists(self.target):
            if not (self.overwrite or is_empty(self.target)):
                raise AlreadyExistsError(f"{self.target}: expected nothing, but it was made during the export")
            aside = _free(self.target)
            os.rename(self.target, aside)
            self.replaced = aside
        try:
            os.rename(self.written, self.target)
        except OSError:
            self._restore()
            raise

    def undo(self) -> None:
        """Move the folder back, and what it replaced. Never raises."""
        try:
            os.rename(self.target, self.written)
        except OSError:
            _log.exception("%s: cannot be removed", self.target)
        self._restore()

    def settle(self) -> None:
        """Remove what was replaced. Never raises."""
        if self.replaced is not None:
            shutil.rmtree(self.replaced, ignore_errors=True)

    def _restore(self) -> None:
        aside, self.replaced = self.replaced, None
        if aside is not None:
            try:
                os.rename(aside, self.target)
            except OSError:
                _log.exception("%s: what was there is in %s", self.target, aside)


def _free(target: Path) -> Path:
    """Return a path beside another one, at which nothing is; a killed export may have left something at the first."""
    paths = (target.with_name(f".{target.name}.{number}.old") for number in count())
    return next(path for path in paths if not os.path.lexists(path))


def put_in_place(placements: Sequence[Placement]) -> None:
    """Move all folders to their places, or none.

    Raises:
        AlreadyExistsError: something is there, which may not be replaced.
        OSError: one of them cannot be moved.
    """
    with ExitStack() as undo:
        for placement in placements:
            placement.put()
            undo.callback(placement.undo)
        undo.pop_all()
    for placement in placements:
        placement.settle()


def is_empty(path: Path) -> bool:
    """Whether a path is a folder with nothing in it."""
    return path.is_dir() and not any(path.iterdir())
