"""The versions of models that runs save."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from tests.trainer.bench import serving
from trio_cogment.base.errors import FailedPreconditionError, ResourceExhaustedError
from trio_cogment.trainer.storage import Batch, MemoryDatabase


async def test_runs_of_a_file_from_before_there_were_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with serving(f"sqlite:{path}") as (client, _):
        await client.submit("a")
    with closing(sqlite3.connect(path)) as connection:
        for column in ("checkpoints", "max_rate_hz", "run_name", "owner", "sources"):
            connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 1")
    async with serving(f"sqlite:{path}") as (client, trainer):
        await client.register("a")
        await trainer.reports.link("a", "m@1")
        assert (await client.record("a")).checkpoints == ["m@1"]


async def test_a_checkpoint_is_linked_when_there_is_room_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving() as (client, trainer):
        await client.submit("a")
        await client.register("a")
        write, failures = MemoryDatabase.write, 3

        def failing(self: MemoryDatabase, batch: Batch) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise ResourceExhaustedError("the disk is full")
            write(self, batch)

        monkeypatch.setattr(MemoryDatabase, "write", failing)
        await trainer.reports.link("a", "m@1")
        assert (await client.record("a")).checkpoints == ["m@1"]
        await client.cancel("a")
        with pytest.raises(FailedPreconditionError, match="saves no checkpoint"):
            await trainer.reports.link("a", "m@2")
