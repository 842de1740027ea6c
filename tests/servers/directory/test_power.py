"""The power goes while a directory's file is replaced, often; and that a disk without syncing is found out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.servers.directory.test_entries import entry
from tests.servers.directory.test_simulated import acknowledged
from tests.servers.directory.test_state_file import load, state_file
from tests.sim.power.disk import UnsyncedDisk
from trio_cogment.servers.directory._entries import Entries
from trio_cogment.testing import PowerLossError, SimDisk


@pytest.mark.soak
@pytest.mark.sim(seeds=170)
def test_a_thousand_losses(sim: Any) -> None:
    sim(acknowledged)  # six each


async def fault_of(disk: SimDisk, rng: random.Random) -> str:
    """Register one service after the other until the power goes; return what is wrong then, if anything."""
    file = state_file(disk)
    await file.load()
    told = 0
    disk.crash_at(disk.operations + rng.randrange(40))
    try:
        for number in range(1, 11):
            await file.save(Entries([entry(one) for one in range(1, number + 1)]))
            told = number
        disk.crash()
    except PowerLossError:
        pass
    disk.restart()
    found = len(await load(disk))
    return "" if found in (told, told + 1) else f"{told} were acknowledged, {found} are there"


@pytest.mark.parametrize("losses", [40, pytest.param(1000, marks=pytest.mark.soak)])
async def test_what_is_acknowledged_survives(losses: int) -> None:
    for seed in range(losses):
        rng = random.Random(seed)
        assert not await fault_of(SimDisk(rng), rng), seed


async def test_it_is_found_when_nothing_is_synced() -> None:
    faults = [await fault_of(UnsyncedDisk(rng), rng) for rng in map(random.Random, range(20))]
    assert any(faults)
