"""Every promise in `docs/reliability.md` has its test, and every default is the one in `trio_cogment.base.config`."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tests.sim.counting import DECLARED, missing
from tests.sim.mutations import MUTATIONS, SEEDS
from trio_cogment.base.config import DatastoreConfig, DirectoryConfig, OrchestratorConfig, RpcConfig, TracingConfig

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
UNITS = {"": 1, " KiB": 2**10, " MiB": 2**20}


def promises() -> Iterator[tuple[str, str, str]]:
    for line in TEXT.partition("## How these promises are tested")[0].splitlines():
        if line.startswith("| ") and not line.startswith("| what goes wrong |"):
            _, fault, promise, tests, _ = (cell.strip() for cell in line.split("|"))
            yield fault, promise, tests


def test_every_promise_names_a_test_or_is_none() -> None:
    found = list(promises())
    assert len(found) > 50
    for fault, promise, tests in found:
        assert fault
        if not promise.startswith("**Not promised**: "):
            assert NAMED.search(tests), f"no test shows: {promise}"
        assert not NAMED.sub("", tests).strip(), f"what is this: {tests}"


def test_what_is_not_promised_stands_beside_what_is() -> None:
    refused = " ".join(promise for _, promise, _ in promises() if promise.startswith("**Not promised**"))
    for matter in ("consensus", "resuming them", "exactly-once delivery to actors", "Byzantine"):
        assert matter in refused


def test_every_test_that_is_named_is_there() -> None:
    named = NAMED.findall(TEXT)
    assert len(named) > 90
    tests: dict[str, set[str]] = {}
    for file, name in named:
        if file not in tests:
            tests[file] = in_the_default_run((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert name.startswith("test_")
        assert name in tests[file], f"there is no {file}::{name} in the default run"


#: One that is only for foreign environments or long runs, or for none, would not be what the page says it is.
ELSEWHERE = re.compile(r"pytest\.mark\.(soak|interop|skip|skipif|xfail)\b")


def in_the_default_run(source: str) -> set[str]:
    """Return a module's functions but those that marks, their own or all the module's, keep out of the default run."""
    tree = ast.parse(source)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        marks_all = any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets)
        if marks_all and ELSEWHERE.search(ast.unparse(node)):
            return set()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    # In a parameter's `marks=` they are not a decorator of the test: the other parameters are in the default run.
    return {one.name for one in functions if not any(ELSEWHERE.match(ast.unparse(mark)) for mark in one.decorator_list)}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_a(): ...\nasync def test_b(): ...", {"test_a", "test_b"}),
        ("@pytest.mark.soak\ndef test_a(): ...\ndef test_b(): ...", {"test_b"}),
        ("@pytest.mark.skipif(old, reason='x')\ndef test_a(): ...", set()),
        ("@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.soak), 2])\ndef test_a(x): ...", {"test_a"}),
        ("pytestmark = pytest.mark.soak\ndef test_a(): ...", set()),
        ("pytestmark: Any = [pytest.mark.timeout(9), pytest.mark.interop]\ndef test_a(): ...", set()),
        ("pytestmark = pytest.mark.timeout(9)\ndef test_a(): ...", {"test_a"}),
    ],
)
def test_what_is_not_in_the_default_run_is_noticed(source: str, found: set[str]) -> None:
    assert in_the_default_run(source) == found


def test_numbers_are_the_defaults() -> None:
    defaults = {
        (field.name, getattr(config, field.name))
        for config in (OrchestratorConfig(), RpcConfig(), DirectoryConfig(), DatastoreConfig(), TracingConfig())
        for field in fields(config)
    }
    stated = re.findall(r"`(\w+)` \(([\d.]+)( KiB| MiB|)\)", TEXT)
    assert len(stated) > 20
    for name, number, unit in stated:
        assert (name, float(number) * UNITS[unit]) in defaults, name


def test_every_planted_bug_stands_there_with_its_seed() -> None:
    table = TEXT.partition("<!-- mutations:")[2].partition("<!-- end of mutations -->")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (\d+) \| .+ \|$", table, re.MULTILINE)
    assert [row[:2] for row in rows] == [(mutation.name, mutation.how) for mutation in MUTATIONS]
    assert all(int(seed) < SEEDS for _, _, seed in rows)


def test_tables_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reliability_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("     12 fault: crash\n", "no line"),
        ("     12 fault: crash\n300 seeds in 360 runs, 2 failed\n", "2 seeds failed, 0 of them are mended"),
        ("     12 fault: crash\n300 seeds in 360 runs, 0 failed\n", "never reached: hard end in INITIALIZING, "),
    ],
)
def test_counts_are_those_of_a_run_in_which_all_was_well(printed: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "printed").write_text(printed)
    command = [sys.executable, str(ROOT / "tools" / "reliability_tables.py"), "--check", "--counts"]
    done = subprocess.run([*command, str(tmp_path / "printed")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert told in done.stderr


def test_checking_writes_nothing(tmp_path: Path) -> None:
    counts = ROOT / "tests" / "sim" / "counts.json"
    before = counts.read_bytes()
    printed = "".join(f"{3:7} {name}\n" for name in DECLARED)
    (tmp_path / "printed").write_text(f"{printed}300 seeds in 360 runs, 0 failed\n")
    command = [sys.executable, str(ROOT / "tools" / "reliability_tables.py"), "--check", "--counts"]
    done = subprocess.run([*command, str(tmp_path / "printed")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # the page is held against the counts that there are
    assert counts.read_bytes() == before


def test_counts_of_several_runs_are_added_up() -> None:
    # So that seeds can be run in parts, and what is rare need not be in each of them.
    path = ROOT / "tools" / "reliability_tables.py"
    spec = importlib.util.spec_from_file_location("reliability_tables", path)
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    some = "".join(f"      2 {name}\n" for name in DECLARED)
    report = "seed 7 failed at abc: safety: it broke\n4096 steps, 8 s of virtual time; the last steps:\n  0.5 one\n\n"
    both = tables.read_counts(
        [f"{some}300 seeds in 360 runs, 0 failed\n", "      1 END without\n9 seeds in 9 runs, 0 failed\n"]
    )
    mended = tables.read_counts(
        [f"{report}{some}300 seeds in 360 runs, 1 failed\n"], ["      1 END without\n1 seeds in 2 runs, 0 failed\n"]
    )
    assert mended["reached"].keys() == both["reached"].keys()
    assert (mended["seeds"], mended["runs"], mended["reached"]["END without"]) == (300, 360, 3)
    for not_enough in ([], ["1 seeds in 1 runs, 1 failed\n"]):
        with pytest.raises(SystemExit, match="1 seeds failed, 0 of them are mended"):
            tables.read_counts([f"{some}300 seeds in 360 runs, 1 failed\n"], not_enough)
    assert both == {"seeds": 309, "runs": 369, "reached": dict.fromkeys(sorted(DECLARED), 2) | {"END without": 3}}


def test_the_counts_are_of_many_seeds() -> None:
    """With fewer, what is declared for many would not have to be reached."""
    counted = json.loads((ROOT / "tests" / "sim" / "counts.json").read_text())
    assert counted["seeds"] >= 20_000 > max(DECLARED.values())
    assert not missing(counted["reached"], counted["seeds"])


def test_it_can_be_found() -> None:
    for document in ("README.md", "docs/architecture.md", "docs/simulation.md"):
        assert "reliability.md" in (ROOT / document).read_text(encoding="utf-8"), document
