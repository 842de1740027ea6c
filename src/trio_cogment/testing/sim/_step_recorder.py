"""Records each step of each task of a simulated run, and stops a run that makes no progress."""

from __future__ import annotations

import gc
import hashlib
import struct
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import trio

from trio_cogment.testing.sim._waiting import who_waits
from trio_cogment.testing.sim.schedule import break_shields, is_cancelled, name_of, tasks_below

#: Steps that a report shows.
RECENT_STEPS = 30
#: Idle turns of Trio's loop in a row between which no time has passed, before nothing will ever happen again.
_IDLE_TURNS = 2
#: Steps that a run which has used up its budget may take to end itself.
_LAST_STEPS = 10_000
_BATCH = 512
#: A look at who waits takes about as long for each as this many steps.
_STEPS_PER_LINE = 20
#: Garbage is collected after some ten thousand steps; see `simulate`.
_BATCHES_A_COLLECTION = 20


class Step(NamedTuple):
    """One turn of one task."""

    seconds: float
    task: str


class StepRecorder:
    """Counts and hashes the steps of a run, and stops it when it makes no progress.

    What is called by Trio's loop must not raise, so a run is stopped by cancelling `scope`, in which all of it happens.

    Args:
        budget: steps the run may take.
        keep: also keep every step, for a comparison.

    Attributes:
        budget: steps the run may take.
        steps: taken so far.
        trace: all of them, if they are kept.
        exhausted: the budget was used up.
        stuck: nothing could run any more, and no deadline was set.
        threaded: virtual time has passed while one of Trio's worker threads was at work.
        blocked: who waited in each of these cases; see `who_waits`.
        scenario: the task in which the scenario runs.
        left: who waited when the scenario was last cancelled, by itself or because the time of a scope was over.
        over: the scenario has returned, so nothing has to stop it any more.
        seconds: of virtual time at the last step.
    """

    def __init__(self, budget: int, *, keep: bool = False) -> None:
        self.scope = trio.CancelScope()
        self.steps = 0
        self.trace: list[Step] = []
        self.exhausted = False
        self.stuck = False
        self.threaded = False
        self.blocked: list[str] = []
        self.scenario: trio.lowlevel.Task | None = None
        self.left: list[str] = []
        self.over = False
        self.seconds = 0.0
        self.budget = budget
        self._keep = keep
        self._hash = hashlib.blake2b(digest_size=16)
        # The steps that have not been hashed yet, as two columns: one is noted in each turn of each task.
        self._times: list[float] = []
        self._names: list[str] = []
        self._hashed_last: list[Step] = []
        self._batches = 0
        self._mark = min(_BATCH, budget)
        self._limiter: trio.CapacityLimiter | None = None
        self._next_look = 0
        self._idle_turns = 0
        self._idle_steps = -1
        self._idle_since = -1.0

    @property
    def aborted(self) -> bool:
        """Whether the run was stopped before its end."""
        return self.exhausted or self.stuck or self.threaded

    def note(self, batch: Sequence[trio.lowlevel.Task]) -> None:
        """Note the steps that come now, the last task's first; with none, that everybody waits."""
        if not batch:
            self._note_idleness()
            return
        now = trio.current_time()
        if now != self.seconds:
            self.seconds = now
            self._check_threads()
            scenario = self.scenario
            if scenario is not None and self.steps >= self._next_look and is_cancelled(scenario):
                self.left = who_waits()
                # Some scenarios are cancelled again and again: that must not cost more than all the rest.
                self._next_look = self.steps + _STEPS_PER_LINE * len(self.left)
        for task in reversed(batch):
            self._times.append(now)
            self._names.append(name_of(task))
            self.steps += 1
            if self.steps == self._mark:
                self._at_mark()

    def _at_mark(self) -> None:
        if len(self._names) >= _BATCH:
            self._flush()
            self._batches += 1
            if self._batches % _BATCHES_A_COLLECTION == 0:
                gc.collect()
        if self.steps == self.budget and not self.over:
            self.exhausted = True
            self.blocked = who_waits()
            self.scope.cancel()
        elif self.steps == self.budget + _LAST_STEPS:
            self._force()
        limits = self.budget, self.budget + _LAST_STEPS
        self._mark = min([self.steps + _BATCH, *(limit for limit in limits if limit > self.steps)])

    def _note_idleness(self) -> None:
        # The clock is asked only in the second idle turn in a row; most are alone.
        if self.steps != self._idle_steps:
            self._idle_steps, self._idle_since = self.steps, -1.0
            return
        now = trio.current_time()
        if now != self._idle_since:
            self._idle_since = now
            self._idle_turns = 0
            return
        self._idle_turns += 1
        if self._idle_turns < _IDLE_TURNS:
            return
        if self.stuck:
            self._force()
        else:
            self.stuck = True
            self.blocked = self.blocked or who_waits()
            self.scope.cancel()

    def _check_threads(self) -> None:
        """Time has just jumped, so everybody was waiting: if for a thread, then it has been given no time at all."""
        if self._limiter is None:
            self._limiter = trio.to_thread.current_default_thread_limiter()
        if self._limiter.borrowed_tokens and not self.threaded:
            self.threaded = True
            self.blocked = who_waits()
            self.scope.cancel()

    def _force(self) -> None:
        """Cancelling was not enough: something is shielded without a deadline."""
        root = trio.lowlevel.current_root_task()
        if root is not None:
            break_shields(tasks_below(root))

    def _flush(self) -> None:
        self._hash.update(struct.pack(f"<{len(self._times)}d", *self._times))
        self._hash.update("\n".join(self._names).encode(errors="backslashreplace"))
        if self._keep:
            self.trace.extend(map(Step, self._times, self._names))
        self._hashed_last = self.recent
        self._times.clear()
        self._names.clear()

    @property
    def recent(self) -> list[Step]:
        """The last steps."""
        last = map(Step, self._times[-RECENT_STEPS:], self._names[-RECENT_STEPS:])
        return [*self._hashed_last, *last][-RECENT_STEPS:]

    def fingerprint(self) -> str:
        """Return what stands for the whole schedule: every step's task and time, in order."""
        self._flush()
        return self._hash.hexdigest()

    def busiest(self) -> str:
        """Say who took the last steps, for the report of a run that went nowhere."""
        counts = Counter(step.task for step in self.recent)
        return ", ".join(f"{name} ({count})" for name, count in counts.most_common(5))
