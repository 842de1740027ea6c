"""Every code block of README.md and of `docs/` is run, or says who runs it, or why nobody can."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of, ports_of, steps_of, variables_for, with_ports
from tests.docs.running import Runner
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
#: The pages of a folder belong together: a later chapter uses the files of those before it.
STORIES = [ROOT / "docs" / "tutorial"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def read(*paths: Path) -> list[Block]:
    return [
        block
        for path in paths
        for block in blocks_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]


TOGETHER = {path.stem: [path] for path in PAGES}
TOGETHER |= {folder.name: sorted(folder.glob("*.md")) for folder in STORIES}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TOGETHER)
async def test_page(name: str, tmp_path: Path) -> None:
    steps = steps_of(read(*TOGETHER[name]))
    ports = {number: str(free_port()) for number in ports_of(steps)}
    await Runner(tmp_path, variables=variables_for(steps, ports)).run(with_ports(steps, ports))


def test_all_pages_are_read() -> None:
    read_pages = {path for paths in TOGETHER.values() for path in paths}
    made = {"_build", "api"}  # by the site
    there = {path for path in (ROOT / "docs").rglob("*.md") if not made & set(path.relative_to(ROOT).parts)}
    assert there | {ROOT / "README.md"} == read_pages


def test_what_others_run_is_run_by_them() -> None:
    """The test that a comment names reads the page."""
    for path in (path for paths in TOGETHER.values() for path in paths):
        for block in read(path):
            if (test := block.marks.get("tested by")) is not None:
                assert path.name in (ROOT / test).read_text(encoding="utf-8"), f"{block.place}: {test}"


def test_what_nobody_runs_has_a_reason() -> None:
    for block in read(*(path for paths in TOGETHER.values() for path in paths)):
        if (reason := block.marks.get("shown")) is not None:
            assert len(reason.split()) > 2, f"{block.place}: {reason!r} is no reason"
