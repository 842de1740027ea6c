"""The past of a stored trial, read for another one that goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.errors import DataLossError, NotFoundError, PermissionDeniedError
from trio_cogment.base.taking_up import Past, PastReader, joined, saves
from trio_cogment.servers.datastore._chunk_layouts import Layout
from trio_cogment.servers.datastore._sqlite import SqliteStore
from trio_cogment.servers.datastore.chunks import OpenChunk
from trio_cogment.servers.datastore.storage import StoredTrial, TrialStore

#: A sample, or the first tick of several with the observations and actions of each.
_Part: TypeAlias = StoredTrialSample | tuple[int, Sequence[tuple[bytes, ...]], Sequence[tuple[bytes, ...]]]

#: So many samples before the tick are read first: mostly the last checkpoint is among them. If it is not, more are.
_WINDOWS = (32, 1024)
#: The same where they are kept in chunks, of which none is read in part.
_WINDOWS_OF_CHUNKS = (1024,)
_AT_ONCE = 1024
_MAX_BYTES = 4 * 1024 * 1024


async def read_past(
    store: TrialStore,
    trial_id: str,
    tick_id: int | None,
    may_read: Callable[[str], bool] | None,
    lineage: tuple[str, ...] = (),
) -> tuple[TrialParams, Past]:
    """Return a stored trial's parameters, and what another one needs that goes on with it; see `Intake.past`.

    Args:
        store: has the trial, and those of which it is a branch.
        trial_id: its id.
        tick_id: see there.
        may_read: see there.
        lineage: the trials that are branches of it, whose past is read.
    """
    trial = await store.trial(trial_id)
    if trial is None:
        raise NotFoundError(f"there is no trial {trial_id!r}")
    if may_read is not None and not may_read(trial.owner):
        raise PermissionDeniedError(f"trial {trial_id!r}: it belongs to somebody else")
    reader, own = await _read_own(store, trial, tick_id)
    if reader.before is None:
        return trial.params, own
    earlier, first = reader.before
    if earlier in lineage or earlier == trial_id:
        raise DataLossError(f"trial {trial_id!r}: it is a branch of itself")
    _, before = await read_past(store, earlier, first, may_read, (*lineage, trial_id))
    return trial.params, joined(before, own)


async def _read_own(store: TrialStore, trial: StoredTrial, tick_id: int | None) -> tuple[PastReader, Past]:
    last = trial.samples_count - 1 if tick_id is None else tick_id
    for window in _WINDOWS_OF_CHUNKS if isinstance(store, SqliteStore) else _WINDOWS:
        # A sample's position is above its tick: of those before it, none is left out that is within the window.
        after = last - window
        if after <= 0:
            break
        try:
            reader = await _read(store, trial, tick_id, after)
            return reader, reader.past()
        except (DataLossError, NotFoundError):
            pass  # no checkpoint is there
    reader = await _read(store, trial, tick_id, 0)
    return reader, reader.past()


async def _read(store: TrialStore, trial: StoredTrial, tick_id: int | None, after: int) -> PastReader:
    reader = PastReader(trial.trial_id, trial.params, tick_id)
    parts: Sequence[_Part] | None = None
    if isinstance(store, SqliteStore):
        parts = await _read_chunks(store, trial, tick_id, after)
    if parts is None:
        parts = await _read_samples(store, trial, tick_id, after)
    # What is before the last checkpoint is not needed.
    begin = len(parts) - 1
    while begin > 0 and not (isinstance(part := parts[begin], StoredTrialSample) and saves(part)):
        begin -= 1
    for part in parts[max(begin, 0) :]:
        if isinstance(part, StoredTrialSample):
            reader.add(part)
        else:
            reader.add_run(*part)
    return reader


async def _read_samples(store: TrialStore, trial: StoredTrial, tick_id: int | None, after: int) -> Sequence[_Part]:
    found: list[StoredTrialSample] = []
    while True:
        page = await store.samples(trial.number, after=after, limit=_AT_ONCE, max_bytes=_MAX_BYTES)
        found += [StoredTrialSample.FromString(sample.data) for sample in page if _is_past(sample.tick_id, tick_id)]
        if not page or (tick_id is not None and page[-1].tick_id >= tick_id):
            break
        after = page[-1].position
    # By tick: what was written by hand may have come in another order.
    return sorted(found, key=lambda sample: sample.tick_id)


async def _read_chunks(
    store: SqliteStore, trial: StoredTrial, tick_id: int | None, after: int
) -> Sequence[_Part] | None:
    """Do the same of columns, without a message for each sample; None: the ticks do not ascend."""
    found: list[_Part] = []
    order: list[Sequence[int]] = []
    more = True
    while more:
        ((parts, more),) = await store.parts([trial.number], after=after, max_bytes=_MAX_BYTES)
        for part in parts:
            if isinstance(part, list):
                some = [StoredTrialSample.FromString(row.data) for row in part if _is_past(row.tick_id, tick_id)]
                found += some
                order += [(sample.tick_id,) for sample in some]
                after = part[-1].position
                continue
            chunk, behind = part
            opened = OpenChunk(chunk, trial.trial_id)
            for ticks, one in _runs_of(opened, opened.index(behind), tick_id):
                found.append(one)
                order.append(ticks)
            after = chunk.last_position
        if not parts or (tick_id is not None and order and order[-1][-1] >= tick_id):
            break
    ascends = all(isinstance(ticks, range) or _ascend(ticks) for ticks in order)
    return found if ascends and all(first[-1] < second[0] for first, second in pairwise(order)) else None


def _ascend(ticks: Sequence[int]) -> bool:
    return all(first < second for first, second in pairwise(ticks))


def _runs_of(chunk: OpenChunk, first: int, tick_id: int | None) -> Iterator[tuple[Sequence[int], _Part]]:
    """Yield the samples of a chunk from a place on that are past, with their ticks: the last one that saves first."""
    for at in reversed(chunk.with_checkpoints):
        if at < first or not chunk.ascends:
            break
        sample = StoredTrialSample.FromString(chunk.data(at, at + 1)[0])
        if _is_past(sample.tick_id, tick_id) and saves(sample):
            yield (sample.tick_id,), sample
            first = at + 1
            break
    for run in chunk.runs():
        skipped = max(0, first - run.start)
        ticks = run.ticks[skipped:]
        if tick_id is not None and ticks and ticks[-1] > tick_id:
            if isinstance(ticks, range):
                ticks = ticks[: max(0, tick_id + 1 - ticks.start)]
            else:
                ticks = ticks[: sum(tick <= tick_id for tick in ticks)]
        if not ticks:
            continue
        begin, end = skipped, skipped + len(ticks)
        places = None if run.layout is None else _places_in(run.layout.key)
        if places is None or ticks[-1] - ticks[0] != len(ticks) - 1:
            for data in chunk.data(run.start + begin, run.start + end):
                sample = StoredTrialSample.FromString(data)
                yield (sample.tick_id,), sample
            continue
        seen, acted = (list(zip(*(run.payloads[place][begin:end] for place in some), strict=True)) for some in places)
        yield ticks, (ticks[0], seen, acted)


@lru_cache(64)
def _places_in(key: bytes) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return which payloads of a layout are the observations and actions of all actors; None: not all have both."""
    sample = Layout.of_key(key).sample()
    actors = sorted(sample.actor_samples, key=lambda one: one.actor)
    if not actors or sample.unavailable_actors or [one.actor for one in actors] != list(range(len(actors))):
        return None
    if not all(one.HasField("observation") and one.HasField("action") for one in actors):
        return None
    return [one.observation for one in actors], [one.action for one in actors]


def _is_past(tick_id: int, wanted: int | None) -> bool:
    return wanted is None or tick_id <= wanted
