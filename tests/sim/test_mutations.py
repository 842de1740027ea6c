"""The planted bugs can still be planted, and two are found where they were found; `nox -s mutations` looks for all."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.sim import mutations
from tests.sim.mutations import FOUND, MUTATIONS, Mutation, PlantingError, copy_package, first_words, try_none, try_one

RECORDED = json.loads(FOUND.read_text(encoding="utf-8"))
#: Found by nearly any seed, so that a change of the schedule does not matter: the others need faults of their own.
TRIED = ("a sample lost at the flush", "a watcher missing one transition")


def test_each_was_found() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) > 30
    assert list(RECORDED) == [mutation.name for mutation in MUTATIONS]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_it_changes_one_file_in_one_place(mutation: Mutation, tmp_path: Path) -> None:
    copy = copy_package(tmp_path)
    mutation.apply(copy)
    changed = [
        path.relative_to(copy)
        for path in copy.rglob("*.py")
        if path.read_bytes() != (mutations.PACKAGE / path.relative_to(copy)).read_bytes()
    ]
    assert changed == [Path(mutation.file)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"before": "no such text"}, "has 0 times"),
        ({"before": "trial"}, r"has \d\d+ times"),
        ({"after": "(("}, "would be no Python"),
    ],
)
def test_what_cannot_be_planted_is_told_and_nothing_is_changed(
    changes: dict[str, str], told: str, tmp_path: Path
) -> None:
    copy = copy_package(tmp_path)
    with pytest.raises(PlantingError, match=f"^END before all LAST_ACKs: trial/_closing.py {told}"):
        dataclasses.replace(MUTATIONS[0], **changes).apply(copy)
    path = MUTATIONS[0].file
    assert (copy / path).read_bytes() == (mutations.PACKAGE / path).read_bytes()


@pytest.mark.parametrize("name", TRIED)
def test_it_is_found(name: str) -> None:
    (mutation,) = (mutation for mutation in MUTATIONS if mutation.name == name)
    seed = RECORDED[name]["seed"]
    found = try_one(mutation, seed, 1)
    assert found is not None
    assert found.seed == seed
    assert found.said.startswith("DiffersError: ")
    assert try_none(seed, 1) is None


def test_what_is_said_is_short() -> None:
    error = ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("first\nsecond")]), KeyError()])
    assert first_words(error) == "ValueError: first"
    assert len(first_words(ValueError("x" * 1000))) == mutations.MAX_SAID
    with pytest.raises(AssertionError) as caught:
        exec(compile("assert not 1", __file__, "exec"))  # not rewritten by pytest
    assert first_words(caught.value).startswith("AssertionError: ")
