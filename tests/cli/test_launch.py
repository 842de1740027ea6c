"""`trio-cogment launch` as a process: signals, exit codes, what it prints, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.process import PATIENCE_SECONDS, environment_variables, run_main
from trio_cogment import __version__

#: Leaves its session, and tells its number.
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        time.sleep(1000)
"""


class Launched:
    """A launcher that is running."""

    def __init__(self, file: Path, *arguments: str, **variables: str) -> None:
        self.out = file.with_suffix(".out")
        self.err = file.with_suffix(".err")
        # Whatever comes of it has this in its environment.
        self.mark = f"LAUNCHED_BY_TEST={file}"
        name, _, value = self.mark.partition("=")
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trio_cogment", "launch", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment_variables(**variables, **{name: value}),
            )

    def until(self, what: str, found: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not found():
            assert time.monotonic() < deadline, f"waited in vain for {what}:\n{self.shown()}"
            time.sleep(0.01)

    def until_output(self, expression: str) -> re.Match[str]:
        self.until(expression, lambda: re.search(expression, self.out.read_text(errors="replace")))
        found = re.search(expression, self.out.read_text(errors="replace"))
        assert found is not None
        return found

    def end(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def processes(self) -> list[int]:
        """All processes that have come of it and are still running, this one included."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdecimal() and self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue  # it has gone, or is somebody else's
        return found

    def shown(self) -> str:
        return self.out.read_text(errors="replace") + self.err.read_text(errors="replace")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    launched: list[Launched] = []

    def start(text: str, *arguments: str, **variables: str) -> Launched:
        file = tmp_path / f"launch{len(launched)}.yaml"
        file.write_text(text)
        launched.append(Launched(file, *arguments, str(file), **variables))
        return launched[-1]

    yield start
    for one in launched:
        for pid in one.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        one.process.wait()


Start = Callable[..., Launched]


def test_a_failing_script_gives_its_exit_code(launch: Start) -> None:
    launched = launch(
        "scripts:\n"
        "  server: {ready_output: up, commands: [[sh, -c, echo up; exec sleep 1000]]}\n"
        "  client: {depends_on: [server], commands: [[sh, -c, echo out; echo err >&2; exit 23]]}\n"
    )
    assert launched.end() == 23
    assert launched.processes() == []
    assert launched.out.read_text() == "[server:(1/1)] stdout: up\n[client:(1/1)] stdout: out\n"
    err = launched.err.read_text().splitlines()
    assert "[client:(1/1)] stderr: err" in err
    assert "[client] TRACE: waits for server" in err
    assert err[-1] == "[client:(1/1)] ERROR: ended with exit code 23"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_leaves_no_process(launch: Start, number: signal.Signals, code: int) -> None:
    launched = launch(
        "scripts:\n"
        "  polite: {commands: [[sh, -c, 'echo polite; sleep 1000 & exec sleep 1000']]}\n"
        f"  daemon: {{commands: [[{sys.executable}, -c, {json.dumps(DAEMON)}], [sleep, '1000']]}}\n"
    )
    launched.until_output("polite")
    launched.until_output(r"daemon (\d+)")
    assert len(launched.processes()) >= 4
    launched.process.send_signal(number)
    assert launched.end() == code
    assert launched.processes() == []


def test_a_second_signal_waits_for_nothing(launch: Start) -> None:
    deaf = "trap 'echo asked' TERM; echo up; while :; do sleep 0.01; done"
    launched = launch(f'scripts: {{a: {{commands: [[sh, -c, "{deaf}"]]}}}}', "--grace=1000s")
    launched.until_output("up")
    launched.process.send_signal(signal.SIGINT)
    launched.until_output("asked")
    launched.process.send_signal(signal.SIGINT)
    assert launched.end() == 130
    assert launched.processes() == []


def test_sigquit_leaves_no_process_and_waits_for_nothing(launch: Start) -> None:
    deaf = "trap '' TERM; echo up; while :; do sleep 0.01; done"
    launched = launch(f'scripts: {{a: {{commands: [[sh, -c, "{deaf}"]]}}}}', "--grace=1000s")
    launched.until_output("up")
    launched.process.send_signal(signal.SIGQUIT)
    assert launched.end() == 131
    assert launched.processes() == []


def test_one_script_obeys_sigterm(launch: Start) -> None:
    launched = launch("scripts: {a: {commands: [[sh, -c, echo up; exec sleep 1000]]}}")
    launched.until_output("up")
    launched.process.send_signal(signal.SIGTERM)
    assert launched.end() == 143
    assert launched.processes() == []


def test_a_hangup_that_is_ignored_stays_so(launch: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        launched = launch(f"scripts: {{a: {{commands: [[sh, -c, 'echo up; read line < {tmp_path}/go; exit 6']]}}}}")
    finally:
        signal.signal(signal.SIGHUP, before)
    launched.until_output("up")
    launched.process.send_signal(signal.SIGHUP)
    (tmp_path / "go").write_text("go\n")
    assert launched.end() == 6


def test_output_that_nobody_reads_does_not_hold_up_a_signal(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text("scripts: {a: {commands: [[sh, -c, 'echo $$ > pid; exec yes']]}}")
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_cogment", "launch", "-qqq", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment_variables(),
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read(4) == b"y\ny\n"
        pid = int((tmp_path / "pid").read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_output_that_does_not_block_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text("scripts: {a: {commands: [[seq, '100000']]}}")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_cogment", "launch", "-qqq", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        env=environment_variables(),
    )
    # The pipe gets full before anybody reads.
    room = select.poll()
    room.register(writing, select.POLLOUT)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while room.poll(0):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.close(writing)
    with open(reading, "rb") as output:
        assert output.read().split() == [b"%d" % number for number in range(1, 100001)]
    assert process.wait(PATIENCE_SECONDS) == 0


def test_a_reader_that_goes_away_ends_everything(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text("scripts: {a: {commands: [[sh, -c, 'echo $$ > pid; exec yes']]}}")
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_cogment", "launch", "-qqq", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_variables(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stderr.read() == b""
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    ("quiet", "expected"),
    [
        ([], {"TRACE", "INFO", "ERROR", "stdout"}),
        (["-q", "--quiet"], {"ERROR", "stdout"}),
    ],
)
def test_quietness(launch: Start, quiet: list[str], expected: set[str]) -> None:
    launched = launch("scripts: {a: {commands: [[sh, -c, echo hi; exit 1]]}}", *quiet)
    assert launched.end() == 1
    assert set(re.findall(r"^\[.*?\)\] (\w+):", launched.shown(), re.MULTILINE)) == expected


def test_raw_output(launch: Start) -> None:
    launched = launch(
        "scripts:\n"
        "  a: {ready_output: up, commands: [[printf, '\\377up\\nlast']]}\n"
        "  b: {quiet: true, commands: [[sh, -c, echo hidden; exec sleep 1000]]}\n",
        "-qqq",
    )
    assert launched.end() == 0
    assert launched.out.read_bytes() == b"\xffup\nlast\n"
    assert launched.err.read_bytes() == b""


def test_arguments_and_variables(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text(
        "global: {environment: {GREETING: 'hello {{.NAME}}'}}\n"
        "scripts: {a: {commands: [[sh, -c, 'echo $GREETING; echo $#: $*', x, '{{.__ALL_ARGS}}']]}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "trio_cogment", "launch", str(file), "-qqq", "one", "--", "-q", "two words"],
        env=environment_variables(NAME="Ann"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "hello Ann\n3: one -q two words\n"


def test_cogment_in_a_file_is_this_program(launch: Start, tmp_path: Path) -> None:
    commands = "[[cogment, version], [trio-cogment, version]]"
    launched = launch(f"scripts: {{a: {{commands: {commands}}}}}", "-qqq", PATH=str(tmp_path))
    assert launched.end() == 0
    assert launched.out.read_text() == f"{__version__}\n" * 2


def test_shell_scripts_find_this_program_too(launch: Start) -> None:
    launched = launch("scripts: {a: {commands: [[sh, -c, cogment version]]}}", "-qqq", PATH="/usr/bin:/bin")
    assert launched.end() == 0, launched.shown()
    assert launched.out.read_text() == f"{__version__}\n"


def test_servers_say_what_launch_files_of_the_reference_wait_for(launch: Start) -> None:
    launched = launch(
        "scripts:\n"
        "  directory:\n"
        "    ready_output: 'Listening \\[port:\\d+\\]'\n"
        "    commands: [[cogment, services, directory, --port=0]]\n"
        "  orchestrator:\n"
        "    depends_on: [directory]\n"
        "    ready_output: Trial Lifecycle service active\n"
        "    commands: [[cogment, services, orchestrator, --lifecycle_port=0, --actor_port=0]]\n"
        "  client: {depends_on: [orchestrator], commands: [[sh, -c, exit 5]]}\n"
    )
    assert launched.end() == 5
    assert launched.processes() == []
    # Each line comes once: not in the log on stderr, too.
    for line in (
        "directory listening on ",
        "Listening [port:",
        "orchestrator listening on ",
        "Lifecycle service active",
    ):
        assert launched.shown().count(line) == 1, launched.shown()


def test_what_python_programs_print_comes_at_once(launch: Start) -> None:
    program = json.dumps("import time; print('up'); time.sleep(1000)")
    launched = launch(
        "scripts:\n"
        f"  server: {{ready_output: up, commands: [[{sys.executable}, -c, {program}]]}}\n"
        "  client: {depends_on: [server], commands: [[sh, -c, 'exit 5']]}\n"
    )
    assert launched.end() == 5


def test_warnings_are_told(launch: Start) -> None:
    launched = launch("scripts: {a: {comands: [], commands: [[echo, '{{.NOTHING_OF_THE_KIND}}']]}}")
    assert launched.end() == 0
    err = launched.err.read_text()
    assert "line 1: scripts.a: unknown key 'comands'; did you mean 'commands'?" in err
    assert err.count("[launch] WARNING: ") == 2, err
    assert "there is no variable 'NOTHING_OF_THE_KIND'; it is written <no value>" in err
    assert "<no value>" in launched.out.read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scripts: {}", "line 1: scripts: expected one script at least"),
        ("scripts:\n  a:\n  - {", "not YAML"),
        ("scripts: {a: {commands: [['{{.A']]}}", "an action is not closed by }}"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text(text)
    output = run_main("launch", str(file))
    assert (output.code, output.out) == (1, "")
    (line,) = output.err.splitlines()
    assert line.startswith(f"trio-cogment: {file}: ")
    assert expected in line


def test_the_file_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = "there is no launch.yaml or launch.yml in this folder"
    assert run_main("launch").err == f"trio-cogment: .: {expected}\n"
    (tmp_path / "launch.yml").write_text("scripts: {a: {commands: [[echo, one, '{{.__1}}']]}}")
    command = [sys.executable, "-m", "trio_cogment", "launch", "-qqq"]
    for arguments, output in (([], b"one\n"), ([str(tmp_path), "two"], b"one two\n")):
        assert subprocess.check_output([*command, *arguments], timeout=PATIENCE_SECONDS) == output


def test_wrong_usage(tmp_path: Path) -> None:
    for arguments, expected in (
        (("",), "expected a path, got ''"),
        ((str(tmp_path / "none"),), "No such file"),
        (("--grace=0s", "x"), "--grace: expected more than 0"),
        (("--nothing", "x"), "No such option"),
    ):
        output = run_main("launch", *arguments)
        assert output.code == 1
        assert expected in output.err


def on_a_terminal(file: Path, **variables: str) -> str:
    """What a launcher writes to a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_cogment", "launch", "-q", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        env=environment_variables(**{"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "", **variables}),
    )
    os.close(follower)
    written = b""
    with open(leader, "rb", buffering=0) as terminal:
        try:
            while data := terminal.read(4096):
                written += data
        except OSError:
            pass  # Linux says so when the other side is closed
    assert process.wait(PATIENCE_SECONDS) == 4
    return written.decode()


def test_on_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text(
        "scripts:\n"
        "  server: {ready_output: up, commands: [[sh, -c, echo up; exec sleep 1000]]}\n"
        "  client: {depends_on: [server], commands: [[sh, -c, exit 4]]}\n"
    )
    coloured = on_a_terminal(file)
    assert "\x1b[36m[server:(1/1)]\x1b[0m stdout: up\r\n" in coloured
    plain = on_a_terminal(file, NO_COLOR="1")
    assert set(re.findall(r"\x1b\[[0-9;]*[a-zA-Z]", plain)) == {"\x1b[K"}
    assert "server starting  client waiting" in plain
    assert "server running  client running" in plain
    # Nothing of the last line is left.
    assert plain.endswith("\r\x1b[K")
    assert "\x1b" not in on_a_terminal(file, TERM="dumb")


#: Makes stdin the controlling terminal, and becomes the launcher.
ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "trio_cogment", "launch", sys.argv[1]])
"""


def test_control_c_on_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    command = "trap 'echo asked; exit 0' TERM; echo pid $$; while :; do sleep 0.01; done"
    file.write_text(f'scripts: {{a: {{commands: [[sh, -c, "{command}"]]}}}}')
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL, str(file)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment_variables(TERM="xterm"),
        start_new_session=True,
    )
    os.close(follower)
    written = b""
    with open(leader, "r+b", buffering=0) as terminal:
        while not (found := re.search(rb"pid (\d+)\r", written)):
            written += terminal.read(4096)
        terminal.write(b"\x03")
        try:
            while data := terminal.read(4096):
                written += data
        except OSError:
            pass  # Linux says so when the other side is closed
    assert process.wait(PATIENCE_SECONDS) == 130
    assert b"asked" in written
    with pytest.raises(ProcessLookupError):
        os.kill(int(found[1]), 0)
