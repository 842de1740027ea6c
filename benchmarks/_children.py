"""Processes that benchmarks start: they answer lines with lines, and their processor time is known."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType


class Child:
    """A process that answers each line with a line."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self._process.pid
        #: What the first line said, for those who keep it.
        self.greeting = ""

    def read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a helper process ended with {self._process.wait(10)}")
        return line.strip()

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.read()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def cpu_ns(pid: int) -> dict[str, int]:
    """Time on a CPU of each thread of a process."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # the thread has just ended
            pass
    return found
