"""Temporary files and folders beside their places: nobody else's, and gone after those that were killed."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trio_cogment.base.host.beside import (
    create_durably,
    left_behind,
    make_folder_beside,
    open_beside,
    remove_left_beside,
)


def test_a_file_beside_another_one_is_nobody_else_s(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (tmp_path / "file.tmp").write_text("mine")
    one, first = open_beside(str(path))
    other, second = open_beside(str(path))
    with one, other:
        one.write(b"one")
        other.write(b"other")
    assert Path(first).parent == Path(second).parent == tmp_path
    assert (Path(first).read_bytes(), Path(second).read_bytes()) == (b"one", b"other")
    assert all(name.startswith(f".file.{os.getpid()}.") for name in map(os.path.basename, (first, second)))
    assert (tmp_path / "file.tmp").read_text() == "mine"
    os.remove(first)
    third, name = open_beside(str(path))
    third.close()
    assert name == first  # no number is lost


def test_who_may_read_the_file_that_is_there_may_read_the_one_that_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("secret")
    path.chmod(0o600)
    file, name = open_beside(str(path))
    file.close()
    assert stat.S_IMODE(os.stat(name).st_mode) == 0o600


def test_names_of_any_length_have_room(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)
    file, name = open_beside(str(path))
    file.close()
    os.replace(name, path)
    with pytest.raises(FileNotFoundError):
        open_beside(str(tmp_path / "no" / "file"))


def test_a_file_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"

    def fail(_descriptor: int) -> None:
        assert not path.exists(), "nobody sees it before it is durable"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="No space"):
            create_durably(str(path), b"content")
    assert list(tmp_path.iterdir()) == []
    create_durably(str(path), b"content")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"content", 0o600)
    with pytest.raises(FileExistsError):
        create_durably(str(path), b"other")
    assert [found.read_bytes() for found in tmp_path.iterdir()] == [b"content"]


def test_a_file_is_made_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_source: str, _target: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("os.link", fail)
    path = tmp_path / "file"
    create_durably(str(path), b"content")
    with pytest.raises(FileExistsError):
        create_durably(str(path), b"other")
    assert [found.read_bytes() for found in tmp_path.iterdir()] == [b"content"]


#: Kills itself before a step on the disk.
KILLED = """
import os, signal, sys
from trio_cogment.base.host.beside import create_durably, make_folder_beside, open_beside
path, how, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
taken = 0
def look(event, arguments):
    global taken
    if event in ("os.link", "os.remove", "os.mkdir", "os.rename"):
        if taken == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        taken += 1
sys.addaudithook(look)
if how == "once":
    create_durably(path, b"whole")
elif how == "folder":
    os.rename(make_folder_beside(path)[0], path)
else:
    file, name = open_beside(path)
    with file:
        file.write(b"whole")
        file.flush()
        os.replace(name, path)
"""


def killed(path: Path, how: str, step: int) -> bool:
    """Whether a process that makes a file or folder was killed before this step; if not, it took all of them."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), how, str(step)], capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return bool(done.returncode)


@pytest.mark.parametrize("how", ["once", "folder", "replaced"])
def test_what_a_killed_process_leaves_is_removed_by_the_next(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "file"
    left = set()
    for step in range(9):
        going_on = killed(path, how, step)
        names = {found.name for found in tmp_path.iterdir()}
        left |= names
        if path.is_file():
            assert path.read_bytes() == b"whole"
        open_beside(str(path))[0].close()
        remove_left_beside(str(path))
        assert {found.name for found in tmp_path.iterdir()} == names & {"file"}
        if not going_on:
            break
        if path.is_file():
            path.unlink()
    assert path.exists()
    assert len(left) > 1
    assert "was left behind by a process that was killed; it is removed" in caplog.text


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    path = tmp_path / "one"
    file, name = open_beside(str(path))
    folder, hold = make_folder_beside(str(path))
    others = [tmp_path / ".one.tmp", tmp_path / ".two.1.0.tmp", tmp_path / ".one.1.0.old", tmp_path / ".one.x.0.tmp"]
    for other in others:
        other.write_text("somebody else's")
    (tmp_path / ".one.2.0.tmp").symlink_to(tmp_path / "far")
    os.mkfifo(tmp_path / ".one.3.0.tmp")
    before = sorted(tmp_path.iterdir())
    remove_left_beside(str(path))
    assert sorted(tmp_path.iterdir()) == before
    assert len(before) == 8
    with left_behind(name) as nobodys:
        assert not nobodys
    file.close()
    hold.release()
    remove_left_beside(str(path))
    assert not os.path.exists(name)
    assert not os.path.exists(folder)
    remove_left_beside(str(tmp_path / "none" / "such"))


def test_where_nothing_can_be_locked_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", fail)
    path = tmp_path / "one"
    (tmp_path / ".one.1.0.tmp").mkdir()
    folder, hold = make_folder_beside(str(path))
    hold.release()
    file, name = open_beside(str(path))
    file.close()
    assert {found.name for found in tmp_path.iterdir()} == {
        ".one.1.0.tmp",
        os.path.basename(folder),
        os.path.basename(name),
    }


def test_what_cannot_be_removed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def fail(_path: str) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    (tmp_path / ".one.1.0.tmp").write_text("old")
    monkeypatch.setattr("os.remove", fail)
    remove_left_beside(str(tmp_path / "one"))
    assert ".one.1.0.tmp was left behind by a process that was killed, and cannot be removed" in caplog.text
