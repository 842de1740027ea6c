"""Places where programs are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_cogment.cli.launching import Programs
from trio_cogment.cli.launching._launcher import CommandNotFoundError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "data").write_text("")
    return tmp_path


def test_a_name_is_looked_up(folder: Path) -> None:
    assert Programs(str(folder)).found(["program", "x"]) == (str(folder / "program"), ["program", "x"])


def test_a_path_stays_as_it_is(folder: Path) -> None:
    assert Programs(str(folder)).found(["./program", "x"]) == ("./program", ["./program", "x"])


def test_what_is_not_there(folder: Path) -> None:
    for name in ("nothing", "data", ""):
        with pytest.raises(CommandNotFoundError):
            Programs(str(folder)).found([name])


def test_fallbacks(folder: Path) -> None:
    programs = Programs(str(folder), {"cogment": ["/python", "-m", "us"], "program": ["/no"]})
    assert programs.found(["cogment", "x"]) == ("/python", ["/python", "-m", "us", "x"])
    assert programs.found(["program"]) == (str(folder / "program"), ["program"])
