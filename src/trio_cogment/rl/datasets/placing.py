"""Folders that are written under another name, and take their places when all of them are whole."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from trio_cogment.base.errors import AlreadyExistsError
from trio_cogment.base.host.beside import Hold, left_behind, make_folder_beside, remove, remove_left_beside

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Placement:
    """A folder that is whole, and its place.

    Attributes:
        written: the folder.
        target: its place, on the same file system.
        overwrite: what is there may be replaced; otherwise only an empty folder.
        hold: on the folder, until it is in its place.
        replaced: where that is meanwhile; None if there is nothing.
    """

    written: Path
    target: Path
    overwrite: bool
    hold: Hold | None = None
    replaced: Path | None = None
    # Nobody takes what is replaced for what a killed export has left.
    _replaced_hold: Hold | None = None

    def put(self) -> None:
        """Move the folder to its place. If this raises, all is as before.

        Raises:
            AlreadyExistsError: something is there, which may not be replaced.
            OSError: it cannot be moved, or another export replaces it at the moment.
        """
        if os.path.lexists(self.target):
            if not (self.overwrite or is_empty(self.target)):
                raise AlreadyExistsError(f"{self.target}: expected nothing, but it was made during the export")
            aside = _free(self.target)
            self._replaced_hold = Hold(str(self.target))
            try:
                os.rename(self.target, aside)
                self.replaced = aside
                os.rename(self.written, self.target)
            except OSError:
                self._restore()
                raise
        else:
            os.rename(self.written, self.target)
        if self.hold is not None:
            self.hold.release()

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
            try:
                # If this is killed, what is left of it is not taken for what was there.
                os.rename(self.replaced, self.written)
                shutil.rmtree(self.written)
            except OSError as error:
                _log.warning("%s: what was there before cannot be removed: %s", self.target, error)
        self._release()

    def _restore(self) -> None:
        aside, self.replaced = self.replaced, None
        if aside is not None:
            try:
                os.rename(aside, self.target)
            except OSError:
                _log.exception("%s: what was there is in %s", self.target, aside)
        self._release()

    def _release(self) -> None:
        if self._replaced_hold is not None:
            self._replaced_hold.release()


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


# What killed exports have left


def put_right(target: Path) -> None:
    """Put right what killed exports have left at a place, and log it. Never raises.

    What one has moved away and not replaced is moved back, also where an empty folder is now. What it was writing, and
    what it had replaced, is removed.
    Exports that go on are left alone.

    Args:
        target: the folder of a data set, which need not be there.
    """
    target = Path(os.path.realpath(target))
    for aside in _moved_away(target):
        with left_behind(str(aside)) as nobodys:
            if not nobodys:
                continue
            try:
                if os.path.lexists(target) and not is_empty(target):
                    _remove_replaced(aside, target)
                else:
                    os.rename(aside, target)  # also onto an empty folder, which a script may have made since
                    _log.warning("%s: an export was killed while it replaced this; what was there is back", target)
            except OSError as error:
                _log.warning("%s: a killed export has left %s, which cannot be put right: %s", target, aside, error)
    remove_left_beside(str(target))


def _moved_away(target: Path) -> list[Path]:
    """Return what exports have moved away from a place, the newest first."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.\d+\.old")
    found = []
    try:
        for path in target.parent.iterdir():
            if pattern.fullmatch(path.name):
                found.append((path.lstat().st_ctime_ns, path))  # when it was moved
    except OSError:
        pass  # there is no such folder, or another one puts it right
    return [path for _, path in sorted(found, reverse=True)]


def _remove_replaced(aside: Path, target: Path) -> None:
    temporary, hold = make_folder_beside(str(target))
    try:
        os.rename(aside, temporary)
        remove(temporary)
    finally:
        hold.release()
