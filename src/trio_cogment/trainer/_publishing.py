"""Taking steps and episodes of workers: who may publish, credits, pauses, and what was sent before."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from trio_cogment.api.trainer.trainer_pb2 import PublishTelemetryResponse
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    RpcError,
    StatusCode,
    status_of,
)
from trio_cogment.rpc import ServerCall
from trio_cogment.trainer._commits import Commits
from trio_cogment.trainer._control import Grants
from trio_cogment.trainer._entries import Entry, Worker
from trio_cogment.trainer._telemetry import Telemetry
from trio_cogment.trainer.credits import CreditRules
from trio_cogment.trainer.runs import RunState
from trio_cogment.trainer.storage import Kind

_log = logging.getLogger(__name__)

#: Metadata: which registration a call belongs to.
SESSION_TOKEN = "session-token"
#: Trailing metadata of a stream that was refused: how many of its messages were stored, and the worker's own number of
#: the last one, 0 if it has none.
ACCEPTED, LAST_SEQ = "accepted", "last-seq"

_TAKING = (RunState.READY, RunState.EXECUTING)
_NOT_YET = (RunState.INIT, RunState.HANDSHAKE)
_OVER = (RunState.FAULT, RunState.TERM)
STOPPING = "the trainer is stopping"


class Intake:
    """Decides whether a message is accepted, and waits for a while where it is not yet.

    Args:
        commits: where it goes.
        grants: gives credits.
        config: how long it waits.
        begin: is called with a run before the first of its messages in a batch, and before one that changes its state.
        end: is called behind each of a run whose steps are limited.
    """

    def __init__(
        self,
        commits: Commits,
        grants: Grants,
        config: TrainerConfig,
        begin: Callable[[Entry], None],
        end: Callable[[Entry, Kind], None],
    ) -> None:
        self.commits = commits
        self.config = config
        self.grants = grants
        self._begin = begin
        self._end = end
        self.rules = CreditRules(
            low=config.credit_low,
            high=config.credit_high,
            enforced=config.credits_enforced,
            fail_open=config.credits_fail_open,
        )

    def check_open(self, entry: Entry) -> None:
        """Check that a run takes telemetry, or may do so when it goes on.

        Raises:
            FailedPreconditionError: it has no worker yet, or not any more, or it has ended.
        """
        state = entry.latest.state
        if state in _OVER:
            raise FailedPreconditionError(f"run {entry.run_id!r} has ended, and takes nothing any more")
        if state in _NOT_YET or not entry.is_registered:
            raise FailedPreconditionError(f"run {entry.run_id!r}: no worker has registered (RegisterWorker)")

    def accept_now(self, entry: Entry, worker: Worker) -> bool:
        """Accept a message of a worker, and consume its credit, if nothing has to be waited for or refused."""
        return (
            entry.latest.state in _TAKING and entry.is_registered and self.commits.has_room and worker.ledger.accept()
        )

    async def wait_acceptable(self, entry: Entry, worker: Worker, pause_seconds: float) -> None:
        """Return when a message of a worker can be accepted.

        Args:
            entry: the run.
            worker: who has sent it.
            pause_seconds: how long a pause is waited for.

        Raises:
            FailedPreconditionError: the run is paused, or takes nothing at all.
            ResourceExhaustedError: the worker has no credit.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if not self.commits.has_room:
                await self.commits.wait_room()
            self.check_open(entry)
            if entry.latest.state is RunState.PAUSED:
                await self._wait_while_paused(entry, pause_seconds)
            elif worker.ledger.can_accept:
                return
            else:
                await self._wait_for_credit(entry, worker)

    async def _wait_while_paused(self, entry: Entry, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while entry.latest.state is RunState.PAUSED:
                await entry.changed.park()
            return
        raise FailedPreconditionError(f"run {entry.run_id!r} is paused")

    async def _wait_for_credit(self, entry: Entry, worker: Worker) -> None:
        with trio.move_on_after(self.config.credit_grace_seconds):
            while not worker.ledger.can_accept and not entry.over:
                await entry.changed.park()
            return
        entry.figures.drops_due_to_credit += 1
        raise ResourceExhaustedError(
            f"run {entry.run_id!r}: worker {worker.worker_id!r} has no credit left: {worker.ledger.granted} were "
            f"granted, {worker.ledger.consumed} are used"
        )

    def store(self, entry: Entry, kind: Kind, message: Telemetry, worker: Worker, *, keep: bool = False) -> int:
        """Queue an accepted message; return its position.

        Args:
            entry: the run.
            kind: which of the two it is.
            message: the message.
            worker: who has sent it.
            keep: nobody would send it again: it is stored later if it cannot be stored now.
        """
        commits, log = self.commits, entry.logs[kind]
        if log.is_new_in(commits.batch) or entry.latest.state is not RunState.EXECUTING:
            self._begin(entry)
        position = commits.batch.position
        commits.count(log.accept(message, worker.worker_id, commits.batch, keep=keep))
        if entry.most_steps is not None:
            self._end(entry, kind)
        if worker.ledger.wanted:
            self.grants.ask(entry, worker)
        return position

    def store_again(self, entry: Entry, kind: Kind, message: Telemetry) -> None:
        """Queue a message that was kept and could not be stored, unless its run takes nothing any more."""
        worker = entry.workers[message.worker_id]
        if entry.latest.state in (*_NOT_YET, *_OVER) or not worker.ledger.accept():
            _log.warning("run %s: a message of worker %r is lost: the storage failed", entry.run_id, worker.worker_id)
            return
        self.store(entry, kind, message, worker, keep=True)


class Publication:
    """One stream of steps or episodes. It is the consumer of its call: messages are taken where they arrive.

    The first one that has to wait is held, and the call is paused; its own task waits, and lets the call go on.

    Args:
        call: its call.
        kind: which of the two.
        find: returns a run by its id.
        intake: takes the messages.

    Attributes:
        accepted: how many messages were taken.
        dropped: how many were not.
    """

    def __init__(self, call: ServerCall, kind: Kind, find: Callable[[str], Entry], intake: Intake) -> None:
        self._call = call
        self._kind = kind
        self._find = find
        self._intake = intake
        self._token = next(iter(call.metadata.texts(SESSION_TOKEN)), "")
        self._entry: Entry | None = None
        self._worker: Worker | None = None
        self._position = 0
        self._failed_times = intake.commits.failed_times
        self._last_seq = 0
        self._held: Telemetry | None = None
        self._ended = False
        self._error: CogmentError | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self.accepted = self.dropped = 0

    async def run(self) -> PublishTelemetryResponse:
        """Take all messages; return when they are stored.

        Raises:
            CogmentError: one was refused. Those before it are stored, and text and trailers say how many; or the
                storage has failed.
        """
        try:
            await self._take_all()
        except CogmentError as error:
            await self._intake.commits.wait(self._position)  # its error would say more: nobody knows what is stored
            self._call.set_trailing_metadata({ACCEPTED: str(self.accepted), LAST_SEQ: str(self._last_seq)})
            code, text = status_of(error)
            raise RpcError(code, f"{text}; accepted={self.accepted} last_seq={self._last_seq}") from error
        await self._intake.commits.wait(self._position)
        return PublishTelemetryResponse(accepted=self.accepted, dropped=self.dropped)

    async def _take_all(self) -> None:
        """See to the messages that cannot be taken where they arrive, until there are none any more."""
        self._call.set_consumer(self)
        while True:
            if self._error is not None:
                raise self._error
            if self._held is not None:
                await self._take(self._held)
                self._held = None
                self._call.resume()
            elif self._ended:
                return
            else:
                await self._changed.park()

    def on_message(self, message: Telemetry) -> None:
        """See `Consumer.on_message`."""
        try:
            if self._take_now(message):
                return
            self._held = message
        except CogmentError as error:
            self._error = error
        self._call.pause()
        self._changed.unpark()

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        self._ended = True
        self._error = self._error or error
        self._changed.unpark()

    async def _take(self, message: Telemetry) -> None:
        """Take a message as soon as that can be."""
        intake = self._intake
        while not self._take_now(message):
            if self._failed_times != intake.commits.failed_times:
                # What this stream has brought before may be lost, and then nothing behind it must be taken.
                await intake.commits.wait(self._position)
                self._failed_times = intake.commits.failed_times
                continue
            entry, worker = self._entry, self._worker
            assert entry is not None
            assert worker is not None
            entry.heard(trio.current_time())
            await intake.wait_acceptable(entry, worker, intake.config.pause_grace_seconds)

    def _take_now(self, message: Telemetry) -> bool:
        """Take a message; False: something has to be waited for."""
        intake, entry, worker = self._intake, self._entry, self._worker
        if self._failed_times != intake.commits.failed_times:
            return False
        if entry is None or message.run_id != entry.run_id:
            entry = self._entry_of(message)
        taking = entry.latest.state in _TAKING and entry.is_registered
        if not taking:
            intake.check_open(entry)
        if worker is None or message.worker_id != worker.worker_id or (self._token and worker.token != self._token):
            worker = self._worker = self._worker_of(entry, message)
        worker_seq = message.seq_id
        if worker_seq and entry.logs[self._kind].is_repeated(worker.worker_id, worker_seq):
            entry.heard(trio.current_time())
            worker.ledger.spend()
            self._drop(entry, worker)
            return True
        if not (taking and intake.commits.has_room and worker.ledger.accept()):  # as `accept_now`, without its call
            return False
        self._position = intake.store(entry, self._kind, message, worker)
        self.accepted += 1
        if worker_seq:
            self._last_seq = worker_seq
        return True

    def _drop(self, entry: Entry, worker: Worker) -> None:
        self.dropped += 1
        # It is known, but perhaps not stored yet: what is answered has to be.
        self._position = self._intake.commits.last_position
        self._intake.grants.ask(entry, worker)

    def _entry_of(self, message: Telemetry) -> Entry:
        if self._entry is None:
            self._entry = self._find(message.run_id)
        elif message.run_id != self._entry.run_id:
            raise InvalidArgumentError(
                f"run_id: expected {self._entry.run_id!r} for the whole stream, got {message.run_id[:80]!r}"
            )
        return self._entry

    def _worker_of(self, entry: Entry, message: Telemetry) -> Worker:
        config = self._intake.config
        if self._token:
            worker = entry.by_token(self._token)
            if worker is None:
                raise unauthenticated(f"{SESSION_TOKEN}: it is not that of a worker of run {entry.run_id!r}")
            if message.worker_id and message.worker_id != worker.worker_id:
                raise InvalidArgumentError(
                    f"worker_id: expected {worker.worker_id!r}, as registered, got {message.worker_id[:80]!r}"
                )
            message.worker_id = worker.worker_id
            return worker
        if config.token_required:
            raise unauthenticated(f"{SESSION_TOKEN}: expected the token of a registration, got nothing")
        return entry.worker(message.worker_id, self._intake.rules, config.max_workers)


def unauthenticated(text: str) -> RpcError:
    """Return the error of somebody who is not who they should be."""
    return RpcError(StatusCode.UNAUTHENTICATED, text)
