"""The fuzzing programs' checks on their corpus and on mutations of it; `nox -s fuzz` goes further."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

FOLDER = Path(__file__).parents[1] / "fuzz"
PROGRAMS = sorted({path.stem for path in FOLDER.glob("[a-z]*.py")} - {"corpus", "replay"})


@cache
def seeds() -> dict[str, list[bytes]]:
    """Return the corpus. It is made when it is asked for, which is half of what the engine does: not at import."""
    from tests.fuzz import corpus

    return corpus.seeds()


def test_every_program_has_seeds() -> None:
    assert sorted(seeds()) == PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_corpus_passes(name: str) -> None:
    check = importlib.import_module(f"tests.fuzz.{name}").check
    for seed in [b"", *seeds()[name]]:
        check(seed)


def mutate(seed: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Replace some bytes at some places by others."""
    for place, size, new in changes:
        at = place % (len(seed) + 1)
        seed = seed[:at] + new + seed[at + size :]
    return seed


@pytest.mark.parametrize("name", PROGRAMS)
def test_mutations_of_the_corpus_pass(name: str) -> None:
    check = importlib.import_module(f"tests.fuzz.{name}").check
    change = st.tuples(st.integers(0, 4000), st.integers(0, 8), st.binary(max_size=8))

    @hypothesis.given(st.sampled_from(seeds()[name]), st.lists(change, min_size=1, max_size=6))
    @hypothesis.settings(max_examples=150)
    def passes(seed: bytes, changes: list[tuple[int, int, bytes]]) -> None:
        check(mutate(seed, changes))

    passes()


def test_the_modules_whose_coverage_is_asked_for_exist() -> None:
    """Coverage says nothing of a file that is not there."""
    root = Path(__file__).resolve().parents[2]
    text = (root / "noxfile.py").read_text(encoding="utf-8")
    names = re.findall(r'"(\w+)"', text.partition("FUZZED_MODULES = [")[2].partition("]")[0])
    assert len(names) > 10
    assert [name for name in names if not (root / f"src/trio_cogment/rpc/_{name}.py").exists()] == []
