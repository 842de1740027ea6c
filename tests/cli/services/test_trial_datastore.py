"""A datastore as a server process."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import pytest

from tests.cli.client.test_trial_datastore import client
from tests.cli.process import (
    Server,
    run,
    run_here,
    run_main,
    server,
)
from trio_cogment.api import datalog_pb2
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput, SampleInfo
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.cli.configuration import configuration_of
from trio_cogment.cli.serve import serve
from trio_cogment.cli.services.trial_datastore import (
    StorageSettings,
    datastore_settings,
    opened_storage,
    storage_settings,
    trial_datastore,
)
from trio_cogment.rpc import Channel, methods_of
from trio_cogment.sdk import DatastoreClient
from trio_cogment.servers.datastore.storage import SampleWrite, TrialWrite, WriteKind

RUN = methods_of(datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"])["RunTrialDatalog"]
SERVE = ("services", "trial_datastore", "--host=127.0.0.1", "--port=0")


@asynccontextmanager
async def datastore(*flags: str) -> AsyncIterator[tuple[Server, str]]:
    async with server(*SERVE, *flags) as found:
        yield found, f"--endpoint=grpc://127.0.0.1:{found.port}"


async def test_a_file_storage_keeps_what_was_confirmed(tmp_path: Path) -> None:
    database = tmp_path / "trials.db"
    async with (
        datastore(f"--file_storage={database}") as (found, _),
        Channel("127.0.0.1", found.port) as channel,
        channel.call(RUN, metadata={"trial-id": "one"}) as call,
    ):
        await call.send(RunTrialDatalogInput(trial_params=TrialParams(max_steps=2)))
        for tick in range(2):
            state = TrialState.ENDED if tick else TrialState.RUNNING
            info = SampleInfo(tick_id=tick, timestamp=tick, state=state)
            await call.send(RunTrialDatalogInput(sample=DatalogSample(info=info)))
        for _reply in range(3):
            assert await call.receive() is not None
        found.process.kill()
        await found.process.wait()
    async with datastore(f"--file_storage={database}", "--durability=batch") as (found, endpoint):
        async with Channel("127.0.0.1", found.port) as channel:
            trial = await DatastoreClient(channel).trial("one")
            assert trial is not None
            assert (trial.samples_count, trial.ended, trial.params.max_steps) == (2, True, 2)
        output = await run(*SERVE, f"--file_storage={database}")
        assert output.code == 1
        assert str(database) in output.err
        assert output.err.count("\n") == 1
        assert (await client("list", endpoint)).code == 0


def test_files_that_are_no_database(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("create table other (x)")
    connection.close()
    text = tmp_path / "text"
    text.write_text("not at all a database " * 100)
    for path in (foreign, text, tmp_path / "no" / "folder.db", tmp_path):
        before = path.read_bytes() if path.is_file() else b""
        output = run_main(*SERVE, f"--file_storage={path}")
        assert (output.code, output.err.count("\n")) == (1, 1), output.err
        assert str(path) in output.err
        assert (path.read_bytes() if path.is_file() else b"") == before


async def test_serve_stores_trials_in_the_current_folder_unless_told_otherwise(tmp_path: Path) -> None:
    here = {"TRIO_COGMENT_STORAGE": ""}
    async with server("serve", "--host=127.0.0.1", "--port=0", variables=here, folder=tmp_path) as found:
        assert await found.parts() == "orchestrator, trial_datastore"
        assert (await client("list", f"--endpoint=grpc://127.0.0.1:{found.port}")).code == 0
        assert (tmp_path / ".cogment" / "trial_datastore.db").exists()
    async with server("serve", "--host=127.0.0.1", "--port=0", "--storage=none", folder=tmp_path) as found:
        assert await found.parts() == "orchestrator"
    output = await run_here("serve", "--storage=sqlite", "--port=0")
    assert (
        output.err == "trio-cogment: --storage: expected sqlite:PATH, postgresql://..., memory: or none, got 'sqlite'\n"
    )


async def test_the_reference_s_bare_flag_and_variables(tmp_path: Path) -> None:
    async with server(*SERVE, "--file_storage", folder=tmp_path) as found:
        assert found.addresses[0][2] == "DatalogSP, LogExporterSP, TrialDatastoreSP, TrialAttempts"
        await found.wait_serving()
        assert (tmp_path / ".cogment" / "trial_datastore.db").exists()
        assert await found.stop() == 0
    variables = {"COGMENT_TRIAL_DATASTORE_FILE_STORAGE_PATH": "other.db", "COGMENT_TRIAL_DATASTORE_PORT": "0"}
    async with server("services", "datastore", "--host=127.0.0.1", variables=variables, folder=tmp_path) as found:
        await found.wait_serving()
        assert (tmp_path / "other.db").exists()
    output = await run_here(*SERVE, "--memory_storage_max_samples_size=4294967296")
    assert output.code == 1
    assert "--memory_storage_max_samples_size" in output.err


@pytest.mark.parametrize("command", [serve, trial_datastore])
def test_limits_of_what_is_stored(command: click.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(*flags: str) -> tuple[int, int]:
        with command.make_context("one", list(flags)) as ctx:
            storage = storage_settings(ctx) if command is serve else datastore_settings(ctx).storage
            assert storage is not None
            return configuration_of(ctx).datastore.keep_trials, storage.file_bytes

    file = "--storage=sqlite:t.db" if command is serve else "--file_storage=t.db"
    assert settings(file) == (0, 0)
    assert settings(file, "--keep_trials=10", "--file_storage_max_size=1000000") == (10, 1_000_000)
    monkeypatch.setenv("COGMENT_TRIAL_DATASTORE_KEEP_TRIALS", "7")
    monkeypatch.setenv("COGMENT_TRIAL_DATASTORE_FILE_STORAGE_MAX_SIZE", "5")
    assert settings(file) == (7, 5)
    with pytest.raises(click.BadParameter, match="expected 0 to 2147483647, got -1"):
        settings("--keep_trials=-1")


async def test_a_file_has_the_size_that_the_flag_allows(tmp_path: Path) -> None:
    file = StorageSettings(file=tmp_path / "t.db", file_bytes=400_000, memory_bytes=1)
    async with opened_storage(file) as store:
        await store.apply([TrialWrite("t", "", TrialParams(), True)])
        samples = [SampleWrite("t", tick, tick, 3, bytes(10_000), WriteKind.LOGGED) for tick in range(100)]
        await store.apply(samples[:1])
        with pytest.raises(ResourceExhaustedError):
            await store.apply(samples)
