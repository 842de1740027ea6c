"""An orchestrator as a site of a run: its trials are started, attended by this process's actors, and counted."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import trio
from google.protobuf.message import DecodeError

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.base.errors import (
    CogmentError,
    InvalidArgumentError,
    NotFoundError,
    RpcError,
    StatusCode,
    TrialFailedError,
    UnavailableError,
)
from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.environments.trial_seeds import noted_seed
from trio_cogment.rl.runner._score import Score
from trio_cogment.rl.runner._watching import watched_actor
from trio_cogment.rl.runner.results import TrialResult
from trio_cogment.rl.runner.sites import Attempt, Started, Task, Verdict
from trio_cogment.rpc import OwnNursery
from trio_cogment.sdk import ActorImplementation, Controller, DatastoreClient, StoredSample

#: Takes part in a trial as a client actor: its id, the actor, the actor's name.
Join: TypeAlias = Callable[[str, ActorImplementation, str], Awaitable[None]]

#: What an orchestrator answers that cannot be reached, is stopping, or is full.
_UNREACHABLE = (StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED, StatusCode.DEADLINE_EXCEEDED)
#: Ends that say nothing about the trial itself: somewhere else it may go well.
_ACCIDENTS = (
    *(EndCause.PARTICIPANT_LOST, EndCause.PARTICIPANT_MISSING, EndCause.NOT_STARTED),
    *(EndCause.SERVER_STOPPED, EndCause.INTERNAL),
)
#: How long an actor may go on after a trial has ended in good order.
_LEAVE_SECONDS = 10.0

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OrchestratorSite:
    """A `Site`: an orchestrator, in this process or elsewhere, and what a run has to do with it.

    Attributes:
        name: for results and errors.
        controller: starts, ends and awaits trials.
        params: the parameters of a trial, without its seed.
        join: takes part in trials; None where no actor of this process does.
        seats: the actors of this process, by name.
        datastore: has the trials' samples; None if they are not recorded, or nobody said where.
        counts_seats: whether observations are counted at the seats, and not in the environment already.
        scores: of the trials that run.
        running: the ids of the trials that run.
    """

    name: str
    controller: Controller
    params: TrialParams
    join: Join | None = None
    seats: Mapping[str, ActorImplementation] = field(default_factory=dict)
    datastore: DatastoreClient | None = None
    counts_seats: bool = True
    scores: dict[str, Score] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)

    async def attempt(self, task: Task, started: Started) -> Attempt:
        """See `Site.attempt`. After `Cancelled` the trial's id stays in `running`."""
        began = trio.current_time()
        actors = [actor.name for actor in self.params.actors]
        trial_id = task.trial_id
        self.scores[trial_id] = Score(actors)
        self.running.add(trial_id)
        try:
            with noted_seed(trial_id, task.seed):
                tried = await _attempt(self, task, actors, started)
        finally:
            score = self.scores.pop(trial_id)
        self.running.discard(trial_id)
        if tried.result.outcome is not None and not score.complete and self.datastore is not None:
            score = await stored_score(self.name, self.datastore, trial_id, actors, own=True) or score
        result = counted(replace(tried.result, seconds=trio.current_time() - began), score, actors)
        return Attempt(result, tried.verdict)

    async def probe(self) -> None:
        """See `Site.probe`. An orchestrator that answers may still be full: its next trial shows that."""
        try:
            await self.controller.versions()
        except RpcError as error:
            if error.code in _UNREACHABLE:
                raise

    async def end_trials(self, *, hard: bool) -> None:
        """See `Site.end_trials`."""
        if self.running:
            await self.controller.terminate_trial(sorted(self.running), hard=hard)


def params_of(template: TrialParams, seed: int | None) -> TrialParams:
    """Return the parameters of a trial with this seed.

    Raises:
        InvalidArgumentError: the template's environment has a configuration of another type.
    """
    params = TrialParams()
    params.CopyFrom(template)
    if seed is not None:
        try:
            config = rl_pb2.EnvironmentConfig.FromString(params.environment.config.content)
            config.seed = seed
        except (DecodeError, ValueError, TypeError) as error:
            raise InvalidArgumentError(f"seeds: {seed!r}: cannot be set in the environment's config: {error}") from None
        params.environment.config.content = config.SerializeToString()
    return params


def check_seeds(template: TrialParams, seeds: Iterable[int]) -> None:
    """Raise for seeds that trials cannot have, before what they would stop half-way has begun.

    Raises:
        InvalidArgumentError: see `params_of`.
    """
    for seed in seeds:
        params_of(template, seed)


def counted(result: TrialResult, score: Score, actors: Sequence[str]) -> TrialResult:
    """Return the result of a trial with what was counted in it."""
    outcome = result.outcome
    cut = frozenset(actors) - score.terminated if outcome is not None and outcome.cause.is_truncation else frozenset()
    return replace(
        result,
        returns=score.returns,
        terminated=frozenset(score.terminated),
        truncated=frozenset(score.truncated) | cut,
    )


async def _attempt(site: OrchestratorSite, task: Task, actors: Sequence[str], started: Started) -> Attempt:
    trial_id, timeout_seconds = task.trial_id, task.timeout_seconds
    try:
        params = params_of(site.params, task.seed)
        if task.goes_on is None:
            reply = await site.controller.start_trial(params, trial_id=trial_id)
        else:
            reply = await site.controller.start_branch(*task.goes_on, params=params, trial_id=trial_id)
    except RpcError as error:
        verdict = Verdict.NOT_STARTED if error.code in _UNREACHABLE else Verdict.DONE
        return Attempt.failed(task, site.name, f"orchestrator {site.name}: start_trial: {error}", verdict)
    if reply != trial_id:
        text = f"orchestrator {site.name}: start_trial: the id {trial_id!r} is taken"
        return Attempt.failed(task, site.name, text, Verdict.DONE)
    await started()
    try:
        outcome, timed_out = await _attended(site, actors, trial_id, timeout_seconds)
    except (RpcError, NotFoundError, UnavailableError) as error:
        text = f"orchestrator {site.name}: the trial was lost: {error}"
        return Attempt.failed(task, site.name, text, Verdict.SITE_LOST)
    text = ""
    if timed_out:
        text = f"trial {trial_id}: expected its end within {timeout_seconds:g} s (timeout_seconds)"
    elif outcome.failed or not outcome.stored:
        text = str(TrialFailedError(outcome))
    result = TrialResult(task.index, trial_id, task.seed, site.name, error=text)
    result = replace(result, cause=outcome.cause, ticks=outcome.ticks, outcome=outcome)
    if outcome.cause is EndCause.SERVER_STOPPED:
        return Attempt(result, Verdict.SITE_LOST)
    return Attempt(result, Verdict.LOST if outcome.cause in _ACCIDENTS else Verdict.DONE)


async def _attended(
    site: OrchestratorSite, actors: Sequence[str], trial_id: str, timeout_seconds: float
) -> tuple[TrialOutcome, bool]:
    """Run the actors of this process until a trial has ended; return how it did, and whether it took too long."""
    outcome: TrialOutcome | None = None
    timed_out = False
    async with OwnNursery() as nursery:
        for name in actors:
            if name in site.seats:
                nursery.start_soon(_sit, site, trial_id, name, name=f"actor {name!r} of trial {trial_id}")
        try:
            with trio.move_on_after(timeout_seconds):
                outcome = await site.controller.wait_trial(trial_id, check=False)
            timed_out = outcome is None
            if outcome is None:
                await site.controller.terminate_trial(trial_id, hard=True)
                outcome = await site.controller.wait_trial(trial_id, check=False)
        except (RpcError, NotFoundError, UnavailableError):
            nursery.cancel_scope.cancel()
            raise
        # The actors are told of the end at about the same time, and may have something to do then.
        orderly = not outcome.failed and outcome.cause is not EndCause.HARD_TERMINATION
        nursery.cancel_scope.deadline = trio.current_time() + (_LEAVE_SECONDS if orderly else 0)
    assert outcome is not None
    return outcome, timed_out


async def _sit(site: OrchestratorSite, trial_id: str, name: str) -> None:
    """Take part in a trial; what goes wrong ends this part in it, and the trial's outcome tells of it."""
    assert site.join is not None
    implementation = site.seats[name]
    if site.counts_seats:
        implementation = watched_actor(implementation, site.scores.get)
    try:
        await site.join(trial_id, implementation, name)
    except CogmentError as error:
        _log.warning("trial %s: actor %r has left it: %s", trial_id, name, error)
    except Exception:  # noqa: BLE001  the user's code, which concerns this trial only
        _log.exception("trial %s: actor %r raised", trial_id, name)


async def stored_score(
    site: str,
    datastore: DatastoreClient,
    trial_id: str,
    actors: Sequence[str],
    *,
    own: bool = False,
    before: int | None = None,
) -> Score | None:
    """Count the stored observations of a trial; None if they cannot be read.

    Args:
        site: where it ran, for the log.
        datastore: has the trial.
        trial_id: its id.
        actors: the actors to count.
        own: leave out what it has from the trial of which it is a branch.
        before: only the ticks before this one; None: all.
    """
    score = Score(actors)
    try:
        samples: AbstractAsyncContextManager[AsyncIterator[StoredSample]]
        if own:
            samples = datastore.samples(trial_id, partial=True, fields=["observation"])
        else:
            samples = aclosing(datastore.samples_with_past(trial_id, partial=True))
        async with samples as stream:
            async for sample in stream:
                if before is not None and sample.tick_id >= before:
                    break
                for name, actor in sample.actors.items():
                    content = actor.observation_bytes
                    if content is not None:
                        score.add(name, Observation.FromString(content))
    except (CogmentError, DecodeError) as error:
        _log.warning("orchestrator %s: trial %s: its returns cannot be read: %s", site, trial_id, error)
        return None
    return score
