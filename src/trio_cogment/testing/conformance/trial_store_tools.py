"""What the cases of `check_trial_store` have in common."""

from __future__ import annotations

from collections.abc import Mapping

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.datastore.storage import (
    SampleWrite,
    StoredSample,
    StoredTrial,
    TrialStore,
    TrialWrite,
    WriteKind,
)

#: Enough to be read at once by any case.
ALL = 1 << 20
MUCH = 1 << 40


def new_trial(
    trial_id: str, *, user_id: str = "ann", logged: bool = True, properties: Mapping[str, str] | None = None
) -> TrialWrite:
    """Return what creates a trial."""
    params = TrialParams(properties=properties or {}, max_steps=7)
    return TrialWrite(trial_id, user_id, params, logged)


def sample(
    trial_id: str,
    tick_id: int,
    *,
    run: int = 0,
    state: int = TrialState.RUNNING,
    kind: WriteKind = WriteKind.LOGGED,
    payload: bytes = b"",
) -> SampleWrite:
    """Return what adds a sample; another `run` gives it another timestamp."""
    timestamp = 1_000_000 * run + tick_id
    message = StoredTrialSample(trial_id=trial_id, tick_id=tick_id, timestamp=timestamp, payloads=[payload])
    return SampleWrite(trial_id, tick_id, timestamp, state, message.SerializeToString(), kind)


def late(trial_id: str, tick_id: int, reward: float) -> SampleWrite:
    """Return what adds an out-of-sync sample with one reward for the first actor."""
    source = StoredTrialActorSampleReward(sender=-1, reward=reward, confidence=1)
    actor = StoredTrialActorSample(actor=0, reward=reward, received_rewards=[source])
    message = StoredTrialSample(trial_id=trial_id, tick_id=tick_id, actor_samples=[actor])
    timestamp = 5_000_000 + round(reward * 1000)
    return SampleWrite(trial_id, tick_id, timestamp, TrialState.UNKNOWN, message.SerializeToString(), WriteKind.LATE)


def late_rewards(stored: StoredSample) -> list[float]:
    """Return the rewards that were merged into a sample, or wait."""
    message = StoredTrialSample.FromString(stored.data)
    return [reward.reward for actor in message.actor_samples for reward in actor.received_rewards]


async def get(store: TrialStore, trial_id: str) -> StoredTrial:
    """Return a trial that is there."""
    trial = await store.trial(trial_id)
    assert trial is not None, f"trial {trial_id!r} is not there"
    return trial


async def read(store: TrialStore, trial_id: str, *, page: int = ALL) -> list[StoredSample]:
    """Return all samples of a trial, and see that their positions go up."""
    number = (await get(store, trial_id)).number
    found: list[StoredSample] = []
    after = 0
    while more := await store.samples(number, after=after, limit=page, max_bytes=MUCH):
        assert len(more) <= page
        for one in more:
            assert one.position > after, "positions go up"
            after = one.position
        found += more
    return found


async def ticks(store: TrialStore, trial_id: str) -> list[int]:
    """Return the ticks that a trial has samples of, in the order of their arrival."""
    return [one.tick_id for one in await read(store, trial_id)]


async def ids(store: TrialStore) -> list[str]:
    """Return the ids of all trials."""
    return [trial.trial_id for trial in await store.trials(after=0, limit=ALL)]
