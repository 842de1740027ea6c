"""Runs the steps of pages in a folder, with the programs of an environment, and compares what they print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from tests.docs.blocks import Command, File, Program, Step, Stop, pattern_of

#: For one program or command. Most take a second; a busy machine may take its time.
PATIENCE_SECONDS = 100

#: Runs a program whose `await` is outside of functions.
_AWAITING = """
import ast, sys, types, trio
with open(sys.argv[1]) as file:
    code = compile(file.read(), sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
trio.run(types.FunctionType(code, {"__name__": "__main__"}))
"""


class DifferentError(AssertionError):
    """A page does not tell the truth."""


class Runner:
    """Runs steps, one after the other; what serves goes on until the runner is left.

    Args:
        folder: where files are written and everything runs.
        programs: the folder of `python` and `trio-cogment`.
        variables: of the environment, besides this process's own.
        tell: is called with each step's place and what is run.
    """

    def __init__(
        self,
        folder: Path,
        programs: Path = Path(sys.executable).parent,
        variables: Mapping[str, str] = {},
        tell: Callable[[str], object] = str,
    ) -> None:
        self._folder = folder
        self._programs = programs
        self._tell = tell
        ours = ("COGMENT_", "TRIAL_", "PROMETHEUS_", "TRIO_COGMENT_", "PYTEST_")
        self._variables = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self._variables["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._variables |= {"PYTHONUNBUFFERED": "1", "MINARI_DATASETS_PATH": str(folder / "minari")}
        self._variables |= variables
        self._servers: list[_Serving] = []

    async def run(self, steps: Sequence[Step]) -> None:
        """Run all steps, then stop what serves.

        Raises:
            DifferentError: something failed, or printed something else than the page says.
        """
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            stack.callback(nursery.cancel_scope.cancel)
            for step in steps:
                match step:
                    case File():
                        self._tell(f"{step.place}: writes {step.name}")
                        path = trio.Path(self._folder / step.name)
                        await path.parent.mkdir(parents=True, exist_ok=True)
                        await path.write_text(step.text)
                    case Program():
                        self._tell(f"{step.place}: runs a program")
                        await self._run_program(step)
                    case Command(serves=True):
                        self._tell(f"{step.place}: $ {step.text}")
                        serving = _Serving(step, await self._start(f"exec {step.text}"))
                        nursery.start_soon(serving.read)
                        await serving.wait_ready()
                        self._servers.append(serving)
                    case Stop():
                        self._tell(f"{step.place}: Control-C")
                        await self._stop(step.text)
                    case Command():
                        self._tell(f"{step.place}: $ {step.text}")
                        process = await self._start(step.text)
                        await _check(step, process, both=True)
            await self._stop("")

    async def _stop(self, text: str) -> None:
        """Stop the servers whose command has a text, the newest first."""
        for serving in reversed(self._servers[:]):
            if text in serving.command:
                self._servers.remove(serving)
                await serving.stop()

    async def _start(self, text: str) -> trio.Process:
        return await trio.lowlevel.open_process(
            ["sh", "-c", text],
            cwd=self._folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    async def _run_program(self, step: Program) -> None:
        name = "page_" + re.sub(r"\W+", "_", step.place.rpartition("/")[2]) + ".py"
        await trio.Path(self._folder / name).write_text(step.text)
        try:
            compile(step.text, name, "exec")
            how = [name]
        except SyntaxError:
            how = ["-c", _AWAITING, name]
        process = await trio.lowlevel.open_process(
            [str(self._programs / "python"), "-W", "error", *how],
            cwd=self._folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        await _check(step, process, both=step.logs)


class _Serving:
    """A command that goes on."""

    def __init__(self, step: Command, process: trio.Process) -> None:
        self._step = step
        self._process = process
        self._texts = {"out": "", "err": ""}
        self._more = trio.Event()

    @property
    def command(self) -> str:
        return self._step.text

    async def read(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_one, "out", self._process.stdout)
                nursery.start_soon(self._read_one, "err", self._process.stderr)
            await self._process.wait()
        finally:
            self._more.set()
            await _killed(self._process)

    async def _read_one(self, name: str, stream: trio.abc.ReceiveStream | None) -> None:
        assert stream is not None
        async for data in stream:
            self._texts[name] += data.decode()
            self._more.set()
            self._more = trio.Event()

    async def wait_ready(self) -> None:
        """Wait until it has printed what is expected."""
        pattern = ".+\\n" if self._step.expected is None else pattern_of(self._step.expected)
        with trio.move_on_after(PATIENCE_SECONDS):
            while not re.match(pattern, self._texts["out"]):
                if self._process.poll() is not None:
                    break
                await self._more.wait()
            else:
                return
        raise self._different("it has not begun to serve as shown")

    async def stop(self) -> None:
        """Stop it as Control-C does; it has to end in an orderly way."""
        self._process.send_signal(signal.SIGINT)
        with trio.move_on_after(PATIENCE_SECONDS):
            if await self._process.wait() == 0:
                return
        raise self._different(f"after Control-C its exit code was {self._process.returncode}")

    def _different(self, why: str) -> DifferentError:
        return _different(self._step, self._texts["out"] + self._texts["err"], why)


async def _killed(process: trio.Process) -> None:
    """Leave nothing of a process, whatever has happened."""
    process.kill()
    with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE_SECONDS):
        await process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            await stream.aclose()


async def _check(step: Program | Command, process: trio.Process, *, both: bool) -> None:
    """Wait for the end, and compare; with `both` stderr may have something."""
    texts = {"out": "", "err": ""}

    async def read(name: str, stream: trio.abc.ReceiveStream | None) -> None:
        if stream is not None:
            data = b"".join([part async for part in stream])
            texts[name] = data.decode()

    with trio.move_on_after(PATIENCE_SECONDS) as scope:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read, "out", process.stdout)
                nursery.start_soon(read, "err", process.stderr)
            await process.wait()
        finally:
            await _killed(process)
    printed = texts["out"] + texts["err"]
    if scope.cancelled_caught:
        raise _different(step, printed, f"it ran longer than {PATIENCE_SECONDS} s")
    if (process.returncode != 0) != step.fails:
        raise _different(step, printed, f"its exit code was {process.returncode}")
    if texts["err"] and not both and not step.fails:
        raise _different(step, printed, "it wrote to stderr")
    compared = printed if step.fails else texts["out"]
    if step.expected is not None and not re.fullmatch(pattern_of(step.expected), _lines(compared)):
        raise _different(step, printed, f"it printed something else than the page says:\n{step.expected}")


def _lines(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _different(step: Program | Command, printed: str, why: str) -> DifferentError:
    what = f"$ {step.text}" if isinstance(step, Command) else step.text
    return DifferentError(f"{step.place}: {why}\n--- run\n{what}\n--- printed\n{printed}")
