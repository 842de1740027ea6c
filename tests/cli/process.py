"""The command line as a process of its own, and what a trial needs around it."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from purerpc import Service

from trio_cogment.access import AccessControl
from trio_cogment.cli import main
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import ActorSession, EnvironmentSession, Participants, serve_participants

#: Starting takes well below a second; a machine busy with other tests may take its time.
PATIENCE_SECONDS = 40

NOTHING_ELSE = {
    "TRIO_COGMENT_STORAGE": "none",
    "COGMENT_MODEL_REGISTRY_ARCHIVE_DIR": "none",
    "COGMENT_DIRECTORY_PERSISTENCE_FILE": "none",
}

LISTENING = re.compile(r"^[\w, -]+ listening on (\S+):(\d+)(?: \((.*)\))?\n", re.MULTILINE)


def environment_variables(**changes: str) -> dict[str, str]:
    """Return this process's variables without any that the command line reads, and with some changes.

    A server of everything has the orchestrator alone unless a test says otherwise: the defaults of the others are files
    in the current folder.
    """
    ours = ("COGMENT_", "TRIAL_", "PROMETHEUS_", "TRIO_COGMENT_")
    others = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return others | NOTHING_ELSE | changes


@dataclass
class Output:
    code: int
    out: str
    err: str


async def run(*arguments: str, module: str = "trio_cogment", folder: Path | None = None, **variables: str) -> Output:
    """Run a command to its end."""
    with trio.fail_after(PATIENCE_SECONDS):
        done = await trio.run_process(
            [sys.executable, "-m", module, *arguments],
            env=environment_variables(**variables),
            cwd=folder,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    return Output(done.returncode, done.stdout.decode(), done.stderr.decode())


async def run_here(*arguments: str, data: bytes = b"", variables: Mapping[str, str] = {}) -> Output:
    """Run a command of the client to its end in a thread of this process: no other process has to start.

    A server cannot run in a thread, because of its signals: see `run_main`.
    """
    with trio.fail_after(PATIENCE_SECONDS):
        return await trio.to_thread.run_sync(partial(run_main, *arguments, data=data, variables=variables))


def run_main(*arguments: str, data: bytes = b"", variables: Mapping[str, str] = {}) -> Output:
    """Run any command to its end in this process, from a test that is not async: no other process has to start."""
    env: dict[str, str | None] = dict.fromkeys(os.environ)
    env.update(environment_variables(**variables))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    os.umask(mask := os.umask(0))
    try:
        with CliRunner().isolation(data, env=env) as (out, err, _):
            with pytest.raises(SystemExit) as left:
                main(arguments)
            return Output(int(left.value.code or 0), out.getvalue().decode(), err.getvalue().decode())
    finally:
        # A server sets up the log of its process.
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        os.umask(mask)


class Server:
    """A server process."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.out = ""
        self.err = ""
        #: (host, port, names of the services), as printed; `serve` lists its parts when it serves.
        self.addresses: list[tuple[str, int, str]] = []

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    async def wait_listening(self, addresses: int) -> None:
        with trio.fail_after(PATIENCE_SECONDS):
            while len(self.addresses) < addresses:
                await self._read()
                self.addresses = [(host, int(port), names) for host, port, names in LISTENING.findall(self.out)]

    async def parts(self) -> str:
        """Wait until `serve` says what there is, and return that."""
        return (await self.said(re.compile(r"^services +(.*)\n", re.MULTILINE)))[1]

    async def trials(self) -> str:
        """Wait until it says where trials are stored, and return that."""
        return (await self.said(re.compile(r"^trials +(.*)\n", re.MULTILINE)))[1]

    async def said(self, wanted: re.Pattern[str]) -> re.Match[str]:
        """Wait until it prints something, and return that."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not (found := wanted.search(self.out)):
                await self._read()
        return found

    async def read_rest(self) -> None:
        """Read what it prints until it has ended."""
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE_SECONDS):
            async for data in self.process.stdout:
                self.out += data.decode()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        data = await self.process.stdout.receive_some()
        if not data:
            await self.process.wait()
            raise AssertionError(f"it ended with {self.process.returncode}: {self.err}")
        self.out += data.decode()

    async def wait_serving(self) -> None:
        """Wait until it serves the connections of its first port, which is open before that; without TLS."""
        with trio.fail_after(PATIENCE_SECONDS):
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
                assert await stream.receive_some()

    async def wait_closed(self) -> None:
        """Wait until its first port takes no connections any more, because it is stopping."""
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", self.port)
                except OSError:
                    return
                await stream.aclose()

    async def keep_err(self) -> None:
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.err += data.decode()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code.

        How long that may take is tested in virtual time (`tests/rpc`); here, other work would count, too.
        """
        self.process.send_signal(number)
        with trio.fail_after(PATIENCE_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def server(
    *arguments: str,
    addresses: int = 1,
    variables: Mapping[str, str] = {},
    module: str = "trio_cogment",
    folder: Path | None = None,
) -> AsyncIterator[Server]:
    """Run a server for the time of a block; it may have stopped by itself before."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", module, *arguments],
        env=environment_variables(**variables),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    found = Server(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.keep_err)
            await found.wait_listening(addresses)
            yield found
            nursery.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE_SECONDS):
            await process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    await stream.aclose()


class Endless:
    """An environment and an actor that go on until they are ended, and remember how that was."""

    def __init__(self) -> None:
        #: trial -> what was told at its end, by name of the participant
        self.details: dict[str, dict[str, str | None]] = {}
        self.ticks: dict[str, int] = {}
        self._progress = trio.Condition()

    async def environment(self, session: EnvironmentSession) -> None:
        self.ticks[session.trial_id] = 0
        await session.start([("*", b"tick")])
        async for event in session.all_events():
            if event.actions is not None:
                self.ticks[session.trial_id] += 1
                async with self._progress:
                    self._progress.notify_all()
                await session.produce_observations([("*", b"tick")])
        self._ended(session)

    async def actor(self, session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"action")
        self._ended(session)

    def _ended(self, session: ActorSession | EnvironmentSession) -> None:
        self.details.setdefault(session.trial_id, {})[session.name] = session.details

    async def wait_running(self, trial_ids: Sequence[str]) -> None:
        """Wait until each trial has had some ticks."""
        for trial_id in trial_ids:
            await self.wait_tick(trial_id, 3)

    async def wait_tick(self, trial_id: str, ticks: int) -> None:
        """Wait until a trial has had this many ticks."""
        async with self._progress:
            while self.ticks.get(trial_id, 0) < ticks:
                await self._progress.wait()

    @asynccontextmanager
    async def served(self, access: AccessControl | None = None) -> AsyncIterator[str]:
        """Serve both over gRPC, to callers with tokens if access is controlled; gives the endpoint."""
        participants = Participants()
        participants.register_environment(self.environment)
        participants.register_actor(self.actor, "endless")
        async with served(participants, access) as endpoint:
            yield endpoint


@asynccontextmanager
async def listening(*services: Service, port: int = 0) -> AsyncIterator[str]:
    """Serve in this process for the time of a block; gives the endpoint."""
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, services, await open_listeners("127.0.0.1", port))
        yield f"grpc://127.0.0.1:{serving.port}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def served(participants: Participants, access: AccessControl | None = None) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(partial(serve_participants, participants, address="127.0.0.1", access=access))
        yield f"grpc://127.0.0.1:{serving.port}"
        nursery.cancel_scope.cancel()
