"""The guide's code runs as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import trio_cogment.testing
from trio_cogment.base.host.files import Files
from trio_cogment.testing import FaultPlan, History, SimDisk, SimHost, SimNetwork, World

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "simulation.md"


TEXT = GUIDE.read_text(encoding="utf-8")


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_every_block(tmp_path: Path) -> None:
    """All in one file, as the guide suggests, and each by itself, or behind the players that it uses."""
    blocks = blocks_of("python")
    (players,) = (block for block in blocks if "def world_of_one_word" in block)
    names = re.compile("|".join(re.findall(r"^(?:async )?def (\w+)", players, re.MULTILINE)))
    (tmp_path / "test_guide.py").write_text("\n\n".join(blocks), encoding="utf-8")
    in_one_file = sum(map(count_tests, blocks))
    assert in_one_file == 19 + 24 + 9  # and one of them has 25 seeds, another one 10
    by_themselves = 0
    for number, block in enumerate(blocks):
        parts = [players, block] if block is not players and names.search(block) else [block]
        (tmp_path / f"test_block_{number}.py").write_text("\n\n".join(parts), encoding="utf-8")
        by_themselves += sum(map(count_tests, parts))
    (settings,) = blocks_of("ini")
    (tmp_path / "pytest.ini").write_text(settings, encoding="utf-8")
    plugin = "trio_cogment.testing.pytest_plugin"
    installed = any(entry.value == plugin for entry in entry_points(group="pytest11"))
    loading = [] if installed else ["-p", plugin]
    strict = ["-W", "error", "--strict-markers", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *strict, *loading]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert f"{in_one_file + by_themselves} passed" in done.stdout, done.stdout


def count_tests(block: str) -> int:
    seeds = sum(int(number) - 1 for number in re.findall(r"sim\(seeds=(\d+)\)", block))
    return block.count("def test_") + seeds


def test_the_first_test_is_short(tmp_path: Path) -> None:
    """And needs nothing else: no settings, no other block."""
    first = blocks_of("python")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 6
    (tmp_path / "test_first.py").write_text(first, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:trio"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert "1 passed" in done.stdout, done.stdout


def test_guide_names_what_there_is() -> None:
    unnamed = {"DEFAULT_BUDGET", "LEAST_ACK_SECONDS", "InvariantError", "SimDisk", "CancelledBlock"}
    unnamed |= {"SimConnection", "SimHost", "SimListener", "SimNetwork", "SimStream"}
    for name in set(trio_cogment.testing.__all__) - unnamed:
        assert re.search(rf"\b{name}\b", TEXT), name


#: Of `trio_cogment.base.host.files.Files`, or for the open files of the disk and the streams of the network.
NOT_FOR_SCENARIOS = {*vars(Files), "write", "sync", "read_open", "check_handle", "check_up", "closed", "recount"}


@pytest.mark.parametrize("kind", [World, SimNetwork, SimHost, SimDisk, FaultPlan, History])
def test_guide_names_what_can_be_done(kind: type) -> None:
    methods = {name for name in vars(kind) if not name.startswith("_")}
    attributes = set(re.findall(r"^        (\w+): ", (kind.__doc__ or "").partition("Attributes:")[2], re.MULTILINE))
    for name in (methods | attributes) - NOT_FOR_SCENARIOS:
        assert re.search(rf"[\w)]\.{name}\b", TEXT), name


def test_every_public_name_resolves_and_is_documented() -> None:
    for name in trio_cogment.testing.__all__:
        value = getattr(trio_cogment.testing, name)
        if isinstance(value, type) or callable(value):
            assert value.__doc__, name
    assert set(trio_cogment.testing.__all__) <= set(dir(trio_cogment.testing))
