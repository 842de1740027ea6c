"""The tests pass whatever the caller's signals, umask, locale, time zone and home are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Those that are about signals of the process and of what it starts, and about the modes of files.
SENSITIVE = [
    "tests/cli/services/test_signals.py::test_a_server_does_not_outlive_its_terminal",
    "tests/cli/services/test_signals.py::test_with_nohup_the_end_of_the_terminal_is_not_noticed",
    "tests/cli/test_launch.py::test_a_signal_leaves_no_process",
    "tests/cli/test_launch.py::test_a_hangup_that_is_ignored_stays_so",
    "tests/cli/doctor/test_doctor.py::test_files_of_tls_and_of_tokens",
]
IGNORED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1}
ODD = {"LC_ALL": "C", "TZ": "Asia/Kathmandu", "HOME": "/nowhere/at/all"}
#: As a test of a server would: what a process started here does with signals, and what mode a file of it has.
PROBE = """
import os, signal, subprocess, sys

CODE = "import os, signal; print(*(s.name for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN))"

def test_what_is_started_has_the_usual_signals(tmp_path):
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"SIGPIPE", "SIGXFSZ"}
    (tmp_path / "file").write_text("")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644

def test_the_end_of_the_terminal_does_not_end_the_tests():
    os.kill(os.getpid(), signal.SIGHUP)
"""


def as_a_service() -> None:
    """What nohup, a script's background and a service's umask do, one with the other."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.umask(0o077)


def run_oddly(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**os.environ, **ODD},
        preexec_fn=as_a_service,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_those_that_depend_on_them_pass() -> None:
    run_oddly(*SENSITIVE)


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["one process", "several"])
def test_what_tests_start_has_the_usual_ones(tmp_path: Path, options: list[str]) -> None:
    program = tmp_path / "test_probe.py"
    program.write_text(PROBE)
    # It has the conftest of the tests, although it is not among them.
    run_oddly("-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", *options, str(program))
