"""`docs/peers.md` names tests that exist, and one version of each package; `findings/` has the form it should have."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.measured_tables import cells, require_table
from tests.rl_peers.test_melting_pot import NAMES as SUBSTRATES
from tests.rl_peers.test_vmas import NAMES as VMAS
from tests.rl_peers.test_worlds import PLAYED, REFUSED

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "peers.md"
FINDINGS = sorted((ROOT / "findings").glob("*.sh"))
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_PINNED = re.compile(r"(?<![\w/@-])(@?[a-z][\w./-]*(?:\[[\w,]+\])?)(?:==|@)(\d[\w.]*)")
_COLUMNS = 5


def rows() -> list[list[str]]:
    """Return the cells of all rows of the page's tables of surprises."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == _COLUMNS and cells[0] != "one would guess":
            found.append(cells)
    return found


def _is_header(line: str) -> bool:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    below = [lines[place + 1] for place, one in enumerate(lines[:-1]) if one == line]
    return all(re.fullmatch(r"\|( ?-+ ?\|)+", one) for one in below)


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_page_has_its_rows() -> None:
    assert len(rows()) > 40
    above = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and above == "":
            assert _is_header(line), f"a row after an empty line is shown as text: {line}"
        above = line
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and "|---" not in line and line.count(" | ") != _COLUMNS - 1:
            # Of other tables, and none of those with surprises.
            assert "==" not in line, line


@pytest.mark.parametrize("row", rows(), ids=lambda row: re.sub(r"\W+", "-", row[0])[:50])
def test_a_row_names_versions_and_tests(row: list[str]) -> None:
    _guess, happens, _here, versions, tests = row
    assert happens
    assert _PINNED.findall(versions), "expected a version, as package==1.2.3"
    named = _TEST.findall(tests)
    assert named or re.match(r"none: \w.{10,}", tests), "expected tests, or none and why"
    for file, name in named:
        assert (ROOT / file).exists(), file
        assert name in functions_of(file), f"{file} has no {name}"


def test_the_findings_are_those_of_the_page() -> None:
    """In rows: each script is named by one that says what is done about it."""
    named = set(re.findall(r"`findings/(\w+)\.sh`", "\n".join(" ".join(row) for row in rows())))
    assert named == {script.stem for script in FINDINGS}
    elsewhere = set(re.findall(r"findings/(\w+)\.sh", PAGE.read_text(encoding="utf-8")))
    assert elsewhere == named


#: By what a name begins with; more than one package has its environments under Gymnasium's own ids.
_PACKAGES = {
    "minigrid": "MiniGrid, BabyAI",
    "highway_env": "highway-env",
    "popgym": "POPGym",
    "flappy_bird_gymnasium": "Flappy Bird",
    "ale_py": "ALE",
    "mo_gymnasium": "mo-gymnasium",
    "lbforaging": "lbforaging",
    "rware": "rware",
    "textarena": "TextArena",
    "envpool": "EnvPool",
    "dm_control": "dm_control",
    "openspiel": "OpenSpiel",
    "vmas": "VMAS",
    "meltingpot": "Melting Pot",
    "mpe2": "MPE2",
}


def package_of(name: str) -> str:
    own = _PACKAGES.get(re.split(r"[:/.]", name)[0])
    return own or ("Gymnasium" if re.search(r"-v\d+$", name) else "PettingZoo")


def test_the_environments_are_those_that_are_tested() -> None:
    """Played and refused by tests/rl_peers, which have these lists."""
    played = dict.fromkeys([*PLAYED, *VMAS, *(f"meltingpot/{name}" for name in SUBSTRATES)], "played")
    found: dict[str, dict[str, list[str]]] = {}
    for name, what in {**played, **dict.fromkeys(REFUSED, "refused")}.items():
        found.setdefault(package_of(name), {"played": [], "refused": []})[what].append(f"`{name}`")
    assert sum(len(names) for kinds in found.values() for names in kinds.values()) >= 40
    lines = [cells("package", "played", "refused, with what it needs"), cells("---", "---", "---")]
    lines += [
        cells(package, *(", ".join(names) or "-" for names in kinds.values())) for package, kinds in found.items()
    ]
    require_table("peers.md", "environments", lines)


def test_a_package_has_one_version() -> None:
    """That of the page, and of the environments of tests in which it is pinned."""
    pinned: dict[str, set[str]] = {}
    text = "\n".join(row[3] for row in rows()) + (ROOT / "noxfile.py").read_text(encoding="utf-8")
    for name, version in _PINNED.findall(text):
        pinned.setdefault(re.sub(r"\[.*\]", "", name), set()).add(version)
    # An old generator of stubs, h2 as a client of today beside the one that the project has, the SDK of the legacy API,
    # and a script's LeRobot, which is the last one for the oldest Python.
    for name in ("grpcio-tools", "h2", "cogment", "lerobot"):
        pinned.pop(name)
    assert not {name: found for name, found in pinned.items() if len(found) > 1}


def test_a_finding_has_the_versions_of_its_row() -> None:
    """Of what both name; a script may need more, in the versions that its package asks for."""
    for row in rows():
        seen = {(re.sub(r"\[.*\]", "", name), version) for name, version in _PINNED.findall(row[3])}
        names = {name for name, _ in seen}
        for script in re.findall(r"findings/(\w+)\.sh", " ".join(row)):
            text = (ROOT / "findings" / f"{script}.sh").read_text(encoding="utf-8")
            pins = {(re.sub(r"\[.*\]", "", name), version) for name, version in _PINNED.findall(text)}
            shared = {(name, version) for name, version in pins if name in names}
            assert shared, script
            assert shared <= seen, script


@pytest.mark.parametrize("script", FINDINGS, ids=lambda script: script.stem)
def test_a_finding_has_its_form(script: Path) -> None:
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    head = [line[2:] for line in lines[1 : lines.index("set -euo pipefail")] if line.startswith("# ")]
    assert head[0].endswith(".")
    parts = [line.split(":")[0] for line in head if re.match(r"(Versions|Guessed|Behaviour|Matters): ", line)]
    assert parts == ["Versions", "Guessed", "Behaviour", "Matters"]
    text = "\n".join(lines)
    assert _PINNED.search(text), "expected pinned packages"
    assert "mktemp -d" in text
    assert "trap" in text
    assert not re.search(r"trio.cogment", text), "it runs without this project"
    assert "2>/dev/null" not in text, "the text of an assertion would not be seen"
    assert "mkdtemp" not in text, "what it writes is in its folder"
    assert script.stat().st_mode & 0o111, "it is a program"
