"""The command `cogment` gives way to any other one on PATH, and otherwise is ours."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trio_cogment import __version__
from trio_cogment.cli.cogment import other_cogment

ROOT = Path(__file__).resolve().parents[2]


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def entry(folder: Path) -> Path:
    """A script as installers write it."""
    module, _, function = declared().partition(":")
    code = f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    return write(folder / "cogment", code)


def declared() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(project["scripts"]["cogment"], str)
    return project["scripts"]["cogment"]


def output_of(program: Path, *folders: Path, name: str | None = None) -> str:
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    command = [str(program) if name is None else name, "version"]
    done = subprocess.run(
        command, executable=program, env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def _no_cogment_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed on this machine."""
    folders = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(one for one in folders if not (Path(one) / "cogment").exists()))


def test_alone_it_is_ours(tmp_path: Path) -> None:
    ours = entry(tmp_path / "a")
    assert output_of(ours, tmp_path / "a") == __version__
    assert output_of(ours) == __version__


def test_it_gives_way_wherever_the_other_one_is(tmp_path: Path) -> None:
    ours, other = entry(tmp_path / "a"), write(tmp_path / "b" / "cogment", '#!/bin/sh\necho "other $1"\n')
    for folders in ((ours.parent, other.parent), (other.parent, ours.parent), (other.parent,)):
        assert output_of(ours, *folders) == "other version"


def test_it_does_not_give_way_to_itself_or_its_like(tmp_path: Path) -> None:
    ours = entry(tmp_path / "a")
    link = tmp_path / "c" / "cogment"
    link.parent.mkdir()
    link.symlink_to(ours)
    second = entry(tmp_path / "d")
    folders = (link.parent, second.parent, ours.parent)
    assert output_of(ours, *folders) == __version__
    assert output_of(link, *folders) == __version__


def test_what_is_no_program_is_passed_over(tmp_path: Path) -> None:
    ours = entry(tmp_path / "a")
    (tmp_path / "b" / "cogment").mkdir(parents=True)
    write(tmp_path / "c" / "cogment", "").chmod(0o644)
    assert output_of(ours, tmp_path / "b", tmp_path / "c", tmp_path / "none") == __version__
    # The system cannot run this one.
    write(tmp_path / "d" / "cogment", "\0\0\0")
    assert output_of(ours, tmp_path / "d") == __version__


def test_a_wrapper_that_comes_back_ends(tmp_path: Path) -> None:
    ours = entry(tmp_path / "a")
    for text in (f'exec "{ours}" "$@"', f'"{ours}" "$@"'):
        wrapper = write(tmp_path / "b" / "cogment", f"#!/bin/sh\n{text}\n")
        assert output_of(wrapper, wrapper.parent) == __version__


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "b" / "cogment", "#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    assert other_cogment({"PATH": "b"}, "/a/cogment") == str(tmp_path / "b" / "cogment")
    assert other_cogment({}, "/a/cogment") == other_cogment({"PATH": os.defpath}, "/a/cogment")
