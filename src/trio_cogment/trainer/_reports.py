"""Reports to a trainer, by workers and by the dispatcher that starts them."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import trio

from trio_cogment.access import Sources, lasting_sources
from trio_cogment.api.trainer.trainer_pb2 import RegisterWorkerRequest, RunEpisode
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host import Host
from trio_cogment.trainer._board import Board
from trio_cogment.trainer._commanding import Commanding
from trio_cogment.trainer._entries import Entry, Worker
from trio_cogment.trainer._publishing import SESSION_TOKEN, Intake, unauthenticated
from trio_cogment.trainer._telemetry import Telemetry
from trio_cogment.trainer.dispatching import RunControl
from trio_cogment.trainer.runs import Cause, Run, follow
from trio_cogment.trainer.storage import Kind

_log = logging.getLogger(__name__)

#: The version of the protocol that is spoken, and which others are taken for it.
PROTOCOL = "MOSAIC/1.0"
_PROTOCOLS = re.compile(r"MOSAIC/1\.[0-9]{1,9}")
_TOKEN_BYTES = 16


class Reports:
    """Registrations of workers, and the reports of a dispatcher: implements `RunSink`.

    Args:
        board: the runs.
        intake: takes telemetry.
        commanding: knows what controllers want.
        config: limits.
        host: gives tokens.
    """

    def __init__(self, board: Board, intake: Intake, commanding: Commanding, config: TrainerConfig, host: Host) -> None:
        self._board = board
        self._intake = intake
        self._commanding = commanding
        self._config = config
        self._secret_bytes = host.secret_bytes

    async def register(self, request: RegisterWorkerRequest, sources: Sources = ()) -> str:
        """Register a worker; return the token of its session. A former one of the same worker is not valid any more.

        Args:
            request: says which worker.
            sources: the access token of who registers, and what that was derived from: the session ends when they are
                revoked.

        Raises:
            NotFoundError: there is no such run.
            FailedPreconditionError: it waits for no worker, or the worker speaks another version of the protocol.
            ResourceExhaustedError: the run has too many workers.
        """
        entry = self._board.entry(request.run_id)
        if request.proto_version and not _PROTOCOLS.fullmatch(request.proto_version):
            raise FailedPreconditionError(
                f"proto_version: expected one of {PROTOCOL}, got {request.proto_version[:80]!r}"
            )
        worker = self._registered(entry, request.worker_id, request.supports_pause, lasting_sources(sources))
        await self._board.commits.wait(entry.position)
        return worker.token

    def _registered(self, entry: Entry, worker_id: str, supports_pause: bool, sources: Sources = ()) -> Worker:
        follow(entry.latest, entry.latest.registration, 0)  # raises if the run waits for none
        worker = entry.worker(worker_id, self._intake.rules, self._config.max_workers)
        worker.token, worker.sources = self._secret_bytes(_TOKEN_BYTES).hex(), sources
        entry.is_registered = True
        worker.supports_pause = supports_pause
        if worker.stream is not None:
            worker.stream.close()
        entry.heard(trio.current_time())
        self._board.change(entry, entry.latest.registration)
        return worker

    def session(self, token: str) -> tuple[Entry, Worker]:
        """Return the run and the worker that a token belongs to.

        Raises:
            RpcError: UNAUTHENTICATED: there is none, or it is not valid any more.
            FailedPreconditionError: the run has ended.
        """
        for entry in self._board.active.values():
            worker = entry.by_token(token)
            if worker is not None:
                if entry.over:
                    raise FailedPreconditionError(f"run {entry.run_id!r} has ended")
                return entry, worker
        raise unauthenticated(f"{SESSION_TOKEN}: it is not that of a worker")

    def control(self, run_id: str) -> RunControl:
        """See `RunSink.control`."""
        return self._commanding.control(run_id)

    async def control_changed(self, run_id: str, known: RunControl) -> RunControl:
        """See `RunSink.control_changed`."""
        return await self._commanding.control_changed(run_id, known)

    async def starting(self, run_id: str, gpu_slots: Sequence[int] = (), *, registers: bool = True) -> None:
        """See `RunSink.starting`."""
        entry = self._board.entry(run_id)
        follow(entry.latest, Cause.STARTED, 0)
        entry.registers = registers
        entry.latest = replace(entry.latest, gpu_slots=tuple(gpu_slots))
        await self._board.commits.wait(self._board.change(entry, Cause.STARTED))

    async def attach(self, run_id: str, worker_id: str, kind: str) -> None:
        """See `RunSink.attach`."""
        entry = self._board.entry(run_id)
        known = entry.workers.get(worker_id)
        if known is None or not known.token:
            self._registered(entry, worker_id, supports_pause=False)
            _log.debug("run %s: worker %r (%s)", run_id, worker_id, kind)
        else:
            # The session of one that has registered itself stays.
            self._board.change(entry, entry.latest.registration)
            entry.heard(trio.current_time())
        await self._board.commits.wait(entry.position)

    def heard(self, run_id: str) -> None:
        """See `RunSink.heard`."""
        entry = self._board.find(run_id)
        if entry is not None:
            self._board.hear(entry, trio.current_time())

    async def link(self, run_id: str, checkpoint: str) -> None:
        """See `RunSink.link`."""
        await self._board.link(self._board.entry(run_id), checkpoint)

    async def publish(self, run_id: str, message: Telemetry) -> None:
        """See `RunSink.publish`."""
        entry = self._board.entry(run_id)
        worker = entry.worker(message.worker_id, self._intake.rules, self._config.max_workers)
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._intake.accept_now(entry, worker):
            await self._intake.wait_acceptable(entry, worker, math.inf)
        kind = Kind.EPISODES if isinstance(message, RunEpisode) else Kind.STEPS
        self._intake.store(entry, kind, message, worker, keep=True)

    async def ended(self, run_id: str, cause: Cause, reason: str = "", detail: str = "") -> Run:
        """See `RunSink.ended`."""
        return await self._board.report(self._board.entry(run_id), cause, reason, detail)
