"""`trio-cogment client trial_datastore`, against a datastore in this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.cli.process import (
    PATIENCE_SECONDS,
    Output,
    environment_variables,
    listening,
    run_here,
)
from tests.sdk.test_sample_file import SAMPLES, by_hand
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.rpc import InProcessChannel
from trio_cogment.sdk import DatastoreClient
from trio_cogment.sdk._export_import import SampleFileReader
from trio_cogment.servers.datastore import Datastore, datastore_services, open_store


@asynccontextmanager
async def datastore() -> AsyncIterator[tuple[Datastore, str]]:
    async with (
        open_store("memory:", durability="full", memory_bytes=2**30) as store,
        Datastore(store) as found,
        listening(*datastore_services(found)) as endpoint,
    ):
        yield found, f"--endpoint={endpoint}"


async def client(*arguments: str) -> Output:
    return await run_here("client", "trial_datastore", *arguments)


async def asked(*arguments: str) -> str:
    output = await client(*arguments)
    assert output.code == 0, output.err
    return output.out


async def test_what_is_there_to_do_with_trials(tmp_path: Path) -> None:
    file = tmp_path / "by-hand"
    file.write_bytes(by_hand(*SAMPLES))
    async with datastore() as (_, endpoint):
        out = await asked("import", endpoint, f"--file={file}", "--prefix=x-", "--user_id=me", "--console_output=json")
        trials = [{"trial_id": "x-one", "samples_count": 2}, {"trial_id": "x-two", "samples_count": 1}]
        message = "3 samples of 2 trials imported"
        assert json.loads(out) == {"message": message, "samples_count": 3, "trials": trials, "filepath": str(file)}
        assert await asked("import", endpoint, f"--file={file}") == f"{message}\n"

        listed = json.loads(await asked("list", endpoint, "--count=1", "--console_output=json"))
        [one] = listed["trialInfos"]
        params = one.pop("params")
        assert int(one.pop("storedBytes")) > int(one.pop("rawBytes")) > 0
        assert one == {
            "trialId": "x-one",
            "lastState": "ENDED",
            "userId": "me",
            "samplesCount": 2,
            "endedAbnormally": False,
            "storageTrouble": "",
            "orchestrator": "",
        }
        assert (params["maxSteps"], params["maxInactivity"], params["actors"]) == (3, 0, [])
        more = await asked("list_trials", endpoint, f"--from={listed['nextTrialHandle']}")
        assert [line.split()[0] for line in more.splitlines()] == ["TRIAL", "x-two", "one", "two"]
        assert more.split()[3:5] == ["STORED", "RAW"]

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

        output = await client("import", endpoint, f"--file={file}")
        assert (output.code, output.err) == (
            1,
            "trio-cogment: in the datastore already: one, two (use --prefix=copy-)\n",
        )
        output = await client("list", endpoint, "--properties=map:small")
        assert output.code == 1
        assert "--properties: expected NAME=VALUE, got 'map:small'" in output.err

        output = await client("delete", endpoint, "one", "x-one", "nobody", "--console_output=json")
        assert output.code == 1
        assert json.loads(output.out) == {
            "message": "deleted: one, x-one; no such trial: nobody",
            "trial_ids": ["one", "x-one", "nobody"],
            "missing": ["nobody"],
        }
        output = await client("delete", endpoint, "nobody")
        assert (output.code, output.out, output.err) == (1, "", "trio-cogment: no such trial: nobody\n")
        left = json.loads(await asked("list", endpoint, "--console_output=json"))
        assert [info["trialId"] for info in left["trialInfos"]] == ["x-two", "two"]
        await asked("delete", endpoint, "x-two", "two")
        assert json.loads(await asked("list", endpoint, "--json"))["trialInfos"] == []


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
    async with datastore() as (found, endpoint), InProcessChannel(datastore_services(found)) as channel:
        store = DatastoreClient(channel)
        for number in range(9):
            await store.add_trial(f"{number}", TrialParams(properties={"text": "x" * 700_000}))
        output = json.loads(await asked("list", endpoint, "--count=100", "--console_output=json"))
        assert [trial["trialId"] for trial in output["trialInfos"]] == [f"{number}" for number in range(9)]
        more = await asked("list", endpoint, "--count=100", f"--from={output['nextTrialHandle']}")
        assert more == "TRIAL  STATE  SAMPLES  STORED  RAW  USER  END\n"
        assert "next: --from" in await asked("list", endpoint, "--count=8")
        assert "next: --from" not in await asked("list", endpoint, "--count=9")


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
            (("list", "--endpoint=grpc://127.0.0.1:1", "--timeout=100ms"), "cannot be reached: cannot connect to 127"),
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
