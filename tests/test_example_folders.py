"""The examples that need nothing else run as their READMEs say; the others are in `interop`, `rl_peers` and `ray`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of, ports_of, steps_of, variables_for, with_ports
from tests.docs.running import Runner
from tests.example_folders import EXAMPLES, example
from tests.ports import free_port


@pytest.mark.parametrize("name", ["text_actor", "dm_env_rpc_agent", "trainer_run", "experiment", "tracing"])
def test_programs_that_print_what_their_readme_says(name: str, tmp_path: Path) -> None:
    found = example(name, tmp_path)
    assert found.run() == found.printed


def test_cartpole(tmp_path: Path) -> None:
    """How well it learns is tested in `tests/rl`; the last digits are the machine's."""
    found = example("cartpole", tmp_path)
    assert [re.sub(r"[0-9.]+$", "", line) for line in found.run()] == [
        re.sub(r"[0-9.]+$", "", line) for line in found.printed
    ]


def test_a_person_and_a_teacher(tmp_path: Path) -> None:
    port = str(free_port())
    found = example("human_and_teacher", tmp_path, **{"8090": port})
    assert found.run(f"--port={port}") == found.printed


def test_rock_paper_scissors(tmp_path: Path) -> None:
    """The launcher names the processes before their lines, and those come in any order."""
    found = example("rock_paper_scissors", tmp_path)
    lines = found.run(str(free_port()), str(free_port()))
    for expected in found.printed:
        assert any(line.endswith(f"stdout: {expected}") for line in lines), lines


def test_tests_of_an_actor(tmp_path: Path) -> None:
    found = example("testing_an_actor", tmp_path)
    (expected,) = found.printed
    assert any(line.startswith(f"{expected} in ") for line in found.run("-p", "no:cacheprovider"))


async def test_a_run_of_the_trainer_with_servers(tmp_path: Path) -> None:
    folder = example("trainer_run", tmp_path).folder
    blocks = blocks_of("README.md", (folder / "README.md").read_text(encoding="utf-8"))
    steps = steps_of([block for block in blocks if block.language == "console"])
    ports = {number: str(free_port()) for number in ports_of(steps)}
    await Runner(folder, variables=variables_for(steps, ports)).run(with_ports(steps, ports))


def test_every_folder_is_in_the_list_and_in_a_test() -> None:
    folders = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")
    listed = re.findall(r"\]\((\w+)/README\.md\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == folders
    here = Path(__file__).parent
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in (
            Path(__file__),
            here / "test_operations_example.py",
            *(here / folder / "test_example.py" for folder in ("interop", "rl_peers", "ray")),
        )
    )
    assert [name for name in folders if f'"{name}"' not in tests] == []


def test_relative_links_lead_somewhere() -> None:
    for page in EXAMPLES.rglob("README.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"
