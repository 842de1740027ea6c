"""The launcher with real processes; nobody waits for time to pass, only for what processes say and do."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from trio_cogment.cli.launching import Launcher, Level, Plan, Programs, Script, Source, State, Stream

PATIENCE_SECONDS = 60


class Recorder:
    """A display that remembers everything."""

    def __init__(self) -> None:
        self.told: list[tuple[Level, str, str]] = []
        self.lines: list[tuple[str, Stream, bytes]] = []
        self.history: dict[str, list[State]] = {}
        self.names = ""
        self._news = trio.Condition()

    async def tell(self, level: Level, source: Source, text: str) -> None:
        self.told.append((level, source.script, text))
        await self._notify()

    async def show(self, source: Source, stream: Stream, lines: Sequence[bytes]) -> None:
        self.lines += [(source.script, stream, line) for line in lines]
        await self._notify()

    async def states(self, states: Mapping[str, State]) -> None:
        for name, state in states.items():
            history = self.history.setdefault(name, [])
            if history[-1:] != [state]:
                history.append(state)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._news:
            while not condition():
                await self._news.wait()

    async def until_line(self, line: bytes) -> None:
        await self.until(lambda: line in self.output())

    def output(self, script: str = "", stream: Stream | None = None) -> list[bytes]:
        return [line for name, where, line in self.lines if (not script or name == script) and stream in (None, where)]

    def texts(self, level: Level) -> list[tuple[str, str]]:
        return [(name, text) for found, name, text in self.told if found is level]


@pytest.fixture
def display() -> Recorder:
    return Recorder()


def shell(name: str, *commands: str, folder: Path = Path("/"), ready: str = "", **settings: object) -> Script:
    return Script(
        name=name,
        folder=folder,
        environment={"PATH": os.environ["PATH"]},
        commands=tuple(("sh", "-c", command) for command in commands),
        ready_output=re.compile(ready) if ready else None,
        **settings,  # type: ignore[arg-type]  # each test knows what it sets
    )


async def launched(display: Recorder, *scripts: Script) -> int:
    with trio.fail_after(PATIENCE_SECONDS):
        return await Launcher(Plan(scripts), display).run()


@asynccontextmanager
async def launching(
    display: Recorder, *scripts: Script, grace: float = 40
) -> AsyncIterator[tuple[Launcher, list[int]]]:
    """Run a launcher beside a block, which must see its end; the list gets its exit code."""
    codes: list[int] = []
    launcher = Launcher(Plan(scripts), display, grace_seconds=grace)

    async def run() -> None:
        codes.append(await launcher.run())

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            yield launcher, codes


def running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in (b"Z", b"X")


WAIT = "echo up; exec sleep 1000"


async def test_one_script_returns_with_its_exit_code(display: Recorder) -> None:
    assert await launched(display, shell("a", "echo out; echo err >&2; exit 7")) == 7
    assert display.lines.count(("a", Stream.STDOUT, b"out")) == 1
    assert display.lines.count(("a", Stream.STDERR, b"err")) == 1
    assert display.texts(Level.ERROR) == [("a", "ended with exit code 7")]
    assert display.history == {"a": [State.WAITING, State.STARTING, State.RUNNING, State.ENDED]}


async def test_success(display: Recorder) -> None:
    assert await launched(display, shell("a", "exit 0")) == 0
    assert display.texts(Level.ERROR) == []


async def test_commands_run_one_after_the_other(display: Recorder) -> None:
    assert await launched(display, shell("a", "echo 1", "echo 2; exit 4", "echo 3")) == 4
    assert display.output() == [b"1", b"2"]


async def test_a_script_of_which_nothing_is_left_ends_at_once(display: Recorder) -> None:
    assert await launched(display, shell("a"), shell("b", WAIT)) == 0


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (6, "SIGABRT"), (40, "signal 40")])
async def test_the_signal_that_ends_a_script(display: Recorder, number: int, name: str) -> None:
    assert await launched(display, shell("a", f"kill -{number} $$")) == 128 + number
    assert display.texts(Level.ERROR) == [("a", f"ended by {name}")]


async def test_the_first_end_stops_the_others(display: Recorder) -> None:
    first = shell("first", "exit 3", depends_on=("one", "two"))
    one = shell("one", "trap 'echo asked; exit 5' TERM; echo up; while :; do sleep 0.01; done", ready="up")
    two = shell("two", WAIT, ready="up")
    assert await launched(display, first, one, two) == 3
    assert b"asked" in display.output("one")


async def test_what_does_not_end_in_time_is_killed(display: Recorder) -> None:
    deaf = shell("deaf", "trap '' TERM; echo $$; while :; do sleep 0.01; done")
    async with launching(display, deaf, grace=0.1) as (launcher, codes):
        await display.until(lambda: bool(display.output()))
        launcher.stop(130)
    assert codes == [130]
    assert not running(int(display.output()[0]))
    assert ("", "killed what had not ended in time") in display.texts(Level.INFO)


async def test_kill_waits_for_nothing(display: Recorder) -> None:
    deaf = shell("deaf", "trap 'echo asked' TERM; echo $$; while :; do sleep 0.01; done")
    async with launching(display, deaf) as (launcher, codes):
        await display.until(lambda: bool(display.output()))
        launcher.stop(130)
        await display.until_line(b"asked")
        launcher.kill()
    assert codes == [130]
    assert not running(int(display.output()[0]))


async def test_a_stop_after_the_end_changes_nothing(display: Recorder) -> None:
    slow = shell("slow", "trap 'echo asked' TERM; echo up; while :; do sleep 0.01; done", ready="up")
    async with launching(display, slow, shell("a", "exit 3", depends_on=("slow",))) as (launcher, codes):
        await display.until_line(b"asked")
        launcher.stop(130)
        launcher.kill()
    assert codes == [3]


async def test_grandchildren_are_stopped_too(display: Recorder) -> None:
    parent = shell(
        "parent", "sleep 1000 & echo $!; (trap '' TERM; exec sleep 1000) & echo $!; echo up; wait", ready="up"
    )
    last = shell("last", "exit 2", depends_on=("parent",))
    launcher = Launcher(Plan((parent, last)), display, grace_seconds=0.1)
    with trio.fail_after(PATIENCE_SECONDS):
        await launcher.run()
    *pids, _ = display.output("parent")
    assert len(pids) == 2
    assert not any(running(int(pid)) for pid in pids)


DAEMON = """
import os, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(1, b"%d\\n" % os.getpid())
    os.write(writing, b"x")
    time.sleep(1000)
os.read(reading, 1)
raise SystemExit(3)
"""


async def test_grandchildren_that_hold_the_output_do_not_hold_up_the_end(display: Recorder) -> None:
    script = Script(name="a", folder=Path("/"), environment={}, commands=((sys.executable, "-c", DAEMON),))
    assert await launched(display, script) == 3
    (daemon,) = map(int, display.output())
    # It has left its group, and nobody has asked to look for such.
    assert running(daemon)
    os.kill(daemon, signal.SIGKILL)


async def test_cancelling_leaves_no_process(display: Recorder) -> None:
    launcher = Launcher(Plan((shell("a", "echo $$; exec sleep 1000"),)), display)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(launcher.run)
            await display.until(lambda: bool(display.output()))
            nursery.cancel_scope.cancel()
    assert not running(int(display.output()[0]))


async def test_a_display_that_fails_ends_everything(display: Recorder) -> None:
    class Broken(Recorder):
        async def show(self, source: Source, stream: Stream, lines: Sequence[bytes]) -> None:
            await super().show(source, stream, lines)
            raise BrokenPipeError

    broken = Broken()
    with pytest.RaisesGroup(BrokenPipeError, flatten_subgroups=True):
        await launched(broken, shell("a", "echo $$; exec sleep 1000"))
    assert not running(int(broken.output()[0]))


# Readiness


async def test_ready_at_a_line_on_either_stream(display: Recorder) -> None:
    for stream in (">&1", ">&2"):
        recorder = Recorder()
        server = shell("server", f"echo no; echo now ready: 1 {stream}; exec sleep 1000", ready=r"ready: \d")
        assert await launched(recorder, shell("client", "exit 5", depends_on=("server",)), server) == 5
        assert recorder.history["server"] == [State.WAITING, State.STARTING, State.RUNNING]
        told = recorder.told
        assert told.index((Level.INFO, "server", "ready")) < told.index(
            (Level.ERROR, "client", "ended with exit code 5")
        )


async def test_ready_when_quiet(display: Recorder) -> None:
    server = shell("server", WAIT, ready="^up$", quiet=True)
    assert await launched(display, shell("client", "echo hi", depends_on=("server",)), server) == 0
    assert display.output() == [b"hi"]


async def test_ready_without_an_expression_is_at_once(display: Recorder) -> None:
    server = shell("server", "exec sleep 1000")
    assert await launched(display, shell("client", "echo hi", depends_on=("server",)), server) == 0


async def test_a_dependency_that_ends_without_being_ready(display: Recorder) -> None:
    server = shell("server", "echo no; exit 6", ready="yes")
    assert await launched(display, shell("client", "echo hi", depends_on=("server",)), server) == 6
    assert display.output() == [b"no"]
    assert ("server", "ended before a line had matched 'yes'") in display.texts(Level.INFO)


async def test_a_chain(display: Recorder) -> None:
    scripts = [shell("c", "exit 9", depends_on=("b",)), shell("b", WAIT, ready="up", depends_on=("a",))]
    assert await launched(display, *scripts, shell("a", WAIT, ready="up")) == 9
    started = [name for level, name, text in display.told if text.startswith("started")]
    assert started == ["a", "b", "c"]


# Output


async def test_lines_without_end_and_bytes_that_are_no_text(display: Recorder) -> None:
    assert await launched(display, shell("a", r"printf '\377\000x\nlast'")) == 0
    assert display.output() == [b"\xff\x00x", b"last"]


async def test_long_lines_block_nobody(display: Recorder) -> None:
    program = "import sys; sys.stdout.write('x' * 3_000_000); sys.stdout.flush(); sys.stderr.write('done')"
    script = Script(name="a", folder=Path("/"), environment={}, commands=((sys.executable, "-c", program),))
    assert await launched(display, script) == 0
    assert b"".join(display.output("a", Stream.STDOUT)) == b"x" * 3_000_000
    assert display.output("a", Stream.STDERR) == [b"done"]


async def test_the_last_output_is_shown(display: Recorder) -> None:
    count = 20_000
    assert await launched(display, shell("a", f"seq {count}")) == 0
    assert display.output() == [str(number).encode() for number in range(1, count + 1)]


# Environment and folders


async def test_environment_folder_and_input(display: Recorder, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\npwd; echo $NAME; cat; echo end\n")
    (tmp_path / "tool").chmod(0o755)
    script = Script(
        name="a", folder=tmp_path, environment={"NAME": "x y", "PATH": os.environ["PATH"]}, commands=(("./tool",),)
    )
    assert await launched(display, script) == 0
    assert display.output() == [str(tmp_path).encode(), b"x y", b"end"]


async def test_programs_are_found_by_the_launchers_path(display: Recorder, tmp_path: Path) -> None:
    (tmp_path / "sh").write_text("#!/bin/sh\necho wrong\n")
    (tmp_path / "sh").chmod(0o755)
    script = Script(
        name="a", folder=tmp_path, environment={"PATH": str(tmp_path)}, commands=(("sh", "-c", "echo $PATH"),)
    )
    assert await launched(display, script) == 0
    assert display.output() == [str(tmp_path).encode()]


async def test_commands_that_cannot_be_run(display: Recorder, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    cases = [
        (("nothing-of-the-kind",), tmp_path, 127, "nothing-of-the-kind: command not found on PATH"),
        (("./nothing",), tmp_path, 127, "cannot run: ./nothing: No such file or directory"),
        (("./data",), tmp_path, 126, "cannot run: ./data: Permission denied"),
        (("sh",), tmp_path / "none", 127, f"cannot run: {tmp_path}/none: No such file or directory"),
    ]
    for command, folder, code, text in cases:
        recorder = Recorder()
        script = Script(name="a", folder=folder, environment={}, commands=(command,))
        assert await launched(recorder, script, shell("b", WAIT)) == code
        assert ("a", text) in recorder.texts(Level.ERROR)


async def test_fallbacks(display: Recorder) -> None:
    programs = Programs("/nowhere", {"cogment": [sys.executable, "-c", "import sys; print(sys.argv[1:])"]})
    script = Script(name="a", folder=Path("/"), environment={}, commands=(("cogment", "version"),))
    with trio.fail_after(PATIENCE_SECONDS):
        assert await Launcher(Plan((script,)), display, programs=programs).run() == 0
    assert display.output() == [b"['version']"]


async def test_no_descriptor_stays_open(display: Recorder) -> None:
    await launched(display, shell("warm", "exit 0"))
    before = len(os.listdir("/proc/self/fd"))
    scripts = (shell("a", WAIT, ready="up"), shell("b", "exit 1", depends_on=("a",)), shell("c", "./none", "true"))
    assert await launched(Recorder(), *scripts) in (1, 127)
    assert len(os.listdir("/proc/self/fd")) == before


# Many


async def test_forty_scripts_with_a_lot_to_say(display: Recorder) -> None:
    scripts = [shell(f"s{number}", "seq 500; exec sleep 1000") for number in range(40)]
    async with launching(display, *scripts) as (launcher, codes):
        await display.until(lambda: len(display.lines) == 40 * 500)
        launcher.stop(143)
    assert codes == [143]
    expected = [str(number).encode() for number in range(1, 501)]
    assert all(display.output(f"s{number}") == expected for number in range(40))


async def test_an_expression_that_takes_for_ever_holds_nothing_up(display: Recorder) -> None:
    """It counts as not found, lines after it are looked at, and what waits for the script starts."""
    line = "a" * 64
    # More than one line may come in one piece, and those after the slow one are then not looked at.
    slow = shell("slow", f"echo {line}!; sleep 2; while echo aaa; do sleep 0.1; done", ready="^(a+)+$")
    client = shell("client", "exit 7", depends_on=("slow",))
    assert await launched(display, slow, client) == 7
    text = "ready_output: a line took more than 1 s; it counts as one without a match"
    assert display.texts(Level.ERROR)[0] == ("slow", text)
    assert display.history["slow"] == [State.WAITING, State.STARTING, State.RUNNING]


async def test_a_launch_is_stopped_while_an_expression_takes_for_ever(display: Recorder) -> None:
    line = "a" * 64
    slow = shell("slow", f"echo {line}!; exec sleep 1000", ready="^(a+)+$")
    launcher = Launcher(Plan((slow,)), display)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await display.until_line(f"{line}!".encode())
                launcher.stop(143)

            nursery.start_soon(stop)
            assert await launcher.run() == 143
    assert State.RUNNING not in display.history["slow"]
