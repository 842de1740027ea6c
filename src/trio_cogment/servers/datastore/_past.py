"""The past of a stored trial, read for another one that goes on with it."""

from __future__ import annotations

from collections.abc import Callable

from trio_cogment.api.common_pb2 import TakenUp, TrialParams
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.errors import DataLossError, NotFoundError, PermissionDeniedError
from trio_cogment.base.taking_up import PastReader
from trio_cogment.servers.datastore.storage import StoredTrial, TrialStore

#: So many samples before the tick are read first: mostly the last checkpoint is among them. If it is not, more are.
_WINDOWS = (32, 1024)
_AT_ONCE = 1024
_MAX_BYTES = 4 * 1024 * 1024


async def read_past(
    store: TrialStore, trial_id: str, tick_id: int | None, may_read: Callable[[str], bool] | None
) -> tuple[TrialParams, TakenUp]:
    """Return a stored trial's parameters, and what another one needs that goes on with it; see `Intake.past`."""
    trial = await store.trial(trial_id)
    if trial is None:
        raise NotFoundError(f"there is no trial {trial_id!r}")
    if may_read is not None and not may_read(trial.owner):
        raise PermissionDeniedError(f"trial {trial_id!r}: it belongs to somebody else")
    last = trial.samples_count - 1 if tick_id is None else tick_id
    for window in _WINDOWS:
        # A sample's position is above its tick: of those before it, none is left out that is within the window.
        after = last - window
        if after <= 0:
            break
        try:
            return trial.params, (await _read(store, trial, tick_id, after)).taken_up()
        except (DataLossError, NotFoundError):
            pass  # no checkpoint is there
    return trial.params, (await _read(store, trial, tick_id, 0)).taken_up()


async def _read(store: TrialStore, trial: StoredTrial, tick_id: int | None, after: int) -> PastReader:
    reader = PastReader(trial.trial_id, trial.params, tick_id)
    found: list[StoredTrialSample] = []
    while True:
        page = await store.samples(trial.number, after=after, limit=_AT_ONCE, max_bytes=_MAX_BYTES)
        found += [StoredTrialSample.FromString(sample.data) for sample in page if _is_past(sample.tick_id, tick_id)]
        if not page or (tick_id is not None and page[-1].tick_id >= tick_id):
            break
        after = page[-1].position
    # By tick: what was written by hand may have come in another order.
    for sample in sorted(found, key=lambda sample: sample.tick_id):
        reader.add(sample)
    return reader


def _is_past(tick_id: int, wanted: int | None) -> bool:
    return wanted is None or tick_id <= wanted
