"""Bugs that simulated trials do not find are found by other tests, in copies of the source."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.mutations import MUTATIONS, PACKAGE, ROOT, copy_package
from tests.sim.planted import TESTED, BugForTests

#: A bug may make its tests hang; they take a few seconds without it.
HANGS_SECONDS = 30
#: How pytest ends when tests failed, and when one that had hung left Trio in no state to go on.
FAILED, BROKEN = 1, 3

#: Found in no time.
TRIED = ("a registration in force before it is written",)


def fails(tests: tuple[str, ...], folder: Path) -> bool:
    """Run tests with the copy of the package in a folder until one of them fails; tell whether one does."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert run("-c", "import trio_cogment; print(trio_cogment.__file__)")[1].startswith(str(folder))
    options = ["-q", "-x", "-m", "not soak and not interop", "-p", "no:cacheprovider", f"--timeout={HANGS_SECONDS}"]
    status, told = run("-m", "pytest", *options, *(f"tests/{test}" for test in tests))
    if status == BROKEN:
        assert f"Failed: Timeout (>{HANGS_SECONDS}" in told, told
        return True
    ended = re.search(r"^(?:(\d+) failed, )?\d+ passed|^(\d+) failed", told, re.MULTILINE)
    assert ended is not None, told
    assert status in (0, FAILED), told
    assert (status == FAILED) is (ended[1] is not None or ended[2] is not None), told
    return status == FAILED


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
    planted.bug.apply(copy_package(tmp_path))
    assert fails(planted.tests, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("planted", TESTED, ids=lambda planted: planted.bug.name)
def test_each_is_found(planted: BugForTests, tmp_path: Path) -> None:
    copy = copy_package(tmp_path)
    assert not fails(planted.tests, tmp_path), "without the bug"
    planted.bug.apply(copy)
    assert fails(planted.tests, tmp_path)
