"""Files that must stay under their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trio_cogment.base.host.presence import Presence


def test_a_file_is_missed_when_its_name_leads_elsewhere(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    for path in (first, second):
        Path(path).write_text(path)
    presence = Presence(first, second)
    assert presence.missing() == ""
    with open(second, "a") as file:
        file.write("more of it")
    assert presence.missing() == ""
    os.rename(second, first)
    assert presence.missing() == first
    os.remove(first)
    Path(first).touch()  # many file systems give it the number of the one that has gone
    assert presence.missing() == first
    presence.close()
    presence.close()


def test_what_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(FileNotFoundError):
        Presence(str(tmp_path / "a"), str(tmp_path / "b"))
    assert not before or len(os.listdir("/proc/self/fd")) == before
