"""Entries in a trainer's memory about its runs and their workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from trio_cogment.access import Sources
from trio_cogment.api.trainer.trainer_pb2 import ControlEvent
from trio_cogment.base.errors import CogmentError, ResourceExhaustedError
from trio_cogment.base.metrics import RunFigures
from trio_cogment.trainer._telemetry import TelemetryLog
from trio_cogment.trainer.credits import CreditRules, Ledger
from trio_cogment.trainer.run_config import RunConfig
from trio_cogment.trainer.runs import Run, RunState
from trio_cogment.trainer.storage import Kind

#: Over at least this many seconds the rate of telemetry is measured.
_RATE_SECONDS = 1.0


class WorkerLink(Protocol):
    """The control stream of a worker.

    Attributes:
        pending_grant: credits that are granted when the stream takes them.
        paused: the worker has said that it has paused.
    """

    pending_grant: int
    paused: bool

    def give(self, amount: int) -> None:
        """Give credits, as soon as the stream takes them."""

    def tell_pause(self, paused: bool) -> None:
        """Tell the worker to pause, or to go on."""

    def tell_rate(self, max_rate_hz: int) -> None:
        """Tell the worker not to send more a second."""

    def close(self) -> None:
        """End the stream."""


class ControllerLink(Protocol):
    """The control stream of a controller."""

    def tell(self, kind: str, event: ControlEvent) -> None:
        """Tell what has become of a run: the latest of each kind is sent; grants are added up."""


class Worker:
    """A worker of a run.

    Attributes:
        worker_id: its name within the run.
        token: of its registration; empty: it has not registered.
        sources: the access token by which it has registered, and what that was derived from.
        supports_pause: it says so when it has paused.
        ledger: its credits.
        stream: its control stream.
    """

    __slots__ = ("ledger", "sources", "stream", "supports_pause", "token", "worker_id")

    def __init__(self, worker_id: str, rules: CreditRules) -> None:
        self.worker_id = worker_id
        self.token = ""
        self.sources: Sources = ()
        self.supports_pause = False
        self.ledger = Ledger(rules)
        self.stream: WorkerLink | None = None


class Figures:
    """Measurements of one run, since the trainer was started.

    Args:
        now: on Trio's clock.

    Attributes:
        grants_sent: how many grants.
        pauses: how often it was paused.
        resumes: how often it went on.
        drops_due_to_credit: messages that were refused because there was no credit.
    """

    __slots__ = ("_accepted", "_rate_hz", "_since", "drops_due_to_credit", "grants_sent", "pauses", "resumes")

    def __init__(self, now: float) -> None:
        self.grants_sent = self.pauses = self.resumes = self.drops_due_to_credit = 0
        self._since = now
        self._accepted = 0
        self._rate_hz = 0.0

    def note_accepted(self, count: int, now: float) -> None:
        """Count steps and episodes."""
        if now - self._since >= _RATE_SECONDS:
            self._rate_hz = self.ingest_rate_hz(now)
            self._since, self._accepted = now, 0
        self._accepted += count

    def ingest_rate_hz(self, now: float) -> float:
        """Return how many steps and episodes are accepted a second, of late."""
        elapsed = now - self._since
        return self._accepted / elapsed if elapsed >= _RATE_SECONDS else self._rate_hz


class Entry:
    """A run in memory.

    Args:
        number: of the run in the storage.
        run: the run.
        config: its configuration; None: it has ended before the trainer was started.
        logs: its steps and episodes.

    Attributes:
        run_id: the name of the run.
        most_steps: the number of steps that ends it; None: any number is allowed.
        latest: as it is, although that may not be stored yet; decisions are made by it.
        shown: as it is stored; None: it is not yet. Clients see this one.
        changed: unparked when its state, its credits or what controllers want have changed.
        heard_at: when a worker was heard last, on Trio's clock; at first, when the trainer learned of the run.
        was_heard: whether one was heard since then.
        is_registered: whether one of its workers has registered since the trainer was started.
        heartbeat_stored_at: when that was stored last by itself.
        began_at: on Trio's clock, when its worker was started or has registered.
        registers: its worker has to register soon after its start.
        max_rate_hz: what controllers allow, although that may not be stored yet; 0: no limit.
        pause_wanted: a controller wants it to pause.
        started: set when the dispatcher has it, or has refused it.
        refusal: why it was refused.
        stopped: set when the dispatcher has nothing of it any more.
    """

    def __init__(self, number: int, run: Run, config: RunConfig | None, logs: dict[Kind, TelemetryLog]) -> None:
        self.number = number
        self.config = config
        self.logs = logs
        self.run_id = run.run_id
        self.most_steps = config.schedule.max_steps if config is not None else None
        self.latest = run
        self.shown: Run | None = None
        self.position = 0
        self.changed = trio.lowlevel.ParkingLot()
        self.heard_at = self.began_at = trio.current_time()
        self.was_heard = self.is_registered = False
        self.registers = True
        self.heartbeat_stored_at = trio.current_time()
        self.max_rate_hz = run.max_rate_hz
        self.pause_wanted = run.state is RunState.PAUSED
        self.started = trio.Event()
        self.refusal: CogmentError | None = None
        self.stopped = trio.Event()
        self.workers: dict[str, Worker] = {}
        self.controllers: set[ControllerLink] = set()
        self.figures = Figures(self.began_at)

    @property
    def run_class(self) -> str:
        """Its class."""
        return self.config.schedule.run_class if self.config is not None else "batch"

    @property
    def over(self) -> bool:
        """Whether it has failed or ended."""
        return self.latest.outcome is not None

    def heard(self, now: float) -> None:
        """Take note that a worker lives."""
        self.heard_at = now
        self.was_heard = True

    def worker(self, worker_id: str, rules: CreditRules, most: int) -> Worker:
        """Return a worker, known or new.

        Raises:
            ResourceExhaustedError: there are too many.
        """
        found = self.workers.get(worker_id)
        if found is None:
            if len(self.workers) >= most:
                raise ResourceExhaustedError(f"worker_id: run {self.run_id!r} has {most} workers, which is the limit")
            found = self.workers[worker_id] = Worker(worker_id, rules)
        return found

    def counts(self) -> RunFigures:
        """Return its measurements, its workers' together."""
        ledgers = [worker.ledger for worker in self.workers.values()]
        figures = self.figures
        return RunFigures(
            credits_granted=sum(ledger.granted for ledger in ledgers),
            credits_consumed=sum(ledger.consumed for ledger in ledgers),
            grants_sent=figures.grants_sent,
            pauses=figures.pauses,
            resumes=figures.resumes,
            drops_due_to_credit=figures.drops_due_to_credit,
            current_outstanding=sum(ledger.outstanding for ledger in ledgers),
            ingest_rate_hz=figures.ingest_rate_hz(trio.current_time()),
        )

    def end_sessions(self, stand: Callable[[Sources], bool]) -> None:
        """End the sessions of workers that have registered by a token that was revoked."""
        for worker in self.workers.values():
            if worker.token and not stand(worker.sources):
                worker.token = ""
                if worker.stream is not None:
                    worker.stream.close()

    def by_token(self, token: str) -> Worker | None:
        """Return the worker that has registered with a token."""
        return next((worker for worker in self.workers.values() if token and worker.token == token), None)
