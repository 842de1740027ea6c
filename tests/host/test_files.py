"""What the file operations promise beyond those of the simulated disk, which are in testing/sim/test_disk.py."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from trio_cogment.host.files import create_durably, open_beside


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
