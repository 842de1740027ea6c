"""Contents of a disk after a loss of power."""

from __future__ import annotations

import random
from pathlib import Path

from tests.sim.power.disk import Cut, FolderSynced, Made, Operation, Record, Removed, Renamed, Synced, Wrote

_OLD, _NEW = b"o" * 1024, b"n" * 1024


def left(tmp_path: Path, *operations: Operation) -> set[tuple[tuple[str, bytes], ...]]:
    """Return what may be left behind these, in a folder that had a file `a` before."""
    before = tmp_path / "before"
    before.mkdir(exist_ok=True)
    (before / "a").write_bytes(_OLD)
    record = Record(before)
    record.operations += operations
    found = set()
    for seed in range(100):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        record.lose_power(len(operations), random.Random(seed), folder)
        found.add(tuple(sorted((path.name, path.read_bytes()) for path in folder.iterdir())))
    return found


def test_sectors_that_were_not_synced_are_there_or_not(tmp_path: Path) -> None:
    old, new = _OLD[:512], _NEW[:512]
    assert left(tmp_path, Wrote("a", 0, _NEW)) == {(("a", one + two),) for one in (old, new) for two in (old, new)}


def test_what_was_synced_is_there(tmp_path: Path) -> None:
    assert left(tmp_path, Wrote("a", 0, _NEW), Synced("a")) == {(("a", _NEW),)}
    assert left(tmp_path, Cut("a", 3), Synced("a")) == {(("a", b"ooo"),)}
    assert left(tmp_path, Cut("a", 3)) == {(("a", _OLD),), (("a", b"ooo"),)}


def test_names_stay_when_their_folder_is_synced(tmp_path: Path) -> None:
    made, old = ("b", _NEW), ("a", _OLD)
    assert (old,) in left(tmp_path, Made("b"), Wrote("b", 0, _NEW))
    assert left(tmp_path, Made("b"), Wrote("b", 0, _NEW), Synced("b")) == {(old, made)}
    assert left(tmp_path, Removed("a", durably=False)) == {(), (old,)}
    assert left(tmp_path, Removed("a", durably=False), FolderSynced()) == {()}
    assert left(tmp_path, Removed("a", durably=True)) == {()}


def test_a_file_that_is_renamed_has_one_of_two_names(tmp_path: Path) -> None:
    assert left(tmp_path, Renamed("a", "b")) == {(("a", _OLD),), (("b", _OLD),)}
    assert left(tmp_path, Renamed("a", "b"), Renamed("b", "c")) == {(("a", _OLD),), (("c", _OLD),)}
    assert left(tmp_path, Renamed("a", "b"), FolderSynced()) == {(("b", _OLD),)}
