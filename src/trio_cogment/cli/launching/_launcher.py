"""Runs the scripts of a plan: each waits for those it depends on; when one ends, all are stopped."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import trio

from trio_cogment.base.host.processes import processes, signal_name
from trio_cogment.cli.launching._format import Level, Source, State, Stream
from trio_cogment.cli.launching._line_matcher import LINE_SECONDS, LineMatcher, LineTooSlowError
from trio_cogment.cli.launching._plan import Plan, Script

# The process groups that a launcher has started, and what else has come of them.

#: Given the processes started here, returns all others that have come of them; see `strays.Strays`.
FindStrays = Callable[[Collection[int]], Iterable[int]]


def no_strays(_leaders: Collection[int]) -> Iterable[int]:
    """Find none: only groups are stopped."""
    return ()


class Groups:
    """Process groups, each made of a command and whatever it has started.

    Args:
        find_strays: finds processes that have left their groups.
    """

    def __init__(self, find_strays: FindStrays = no_strays) -> None:
        self._leaders: dict[int, trio.Process] = {}
        self._find_strays = find_strays

    def add(self, leader: trio.Process) -> None:
        """Add the group of a process that was started as the leader of one."""
        self._leaders[leader.pid] = leader

    def prune(self) -> None:
        """Forget the groups of which nothing is left: their numbers may be given to others."""
        # Asking for the exit code also takes it from the system, which until then keeps the process.
        running = {group for group, leader in self._leaders.items() if leader.returncode is None}
        left = {group for group in self._leaders.keys() - running if _exists(group)}
        if left and (known := processes()) is not None:
            # Members that have ended count until somebody takes notice, which may be never.
            left &= {process.group for process in known if not process.ended}
        self._leaders = {group: leader for group, leader in self._leaders.items() if group in running | left}

    def strays(self) -> list[int]:
        """Return the processes that are in none of the groups."""
        return [pid for pid in self._find_strays(self._leaders.keys()) if _group_of(pid) not in self._leaders]

    def any_left(self) -> bool:
        """Tell whether any process is left."""
        self.prune()
        return bool(self._leaders) or bool(self.strays())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process that is left."""
        strays = self.strays()
        for group in self._leaders:
            _send(os.killpg, group, number)
        for pid in strays:
            _send(os.kill, pid, number)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as somebody else
        return True
    return True


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _send(send: Callable[[int, int], None], target: int, number: signal.Signals) -> None:
    try:
        send(target, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended, or runs as somebody else


# The output of a process as lines, whatever it writes and however it is cut into pieces.

#: A longer line is cut: memory stays bounded, and the process can go on.
MAX_LINE_BYTES = 65536


class LineSplitter:
    """Joins pieces of output and cuts them into lines.

    Args:
        most: bytes of a line; what is longer is handed out in parts of that size.
    """

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._rest = b""
        #: A part of the line has been handed out already.
        self._cut = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends (LF, or CR LF)."""
        *lines, rest = data.split(b"\n")
        found: list[bytes] = []
        for line in lines:
            line = self._rest + line
            self._rest = b""
            self._add(found, line)
            self._cut = False
        self._rest += rest
        while len(self._rest) > self._most:
            found.append(self._rest[: self._most])
            self._rest = self._rest[self._most :]
            self._cut = True
        return found

    def end(self) -> list[bytes]:
        """Return what is left at the end of the output."""
        found: list[bytes] = []
        if self._rest:
            self._add(found, self._rest)
        self._rest, self._cut = b"", False
        return found

    def _add(self, found: list[bytes], line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if not line and not self._cut:
            found.append(line)
        found += [line[start : start + self._most] for start in range(0, len(line), self._most)]


# Search for the program of a command.


class CommandNotFoundError(Exception):
    """There is no such program on the launcher's PATH."""


class Programs:
    """Finds programs.

    Args:
        path: the folders to look in, as in the variable PATH; None: those of this process. The variable as a script
            may set it counts for what the program itself starts.
        fallbacks: for names that are not found there, the arguments that stand for them.
    """

    def __init__(self, path: str | None = None, fallbacks: Mapping[str, Sequence[str]] | None = None) -> None:
        self._path = path
        self._fallbacks = dict(fallbacks or {})

    def found(self, arguments: Sequence[str]) -> tuple[str, list[str]]:
        """Return the file to run and its arguments, its name first.

        A name with a slash in it is a path, from the folder where the command runs.

        Raises:
            CommandNotFoundError: it is not found.
        """
        name = arguments[0]
        if os.path.dirname(name):
            return name, list(arguments)
        file = shutil.which(name, path=self._path)
        if file is not None:
            return os.path.abspath(file), list(arguments)
        if name in self._fallbacks:
            replaced = [*self._fallbacks[name], *arguments[1:]]
            return replaced[0], replaced
        raise CommandNotFoundError(f"{name}: command not found on PATH")


#: Exit codes that shells have for commands that cannot be run, and that are not there.
CANNOT_RUN, NOT_FOUND = 126, 127

#: How long all processes may take to end by themselves when one has ended.
DEFAULT_GRACE_SECONDS = 5.0
#: How long processes may take to be gone once they are killed.
_KILL_SECONDS = 2.0
#: How long the last output may take to be read and shown when nobody is left who writes.
_DRAIN_SECONDS = 2.0
#: How long the output of a command that has ended is waited for: what it has started may hold it open.
_LINGER_SECONDS = 0.5
_POLL_SECONDS = 0.02
_BURY_SECONDS = 5.0


class Display(Protocol):
    """Where a launcher shows what happens. An exception of it ends the launch."""

    async def tell(self, level: Level, source: Source, text: str) -> None:
        """Show what the launcher has done."""

    async def show(self, source: Source, stream: Stream, lines: Sequence[bytes]) -> None:
        """Show lines of a process."""

    async def states(self, states: Mapping[str, State]) -> None:
        """Show how far each script is."""


class Launcher:
    """Runs a plan, once.

    Args:
        plan: what to run.
        display: where to show what happens.
        programs: where to find programs.
        find_strays: finds processes that have left their groups.
        grace_seconds: how long processes may take to end after SIGTERM before they get SIGKILL.
    """

    def __init__(
        self,
        plan: Plan,
        display: Display,
        *,
        programs: Programs | None = None,
        find_strays: FindStrays = no_strays,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
    ) -> None:
        self._plan = plan
        self._display = display
        self._programs = programs or Programs()
        self._groups = Groups(find_strays)
        self._grace_seconds = grace_seconds
        self._ready = {script.name: trio.Event() for script in plan.scripts}
        self._matchers = {
            script.name: LineMatcher(script.ready_output) for script in plan.scripts if script.ready_output is not None
        }
        self._states = {script.name: State.WAITING for script in plan.scripts}
        self._code: int | None = None
        self._over = trio.Event()
        self._killed = trio.Event()
        self._readers = trio.CancelScope()

    async def run(self) -> int:
        """Run all scripts until one of them ends or `stop` is called, then stop the others.

        Every process gets SIGTERM, and after the grace time SIGKILL. Once cancelled it does the same before it returns,
        within the grace time and some seconds.

        Returns:
            The exit code of the first script that has ended, or what `stop` was given.
        """
        await self._display.states(self._states)
        async with trio.open_nursery() as readers:
            self._readers = readers.cancel_scope
            try:
                async with trio.open_nursery() as scripts:
                    scripts.start_soon(self._bury)
                    for script in self._plan.scripts:
                        scripts.start_soon(self._script, script, readers)
                    await self._over.wait()
                    scripts.cancel_scope.cancel()
            finally:
                deadline = trio.current_time() + self._grace_seconds + _KILL_SECONDS
                with trio.CancelScope(shield=True, deadline=deadline):
                    await self._stop_processes()
                for matcher in self._matchers.values():
                    await matcher.aclose()
            # What was written before the end is shown; a process that cannot be killed must not hold this up.
            readers.cancel_scope.deadline = trio.current_time() + (0 if self._killed.is_set() else _DRAIN_SECONDS)
        assert self._code is not None
        return self._code

    def stop(self, code: int) -> None:
        """Stop all scripts in order; `run` returns this exit code unless a script has ended before."""
        if self._code is None:
            self._code = code
        self._over.set()

    def kill(self) -> None:
        """End all processes at once; after `stop`."""
        self._killed.set()
        if self._over.is_set():
            self._readers.deadline = min(self._readers.deadline, trio.current_time() + _KILL_SECONDS)

    # Scripts

    async def _script(self, script: Script, readers: trio.Nursery) -> None:
        for name in script.depends_on:
            if not self._ready[name].is_set():
                await self._display.tell(Level.TRACE, Source(script.name), f"waits for {name}")
            await self._ready[name].wait()
        await self._enter(script.name, State.STARTING)
        total = len(script.commands)
        code = 0
        for number, command in enumerate(script.commands, 1):
            code = await self._command(script, Source(script.name, number, total), command, readers)
            if code:
                break
        self.stop(code)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _DRAIN_SECONDS):
            if script.ready_output is not None and not self._ready[script.name].is_set():
                text = f"ended before a line had matched {script.ready_output.pattern!r}"
                await self._display.tell(Level.INFO, Source(script.name), text)
            await self._enter(script.name, State.ENDED)

    async def _command(self, script: Script, source: Source, command: Sequence[str], readers: trio.Nursery) -> int:
        """Run a command to its end, and return its exit code as a shell would."""
        await self._display.tell(Level.TRACE, source, f"runs {shlex.join(command)} in {script.folder}")
        if script.ready_output is None and not self._ready[script.name].is_set():
            await self._enter(script.name, State.RUNNING)
        try:
            process = await self._start(script, command)
        except CommandNotFoundError as error:
            await self._display.tell(Level.ERROR, source, str(error))
            return NOT_FOUND
        except OSError as error:
            where = script.folder if error.filename is None else error.filename
            await self._display.tell(Level.ERROR, source, f"cannot run: {where}: {error.strerror or error}")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        outputs = []
        for stream, pipe in ((Stream.STDOUT, process.stdout), (Stream.STDERR, process.stderr)):
            assert pipe is not None
            outputs.append(trio.Event())
            readers.start_soon(self._read, script, source, stream, pipe, outputs[-1])
        await self._display.tell(Level.INFO, source, f"started, process {process.pid}")
        code = await process.wait()
        with trio.move_on_after(_LINGER_SECONDS):
            for output in outputs:
                await output.wait()
        self._groups.prune()
        if code < 0:
            await self._display.tell(Level.ERROR, source, f"ended by {signal_name(-code)}")
            return 128 - code
        level = Level.ERROR if code else Level.INFO
        await self._display.tell(level, source, f"ended with exit code {code}")
        return code

    async def _start(self, script: Script, command: Sequence[str]) -> trio.Process:
        executable, arguments = self._programs.found(command)
        # Once it has started a process it is not cancelled any more: none gets lost.
        process = await trio.lowlevel.open_process(
            arguments,
            executable=executable,
            cwd=script.folder,
            env=script.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._groups.add(process)
        return process

    async def _read(
        self, script: Script, source: Source, stream: Stream, pipe: trio.abc.ReceiveStream, done: trio.Event
    ) -> None:
        lines = LineSplitter()
        async with pipe:
            async for data in pipe:
                await self._take(script, source, stream, lines.feed(bytes(data)))
        await self._take(script, source, stream, lines.end())
        done.set()

    async def _take(self, script: Script, source: Source, stream: Stream, lines: Sequence[bytes]) -> None:
        if lines and not script.quiet:
            await self._display.show(source, stream, lines)
        matcher = self._matchers.get(script.name)
        if matcher is None or not lines or self._ready[script.name].is_set() or self._over.is_set():
            return
        try:
            found = await matcher.search(lines)
        except LineTooSlowError:
            text = f"ready_output: a line took more than {LINE_SECONDS:g} s; it counts as one without a match"
            await self._display.tell(Level.ERROR, source, text)
            return
        except OSError as error:
            text = f"ready_output: no process to look for it: {error.strerror or error}"
            await self._display.tell(Level.ERROR, source, text)
            return
        if found:
            await self._enter(script.name, State.RUNNING)
            await self._display.tell(Level.INFO, source, "ready")
            await matcher.aclose()

    async def _enter(self, name: str, state: State) -> None:
        self._states[name] = state
        if state is State.RUNNING:
            self._ready[name].set()
        await self._display.states(self._states)

    async def _bury(self) -> None:
        """Now and then take leave of orphans that have ended."""
        while True:
            await trio.sleep(_BURY_SECONDS)
            self._groups.strays()

    # The end

    async def _stop_processes(self) -> None:
        if not self._groups.any_left():
            return
        if not self._killed.is_set():
            self._groups.signal(signal.SIGTERM)
            with trio.move_on_after(self._grace_seconds):
                await self._wait_gone()
        late = self._groups.any_left() and not self._killed.is_set()
        while self._groups.any_left():
            self._groups.signal(signal.SIGKILL)
            await trio.sleep(_POLL_SECONDS)
        if late:
            with trio.move_on_after(_POLL_SECONDS * 5):
                await self._display.tell(Level.INFO, Source(), "killed what had not ended in time")

    async def _wait_gone(self) -> None:
        """Wait until no process is left, or they are to be killed."""
        # The end of a grandchild is told to nobody here.
        while True:
            if self._killed.is_set() or not self._groups.any_left():
                return
            await trio.sleep(_POLL_SECONDS)
