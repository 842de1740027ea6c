"""Runs the scripts of a plan: each waits for those it depends on; when one ends, all are stopped."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

import trio

from trio_cogment.cli.launching._format import Level, Source, State, Stream
from trio_cogment.cli.launching._groups import FindStrays, Groups, no_strays
from trio_cogment.cli.launching._line_matcher import LINE_SECONDS, LineMatcher, LineTooSlowError
from trio_cogment.cli.launching._lines import LineSplitter
from trio_cogment.cli.launching._plan import Plan, Script
from trio_cogment.cli.launching._programs import CommandNotFoundError, Programs

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
            await self._display.tell(Level.ERROR, source, f"ended by {_signal_name(-code)}")
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
