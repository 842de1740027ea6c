"""`trio-cogment client directory`, against a directory in this process."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.cli.process import PATIENCE_SECONDS, Output, listening, run_here, server
from tests.ports import free_port
from trio_cogment import __version__
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.host import Host
from trio_cogment.base.services import ServiceKind
from trio_cogment.servers.directory import DirectoryServer, directory_services

REGISTERED = re.compile(r"Service ID \[(\d+)\] \tSecret \[(\w+)\]\n")
PERMANENT = ("--host=h", "--port=1", "--permanent")


@asynccontextmanager
async def directory(**rules: Any) -> AsyncIterator[tuple[DirectoryServer, str]]:
    source = random.Random(0).randbytes
    rules = {"startup_lag_seconds": 0, **rules}  # else it waits for services that are not there, first
    async with (
        DirectoryServer(config=DirectoryServerConfig(**rules), host=Host(secret_bytes=source)) as found,
        listening(*directory_services(found)) as endpoint,
    ):
        yield found, f"--directory_endpoint={endpoint}"


async def client(*arguments: str) -> Output:
    return await run_here("client", "directory", *arguments)


async def asked(*arguments: str) -> str:
    output = await client(*arguments)
    assert output.code == 0, output.err
    return output.out


async def registered(*arguments: str) -> tuple[str, str]:
    found = REGISTERED.fullmatch(await asked("register", *arguments))
    assert found is not None
    return found[1], found[2]


async def test_register_inquire_and_deregister() -> None:
    async with directory() as (found, endpoint):
        service_id, secret = await registered(
            endpoint, *PERMANENT, "--type=environment", "--properties=b=2,a", "--properties=__version=mine"
        )
        assert await asked("inquire", endpoint) == (
            "[1] Services found\n"
            f"Service ID [{service_id}]\n"
            "\tEndpoint [grpc://h:1] SSL required [false]\n"
            "\tType [environment]\n"
            "\tPermanent [true]\n"
            "\t[__registration_source] = [Cogment-Command_Line]\n"
            "\t[__version] = [mine]\n"
            "\t[a] = []\n"
            "\t[b] = [2]\n"
        )
        other, _ = await registered(
            endpoint, "--protocol=cogment", "--type=actor", "--directory_authentication_token=t"
        )
        assert "[1] Services found" in await asked("inquire", endpoint)
        out = await asked("inquire", endpoint, "--directory_authentication_token=t", "--console_output=json")
        assert json.loads(out) == {
            "services": [
                {
                    "endpoint": {"protocol": "COGMENT", "host": "client", "port": 0},
                    "serviceId": other,
                    "permanent": False,
                    "details": {
                        "type": "ACTOR_SERVICE",
                        "properties": {
                            "__registration_source": "Cogment-Command_Line",
                            "__version": __version__,
                        },
                    },
                }
            ]
        }
        for arguments, count in (
            (("--type=environment", "--properties=a"), 1),
            (("--properties=b=3",), 0),
            (("--type=actor",), 0),
            (("--type=",), 1),
            ((f"--service_id={service_id}",), 1),
            ((f"--service_id={other}",), 0),  # with another token
            (("--service_id=7",), 0),
        ):
            assert (await asked("inquire", endpoint, *arguments)).startswith(f"[{count}] Services found\n"), arguments
        output = await client("deregister", endpoint, f"--service_id={service_id}", "--secret=x")
        assert (output.code, output.err.count("\n")) == (1, 1)
        assert "refused" in output.err
        assert found.count == 2
        assert await asked("deregister", endpoint, f"--service_id={service_id}", f"--secret={secret}") == ""
        assert found.count == 1


async def test_what_a_registration_says_is_what_was_said() -> None:
    async with directory() as (_, endpoint):
        for kind in (kind.value for kind in ServiceKind):
            out = await asked(
                "register", endpoint, *PERMANENT, "--ssl_required", f"--type={kind}", "--console_output=json"
            )
            service_id = json.loads(out)["serviceId"]
            lines = (await asked("inquire", endpoint, f"--type={kind}")).splitlines()
            assert lines[1:4] == [
                f"Service ID [{service_id}]",
                "\tEndpoint [grpc://h:1] SSL required [true]",
                f"\tType [{kind}]",
            ]


async def test_what_cannot_be_is_one_line() -> None:
    async with directory() as (found, endpoint):
        for arguments, said in (
            (("register", "--host=h", "--port=1"), "--type: expected one of "),
            (("register", "--host=h", "--port=1", "--type="), "--type: expected one of "),
            (("register", "--host=h", "--port=1", "--type=world"), "--type: 'world' is not one of"),
            (("register", "--port=1", "--type=actor"), "--host: expected a name or an address"),
            (("register", "--host=h", "--type=actor"), "--port: expected 1 to 65535"),
            (("register", "--host=h", "--port=65536", "--type=actor"), "--port: expected a port"),
            (("register", "--host=h", "--protocol=cogment", "--type=actor"), "--host: with --protocol=cogment"),
            (("register", "--host=a b", "--port=1", "--type=actor"), "endpoint.host"),
            (("inquire", "--service_id=1", "--type=actor"), "--service_id: expected this, or --type"),
            (("inquire", "--service_id=1", "--properties=a"), "--service_id: expected this, or --type"),
            (("inquire", "--service_id=-1"), "--service_id: -1 is not in the range"),
            (("deregister", "--secret=x"), "--service_id: it is needed"),
            (("inquire", "--directory_endpoint=grpc://127.0.0.1:1", "--timeout=100ms"), "cannot be reached"),
            (("inquire", "--directory_endpoint=cogment://discover"), "expected grpc://host:port"),
            (("inquire", "--directory_authentication_token=a b"), "--directory_authentication_token: expected"),
        ):
            output = await client(arguments[0], endpoint, *arguments[1:])
            assert (output.code, output.out) == (1, ""), arguments
            assert output.err.startswith("trio-cogment: ")
            assert output.err.count("\n") == 1, output.err
            assert said in output.err
        assert found.count == 0


async def test_the_old_names_of_flags_mean_the_same_and_the_new_ones_win() -> None:
    async with directory() as (_, endpoint):
        old = f"--endpoint={endpoint.partition('=')[2]}"
        output = await client("register", old, "--auth_token=t", *PERMANENT, "--type=other")
        assert output.code == 0, output.err
        assert output.err.splitlines() == [
            "trio-cogment: --endpoint is deprecated; it is --directory_endpoint now",
            "trio-cogment: --auth_token is deprecated; it is --directory_authentication_token now",
        ]
        assert "[1] " in await asked("inquire", endpoint, "--directory_authentication_token=t")
        assert "[1] " in await asked("--endpoint=grpc://127.0.0.1:1", endpoint, "--auth_token=t", "inquire")


async def test_waiting_for_a_directory_that_comes_later() -> None:
    port = free_port()
    where = f"--directory_endpoint=grpc://127.0.0.1:{port}"
    output = await client("WaitForReady", where, "--timeout=300ms")
    assert (output.code, output.out) == (1, "")
    assert output.err == (
        f"trio-cogment: the directory at grpc://127.0.0.1:{port} cannot be reached: "
        f"cannot connect to 127.0.0.1:{port}: Connection refused; waited 0.3 s (--timeout)\n"
    )
    found: list[Output] = []
    ready = trio.Event()

    async def wait() -> None:
        found.append(await client("WaitForReady", where))
        ready.set()

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            async with server("services", "directory", f"--port={port}", "--persistence_file="):
                await ready.wait()
    assert (found[0].code, found[0].out) == (0, "")
    # On a busy machine the directory takes long enough that the client says what it waits for.
    waiting = f"trio-cogment: waiting for the directory: cannot connect to 127.0.0.1:{port}: Connection refused\n"
    assert found[0].err in ("", waiting)


# The process
