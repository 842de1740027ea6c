"""The command `cogment`: any other program of that name on PATH, or else `trio-cogment`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

NAME = "cogment"
#: How often `cogment` has given way to another one on the way to this process.
_COUNT = "TRIO_COGMENT_YIELDED"
#: A program that comes back here would do so indefinitely.
_MOST = 8
#: What a script of this package has in it, whichever environment it is installed in.
_MARK = b"trio_cogment"
_HEAD_BYTES = 4096


def main() -> None:
    """Become the other `cogment` if there is one; otherwise be `trio-cogment`."""
    count = os.environ.get(_COUNT, "")
    yielded = int(count) if count.isdecimal() else 0
    other = None if yielded >= _MOST else other_cogment(os.environ, sys.argv[0])
    if other is not None:
        os.environ[_COUNT] = str(yielded + 1)
        try:
            os.execv(other, [other, *sys.argv[1:]])
        except OSError:
            pass  # it is for another machine, or has just gone
    from trio_cogment.cli import main as ours

    ours()


def other_cogment(environment: Mapping[str, str], this: str) -> str | None:
    """Return the first program called `cogment` on PATH that does not come from this package.

    Args:
        environment: has PATH.
        this: the program that is running.
    """
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        file = os.path.join(folder or os.curdir, NAME)
        if os.path.isfile(file) and os.access(file, os.X_OK) and not _is_ours(file, this):
            return os.path.abspath(file)
    return None


def _is_ours(file: str, this: str) -> bool:
    if os.path.realpath(file) == os.path.realpath(this):
        return True
    try:
        with open(file, "rb") as opened:
            return _MARK in opened.read(_HEAD_BYTES)
    except OSError:
        return False  # it can be run, but not read
