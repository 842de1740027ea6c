"""Folders take their places together, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trio_cogment.base.errors import AlreadyExistsError
from trio_cogment.base.host.beside import Hold, make_folder_beside
from trio_cogment.rl.datasets.placing import Placement, put_in_place, put_right


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


def test_what_is_replaced_is_held_until_it_is_back(tmp_path: Path) -> None:
    placement = Placement(folder(tmp_path / "0.tmp", "new"), folder(tmp_path / "there", "old"), overwrite=True)
    placement.put()
    assert placement.replaced is not None
    with pytest.raises(BlockingIOError):
        Hold(str(placement.replaced))
    placement.undo()
    assert texts(tmp_path) == {"there": "old", "0.tmp": "new"}
    Hold(str(tmp_path / "there")).release()


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


def test_what_goes_on_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A reader that comes while an export is between its two names."""
    target = folder(tmp_path / "there", "old")
    written, hold = make_folder_beside(str(target))
    Path(written, "text").write_text("new")
    placement = Placement(Path(written), target, True, hold)
    rename, looked = os.rename, []

    def look(source: Path, to: Path) -> None:
        if to == target:
            before = sorted(tmp_path.iterdir())
            put_right(target)
            assert sorted(tmp_path.iterdir()) == before
            looked.append(before)
        rename(source, to)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.rename", look)
        put_in_place([placement])
    assert len(looked) == 1
    assert target not in looked[0]
    assert texts(tmp_path) == {"there": "new"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fcntl.flock", _locked)
        again = Placement(folder(tmp_path / "1.tmp", "newer"), target, overwrite=True)
        with pytest.raises(BlockingIOError):
            again.put()
    assert texts(tmp_path / "there") == {".": "new"}
    assert not caplog.text


def _locked(_descriptor: int, _how: int) -> None:
    raise BlockingIOError


def test_of_several_the_newest_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As releases before this one have left them; a link stays one."""
    target = tmp_path / "there"
    folder(tmp_path / ".there.0.old", "older")
    folder(tmp_path / ".there.1.old", "x").rename(tmp_path / ".there.2.old")
    (tmp_path / ".there.2.old" / "text").write_text("newest")
    folder(tmp_path / ".there.4711.0.tmp", "half")
    folder(tmp_path / ".else.0.old", "else")
    (tmp_path / "link").symlink_to(target)
    put_right(tmp_path / "link")
    assert texts(tmp_path) == {"there": "newest", ".else.0.old": "else"}
    assert sorted(os.listdir(tmp_path)) == [".else.0.old", "link", "there"]
    assert f"{target}: an export was killed while it replaced this; what was there is back" in caplog.text


@pytest.mark.parametrize("replaced", ["", "old"])
def test_an_empty_folder_that_was_made_since_is_no_replacement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, replaced: str
) -> None:
    """`mkdir -p` of a script, after an export was killed between its two steps."""
    folder(tmp_path / ".there.0.old", "old")
    if not replaced:  # what was moved away last was an empty folder, too
        (tmp_path / ".there.1.old").mkdir()
    (tmp_path / "there").mkdir()
    put_right(tmp_path / "there")
    assert texts(tmp_path) == {"there": "old"}
    assert os.listdir(tmp_path) == ["there"]
    assert "what was there is back" in caplog.text


def test_what_cannot_be_put_right_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_source: Path, _target: Path) -> None:
        raise PermissionError("not yours")

    folder(tmp_path / ".there.0.old", "old")
    monkeypatch.setattr("os.rename", fail)
    put_right(tmp_path / "there")
    put_right(tmp_path / "none" / "there")
    assert "cannot be put right: not yours" in caplog.text
