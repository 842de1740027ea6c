"""A fork in which something is tried, and how it is watched: what it tells, and whether it takes too long."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.mutants.covering import Cost
from tests.mutants.drawing import Mutant

#: A test or run may take this many times what it takes unchanged (and watched by coverage, which is slow), and this
#: many
#: seconds more: of the processor, and on the clock, which a busy machine stretches.
PROCESSOR_FACTOR, PROCESSOR_SECONDS = 3.0, 2.0
CLOCK_FACTOR, CLOCK_SECONDS = 10.0, 15.0
#: What imports and the collecting of tests take, in a process of its own.
IMPORT = Cost(processor_seconds=8.0, seconds=10.0)
#: Outcomes by which a mutant is found.
NOTICED = ("noticed", "timeout")
MOST_MEMORY_BYTES = 6 << 30
MOST_SAID = 200
#: How long a fork may take to end once it has said that it does.
ENDING_SECONDS = 1.0

Tell: TypeAlias = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What is tried on a mutant.

    Attributes:
        mutant: which; None for the source as it is.
        kind: `tests` or `runs`.
        costs: tests by node id, or simulated runs by name, in the order in which they are tried; what each takes.
        imported: the lines of the module that run when it is imported.
    """

    mutant: Mutant | None
    kind: str
    costs: dict[str, Cost]
    imported: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it.

    Attributes:
        outcome: `noticed`, `timeout`, `survived`, or `cold` where only a cold server can try it.
        by: the test or the run that noticed it, or that took too long.
        said: what was said then.
        seconds: of the processor.
    """

    outcome: str
    by: str = ""
    said: str = ""
    seconds: float = 0.0


def in_a_fork(work: Callable[[Tell], None], costs: Mapping[str, Cost]) -> Verdict:
    """Do something in a fork, which tells what it begins and how it ended.

    `work` calls ``tell("begin", name)`` before each test or run, and ``tell(outcome, text)`` at the end, which ends the
    fork. One that begins something and takes too long for it is ended from here.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.close(reading)
        _be_the_fork(work, costs, writing)
    os.close(writing)
    try:
        return _Watch(process, costs, reading).verdict()
    finally:
        os.close(reading)


def _be_the_fork(work: Callable[[Tell], None], costs: Mapping[str, Cost], writing: int) -> None:
    """Do the work and end the process."""
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends it, whatever it is at

        def tell(what: str, text: str) -> None:
            os.write(writing, (json.dumps([what, text if what == "begin" else text[:MOST_SAID]]) + "\n").encode())
            if what != "begin":
                os._exit(0)
            signal.setitimer(signal.ITIMER_PROF, _processor_limit(costs[text]))

        signal.setitimer(signal.ITIMER_PROF, _processor_limit(IMPORT))
        work(tell)
        tell("survived", "")
    except BaseException as error:  # noqa: BLE001  whatever it is, the fork must not go on as the server
        os.write(writing, (json.dumps(["noticed", repr(error)[:MOST_SAID]]) + "\n").encode())
    finally:
        os._exit(1)


def _processor_limit(cost: Cost) -> float:
    return cost.processor_seconds * PROCESSOR_FACTOR + PROCESSOR_SECONDS


def _clock_limit(cost: Cost) -> float:
    return cost.seconds * CLOCK_FACTOR + CLOCK_SECONDS


@dataclass
class _Watch:
    """Follows a fork until it is over."""

    process: int
    costs: Mapping[str, Cost]
    reading: int
    _current: str = ""
    _told: tuple[str, str] | None = None
    _received: bytes = field(default=b"")

    def verdict(self) -> Verdict:
        is_late = not self._follow()
        status, usage = self._end()
        seconds = round(usage.ru_utime + usage.ru_stime, 3)
        if self._told is not None:
            outcome, said = self._told
            return Verdict(outcome, self._current if outcome == "noticed" else "", said, seconds)
        if is_late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF):
            return Verdict("timeout", self._current, "on the clock" if is_late else "of the processor", seconds)
        return Verdict("noticed", self._current, f"the process ended with {os.waitstatus_to_exitcode(status)}", seconds)

    def _follow(self) -> bool:
        """Read what it tells, until it ends or is too late for something; return whether it was in time."""
        limit = _clock_limit(IMPORT)
        deadline = time.monotonic() + limit
        while self._told is None:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return False
            received = os.read(self.reading, 1 << 16)
            if not received:
                return True
            *lines, self._received = (self._received + received).split(b"\n")
            for line in lines:
                what, text = json.loads(line)
                if what != "begin":
                    self._told = self._told or (what, text)
                    continue
                self._current = text
                deadline = time.monotonic() + _clock_limit(self.costs[text])
        return True

    def _end(self) -> tuple[int, resource.struct_rusage]:
        """Wait for the fork, and end whatever else it has started, and itself if it does not end."""
        until = time.monotonic() + ENDING_SECONDS
        done = 0
        while not done and time.monotonic() < until:
            done, status, usage = os.wait4(self.process, os.WNOHANG)
            if not done:
                time.sleep(0.002)
        try:
            os.killpg(self.process, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # there is nobody
        if not done:
            _, status, usage = os.wait4(self.process, 0)
        return status, usage
