"""The opening of a run (`open_run`, `run_trials_async`): its arguments become seeds, a schedule, sites, and a run."""

from __future__ import annotations

import operator
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from numbers import Integral, Real
from typing import Any, TypedDict, Unpack

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.rl.progress import shown
from trio_cogment.rl.runner._run import Run, TrialName
from trio_cogment.rl.runner._schedule import Schedule
from trio_cogment.rl.runner._stored import Before, stored_before
from trio_cogment.rl.runner.callbacks import TrialCallback
from trio_cogment.rl.runner.orchestrators import Place, open_sites
from trio_cogment.rl.runner.progress import ProgressFunction, bar_of
from trio_cogment.rl.runner.results import Results, RunFailedError
from trio_cogment.rl.runner.sites import Casting, Sitter
from trio_cogment.rpc import OwnNursery

#: What names of runs look like: they are the beginning of the ids of their trials.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _seeds(n: int, seeds: int | Iterable[int | None] | None) -> list[int | None]:
    if seeds is None:
        return [None] * n
    given: list[int | None]
    try:
        first = operator.index(seeds)  # type: ignore[arg-type]  # what has none is an iterable
    except TypeError:
        try:
            given = [None if seed is None else operator.index(seed) for seed in seeds]  # type: ignore[union-attr]  # as above
        except TypeError:
            raise InvalidArgumentError(f"seeds: expected an integer, or {n} of them, got {seeds!r}") from None
    else:
        given = list(range(first, first + n))
    if len(given) != n:
        raise InvalidArgumentError(f"seeds: expected {n}, one for each trial, got {len(given)}")
    return given


def _require_numbers(kind: Any, least: int, **numbers: float) -> None:
    what = "an integer" if kind is Integral else "a number"
    for name, number in numbers.items():
        # NaN is not more than anything.
        if not isinstance(number, kind) or not number >= least:
            raise InvalidArgumentError(f"{name}: expected {what}, {least} or more, got {number!r}")


@asynccontextmanager
async def open_run(
    n: int,
    *,
    environment: Any = None,
    arguments: Mapping[str, Any] | None = None,
    hosting: str = "inline",
    seats: Mapping[str, Sitter] | None = None,
    params: TrialParams | None = None,
    parallel: int | None = None,
    seeds: int | Iterable[int | None] | None = None,
    options: Mapping[str, Any] | None = None,
    max_steps: int = 0,
    tick_hz: float = 0.0,
    on: Place | Sequence[Place] | Mapping[str, Place] | None = None,
    store: Any = None,
    model_registry: str | None = None,
    directory: str | None = None,
    name: str = "",
    resume: bool = False,
    retries: int = 0,
    timeout_seconds: float = float("inf"),
    unreachable_seconds: float = 30.0,
    callbacks: Sequence[TrialCallback] = (),
    progress: bool | ProgressFunction | None = False,
    host: Host | None = None,
    trial_id: TrialName | None = None,
) -> AsyncIterator[Run]:
    """Run trials in the background of an `async with` block, which ends when they have ended.

    Leaving the block by an exception or a cancellation ends the trials that run, hard.

    The arguments and errors are those of `run_trials_async`, which does the same without a handle. Besides, `trial_id`
    gives the id of a trial, for its place in the run and how often it was tried to start it, this time included; and of
    several `seeds` some may be None.
    """
    host = host or Host()
    _require_numbers(Integral, 1, n=n)
    if parallel is not None:
        _require_numbers(Integral, 1, parallel=parallel)
    _require_name(name, resume=resume, named=trial_id is not None)
    given = _seeds(n, seeds)
    known = [seed for seed in given if seed is not None]
    casting = Casting(
        environment=environment,
        arguments=arguments or {},
        hosting=hosting,
        seats=seats or {},
        params=params,
        options=options,
        max_steps=max_steps,
        tick_hz=tick_hz,
        store=store,
        model_registry=model_registry,
        directory=directory,
        name=name,
        parallel=parallel or 0,
        seeds=(min(known), max(known)) if known else (),
    )
    _require_numbers(Integral, 0, retries=retries, max_steps=max_steps)
    _require_numbers(Real, 0, tick_hz=tick_hz)
    _require_numbers(Real, 0, timeout_seconds=timeout_seconds, unreachable_seconds=unreachable_seconds)
    async with AsyncExitStack() as stack:
        opened = await open_sites(stack, on, casting, host)
        before = Before()
        if name:
            before = await stored_before(name, given, opened, resume=resume)
        schedule = Schedule(
            given,
            len(opened.sites),
            parallel=parallel or len(opened.sites),
            retries=retries,
            unreachable_seconds=unreachable_seconds,
            done=[result.index for result in before.results],
        )
        run = Run(
            schedule,
            opened.actors,
            opened.sites,
            requested=n,
            timeout_seconds=timeout_seconds,
            callbacks=callbacks,
            show=stack.enter_context(shown(progress, bar_of)),
            trial_id=trial_id or _names(name or host.new_id()),
            before=before.results,
            tries=before.tries,
            unfinished=before.unfinished,
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


def _require_name(name: str, *, resume: bool, named: bool) -> None:
    if resume and not name:
        raise InvalidArgumentError("name: expected the name of the run that is to go on, got none")
    if name and named:
        raise InvalidArgumentError("trial_id: expected None for a run with a name, which names its trials")
    if name and not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"name: expected 1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or digit; got {name!r}"
        )


def _names(name: str) -> TrialName:
    return lambda index, count: f"{name}-{index}" + (f"-{count}" if count > 1 else "")


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
    parallel: int | None
    seeds: int | Iterable[int] | None
    options: Mapping[str, Any] | None
    max_steps: int
    tick_hz: float
    on: Any
    store: Any
    model_registry: str | None
    directory: str | None
    name: str
    resume: bool
    retries: int
    timeout_seconds: float
    unreachable_seconds: float
    callbacks: Sequence[TrialCallback]
    progress: bool | ProgressFunction | None
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
              `environments.making.make_environment`); or an asynchronous function over an `EnvironmentSession`; or
              the endpoint of an environment that is elsewhere.
            - arguments: with which the environment is made.
            - hosting: where it runs: `inline`, `thread` or `process`; see `environments.serving.environment`.
            - seats: who takes each actor's part: a seat such as `policy(...)`, an asynchronous function over an
              `ActorSession`, or the parameters of an actor that is elsewhere.
            - params: the parameters of the trials, where these arguments do not suffice.
            - parallel: how many trials run at the same time, at all sites together; by default one for each site.
            - seeds: one for each trial; or the first of consecutive ones. None: the environments go on with their own
              generators.
            - options: of the environments' episodes.
            - max_steps: after this many steps the orchestrator ends a trial; 0 for no limit.
            - tick_hz: ticks end by the clock, so many a second (docs/real-time.md): who has not acted by then takes
              part with the `default` of the seat, or its last action (`seat.observed(hold_action=True)`); 0: the trials
              wait for everybody, or have the rate of `params`.
            - on: where the trials run: an open platform, a client of `connect()`, a controller, an endpoint, the
              workers of a Ray cluster (`trio_cogment.ray.workers`), or several of them, in a list or by name. Each of
              them, and each worker, is a site. By default a platform is opened for the run.
            - store: the endpoint of a datastore in which the trials are recorded; or, for the platform that is opened
              for the run, a storage as for `open_platform`.
            - model_registry: the endpoint of the registry in which the seats look for their models; by default that of
              the platform, if it has one.
            - directory: the endpoint of the directory that finds seats and an environment `cogment://discover`, for the
              platform that is opened for the run, or by each worker; an orchestrator elsewhere has its own.
            - name: of the run, a property of its trials (`run`), and the beginning of their ids.
            - resume: go on with the run of this name: trials that have ended well and are in the store are not run
              again, and their results are among the others. One that was broken off goes on at the last tick that is
              stored, if its environment can be taken up; a policy with a memory of its own begins there without it.
            - retries: how often a trial that was lost by an accident (its site or the connection to a participant was
              lost) is started again, at another site if there is one.
            - timeout_seconds: how long a trial may take; then it is ended hard, and has failed.
            - unreachable_seconds: when no site has been of use for so long, the trials left have failed.
            - callbacks: are told what happens.
            - progress: True for a bar, if stderr is a terminal; or a function.
            - host: the clock, ids and randomness; by default the system's.

    Raises:
        RunFailedError: `check` was asked for, and a trial has failed; the error has the results.
        InvalidArgumentError: an argument makes no sense; the text names it.
        FailedPreconditionError: an environment or an actor of this process cannot take part where the trials run; or
            the store has a run of this name already, and it is not to go on.
        MissingExtraError: a package is needed that is not installed, such as NumPy.
        Exception: what a callback raised.

    After `Cancelled` the trials that ran have been ended hard, as far as their orchestrators could be reached.
    """
    async with open_run(n, **settings) as run:
        results = await run.wait()
    if check and results.failures:
        raise RunFailedError(results)
    return results
