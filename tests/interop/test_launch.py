"""A project of the shape of the public rock-paper-scissors tutorial, on the published SDK, by `trio-cogment launch`.

The project is `rps/`: spec, messages, parameters, a launch file that says `cogment` and `python3`, participants, a
client that plays trials, and a reader that reads them back from the datastore and checks each game. Nothing in it is
changed but its ports.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.processes import HERE, our_command
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

#: A busy machine may take its time.
PATIENCE_SECONDS = 90
#: How long after Ctrl-C nothing may be left.
STOP_SECONDS = 10
MARK = "LAUNCHED_BY_TEST"


@pytest.fixture
def rps(foreign_python: str, tmp_path: Path) -> Path:
    """A copy of the project with its generated settings, on ports of its own."""
    folder = tmp_path / "rps"
    shutil.copytree(HERE / "rps", folder, ignore=shutil.ignore_patterns("__pycache__"))
    ports = {str(port): str(free_port()) for port in range(9000, 9004)}
    for name in ("launch.yaml", "params.yaml"):
        file = folder / name
        file.write_text(re.sub(r"\b900[0-3]\b", lambda found: ports[found.group()], file.read_text()))
    generate = [foreign_python, "-m", "cogment.generate", "--spec", "cogment.yaml", "--output", "cog_settings.py"]
    subprocess.run(generate, cwd=folder, check=True, timeout=60, stdin=subprocess.DEVNULL, capture_output=True)
    return folder


class Launched:
    """The project while it runs; `cogment` is not on its PATH, and `python3` is the published SDK's."""

    def __init__(self, rps: Path, foreign_python: str, *arguments: str) -> None:
        self.log = rps / "log"
        self._mark = f"{MARK}={rps}".encode()
        folders = [str(Path(foreign_python).parent)]
        folders += [one for one in os.environ["PATH"].split(os.pathsep) if not (Path(one) / "cogment").exists()]
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("COGMENT_", "TRIO_COGMENT_"))}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*our_command(), "launch", str(rps / "launch.yaml"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ours | {"PATH": os.pathsep.join(folders), MARK: str(rps)},
            )

    def until_shown(self, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not re.search(expression, self.shown()):
            assert time.monotonic() < deadline, f"waited in vain for {expression}:\n{self.shown()}"
            assert self.process.poll() is None, self.shown()
            time.sleep(0.02)

    def shown(self) -> str:
        return self.log.read_text(errors="replace")

    def processes(self) -> list[str]:
        """The command lines of all processes that have come of it and are there, this one included."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdecimal() and self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # it has gone, or is somebody else's
        return found


Start = Callable[..., Launched]


@pytest.fixture
def launch(rps: Path, foreign_python: str) -> Iterator[Start]:
    started: list[Launched] = []

    def start(*arguments: str) -> Launched:
        started.append(Launched(rps, foreign_python, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
        one.process.wait()


def test_the_project_runs_and_its_reader_agrees(launch: Start, rps: Path) -> None:
    launched = launch()
    assert launched.process.wait(PATIENCE_SECONDS) == 0, launched.shown()
    assert launched.processes() == []
    shown = launched.shown()
    assert re.findall(r"^\[client:\(1/2\)\] stdout: trial (\S+) has ended$", shown, re.MULTILINE) == [
        *("rps-1", "rps-2", "rps-3")
    ]
    read = re.findall(r"^\[client:\(2/2\)\] stdout: read (\S+): 14 samples$", shown, re.MULTILINE)
    assert sorted(read) == ["rps-1", "rps-2", "rps-3"]
    # It is quiet, and is waited for nevertheless.
    assert "[actors:(1/1)] stdout" not in shown
    assert shown.index("[actors:(1/1)] INFO: ready") < shown.index("[client:(1/2)] INFO: started")
    assert (rps / "data" / "trials.db").exists()


def test_a_failing_script_gives_its_exit_code(launch: Start) -> None:
    launched = launch("1", "2")  # the reader is told to expect more trials than there are
    assert launched.process.wait(PATIENCE_SECONDS) == 4, launched.shown()
    assert launched.processes() == []
    assert "[client:(2/2)] stderr: expected 2 trials, found 1" in launched.shown()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_is_left_ten_seconds_after_the_end(launch: Start, number: signal.Signals, code: int) -> None:
    launched = launch("1000000")
    launched.until_shown("trial rps-2 has ended")
    assert len(launched.processes()) == 6
    launched.process.send_signal(number)
    assert launched.process.wait(STOP_SECONDS) == code, launched.shown()
    assert launched.processes() == []
    assert "killed what had not ended in time" not in launched.shown()
