"""Folders take their places together, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trio_cogment.errors import AlreadyExistsError
from trio_cogment.rl.datasets.placing import Placement, put_in_place


def folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "text").write_text(text)
    return path


def texts(folder: Path) -> dict[str, str]:
    return {str(path.parent.relative_to(folder)): path.read_text() for path in folder.rglob("text")}


def test_folders_take_their_places(tmp_path: Path) -> None:
    folder(tmp_path / "there", "old")
    (tmp_path / "empty").mkdir()
    new = [folder(tmp_path / f"{number}.tmp", f"new {number}") for number in range(3)]
    targets = [(tmp_path / "there", True), (tmp_path / "empty", False), (tmp_path / "none", False)]
    put_in_place([Placement(written, *target) for written, target in zip(new, targets, strict=True)])
    assert texts(tmp_path) == {"there": "new 0", "empty": "new 1", "none": "new 2"}
    assert sorted(os.listdir(tmp_path)) == ["empty", "none", "there"]


@pytest.mark.parametrize("fault", ["there", "gone"])
def test_if_one_cannot_all_is_as_before(tmp_path: Path, fault: str) -> None:
    folder(tmp_path / "first", "old first")
    folder(tmp_path / "third", "old third")
    new = [folder(tmp_path / f"{number}.tmp", f"new {number}") for number in range(3)]
    names = [("first", True), ("second", False), ("third", fault == "gone")]
    placements = [
        Placement(written, tmp_path / name, overwrite) for written, (name, overwrite) in zip(new, names, strict=True)
    ]
    if fault == "gone":
        placements[2].written = tmp_path / "nothing"
    with pytest.raises(AlreadyExistsError if fault == "there" else FileNotFoundError, match=r"third|nothing"):
        put_in_place(placements)
    assert texts(tmp_path) == {
        "first": "old first",
        "third": "old third",
        **{f"{number}.tmp": f"new {number}" for number in range(3)},
    }
    assert len(os.listdir(tmp_path)) == 5


def test_what_cannot_be_moved_back_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder(tmp_path / "there", "old")
    placement = Placement(folder(tmp_path / "0.tmp", "new"), tmp_path / "there", overwrite=True)
    placement.put()
    folder(tmp_path / "0.tmp", "somebody else's")
    placement.undo()
    assert "there: cannot be removed" in caplog.text
    assert "what was there is in" in caplog.text
