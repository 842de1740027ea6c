"""Trials' samples on their way to logs that are slow, break, refuse and come back: what waits, what is lost, and when.

Each log has an account beside it, which knows when it was away and what it took. From that follow the pauses of its
trial, to the microsecond, which samples may be lost, and what is told of those that were.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.backoff import exponential_delay
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import InvalidArgumentError, UnavailableError
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.servers.orchestrator import SampleStream
from trio_cogment.servers.orchestrator._datalog import Datalog
from trio_cogment.testing import World

LOGS = 5
#: Of the memory that samples may borrow, where there is little.
POOL_BYTES = 1 << 20
#: A moment in which everybody has had a turn.
MOMENT = 1e-4
SLACK = 1e-3


class Log:
    """A log, its trial, and what is expected of the two."""

    def __init__(self, world: World, number: int, config: OrchestratorConfig, pool: BytePool) -> None:
        self._rng = world.stream(f"log {number}")
        self._world = world
        self._config = config
        rng = self._rng
        #: It says what it has taken: some samples later, and not those that it had when it broke.
        self.confirms = rng.random() < 0.4
        #: It takes most samples at once, in the tick.
        self.prompt = not self.confirms and rng.random() < 0.4
        self.large = pool.limited
        self._until = rng.uniform(15, 40)
        self._nursery: trio.Nursery
        self.datalog = Datalog(
            f"t{number}", "me", self, config=config, rng=world.stream(f"pauses {number}"), owner=self, loan=pool.loan()
        )
        # What the trial has seen.
        self.given = 0
        self.full = False
        self.lost = 0
        # What the log has seen.
        self.taken: list[int] = []
        self.told: list[int] = []
        self.is_open = False
        self.attempts = 0
        self.breaks = 0
        self.closed_at: float | None = None
        self.away_since: float | None = None
        self.longest_away = 0.0
        self._failures = 0
        self.took_in_stream = 0
        #: Of those that were written, what is not in `taken` for good, and what is.
        self.unconfirmed: list[int] = []
        self.confirmed: set[int] = set()
        self.completions = 0

    # The sink

    @asynccontextmanager
    async def open(self, trial_id: str, _user_id: str, _params: TrialParams) -> AsyncIterator[SampleStream]:
        """See `SampleSink.open`."""
        self._check_pause()
        self.attempts += 1
        rng = self._rng
        await trio.sleep(rng.uniform(0, 0.2))
        if self.attempts > 1 and rng.random() < 0.5:
            self._note_away()
            raise UnavailableError("not yet")
        scope, opened = trio.CancelScope(), trio.current_time()
        if rng.random() < 0.8:
            scope.deadline = opened + rng.uniform(0.2, 12)
        self.is_open = True
        self.took_in_stream = 0
        stream = _Stream(self)
        try:
            with scope:
                yield stream
            if scope.cancelled_caught:
                raise (
                    UnavailableError("it breaks") if rng.random() < 0.8 else InvalidArgumentError("it does not like it")
                )
        finally:
            self.is_open = False
            self.closed_at = trio.current_time()
            fruitful = self.took_in_stream > 0 or self.closed_at - opened > self._config.datalog_grace_seconds
            if scope.cancelled_caught:
                self._note_away(fruitful=fruitful)
            self.unconfirmed.clear()

    def _note_away(self, *, fruitful: bool = False) -> None:
        self.closed_at = trio.current_time()
        if self.away_since is None or fruitful:
            self.away_since = self.closed_at
            self._failures = 0
        self._failures += 1
        self.breaks += 1

    def _check_pause(self) -> None:
        """A log that is away is asked again after a pause that grows."""
        if self.closed_at is None or self.datalog._completed.is_set():
            return
        config = self._config
        pause = exponential_delay(
            config.datalog_reconnect_initial_seconds, config.datalog_reconnect_max_seconds, self._failures - 1
        )
        waited = trio.current_time() - self.closed_at
        assert 0.8 * pause - SLACK <= waited <= 1.2 * pause + SLACK, (
            f"it was asked again after {waited:.3f} s, after {self._failures} failures: expected {pause:.3f} s"
        )

    def take(self, sample: DatalogSample) -> None:
        """Take a sample, with what it tells of others."""
        tick_id = sample.info.tick_id
        self.took_in_stream += 1
        events = [int(event.split()[0]) for event in sample.info.special_events]
        if not self.confirms:
            gap = tick_id - (self.taken[-1] if self.taken else -1) - 1
            assert sum(events) == gap, f"before {tick_id} {gap} samples are missing, and {events} are told of"
        self.taken.append(tick_id)
        self.told.extend(events)

    # The trial

    def spawn(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        """See `Owner.spawn`."""
        self._nursery.start_soon(function, name=name)

    def on_datalog_full(self, full: bool) -> None:
        """See `Owner.on_datalog_full`."""
        assert full is not self.full, f"{full} was told twice"
        self.full = full
        if full:
            self._world.sometimes("a trial waits")
            waiting = self.datalog.queued_samples
            assert self.large or waiting >= self._config.max_queued_samples, f"it waits, though only {waiting} wait"

    def on_replaced(self, why: str) -> None:
        """See `Owner.on_replaced`."""
        raise AssertionError(why)

    def on_samples_lost(self, count: int) -> None:
        """See `Owner.on_samples_lost`."""
        assert count > 0, count
        self.lost += count
        self._world.sometimes("samples are lost")

    def waiting(self) -> int:
        """Return how many samples wait that the trial has given, and that have neither been written nor lost."""
        return self.given - len(self.taken) - self.lost

    def check(self) -> None:
        """The trial waits while the log is there and as many samples wait as may, or has just gone away."""
        most, waiting = self._config.max_queued_samples, self.datalog.queued_samples
        if not self.confirms:
            assert waiting == self.waiting(), f"{waiting} samples wait, not {self.waiting()}"
        (sent,) = (count.kept for count in self.datalog.recount() if count.what == "samples that are not confirmed")
        assert sent <= most, f"{sent} samples are kept until they are confirmed, {most} may be"
        assert waiting <= most + (2 * most if self.confirms else 1), f"{waiting} samples wait, {most} may"
        # How long it has been away for longer than the trial waits for it.
        beyond = -1.0
        if not self.is_open and self.away_since is not None:
            beyond = trio.current_time() - self.away_since - self._config.datalog_grace_seconds
            if abs(beyond) <= SLACK:
                return  # it is a matter of this moment
        is_lossy = beyond > 0
        if is_lossy:
            self._world.sometimes("away for long")
            assert not self.full, f"the trial still waits for a log that has been away since {self.away_since}"
        elif not self.large and not is_lossy and waiting >= most:
            assert self.full, f"{waiting} samples wait, and the trial goes on"
        elif not self.large and self.is_open and waiting <= most // 2:
            assert not self.full, f"{waiting} samples wait, and the trial still does"

    async def _play(self) -> None:
        """Be a trial that has its ticks, as long as its log keeps up."""
        rng = self._rng
        while trio.current_time() < self._until:
            await trio.sleep(rng.choice([0.01, 0.05, 0.3, 1.0]) * rng.uniform(0.5, 1))
            if not self.full:
                size = rng.choice([10, 20_000, 60_000]) if self.large else 10
                observations = ObservationSet(observations=[bytes(size)])
                self.given += 1
                self.datalog.put(DatalogSample(info=SampleInfo(tick_id=self.given - 1), observations=observations))
            await trio.sleep(MOMENT)
            self.check()

    async def run(self) -> None:
        """Run to the end."""
        datalog, config = self.datalog, self._config
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(datalog.run, TrialParams())
            assert await datalog.wait_opened("grpc://log:1") is None
            await self._play()
            datalog.complete()
            ended, breaks, was_open = trio.current_time(), self.breaks, self.is_open
            left = datalog.queued_samples + len(self.unconfirmed) + 1
        took = trio.current_time() - ended
        assert took <= (left + 1) * (config.datalog_flush_seconds + SLACK), (
            f"{took:.2f} s were taken for {left} samples"
        )
        if was_open and self.breaks == breaks and not self.confirms:
            assert self.completions == 1, f"{self.completions} times it was told that this is all"
            assert took <= 0.75 * left + 0.35, f"{took:.2f} s were taken for {left} samples"
        assert datalog.over
        assert not self.full
        assert datalog.dropped_samples == self.lost
        self._check_losses()

    def _check_losses(self) -> None:
        got = set(self.taken)
        missing = self.given - len(got)
        assert self.taken == sorted(self.taken) or self.confirms, self.taken
        if self.confirms:
            assert missing <= self.lost, f"{missing} samples are missing, and {self.lost} are said to be lost"
        else:
            assert len(got) == len(self.taken), "samples were written twice"
            assert missing == self.lost, f"{missing} samples are missing, and {self.lost} are said to be lost"


class _Stream(SampleStream):
    """One stream of a log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.on_confirmed: Callable[[], None] = lambda: None
        if log.prompt:
            self.write_nowait = self._write_nowait

    @property
    def unconfirmed(self) -> int:
        """See `SampleStream.unconfirmed`."""
        return len(self._log.unconfirmed)

    def _write_nowait(self, sample: DatalogSample) -> bool:
        if self._log._rng.random() < 0.3:
            return False
        self._log.take(sample)
        return True

    async def write(self, sample: DatalogSample) -> None:
        """See `SampleStream.write`."""
        log = self._log
        await trio.sleep(log._rng.choice([0.0, 0.01, 0.1, 0.7]))
        log.take(sample)
        if log.confirms:
            log.unconfirmed.append(sample.info.tick_id)
            assert sample.info.tick_id not in log.confirmed, f"{sample.info.tick_id} is written again"
            if log._rng.random() < 0.4:
                count = log._rng.randint(1, len(log.unconfirmed))
                log.confirmed.update(log.unconfirmed[:count])
                del log.unconfirmed[:count]
                self.on_confirmed()

    async def complete(self) -> None:
        """See `SampleStream.complete`."""
        await trio.sleep(self._log._rng.uniform(0, 0.3))
        self._log.completions += 1
        self._log.unconfirmed.clear()
        self.on_confirmed()


async def logged_trials(world: World) -> None:
    """Some logs at a time, which share what memory there is."""
    rng: random.Random = world.rng
    config = OrchestratorConfig(
        max_queued_samples=rng.choice([1, 2, 3, 4, 7]),
        datalog_grace_seconds=rng.choice([0.0, 1.0, 3.0]),
        datalog_flush_seconds=rng.choice([1.0, 3.0]),
        datalog_reconnect_initial_seconds=0.25,
        datalog_reconnect_max_seconds=2.0,
    )
    pool = BytePool(POOL_BYTES) if rng.random() < 0.3 else BytePool()
    logs = [Log(world, number, config, pool) for number in range(LOGS)]
    async with trio.open_nursery() as nursery:
        for log in logs:
            nursery.start_soon(log.run)
    assert pool.used == 0, f"{pool.used} bytes are still borrowed"
    assert not pool.short
