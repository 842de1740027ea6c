"""The workers of runs, as processes: started, listened to, and ended with everything that they have started."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import trio
from typing_extensions import override

from trio_cogment.access import EXACTLY, AccessControl, Grant, Role, unverified
from trio_cogment.base.config import WorkersConfig
from trio_cogment.base.errors import CogmentError, StatusCode, status_of
from trio_cogment.base.host import Host
from trio_cogment.sdk import ModelRegistryClient
from trio_cogment.sdk.access_token import ACCESS_TOKEN_FILE_VARIABLE, ACCESS_TOKEN_VARIABLE
from trio_cogment.trainer.dispatch.command import TOKEN_VARIABLE, Command, Surroundings, command_of
from trio_cogment.trainer.dispatch.dispatcher import Starter
from trio_cogment.trainer.dispatch.folders import RunFolders
from trio_cogment.trainer.dispatch.groups import Group, end_marked
from trio_cogment.trainer.dispatch.jsonl import Event, LogLine, Origin, parse_line
from trio_cogment.trainer.dispatch.output import Lines, LogFile, Output, Tail
from trio_cogment.trainer.dispatching import RunOrder, RunSink
from trio_cogment.trainer.runs import Cause

# Handling of a worker's lines by the trainer.

#: How registrations call a worker that is known by its output.
KIND = "jsonl.telemetry"
_SHOWN_CHARACTERS = 200
#: How long a model registry may take to say whether it has a version; the worker waits meanwhile.
_ASK_SECONDS = 5.0


class Listener:
    """Gives what a worker writes to the trainer.

    The first line that says something counts as its registration. A step that is held back by a pause, a rate or a busy
    storage holds back the worker, as its pipe is not read then.

    Args:
        origin: whose output it is.
        sink: where it goes.
        models: where the versions of models are that it says it has saved; None: it is taken at its word.

    Attributes:
        failure: what the worker said of its failure; empty: nothing.
        attached: it has written a line that says something.
        heartbeats: it sends heartbeats, so it is alive only if it does.
        skipped: lines that say nothing.
        lost: steps and episodes that were not accepted.
    """

    def __init__(self, origin: Origin, sink: RunSink, models: ModelRegistryClient | None = None) -> None:
        self._origin = origin
        self._models = models
        self._sink = sink
        self._next_time = 0.0
        self.failure = ""
        self.attached = self.heartbeats = False
        self.skipped = self.lost = 0

    async def take(self, lines: list[bytes]) -> None:
        """Take some lines."""
        for line in lines:
            found = parse_line(line, self._origin)
            if found is None:
                self.skipped += 1
            elif isinstance(found, LogLine):
                _log.debug("run %s: %s", self._origin.run_id, found.text[:_SHOWN_CHARACTERS])
            else:
                try:
                    await self._attach()
                    if isinstance(found, Event):
                        await self._note(found)
                    else:
                        await self._pace()
                        await self._sink.publish(self._origin.run_id, found)
                except CogmentError as error:
                    self.lost += 1
                    _log.debug("run %s: %s", self._origin.run_id, error)

    async def _attach(self) -> None:
        if not self.attached:
            await self._sink.attach(self._origin.run_id, self._origin.worker_id, KIND)
            self.attached = True

    async def _note(self, event: Event) -> None:
        self._sink.heard(self._origin.run_id)
        if event.name == "heartbeat":
            self.heartbeats = True
        elif event.name == "run_failed":
            self.failure = (event.error or event.name)[:_SHOWN_CHARACTERS]
        elif event.name == "checkpoint_saved":
            _log.info("run %s: a checkpoint: %s", self._origin.run_id, dict(event.payload))
            if event.checkpoint and await self._is_there(event.checkpoint):
                await self._sink.link(self._origin.run_id, event.checkpoint)

    async def _is_there(self, checkpoint: str) -> bool:
        """Whether a model registry has a version, as far as that can be found out."""
        if self._models is None:
            return True
        model, _, version = checkpoint.rpartition("@")
        try:
            with trio.move_on_after(_ASK_SECONDS) as asking:
                await self._models.version_info(model, int(version))
        except CogmentError as error:
            if status_of(error)[0] is StatusCode.NOT_FOUND:
                _log.warning("run %s: there is no model version %s: it is not linked", self._origin.run_id, checkpoint)
                return False
            _log.info("run %s: %s is linked unseen: %s", self._origin.run_id, checkpoint, error)
        if asking.cancelled_caught:
            _log.info("run %s: %s is linked unseen: the model registry is slow", self._origin.run_id, checkpoint)
        return True

    async def _pace(self) -> None:
        """Wait until the rate that controllers allow lets one more pass."""
        control = self._sink.control(self._origin.run_id)
        while control.max_rate_hz and not control.ended and trio.current_time() < self._next_time:
            with trio.move_on_at(self._next_time):
                control = await self._sink.control_changed(self._origin.run_id, control)
        if control.max_rate_hz:
            self._next_time = max(self._next_time, trio.current_time()) + 1 / control.max_rate_hz


_log = logging.getLogger(__name__)

_TOKEN_BYTES = 32
_DAY_SECONDS = 86400.0
#: Whose what workers start and store is. All runs have it together: one goes on with the models of another.
_WORKERS = "runs"
_THREADS = 8
#: A line of standard error; only its beginning is ever shown.
_ERROR_LINE_BYTES = 65536


class Workers(Starter):
    """Runs the workers of runs; `Starter` of a dispatcher.

    Args:
        folder: where runs have their folders.
        surroundings: what workers are told about the platform.
        config: limits and timeouts.
        host: gives tokens and files, and runs what blocks.
        models: where the versions of models are that workers say they have saved; None: they are taken at their word.
        access: makes each worker's token; None: they get none.
    """

    def __init__(
        self,
        folder: str,
        surroundings: Surroundings,
        config: WorkersConfig | None = None,
        host: Host | None = None,
        models: ModelRegistryClient | None = None,
        access: AccessControl | None = None,
    ) -> None:
        self._models = models
        self._access = access
        self._config = config or WorkersConfig()
        self._host = host or Host()
        self._surroundings = surroundings
        self._folders = RunFolders(folder, self._host.files)
        self._runner = self._host.runner(_THREADS)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Use the folder for the time of a block. What an earlier server has left behind is ended first.

        Raises:
            FailedPreconditionError: it cannot be used.
        """
        try:
            left_behind = await self._runner(self._folders.open)
            if self._access is not None:
                # None of these runs goes on.
                self._access.withdraw_ids(await self._runner(self._folders.access_tokens, self._access.now()))
            if left_behind:
                await self._end_left_behind(left_behind)
            yield
        finally:
            with trio.CancelScope(shield=True):
                await self._runner(self._folders.close)

    async def _end_left_behind(self, tokens: dict[str, str]) -> None:
        _log.info("ending what is left of %d runs of an earlier server", len(tokens))
        config = self._config
        left = await end_marked(list(tokens.values()), self._runner, config.term_seconds, config.kill_seconds)
        if left:
            _log.error("%d processes of earlier runs could not be ended", left)
            return
        for run_id in tokens:
            await self._runner(self._folders.forget, run_id)

    @override
    async def forget(self, run_id: str) -> None:
        try:
            await self._runner(self._folders.remove, run_id)
        except OSError as error:
            _log.warning("run %s: its folder cannot be removed: %s", run_id, error)

    async def run(self, order: RunOrder, gpus: Sequence[int], sink: RunSink) -> None:
        """Run the worker of a run until it has ended, and tell the sink how; on `Cancelled`, end it."""
        with self._access_token(order) as access_token:
            await self._run(order, gpus, sink, access_token)

    @contextmanager
    def _access_token(self, order: RunOrder) -> Iterator[str]:
        """Give a worker's token for the time of its run; it ends earlier if that of who has submitted it is revoked."""
        token = ""
        if self._access is not None:
            grant = Grant(
                name=_WORKERS, roles=frozenset([Role.WORKER, Role.OPERATOR]), trials=(EXACTLY + order.run_id,)
            )
            token = self._access.mint(grant, self._config.token_days * _DAY_SECONDS, order.sources)
        try:
            yield token
        finally:
            if self._access is not None and token:
                self._access.withdraw(token)

    async def _run(self, order: RunOrder, gpus: Sequence[int], sink: RunSink, access_token: str) -> None:
        run_id = order.run_id
        token = self._host.secret_bytes(_TOKEN_BYTES).hex()
        command = command_of(
            run_id,
            order.config,
            folder=self._folders.of(run_id),
            gpus=gpus,
            python=sys.executable,
            surroundings=self._surroundings,
            access_token=access_token,
        )
        try:
            if access_token:
                made = unverified(access_token)
                await self._runner(self._folders.note_access_token, made.token_id, made.expires_at)
            await self._runner(self._folders.prepare, run_id, order.config, command, token)
            await sink.starting(run_id, gpus, registers=command.registers)
            leader = await self._runner(_spawn, command, token)
        except (OSError, ValueError) as error:
            await self._runner(self._folders.forget, run_id)
            await sink.ended(run_id, Cause.START_FAILED, f"dispatch_error: {error}{_hint(error, command)}")
            return
        group = Group(leader, token, self._runner)
        listener = Listener(Origin(run_id, command.worker_id, command.agent_id), sink, self._models)
        tail = Tail(self._config.error_lines)
        code = 0
        try:
            await self._listen(order, leader, group, listener, tail, sink)
        finally:
            with trio.CancelScope(shield=True):
                code = await self._buried(run_id, group)
        await self._report(run_id, code, listener, tail, sink)

    async def _buried(self, run_id: str, group: Group) -> int:
        """End what is left of a group; return the exit code of its leader."""
        if not await group.end(self._config.term_seconds, self._config.kill_seconds):
            _log.error("run %s: some of its processes cannot be ended; the next start tries again", run_id)
            return -1
        await self._runner(self._folders.forget, run_id)
        return await group.wait()

    async def _listen(
        self,
        order: RunOrder,
        leader: subprocess.Popen[bytes],
        group: Group,
        listener: Listener,
        tail: Tail,
        sink: RunSink,
    ) -> None:
        """Read all that a worker writes, until it has ended, and nothing that it has started is left."""
        assert leader.stdout is not None
        assert leader.stderr is not None
        config = self._config
        async with (
            trio.lowlevel.FdStream(os.dup(leader.stdout.fileno())) as stdout,
            trio.lowlevel.FdStream(os.dup(leader.stderr.fileno())) as stderr,
        ):
            leader.stdout.close()
            leader.stderr.close()
            lines = Output(stdout, self._log_file(order, "stdout"), Lines(config.max_line_bytes))
            errors = Output(stderr, self._log_file(order, "stderr"), Lines(_ERROR_LINE_BYTES))
            async with trio.open_nursery() as watching:
                watching.start_soon(self._keep_alive, order.run_id, listener, sink)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_read_lines, lines, listener)
                    nursery.start_soon(_read_errors, errors, tail)
                    await group.leader_ended()
                    await group.end(config.term_seconds, config.kill_seconds)
                    lines.finish(config.drain_seconds)
                    errors.finish(config.drain_seconds)
                watching.cancel_scope.cancel()

    def _log_file(self, order: RunOrder, name: str) -> LogFile:
        kept = order.config.artifacts.persist_logs
        path = self._folders.log(order.run_id, f"worker.{name}.log") if kept else None
        return LogFile(self._host.files, path, self._config.max_log_bytes, self._runner)

    async def _keep_alive(self, run_id: str, listener: Listener, sink: RunSink) -> None:
        """Take a worker for alive as long as its process is, unless it sends heartbeats itself."""
        while True:
            await trio.sleep(self._config.heartbeat_seconds)
            if listener.attached and not listener.heartbeats:
                sink.heard(run_id)

    async def _report(self, run_id: str, code: int, listener: Listener, tail: Tail, sink: RunSink) -> None:
        _log.info(
            "run %s: its worker ended with exit code %d; %d lines said nothing, %d were not accepted",
            run_id,
            code,
            listener.skipped,
            listener.lost,
        )
        try:
            if code == 0 and not listener.failure:
                await sink.ended(run_id, Cause.FINISHED)
            else:
                await sink.ended(run_id, Cause.FAILED, listener.failure or f"exit_code_{code}", tail.text)
        except CogmentError as error:
            _log.info("%s", error)


async def _read_lines(output: Output, listener: Listener) -> None:
    while (lines := await output.read()) is not None:
        await listener.take(lines)


async def _read_errors(output: Output, tail: Tail) -> None:
    while (lines := await output.read()) is not None:
        tail.add(lines)


def _inherited(command: Command) -> dict[str, str]:
    """Return the server's variables, without its token if the worker has one: of two, it might take the server's."""
    access = {ACCESS_TOKEN_VARIABLE, ACCESS_TOKEN_FILE_VARIABLE}
    left_out = access if access & command.variables.keys() else set[str]()
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _hint(error: OSError | ValueError, command: Command) -> str:
    """Return what to do if the program of a worker cannot be executed; empty for other errors."""
    if not isinstance(error, OSError) or error.errno not in (errno.EACCES, errno.ENOEXEC):
        return ""
    if error.filename != command.arguments[0]:  # a folder, for example
        return ""
    return "; expected a program, or an executable script that begins with #!"


def _spawn(command: Command, token: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command.arguments,
        # A worker's lines are to come when it writes them.
        env={"PYTHONUNBUFFERED": "1", **_inherited(command), **command.variables, TOKEN_VARIABLE: token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
