"""Runs: many trials, several at a time, at one orchestrator or many; and the handle that controls one."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, Unpack

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.errors import InvalidArgumentError
from trio_cogment.host import Host
from trio_cogment.rl.runner._schedule import Job, Schedule
from trio_cogment.rl.runner._sites import Casting, Orchestrator, Sitter, open_sites
from trio_cogment.rl.runner._trial import Site, Verdict, attempt, params_of
from trio_cogment.rl.runner._watching import is_asynchronous
from trio_cogment.rl.runner.callbacks import TrialCallback
from trio_cogment.rl.runner.progress import Progress, ProgressFunction, shown
from trio_cogment.rl.runner.results import Results, RunFailedError, TrialResult
from trio_cogment.rpc import OwnNursery

#: How long a stop waits for trials to end in good order, unless told otherwise.
GRACE_SECONDS = 10.0
#: How long leaving a run after a cancellation or an error may take, to end the trials that run.
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
        host: Host,
    ) -> None:
        self.actors = tuple(actors)
        self._schedule = schedule
        self._sites = sites
        self._requested = requested
        self._timeout_seconds = timeout_seconds
        self._callbacks = callbacks
        self._show = show
        self._name = host.new_id()
        self._results: list[TrialResult] = []
        self._lost: list[TrialResult] = []
        self._attempts: dict[int, int] = {}
        self._last_error = "no orchestrator could be reached"
        self._changed = trio.Event()
        self._over = trio.Event()
        self._telling = trio.Lock()
        #: A callback has raised, or is running.
        self._broken = False

    # What there is to see

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        failed = sum(result.failed for result in self._results)
        return Progress(len(self._results), self._requested, self._schedule.running, failed, self._schedule.paused)

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
        """Wait for a result, by its position in the order in which the trials end; None if there are not so many."""
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

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> Results:
        """End the run; return the results that there are.

        No trial is started any more, and those that run are ended softly: they have their final observations and their
        results. Trials that were not started have none.

        Args:
            grace_seconds: after this time the trials that still run are ended hard; 0 ends them hard at once.

        After `Cancelled` the run is still being ended, softly.
        """
        self._schedule.stop()
        self._notify()
        if grace_seconds > 0:
            await self._end_trials(hard=False)
            with trio.move_on_after(grace_seconds):
                await self._over.wait()
        if not self.over:
            await self._end_trials(hard=True)
        return await self.wait()

    async def _end_trials(self, *, hard: bool) -> None:
        async with trio.open_nursery() as nursery:
            for site in self._sites:
                nursery.start_soon(partial(site.end_trials, hard=hard))

    # The work

    async def drive(self) -> None:
        """Start trials until all have ended; `open_run` calls it."""
        async with trio.open_nursery() as nursery:
            while not self._schedule.over:
                now = trio.current_time()
                while (chosen := self._schedule.next(now)) is not None:
                    job, number = chosen
                    nursery.start_soon(self._attempt, job, number, name=f"trial {job.index} of a run")
                for job in self._schedule.given_up(now):
                    await self._record(self._unreachable(job))
                self._show(self.progress)
                changed = self._changed
                if not self._schedule.over:
                    with trio.move_on_at(self._schedule.wake_at()):
                        await changed.wait()
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

    async def _attempt(self, job: Job, number: int) -> None:
        site = self._sites[number]
        count = self._attempts[job.index] = self._attempts.get(job.index, 0) + 1
        trial_id = f"{self._name}-{job.index}" + (f"-{count}" if count > 1 else "")

        async def started() -> None:
            await self._tell(lambda callback: callback.on_trial_start(job.index, job.seed, trial_id))

        tried = await attempt(
            site,
            job,
            self.actors,
            trial_id=trial_id,
            timeout_seconds=self._timeout_seconds,
            started=started,
        )
        if tried.verdict is Verdict.NOT_STARTED:
            self._attempts[job.index] -= 1
            self._last_error = tried.result.error
            self._schedule.not_started(job, number, trio.current_time())
        else:
            result = replace(tried.result, attempts=count)
            if tried.verdict is not Verdict.DONE and self._schedule.may_repeat(job):
                self._lost.append(result)
            else:
                await self._record(result)
            if tried.verdict is Verdict.DONE:
                self._schedule.ended(number)
            else:
                site_failed = tried.verdict is Verdict.ORCHESTRATOR_LOST
                self._schedule.lost(job, number, trio.current_time(), site_failed=site_failed)
        self._notify()

    def _unreachable(self, job: Job) -> TrialResult:
        attempts = self._attempts.get(job.index, 0)
        return TrialResult(job.index, "", job.seed, "", error=self._last_error, attempts=attempts)

    async def _record(self, result: TrialResult) -> None:
        """Keep a result, and tell the callbacks."""
        self._results.append(result)
        await self._tell(lambda callback: callback.on_trial_end(result))

    async def _tell(self, what: Callable[[TrialCallback], Awaitable[None] | None]) -> None:
        """Tell the callbacks something, one thing after the other, until one of them raises."""
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


def _seeds(n: int, seeds: int | Iterable[int] | None) -> list[int | None]:
    if n < 1:
        raise InvalidArgumentError(f"n: expected one trial or more, got {n}")
    if seeds is None:
        return [None] * n
    try:
        first = operator.index(seeds)  # type: ignore[arg-type]  # what has none is an iterable
    except TypeError:
        given: list[int | None] = [operator.index(seed) for seed in seeds]  # type: ignore[union-attr]  # as above
    else:
        given = list(range(first, first + n))
    if len(given) != n:
        raise InvalidArgumentError(f"seeds: expected {n}, one for each trial, got {len(given)}")
    return given


@asynccontextmanager
async def open_run(
    n: int,
    *,
    environment: Any = None,
    arguments: Mapping[str, Any] | None = None,
    hosting: str = "inline",
    seats: Mapping[str, Sitter] | None = None,
    params: TrialParams | None = None,
    parallel: int = 1,
    seeds: int | Iterable[int] | None = None,
    options: Mapping[str, Any] | None = None,
    max_steps: int = 0,
    on: Orchestrator | Sequence[Orchestrator] | Mapping[str, Orchestrator] | None = None,
    store: Any = None,
    retries: int = 0,
    timeout_seconds: float = float("inf"),
    unreachable_seconds: float = 30.0,
    callbacks: Sequence[TrialCallback] = (),
    progress: bool | ProgressFunction = False,
    host: Host | None = None,
) -> AsyncIterator[Run]:
    """Run trials in the background of an `async with` block, which ends when they have ended.

    Leaving the block by an exception or a cancellation ends the trials that run, hard.

    The arguments and errors are those of `run_trials_async`, which does the same without a handle.
    """
    host = host or Host()
    casting = Casting(
        environment=environment,
        arguments=arguments or {},
        hosting=hosting,
        seats=seats or {},
        params=params,
        options=options,
        max_steps=max_steps,
        store=store,
    )
    for name, number, least in (("parallel", parallel, 1), ("retries", retries, 0)):
        if number < least:
            raise InvalidArgumentError(f"{name}: expected {least} or more, got {number}")
    given = _seeds(n, seeds)
    async with AsyncExitStack() as stack:
        actors, sites = await open_sites(stack, on, casting, host)
        for seed in given:
            params_of(sites[0].params, seed)  # raises now what would stop the run half-way
        schedule = Schedule(
            given, len(sites), parallel=parallel, retries=retries, unreachable_seconds=unreachable_seconds
        )
        run = Run(
            schedule,
            actors,
            sites,
            requested=n,
            timeout_seconds=timeout_seconds,
            callbacks=callbacks,
            show=stack.enter_context(shown(progress)),
            host=host,
        )
        try:
            async with OwnNursery() as nursery:
                nursery.start_soon(run.drive, name="a run of trials")
                yield run
        except ExceptionGroup as group:
            # What a callback raised is the run's only failure, and what its caller looks for.
            raise _sole(group) from None
        finally:
            if not run.over:
                await run.close()


def _sole(group: ExceptionGroup[Exception]) -> Exception:
    """Return the exception that a group holds, if it is only one."""
    found: Exception = group
    while isinstance(found, ExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found


class RunOptions(TypedDict, total=False):
    """The arguments of `open_run` with a name; see `run_trials_async`."""

    environment: Any
    arguments: Mapping[str, Any] | None
    hosting: str
    seats: Mapping[str, Sitter] | None
    params: TrialParams | None
    parallel: int
    seeds: int | Iterable[int] | None
    options: Mapping[str, Any] | None
    max_steps: int
    on: Any
    store: Any
    retries: int
    timeout_seconds: float
    unreachable_seconds: float
    callbacks: Sequence[TrialCallback]
    progress: bool | ProgressFunction
    host: Host | None


async def run_trials_async(n: int, *, check: bool = False, **settings: Unpack[RunOptions]) -> Results:
    """Run trials, and return their results as arrays.

    Trials that fail are listed in the results; the others go on. Of those whose actors are all in this process, or
    whose environment is, the returns are known in double precision; of others, if the trials are recorded in a
    datastore that can be read; else they are NaN. An actor of this process joins each trial as a client actor, so it
    needs no port of its own, whereever the orchestrator runs.

    Args:
        n: how many trials.
        check: raise if a trial has failed, when all have ended.
        **settings: of `open_run`:

            - environment: an id such as `CartPole-v1`, an environment, or a function that makes one (see
              `rl.environments.making.make_environment`); or an asynchronous function over an `EnvironmentSession`; or
              the endpoint of an environment that is elsewhere.
            - arguments: with which the environment is made.
            - hosting: where it runs: `inline`, `thread` or `process`; see `rl.environments.serving.environment`.
            - seats: who takes each actor's part: a seat such as `policy(...)`, an asynchronous function over an
              `ActorSession`, or the parameters of an actor that is elsewhere.
            - params: the parameters of the trials, where these arguments do not suffice.
            - parallel: how many trials run at the same time, at all orchestrators together.
            - seeds: one for each trial; or the first of consecutive ones. None: the environments go on with their own
              generators.
            - options: of the environments' episodes.
            - max_steps: after so many steps the orchestrator ends a trial; 0 for no limit.
            - on: where the trials run: an open platform, a client of `connect()`, a controller, an endpoint, or several
              of them, in a list or by name. By default a platform is opened for the run.
            - store: of the platform that is opened for the run, as for `open_platform`; with orchestrators elsewhere,
              the endpoint of a datastore in which they record their trials.
            - retries: how often a trial that was lost by an accident (its orchestrator or the connection to a
              participant was lost) is started again, at another orchestrator if there is one.
            - timeout_seconds: how long a trial may take; then it is ended hard, and has failed.
            - unreachable_seconds: when no orchestrator has been of use for so long, the trials left have failed.
            - callbacks: are told what happens.
            - progress: True for a bar, if stderr is a terminal; or a function.
            - host: the clock, ids and randomness; by default the system's.

    Raises:
        RunFailedError: `check` was asked for, and a trial has failed; the error has the results.
        InvalidArgumentError: an argument makes no sense; the text names it.
        FailedPreconditionError: an environment or an actor of this process cannot take part where the trials run.
        MissingExtraError: a package is needed that is not installed, such as NumPy.
        Exception: what a callback raised.

    After `Cancelled` the trials that ran have been ended hard, as far as their orchestrators could be reached.
    """
    async with open_run(n, **settings) as run:
        results = await run.wait()
    if check and results.failures:
        raise RunFailedError(results)
    return results
