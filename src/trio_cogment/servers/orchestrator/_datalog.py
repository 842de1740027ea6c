"""A trial's samples on their way to their sink: the queue between them, and what happens while the sink is away.

- While a stream is open, a full queue is back-pressure: the trial waits.
- A stream that breaks is opened again, after growing pauses. The parameters come first, then what the sink is not known
  to have taken, then the rest: a sink that confirms gets every sample at least once, another at most once.
- A sink that is away for less than `datalog_grace_seconds`, or says for less than `datalog_full_seconds` that it
  cannot store samples, holds the trial up when the queue is full, as a slow one does. After that the trial goes on
  without it: the oldest samples are dropped, counted, and told of by a special event in the next sample that gets
  through.
- One with whose trials others go on gives a *lease* with each stream: for so long after it has broken nobody takes the
  trial over. Before that is over, and after `datalog_grace_seconds` at most, the trial waits, whatever room there is:
  two attempts would show people two different games. When a stream is open again the trial is still this attempt's,
  and goes on. Without one it ends after `datalog_full_seconds`.
- A queue is full by the number of its samples, or because no memory can be borrowed for them (`_datalog`).
- When the trial is over, what is left is written in order. The sink may take `datalog_flush_seconds` for each step of
  it, or `datalog_full_seconds` if it cannot store samples; what has not got through then is lost, counted and logged.
  One that has no room for samples is told at least how the trial ended: that is small.
"""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.base.backoff import Backoff
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    QuotaError,
    StatusCode,
    UnavailableError,
    UnimplementedError,
    is_storage_failure,
    status_of,
)
from trio_cogment.base.outcome import lost_text
from trio_cogment.base.recount import Count
from trio_cogment.base.shared_message import SharedSample
from trio_cogment.budget.byte_pool import Loan
from trio_cogment.servers.orchestrator.sinks import SampleSink, SampleStream

# The owner of a data log: its trial, as far as the log needs it.


class Owner(Protocol):
    """What the trial does for its data log."""

    def spawn(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task of the trial."""

    def on_datalog_full(self, full: bool) -> None:
        """Pause the trial, or let it go on; never called with the same value twice in a row."""

    def on_samples_lost(self, count: int) -> None:
        """Learn that samples were lost."""

    def on_replaced(self, why: str) -> None:
        """Learn that the trial is another attempt's, or any other's that wants it: this one has to end."""


# Words for a data log's failure, whatever it was.


def text_of(failure: Exception) -> str:
    """Return what a failure says: of one that nobody expected, its type too."""
    return str(failure) if isinstance(failure, CogmentError) else repr(failure)


def first_of(errors: BaseExceptionGroup[Exception]) -> Exception:
    """Return the first error of a group that is none itself."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error


#: What the text of a failed connection has if somebody listens.
_THERE = ("TLS", "certificate", "HTTP/2")
#: What to do about a data log that is not there.
_REMEDY = (
    "the data log has to listen before a trial that names it starts: start it, or correct datalog.endpoint in the "
    "trial's parameters"
)


def refusal_of(endpoint: str, failure: Exception) -> CogmentError:
    """Return why a trial cannot start whose data log has failed: trying again is of no use when a quota is used up."""
    if isinstance(failure, FailedPreconditionError):  # another attempt has it: see `_write_everything`
        return AlreadyExistsError(f"datalog: {endpoint}: {text_of(failure)}")
    if status_of(failure)[0] is StatusCode.ALREADY_EXISTS:
        return AlreadyExistsError(f"datalog: {endpoint}: {text_of(failure)}")
    if isinstance(failure, UnimplementedError):
        return UnimplementedError(f"datalog: {endpoint}: {text_of(failure)}")
    code = status_of(failure)[0]
    if code is StatusCode.RESOURCE_EXHAUSTED:
        return QuotaError(f"datalog: {endpoint}: {text_of(failure)}")
    # With some words there is somebody, who speaks or trusts otherwise.
    text = text_of(failure)
    is_there = any(word in text for word in _THERE)
    return _unavailable(endpoint, text, is_away=code is StatusCode.UNAVAILABLE and not is_there)


def no_connection(endpoint: str, seconds: float) -> CogmentError:
    """Return why a trial cannot start whose data log has not answered in time."""
    return _unavailable(endpoint, f"no connection in {seconds:g} s", is_away=True)


def _unavailable(endpoint: str, text: str, *, is_away: bool) -> UnavailableError:
    # A datastore in this process is there; what fails then is its storage.
    advice = f"; {_REMEDY}" if is_away and endpoint.startswith("grpc://") else ""
    return UnavailableError(f"datalog: {endpoint}: {text}{advice}")


# The memory of the samples that wait for one trial's data log: borrowed from what the whole process may hold.

#: What every trial may hold without a loan.
FREE_BYTES: Final = 32 * 1024
#: Loans are changed in steps of this size.
_STEP_BYTES: Final = 64 * 1024


class SampleBytes:
    """Counts the samples of one data log.

    Args:
        loan: what is borrowed for them.
        on_room: called when there was not enough, and others have given something back.

    Attributes:
        size: of all samples that wait; whoever adds or removes one changes it.
    """

    def __init__(self, loan: Loan, on_room: Callable[[], None]) -> None:
        self.size = 0
        self._loan = loan
        self._on_room = on_room

    @property
    def fit(self) -> bool:
        """Whether there is memory for all of them; if there is not, `on_room` is called some time."""
        if self.size <= FREE_BYTES:
            self._loan.close()
            return True
        need = (self.size - FREE_BYTES) // _STEP_BYTES * _STEP_BYTES + _STEP_BYTES
        if self._loan.resize(need):
            return True
        self._loan.wait(self._on_room)
        return False

    def count_all(self) -> None:
        """Count what there is against everybody else's, although it is too much."""
        self._loan.set(max(self._loan.size, self.size - FREE_BYTES))

    def close(self) -> None:
        """There are no more of them."""
        self.size = 0
        self._loan.close()


_log = logging.getLogger(__name__)

#: A sample that the sink's own refusal keeps coming back to is dropped after this many streams.
_TRIES_PER_SAMPLE = 3

#: Of a lease: in this time it is noticed that the log has vanished (`_connections.WATCH_SECONDS`), even if it is late.
_LEASE_MARGIN_SECONDS: Final = 15.0

#: While only this many wait, nobody looks at their sizes, where they are not large: a log that keeps up costs nothing.
_UNCOUNTED_SAMPLES = 2

#: Failures that say nothing about what was sent.
_TRANSPORT = frozenset({StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED})


class _Kept(NamedTuple):
    """A sample that waits, or may be lost still."""

    sample: DatalogSample
    size: int  # as it is counted: 0 while few wait, and where its sink has a limit of its own


def _counted_size(sample: _Kept | SharedSample) -> int:
    # One that is shared was written to a sink of this process, which has a limit of its own.
    return sample.size if isinstance(sample, _Kept) else 0


class Datalog:
    """The samples of one trial: a queue that `put` fills from the tick, and a task that empties it.

    Args:
        trial_id: goes to the sink, and into logs.
        user_id: goes to the sink.
        sink: where streams are opened.
        config: limits and timeouts.
        rng: makes the pauses between reconnections differ.
        owner: see its class.
        loan: what is borrowed for the samples that wait.

    Attributes:
        opened: set once the first stream is open, or `failure` is.
        failure: why the sink did not accept the first stream.
        dropped_samples: those that did not reach the sink.
        trouble: why it takes no samples now; empty: it does, or has not been given any since.
        weighs_all: samples are large, so those count, too, that hardly wait.
        has_gap: samples were lost, and no checkpoint came after them: nobody can go on with the trial.
        takes_shared: most samples may be `SharedSample`: the sink is of this process, and makes of them what it stores.
    """

    def __init__(
        self,
        trial_id: str,
        user_id: str,
        sink: SampleSink,
        *,
        config: OrchestratorConfig,
        rng: random.Random,
        owner: Owner,
        loan: Loan,
    ) -> None:
        self._trial_id = trial_id
        self._user_id = user_id
        self._sink = sink
        self._config = config
        self._backoff = Backoff(config.datalog_reconnect_initial_seconds, config.datalog_reconnect_max_seconds, rng)
        self._owner = owner
        self._queue: deque[_Kept] = deque()
        #: Written to the open stream, and not known to be taken.
        self._sent: deque[_Kept | SharedSample] = deque()
        #: Of the queue, and of what was sent to a sink elsewhere: one in this process has limits of its own.
        self._bytes = SampleBytes(loan, self._memory_is_back)
        #: Those before them that there was no room for.
        self._forgotten = 0
        self._stream: SampleStream | None = None
        #: Its `write_nowait`, while samples are written to it.
        self._write_nowait: Callable[[DatalogSample], bool] | None = None
        #: The same for those that are shared.
        self._write_shared: Callable[[SharedSample], bool] | None = None
        self.takes_shared: bool = getattr(sink, "takes_shared", False)
        #: Of the last stream; None: it had none.
        self._lease: float | None = None
        #: The wait for its end; None while a stream is open.
        self._expiry: trio.CancelScope | None = None
        #: Its end is near: the trial waits, whatever room there is.
        self._held = False
        self._waits = False
        self._sink_is_here = False
        self._parked = trio.lowlevel.ParkingLot()
        self._opening = trio.CancelScope()
        self._writing = trio.CancelScope()
        self._flushing = trio.CancelScope()
        self._grace = trio.CancelScope()
        self._connected_at: float
        self._stream_seconds: float
        self._away_since: float | None = None
        #: It is away because it cannot store samples; it is waited for until then, on Trio's clock.
        self._cannot_store = False
        self._waits_until = -math.inf
        #: It refuses what it is sent: it is there, and may be told how the trial ended.
        self._refuses = False
        #: This many samples waited when it broke, and have not been taken since.
        self._owed = 0
        self._said_dropped = False
        self._lossy = False
        self._full = False
        self._completed = trio.Event()
        self._over = False
        self._taken = 0
        self._refusals = 0
        self._untold = 0
        self._telling: tuple[DatalogSample, int] | None = None
        self.opened = trio.Event()
        self.failure: Exception | None = None
        self.dropped_samples = 0
        self.has_gap = False
        self.trouble = ""
        self.weighs_all = False

    # Called by the trial

    @property
    def over(self) -> bool:
        """Whether nothing is written any more."""
        return self._over

    @property
    def queued_samples(self) -> int:
        """How many samples wait for the sink."""
        return len(self._queue)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        for what, count in (("wait for the log", len(self._queue)), ("are not confirmed", len(self._sent))):
            yield Count(f"samples that {what}", count, 0 if self._over else count)
        yield Count("bytes of samples", self._bytes.size, sum(map(_counted_size, (*self._queue, *self._sent))))

    def put(self, given: DatalogSample | SharedSample) -> None:
        """Queue a sample; where there is no room for it, see the head of this module."""
        if self._over:
            self._count_lost(1)
            return
        if self.has_gap:
            whole = given.whole() if isinstance(given, SharedSample) else given
            self.has_gap = not whole.observations.HasField("checkpoint")
        if type(given) is SharedSample:
            if self._write_shared is not None and not self._queue and not self._untold and self._write_shared(given):
                # Those that it has made durable are forgotten when it says so.
                self._sent.append(given)
                if len(self._sent) > self._config.max_queued_samples:
                    self._progress()
                return
            sample = given.whole()
        else:
            assert isinstance(given, DatalogSample)
            sample = given
        if self.dropped_samples:
            self._say_lost(sample)
        if self._write_nowait is not None and not self._queue and not self._untold and self._write_at_once(sample):
            return
        if len(self._queue) < _UNCOUNTED_SAMPLES and not self.weighs_all:
            self._queue.append(_Kept(sample, 0))
        else:
            for number in range(min(len(self._queue), _UNCOUNTED_SAMPLES)):
                if not self._queue[number].size:
                    self._queue[number] = self._counted(self._queue[number].sample)
            self._queue.append(self._counted(sample))
        self._parked.unpark()
        if len(self._queue) >= self._config.max_queued_samples or not self._bytes.fit:
            self._make_room()

    def _counted(self, sample: DatalogSample) -> _Kept:
        size = sample.ByteSize()
        self._bytes.size += size
        return _Kept(sample, size)

    def _write_at_once(self, sample: DatalogSample) -> bool:
        assert self._write_nowait is not None
        try:
            taken = self._write_nowait(sample)
        except Exception:  # noqa: BLE001  a sink of this process is somebody else's code, and the tick is not its
            _log.exception("trial %s: the data log failed to take a sample at once", self._trial_id)
            self._write_nowait = None
            return False
        if taken:
            self._sent.append(_Kept(sample, 0))
            self._progress()
        return taken

    def complete(self) -> None:
        """No more samples come; `run` returns when the queued ones are out, or the sink takes no more of them."""
        self._completed.set()
        self._opening.cancel()
        if not self._over:
            self._renew_flushing()
            self._owner.spawn(self._wait_flushed, "patience with the data log")
            self._parked.unpark()

    def give_up_if_full(self) -> None:
        """Wait no longer for a sink that cannot store samples: `run` tells it how the trial ended, and returns."""
        if self._completed.is_set() and not self._over and (self._cannot_store or self._refuses):
            self._writing.cancel()

    async def wait_opened(self, endpoint: str) -> CogmentError | None:
        """Wait until the sink has accepted the first stream; return why the trial cannot start, if it cannot.

        A trial that ends meanwhile (`complete`) ends the wait.

        Args:
            endpoint: for the error's text.
        """
        limit = self._config.datalog_connect_timeout_seconds
        self._opening.deadline = trio.current_time() + limit
        with self._opening:
            await self.opened.wait()
        if self.failure is not None:
            return refusal_of(endpoint, self.failure)
        if self._completed.is_set():
            return FailedPreconditionError("the trial was terminated while it was starting")
        if self._opening.cancelled_caught:
            return no_connection(endpoint, limit)
        return None

    # The task

    async def run(self, params: TrialParams) -> None:
        """Open a stream and write samples until complete, over as many streams as it takes.

        That no first stream can be opened is in `failure`; what goes wrong later is logged and counted, and the trial
        goes on. After `Cancelled` what was still queued is lost, and logged and counted too.
        """
        why = "the orchestrator is stopping"
        try:
            with self._writing:
                await self._write_everything(params)
            if self._writing.cancelled_caught:
                why = self.trouble or f"it took nothing for {self._config.datalog_flush_seconds:g} s"
                _log.warning("trial %s: the data log is given up: %s", self._trial_id, why)
                if self._cannot_store or self._refuses:
                    await self._write_end_alone(params)
        finally:
            self._over = True
            self._grace.cancel()
            self._renew_lease()
            self._flushing.cancel()
            self._take_back()
            if self._queue:
                self._count_lost(len(self._queue))
                self._queue.clear()
            self._bytes.close()
            self._set_full(False)
            if self.dropped_samples:
                _log.warning("trial %s: %s", self._trial_id, lost_text(self.dropped_samples))

    async def _write_everything(self, params: TrialParams) -> None:
        while True:
            taken, self._stream_seconds = self._taken, 0.0
            failure = await self._write_stream(params)
            if failure is None:
                return
            if not self.opened.is_set():
                self.failure = failure
                self.opened.set()
                return
            if isinstance(failure, FailedPreconditionError):
                # Only a datastore that counts attempts raises it: what comes over a call is else an `RpcError`.
                self._owner.on_replaced(f"it goes on elsewhere: {text_of(failure)}")
                return
            fruitful = self._taken > taken or self._stream_seconds > self._config.datalog_grace_seconds
            self._broke(failure, fruitful)
            if fruitful:
                self._backoff.reset()
            await self._pause(self._backoff.failed())

    async def _pause(self, seconds: float) -> None:
        if self._completed.is_set():
            await trio.sleep(seconds)
            return
        # When the trial ends there is no time to lose: the next attempt is made at once.
        with trio.move_on_after(seconds):
            await self._completed.wait()

    async def _write_end_alone(self, params: TrialParams) -> None:
        """Write the last sample with nothing but its `info`, and so with how the trial ended and what was lost."""
        self._take_back()
        if not self._queue or not self._queue[-1].sample.info.HasField("end"):
            return
        self._drop_oldest(len(self._queue) - 1)
        self._bytes.size -= self._queue[-1].size
        sample = DatalogSample(info=self._queue.pop().sample.info)
        self._count_lost(1)
        self._say_lost(sample)
        if self._untold:
            self._tell_loss(sample)
        with trio.move_on_after(self._config.datalog_flush_seconds):
            try:
                async with self._sink.open(self._trial_id, self._user_id, params) as stream:
                    await stream.write(sample)
                    await stream.complete()
            except* Exception as errors:  # noqa: BLE001  of a sink that is given up already
                _log.debug("trial %s: the data log does not know how it ended: %s", self._trial_id, first_of(errors))

    def _renew_flushing(self) -> None:
        self._flushing.deadline = max(trio.current_time() + self._config.datalog_flush_seconds, self._waits_until)

    async def _wait_flushed(self) -> None:
        # Not the deadline of the writer's scope: a call that is opened under one keeps it, though progress moves this.
        with self._flushing:
            await trio.sleep_forever()
        if not self._over:
            self._writing.cancel()

    async def _write_stream(self, params: TrialParams) -> Exception | None:
        """Open a stream and write until everything is out (None), or it breaks; return why."""
        failure: Exception | None = None
        try:
            async with self._sink.open(self._trial_id, self._user_id, params) as stream:
                self._connected(stream)
                await self._write(stream)
                while self._sent:
                    self._forget_first()
                self._forgotten = 0
        except* CogmentError as errors:
            failure = first_of(errors)
        except* Exception as errors:  # noqa: BLE001  a sink of this process is somebody else's code
            _log.error("trial %s: the data log failed", self._trial_id, exc_info=errors)
            failure = first_of(errors)
        finally:
            self._take_back()
        return failure

    def _connected(self, stream: SampleStream) -> None:
        self._stream = stream
        self._connected_at = trio.current_time()
        self._lease = getattr(stream, "lease_seconds", None)
        self._renew_lease()
        self._grace.cancel()
        self._lossy = False
        self.opened.set()
        if not self._queue and not self._cannot_store:
            self._is_back()
        self._make_room()

    def _confirmed(self) -> None:
        """The sink has answered: also where nothing waits, as the parameters are stored now."""
        self._progress()
        if not self._queue and not self._sent:
            self._is_back()

    def _is_back(self) -> None:
        """It has taken all that waited for it: one that takes some of it, as a full disk does, was not a return."""
        if self.trouble:
            _log.info("trial %s: the data log is back", self._trial_id)
            self.trouble = ""
            self._cannot_store = self._refuses = self._said_dropped = False
            self._waits_until = -math.inf
            self._resume()

    def _resume(self) -> None:
        """Let the trial go on if it was paused and there is room: not for one that may send back what it is sent."""
        has_room = len(self._queue) <= self._config.max_queued_samples // 2 and self._bytes.fit
        if self._full and has_room and not self._cannot_store:
            self._set_full(False)

    async def _write(self, stream: SampleStream) -> None:
        self._write_nowait = getattr(stream, "write_nowait", None)
        self._write_shared = getattr(stream, "write_shared_nowait", None)
        self._sink_is_here = self._write_nowait is not None
        if hasattr(stream, "on_confirmed"):
            stream.on_confirmed = self._confirmed
        try:
            await self._empty_queue(stream)
        finally:
            self._write_nowait = self._write_shared = None
        await stream.complete()

    async def _empty_queue(self, stream: SampleStream) -> None:
        while True:
            while self._queue:
                # Taken off only once it is written: the queue's length is the back-pressure.
                sample = self._queue[0].sample
                if self._untold:
                    self._tell_loss(sample)
                if self.dropped_samples:
                    self._say_lost(sample)
                await stream.write(sample)
                kept = self._queue.popleft()
                if self._sink_is_here:
                    self._bytes.size -= kept.size
                    kept = _Kept(sample, 0)
                self._sent.append(kept)
                self._progress()
                self._resume()
            if self._completed.is_set():
                return
            await self._parked.park()

    def _progress(self) -> None:
        """Forget what the sink is now known to have taken."""
        if self._stream is None:
            return
        taken = self._forgotten + len(self._sent) - max(0, self._stream.unconfirmed)
        if taken > 0:
            forgotten = min(taken, self._forgotten)
            self._forgotten -= forgotten
            for _ in range(taken - forgotten):
                self._forget_first()
            self._taken += taken
            self._refusals = 0
            self._owed = min(self._owed - taken, len(self._queue) + len(self._sent))
            if self._owed <= 0:
                self._is_back()
            if self._completed.is_set():
                self._renew_flushing()
        # Those for a sink of this process take no memory here. One that has broken is waited for instead: until it
        # takes something, whatever it is sent may come back.
        is_costly = not (self._sink_is_here or self.trouble)
        while len(self._sent) > self._config.max_queued_samples or (is_costly and self._sent and not self._bytes.fit):
            self._forget_first()
            self._forgotten += 1

    def _forget_first(self) -> None:
        kept = self._sent.popleft()
        if type(kept) is _Kept:
            self._bytes.size -= kept.size

    # What goes wrong

    def _take_back(self) -> None:
        """The stream is left: what it is not known to have taken comes first in the next one."""
        self._progress()
        if self._stream is not None:
            self._stream_seconds = trio.current_time() - self._connected_at
            self._stream = None
        for kept in reversed(self._sent):
            if isinstance(kept, SharedSample):
                kept = self._counted(kept.whole())
            self._queue.appendleft(kept if kept.size else self._counted(kept.sample))
        self._sent.clear()
        forgotten, self._forgotten = self._forgotten, 0
        if forgotten:
            self._untold += forgotten
            self._count_lost(forgotten)

    def _broke(self, failure: Exception, fruitful: bool) -> None:
        now = trio.current_time()
        cannot_store = is_storage_failure(failure)
        text = text_of(failure)
        # A stream that was opened and broke without taking anything was not a return.
        is_news = not self.trouble or cannot_store is not self._cannot_store
        begins = self._away_since is None or fruitful or cannot_store is not self._cannot_store
        refuses = isinstance(failure, CogmentError) and status_of(failure)[0] not in _TRANSPORT
        if self._away_since is None or begins:
            self._away_since = now
        if begins and is_news:
            if cannot_store:
                limit = self._config.datalog_full_seconds
                _log.warning("trial %s: the data log cannot store samples; when %d wait (max_queued_samples), so does "
                             "the trial, until this has lasted %g s (datalog_full_seconds): %s",
                             self._trial_id, self._config.max_queued_samples, limit, text)  # fmt: skip
            else:
                what = "refuses samples" if refuses else "is away"
                _log.warning("trial %s: the data log %s: %s", self._trial_id, what, text)
        else:
            _log.debug("trial %s: the data log is still away: %s", self._trial_id, text)
        self.trouble = text or "it is away"
        self._cannot_store, self._refuses = cannot_store, refuses
        self._owed = len(self._queue)
        limits = self._config.datalog_grace_seconds, self._config.datalog_full_seconds
        waits_until = self._away_since + limits[cannot_store or (self._lease is not None and not refuses)]
        self._waits_until = waits_until if cannot_store else -math.inf
        if self._completed.is_set():
            self._flushing.deadline = max(self._flushing.deadline, self._waits_until)
        if not fruitful and refuses:
            self._refused(text)
        if waits_until <= now:
            self._lossy = True
        else:
            self._grace.cancel()
            self._grace = trio.CancelScope()
            self._owner.spawn(partial(self._wait_grace, self._grace, waits_until), "grace of the data log")
        self._make_room()
        if self._lease is not None and self._expiry is None and not self._completed.is_set():
            self._expiry = trio.CancelScope()
            lasts = min(self._config.datalog_grace_seconds, max(0.0, self._lease - _LEASE_MARGIN_SECONDS))
            self._owner.spawn(partial(self._expire, self._expiry, lasts), "lease of the data log")

    def _renew_lease(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._held = False
        self._set_full(self._full)

    async def _expire(self, expiry: trio.CancelScope, seconds: float) -> None:
        with expiry:
            await trio.sleep(seconds)
            if expiry.cancel_called or self._completed.is_set():
                return
            _log.warning("trial %s: it waits until its data log is back, for others may take it over", self._trial_id)
            self._held = True
            self._set_full(self._full)
            most = self._config.datalog_full_seconds
            await trio.sleep(max(0.0, most - seconds))
            if not (expiry.cancel_called or self._completed.is_set()):
                self._owner.on_replaced(f"its data log was away for {most:g} s (datalog_full_seconds)")

    def _refused(self, text: str) -> None:
        # Not the connection but the log itself, again and again: what it chokes on must not hold up all the rest.
        self._refusals += 1
        if self._refusals >= _TRIES_PER_SAMPLE and self._queue:
            self._refusals = 0
            self._say_dropped(text)
            self._drop_oldest(1)

    async def _wait_grace(self, grace: trio.CancelScope, end: float) -> None:
        with grace:
            await trio.sleep_until(end)
            if not grace.cancel_called:  # it may be back, or over, in this very moment
                self._lossy = True
                self._make_room()

    def _make_room(self) -> None:
        """Do what a full queue asks for: pause the trial, or drop what is oldest."""
        if self._lossy:
            surplus = len(self._queue) - self._config.max_queued_samples
            if surplus > 0:
                self._drop_oldest(surplus)
            while self._queue and not self._bytes.fit:
                self._drop_oldest(1)
            self._set_full(False)
        elif len(self._queue) >= self._config.max_queued_samples or not self._bytes.fit:
            self._bytes.count_all()
            self._set_full(True)

    def _memory_is_back(self) -> None:
        if len(self._queue) < self._config.max_queued_samples and self._bytes.fit:
            self._set_full(False)

    def _set_full(self, full: bool) -> None:
        self._full = full
        waits = full or self._held
        if waits is not self._waits:
            self._waits = waits
            self._owner.on_datalog_full(waits)

    def _drop_oldest(self, count: int) -> None:
        self._say_dropped(self.trouble)
        for _ in range(count):
            kept = self._queue.popleft()
            self._bytes.size -= kept.size
            if self._telling is not None and self._telling[0] is kept.sample:
                # What it had to tell is told by another.
                self._untold += self._telling[1]
        self._untold += count
        self._count_lost(count)

    def _say_dropped(self, why: str) -> None:
        """Log that samples are dropped; how many will have been is said in the end."""
        if not self._said_dropped:
            self._said_dropped = True
            _log.warning("trial %s: samples are dropped, the data log does not take them: %s", self._trial_id, why)

    def _count_lost(self, count: int) -> None:
        self.dropped_samples += count
        self.has_gap = True
        self._owner.on_samples_lost(count)

    def _say_lost(self, sample: DatalogSample) -> None:
        """Let the last sample say how many were lost before it."""
        if sample.info.HasField("end"):
            sample.info.end.samples_lost = self.dropped_samples

    def _tell_loss(self, sample: DatalogSample) -> None:
        count, self._untold = self._untold, 0
        # Who excluded `info` wants no events either.
        if sample.HasField("info"):
            self._telling = (sample, count)
            what = "1 sample before this one was" if count == 1 else f"{count} samples before this one were"
            sample.info.special_events.append(f"{what} lost: the data log did not take them in time")
