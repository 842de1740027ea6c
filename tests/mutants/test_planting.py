"""A mutant is put into functions that are there, or into a process that has not imported the package yet."""

from __future__ import annotations

import difflib
import gc
import importlib
from dataclasses import replace

import pytest

from tests.mutants.drawing import SOURCE, Mutant
from tests.mutants.forks import Tell, in_a_fork
from tests.mutants.planting import ImportTimeError, exchange, import_instead, living_functions, plant
from trio_cogment.base import backoff

FILE = "base/backoff.py"


def changed(before: str, after: str, file: str = FILE) -> Mutant:
    source = (SOURCE / file).read_text()
    assert before in source
    mutant = source.replace(before, after, 1)
    lines = list(difflib.unified_diff(source.splitlines(), mutant.splitlines(), lineterm="", n=0))[2:]
    removed = tuple(line[1:].strip() for line in lines if line.startswith("-"))
    added = tuple(line[1:].strip() for line in lines if line.startswith("+"))
    return Mutant(file, "", range(1, 2), range(1, 2), "by hand", removed, added, mutant)


def of_a_method() -> Mutant:
    head = "    def reset(self) -> None:\n"
    source = (SOURCE / FILE).read_text()
    docstring = source.partition(head)[2].partition("\n")[0]
    return changed(f"{head}{docstring}\n", f"{head}{docstring}\n        raise KeyError('mutant')\n")


@pytest.mark.sources
def test_whoever_holds_a_function_has_the_mutant() -> None:
    mutant = of_a_method()
    held = backoff.Backoff.reset

    def work(tell: Tell) -> None:
        exchange(mutant, living_functions(), ())
        try:
            held(object.__new__(backoff.Backoff))
        except KeyError:
            tell("noticed", "it is there")

    assert in_a_fork(work, {}).said == "it is there"
    assert held is backoff.Backoff.reset


@pytest.mark.sources
def test_what_collections_leave_out_is_found() -> None:
    expected = living_functions()[FILE]
    gc.freeze()
    found = living_functions()[FILE]
    assert found.keys() == expected.keys()
    assert found


def test_what_has_run_already_is_not_changed_any_more() -> None:
    whole = of_a_method()
    lines = range(1, 1000)
    with pytest.raises(ImportTimeError):
        exchange(whole, living_functions(), lines)
    of_the_module = replace(whole, source=f"{(SOURCE / FILE).read_text()}\nADDED = 1\n")
    with pytest.raises(ImportTimeError):
        exchange(of_the_module, living_functions(), ())
    another_function = replace(whole, source=f"{(SOURCE / FILE).read_text()}\ndef added():\n    return 1\n")
    with pytest.raises(ImportTimeError):
        exchange(another_function, living_functions(), ())


def test_a_comprehension_of_the_module_has_run_already() -> None:
    file = "servers/datastore/_sqlite_writer.py"
    one = changed("* (rows - 1), rows", "* (rows + 1), rows", file)
    (line,) = (
        number for number, text in enumerate((SOURCE / file).read_text().splitlines(), 1) if "* (rows - 1)" in text
    )
    with pytest.raises(ImportTimeError):
        exchange(one, living_functions(), [line])


def test_a_module_can_be_imported_from_a_mutant() -> None:
    mutant = replace(of_a_method(), file="cli/demonstration/__init__.py", source="MUTANT = 1\n")

    def work(tell: Tell) -> None:
        import sys

        for name in [name for name in sys.modules if name.partition(".")[0] == "trio_cogment"]:
            del sys.modules[name]
        import_instead(mutant)
        module = importlib.import_module("trio_cogment.cli.demonstration")
        tell("noticed", str([module.MUTANT, bool(module.__path__)]))

    assert in_a_fork(work, {}).said == "[1, True]"


def test_a_module_that_is_imported_when_it_is_needed_is_imported_from_the_mutant() -> None:
    """It has no functions yet that could be exchanged, and would be the one of the source."""
    mutant = changed("class Backoff:", "MUTANT = 1\n\n\nclass Backoff:")
    name = "trio_cogment.base.backoff"

    def work(tell: Tell) -> None:
        import sys

        sys.modules.pop(name)
        plant(mutant, living_functions(), ())
        tell("noticed", str(importlib.import_module(name).MUTANT))

    assert in_a_fork(work, {}).said == "1"
