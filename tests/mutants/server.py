"""Processes in which mutants are tried: a fork for each, from one that has what takes long behind it.

A warm server has imported the package, the simulated suite and the package's tests, and collected these: a fork of it
gets the mutant's functions and begins at once. A cold one has only imported what others have written; its fork imports
the package with the mutant in it. A fork ends at the first test or run that notices anything.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.covering import ENVIRONMENT, MARKED, own_tests
from tests.mutants.drawing import ROOT
from tests.mutants.forks import Job, Tell, Verdict, in_a_fork
from tests.mutants.planting import ImportTimeError, import_instead, living_functions, plant

#: What is not imported by a cold server, nor any other module of the project: tools and examples import the package.
OURS = ("trio_cogment", "tests", "__main__", "__mp_main__", "conftest")


class Server:
    """A server in a process of its own; `Server.close` ends it.

    Args:
        package: whose tests are collected, by a warm one.
        preloaded: the modules that a cold one imports; None for a warm one.

    Attributes:
        modules: what a warm one has imported of others.
    """

    def __init__(self, package: str, preloaded: Sequence[str] | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, package, preloaded))
        before = dict(os.environ)
        os.environ |= ENVIRONMENT  # which the process is made with; nobody else is to have it
        try:
            self._process.start()
        finally:
            os.environ.clear()
            os.environ |= before
        atexit.register(self._process.kill)  # not a daemon, for tests may have processes of their own
        theirs.close()
        self.modules: list[str] = self._connection.recv()

    def attempt(self, job: Job) -> Verdict:
        """Try a mutant, and return when that is over."""
        self._connection.send(job)
        verdict = self._connection.recv()
        assert isinstance(verdict, Verdict)
        return verdict

    def close(self) -> None:
        self._connection.send(None)
        self._process.join()
        atexit.unregister(self._process.kill)


def _serve(connection: Connection, package: str, preloaded: Sequence[str] | None) -> None:
    os.chdir(ROOT)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1) if os.environ.get("TRIO_COGMENT_MUTANTS_DEBUG") else (0, 1, 2):
        os.dup2(nowhere, number)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        if preloaded is None:
            files = [path.relative_to(ROOT).as_posix() for path in own_tests(package)]
            pytest.main([*_options(folder), *files], plugins=[_Warm(connection)])
        else:
            _serve_cold(connection, preloaded, folder)


def _options(folder: str) -> list[str]:
    # Modules that a cold server has imported cannot be rewritten any more, and pytest warns of that.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return ["-q", "-p", "no:cacheprovider", f"--basetemp={folder}/tests", "-m", MARKED, *quiet]


class _Warm:
    """A plugin of pytest that tries mutants instead of running what was collected."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        running = importlib.import_module("tests.mutants.running")
        items = {item.nodeid: item for item in session.items}
        living = living_functions()
        gc.collect()
        gc.freeze()  # or each fork copies what its collections touch
        self._connection.send(modules_of_others())
        job: Job | None
        while (job := self._connection.recv()) is not None:

            def work(tell: Tell, job: Job = job) -> None:
                if job.mutant is not None:
                    try:
                        plant(job.mutant, living, job.imported)
                    except ImportTimeError:
                        tell("cold", "")
                        return
                if job.kind == "runs":
                    _run_all(job, running.run, tell)
                else:
                    chosen = [items[name] for name in job.costs if name in items]
                    _Tests(job, tell).run(session, chosen)

            self._connection.send(in_a_fork(work, job.costs))
        return True


def modules_of_others() -> list[str]:
    """Return the names of the modules that are imported and not of the project, in order."""
    return sorted(name for name, module in sys.modules.items() if not _is_ours(name, module))


def _is_ours(name: str, module: ModuleType) -> bool:
    path = Path(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "/"))
    return name.partition(".")[0] in OURS or (path.is_relative_to(ROOT) and "site-packages" not in path.parts)


def _serve_cold(connection: Connection, preloaded: Sequence[str], folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in preloaded:
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001  not all can be imported by their names: the fork will do without
                continue
    ours = [name for name in sys.modules if name.partition(".")[0] == "trio_cogment"]
    assert not ours, f"a mutant cannot be imported any more in place of {ours[0]}"  # each would seem to be noticed
    gc.collect()
    gc.freeze()
    connection.send([])
    job: Job | None
    while (job := connection.recv()) is not None:

        def work(tell: Tell, job: Job = job) -> None:
            if job.mutant is not None:
                import_instead(job.mutant)
            if job.kind == "runs":
                running = importlib.import_module("tests.mutants.running")
                _run_all(job, running.run, tell)
            else:
                files = dict.fromkeys(name.partition("::")[0] for name in job.costs)
                # What rewrites assertions would import the package's modules, as those of a plugin, from their files.
                options = [*_options(folder), "--assert=plain"]
                code = pytest.main([*options, *files], plugins=[_Tests(job, tell)])
                if code != pytest.ExitCode.OK:
                    tell("noticed", f"pytest ended with {code!r}")

        connection.send(in_a_fork(work, job.costs))


class _Tests:
    """A plugin of pytest that runs some of the tests, in an order of its own, until one fails."""

    def __init__(self, job: Job, tell: Tell) -> None:
        self._job = job
        self._tell = tell
        self._failure = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell("noticed", _said(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failure:
            self._failure = _said(report) or "failed"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self.run(session, [items[name] for name in self._job.costs if name in items])
        return True

    def run(self, session: pytest.Session, items: Sequence[pytest.Item]) -> None:
        manager = session.config.pluginmanager
        if not manager.is_registered(self):
            manager.register(self)
        for item, following in zip_longest(items, items[1:]):
            self._tell("begin", item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failure:
                self._tell("noticed", self._failure)


def _said(report: pytest.CollectReport | pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longreprtext).strip()


def _run_all(job: Job, run: Callable[[str], str | None], tell: Tell) -> None:
    logging.disable(logging.CRITICAL)
    for name in job.costs:
        tell("begin", name)
        said = run(name)
        if said is not None:
            tell("noticed", said)
