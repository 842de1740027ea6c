"""Order of the trials of a mutant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.mutants import judging
from tests.mutants.covering import Cost, Covering
from tests.mutants.drawing import SOURCE, Mutant
from tests.mutants.forks import Job, Verdict
from tests.mutants.judging import Bench, Chooser

FILE = "trial/_ticks.py"
#: A constant, the module that has it, and one that uses it.
CONSTANT, MADE, USED = "READ_BYTES", "web/intake.py", "web/connection.py"
NAMED, OTHER, SLOW = "tests/trial/test_ticks.py::a", "tests/trial/test_other.py::b", "tests/trial/test_other.py::c"


def part(**changes: Any) -> dict[str, Any]:
    items = {NAMED: [2.0, 2.0, False], OTHER: [1.0, 1.0, False], SLOW: [3.0, 3.0, False], "failed": [0.1, 0.1, True]}
    lines = {FILE: {"5": [0, 1, 2, 3], "9": [1]}}
    return {"items": items, "lines": lines, "imported": {FILE: [1, 2, 9]}} | changes


def mutant(first: int, end: int, statement: range | None = None, file: str = FILE) -> Mutant:
    lines = range(first, end)
    return Mutant(file, "f", lines, statement or lines, "by hand", ("x",), ("y",), source="")


def test_what_reaches_a_line() -> None:
    covering = Covering([part()])
    assert covering.failed == ["failed"]
    assert covering.costs == {NAMED: Cost(2.0, 2.0), OTHER: Cost(1.0, 1.0), SLOW: Cost(3.0, 3.0)}
    everything = {NAMED, OTHER, SLOW}
    assert covering.of(mutant(5, 6)) == everything
    assert covering.of(mutant(7, 8)) == set()
    # A constant of a longer statement has no line of its own.
    assert covering.of(mutant(7, 8, range(5, 8))) == everything


def test_what_runs_at_import_concerns_all_that_reach_the_module() -> None:
    covering = Covering([part()])
    assert covering.of(mutant(2, 3)) == {NAMED, OTHER, SLOW}
    assert covering.of(mutant(9, 10)) == {NAMED, OTHER, SLOW}
    # A module with nothing else in it concerns everybody.
    covering = Covering([part(lines={}, imported={FILE: [2]})])
    assert covering.of(mutant(2, 3)) == {NAMED, OTHER, SLOW}


def test_a_test_named_after_the_module_may_only_read_its_constants() -> None:
    covering = Covering([part(lines={FILE: {"5": [1]}})])
    assert covering.of(mutant(2, 3)) == {NAMED, OTHER}
    # It notices nothing in a function that it does not reach.
    assert covering.of(mutant(5, 6)) == {OTHER}


def test_tests_named_after_the_module_come_first_and_then_what_is_cheap() -> None:
    chooser = Chooser(Covering([part()]), most_seconds=3.5)
    assert list(chooser.choose(mutant(5, 6))) == [NAMED, OTHER]
    assert list(Chooser(Covering([part()]), most_seconds=0.5).choose(mutant(5, 6))) == [NAMED]
    assert list(Chooser(Covering([part()]), most_seconds=60).choose(mutant(7, 8))) == []


def test_what_reaches_the_line_itself_comes_before_what_only_imports_it() -> None:
    """The line has run at import, and so may have done its work for everybody."""
    chooser = Chooser(Covering([part(lines={FILE: {"5": [0, 1], "9": [2]}})]), most_seconds=60)
    assert list(chooser.choose(mutant(9, 10))) == [SLOW, NAMED, OTHER]


def test_what_uses_a_constant_comes_before_what_only_imports_it() -> None:
    """Wherever that is: it need not reach anything of the module that has the constant."""
    bound = line_with(f"{CONSTANT}: Final = ", MADE)
    lines = {USED: {str(line_with(CONSTANT, USED, after="class ")): [2]}, MADE: {"1": [0, 1]}}
    chooser = Chooser(Covering([part(lines=lines, imported={MADE: [bound], USED: []})]), most_seconds=60)
    assert list(chooser.choose(mutant(bound, bound + 1, file=MADE))) == [SLOW, OTHER, NAMED]


def line_with(text: str, file: str, *, after: str = "") -> int:
    """Return the number of the first line of a module that has a text, or of the first one after another text."""
    lines = (SOURCE / file).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if after in line)
    return next(number for number, line in enumerate(lines[start:], start + 1) if text in line)


def test_what_has_noticed_others_comes_first() -> None:
    chooser = Chooser(Covering([part()]), most_seconds=60)
    chooser.learn(mutant(5, 6), Verdict("survived"))
    assert list(chooser.choose(mutant(5, 6))) == [NAMED, OTHER, SLOW]
    chooser.learn(mutant(5, 6), Verdict("noticed", SLOW))
    assert list(chooser.choose(mutant(5, 6))) == [SLOW, NAMED, OTHER]


def test_of_runs_there_is_one_of_each_suite_in_turn() -> None:
    costs = {"safety/10": 0.1, "kept/3": 9.0, "liveness/9": 5.0, "safety/2": 0.1, "registry/0": 0.1, "kept/11": 1.0}
    items = {name: [cost, cost, False] for name, cost in costs.items()}
    chooser = Chooser(Covering([part(items=items, lines={FILE: {"5": [0, 1, 2, 3, 4, 5]}})]), most_seconds=60)
    turns = [["kept/3", "liveness/9", "registry/0", "safety/2"], ["kept/11", "safety/10"]]
    assert list(chooser.choose(mutant(5, 6))) == [*turns[0], *turns[1]]


def bench(monkeypatch: pytest.MonkeyPatch, fails: Callable[[str, bool, int], bool]) -> Bench:
    """Return one whose tests fail as is said: by name, whether there is a mutant, and how often that was tried."""
    tries: dict[tuple[str, bool], int] = {}

    class FakeServer:
        modules: Sequence[str] = ()

        def __init__(self, package: str, preloaded: Sequence[str] | None = None) -> None:
            pass

        def attempt(self, job: Job) -> Verdict:
            for name in job.costs:
                key = name, job.mutant is not None
                tries[key] = tries.get(key, 0) + 1
                if fails(*key, tries[key]):
                    return Verdict("timeout", name)
            return Verdict("survived")

    monkeypatch.setattr(judging, "Server", FakeServer)
    choosers = {"tests": Chooser(Covering([part()]), 60), "runs": Chooser(Covering([]), 60)}
    return Bench("trial", choosers)


@pytest.mark.parametrize(
    ("fails", "outcome", "by"),
    [
        (lambda name, mutated, nth: mutated and name == OTHER, "timeout", OTHER),
        # Once, and never again; or unchanged too, while the machine is busy.
        (lambda name, mutated, nth: mutated and name == OTHER and nth == 1, "survived", ""),
        (lambda name, mutated, nth: name == OTHER, "survived", ""),
        # The last of them; and others after one that tells nothing.
        (lambda name, mutated, nth: name == SLOW, "survived", ""),
        (lambda name, mutated, nth: name == NAMED or (mutated and name == SLOW), "timeout", SLOW),
    ],
)
def test_what_notices_a_mutant_does_so_twice_and_passes_without_it(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[str, bool, int], bool], outcome: str, by: str
) -> None:
    judged = bench(monkeypatch, fails).judge(mutant(5, 6))
    assert (judged.tests.outcome, judged.tests.by) == (outcome, by)
    assert judged.runs.outcome == "unreached"
