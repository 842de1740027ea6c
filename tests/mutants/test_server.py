"""Servers try mutants on tests and on simulated runs, in functions that are there, and imported in their place."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from tests.mutants.covering import Cost
from tests.mutants.drawing import SOURCE, Mutant
from tests.mutants.forks import Job
from tests.mutants.server import Server, modules_of_others

PACKAGE = "servers/discovery"
FILE = "servers/discovery/client.py"
TEST = "tests/servers/discovery/test_client.py::test_the_newest_that_fits_is_found"
RUN = "directory alone/0"
PLENTY = Cost(20.0, 20.0)


@pytest.fixture(scope="module")
def warm() -> Iterator[Server]:
    server = Server(PACKAGE)
    yield server
    server.close()


@pytest.fixture(scope="module")
def cold(warm: Server) -> Iterator[Server]:
    server = Server(PACKAGE, warm.modules)
    yield server
    server.close()


def mutant(before: str, after: str) -> Mutant:
    source = (SOURCE / FILE).read_text()
    assert source.count(before) == 1
    return Mutant(FILE, "", range(1), range(1), "by hand", (), (), source.replace(before, after))


NOTHING_FOUND = mutant("return None if reply is None else reply.data", "return None")
NEVER_OK = mutant("_OK = ", "_OK = 1 + ")
BROKEN = mutant("_OK = ", "_OK = nothing = 1 / 0; ")


@pytest.mark.sources
def test_a_warm_server_exchanges_functions(warm: Server) -> None:
    assert warm.attempt(Job(None, "tests", {TEST: PLENTY})).outcome == "survived"
    verdict = warm.attempt(Job(NOTHING_FOUND, "tests", {TEST: PLENTY}))
    assert (verdict.outcome, verdict.by) == ("noticed", TEST)
    assert verdict.said
    assert warm.attempt(Job(None, "tests", {TEST: PLENTY})).outcome == "survived"


def test_what_runs_at_import_is_for_a_cold_server(warm: Server, cold: Server) -> None:
    assert warm.attempt(Job(NEVER_OK, "tests", {TEST: PLENTY})).outcome == "cold"
    assert warm.attempt(Job(NOTHING_FOUND, "tests", {TEST: PLENTY}, frozenset(range(1, 1000)))).outcome == "cold"
    verdict = cold.attempt(Job(NOTHING_FOUND, "tests", {TEST: PLENTY}))
    assert (verdict.outcome, verdict.by) == ("noticed", TEST)
    assert cold.attempt(Job(None, "tests", {TEST: PLENTY})).outcome == "survived"
    verdict = cold.attempt(Job(BROKEN, "tests", {TEST: PLENTY}))
    assert (verdict.outcome, verdict.by) == ("noticed", "")


def test_simulated_runs_are_tried_by_both(warm: Server, cold: Server) -> None:
    for server in (warm, cold):
        assert server.attempt(Job(None, "runs", {RUN: PLENTY})).outcome == "survived"
    assert cold.attempt(Job(BROKEN, "runs", {RUN: PLENTY})).outcome == "noticed"


def test_a_cold_server_imports_nothing_of_the_project(warm: Server) -> None:
    importlib.import_module("tools.tables")  # which imports the package, as what a test imports may
    assert {"trio", "pytest"}.issubset(modules_of_others())
    found = {name.partition(".")[0] for name in [*modules_of_others(), *warm.modules]}
    assert not found & {"tools", "tests", "conftest", "trio_cogment"}


def test_a_cold_server_that_cannot_try_anything_does_not_begin() -> None:
    with pytest.raises(EOFError):
        Server(PACKAGE, ["tools.tables"])
