"""Waiting tasks and their places: for the report of a run that does not go on."""

from __future__ import annotations

import linecache
import math
import os
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import FrameType

import outcome
import purerpc
import trio

from trio_cogment.sdk import EnvironmentSession, Session
from trio_cogment.testing.sim.schedule import name_of, short_name, tasks_below, waits_until

#: Of those with a line of their own.
_SHOWN_TASKS = 50
#: So pytest-trio names the tasks of tests and fixtures. Others of this form are of no interest.
_OF_TESTS = ("<test ", "<fixture ")
#: Below these is not code of the user's; what is installed otherwise may be.
_LIBRARIES = (
    str(Path(__file__).parents[2]) + os.sep,
    *(str(Path(str(library.__file__)).parent) + os.sep for library in (trio, purerpc, outcome)),
    str(Path(str(trio.__file__)).parents[1] / "pytest_trio") + os.sep,  # which may not be installed
)
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_RUN = Session.run.__code__
_SCENARIO = "run_seeded.<locals>.main"


def who_waits() -> list[str]:
    """Return a line for each task of the run that waits in the user's code, or for a participant; then the others.

    A line names the participant, or else the task, the innermost line of the user's code in which it waits, and for
    which time, if for any.
    """
    root = trio.lowlevel.current_root_task()
    tasks = [] if root is None else [task for task in tasks_below(root) if _is_of_interest(task.name)]
    lines, others = [], []
    for task in tasks:
        found = _described(task)
        if found is None:
            others.append(short_name(name_of(task)))
        else:
            lines.append(found)
    lines.sort()
    more = len(lines) - _SHOWN_TASKS
    if more > 0:
        lines[_SHOWN_TASKS:] = [f"and {more} more"]
    if others:
        lines.append(f"others: {', '.join(sorted(others))}" if lines else ", ".join(sorted(others)))
    return lines


def _is_of_interest(name: str) -> bool:
    return not name.startswith("<") or name.startswith(_OF_TESTS)


def _described(task: trio.lowlevel.Task) -> str | None:
    participant, place = "", ""
    for frame, line in task.iter_await_frames():
        if frame.f_code is _RUN:
            session = frame.f_locals["self"]
            kind = "environment" if isinstance(session, EnvironmentSession) else "actor"
            participant = f"{kind} {session.name!r} of trial {session.trial_id!r}"
        elif _is_users(frame.f_code.co_filename):
            place = _place(frame, line)  # the last one is the innermost
    if not (participant or place):
        return None
    name = "the scenario" if task.name.endswith(_SCENARIO) else short_name(name_of(task))
    return f"{participant or name}{f' at {place}' if place else ''}{_until(waits_until(task))}"


def _until(deadline: float) -> str:
    left = deadline - trio.current_time()
    return f", until {deadline:.9g} s (in {left:.9g} s)" if math.isfinite(deadline) and left > 0 else ""


def _place(frame: FrameType, line: int) -> str:
    path = frame.f_code.co_filename
    text = linecache.getline(path, line).strip()
    function = frame.f_code.co_qualname.rpartition("<locals>.")[2]
    return f"{_shortest(path)}:{line} in {function}{f': {text}' if text else ''}"


def _shortest(path: str) -> str:
    here = os.path.relpath(path)
    return path if here.startswith(os.pardir) else here


@lru_cache(maxsize=4096)
def _is_users(path: str) -> bool:
    return not (path.startswith(_LIBRARIES) or (path.startswith(_STANDARD) and not _is_installed(path)))


def _is_installed(path: str) -> bool:
    return any(part in ("site-packages", "dist-packages") for part in Path(path).parts)


def indented(lines: Iterable[str]) -> str:
    """Return lines as a block of a report, beginning with the end of the line before."""
    return "".join(f"\n  {line}" for line in lines)
