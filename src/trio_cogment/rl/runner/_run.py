"""Runs: many trials, several at a time, at one site or many; and the handle that controls one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import trio

from trio_cogment.base.errors import CogmentError
from trio_cogment.rl.runner._schedule import Job, Schedule
from trio_cogment.rl.runner._stored import Unfinished
from trio_cogment.rl.runner._watching import is_asynchronous
from trio_cogment.rl.runner.callbacks import TrialCallback
from trio_cogment.rl.runner.progress import Progress, ProgressFunction
from trio_cogment.rl.runner.results import Results, TrialResult
from trio_cogment.rl.runner.sites import Attempt, Site, Task, Verdict

_log = logging.getLogger(__name__)

#: Names a trial, by its place in the run and how often it was tried to start it, this time included.
TrialName: TypeAlias = Callable[[int, int], str]

#: How long a stop waits for trials to end in good order, unless told otherwise.
GRACE_SECONDS = 10.0
#: How often a trial may be given to a site that is lost before it is known to have begun. Then it counts as the cause.
_MAX_DOUBTS = 3
#: How long a site that has failed may take to answer; it is asked again.
_PROBE_SECONDS = 10.0
#: How long a site may take to be told that its trials are to end.
_TELLING_SECONDS = 10.0
#: How long trials that are ended hard may take for it: at a stop, and when a run is left by a cancellation or an error.
_FAREWELL_SECONDS = 5.0


class Run:
    """A run that is under way; made by `open_run`.

    `async for result in run` gives the results as the trials end, those that have ended included.

    Attributes:
        actors: the names of the trials' actors.
    """

    def __init__(
        self,
        schedule: Schedule,
        actors: Sequence[str],
        sites: Sequence[Site],
        *,
        requested: int,
        timeout_seconds: float,
        callbacks: Sequence[TrialCallback],
        show: ProgressFunction,
        trial_id: TrialName,
        before: Sequence[TrialResult] = (),
        tries: Mapping[int, int] | None = None,
        unfinished: Mapping[int, Unfinished] | None = None,
    ) -> None:
        self.actors = tuple(actors)
        self._schedule = schedule
        self._sites = sites
        self._requested = requested
        self._timeout_seconds = timeout_seconds
        self._callbacks = callbacks
        self._show = show
        self._trial_id = trial_id
        #: Those of an earlier run of the same name come first.
        self._results: list[TrialResult] = list(before)
        self._failed = 0
        self._lost: list[TrialResult] = []
        #: How many ids each trial has had; none of them is used twice, because nobody knows what it was used for.
        self._tries: dict[int, int] = dict(tries or {})
        #: Those that go on with an attempt of an earlier run.
        self._unfinished: dict[int, Unfinished] = dict(unfinished or {})
        self._starts: dict[int, int] = {}
        self._last_error = "no site could be reached"
        self._changed = trio.Event()
        self._over = trio.Event()
        self._telling = trio.Lock()
        #: Of the attempts that run.
        self._scopes: set[trio.CancelScope] = set()
        #: A callback has raised, or is running.
        self._broken = False

    # What there is to see

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        running, paused = self._schedule.running, self._schedule.paused
        return Progress(len(self._results), self._requested, running, self._failed, paused)

    @property
    def over(self) -> bool:
        """Whether no trial runs any more, and none will be started."""
        return self._over.is_set()

    def results(self) -> Results:
        """Return the results that there are so far, as arrays.

        Raises:
            MissingExtraError: NumPy is not installed.
        """
        return Results.of(self._results, self.actors, requested=self._requested, lost=self._lost)

    async def wait(self) -> Results:
        """Wait until the run is over, and return its results. After `Cancelled` the run goes on."""
        await self._over.wait()
        return self.results()

    def __aiter__(self) -> AsyncIterator[TrialResult]:
        return _Following(self)

    async def result(self, position: int) -> TrialResult | None:
        """Wait for a result, by its position in the order in which the trials end; None if there are fewer."""
        while position >= len(self._results):
            if self.over:
                return None
            await self._changed.wait()
        return self._results[position]

    # Control

    def pause(self) -> None:
        """Start no more trials, until `resume`; those that run go on."""
        self._schedule.paused = True
        self._notify()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._schedule.paused = False
        self._notify()

    def limit_rate(self, starts_hz: float) -> None:
        """Start no more trials a second than this; 0: any number."""
        self._schedule.rate_hz = starts_hz
        self._notify()

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> Results:
        """End the run; return the results that there are.

        No trial is started any more, and those that run are ended softly: they have their final observations and their
        results. Trials that were not started have none.

        Args:
            grace_seconds: after this time the trials that still run are ended hard; 0 ends them hard at once. Those of
                a site that does not do it have failed after some seconds more.

        After `Cancelled` the run is still being ended, softly.
        """
        self._schedule.stop()
        self._notify()
        if grace_seconds > 0:
            with trio.move_on_after(grace_seconds):
                await self._end_trials(hard=False)
                await self._over.wait()
        if not self.over:
            await self._end_trials(hard=True)
            with trio.move_on_after(_FAREWELL_SECONDS):
                await self._over.wait()
            for scope in self._scopes:
                scope.cancel()
        return await self.wait()

    async def _end_trials(self, *, hard: bool) -> None:
        async def end(site: Site) -> None:
            with trio.move_on_after(_TELLING_SECONDS):
                try:
                    await site.end_trials(hard=hard)
                except CogmentError as error:
                    _log.warning("%s: its trials cannot be ended: %s", site.name, error)

        async with trio.open_nursery() as nursery:
            for site in self._sites:
                nursery.start_soon(end, site, name=f"end of the trials of {site.name}")

    # The work

    async def drive(self) -> None:
        """Start trials until all have ended; `open_run` calls it."""
        await self._tell(lambda callback: callback.on_run_start(self._requested))
        async with trio.open_nursery() as nursery:
            while not self._schedule.over:
                now = trio.current_time()
                while (chosen := self._schedule.next(now)) is not None:
                    nursery.start_soon(self._attempts, *chosen, name="trials of a run")
                for number in self._schedule.to_probe(now):
                    nursery.start_soon(self._probe, number, name=f"probe of {self._sites[number].name}")
                for job in self._schedule.given_up(now):
                    await self._record(self._unreachable(job))
                self._show(self.progress)
                changed = self._changed
                if not self._schedule.over:
                    with trio.move_on_at(self._schedule.wake_at()):
                        await changed.wait()
            # All attempts are over; what may still run are probes.
            nursery.cancel_scope.cancel()
        if self._callbacks:
            results = self.results()
            await self._tell(lambda callback: callback.on_run_end(results))
        self._show(self.progress)
        self._over.set()
        self._notify()

    async def close(self) -> None:
        """End what still runs, hard; `open_run` calls it when its block was left by an exception or `Cancelled`."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _FAREWELL_SECONDS):
            await self._end_trials(hard=True)

    async def _probe(self, number: int) -> None:
        site = self._sites[number]
        answered, why = False, f"no answer within {_PROBE_SECONDS:g} s"
        with trio.move_on_after(_PROBE_SECONDS):
            try:
                await site.probe()
                answered = True
            except CogmentError as error:
                why = str(error) or type(error).__name__
        if not answered:
            self._last_error = f"{site.name}: {why}"
            self._schedule.no_answer(number, trio.current_time())
        else:
            self._schedule.answered(number)
        self._notify()

    async def _attempts(self, job: Job, number: int) -> None:
        """Run a trial, and then others that may start: another task for each of them would take longer."""
        chosen: tuple[Job, int] | None = (job, number)
        while chosen is not None:
            await self._attempt(*chosen)
            chosen = self._schedule.next(trio.current_time())

    async def _attempt(self, job: Job, number: int) -> None:
        tries = self._tries[job.index] = self._tries.get(job.index, 0) + 1
        before = self._unfinished.pop(job.index, None)
        goes_on = None if before is None else (before.trial_id, before.tick_id)
        task = Task(job.index, job.seed, self._trial_id(job.index, tries), self._timeout_seconds, goes_on)

        async def started() -> None:
            await self._tell(lambda callback: callback.on_trial_start(job.index, job.seed, task.trial_id))

        site = self._sites[number]
        tried: Attempt | None = None
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            tried = await site.attempt(task, started)
        self._scopes.remove(scope)
        if tried is None:
            tried = Attempt.failed(task, site.name, "it has not ended, though it was told to", Verdict.LOST)
        verdict = tried.verdict
        if before is not None:
            if verdict in (Verdict.DONE, Verdict.LOST) and tried.result.failed and not self._schedule.stopped:
                why = tried.result.error
                _log.warning(
                    "trial %s: it begins again, because it could not be gone on with: %s", before.trial_id, why
                )
                await self._attempt(job, number)
                return
            if verdict is Verdict.DONE:
                tried = replace(tried, result=_whole(tried.result, before))
            else:
                self._unfinished[job.index] = before
        if verdict is Verdict.IN_DOUBT:
            job.doubts += 1
            verdict = Verdict.NOT_STARTED if job.doubts < _MAX_DOUBTS else Verdict.SITE_LOST
            if verdict is Verdict.NOT_STARTED:
                self._lost.append(replace(tried.result, attempts=self._starts.get(job.index, 0)))
        if verdict is Verdict.NOT_STARTED:
            self._last_error = tried.result.error
            self._schedule.not_started(job, number, trio.current_time())
        else:
            starts = self._starts[job.index] = self._starts.get(job.index, 0) + 1
            result = replace(tried.result, attempts=starts)
            if verdict is not Verdict.DONE and self._schedule.may_repeat(job):
                self._lost.append(result)
            else:
                await self._record(result)
            if verdict is Verdict.DONE:
                self._schedule.ended(number)
            else:
                site_failed = verdict is Verdict.SITE_LOST
                self._schedule.lost(job, number, trio.current_time(), site_failed=site_failed)
        self._notify()

    def _unreachable(self, job: Job) -> TrialResult:
        attempts = self._starts.get(job.index, 0)
        return TrialResult(job.index, "", job.seed, "", error=self._last_error, attempts=attempts)

    async def _record(self, result: TrialResult) -> None:
        """Keep a result, and tell the callbacks."""
        self._results.append(result)
        self._failed += result.failed
        await self._tell(lambda callback: callback.on_trial_end(result))

    async def _tell(self, what: Callable[[TrialCallback], Awaitable[None] | None]) -> None:
        """Tell the callbacks something, one thing after the other, until one of them raises."""
        if not self._callbacks:
            return  # what follows waits its turn at least
        async with self._telling:
            for callback in self._callbacks:
                if self._broken:
                    return
                self._broken = True
                result = what(callback)
                if result is not None and is_asynchronous(result):
                    await result
                self._broken = False

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def _whole(result: TrialResult, before: Unfinished) -> TrialResult:
    """Return the result of a trial that has gone on, with what was before."""
    returns = {actor: before.returns.get(actor, 0.0) + value for actor, value in result.returns.items()}
    return replace(result, ticks=before.tick_id + result.ticks, returns=returns)


class _Following:
    """The results of a run, as they come; an object, which needs no closing when a loop is left early."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._position = 0

    def __aiter__(self) -> _Following:
        return self

    async def __anext__(self) -> TrialResult:
        result = await self._run.result(self._position)
        if result is None:
            raise StopAsyncIteration
        self._position += 1
        return result
