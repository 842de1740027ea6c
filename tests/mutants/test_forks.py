"""A fork is followed to its end, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.mutants import forks
from tests.mutants.covering import Cost
from tests.mutants.forks import Tell, in_a_fork

COSTS = {"one": Cost(0.01, 0.01), "two": Cost(0.01, 0.01)}


def test_the_first_that_is_noticed_ends_it() -> None:
    def work(tell: Tell) -> None:
        tell("begin", "one")
        tell("begin", "two")
        tell("noticed", "x" * 1000)
        raise AssertionError("it goes on")

    verdict = in_a_fork(work, COSTS)
    assert (verdict.outcome, verdict.by, verdict.said) == ("noticed", "two", "x" * forks.MOST_SAID)
    assert 0 < verdict.seconds < 60


def test_when_nothing_is_noticed_it_has_survived() -> None:
    assert in_a_fork(lambda tell: tell("begin", "one"), COSTS).outcome == "survived"


def test_an_error_is_noticed_and_so_is_a_process_that_ends() -> None:
    def fail(tell: Tell) -> None:
        tell("begin", "one")
        raise SystemExit(3)

    def vanish(tell: Tell) -> None:
        tell("begin", "one")
        os._exit(3)

    verdict = in_a_fork(fail, COSTS)
    assert (verdict.outcome, verdict.by, verdict.said) == ("noticed", "one", "SystemExit(3)")
    verdict = in_a_fork(vanish, COSTS)
    assert (verdict.outcome, verdict.by, verdict.said) == ("noticed", "one", "the process ended with 3")


def test_who_computes_for_ever_or_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PROCESSOR_SECONDS", 0.05)

    def compute(tell: Tell) -> None:
        tell("begin", "two")
        while True:
            pass

    verdict = in_a_fork(compute, COSTS)
    assert (verdict.outcome, verdict.by, verdict.said) == ("timeout", "two", "of the processor")

    monkeypatch.setattr(forks, "CLOCK_SECONDS", 0.05)
    monkeypatch.setattr(forks, "ENDING_SECONDS", 0.05)

    def wait(tell: Tell) -> None:
        tell("begin", "one")
        signal.pause()

    verdict = in_a_fork(wait, COSTS)
    assert (verdict.outcome, verdict.by, verdict.said) == ("timeout", "one", "on the clock")


def test_what_a_fork_has_started_ends_with_it() -> None:
    reading, writing = os.pipe()

    def work(tell: Tell) -> None:
        os.close(reading)
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[writing])
        tell("noticed", "something")

    assert in_a_fork(work, COSTS).outcome == "noticed"
    os.close(writing)
    assert os.read(reading, 1) == b""  # nobody has the other end any more
    os.close(reading)
