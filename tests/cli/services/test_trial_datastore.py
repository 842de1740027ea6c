"""A datastore as a server process, and its client's commands."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.cli.process import (
    PATIENCE_SECONDS,
    Output,
    Server,
    environment_variables,
    run,
    run_here,
    server,
)
from tests.sdk.test_sample_file import SAMPLES, by_hand
from trio_cogment.api import datalog_pb2
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput, SampleInfo
from trio_cogment.rpc import Channel, methods_of
from trio_cogment.sdk import DatastoreClient
from trio_cogment.sdk.sample_file import SampleFileReader

RUN = methods_of(datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"])["RunTrialDatalog"]
SERVE = ("services", "trial_datastore", "--host=127.0.0.1", "--port=0")


@asynccontextmanager
async def datastore(*flags: str) -> AsyncIterator[tuple[Server, str]]:
    async with server(*SERVE, *flags) as found:
        yield found, f"--endpoint=grpc://127.0.0.1:{found.port}"


async def client(*arguments: str) -> Output:
    return await run_here("client", "trial_datastore", *arguments)


async def asked(*arguments: str) -> str:
    output = await client(*arguments)
    assert output.code == 0, output.err
    return output.out


async def test_what_is_there_to_do_with_trials(tmp_path: Path) -> None:
    file = tmp_path / "by-hand"
    file.write_bytes(by_hand(*SAMPLES))
    async with datastore() as (found, endpoint):
        assert found.addresses[0][2] == "DatalogSP, LogExporterSP, TrialDatastoreSP"
        out = await asked("import", endpoint, f"--file={file}", "--prefix=x-", "--user_id=me", "--console_output=json")
        trials = [{"trial_id": "x-one", "samples_count": 2}, {"trial_id": "x-two", "samples_count": 1}]
        message = "3 samples of 2 trials imported"
        assert json.loads(out) == {"message": message, "samples_count": 3, "trials": trials, "filepath": str(file)}
        assert await asked("import", endpoint, f"--file={file}") == f"{message}\n"

        listed = json.loads(await asked("list", endpoint, "--count=1", "--console_output=json"))
        assert listed == {
            "trialInfos": [
                {
                    "trialId": "x-one",
                    "lastState": "ENDED",
                    "userId": "me",
                    "samplesCount": 2,
                    "params": {"maxSteps": 3},
                }
            ],
            "nextTrialHandle": listed["nextTrialHandle"],
        }
        more = await asked("list_trials", endpoint, f"--from={listed['nextTrialHandle']}")
        assert [line.split()[0] for line in more.splitlines()] == ["TRIAL", "x-two", "one", "two", "next:"]

        again = tmp_path / "again"
        again.write_bytes(b"an older and longer file" * 1000)
        out = await asked("export", endpoint, "one", "two", f"--file={again}", "--console_output=json")
        assert json.loads(out) == {
            "bytes": again.stat().st_size,
            "message": "3 samples of 2 trials exported",
            "trial_ids": ["one", "two"],
            "filepath": str(again),
        }
        reader = SampleFileReader()
        exported = list(reader.feed(again.read_bytes()))
        assert sorted(exported, key=lambda sample: sample.trial_id) == [SAMPLES[0], SAMPLES[2], SAMPLES[1]]
        assert sorted(reader.finish().trial_params) == ["one", "two"]

        out = await asked("delete", endpoint, "one", "x-one", "nobody", "--console_output=json")
        assert json.loads(out)["trial_ids"] == ["one", "x-one", "nobody"]
        left = json.loads(await asked("list", endpoint, "--console_output=json"))
        assert [info["trialId"] for info in left["trialInfos"]] == ["x-two", "two"]
        assert await found.stop() == 0


async def test_through_a_pipe_from_one_datastore_to_another(tmp_path: Path) -> None:
    file = tmp_path / "by-hand"
    file.write_bytes(by_hand(*SAMPLES))
    program = f"{sys.executable} -m trio_cogment client datastore"

    async def pipe(*commands: str) -> Output:
        with trio.fail_after(PATIENCE_SECONDS):
            done = await trio.run_process(
                ["sh", "-c", " | ".join(commands)],
                env=environment_variables(),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        return Output(done.returncode, done.stdout.decode(), done.stderr.decode())

    async with datastore() as (_, one), datastore() as (_, other):
        output = await pipe(f"{program} export {one} one two", f"{program} import {other}")
        assert output.code == 1  # there is nothing yet, and both say so
        assert "not in the datastore: one, two" in output.err
        assert "the file is cut off" in output.err

        await asked("import", one, f"--file={file}")
        output = await pipe(f"{program} export {one} one two --file=-", f"{program} import {other} --prefix=y-")
        assert (output.code, output.out) == (0, "3 samples of 2 trials imported\n")
        assert output.err == "3 samples of 2 trials exported\n"
        output = await pipe(f"cat {file}", "(sleep 0.2; cat)", f"{program} import {other} --file=")
        assert (output.code, output.out) == (0, "3 samples of 2 trials imported\n")
        listed = json.loads(await asked("list", other, "--console_output=json"))
        assert [info["trialId"] for info in listed["trialInfos"]] == ["y-one", "y-two", "one", "two"]


async def test_more_trials_than_fit_into_a_reply() -> None:
    async with datastore() as (found, endpoint), Channel("127.0.0.1", found.port) as channel:
        store = DatastoreClient(channel)
        for number in range(9):
            await store.add_trial(f"{number}", TrialParams(properties={"text": "x" * 700_000}))
        output = json.loads(await asked("list", endpoint, "--count=100", "--console_output=json"))
        assert [trial["trialId"] for trial in output["trialInfos"]] == [f"{number}" for number in range(9)]
        more = await asked("list", endpoint, "--count=100", f"--from={output['nextTrialHandle']}")
        assert more == f"TRIAL  STATE  SAMPLES  USER\nnext: --from {output['nextTrialHandle']}\n"


async def test_files_that_are_none(tmp_path: Path) -> None:
    async with datastore() as (_, endpoint):
        for content, said in (
            (b"PK\x03\x04", "not a file of trial samples: expected it to begin with COGMENTTRIALS001"),
            (by_hand(*SAMPLES)[:-1], "the file is cut off"),
            (b"", "the file is cut off"),
        ):
            file = tmp_path / "file"
            file.write_bytes(content)
            output = await client("import", endpoint, f"--file={file}")
            assert (output.code, output.out) == (1, "")
            assert output.err.startswith("trio-cogment: ")
            assert output.err.count("\n") == 1
            assert said in output.err
        for arguments, said in (
            (("import", f"--file={tmp_path}/none"), "--file: "),
            (("import", f"--file={tmp_path}"), "--file: "),
            (("export", "one", f"--file={tmp_path}/out"), "not in the datastore: one"),
            (("list", "--from=x"), "trial_handle"),
            (("list", "--count=0"), "--count: 0 is not in the range"),
            (("list", "--endpoint=grpc://127.0.0.1:1"), "UNAVAILABLE"),
            (("delete",), "Missing argument"),
        ):
            output = await client(arguments[0], endpoint, *arguments[1:])
            assert (output.code, output.out) == (1, "")
            assert said in output.err
        assert os.listdir(tmp_path) == ["file"]
        assert "x-" not in await asked("list", endpoint)


async def test_a_file_that_cannot_be_written_keeps_what_was_in_it(tmp_path: Path) -> None:
    file = tmp_path / "by-hand"
    file.write_bytes(by_hand(*SAMPLES))
    async with datastore() as (_, endpoint):
        await asked("import", endpoint, f"--file={file}")
        output = await client("export", endpoint, "one", f"--file={tmp_path}/no/folder")
        assert (output.code, output.err) == (
            1,
            f"trio-cogment: --file: {tmp_path}/no/folder: No such file or directory\n",
        )
        output = await client("export", endpoint, "one", f"--file={tmp_path}")
        assert output.code == 1
        assert file.read_bytes() == by_hand(*SAMPLES)


async def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    file, link, pipe = (tmp_path / name for name in ("by-hand", "link", "pipe"))
    file.write_bytes(by_hand(*SAMPLES))
    link.symlink_to("target")
    os.mkfifo(pipe)
    async with datastore() as (_, endpoint):
        await asked("import", endpoint, f"--file={file}")
        await asked("export", endpoint, "one", f"--file={link}")
        assert link.is_symlink()
        received: list[bytes] = []

        async def receive() -> None:
            received.append(await trio.to_thread.run_sync(pipe.read_bytes))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await asked("export", endpoint, "one", f"--file={pipe}")
        assert pipe.is_fifo()
        assert len(received[0]) == len((tmp_path / "target").read_bytes()) > 100
        await asked("export", endpoint, "one", "--file=/dev/null")
        assert await trio.Path("/dev/null").is_char_device()
        assert sorted(os.listdir(tmp_path)) == ["by-hand", "link", "pipe", "target"]


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


async def test_files_that_are_no_database(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("create table other (x)")
    connection.close()
    text = tmp_path / "text"
    text.write_text("not at all a database " * 100)
    for path in (foreign, text, tmp_path / "no" / "folder.db", tmp_path):
        before = path.read_bytes() if path.is_file() else b""
        output = await run(*SERVE, f"--file_storage={path}")
        assert (output.code, output.err.count("\n")) == (1, 1), output.err
        assert str(path) in output.err
        assert (path.read_bytes() if path.is_file() else b"") == before


async def test_serve_stores_trials_in_the_current_folder_unless_told_otherwise(tmp_path: Path) -> None:
    here = {"TRIO_COGMENT_STORAGE": ""}
    async with server("serve", "--host=127.0.0.1", "--port=0", variables=here, folder=tmp_path) as found:
        assert "TrialDatastoreSP" in found.addresses[0][2]
        assert (tmp_path / ".cogment" / "trial_datastore.db").exists()
        assert (await client("list", f"--endpoint=grpc://127.0.0.1:{found.port}")).code == 0
    async with server("serve", "--host=127.0.0.1", "--port=0", "--storage=none", folder=tmp_path) as found:
        assert found.addresses[0][2] == "TrialLifecycleSP, ClientActorSP"
    output = await run("serve", "--storage=sqlite", "--port=0")
    assert output.err == "trio-cogment: --storage: expected sqlite:PATH, memory: or none, got 'sqlite'\n"


async def test_the_reference_s_bare_flag_and_variables(tmp_path: Path) -> None:
    async with server(*SERVE, "--file_storage", folder=tmp_path):
        assert (tmp_path / ".cogment" / "trial_datastore.db").exists()
    variables = {"COGMENT_TRIAL_DATASTORE_FILE_STORAGE_PATH": "other.db", "COGMENT_TRIAL_DATASTORE_PORT": "0"}
    async with server("services", "datastore", "--host=127.0.0.1", variables=variables, folder=tmp_path):
        assert (tmp_path / "other.db").exists()
    output = await run(*SERVE, "--memory_storage_max_samples_size=4294967296")
    assert output.code == 1
    assert "--memory_storage_max_samples_size" in output.err
