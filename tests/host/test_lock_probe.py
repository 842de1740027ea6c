"""A look at a lock tells what `Files.lock` would meet, and takes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trio_cogment.host.files import LockedError, SystemFiles
from trio_cogment.host.lock_probe import is_locked


def test_a_lock_is_seen_for_as_long_as_it_is_held(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert not is_locked(path)
    assert not os.path.exists(path)
    lock = SystemFiles().lock(path)
    assert is_locked(path)
    with pytest.raises(LockedError):
        SystemFiles().lock(path)
    lock.release()
    assert not is_locked(path)
    SystemFiles().lock(path).release()  # the look has left none


def test_what_cannot_be_looked_at_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(str(tmp_path / "no" / "lock"))
    assert not is_locked("a\0b")
    assert not is_locked(str(tmp_path))
