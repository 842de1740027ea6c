"""The processes of the system, as Linux tells them, and how they have ended."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple


class Process(NamedTuple):
    """A process (proc(5), `stat`); one that has ended is there until its parent has taken notice."""

    pid: int
    parent: int
    group: int
    ended: bool


def processes() -> list[Process] | None:
    """Return all processes; None where the system does not tell them this way."""
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return None
    for name in names:
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name in parentheses may hold anything, also blanks and parentheses.
                state, parent, group = file.read().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it has just gone
        found.append(Process(int(name), int(parent), int(group), state in (b"Z", b"X")))
    return found or None


def signal_name(number: int) -> str:
    """Return the name of a signal, `SIGKILL` for example."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
