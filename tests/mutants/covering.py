"""Coverage of a line: the tests and the simulated runs that reach it, and what each of them costs.

They are run once, unchanged, in processes of their own, while coverage notes the lines of each. What came of it is kept
in `.nox/mutants` until the package changes; of its tests only the files that changed are run again.

`python -m tests.mutants.covering tests PACKAGE OUT FILE ...` and `... runs SOURCES OUT NAME ...` are such processes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutants.drawing import ROOT, SOURCE, Mutant
from tests.mutants.uses import uses_in

KEPT = ROOT / ".nox" / "mutants"
#: Of what is kept; another one makes all of it stale.
FORMAT = "1"
#: Tests that the default run of the tests has.
MARKED = "not interop and not javascript and not browser and not soak and not rl_peers and not shells"
#: Folders of tests that have no part in this: other programs, and what many packages do together.
ELSEWHERE = frozenset({"interop", "rl_peers", "mutants", "sim", "fuzz"})
#: Packages that only wrap another one, whose tests are its own as well: by the other one.
FACES: Mapping[str, tuple[str, ...]] = {"sdk": ("aio", "sync", "seats")}
#: What the tests are told with, so that hypothesis neither shrinks what it finds, nor keeps it.
ENVIRONMENT = {"TRIO_COGMENT_TESTS_PROFILE": "mutants", "PYTHONHASHSEED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a test or a run takes, unchanged and watched by coverage."""

    processor_seconds: float
    seconds: float


class Covering:
    """What reaches which line: of tests, by node id, or of runs, by name.

    Args:
        parts: what processes of this module have written.
    """

    def __init__(self, parts: Iterable[dict[str, Any]]) -> None:
        self.costs: dict[str, Cost] = {}
        self.failed: list[str] = []
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.imported: dict[str, set[int]] = defaultdict(set)
        for part in parts:
            names = list(part["items"])
            for name, (processor, seconds, failed) in part["items"].items():
                if failed:
                    self.failed.append(name)
                else:
                    self.costs[name] = Cost(processor, seconds)
            for file, lines in part["lines"].items():
                for line, numbers in lines.items():
                    self._lines[file][int(line)].update(names[number] for number in numbers)
            for file, import_lines in part["imported"].items():
                self.imported[file].update(import_lines)

    def of(self, mutant: Mutant) -> set[str]:
        """Return what reaches a mutant.

        What is evaluated at import concerns all that reaches anything of its module, and the tests named after it,
        which may only read a constant; or simply all where a module is nothing but that: a table.
        """
        lines, imported = self._lines.get(mutant.file, {}), self.imported[mutant.file]
        for place in (mutant.lines, mutant.statement):
            if imported.intersection(place):
                reaching = set().union(*lines.values()) & self.costs.keys()
                named = {name for name in self.costs if is_named_after(name, mutant.file)}
                return reaching | named if reaching else set(self.costs)
            found = self._reaching((mutant.file, line) for line in place)
            if found:
                return found
        return set()

    def closest(self, mutant: Mutant) -> set[str]:
        """Return what reaches the mutant's own lines, or lines of its package that use what it makes at import.

        A constant may be used in other modules alone, by what reaches nothing of its own.
        """
        used = uses_in(mutant.file.partition("/")[0]).of(mutant.file, mutant.lines)
        own = {(mutant.file, line) for line in mutant.lines}
        return self._reaching(own | used)

    def _reaching(self, places: Iterable[tuple[str, int]]) -> set[str]:
        found = {name for file, line in places if file in self._lines for name in self._lines[file].get(line, ())}
        return found & self.costs.keys()


def is_named_after(test: str, file: str) -> bool:
    """Return whether a test, by its node id, is in the file that is named after a module."""
    return f"/test_{Path(file).stem.strip('_')}.py" in test.replace("test__", "test_")


def own_tests(package: str) -> list[Path]:
    """Return the files of a package's own tests.

    These are those in the folder that mirrors it; those elsewhere that import a module of it by its name, not only what
    the package shows; and those of `FACES`. What talks to other programs (`ELSEWHERE`) is not run here.
    """
    tests = ROOT / "tests"
    found = set((tests / package).rglob("test_*.py"))
    module = re.compile(rf"^ *(?:from|import) trio_cogment\.{package.replace('/', '[.]')}\.\w", re.MULTILINE)
    for path in tests.rglob("test_*.py"):
        folder = path.relative_to(tests).parts[0]
        if folder in FACES.get(package, ()) or (folder not in ELSEWHERE and module.search(path.read_text())):
            found.add(path)
    return sorted(found)


def covering_tests(package: str, jobs: int) -> Covering:
    """Return what the package's own tests reach: see `own_tests`."""
    folder = ROOT / "tests" / package
    files = own_tests(package)
    shared = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in files and _counts(path)]
    stamp = _stamp([*sorted((SOURCE / package).rglob("*.py")), *shared], FORMAT)
    path = KEPT / f"{package.replace('/', '-')}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if kept.get("stamp") != stamp:
        kept = {"stamp": stamp, "files": {}}
    stamps = {file.relative_to(ROOT).as_posix(): _stamp([file]) for file in files}
    known = {name: part for name, part in kept["files"].items() if part["stamp"] == stamps.get(name)}
    stale = [name for name in stamps if name not in known]
    for name, part in _noted("tests", package, stale, jobs):
        known[name] = part | {"stamp": stamps[name]}
    _keep(path, {"stamp": stamp, "files": known})
    return Covering(known.values())


def covering_runs(packages: Sequence[str], jobs: int) -> Covering:
    """Return what runs of the simulated suite reach of some packages."""
    files = sorted(SOURCE.rglob("*.py"))
    for folder in ("sim", "account", "models"):
        files += sorted((ROOT / "tests" / folder).rglob("*.py"))
    files += [ROOT / "tests" / "helpers.py", ROOT / "tests" / "servers" / "orchestrator" / "puppets.py"]
    files += [
        path
        for path in sorted((ROOT / "tests").rglob("test_simulated.py"))
        if path.parent.relative_to(ROOT / "tests").as_posix() in packages
    ]
    from tests.mutants.running import run_names  # which imports the package: not where coverage is to see that

    names = run_names()
    files += [ROOT / "tests" / "sim" / "seeds.txt", ROOT / "tests" / "sim" / "corpus.txt"]
    stamp = _stamp(files, " ".join([FORMAT, *packages, *names]))
    path = KEPT / "runs.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if kept.get("stamp") != stamp:
        kept = {"stamp": stamp, "parts": [part for _, part in _noted("runs", " ".join(packages), names, jobs)]}
        _keep(path, kept)
    return Covering(kept["parts"])


def _counts(path: Path) -> bool:
    return "__pycache__" not in path.parts and path.suffix != ".md"


def _stamp(paths: Iterable[Path], what: str = "") -> str:
    content = hashlib.blake2b(what.encode(), digest_size=16)
    for path in paths:
        content.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return content.hexdigest()


def _keep(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(json.dumps(content))
    path.with_suffix(".new").replace(path)


def _noted(kind: str, what: str, names: Sequence[str], jobs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run tests or simulations in some processes, and yield what each wrote: of tests a part for each file."""
    shares = [list(names[number::jobs]) for number in range(jobs) if names[number::jobs]]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:

        def note(number: int) -> dict[str, Any]:
            out = Path(folder) / f"{number}.json"
            command = [sys.executable, "-m", "tests.mutants.covering", kind, what, str(out), *shares[number]]
            environment = os.environ | ENVIRONMENT | {"HYPOTHESIS_STORAGE_DIRECTORY": folder}
            subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
            written: dict[str, Any] = json.loads(out.read_text())
            return written

        for written in pool.map(note, range(len(shares))):
            yield from written.items()


class _Notes:
    """What coverage notes, and what each test or run takes; written in parts."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._coverage = coverage.Coverage(
            data_file=f"{self._folder.name}/coverage",
            include=[f"{SOURCE / package}/*" for package in packages],
            config_file=False,
            branch=False,
        )
        self._items: dict[str, tuple[float, float]] = {}
        self.failed: set[str] = set()
        self._began = (0.0, 0.0)
        self._coverage.start()

    def begin(self, name: str) -> None:
        self._coverage.switch_context(name)
        self._began = time.process_time(), time.perf_counter()

    def end(self, name: str) -> None:
        processor, seconds = self._began
        self._items[name] = round(time.process_time() - processor, 4), round(time.perf_counter() - seconds, 4)
        self._coverage.switch_context("between")

    def write(self, out: Path, part_of: Any) -> None:
        self._coverage.stop()
        self._coverage.save()
        parts: dict[str, dict[str, Any]] = {}
        places: dict[str, tuple[str, int]] = {}
        for name, cost in self._items.items():
            part = parts.setdefault(part_of(name), {"items": {}, "lines": {}, "imported": {}})
            places[name] = part_of(name), len(part["items"])
            part["items"][name] = [*cost, name in self.failed]
        data = self._coverage.get_data()
        for path in data.measured_files():
            file = Path(path).relative_to(SOURCE).as_posix()
            imported: list[int] = []
            for line, contexts in data.contexts_by_lineno(path).items():
                if "" in contexts:
                    imported.append(line)
                for name in contexts:
                    if name in places:
                        part_name, number = places[name]
                        parts[part_name]["lines"].setdefault(file, {}).setdefault(line, []).append(number)
            for part in parts.values():
                part["imported"][file] = imported
        out.write_text(json.dumps(parts))
        self._folder.cleanup()


class _TestNotes:
    """A plugin of pytest that notes each test."""

    def __init__(self, notes: _Notes) -> None:
        self._notes = notes

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._notes.begin(item.nodeid)
        try:
            return (yield)
        finally:
            self._notes.end(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._notes.failed.add(report.nodeid)


def main(kind: str, what: str, out: str, *names: str) -> None:
    notes = _Notes(what.split())
    if kind == "tests":
        options = ["-q", "-p", "no:cacheprovider", "-m", MARKED]
        pytest.main([*options, *names], plugins=[_TestNotes(notes)])
        notes.write(Path(out), lambda name: name.partition("::")[0])
        return
    from tests.mutants.running import run

    logging.disable(logging.CRITICAL)
    for name in names:
        notes.begin(name)
        if run(name) is not None:
            notes.failed.add(name)
        notes.end(name)
    notes.write(Path(out), lambda name: name.partition("/")[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
