"""Who wants to know about state changes: each watcher has a bounded queue of its own and harms nobody else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo, TrialListEntry
from trio_cogment.errors import ResourceExhaustedError, UnavailableError

#: Instead of a trial's id, which is never empty.
_ANY = ""


class Describe(Protocol):
    """Describes a trial; see `Trial.info`."""

    def __call__(self, *, tracebacks: bool = False) -> TrialInfo:
        """See the class."""


class Watch:
    """One watcher's view: entries in the order of the changes.

    Iterating raises `ResourceExhaustedError` after the last entry of a watcher that fell too far behind, and
    `UnavailableError` when the orchestrator stops.

    Attributes:
        max_queued_entries: how many entries may wait.
    """

    def __init__(
        self,
        states: frozenset[int],
        *,
        full_info: bool,
        queue_entries: int,
        when_settled: bool = False,
        tracebacks: bool = False,
    ) -> None:
        self._states = states
        self._full_info = full_info
        self._when_settled = when_settled
        self._tracebacks = tracebacks
        #: Trials that ended, and whose samples are not settled.
        self._held: dict[str, Describe] = {}
        self.max_queued_entries = queue_entries
        self._send, self._receive = trio.open_memory_channel[TrialListEntry](queue_entries)
        self._end: Exception | None = None

    def offer(self, trial_id: str, state: int, info: Describe) -> None:
        """Queue an entry if it passes the filter; a full queue ends this watch."""
        if self._end is not None or (self._states and state not in self._states):
            return
        if self._when_settled and state == TrialState.ENDED and info().end.samples_pending:
            self._held[trial_id] = info
        else:
            self._queue(trial_id, state, info)

    def settle(self, trial_id: str, info: Describe) -> None:
        """Queue the entry of a trial that ended before, now that its samples are settled."""
        if self._held.pop(trial_id, None) is not None:
            self._queue(trial_id, TrialState.ENDED, info)

    def _queue(self, trial_id: str, state: int, info: Describe) -> None:
        if self._full_info:
            entry = TrialListEntry(info=info(tracebacks=self._tracebacks))
            # One input may change the state twice: the entry is about this change, whatever the trial is by now.
            entry.info.state = state  # type: ignore[assignment]  # an int is an enum value
        else:
            entry = _short_entry(trial_id, state)
        try:
            self._send.send_nowait(entry)
        except trio.WouldBlock:
            self.end(ResourceExhaustedError("this watcher reads too slowly; watch again to get a fresh snapshot"))
        except trio.BrokenResourceError:
            pass  # the watcher has left; its subscription ends with its task

    @property
    def queued_entries(self) -> int:
        """How many entries wait."""
        return self._receive.statistics().current_buffer_used

    def end(self, error: Exception) -> None:
        """Let the watcher see what is queued, then `error`."""
        held, self._held = self._held, {}
        for trial_id, info in held.items():
            self._queue(trial_id, TrialState.ENDED, info)
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
                return self._receive.receive_nowait()
            except trio.WouldBlock:
                return await self._receive.receive()
        except trio.EndOfChannel:
            assert self._end is not None
            raise self._end from None


class Watchers:
    """Everybody who watches."""

    def __init__(self, queue_entries: int) -> None:
        self._queue_entries = queue_entries
        self._watches: dict[Watch, None] = {}
        #: By the trials they want: each of a crowd of trials may have somebody who waits for it alone.
        self._by_trial: dict[str, dict[Watch, None]] = {_ANY: {}}
        self._stopped = False

    @contextmanager
    def subscribe(
        self,
        states: Iterable[int],
        full_info: bool,
        present: Iterable[tuple[str, int, Describe]],
        *,
        trial_ids: Iterable[str] = (),
        when_settled: bool = False,
        tracebacks: bool = False,
    ) -> Iterator[Watch]:
        """Watch from now on, beginning with what is there: no checkpoint lies between the two.

        Args:
            states: the states wanted; none means all.
            full_info: entries carry a `TrialInfo`.
            present: id, state and information of every trial there is, of those wanted.
            trial_ids: the trials wanted; none means all.
            when_settled: ENDED is told when the trial's data log takes no more samples, and not before.
            tracebacks: whether a `TrialInfo` has those of participants that raised.

        Raises:
            UnavailableError: the orchestrator is stopping.
        """
        if self._stopped:
            raise UnavailableError("the orchestrator is stopping")
        trials = list(present)
        # The snapshot has room beside the changes: a crowd of old trials must not overflow a new watcher.
        watch = Watch(
            frozenset(states),
            full_info=full_info,
            queue_entries=self._queue_entries + len(trials),
            when_settled=when_settled,
            tracebacks=tracebacks,
        )
        for trial_id, state, info in trials:
            watch.offer(trial_id, state, info)
        wanted = set(trial_ids) or {_ANY}
        self._watches[watch] = None
        for trial_id in wanted:
            self._by_trial.setdefault(trial_id, {})[watch] = None
        try:
            yield watch
        finally:
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
        for watch in self._of(trial_id):
            watch.offer(trial_id, state, info)

    def publish_settled(self, trial_id: str, info: Describe) -> None:
        """Tell those who wait for it that an ended trial's data log takes no more samples."""
        for watch in self._of(trial_id):
            watch.settle(trial_id, info)

    @property
    def queued_entries(self) -> int:
        """How many entries wait for watchers that do not read fast enough."""
        return sum(watch.queued_entries for watch in self._watches)

    @property
    def max_queued_entries(self) -> int:
        """How many may, of those who watch now."""
        return sum(watch.max_queued_entries for watch in self._watches)

    def stop(self) -> None:
        """End every watch, after what it has queued, with UNAVAILABLE."""
        self._stopped = True
        for watch in self._watches:
            watch.end(UnavailableError("the orchestrator is stopping"))


def _short_entry(trial_id: str, state: int) -> TrialListEntry:
    return TrialListEntry(trial_id=trial_id, state=state)  # type: ignore[arg-type]  # an int is an enum value
