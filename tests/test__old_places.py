"""Old places of modules: every name of the documents of 0.2.0, and modules that are the same under both names."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trio_cogment import actor_params, open_platform, trial_params
from trio_cogment._old_places import MOVED, new_place

DOCUMENTED = [
    line
    for line in Path(__file__).with_name("documented_names.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
#: Prints the file from which each warning of an import seems to come.
PROGRAM = """
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from {module} import {name}
for warning in caught:
    if warning.category is DeprecationWarning and "trio_cogment" in str(warning.message):
        print(warning.filename, warning.message, sep="|")
"""


def resolved(name: str) -> object:
    """Import as much of a dotted name as is a module, and get the rest from it."""
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), attribute)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_what_the_documents_of_0_2_0_name_is_still_there(name: str) -> None:
    assert resolved(name) is not None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_another_name_of_the_same_module(old: str) -> None:
    new = importlib.import_module(f"trio_cogment.{MOVED[old]}")
    spec = new.__spec__
    assert importlib.import_module(f"trio_cogment.{old}") is new
    assert new.__spec__ is spec is not None
    assert new.__name__ == spec.name == f"trio_cogment.{MOVED[old]}"


def test_the_longest_name_that_moved_counts() -> None:
    assert new_place("trio_cogment.rl.seats.doors") == "trio_cogment.play.human_pages"
    assert new_place("trio_cogment.rl.seats.base") == "trio_cogment.seats.base"
    assert new_place("trio_cogment.rl.seats") == "trio_cogment.seats"
    assert new_place("trio_cogment.rl.views") is None
    assert new_place("trio_cogment.seats") is None
    assert new_place("errors") is None


@pytest.mark.parametrize(
    ("module", "name", "new"),
    [
        ("trio_cogment.errors", "RpcError", "trio_cogment.base.errors"),
        ("trio_cogment.host.files", "Files", "trio_cogment.base.host.files"),
        ("trio_cogment", "errors", "trio_cogment.base.errors"),
    ],
)
def test_a_program_is_told_the_new_name_where_it_uses_the_old_one(
    tmp_path: Path, module: str, name: str, new: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(module=module, name=name))
    done = subprocess.run([sys.executable, str(program)], check=True, capture_output=True, text=True)
    told = [line.split("|") for line in done.stdout.splitlines()]
    assert any(new in message for _, message in told)
    assert {file for file, _ in told} == {str(program)}


def test_new_names_warn_of_nothing() -> None:
    code = "import trio_cogment.base.errors, trio_cogment.servers.orchestrator, trio_cogment.play.human_pages"
    done = subprocess.run([sys.executable, "-W", "error::DeprecationWarning:trio_cogment", "-c", code], check=False)
    assert done.returncode == 0


def test_what_is_nowhere_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"trio_cogment\.nowhere"):
        importlib.import_module("trio_cogment.nowhere")


async def test_keywords_of_0_2_0_are_taken_with_a_warning() -> None:
    params = trial_params([actor_params("ann", "player")])
    with pytest.warns(
        DeprecationWarning, match=r"default_params=\) is PlatformConfig\(default_params=\) now"
    ) as caught:
        opened = open_platform(**old(default_params=params))
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    async with opened as platform:
        assert platform.orchestrator.default_params == params
    with pytest.warns(DeprecationWarning, match=r"sample_sink=\) is open_platform\(store=\) now"):
        opened = open_platform(**old(sample_sink=Keep()))
    async with opened as platform:
        assert platform.datastore is None
    with pytest.warns(DeprecationWarning, match="sample_sink"), pytest.raises(ValueError, match="sample_sink"):
        open_platform(**old(store="memory:", sample_sink=Keep()))


def old(**keywords: Any) -> Any:
    """Return keywords that type checkers know no more."""
    return keywords


class Keep:
    """A sink that nobody writes to."""

    def open(self, *_trial: Any) -> Any:
        raise NotImplementedError


def test_keywords_are_those_that_are_documented() -> None:
    assert list(inspect.signature(open_platform).parameters) == [
        *("participants", "config", "host", "store", "model_registry", "directory", "metrics", "extensions", "access")
    ]
