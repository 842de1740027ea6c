"""`trio-cogment client model_registry`, against a model registry in this process."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import click
import trio

from tests.cli.process import (
    PATIENCE_SECONDS,
    Output,
    environment_variables,
    listening,
    run_here,
)
from trio_cogment.base.host import Host
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services

DATA = b"weights " * 100_000
HASH = base64.b64encode(hashlib.sha256(DATA).digest()).decode()


@asynccontextmanager
async def registry(folder: Path) -> AsyncIterator[str]:
    async with (
        ModelRegistry(folder / "archive", host=Host(wall_clock=lambda: 10**18)) as found,
        listening(*model_registry_services(found)) as endpoint,
    ):
        yield f"--endpoint={endpoint}"


async def client(*arguments: str, data: bytes = b"") -> Output:
    return await run_here("client", "model_registry", *arguments, data=data)


async def asked(*arguments: str, data: bytes = b"") -> str:
    output = await client(*arguments, data=data)
    assert output.code == 0, output.err
    return output.out


async def piped(arguments: str, rest: str) -> Output:
    """Run a command into a pipe; return its code and what it complains, and what comes out in the end."""
    command = f"{{ {sys.executable} -m trio_cogment client model_registry {arguments}; echo $? >&3; }} | {rest}"
    with trio.fail_after(PATIENCE_SECONDS):
        done = await trio.run_process(
            ["sh", "-c", f"{{ {command}; }} 3>&1 | cat"],
            env=environment_variables(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    out, _, code = done.stdout.decode().rstrip().rpartition(" ")
    return Output(int(code), f"{out} ", done.stderr.decode())


async def test_what_is_there_to_do_with_models(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(DATA)
    async with registry(tmp_path) as endpoint:
        assert json.loads(await asked("list", endpoint, "--json"))["modelInfos"] == []
        user_data = ("--user_data=step=1,000", "--user_data=note=a=b")
        out = await asked("put", endpoint, "walker", f"--file={file}", *user_data, "--console_output=json")
        info = {
            "modelId": "walker",
            "versionNumber": 1,
            "creationTimestamp": str(10**18),
            "archived": True,
            "dataHash": HASH,
            "dataSize": str(len(DATA)),
            "userData": {"step": "1,000", "note": "a=b"},
        }
        assert json.loads(out) == {"message": f"version 1 of walker: {len(DATA)} bytes, archived", "versionInfo": info}
        assert await asked("put", endpoint, "walker", "--transient", data=b"x") == (
            "version 2 of walker: 1 bytes, transient\n"
        )

        assert (await asked("list", endpoint)).splitlines() == ["MODEL   USER DATA", "walker"]
        assert json.loads(await asked("list", endpoint, "--console_output=json")) == {
            "modelInfos": [{"modelId": "walker", "userData": {}}],
            "nextModelHandle": "",
        }
        shown = json.loads(await asked("show", endpoint, "walker", "--console_output=json"))
        assert shown["modelInfo"] == {"modelId": "walker", "userData": {}}
        assert shown["versionInfos"][0] == info
        lines = (await asked("show", endpoint, "walker")).splitlines()
        assert lines[0] == "walker"
        assert lines[1].split() == ["VERSION", "KEPT", "BYTES", "CREATED", "SHA-256", "USER", "DATA"]
        archived = f"1 archived {len(DATA)} 2001-09-09T01:46:40+00:00 {HASH} note=a=b, step=1,000"
        assert " ".join(lines[2].split()) == archived
        assert lines[3].split()[:3] == ["2", "transient", "1"]

        assert await asked("get", endpoint, "walker") == "x"
        copy = tmp_path / "copy"
        copy.write_bytes(DATA + b"that was longer")
        out = await asked("get", endpoint, "walker", "--version", "-2", f"--file={copy}", "--console_output=json")
        assert json.loads(out)["versionInfo"] == info
        assert json.loads(out)["filepath"] == str(copy)
        assert copy.read_bytes() == DATA
        out = await asked("get", endpoint, "walker", "--version=1", f"--file={copy}")
        assert out == f"version 1 of walker: {len(DATA)} bytes\n"

        assert await asked("delete", endpoint, "walker") == "deleted: walker\n"
        assert (await asked("list", endpoint)).splitlines() == ["MODEL  USER DATA"]


async def test_a_deletion_that_ends_halfway_says_how_far_it_came(tmp_path: Path) -> None:
    async with registry(tmp_path) as endpoint:
        for name in ("a", "b", "c"):
            await asked("put", endpoint, name, data=b"x")
        output = await client("delete", endpoint, "a", "b", "none", "c")
        assert (output.code, output.out) == (1, "")
        assert output.err.endswith("there is no model 'none'; deleted before that: a, b\n")
        assert (await asked("list", endpoint)).split() == ["MODEL", "USER", "DATA", "c"]


async def test_many_may_get_the_same_file(tmp_path: Path) -> None:
    """Each is whole when it takes the other's place; what lies beside it is somebody else's, and stays."""
    target, beside = tmp_path / "target", tmp_path / "target.tmp"
    beside.write_text("mine")
    target.write_bytes(b"old")
    target.chmod(0o600)
    data = os.urandom(3_000_000)
    async with registry(tmp_path) as endpoint:
        await asked("put", endpoint, "m", data=data)
        command = [sys.executable, "-m", "trio_cogment", "client", "registry", "get", "m", endpoint, f"--file={target}"]
        with trio.fail_after(PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(partial(trio.run_process, command, env=environment_variables()))
    assert target.read_bytes() == data
    assert (target.stat().st_mode & 0o777, beside.read_text()) == (0o600, "mine")
    assert sorted(os.listdir(tmp_path)) == ["archive", "target", "target.tmp"]


async def test_nothing_at_all_is_a_version_too(tmp_path: Path) -> None:
    async with registry(tmp_path) as endpoint:
        assert (await asked("put", endpoint, "m", "--file=-")).startswith("version 1 of m: 0 bytes")
        output = await client("get", endpoint, "m")
        assert (output.out, output.err) == ("", "version 1 of m: 0 bytes\n")


async def test_what_cannot_be_done_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    async with registry(tmp_path) as endpoint:
        await asked("put", endpoint, "m", data=b"x")
        for arguments, said in (
            (("get", "m", "--version=7", f"--file={kept}"), "NOT_FOUND"),
            (("get", "other", f"--file={kept}"), "NOT_FOUND"),
            (("get", "m", f"--file={tmp_path}/no/folder"), "--file: "),
            (("get", "m", "--version=x"), "--version: 'x' is not a valid integer"),
            (("show", "other"), "NOT_FOUND"),
            (("delete", "other"), "NOT_FOUND"),
            (("delete",), "Missing argument"),
            (("put", ""), "INVALID_ARGUMENT: model_id"),
            (("put", "m", f"--file={tmp_path}/none"), "--file: "),
            (("put", "m", f"--file={tmp_path}"), "--file: "),
            (("put", "m", "--user_data=x"), "--user_data: expected NAME=VALUE, got 'x'"),
            (("list", "--endpoint=grpc://127.0.0.1:1", "--timeout=100ms"), "cannot be reached: cannot connect to 127"),
            (("list", "--endpoint=nowhere"), "--endpoint: 'nowhere': expected grpc://host:port"),
        ):
            output = await client(arguments[0], endpoint, *arguments[1:])
            assert (output.code, output.out) == (1, ""), arguments
            assert output.err.startswith("trio-cogment: ")
            assert output.err.count("\n") == 1
            assert said in output.err
        assert kept.read_text() == "kept"
        assert sorted(os.listdir(tmp_path)) == ["archive", "kept"]
        assert len(json.loads(await asked("show", endpoint, "m", "--console_output=json"))["versionInfos"]) == 1


def test_its_client_s_flags_may_stand_anywhere() -> None:
    from trio_cogment.cli.client.model_registry import model_registry as group

    for command in (group, *group.commands.values()):
        names = {option.opts[0] for option in command.params if isinstance(option, click.Option)}
        assert {"--endpoint", "--timeout", "--console_output"} <= names
