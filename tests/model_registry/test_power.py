"""The power goes while versions are uploaded, often; and that a disk without syncing is found out."""

from __future__ import annotations

import random

import pytest
from trio.testing import MockClock

from tests.model_registry.test_archive import Journal, look, work
from tests.sim.power.disk import UnsyncedDisk
from trio_cogment.errors import CogmentError, RpcError
from trio_cogment.testing import SimDisk


async def lose_power(disk: SimDisk, rng: random.Random) -> None:
    """Work until the power goes, and check what is there afterwards."""
    disk.crash_at(rng.randrange(90))
    journal = Journal()
    try:
        await work(disk, journal)
        disk.crash()
    except (RpcError, CogmentError):
        pass
    disk.restart()
    await look(disk, journal)


@pytest.mark.parametrize("losses", [40, pytest.param(1000, marks=pytest.mark.soak)])
async def test_what_is_acknowledged_survives(losses: int, autojump_clock: MockClock) -> None:
    for seed in range(losses):
        rng = random.Random(seed)
        await lose_power(SimDisk(rng), rng)


async def test_it_is_found_when_nothing_is_synced(autojump_clock: MockClock) -> None:
    faults = []
    for seed in range(20):
        rng = random.Random(seed)
        try:
            await lose_power(UnsyncedDisk(rng), rng)
        except Exception as error:  # noqa: BLE001  damaged files may lead to anything
            faults.append(error)
    assert faults
