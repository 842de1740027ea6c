"""Clients that upload versions until the power goes, what they were told, and whether that is there afterwards."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import trio

from tests.servers.model_registry.helpers import Harness, hash_of, open_harness
from trio_cogment.api.model_registry_pb2 import RetrieveModelsRequest
from trio_cogment.base.errors import CogmentError, RpcError
from trio_cogment.servers.model_registry import _archive_layout as layout
from trio_cogment.testing import SimDisk

_BYTES = 1500
_STEPS = 4


class Journal:
    """What the client of a model has asked for, and what it was told.

    Attributes:
        model_id: of its model.
        asked: how often it has changed the user data of the model.
        told: how many of these changes were acknowledged.
        versions: those that were acknowledged, with their data.
        transient: the numbers of those that are not archived.
    """

    def __init__(self, model_id: str = "m") -> None:
        self.model_id = model_id
        self.asked = 0
        self.told = 0
        self.versions: dict[int, bytes] = {}
        self.transient: list[int] = []


async def work(disk: SimDisk, journals: Sequence[Journal]) -> None:
    """Let the clients of these models work at once, until they are done or there is no power."""
    async with open_harness(disk, sent_version_chunk_bytes=600) as one, trio.open_nursery() as nursery:
        for journal in journals:
            nursery.start_soon(_use, one, journal)


async def _use(one: Harness, journal: Journal) -> None:
    try:
        for step in range(_STEPS):
            journal.asked += 1
            await one.create(journal.model_id, step=f"{journal.asked}")
            journal.told = journal.asked
            if step < _STEPS - 1:
                data = bytes([65 + step]) * _BYTES
                journal.versions[await one.store(journal.model_id, data)] = data
                journal.transient.append(await one.publish(journal.model_id, b"t"))
    except RpcError:
        pass  # the power has gone


async def lose_power(disk: SimDisk, point: int, journals: Sequence[Journal]) -> None:
    """Let the power go before an operation of the disk, counted from 0, and come back."""
    disk.crash_at(point)
    try:
        await work(disk, journals)
        disk.crash()
    except CogmentError:
        pass
    disk.restart()


async def operations_of(journals: Sequence[Journal]) -> int:
    """Return how many operations of the disk it takes."""
    dry = SimDisk(random.Random(0))
    await work(dry, journals)
    return dry.operations


async def look(disk: SimDisk, journals: Sequence[Journal]) -> int:
    """Start a registry on what is left, check what was promised, and return how many versions there are."""
    async with open_harness(disk) as one:
        assert [name for name in disk.names("root") if name.endswith(".tmp")] == []
        return sum([await _look_at(one, disk, journal) for journal in journals])


async def _look_at(one: Harness, disk: SimDisk, journal: Journal) -> int:
    model_id = journal.model_id
    reply = await one.unary("RetrieveModels", RetrieveModelsRequest())
    steps = {info.model_id: dict(info.user_data) for info in reply.model_infos}
    if model_id not in steps:
        assert journal.told == 0
        return 0
    # What was under way is there or not.
    assert steps[model_id] in [{"step": f"{step}"} for step in (journal.told, journal.asked)]
    infos, _handle = await one.infos(model_id)
    for info in infos:
        data = await one.data(model_id, info.version_number)
        assert (hash_of(data), len(data)) == (info.data_hash, info.data_size)
        assert len(data) == _BYTES
        assert info.version_number not in journal.transient
    found = {info.version_number: info.data_hash for info in infos}
    for number, data in journal.versions.items():
        assert found[number] == hash_of(data)
    given = [*found, *journal.versions, *journal.transient]
    assert await one.store(model_id, b"n" * _BYTES) > max([0, *given])
    names = disk.names(f"root/{layout.folder_of(model_id)}")
    assert {name[:9] for name in names if name.endswith(".data")} == {
        name[:9] for name in names if re.search(r"-v\d+\.yaml", name)
    }
    return len(infos)
