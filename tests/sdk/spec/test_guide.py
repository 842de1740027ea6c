"""The guide's project, its programs and its error messages are as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import run_main
from tests.type_checker import type_checked
from trio_cogment import load_spec
from trio_cogment.base.errors import InvalidArgumentError

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "project-files.md").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Every block of the guide that begins with a file's name, as that file."""
    for text, path in re.findall(r"^```\w+\n((?:#|//) (\S+\.\w+)\n.*?)^```", GUIDE, re.MULTILINE | re.DOTALL):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [
        *("cogment.yaml", "data.proto", "load.py", "map.proto", "typed.py")
    ]
    return tmp_path


def output_of(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_spec_in_memory(folder: Path) -> None:
    assert output_of(folder, "load.py") == "True 3\n"


def test_the_generated_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (line,) = re.findall(r"^\$ trio-cogment (generate .*)$", GUIDE, re.MULTILINE)
    assert run_main(*line.split()).code == 0
    assert output_of(folder, "typed.py") == "steps: 3\n"
    named = re.findall(r"^\| (`\w+\.(?:py|js)`.*?) \|", GUIDE, re.MULTILINE)
    for name in re.findall(r"`([\w/]+\.\w+)`", " ".join(named)):
        assert (folder / name).exists() or (folder / "web" / "src" / name).exists(), name
    assert re.fullmatch(r"Success: no issues found in \d+ source files\n", type_checked(folder))


def test_the_error_messages(folder: Path) -> None:
    (errors,) = re.findall(r"^```text\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    changes = [
        ("cogment.yaml", "game.Action", "game.Acton"),
        ("data.proto", "world/map.proto", "map.proto"),
        ("data.proto", "steps = 1;", "steps = 1"),
    ]
    for (path, right, wrong), line in zip(changes, errors.splitlines(), strict=True):
        text = (folder / path).read_text()
        (folder / path).write_text(text.replace(right, wrong))
        with pytest.raises(InvalidArgumentError) as caught:
            load_spec(folder)
        assert str(caught.value).replace(f"{folder}/", "") == line
        (folder / path).write_text(text)
