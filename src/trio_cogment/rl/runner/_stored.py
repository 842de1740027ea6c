"""Trials of an earlier run of the same name, as its datastore has them: what a run that goes on need not do again.

The trials of a run with a name have it as a property, and their ids say which trial of the run each is, and which
attempt. So nothing has to be written down beside the trials, and a run goes on wherever it was broken off, whatever its
sites were. The id of an attempt that has not ended well is not used again, because a site that nobody sees may still
write to it. But one that was broken off in the middle is gone on with, by a new attempt, at the last tick of it that is
stored: that is a branch of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from trio_cogment.api import rl_pb2
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.taking_up import branch_of
from trio_cogment.rl.runner._trial import counted, stored_score
from trio_cogment.rl.runner.results import TrialResult
from trio_cogment.rl.runner.sites import RUN_PROPERTY, OpenSites
from trio_cogment.sdk import StoredTrial

#: Ends after which an episode is whole.
_WELL = (EndCause.ENVIRONMENT, EndCause.STEP_LIMIT)
#: Ends of episodes that were broken off, and would have gone on; so would those without any. Whoever breaks a run off
#: takes the actors with it that are in its process.
_BROKEN_OFF = (EndCause.HARD_TERMINATION, EndCause.PARTICIPANT_LOST, EndCause.SERVER_STOPPED, EndCause.INTERNAL)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A trial that was broken off.

    Attributes:
        trial_id: its id.
        tick_id: the last tick that is stored.
        returns: of the actors, before that tick.
    """

    trial_id: str
    tick_id: int
    returns: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Before:
    """What an earlier run of the same name has done.

    Attributes:
        results: of the trials that have ended well, one for each.
        tries: how many ids each trial has had.
        unfinished: of each trial that is to go on, the attempt that got furthest.
    """

    results: Sequence[TrialResult] = ()
    tries: Mapping[int, int] = field(default_factory=dict)
    unfinished: Mapping[int, Unfinished] = field(default_factory=dict)


async def stored_before(name: str, seeds: Sequence[int | None], sites: OpenSites, *, resume: bool) -> Before:
    """Return what there is of a run.

    Args:
        name: of the run.
        seeds: one for each of its trials, now.
        sites: know the datastore.
        resume: whether the run may go on.

    Raises:
        InvalidArgumentError: the run is to go on, and there is no store; or it had other seeds or actors.
        FailedPreconditionError: there is such a run, and it is not to go on.
    """
    datastore = sites.datastore
    if datastore is None:
        if resume:
            raise InvalidArgumentError("store: expected the one that has the run that is to go on, got none")
        return Before()
    tries: dict[int, int] = {}
    done: dict[int, StoredTrial] = {}
    broken: dict[int, StoredTrial] = {}
    pattern = re.compile(re.escape(name) + r"-(?P<index>[0-9]{1,9})(?:-(?P<tries>[0-9]{1,9}))?")
    async with aclosing(datastore.all_trials(properties={RUN_PROPERTY: name})) as trials:
        async for trial in trials:
            found = pattern.fullmatch(trial.trial_id)
            if found is None:
                continue
            if not resume:
                raise FailedPreconditionError(
                    f"name: expected another one, or resume=True: the store has trials of a run {name!r}"
                )
            index = int(found["index"])
            tries[index] = max(tries.get(index, 0), int(found["tries"] or 1))
            if index < len(seeds):
                _check_same(name, trial, index, seeds[index], sites.actors)
                if trial.is_complete and trial.outcome is not None and trial.outcome.cause in _WELL:
                    done.setdefault(index, trial)
                elif _was_broken_off(trial) and _last_tick(trial) > max(0, _last_tick(broken.get(index))):
                    broken[index] = trial
    results = []
    for index, trial in done.items():
        assert trial.outcome is not None
        score = await stored_score("of the store", datastore, trial.trial_id, sites.actors)
        if score is not None and not trial.outcome.failed:
            result = TrialResult(
                index,
                trial.trial_id,
                seeds[index],
                "",
                cause=trial.outcome.cause,
                ticks=begun_at(trial) + trial.outcome.ticks,
                attempts=tries[index],
                outcome=trial.outcome,
            )
            results.append(counted(result, score, sites.actors))
    unfinished = {}
    for index, trial in broken.items():
        tick_id = _last_tick(trial)
        score = await stored_score("of the store", datastore, trial.trial_id, sites.actors, before=tick_id)
        if index not in done and score is not None:
            unfinished[index] = Unfinished(trial.trial_id, tick_id, score.returns)
    return Before(results, tries, unfinished)


def begun_at(trial: StoredTrial) -> int:
    """Return the tick with which a trial began: of a branch it is not 0."""
    branch = branch_of(trial.params.properties)
    return 0 if branch is None else branch[1]


def _last_tick(trial: StoredTrial | None) -> int:
    """Return the last tick of which a trial has a sample; -1: there is none."""
    return -1 if trial is None or not trial.samples_count else begun_at(trial) + trial.samples_count - 1


def _was_broken_off(trial: StoredTrial) -> bool:
    return trial.outcome is None or trial.outcome.cause in _BROKEN_OFF


def _check_same(name: str, trial: StoredTrial, index: int, seed: int | None, actors: Sequence[str]) -> None:
    """Refuse to go on with a run that was another: half of its results would be of other trials."""
    try:
        config = rl_pb2.EnvironmentConfig.FromString(trial.params.environment.config.content)
    except DecodeError:
        return
    had = config.seed if config.HasField("seed") else None
    if had != seed:
        raise InvalidArgumentError(
            f"seeds: trial {index} of the run {name!r}: expected {had!r}, with which it was begun; got {seed!r}"
        )
    if trial.actor_names != list(actors):
        raise InvalidArgumentError(
            f"seats: trial {index} of the run {name!r}: expected {', '.join(trial.actor_names)}, with whom it was "
            f"begun; got {', '.join(actors)}"
        )
