"""Control streams: of workers, which get credits and commands, and of controllers, which give commands.

What waits for a stream is kept as the latest of its kind, so that a slow reader costs no memory: a pause that is over
before it was sent is not sent, and grants are added up.
"""

from __future__ import annotations

import logging
from typing import Protocol

import trio

from trio_cogment.api.trainer.trainer_pb2 import ControlEvent
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.rpc import ServerCall
from trio_cogment.trainer._entries import Entry, Worker
from trio_cogment.trainer.credits import GrantTurns, Ledger
from trio_cogment.trainer.runs import RunState

_log = logging.getLogger(__name__)


class Commands(Protocol):
    """What controllers can do; implemented by the trainer. All of them return at once."""

    def pause(self, run_id: str) -> trio.Event:
        """Pause a run; return what is set when it is paused."""

    def resume(self, run_id: str) -> trio.Event:
        """Let a run go on; return what is set when it does."""

    def limit_rate(self, run_id: str, max_rate_hz: int) -> trio.Event:
        """Limit the steps a second of a run, at once; return what is set when that is stored."""

    def entry(self, run_id: str) -> Entry:
        """Return a run."""


class WorkerStream:
    """The control stream of one worker.

    Args:
        call: its call.
        entry: the run.
        worker: the worker.
        grants: gives it credits.

    Attributes:
        pending_grant: credits that are granted when the stream takes them.
        paused: the worker has said that it has paused.
    """

    def __init__(self, call: ServerCall, entry: Entry, worker: Worker, grants: Grants) -> None:
        self._call = call
        self._entry = entry
        self._worker = worker
        self._grants = grants
        self._wake = trio.lowlevel.ParkingLot()
        self._commands: dict[str, ControlEvent] = {}
        self._scope = trio.CancelScope()
        self.pending_grant = 0
        self.paused = False

    async def run(self) -> None:
        """Serve the stream until the worker closes it, another one takes its place, or the run has ended."""
        worker, entry = self._worker, self._entry
        if worker.stream is not None:
            worker.stream.close()
        worker.stream = self
        worker.ledger.connect()
        if entry.max_rate_hz:
            self.tell_rate(entry.max_rate_hz)
        if entry.pause_wanted:
            self.tell_pause(True)
        self._grants.ask(entry, worker)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send)
                    await self._receive()
                    nursery.cancel_scope.cancel()
        finally:
            if worker.stream is self:
                worker.stream = None
                worker.ledger.disconnect()
                entry.changed.unpark_all()

    def close(self) -> None:
        """End the stream."""
        self._scope.cancel()

    def tell_pause(self, paused: bool) -> None:
        """Tell the worker to pause, or to go on."""
        self.paused = False
        event = {"pause": True} if paused else {"resume": True}
        self._tell("pause", ControlEvent(run_id=self._entry.run_id, **event))

    def tell_rate(self, max_rate_hz: int) -> None:
        """Tell the worker not to send more a second."""
        self._tell("rate", ControlEvent(run_id=self._entry.run_id, max_rate_hz=max_rate_hz))

    def give(self, amount: int) -> None:
        """Give credits, as soon as the stream takes them."""
        self.pending_grant += amount
        self._wake.unpark_all()

    def _tell(self, kind: str, event: ControlEvent) -> None:
        self._commands[kind] = event
        self._wake.unpark_all()

    async def _send(self) -> None:
        await self._call.send_initial_metadata()
        while True:
            if self._commands:
                await self._call.send(self._commands.pop(next(iter(self._commands))))
            elif self.pending_grant:
                await self._send_grant()
            else:
                await self._wake.park()

    async def _send_grant(self) -> None:
        ledger = self._worker.ledger
        amount, self.pending_grant = min(self.pending_grant, ledger.wanted), 0
        if amount:
            ledger.grant(amount)
            self._grants.on_granted(self._entry, self._worker, amount)
            await self._call.send(ControlEvent(run_id=self._entry.run_id, grant_steps=amount))
        self._grants.ask(self._entry, self._worker)

    async def _receive(self) -> None:
        async for event in self._call:
            if event.run_id != self._entry.run_id:
                raise InvalidArgumentError(f"run_id: expected {self._entry.run_id!r}, got {event.run_id[:80]!r}")
            if event.pause:
                self.paused = True
                self._entry.changed.unpark_all()
            elif event.WhichOneof("event") == "grant_steps":
                self._worker.ledger.report(event.grant_steps)
                self._grants.ask(self._entry, self._worker)


class ControllerStream:
    """The control stream of a controller, for any number of runs.

    Args:
        call: its call.
        commands: what it can do.
    """

    def __init__(self, call: ServerCall, commands: Commands) -> None:
        self._call = call
        self._commands = commands
        self._wake = trio.lowlevel.ParkingLot()
        self._waiting: dict[tuple[str, str], ControlEvent] = {}
        self._entries: set[Entry] = set()
        self._at_work: list[trio.Event] = []
        self._sending = False

    async def run(self) -> None:
        """Serve the stream until the controller closes it and its commands are carried out."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                await self._receive()
                for done in self._at_work:
                    await done.wait()
                while self._waiting or self._sending:
                    await self._wake.park()
                nursery.cancel_scope.cancel()
        finally:
            for entry in self._entries:
                entry.controllers.discard(self)

    def tell(self, kind: str, event: ControlEvent) -> None:
        """Tell what has become of a run: the latest of each kind is sent; grants are added up."""
        before = self._waiting.pop((event.run_id, kind), None)
        if before is not None and kind == "grant":
            event = ControlEvent(run_id=event.run_id, grant_steps=before.grant_steps + event.grant_steps)
        self._waiting[event.run_id, kind] = event
        self._wake.unpark_all()

    async def _send(self) -> None:
        await self._call.send_initial_metadata()
        while True:
            if self._waiting:
                self._sending = True
                await self._call.send(self._waiting.pop(next(iter(self._waiting))))
                self._sending = False
                self._wake.unpark_all()
            else:
                await self._wake.park()

    async def _receive(self) -> None:
        async for event in self._call:
            entry = self._commands.entry(event.run_id)
            self._entries.add(entry)
            entry.controllers.add(self)
            if event.pause:
                self._follow(self._commands.pause(event.run_id))
            elif event.resume:
                self._follow(self._commands.resume(event.run_id))
            elif event.WhichOneof("event") == "max_rate_hz":
                self._follow(self._commands.limit_rate(event.run_id, event.max_rate_hz))

    def _follow(self, done: trio.Event) -> None:
        self._at_work = [event for event in self._at_work if not event.is_set()]
        self._at_work.append(done)


class Grants:
    """Gives credits to workers, in turns.

    Args:
        turns: whose turn it is.
    """

    def __init__(self, turns: GrantTurns) -> None:
        self._turns = turns
        self._workers: dict[Ledger, tuple[Entry, Worker]] = {}
        self._waits = trio.lowlevel.ParkingLot()

    def ask(self, entry: Entry, worker: Worker) -> None:
        """Let a worker have credits if it needs some; to be called whenever that may be so."""
        ledger = worker.ledger
        if not ledger.wanted or worker.stream is None or worker.stream.pending_grant or ledger in self._workers:
            return
        self._workers[ledger] = entry, worker
        self._turns.wait(ledger, entry.run_class)
        self._serve()
        if self._workers:
            self._waits.unpark_all()

    def on_granted(self, entry: Entry, worker: Worker, amount: int) -> None:
        """Take note of a grant that goes out."""
        first = not entry.figures.grants_sent
        entry.figures.grants_sent += 1
        _log.log(
            logging.INFO if first else logging.DEBUG,
            "run %s: %d credits to worker %r",
            entry.run_id,
            amount,
            worker.worker_id,
        )
        entry.changed.unpark_all()
        tell(entry, "grant", ControlEvent(run_id=entry.run_id, grant_steps=amount))

    async def run(self) -> None:
        """Serve those that have to wait, indefinitely."""
        while True:
            with trio.move_on_at(self._turns.next_time(trio.current_time())):
                await self._waits.park()
            self._serve()

    def _serve(self) -> None:
        while (turn := self._turns.next(trio.current_time())) is not None:
            ledger, amount = turn
            _, worker = self._workers.pop(ledger)
            if worker.stream is not None:
                worker.stream.give(amount)
        for ledger in [ledger for ledger in self._workers if not ledger.wanted]:
            del self._workers[ledger]


def tell(entry: Entry, kind: str, event: ControlEvent) -> None:
    """Tell the controllers of a run what has become of it."""
    for controller in entry.controllers:
        controller.tell(kind, event)


def tell_state(entry: Entry, before: RunState) -> None:
    """Tell workers and controllers that a run has paused or goes on, if it does."""
    paused = entry.latest.state is RunState.PAUSED
    if paused is (before is RunState.PAUSED) or entry.over:
        return
    event = ControlEvent(run_id=entry.run_id, **({"pause": True} if paused else {"resume": True}))
    tell(entry, "pause", event)
