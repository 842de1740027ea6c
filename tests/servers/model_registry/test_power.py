"""The power goes while versions are uploaded, often; and that a disk without syncing is found out."""

from __future__ import annotations

import random

import pytest
from trio.testing import MockClock

from tests.servers.model_registry.losses import Journal, look, lose_power, operations_of
from tests.sim.power.disk import UnsyncedDisk
from trio_cogment.testing import SimDisk

_MODELS = ("a", "b", "c")


async def lose(disk: SimDisk, rng: random.Random, points: int) -> None:
    """Let the power go once while several upload, and check what is there afterwards."""
    journals = [Journal(model_id) for model_id in _MODELS]
    await lose_power(disk, rng.randrange(points + 1), journals)
    await look(disk, journals)


@pytest.mark.parametrize("losses", [40, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
async def test_what_is_acknowledged_survives(losses: int, autojump_clock: MockClock) -> None:
    points = await operations_of([Journal(model_id) for model_id in _MODELS])
    for seed in range(losses):
        rng = random.Random(seed)
        await lose(SimDisk(rng), rng, points)


async def test_it_is_found_when_nothing_is_synced(autojump_clock: MockClock) -> None:
    points = await operations_of([Journal(model_id) for model_id in _MODELS])
    faults = []
    for seed in range(20):
        rng = random.Random(seed)
        try:
            await lose(UnsyncedDisk(rng), rng, points)
        except Exception as error:  # noqa: BLE001  damaged files may lead to anything
            faults.append(error)
    assert faults
