"""Operating a PostgreSQL store: the doctor, metrics, a copy, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
import trio

from tests.cli.process import run, server
from tests.ports import free_port
from tests.stores.postgresql_server import PostgresqlServer
from trio_cogment.servers.datastore import open_store
from trio_cogment.servers.datastore.storage import EndWrite, TrialEnd
from trio_cogment.testing.conformance.trial_store import get, new_trial, read, sample

pytestmark = [pytest.mark.stores, pytest.mark.postgresql]


async def findings(address: str) -> dict[str, list[str]]:
    """Return what the doctor says of the trials, by level."""
    output = await run("doctor", "--json", f"--storage={address}", "--port=0")
    found: dict[str, list[str]] = {}
    for finding in json.loads(output.out)["findings"]:
        if finding["what"] == "trials":
            found.setdefault(finding["level"], []).append(finding["text"])
    return found


async def test_the_doctor(postgresql: PostgresqlServer, database: str) -> None:
    found = await findings(database.replace("cogment@", "cogment:secret@"))
    assert [text.partition(": PostgreSQL")[0] for text in found["ok"]] == [database.replace("cogment@", "cogment:***@")]
    assert len(found["warn"]) == 1
    assert "fsync is off" in found["warn"][0]
    postgresql.query("postgres", "CREATE ROLE guest LOGIN")
    found = await findings(database.replace("cogment@", "guest@"))
    assert "may not make tables" in found["fail"][0]
    found = await findings(database.replace(database.rpartition("/")[2], "nowhere"))
    assert "does not exist" in found["fail"][0]


async def test_a_server_with_metrics(database: str, tmp_path: Path) -> None:
    port = free_port()
    flags = ("--port=0", "--host=127.0.0.1", f"--prometheus_port={port}")
    address = database.replace("cogment@", "cogment:secret@")
    command = ("services", "trial_datastore", f"--storage={address}", *flags)
    async with server(*command, folder=tmp_path), httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
        for line in ("batches_total 0.0", "retries_total 0.0", "reconnections_total 0.0", "connections 2.0"):
            assert f"trio_cogment_store_{line}" in text
    output = await run(*command, "--file_storage=t.db")
    assert output.err == "trio-cogment: --storage: expected no --file_storage beside it\n"


async def test_a_backup_is_restored(postgresql: PostgresqlServer, database: str) -> None:
    """It is made while trials are written, and has those of its moment; they go on behind it."""
    name, file = database.rpartition("/")[2], postgresql.folder / "trials.dump"
    async with open_store(database) as store:
        await store.apply([new_trial("ended"), sample("ended", 0), EndWrite("ended", TrialEnd.ENDED)])
        await store.apply([new_trial("open"), sample("open", 0)])
        before = await get(store, "ended")
        await trio.to_thread.run_sync(postgresql.tool, "pg_dump", name, "--format=custom", f"--file={file}")
        await store.apply([sample("open", 1), new_trial("later"), sample("later", 0)])
    await trio.to_thread.run_sync(postgresql.tool, "pg_restore", name, "--clean", str(file))
    async with open_store(database) as store:
        assert {trial.trial_id for trial in await store.trials(after=0, limit=10)} == {"ended", "open"}
        assert await get(store, "ended") == before
        await store.apply([sample("open", 1), EndWrite("open", TrialEnd.ENDED), new_trial("new"), sample("new", 0)])
        assert [one.tick_id for one in await read(store, "open")] == [0, 1]
        assert [one.tick_id for one in await read(store, "new")] == [0]


async def test_copied_from_a_file_and_back(database: str, tmp_path: Path) -> None:
    first, second = f"sqlite:{tmp_path}/first.db", f"sqlite:{tmp_path}/second.db"
    async with open_store(first) as store:
        await store.apply(
            [new_trial("a"), *(sample("a", tick) for tick in range(1000)), EndWrite("a", TrialEnd.ABNORMAL)]
        )
    for source, target in ((first, database), (database, second), (database, second)):
        with trio.fail_after(60):
            output = await run("datastore", "copy", source, target)
        assert output.code == 0, output.err
    assert output.out == "0 trials copied; 1 trial there already\n"
    async with open_store(first) as one, open_store(second) as other:
        assert await get(one, "a") == await get(other, "a")
        assert [row[1:] for row in await read(one, "a")] == [row[1:] for row in await read(other, "a")]
