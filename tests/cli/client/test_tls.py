"""The client's commands and `trio-cogment status` with TLS, against a server of everything that has it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Output, run_here, server
from tests.rpc.tls_files import make_party

#: What a server of everything registers, without its file of trials.
KINDS = ["modelregistry", "lifecycle", "actservice"]


def flags(folder: Path, name: str) -> list[str]:
    """Make a certificate for this machine; return the flags for it."""
    party = make_party(folder, name, "127.0.0.1")
    return [f"--private_key={party.key}", f"--root_cert={party.roots}", f"--trust_chain={party.chain}"]


async def until_registered(directory: str, ours: Sequence[str]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            output = await run_here("client", "directory", "inquire", directory, *ours, "--console_output=json")
            assert output.code == 0, output.err
            if len(json.loads(output.out)["services"]) == len(KINDS):
                return
            await trio.sleep(0.05)


async def test_with_certificates_and_without(tmp_path: Path) -> None:
    ours, strangers = flags(tmp_path, "ours"), flags(tmp_path, "strangers")
    start = ("serve", "--host=127.0.0.1", "--port=0", "--persistence_file=", f"--archive_dir={tmp_path}/archive")
    async with server(*start, *ours) as found:
        where = f"grpc://127.0.0.1:{found.port}"
        directory, endpoint = f"--directory_endpoint={where}", f"--endpoint={where}"
        await until_registered(directory, ours)

        async def asked(*arguments: str, data: bytes = b"") -> list[str]:
            output = await run_here(*arguments, *ours, data=data)
            assert (output.code, output.err) == (0, ""), arguments
            return output.out.splitlines()

        await asked("client", "directory", "WaitForReady", directory)
        registering = ("client", "directory", "register", directory, "--host=127.0.0.1", f"--port={found.port}")
        [line] = await asked(*registering, "--type=other", "--ssl_required")
        service_id, secret = line.split("[")[1].partition("]")[0], line.rpartition("[")[2].rstrip("]")
        assert f"\tEndpoint [grpc://127.0.0.1:{found.port}] SSL required [true]" in await asked(
            "client", "directory", "inquire", directory, "--type=other"
        )
        deregistering = ("client", "directory", "deregister", directory, f"--service_id={service_id}")
        assert await asked(*deregistering, f"--secret={secret}") == []

        assert await asked("client", "registry", "put", "m", endpoint, data=b"x") == [
            "version 1 of m: 1 bytes, archived"
        ]
        assert (await run_here("client", "registry", "get", "m", endpoint, *ours)).out == "x"
        # Each service is asked with our certificate too.
        [first, *services] = await asked("status", directory, "nb_models", "nb_entries", "-vv")
        assert first == "directory [nb_entries:3]"
        said = [line.partition(" -- ")[2] for line in services]
        assert said == [
            f"{where} -- ssl -- {kind}]" + (" [nb_models:1]" if kind == "modelregistry" else "") for kind in KINDS
        ]
        assert await asked("status", endpoint, "--type=modelregistry", "nb_models") == ["modelregistry [nb_models:1]"]

        # Who has none, or one that nobody here knows, is told so in a line and gets nothing.
        for those in ([], strangers):

            async def refused(*arguments: str, those: Sequence[str] = those) -> Output:
                output = await run_here(*arguments, *those, "--timeout=10s")
                assert (output.code, output.err.count("\n")) == (1, 1), arguments
                return output

            for command in (("inquire",), ("deregister", "--service_id=1", "--secret=x")):
                assert "cannot be reached" in (await refused("client", "directory", *command, directory)).err
            for model_command in (("list",), ("show", "m"), ("get", "m"), ("delete", "m")):
                output = await refused("client", "registry", *model_command, endpoint)
                assert (output.out, "cannot be reached" in output.err) == ("", True), output
                assert "waited" not in output.err  # it does not help
            assert "cannot be reached" in (await refused("status", directory)).err
            said_why = (await refused("status", endpoint)).err
            assert said_why.startswith(f"trio-cogment: the service at {where} cannot be reached: ")
            assert ("the server may speak TLS: --root_cert" in said_why) == (not those)
        assert await asked("status", endpoint, "--type=modelregistry", "nb_models") == ["modelregistry [nb_models:1]"]


@pytest.mark.parametrize("command", [("status",), ("client", "directory", "inquire"), ("client", "registry", "list")])
async def test_both_files_of_a_certificate(command: Sequence[str], tmp_path: Path) -> None:
    ours = flags(tmp_path, "ours")
    for given, said in (
        (ours[:2], "a certificate needs --private_key and --trust_chain; missing: --trust_chain"),
        ([*ours[:2], f"--trust_chain={tmp_path}/none"], f"{tmp_path}/none"),
    ):
        output = await run_here(*command, *given)
        assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
        assert said in output.err


async def test_the_files_by_their_variables(tmp_path: Path) -> None:
    names = ("COGMENT_PRIVATE_KEY_FILE", "COGMENT_ROOT_CERT_FILE", "COGMENT_TRUST_CHAIN_FILE")
    ours = dict(zip(names, (flag.partition("=")[2] for flag in flags(tmp_path, "ours")), strict=True))
    start = ("services", "directory", "--host=127.0.0.1", "--port=0", "--persistence_file=", "--registration_lag=0")
    async with server(*start, variables=ours) as found:
        where = {"COGMENT_DIRECTORY_ENDPOINT": f"grpc://127.0.0.1:{found.port}"}
        for command in (("status", "nb_entries"), ("client", "directory", "inquire")):
            output = await run_here(*command, variables=ours | where)
            assert (output.code, output.err) == (0, "")
