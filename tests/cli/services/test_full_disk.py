"""`serve` on a disk that is full: trials wait, go on when there is room, and what is lost in the end is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Server, run, served, server
from tests.ports import free_port
from trio_cogment.sdk import ActorSession, EnvironmentSession, Participants

TICKS = 600
OBSERVATION_BYTES = 60_000
DISK_BYTES = 24 * 1024 * 1024


async def world(session: EnvironmentSession) -> None:
    """Observations that no disk makes smaller: together they are half as large again as the disk."""
    await session.start([("*", os.urandom(OBSERVATION_BYTES))])
    async for event in session.all_events():
        if event.actions is not None:
            observations = [("*", os.urandom(OBSERVATION_BYTES))]
            if event.tick_id == TICKS - 1:
                await session.end(observations)
            else:
                await session.produce_observations(observations)


async def actor(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"a")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Have a disk of 24 MiB; gives its folder."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(params=["disk", "limit"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Flags for a place with 24 MiB: a disk of that size, or a store that may take no more."""
    if request.param == "limit":
        yield [f"--storage=sqlite:{tmp_path}/trials.db", f"--file_storage_max_size={DISK_BYTES}"]
        return
    with small_disk(tmp_path / "small") as folder:
        yield [f"--storage=sqlite:{folder}/trials.db"]


@asynccontextmanager
async def playing(folder: Path, *flags: str) -> AsyncIterator[tuple[Server, str]]:
    """Have a server, and the parameters of a trial that fills the disk."""
    participants = Participants()
    participants.register_environment(world, "world")
    participants.register_actor(actor, "actor")
    params = folder / "params.yaml"
    async with served(participants) as endpoint, server("serve", "--port=0", *flags) as one:
        params.write_text(
            "trial_params:\n"
            "  datalog: {endpoint: 'cogment://discover'}\n"
            f"  environment: {{implementation: world, endpoint: '{endpoint}'}}\n"
            "  actors:\n"
            f"    - {{name: ann, actor_class: c, implementation: actor, endpoint: '{endpoint}'}}\n"
        )
        await one.wait_serving()
        yield one, f"--params={params}"


@asynccontextmanager
async def full(storage: list[str], folder: Path, *, seconds: float) -> AsyncIterator[tuple[Server, str]]:
    """The same with a server whose trials wait so long for a full disk."""
    config = folder / "server.yaml"
    settings = f"datalog_full_seconds: {seconds}, datalog_flush_seconds: 0.5, datalog_reconnect_max_seconds: 0.5"
    settings += ", max_queued_samples: 100"
    config.write_text(f"orchestrator: {{{settings}}}\n")
    async with playing(folder, f"--config={config}", *storage) as both:
        yield both


async def test_nothing_is_lost_where_somebody_enlarges_a_full_disk(tmp_path: Path) -> None:
    """With the settings that a server has by itself."""
    with small_disk(tmp_path / "small") as disk:
        async with playing(tmp_path, f"--storage=sqlite:{disk}/trials.db") as (one, params):
            where = f"--endpoint=grpc://127.0.0.1:{one.port}"
            assert (await run("client", "trial", "start", params, "--trial_id=t", where)).code == 0
            await described_when(where, "t", lambda info: info.get("datalogTrouble") or is_settled(info))
            await trio.run_process(["mount", "-o", f"remount,size={4 * DISK_BYTES}", str(disk)])
            info = await described_when(where, "t", is_settled)
            stored = await run("client", "trial_datastore", "list", where)
            assert (stored.out.splitlines()[-1].split()[:3], info["state"]) == (["t", "ENDED", str(TICKS + 1)], "ENDED")
            assert await one.stop() == 0


async def test_a_trial_waits_for_a_full_disk_and_goes_on_with_room(storage: list[str], tmp_path: Path) -> None:
    port = free_port()
    flags = [*storage, f"--prometheus_port={port}"]
    async with full(flags, tmp_path, seconds=10 * PATIENCE_SECONDS) as (one, params):
        where = f"--endpoint=grpc://127.0.0.1:{one.port}"
        assert await refused_writes(port) == 0
        half = await run("client", "trial", "start", params, "--trial_id=old", where)
        assert (half.code, half.err) == (0, "")
        info = await described_when(where, "old", lambda info: info["datalogTrouble"])
        assert info["state"] == "RUNNING"
        assert "no room left" in info["datalogTrouble"]
        assert int(info["samplesLost"]) == 0
        assert await refused_writes(port) > 0
        listed = await run("client", "trial", "list", where)
        assert listed.out.splitlines()[-1].endswith(" takes no samples")  # and holds the trial up, soon
        shown = await run("client", "trial", "info", "old", where)
        assert "\ndata log     storage: cannot write to " in shown.out
        assert "\nend " not in shown.out
        # Somebody makes room: here, for the rest of this trial there is none without deleting what it has stored.
        deleted = await run("client", "trial_datastore", "delete", "old", where)
        assert deleted.code == 0
        await described_when(where, "old", is_settled)
        ended = await run("client", "trial", "list", where)
        assert ended.out.splitlines()[-1].endswith("environment (env)")
        assert await one.stop() == 0
        await one.read_rest()
        assert "samples lost" not in one.out
    # It is back once for each time that it was away, however often it was tried.
    assert one.err.count("the data log is back") == one.err.count("the data log cannot store samples")
    assert one.err.count("writes failed") == 1
    assert one.err.count("the data log is back") > 0


async def test_a_server_that_is_stopped_on_a_full_disk_stores_how_its_trials_ended(
    storage: list[str], tmp_path: Path
) -> None:
    """Whoever starts it again finds the trial ended, and how much of it is missing; none is "ended abnormally"."""
    async with full(storage, tmp_path, seconds=10 * PATIENCE_SECONDS) as (one, params):
        where = f"--endpoint=grpc://127.0.0.1:{one.port}"
        assert (await run("client", "trial", "start", params, "--trial_id=t", where)).code == 0
        await described_when(where, "t", lambda info: info["datalogTrouble"])
        assert await one.stop() == 0
        await one.read_rest()
    async with server("serve", "--port=0", *storage) as again:
        await again.wait_serving()
        listed = await run("client", "trial_datastore", "list", f"--endpoint=grpc://127.0.0.1:{again.port}")
        [line] = [line for line in listed.out.splitlines() if line.startswith("t ")]
        assert " ENDED " in f"{line} "
        assert "lost" in line
        assert "abnormally" not in line
        assert await again.stop() == 0


async def test_what_a_full_disk_has_cost_is_told(storage: list[str], tmp_path: Path) -> None:
    async with full(storage, tmp_path, seconds=0.5) as (one, params):
        where = f"--endpoint=grpc://127.0.0.1:{one.port}"
        started = await run("client", "trial", "start", params, "--trial_id=t", "--wait", where)
        assert started.code == 1
        *_, text = started.err.splitlines()  # before it, maybe, that samples wait
        info = await described_when(where, "t", is_settled)
        lost = int(info["samplesLost"])
        assert 0 < lost < TICKS
        assert int(info["end"]["samplesLost"]) == lost
        assert text.endswith(f"; {lost} samples did not reach the data log")
        listed = await run("client", "trial", "list", where)
        assert listed.out.splitlines()[-1].endswith(f"environment (env); {lost} samples lost")
        shown = await run("client", "trial", "info", "t", where)
        assert f"\nsamples      {lost} samples did not reach the data log\n" in shown.out
        stored = await run("client", "trial_datastore", "list", where)
        [trial] = stored.out.splitlines()[1:]
        # The last sample is there, without the observation that there was no room for.
        assert trial.split()[:3] == ["t", "ENDED", str(TICKS + 1 - lost + 1)]
        assert trial.endswith(f"environment (env); {lost} samples lost")
        assert await one.stop() == 0
        await one.read_rest()
        assert one.out.endswith(f"; samples lost: {lost}\n")
    assert "the data log is back" not in one.err


async def refused_writes(port: int) -> float:
    """Return how many writes the metrics say there was no room for."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    found = re.search(r'^trio_cogment_writes_refused_total\{service="trial_datastore"\} (\S+)$', text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def is_settled(info: dict[str, Any]) -> bool:
    """Whether a trial has ended, and is stored as far as it will be."""
    return "end" in info and not info["end"].get("samplesPending")


async def described_when(where: str, trial_id: str, wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Ask for a trial until its description is what is wanted; return that."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            asked = await run("client", "trial", "info", trial_id, where, "--json")
            [info] = json.loads(asked.out)["trials"]
            if wanted(info):
                found: dict[str, Any] = info
                return found
