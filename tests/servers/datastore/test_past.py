"""The past of a stored trial: read from columns it is the one that its samples, read one by one, make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers.datastore.harness import params_with
from trio_cogment.api.common_pb2 import Reward, RewardSource, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.taking_up import Past, saved_checkpoint
from trio_cogment.servers.datastore import open_store
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore._past import read_past
from trio_cogment.servers.datastore.storage import TrialStore, TrialWrite

PARAMS = params_with("ann", "bob")


def logged(tick: int, *, saved: bool, **changes: Any) -> DatalogSample:
    """Return a sample of two actors, with payloads of several lengths."""
    observations = ObservationSet(
        tick_id=tick, timestamp=1000 + tick, observations=[b"o%d" % tick, b"p" * (tick % 3)], actors_map=[0, 1]
    )
    if saved:
        observations.checkpoint.ParseFromString(saved_checkpoint(tick, b"state %d" % tick))
    sample = DatalogSample(
        info=SampleInfo(tick_id=tick, timestamp=1000 + tick, state=TrialState.RUNNING), observations=observations
    )
    for _ in range(2):
        sample.actions.add(tick_id=tick, content=b"a%d" % tick)
    sample.rewards.append(
        Reward(tick_id=tick, receiver_name="ann", sources=[RewardSource(sender_name="env", value=1.0, confidence=1.0)])
    )
    for name, value in changes.items():
        getattr(sample, name).append(value)
    return sample


async def store_trial(store: TrialStore, batches: Sequence[Sequence[DatalogSample]]) -> None:
    await store.apply([TrialWrite("t", "ann", PARAMS, logged=True)])
    converter = TrialConverter("t", PARAMS)
    for batch in batches:
        await store.apply([converter.write(sample) for sample in batch])


async def past(store: TrialStore, tick_id: int | None) -> Past | str:
    try:
        return (await read_past(store, "t", tick_id, None))[1]
    except CogmentError as error:
        return str(error)


@pytest.mark.parametrize("saved_every", [0, 7])
@pytest.mark.parametrize("trouble", ["none", "absent", "gap", "out of order"])
async def test_columns_and_samples_have_the_same_past(trouble: str, saved_every: int, tmp_path: Path) -> None:
    samples = [logged(tick, saved=bool(saved_every) and tick % saved_every == 3) for tick in range(120)]
    if trouble == "absent":
        samples[40] = logged(40, saved=False, unavailable_actors=1)
        del samples[40].actions[1]
    elif trouble == "gap":
        del samples[40]
    elif trouble == "out of order":
        samples[30], samples[31] = samples[31], samples[30]
    batches = [samples[:1], samples[1:50], samples[50:]]
    async with open_store("memory:") as one, open_store(f"sqlite:{tmp_path / 'trials.db'}") as other:
        for store in (one, other):
            await store_trial(store, batches)
        for tick_id in (0, 1, 2, 3, 29, 30, 31, 39, 40, 41, 42, 49, 50, 51, 118, 119, 120, None):
            assert await past(other, tick_id) == await past(one, tick_id), tick_id
        whole = await past(other, 119 if trouble != "gap" else 39)
        assert isinstance(whole, Past)
        assert (whole.checkpoint is not None) == bool(saved_every)
