"""Search of a client's commands for a service, and how long they wait for it."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner

from tests.cli.process import PATIENCE_SECONDS, Output, environment_variables, listening, run_here
from tests.cli.test_configuration import rows
from tests.ports import free_port
from trio_cogment.base.endpoints import GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.client import reaching
from trio_cogment.cli.client.common import ClientSettings
from trio_cogment.cli.client.directory import directory
from trio_cogment.cli.client.model_registry import model_registry
from trio_cogment.cli.client.reaching import Places, default_places, places_option, reached
from trio_cogment.cli.client.trial_datastore import trial_datastore
from trio_cogment.cli.errors import Failure
from trio_cogment.rpc._pool import Pool
from trio_cogment.servers.datastore import Datastore, datastore_services, open_store
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services

OWN = "grpc://localhost:9005"
SERVE = "grpc://localhost:9000"


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ((), {}, [OWN, SERVE]),
        ((), {"COGMENT_ENDPOINT": "grpc://all:1"}, ["grpc://all:1"]),
        ((), {"COGMENT_ENDPOINT": "grpc://all:1", "COGMENT_DIRECTORY_ENDPOINT": "grpc://one:2"}, ["grpc://one:2"]),
        ((), {"COGMENT_ENDPOINT": "grpc://all:1", "COGMENT_DIRECTORY_ENDPOINT": ""}, ["grpc://all:1"]),
        ((), {"COGMENT_ENDPOINT": ""}, [OWN, SERVE]),
        (("--where=grpc://flag:3",), {"COGMENT_DIRECTORY_ENDPOINT": "grpc://one:2"}, ["grpc://flag:3"]),
    ],
)
def test_a_flag_wins_over_its_variable_which_wins_over_the_one_for_all(
    arguments: tuple[str, ...], variables: dict[str, str], expected: list[str]
) -> None:
    @click.command()
    @places_option("--where", ServiceKind.DIRECTORY, variable="COGMENT_DIRECTORY_ENDPOINT", text="Where.")
    def command(where: Places) -> None:
        click.echo(" ".join(map(str, where)))

    result = CliRunner(env=environment_variables(**variables)).invoke(command, arguments)
    assert result.output.split() == expected
    assert f"{OWN}, then {SERVE}" in CliRunner().invoke(command, ["--help"], terminal_width=200).output


def test_by_default_a_service_is_on_its_own_port_or_on_that_of_serve() -> None:
    for kind, ports in (
        (ServiceKind.DIRECTORY, [9005, 9000]),
        (ServiceKind.DATASTORE, [9003, 9000]),
        (ServiceKind.MODEL_REGISTRY, [9002, 9000]),
        (ServiceKind.LIFECYCLE, [9000]),
    ):
        assert default_places(kind) == [GrpcEndpoint("localhost", port) for port in ports]


@pytest.mark.parametrize(
    ("command", "flag", "kind"),
    [
        (directory, "--directory_endpoint", ServiceKind.DIRECTORY),
        (model_registry, "--endpoint", ServiceKind.MODEL_REGISTRY),
        (trial_datastore, "--endpoint", ServiceKind.DATASTORE),
    ],
)
def test_the_document_says_where_each_command_looks(command: click.Group, flag: str, kind: ServiceKind) -> None:
    documented = {name.partition("`")[0]: row for name, row in rows("Where clients look").items()}
    [option] = [option for option in command.params if option.opts == [flag] and not getattr(option, "hidden", False)]
    variable, for_all = option.envvar or ()
    expected = [f"`{flag}`", f"`{variable}`", ", then ".join(map(str, default_places(kind)))]
    assert documented[f"client {command.name}"] == expected
    assert for_all == "COGMENT_ENDPOINT"


async def found(*endpoints: str, timeout: float = PATIENCE_SECONDS, flag: str = "") -> str:
    """Look for a directory in these places; return where it is."""
    places = [parse_server_endpoint(endpoint) for endpoint in endpoints]
    settings = ClientSettings(timeout_seconds=timeout)
    async with reached(settings, ServiceKind.DIRECTORY, places, flag=flag) as channel:
        return f"grpc://{channel.authority}"


def nowhere() -> str:
    return f"grpc://127.0.0.1:{free_port()}"


async def test_the_own_port_wins_when_both_places_have_the_service() -> None:
    async with (
        DirectoryServer() as server,
        listening(*directory_services(server)) as one,
        listening(*directory_services(server)) as other,
    ):
        assert await found(one, other) == one
        assert await found(other, one) == other
        assert await found(nowhere(), other) == other
        assert await found(one, nowhere()) == one


async def test_a_server_without_the_service_does_not_count(tmp_path: Path) -> None:
    async with (
        ModelRegistry(tmp_path) as registry,
        listening(*model_registry_services(registry)) as without,
        DirectoryServer() as server,
        listening(*directory_services(server)) as having,
    ):
        assert await found(without, having) == having
        assert await found(having, without) == having
        gone = nowhere()
        with pytest.raises(Failure) as caught:
            await found(gone, without, timeout=0.3)
    assert caught.value.message == (
        f"the directory cannot be reached: cannot connect to {gone[7:]}: Connection refused; "
        f"{without} has no directory; waited 0.3 s (--timeout)"
    )


async def test_one_that_comes_later_is_waited_for_in_every_place() -> None:
    for late in (0, 1):
        places = [nowhere(), nowhere()]
        answers: list[str] = []
        answered = trio.Event()

        async def look(places: list[str] = places, answers: list[str] = answers, answered: Any = answered) -> None:
            answers.append(await found(*places))
            answered.set()

        with trio.fail_after(PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery, DirectoryServer() as server:
                nursery.start_soon(look)
                await trio.testing.wait_all_tasks_blocked()
                port = int(places[late].rpartition(":")[2])
                async with listening(*directory_services(server), port=port):
                    await answered.wait()
        assert answers == [places[late]]


async def test_a_long_wait_is_announced_once(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(reaching, "_QUIET_SECONDS", 0.05)
    gone = nowhere()
    with pytest.raises(Failure, match="cannot be reached"):
        await found(gone, timeout=0.5)
    trouble = f"trio-cogment: waiting for the directory: cannot connect to {gone[7:]}: Connection refused"
    assert capsys.readouterr().err == f"{trouble}\n"
    with pytest.raises(Failure, match="cannot be reached"):
        await found(gone, timeout=0.5, flag="--endpoint")
    assert capsys.readouterr().err == f"{trouble}; --endpoint, or COGMENT_ENDPOINT, names another place\n"


async def test_what_waiting_does_not_mend_is_told_at_once() -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, hang_up, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        with trio.fail_after(PATIENCE_SECONDS), pytest.raises(Failure) as caught:
            await found(f"grpc://127.0.0.1:{port}", timeout=10 * PATIENCE_SECONDS)
        nursery.cancel_scope.cancel()
    assert f"the directory at grpc://127.0.0.1:{port} cannot be reached" in caught.value.message
    assert "waited" not in caught.value.message


async def test_a_silent_service_is_not_waited_for_longer_than_the_limit() -> None:
    async with DirectoryServer() as server, listening(*directory_services(server)) as endpoint:
        place = parse_server_endpoint(endpoint)
        with pytest.raises(Failure) as caught:
            async with reached(ClientSettings(timeout_seconds=0.3), ServiceKind.DIRECTORY, [place]):
                await trio.sleep_forever()
    assert caught.value.message == f"the directory at {endpoint} did not answer within 0.3 s (--timeout)"


# The commands

#: What each prints when its service comes up after it was started.
COMMANDS: dict[tuple[str, ...], str] = {
    ("client", "directory", "register", "--host=h", "--port=1", "--type=other", "--permanent"): "Service ID [",
    ("client", "directory", "inquire"): "[1] Services found",
    ("client", "directory", "WaitForReady"): "",
    ("client", "model_registry", "put", "m"): "version 1 of m",
    ("client", "model_registry", "list"): "MODEL",
    ("client", "trial_datastore", "list"): "TRIAL",
    ("status",): "directory\n[",
}


async def test_every_command_waits_for_a_server_that_starts_after_it(tmp_path: Path, monkeypatch: Any) -> None:
    refused = threading.Event()
    failed = Pool._failed

    def failed_and_noted(pool: Pool, error: RpcError) -> None:
        failed(pool, error)
        refused.set()

    monkeypatch.setattr(Pool, "_failed", failed_and_noted)
    port = free_port()
    async with (
        DirectoryServer() as server,
        open_store("memory:") as store,
        Datastore(store) as datastore,
        ModelRegistry(tmp_path) as registry,
    ):
        services = [
            *directory_services(server),
            *datastore_services(datastore),
            *model_registry_services(registry),
        ]
        for command, expected in COMMANDS.items():
            refused.clear()
            done = trio.Event()
            outputs: list[Output] = []

            async def ask(command: Any = command, outputs: Any = outputs, done: Any = done) -> None:
                variables = {"COGMENT_ENDPOINT": f"grpc://127.0.0.1:{port}"}
                outputs.append(await run_here(*command, data=b"x", variables=variables))
                done.set()

            with trio.fail_after(PATIENCE_SECONDS):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask)
                    await trio.to_thread.run_sync(refused.wait)
                    async with listening(*services, port=port):
                        await done.wait()
            [output] = outputs
            assert (output.code, output.err) == (0, ""), command
            assert output.out.startswith(expected), output
