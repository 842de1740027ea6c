"""Copies of trials from one storage into another, whatever these are; what was interrupted goes on when called again.

A trial that is copied belongs to nobody until all of it is there: it is open, without a data log, and has fewer samples
than its original. So a copy that was interrupted is told from one that is complete, and goes on behind its last sample.
Samples are copied in the order of their arrival, bit for bit. A trial that still goes on is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.errors import DataLossError, NotFoundError
from trio_cogment.servers.datastore.storage import (
    EndWrite,
    OutcomeWrite,
    SampleWrite,
    StoredSample,
    StoredTrial,
    TrialEnd,
    TrialStore,
    TrialWrite,
    Write,
    WriteKind,
)

#: Trials and samples that are read at a time; the samples are one batch.
_TRIALS = 500
_SAMPLES, _BYTES = 500, 4 * 1024 * 1024


@dataclass(slots=True)
class Copied:
    """What has become of the trials so far.

    Attributes:
        trials: how many were copied.
        samples: of these, and how many were there already.
        total_samples: of all trials that are to be copied.
        there: ids of trials that were there already, whole.
        open: ids of trials that still go on.
        others: ids of which the target has another trial.
        lost: ids of trials whose samples cannot be read, and why; what was read of them is not shown as a whole trial.
    """

    trials: int = 0
    samples: int = 0
    total_samples: int = 0
    there: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)


async def copy_trials(source: TrialStore, target: TrialStore, progress: Callable[[Copied], None]) -> Copied:
    """Copy all trials that have ended, in the order of their creation.

    Args:
        source: is only read.
        target: has others already, or none.
        progress: called after each batch of samples.

    Raises:
        CogmentError: of a storage. What was copied stays, and is not copied again.
    """
    done = Copied()
    after = 0
    while page := await source.trials(after=after, limit=_TRIALS):
        done.total_samples += sum(trial.samples_count for trial in page if trial.end != TrialEnd.OPEN)
        after = page[-1].number
    after = 0
    while page := await source.trials(after=after, limit=_TRIALS):
        for trial in page:
            if trial.end == TrialEnd.OPEN:
                done.open.append(trial.trial_id)
                continue
            try:
                await _copy(source, target, trial, done, progress)
            except NotFoundError:
                continue  # it was deleted meanwhile
            except DataLossError as error:
                done.lost[trial.trial_id] = str(error)
        after = page[-1].number
    progress(done)
    return done


async def _copy(
    source: TrialStore, target: TrialStore, trial: StoredTrial, done: Copied, progress: Callable[[Copied], None]
) -> None:
    there = await target.trial(trial.trial_id)
    if there is not None and not _is_same(there, trial):
        done.others.append(trial.trial_id)
        return
    if there is not None and there.end != TrialEnd.OPEN and there.samples_count == trial.samples_count:
        done.there.append(trial.trial_id)
        done.samples += trial.samples_count
        return
    passed = 0 if there is None else there.samples_count
    about = TrialWrite(trial.trial_id, trial.user_id, trial.params, False, trial.owner, trial.endpoint)
    writes: list[Write] = [about]
    position = seen = 0
    while samples := await source.samples(trial.number, after=position, limit=_SAMPLES, max_bytes=_BYTES):
        position = samples[-1].position
        writes += [_write(trial, one) for number, one in enumerate(samples, seen) if number >= passed]
        seen += len(samples)
        if writes and seen > passed:
            # An end that is in a sample counts when all of them are there.
            await target.apply([*writes, EndWrite(trial.trial_id, TrialEnd.OPEN)])
            writes = []
        done.samples += len(samples)
        progress(done)
    if trial.outcome:
        writes.append(OutcomeWrite(trial.trial_id, trial.outcome))
    # Whose data log it was is said in the end, when nobody can take it for one that goes on.
    await target.apply([*writes, EndWrite(trial.trial_id, trial.end), about._replace(logged=trial.logged)])
    done.trials += 1


def _is_same(there: StoredTrial, trial: StoredTrial) -> bool:
    """Whether a trial of the target is a copy of this one, or the beginning of one."""
    if (there.user_id, there.owner, there.params) != (trial.user_id, trial.owner, trial.params):
        return False
    if there.end == TrialEnd.OPEN:
        return not there.logged and there.samples_count <= trial.samples_count
    return there.end == trial.end and there.samples_count == trial.samples_count


def _write(trial: StoredTrial, stored: StoredSample) -> SampleWrite:
    try:
        sample = StoredTrialSample.FromString(stored.data)
    except DecodeError as error:
        raise DataLossError(f"trial {trial.trial_id!r}: the sample of tick {stored.tick_id} is damaged") from error
    # By hand: a data log's would begin a new run where two have one timestamp.
    return SampleWrite(trial.trial_id, stored.tick_id, sample.timestamp, sample.state, stored.data, WriteKind.STORED)
