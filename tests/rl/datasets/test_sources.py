"""Trials of a datastore that runs elsewhere, over a socket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import trio

from tests.cli.process import run_here
from tests.rl.datasets.recorded import Duel, fill, play, recording
from trio_cogment.base.errors import RpcError
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rl import RL_SPEC, ExportProgress, export_async
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.servers.datastore import Datastore
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.spaces import MultiBinary


@asynccontextmanager
async def served(platform: Platform) -> AsyncIterator[str]:
    """Yield a platform's endpoint."""
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(serve, platform.services, listeners)
        yield f"grpc://127.0.0.1:{running.port}"
        nursery.cancel_scope.cancel()


async def test_a_datastore_that_runs(tmp_path: Path) -> None:
    """What comes over the socket is what is exported on the spot; a sample is larger than gRPC's usual 4 MiB."""
    game = Duel(2, out_at=None, image=MultiBinary((1100, 2000)))
    async with recording(game) as platform, served(platform) as endpoint:
        await play(platform, game, "one", seed=3)
        await play(platform, game, "two", properties={"group": "b"})
        here = await export_async(platform, parquet=tmp_path / "here")
        there = await export_async(endpoint, parquet=tmp_path / "there")
        some = await export_async(endpoint, parquet=tmp_path / "some", properties={"group": "b"})
    assert (there.trials, there.samples, there.steps) == (here.trials, here.samples, here.steps) == (2, 6, 8)
    for part in ("data", "meta/trials.parquet"):
        tables = [pads.dataset(tmp_path / name / part).to_table() for name in ("here", "there")]
        assert tables[0].equals(tables[1])
    assert some.trials == 1


async def test_the_command_line_on_a_datastore_that_runs(tmp_path: Path) -> None:
    game = Duel(3)
    async with recording(game) as platform, served(platform) as endpoint:
        await play(platform, game)
        done = await run_here("rl", "export", endpoint, "--parquet", str(tmp_path / "data"))
    assert (done.code, done.out) == (0, f"6 steps of 1 trial written: {tmp_path / 'data'}\n")
    assert pq.read_table(tmp_path / "data/meta/trials.parquet").num_rows == 1


async def test_a_file_is_read_without_a_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything written: a trial that was left running is not ended by who exports it."""
    address = f"sqlite:{tmp_path / 'trials.db'}"
    await fill(address, trials=2, ticks=3)

    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("expected no orchestrator, and no tasks of a datastore")

    monkeypatch.setattr(Orchestrator, "__init__", refuse)
    monkeypatch.setattr(Datastore, "__aenter__", refuse)
    done = await export_async(address, parquet=tmp_path / "data")
    assert (done.trials, done.samples) == (2, 6)


async def test_a_datastore_that_vanishes_meanwhile(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'trials.db'}"
    await fill(address, trials=20, ticks=300)
    async with open_platform(RL_SPEC, store=address) as platform:
        await lost(platform, tmp_path / "data")
    assert [name for name in os.listdir(tmp_path) if "data" in name] == []


async def lost(platform: Platform, folder: Path) -> None:
    """Export from a server that is closed after the first trial."""
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[str]) -> None:
            with scope:
                async with served(platform) as endpoint:
                    task_status.started(endpoint)
                    await trio.sleep_forever()

        endpoint = await nursery.start(run)

        def close(progress: ExportProgress) -> None:
            if progress.trials == 1:
                scope.cancel()

        with pytest.raises(RpcError, match="UNAVAILABLE"):
            await export_async(endpoint, parquet=folder, progress=close)
