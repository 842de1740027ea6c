"""Programs on the published SDK, and our orchestrator, as processes of one test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

HERE = Path(__file__).resolve().parent
#: A line without names is that of everything in one server.
LISTENING = re.compile(r"^[\w, -]+ listening on \S+:(\d+)(?: \((.*)\))?\n", re.MULTILINE)
EVERYTHING = "TrialLifecycleSP, ClientActorSP"

#: What a developer's shell may have set for the platform; neither side is to find it.
_OURS = ("COGMENT_", "TRIAL_", "PROMETHEUS_", "TRIO_COGMENT_")


class Process:
    """A child in its own process group, its output in a file; leaving the block ends the whole group."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, *, asked: bool = False) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        #: It may end, or has been told to.
        self.may_end = False
        with self.log.open("wb") as output:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env={variable: value for variable, value in os.environ.items() if not variable.startswith(_OURS)},
                stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def stdin(self) -> IO[bytes]:
        assert self._child.stdin is not None
        return self._child.stdin

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float) -> int:
        return self._child.wait(seconds)

    def send(self, number: signal.Signals) -> None:
        """Send a signal that will end it."""
        self.may_end = True
        self._child.send_signal(number)

    def stop(self, seconds: float = 15) -> int:
        """Ask the child to end, insist after `seconds`, and return its exit code."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        # Its group may outlive it.
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if self._child.stdin is not None:
            self._child.stdin.close()
        return self._child.wait(seconds)


@dataclass(frozen=True)
class Server:
    """One of ours, and where to reach each of its services."""

    process: Process
    endpoints: Mapping[str, str]

    @property
    def endpoint(self) -> str:
        """The one endpoint of all its services."""
        (endpoint,) = set(self.endpoints.values())
        return endpoint

    @property
    def lifecycle(self) -> str:
        return self.endpoints["TrialLifecycleSP"]

    @property
    def actors(self) -> str:
        return self.endpoints["ClientActorSP"]


class Stage:
    """The processes of one test, and waiting that notices when one of them is gone."""

    def __init__(self, folder: Path, slowness: float = 1) -> None:
        self.folder = folder
        self.slowness = slowness
        self.processes: list[Process] = []
        self._stack = ExitStack()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str, *command: str, asked: bool = False) -> Process:
        """Start a process; `asked` keeps its stdin open."""
        process = self._stack.enter_context(Process(name, command, self.folder, asked=asked))
        self.processes.append(process)
        return process

    def orchestrator(self, *flags: str, lifecycle_port: int = 0) -> Server:
        """Start ours and wait until it is ready; the system chooses its ports, and of two zeros makes one."""
        status = self.folder / "orchestrator.status"
        ports = [f"--lifecycle_port={lifecycle_port}", "--actor_port=0", f"--status_file={status}"]
        found = self.ours("orchestrator", "services", "orchestrator", *ports, *flags, ports=2 if lifecycle_port else 1)
        # It listens before it is ready.
        self.until("the orchestrator is ready", lambda: "R" in status.read_text())
        return found

    def ours(self, name: str, *arguments: str, ports: int = 1) -> Server:
        """Start a server of ours by the command line, and wait until it listens."""
        return self.server(name, *our_command(), *arguments, ports=ports)

    def server(self, name: str, *command: str, ports: int = 1) -> Server:
        """Start a server of ours, and wait until it has told of this many ports."""
        process = self.start(name, *command)
        self.until(f"{name} says where it listens", lambda: len(LISTENING.findall(process.output)) == ports)
        found = {
            service.strip(): f"grpc://127.0.0.1:{port}"
            for port, services in LISTENING.findall(process.output)
            for service in (services or EVERYTHING).split(",")
        }
        return Server(process, found)

    def until(self, what: str, ready: Callable[[], Any], seconds: float = 30) -> Any:
        """Poll until `ready` returns something true."""
        deadline = time.monotonic() + seconds * self.slowness
        while not (found := ready()):
            for process in self.processes:
                if process.returncode is not None and not process.may_end:
                    self.fail(f"{process.name} ended with {process.returncode} before: {what}")
            if time.monotonic() > deadline:
                self.fail(f"waited in vain for: {what}")
            time.sleep(0.01)
        return found

    def port(self, name: str) -> int:
        """The port that an application's server tells in its file."""
        file = self.folder / f"{name}.port"
        self.until(f"{name} serves", file.exists)
        return int(file.read_text())

    def record(self, name: str) -> dict[str, Any]:
        """What somebody has written down, once it is there."""
        file = self.folder / f"{name}.json"
        self.until(f"the record {name}", file.exists)
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def end(self, *servers: Server, expected_errors: Sequence[str] = ()) -> None:
        """Stop servers of ours, one by one, and look for complaints of both sides that nobody expected."""
        for server in servers:
            process = server.process
            code = process.stop()
            if code or "Traceback" in process.output:
                self.fail(f"{process.name} ended with {code} on SIGTERM, or has written a traceback")
            self.processes.remove(process)
        for process in self.processes:
            check_errors(self, process, expected_errors)

    def fail(self, why: str) -> None:
        logs = "\n".join(f"----- {process.name}\n{process.output[-8000:]}" for process in self.processes)
        pytest.fail(f"{why}\n{logs}", pytrace=False)


class Answer:
    """What a remote will have answered to one order."""

    def __init__(self, stage: Stage, what: str, who: str, number: int) -> None:
        self._stage = stage
        self._what = what
        self._file = stage.folder / f"{who}.{number}.answer.json"

    @property
    def is_there(self) -> bool:
        return self._file.exists()

    def whole(self, seconds: float = 30) -> dict[str, Any]:
        """Wait for it: `done`, or `error` and `text`."""
        self._stage.until(f"the answer to: {self._what}", self._file.exists, seconds)
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found

    def done(self, seconds: float = 30) -> Any:
        """Wait for it, and fail if it is an error."""
        found = self.whole(seconds)
        if "done" not in found:
            self._stage.fail(f"{self._what}: {found}")
        return found["done"]


class Remote:
    """A controller on the SDK (`app/remote.py`) that does as it is told."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self._stage = stage
        self._process = process
        self._orders = 0

    def begin(self, do: str, **arguments: Any) -> Answer:
        """Give an order."""
        self._orders += 1
        order = {"number": self._orders, "do": do, **arguments}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return Answer(self._stage, f"{do} {arguments}", self._process.name, self._orders)

    def ask(self, do: str, **arguments: Any) -> Any:
        """Give an order, wait until it is carried out, and return what came of it."""
        return self.begin(do, **arguments).done()

    def leave(self) -> None:
        """Let it end: its watches are given up, and what it still carries out is finished."""
        self._process.may_end = True
        self._process.stdin.close()
        if code := self._process.wait(30):
            self._stage.fail(f"{self._process.name} ended with {code}")

    def refusal(self, do: str, **arguments: Any) -> tuple[str, str]:
        """Give an order that must fail; return the error's name and text."""
        found = self.begin(do, **arguments).whole()
        if "error" not in found:
            self._stage.fail(f"{do} {arguments} did not fail: {found}")
        return found["error"], found["text"]


def check_errors(stage: Stage, process: Process, expected: Sequence[str] = ()) -> None:
    """Fail if the SDK has logged an error that contains none of the expected texts."""
    # Not those of gRPC itself: at a forced end the SDK cancels a write that may be under way, and gRPC complains.
    for line in process.output.splitlines():
        if line.startswith(("ERROR:cogment", "CRITICAL")) and not any(text in line for text in expected):
            stage.fail(f"the SDK logged an error in {process.name}:\n{process.output[-8000:]}")


def our_command() -> list[str]:
    """`trio-cogment` of the environment that runs the tests."""
    script = Path(sys.executable).with_name("trio-cogment")
    return [str(script)] if script.exists() else [sys.executable, "-m", "trio_cogment"]
