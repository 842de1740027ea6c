"""Bugs that simulated trials do not find are found by other tests, in copies of the source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.mutations import MUTATIONS, PACKAGE, ROOT, copy_package
from tests.sim.planted import TESTED, BugForTests

#: Found in no time.
TRIED = ("padding that stays counted", "a registration in force before it is written")


def fails(planted: BugForTests, folder: Path) -> bool:
    """Plant a bug in a copy of the package, and run its tests with that until one fails."""
    planted.bug.apply(copy_package(folder))
    tests = [f"tests/{test}" for test in planted.tests]
    options = ["-q", "-x", "-m", "not soak and not interop", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    check = "import sys, trio_cogment, pytest; assert trio_cogment.__file__.startswith(sys.argv.pop(1)); pytest.main()"
    begin = [sys.executable, "-c", check.replace("pytest.main()", "sys.exit(pytest.main(sys.argv[1:]))"), str(folder)]
    done = subprocess.run([*begin, *options, *tests], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 1


def test_they_have_names_of_their_own() -> None:
    names = [planted.bug.name for planted in TESTED] + [bug.name for bug in MUTATIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("planted", TESTED, ids=lambda planted: planted.bug.name)
def test_it_can_be_planted_and_its_tests_are_there(planted: BugForTests, tmp_path: Path) -> None:
    copy = copy_package(tmp_path)
    planted.bug.apply(copy)
    assert (copy / planted.bug.file).read_bytes() != (PACKAGE / planted.bug.file).read_bytes()
    for test in planted.tests:
        path, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / "tests" / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("planted", [one for one in TESTED if one.bug.name in TRIED], ids=lambda one: one.bug.name)
def test_it_is_found(planted: BugForTests, tmp_path: Path) -> None:
    assert fails(planted, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("planted", TESTED, ids=lambda planted: planted.bug.name)
def test_each_is_found(planted: BugForTests, tmp_path: Path) -> None:
    assert fails(planted, tmp_path)
