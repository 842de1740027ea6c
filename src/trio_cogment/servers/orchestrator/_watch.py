"""Watchers of state changes: each has a bounded queue of its own and harms nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo, TrialListEntry
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import ResourceExhaustedError, UnavailableError
from trio_cogment.base.recount import Count
from trio_cogment.budget.shares import Shares

STOPPING = "the orchestrator is stopping"
#: The limit at which nothing is kept of those who have reached it.
TOTAL = "watch_total_bytes"
#: This many trials that were there when a watch began are described even when the orchestrator stops.
_FEW_ENTRIES = 64
#: Instead of a trial's id, which is never empty.
_ANY = ""


class Describe(Protocol):
    """Describes a trial; see `Trial.info`."""

    def __call__(self, *, tracebacks: bool = False) -> TrialInfo:
        """See the class."""


class _Entry:
    """What watchers are told of one change: made once, and kept as long as it waits for one of them."""

    __slots__ = ("_total", "_waiting", "message", "size")

    def __init__(self, message: TrialListEntry, total: _Total) -> None:
        self.message = message
        self.size = message.ByteSize()
        self._total = total
        self._waiting = 0

    def wait(self) -> None:
        """It waits for one watcher more."""
        self._waiting += 1
        if self._waiting == 1:
            self._total.size += self.size

    def leave(self) -> None:
        """It waits for one watcher less."""
        self._waiting -= 1
        if not self._waiting:
            self._total.size -= self.size


class _Present:
    """A trial that was there when somebody began to watch: described when it is read, so that nothing is kept of it."""

    __slots__ = ("_info", "_state", "_trial_id", "_watch")
    size = 0

    def __init__(self, watch: Watch, trial_id: str, state: int, info: Describe) -> None:
        self._watch = watch
        self._trial_id = trial_id
        self._state = state
        self._info = info

    @property
    def message(self) -> TrialListEntry:
        """The entry, made again."""
        return self._watch.describe(self._trial_id, self._state, self._info)

    def wait(self) -> None:
        """See `_Entry.wait`."""

    def leave(self) -> None:
        """See `_Entry.leave`."""


class _Total:
    """How many bytes wait for all watchers; an entry that waits for several counts once.

    Args:
        limit: how many may.
        relieve: drops what waits for those whose watch has ended, or ends those of the account for which most waits.
    """

    def __init__(self, limit: int, relieve: Callable[[bool], None]) -> None:
        self.size = 0
        self._limit = limit
        self._relieve = relieve

    def is_full(self) -> bool:
        """Whether there is too much, even without what waits for those who take more than others, or have ended."""
        for hard in (False, True):
            if self.size > self._limit:
                self._relieve(hard)
        return self.size > self._limit


class Change:
    """One change of a trial: its entries are made when a watcher wants them, and shared by those who want the same."""

    def __init__(self, trial_id: str, state: int, info: Describe, total: _Total) -> None:
        self.trial_id = trial_id
        self.state = state
        self.info = info
        self._total = total
        self._entries: dict[tuple[bool, bool], _Entry] = {}

    def entry_for(self, watch: Watch) -> _Entry:
        """Return what a watcher is told."""
        found = self._entries.get(watch.wants)
        if found is None:
            found = _Entry(watch.describe(self.trial_id, self.state, self.info), self._total)
            self._entries[watch.wants] = found
        return found


class Watch:
    """One watcher's view: entries in the order of the changes.

    Iterating raises `ResourceExhaustedError` after the last entry of a watcher that fell too far behind, and
    `UnavailableError` when the orchestrator stops.

    Args:
        account: of the watcher.
        states: those that are wanted; empty: all.
        full_info: entries describe their trials.
        queue_entries: how many entries may wait.
        queue_bytes: their total size; one entry of any size may always wait.
        total: what waits for everybody.
        sees: see `Watchers.subscribe`.
        when_settled: see `Watchers.subscribe`.
        tracebacks: see `Watchers.subscribe`.

    Attributes:
        account: see above.
        size: how many bytes wait.
        max_queued_entries: how many entries may wait.
        patience: whoever sends the entries does so in this scope: it ends when the orchestrator has waited long enough.
        stopping: the orchestrator stops: of the trials that were there at the beginning few more are described.
        wants: what tells its entries from those of others.
    """

    def __init__(
        self,
        account: str,
        states: frozenset[int],
        *,
        full_info: bool,
        queue_entries: int,
        queue_bytes: int,
        total: _Total,
        sees: Callable[[str], bool] | None,
        when_settled: bool,
        tracebacks: bool,
    ) -> None:
        self.account = account
        self._states = states
        self._sees = sees
        self.wants = full_info, tracebacks
        self._when_settled = when_settled
        #: Trials that ended, and whose samples are not settled.
        self._held: dict[str, Change] = {}
        self.max_queued_entries = queue_entries
        self._max_bytes = queue_bytes
        self.size = 0
        self._total = total
        self._send, self._receive = trio.open_memory_channel[_Entry | _Present](queue_entries)
        self._end: Exception | None = None
        self.patience = trio.CancelScope()
        self.stopping = False

    def describe(self, trial_id: str, state: int, info: Describe) -> TrialListEntry:
        """Return the entry of a trial."""
        full_info, tracebacks = self.wants
        if not full_info:
            return TrialListEntry(trial_id=trial_id, state=state)  # type: ignore[arg-type]  # an int is an enum value
        entry = TrialListEntry(info=info(tracebacks=tracebacks))
        # One input may change the state twice: the entry is about this change, whatever the trial is by now.
        entry.info.state = state  # type: ignore[assignment]  # an int is an enum value
        return entry

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        waiting = self.queued_entries
        yield Count("entries of a watch", waiting, waiting)
        yield Count("bytes of a watch", self.size, self.size if waiting else 0)

    def offer(self, change: Change, *, present: bool = False) -> None:
        """Queue an entry if it passes the filter; a full queue ends this watch.

        Args:
            change: what there is to be told.
            present: it was so before this watch began.
        """
        if self._end is not None or (self._states and change.state not in self._states):
            return
        if self._sees is not None and not self._sees(change.trial_id):
            return
        if self._when_settled and change.state == TrialState.ENDED and change.info().end.samples_pending:
            self._held[change.trial_id] = change
        elif present:
            self._queue(_Present(self, change.trial_id, change.state, change.info))
        else:
            self._queue(change.entry_for(self))

    def settle(self, change: Change) -> None:
        """Queue the entry of a trial that ended before, now that its samples are settled."""
        if self._held.pop(change.trial_id, None) is not None:
            self._queue(change.entry_for(self))

    def _queue(self, entry: _Entry | _Present) -> None:
        entry.wait()
        limit = self._reached(entry)
        if limit:
            entry.leave()
            self.end_slow(limit)
            return
        if self._end is not None:
            entry.leave()  # it was among those for whom most waits
            return
        self._send.send_nowait(entry)
        self.size += entry.size

    def _reached(self, entry: _Entry | _Present) -> str | None:
        """Return the name of the limit that leaves no room for an entry; None if there is room."""
        if self.queued_entries >= self.max_queued_entries:
            return "watch_queue_entries"
        if self.size and self.size + entry.size > self._max_bytes:
            return "watch_queue_bytes"
        if self.size and self._total.is_full():
            return TOTAL
        return None

    def _taken(self, entry: _Entry | _Present) -> TrialListEntry:
        self.size -= entry.size
        entry.leave()
        return entry.message

    def end_slow(self, limit: str) -> None:
        """End it for a limit that it has reached, or that others have no room for."""
        self.end(
            ResourceExhaustedError(
                f"this watcher reads too slowly: {limit} is reached; watch again to get a fresh snapshot"
            )
        )
        if limit == TOTAL:
            self.drop()

    def drop(self) -> None:
        """Forget what waits: nobody reads it any more."""
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                self._taken(self._receive.receive_nowait())

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is queued."""
        return self._end is not None

    @property
    def error(self) -> Exception:
        """With what the watch ends, or has ended; that the orchestrator stops, if there was nothing before."""
        return self._end or UnavailableError(STOPPING)

    @property
    def queued_entries(self) -> int:
        """How many entries wait."""
        return self._receive.statistics().current_buffer_used

    def end(self, error: Exception) -> None:
        """Let the watcher see what is queued, then `error`."""
        held, self._held = self._held, {}
        for change in held.values():
            self._queue(change.entry_for(self))
        if self._end is None:
            self._end = error
            self._send.close()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> TrialListEntry:
        try:
            try:
                # A crowd of trials makes thousands of entries in one turn: one by one per turn would be too slow. Who
                # iterates sends each of them, and that takes turns.
                entry = self._receive.receive_nowait()
                while self.stopping and type(entry) is _Present and self.queued_entries > _FEW_ENTRIES:
                    entry = self._receive.receive_nowait()
            except trio.WouldBlock:
                entry = await self._receive.receive()
            return self._taken(entry)
        except trio.EndOfChannel:
            assert self._end is not None
            raise self._end from None


class Watchers:
    """Everybody who watches.

    Args:
        config: how many there may be, and how much may wait for each, and for all.
    """

    def __init__(self, config: OrchestratorConfig) -> None:
        self._config = config
        self._shares = Shares(
            "watchers", ("max_watchers", config.max_watchers), ("max_peer_watchers", config.max_peer_watchers)
        )
        self._total = _Total(config.watch_total_bytes, self._relieve)
        self._watches: dict[Watch, None] = {}
        #: By the trials they want: each of a crowd of trials may have somebody who waits for it alone.
        self._by_trial: dict[str, dict[Watch, None]] = {_ANY: {}}
        self._stopped = False

    def check_named(self, count: int) -> None:
        """Refuse to watch too many trials by their names.

        Raises:
            ResourceExhaustedError: it names the limit.
        """
        most = self._config.max_watched_trials
        if count > most:
            raise ResourceExhaustedError(
                f"trial_ids: {count}; max_watched_trials is {most}. Without any, all trials are watched"
            )

    @contextmanager
    def subscribe(
        self,
        states: Iterable[int],
        full_info: bool,
        present: Iterable[tuple[str, int, Describe]],
        *,
        trial_ids: Iterable[str] = (),
        sees: Callable[[str], bool] | None = None,
        when_settled: bool = False,
        tracebacks: bool = False,
        account: str = "",
    ) -> Iterator[Watch]:
        """Watch from now on, beginning with what is there: no checkpoint lies between the two.

        Args:
            states: the states wanted; none means all.
            full_info: entries carry a `TrialInfo`.
            present: id, state and information of every trial there is, of those wanted.
            trial_ids: the trials wanted; none means all.
            sees: tells whether the watcher may know of a trial, by its id; None: of all.
            when_settled: ENDED is told when the trial's data log takes no more samples, and not before.
            tracebacks: whether a `TrialInfo` has those of participants that raised.
            account: of the watcher; empty: this process.

        Raises:
            UnavailableError: the orchestrator is stopping.
            ResourceExhaustedError: there are too many watchers; the text names the limit.
        """
        if self._stopped:
            raise UnavailableError(STOPPING)
        with self._shares.taken(account):
            wanted = set(trial_ids) or {_ANY}
            trials = [each for each in present if sees is None or sees(each[0])]
            # The snapshot has room beside the changes: a crowd of old trials must not overflow a new watcher.
            watch = Watch(
                account,
                frozenset(states),
                full_info=full_info,
                queue_entries=self._config.watch_queue_entries + len(trials),
                queue_bytes=self._config.watch_queue_bytes,
                total=self._total,
                sees=sees,
                when_settled=when_settled,
                tracebacks=tracebacks,
            )
            for trial_id, state, info in trials:
                watch.offer(Change(trial_id, state, info, self._total), present=True)
            self._watches[watch] = None
            for trial_id in wanted:
                self._by_trial.setdefault(trial_id, {})[watch] = None
            try:
                yield watch
            finally:
                watch.drop()
                del self._watches[watch]
                for trial_id in wanted:
                    del self._by_trial[trial_id][watch]
                    if trial_id != _ANY and not self._by_trial[trial_id]:
                        del self._by_trial[trial_id]

    def _of(self, trial_id: str) -> list[Watch]:
        return [*self._by_trial[_ANY], *self._by_trial.get(trial_id, ())]

    def publish(self, trial_id: str, state: int, info: Describe) -> None:
        """Tell every watcher of a trial about a change."""
        if not self._watches:
            return
        change = Change(trial_id, state, info, self._total)
        for watch in self._of(trial_id):
            watch.offer(change)

    def publish_settled(self, trial_id: str, info: Describe) -> None:
        """Tell those who wait for it that an ended trial's data log takes no more samples."""
        if not self._watches:
            return
        change = Change(trial_id, TrialState.ENDED, info, self._total)
        for watch in self._of(trial_id):
            watch.settle(change)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count("bytes of all watches", self._total.size, self._total.size if self.queued_entries else 0)
        wanting = {watch for watches in self._by_trial.values() for watch in watches}
        yield Count("watches", len(self._watches), len(wanting))

    @property
    def queued_entries(self) -> int:
        """How many entries wait for watchers that do not read fast enough."""
        return sum(watch.queued_entries for watch in self._watches)

    def _relieve(self, hard: bool) -> None:
        """Drop what waits for those whose watch has ended; `hard`: end those of the account for which most waits."""
        if not hard:
            for watch in self._watches:
                if watch.has_ended:
                    watch.drop()
            return
        waiting: Counter[str] = Counter()
        for watch in self._watches:
            waiting[watch.account] += watch.size
        [(most, _)] = waiting.most_common(1)
        for watch in self._watches:
            if watch.account == most and watch.size and not watch.has_ended:
                watch.end_slow(TOTAL)

    @property
    def queued_bytes(self) -> int:
        """How many bytes they take."""
        return self._total.size

    @property
    def max_queued_entries(self) -> int:
        """How many may, of those who watch now."""
        return sum(watch.max_queued_entries for watch in self._watches)

    def stop(self) -> None:
        """End every watch, after what it has queued, with UNAVAILABLE; not later than a farewell takes."""
        self._stopped = True
        deadline = trio.current_time() + self._config.farewell_seconds
        for watch in self._watches:
            watch.stopping = True
            watch.end(UnavailableError(STOPPING))
            watch.patience.deadline = deadline
