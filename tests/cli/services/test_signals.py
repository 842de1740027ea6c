"""Signals to a server process; and every way out that it can see ends its status file."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Endless, environment_variables, listening, server
from trio_cogment.cli.services import process
from trio_cogment.cli.services.early_signals import EarlySignals
from trio_cogment.cli.services.process import StatusFile, Stop, run_until_signal
from trio_cogment.cli.services.task_dump import MAX_TASKS, task_lines
from trio_cogment.cli.terminal import Terminal
from trio_cogment.rpc import Channel
from trio_cogment.sdk import Controller, Participants, actor_params, trial_params

SERVE = ("serve", "--host=127.0.0.1", "--port=0")
WAYS_OUT = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]


@pytest.mark.parametrize("number", WAYS_OUT, ids=lambda number: number.name)
async def test_every_signal_that_ends_it_ends_its_status_file_and_tells_its_trials(
    number: signal.Signals, tmp_path: Path
) -> None:
    status = tmp_path / "status"
    endless = Endless()
    participants = Participants()
    participants.register_environment(endless.environment)
    participants.register_actor(endless.actor, "actor")
    async with listening(*participants.services()) as endpoint, server(*SERVE, f"--status_file={status}") as running:
        async with Channel("127.0.0.1", running.port) as channel:
            params = trial_params([actor_params("a", "c", endpoint=endpoint)], environment_endpoint=endpoint)
            trial_id = await Controller(channel).start_trial(params)
            await endless.wait_running([trial_id])
        assert await running.stop(number) == 0
        with trio.fail_after(PATIENCE_SECONDS):
            while len(endless.details.get(trial_id, {})) < 2:  # noqa: ASYNC110  what is told comes over sockets
                await trio.sleep(0.01)
    assert status.read_bytes() == b"IRT"


async def test_sigquit_tells_what_every_task_does(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with server(*SERVE, f"--log_file={log}") as running, Channel("127.0.0.1", running.port) as channel:
        await Controller(channel).versions()
        assert await running.stop(signal.SIGQUIT) == 0
    for said in (running.err, log.read_text()):
        assert "tasks:" in said
        assert "_accept" in said
        assert "guard of the trials" in said
        assert "wait_readable" in said
    assert "Current thread" in running.err  # of all threads, at once


@contextmanager
def python(code: str) -> Iterator[subprocess.Popen[str]]:
    """Run code in a process of its own, which ends at the latest when PATIENCE_SECONDS are over."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment_variables(), text=True) as child:
        closer = threading.Timer(PATIENCE_SECONDS, child.kill)
        closer.start()
        try:
            yield child
        finally:
            closer.cancel()
            child.kill()


def test_sigquit_tells_what_keeps_trio_from_running() -> None:
    code = (
        "import trio\n"
        "from trio_cogment.cli.services.process import run_until_signal\n"
        "async def busy_forever(status, stop):\n"
        "    print('busy', flush=True)\n"
        "    while True:\n"
        "        pass\n"
        "trio.run(run_until_signal, busy_forever)\n"
    )
    with python(code) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "busy\n"
        child.send_signal(signal.SIGQUIT)
        assert "Current thread" in child.stderr.readline()
        assert any("in busy_forever" in line for line in child.stderr)


def test_a_long_list_of_tasks_is_written_to_its_end_by_a_server_that_stops_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import logging, trio\n"
        "from trio_cogment.cli.services import process\n"
        f"logging.basicConfig(filename={str(log)!r})\n"
        "process.task_lines = lambda: [*map(str, range(5000)), 'the last']\n"
        "async def serve(status, stop):\n"
        "    print('ready', flush=True)\n"
        "    await stop.asked.wait()\n"
        "trio.run(process.run_until_signal, serve)\n"
    )
    with python(code) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGQUIT)
        assert child.communicate()[1].endswith("the last\n")
        assert child.returncode == 0
    assert log.read_text().endswith("the last\n")


def test_sigquit_does_not_end_a_process_whose_threads_work() -> None:
    code = (
        "import signal, sys, threading, time\n"
        "from trio_cogment.cli.services.process import _stacks_of_threads\n"
        "def generated(depth):\n"
        "    yield depth\n"
        "    if depth:\n"
        "        yield from generated(depth - 1)\n"
        "def deep(depth):\n"
        "    list(generated(5))\n"
        "    if depth:\n"
        "        deep(depth - 1)\n"
        "def work():\n"
        "    while True:\n"
        "        deep(300)\n"
        "sys.stderr = open('/dev/null', 'w')\n"
        "signal.signal(signal.SIGQUIT, lambda number, frame: print('told', flush=True))\n"
        "for _ in range(2):\n"
        "    threading.Thread(target=work, daemon=True).start()\n"
        "with _stacks_of_threads():\n"
        "    print('working', flush=True)\n"
        "    while True:\n"
        "        time.sleep(0.001)\n"
    )
    with python(code) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        for _ in range(50):
            child.send_signal(signal.SIGQUIT)
            assert child.stdout.readline() == "told\n"


async def test_sighup_ends_nothing(tmp_path: Path) -> None:
    status = tmp_path / "status"
    async with server(*SERVE, f"--status_file={status}") as running:
        for _ in range(3):
            running.process.send_signal(signal.SIGHUP)
            async with Channel("127.0.0.1", running.port) as channel:
                await Controller(channel).versions()
        await running.wait_serving()
        assert status.read_bytes() == b"IR"
        assert await running.stop() == 0
    assert status.read_bytes() == b"IRT"
    assert "SIGHUP: the files were read again" in running.err


async def test_a_log_that_was_moved_away_goes_on_in_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with server(*SERVE, f"--log_file={log}") as running:
        await running.wait_serving()
        os.rename(log, tmp_path / "log.1")
        running.process.send_signal(signal.SIGHUP)
        with trio.fail_after(PATIENCE_SECONDS):
            while not await trio.Path(log).exists():  # noqa: ASYNC110  another process makes it
                await trio.sleep(0.01)
        assert await running.stop() == 0
    assert "SIGHUP: the files were read again" in log.read_text()
    *_, stopping, stopped = (json.loads(line)["msg"] for line in log.read_text().splitlines())
    assert (stopping, stopped) == ("stopping (SIGTERM)", "stopped")


def test_a_server_does_not_outlive_its_terminal(tmp_path: Path) -> None:
    status = tmp_path / "status"
    leader, follower = pty.openpty()
    window = open(leader, "rb", buffering=0)  # noqa: SIM115  it is closed when the window is
    command = [sys.executable, "-m", "trio_cogment", *SERVE, f"--status_file={status}"]
    prelude = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", prelude, *command],
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment_variables(),
        start_new_session=True,
        text=True,
    )
    os.close(follower)
    assert child.stdout is not None
    closer = threading.Timer(PATIENCE_SECONDS, child.kill)
    closer.start()
    try:
        assert "listening" in child.stdout.readline()
        while status.read_bytes() != b"IR":
            pass
        window.close()
        assert child.wait() == 0
    finally:
        closer.cancel()
        child.kill()
        child.wait()
        child.stdout.close()
        window.close()
    assert status.read_bytes() == b"IRT"


class Served:
    """A server that does nothing, in this process."""

    def __init__(self) -> None:
        self.serving = trio.Event()

    async def serve(self, _status: StatusFile, stop: Stop) -> None:
        self.serving.set()
        await stop.asked.wait()


async def hung_up(reload: Callable[[], object], times: int) -> None:
    """Send SIGHUP so often, then SIGTERM when it has had its effect."""
    served, read = Served(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def reading() -> None:
        try:
            reload()
        finally:
            token.run_sync_soon(read.set)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(run_until_signal, served.serve, EarlySignals(), reading))
        await served.serving.wait()
        for _ in range(times):
            read = trio.Event()
            signal.raise_signal(signal.SIGHUP)
            with trio.fail_after(PATIENCE_SECONDS):
                await read.wait()
        await trio.testing.wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGTERM)


async def test_files_are_read_again_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    calls: list[int] = []
    await hung_up(lambda: calls.append(1), 2)
    assert len(calls) == 2
    assert "SIGHUP: the files were read again" in caplog.messages


async def test_files_that_cannot_be_read_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError("--private_key: key.pem: expected a private key")

    await hung_up(fail, 1)
    assert any("could not be read again, and nothing has changed: --private_key" in text for text in caplog.messages)


async def test_a_server_that_fails_ends_its_status_file(tmp_path: Path) -> None:
    status_path = tmp_path / "status"

    async def serve(status: StatusFile, _stop: Stop) -> None:
        await status.open(status_path)
        status.write(process.READY)
        raise RuntimeError("a bug")

    with pytest.RaisesGroup(RuntimeError):
        await run_until_signal(serve)
    assert status_path.read_bytes() == b"RT"


def test_sighup_before_trio_runs_is_passed_over() -> None:
    with EarlySignals() as early:
        signal.raise_signal(signal.SIGHUP)
        assert not early.came
        signal.raise_signal(signal.SIGQUIT)
        assert early.came


def test_with_nohup_the_end_of_the_terminal_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = True
    monkeypatch.setattr("trio_cogment.cli.terminal._is_there", lambda: there)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ignored = Terminal()
    finally:
        signal.signal(signal.SIGHUP, before)
    noticed = Terminal()
    there = False
    assert (ignored.is_gone(), noticed.is_gone()) == (False, True)


async def test_the_tree_of_tasks_is_bounded_and_shows_no_control_characters() -> None:
    async with trio.open_nursery() as nursery:
        for number in range(MAX_TASKS + 20):
            nursery.start_soon(trio.sleep_forever, name=f"trial \x1b[2J{'x' * 1000} {number}")
        await trio.testing.wait_all_tasks_blocked()
        lines = task_lines()
        nursery.cancel_scope.cancel()
    assert len(lines) < 14 * MAX_TASKS
    assert all(line.isprintable() and len(line) < 400 for line in lines)
    assert lines[-1].endswith("more tasks")
    assert any("sleep_forever" in line for line in lines)
