"""The flags about the directory; and a server as a process that is registered while it serves."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner

from tests.cli.process import PATIENCE_SECONDS, Endless, run_main, server
from tests.ports import free_port
from tests.rpc.tls_files import make_party
from trio_cogment._version import __version__
from trio_cogment.api.directory_pb2 import DeregisterRequest, RegisterRequest, ServiceEndpoint, ServiceType
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.services.directory_flags import DirectorySettings, directory_options, directory_settings
from trio_cogment.rpc import Channel, open_listeners, serve, server_tls
from trio_cogment.sdk import Controller, Participants, actor_params, serve_participants, trial_params
from trio_cogment.servers.discovery import open_directory, own_address
from trio_cogment.testing.fakes.directory import FakeDirectory

ENDPOINT = "grpc://localhost:9005"
LOCAL = GrpcEndpoint("localhost", 9005)
PREFIX = "COGMENT_ORCHESTRATOR_DIRECTORY_"
PARTICIPANTS = (ServiceType.ACTOR_SERVICE, ServiceType.ENVIRONMENT_SERVICE)
BOTH = (ServiceType.CLIENT_ACTOR_CONNECTION_SERVICE, ServiceType.TRIAL_LIFE_CYCLE_SERVICE)


def settings_of(*arguments: str, **variables: str) -> DirectorySettings | str | None:
    """Return what the flags and variables come to, or the complaint about them."""

    @click.command()
    @directory_options("ORCHESTRATOR")
    @click.pass_context
    def command(ctx: click.Context, /, **_options: Any) -> None:
        found.append(directory_settings(ctx))

    found: list[DirectorySettings | None] = []
    result = CliRunner().invoke(command, arguments, env=variables)
    return found[0] if found else result.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ([], {}, None),
        (["--directory_registration_host=h"], {}, None),
        ([f"--directory_endpoint={ENDPOINT}"], {}, {}),
        ([], {"COGMENT_DIRECTORY_ENDPOINT": ENDPOINT}, {}),
        (
            ["--directory_endpoint=grpc://h:1"],
            {"COGMENT_DIRECTORY_ENDPOINT": ENDPOINT},
            {"endpoint": GrpcEndpoint("h", 1)},
        ),
        ([], {"COGMENT_DIRECTORY_ENDPOINT": ""}, None),
        (["--directory_endpoint="], {"COGMENT_DIRECTORY_ENDPOINT": ENDPOINT}, None),
        # tokens
        ([f"--directory_endpoint={ENDPOINT}", "--directory_authentication_token=t"], {}, {"token": "t"}),
        ([f"--directory_endpoint={ENDPOINT}"], {"COGMENT_DIRECTORY_AUTHENTICATION_TOKEN": "u"}, {"token": "u"}),
        # auto_register
        ([f"--directory_endpoint={ENDPOINT}", "--directory_auto_register"], {}, {}),
        ([f"--directory_endpoint={ENDPOINT}", "--directory_auto_register=0"], {}, {"auto_register": False}),
        ([f"--directory_endpoint={ENDPOINT}"], {f"{PREFIX}AUTO_REGISTER": "false"}, {"auto_register": False}),
        ([f"--directory_endpoint={ENDPOINT}"], {f"{PREFIX}AUTO_REGISTER": ""}, {}),
        (["--directory_auto_register", f"--directory_endpoint={ENDPOINT}"], {f"{PREFIX}AUTO_REGISTER": "0"}, {}),
        # host
        ([f"--directory_endpoint={ENDPOINT}", "--directory_registration_host=h"], {}, {"host": "h"}),
        ([f"--directory_endpoint={ENDPOINT}"], {f"{PREFIX}REGISTRATION_HOST": "h"}, {"host": "h"}),
        # properties
        (
            [f"--directory_endpoint={ENDPOINT}", "--directory_registration_properties=a=1, b ,c=,"],
            {},
            {"properties": {"a": "1", "b": "", "c": ""}},
        ),
        (
            [
                f"--directory_endpoint={ENDPOINT}",
                "--directory_registration_properties=a=1",
                "--directory_registration_properties=b=2,a=3",
            ],
            {f"{PREFIX}REGISTRATION_PROPERTIES": "z=1"},
            {"properties": {"a": "3", "b": "2"}},
        ),
        (
            [f"--directory_endpoint={ENDPOINT}"],
            {f"{PREFIX}REGISTRATION_PROPERTIES": "site = north wing, hpp"},
            {"properties": {"site": "north wing", "hpp": ""}},
        ),
    ],
)
def test_flags_and_their_twins(
    arguments: list[str], variables: dict[str, str], expected: dict[str, Any] | None
) -> None:
    if expected is not None:
        assert settings_of(*arguments, **variables) == DirectorySettings(**{"endpoint": LOCAL, **expected})
    else:
        assert settings_of(*arguments, **variables) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--directory_endpoint=localhost:9005"], "'localhost:9005': expected grpc://host:port"),
        (["--directory_endpoint=cogment://discover"], "expected grpc://host:port"),
        (["--directory_endpoint=grpc://h:0"], "expected grpc://host:port with a port from 1 to 65535"),
        (["--directory_authentication_token=se cret"], "expected printable ASCII without blanks"),
        (["--directory_auto_register=maybe"], "'maybe' is not a valid boolean"),
        (["--directory_registration_properties=a=b=c"], "expected name=value,name,..., got 'a=b=c'"),
        (["--directory_registration_properties==c"], "expected name=value,name,..., got '=c'"),
    ],
)
def test_bad_values_are_named(arguments: list[str], said: str) -> None:
    complaint = settings_of(*arguments)
    assert isinstance(complaint, str)
    assert said in complaint
    assert arguments[0].partition("=")[0] in complaint
    assert "cret" not in complaint


def test_the_token_is_not_shown() -> None:
    settings = settings_of(f"--directory_endpoint={ENDPOINT}", "--directory_authentication_token=secret")
    assert "secret" not in repr(settings)


def test_a_hook_to_be_discovered_needs_a_directory() -> None:
    output = run_main("serve", "--port=0", "--pre_trial_hooks=cogment://discover/prehook")
    assert output.code == 1
    assert "pre_trial_hooks[0]" in output.err
    assert "--directory_endpoint" in output.err


# Processes


@asynccontextmanager
async def served(fake: FakeDirectory, port: int = 0) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [fake.service()], await open_listeners("127.0.0.1", port))
        yield f"grpc://127.0.0.1:{serving.port}"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_an_orchestrator_is_registered_while_it_serves(number: signal.Signals) -> None:
    fake = FakeDirectory(check_services=True)
    variables = {
        "COGMENT_DIRECTORY_AUTHENTICATION_TOKEN": "t",
        f"{PREFIX}REGISTRATION_PROPERTIES": "zone=a,__version=mine",
    }
    ports = ("services", "orchestrator", "--lifecycle_port=0", f"--actor_port={free_port()}")
    host = "--directory_registration_host=127.0.0.1"
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            served(fake) as endpoint,
            server(*ports, f"--directory_endpoint={endpoint}", host, addresses=2, variables=variables) as running,
        ):
            await fake.wait_until(lambda: len(fake.requests) >= 2 and len(fake.entries) == 2)
            lifecycle, actor = (port for _, port, _ in running.addresses)
            shown = [(entry.data, entry.hidden) for entry in fake.entries.values()]
            assert await running.stop(number) == 0, running.err
    assert [(data.details.type, data.endpoint.port) for data, _ in shown] == list(
        zip(BOTH, (actor, lifecycle), strict=True)
    )
    for data, _ in shown:
        assert (data.endpoint.protocol, data.endpoint.host) == (ServiceEndpoint.GRPC, "127.0.0.1")
        properties = {"__version": "mine", "__registration_source": "Self-Command_Line", "zone": "a"}
        assert dict(data.details.properties) == properties
    assert not shown[0][1]  # the directory called, and it answered
    registered = [request for request in fake.requests if isinstance(request.message, RegisterRequest)]
    taken_back = [request.message for request in fake.requests if isinstance(request.message, DeregisterRequest)]
    assert {request.token for request in fake.requests} == {"t"}
    assert len(registered) == 2
    assert [message.service_id for message in taken_back] == [data.service_id for data, _ in shown]
    assert not fake.entries
    assert "Traceback" not in running.err


async def test_it_is_found_at_its_own_address_without_further_flags(tmp_path: Path) -> None:
    fake = FakeDirectory()
    log = tmp_path / "log"
    with trio.fail_after(PATIENCE_SECONDS):
        async with served(fake) as endpoint:
            for host, expected in (("0.0.0.0", await own_address()), ("127.0.0.1", "127.0.0.1")):
                arguments = ("serve", f"--host={host}", "--port=0", f"--log_file={log}")
                async with server(*arguments, variables={"COGMENT_DIRECTORY_ENDPOINT": endpoint}) as running:
                    await fake.wait_until(lambda: len(fake.entries) == 2)
                    for entry in fake.entries.values():
                        endpoint_of_it = ServiceEndpoint(
                            host=expected, port=running.port, protocol=ServiceEndpoint.GRPC
                        )
                        assert entry.data.endpoint == endpoint_of_it
                        assert dict(entry.data.details.properties) == {
                            "__version": __version__,
                            "__registration_source": "Self-Implicit",
                        }
                    await running.stop()
                assert not fake.entries
    assert all(json.loads(line) for line in log.read_text().splitlines())


async def test_not_registering_is_possible() -> None:
    fake = FakeDirectory()
    async with (
        served(fake) as endpoint,
        server("serve", "--port=0", f"--directory_endpoint={endpoint}", "--directory_auto_register=false") as running,
        Channel("127.0.0.1", running.port) as channel,
    ):
        await Controller(channel).trial_infos()
        await running.stop()
    assert not fake.requests


async def test_a_directory_that_is_not_there_stops_nothing() -> None:
    """Neither starting, nor a trial that needs no directory, nor stopping; and when it comes, it is used."""
    port, fake, endless = free_port(), FakeDirectory(), Endless()
    flags = ("serve", "--port=0", f"--directory_endpoint=grpc://127.0.0.1:{port}")
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*flags) as running,
            endless.served() as endpoint,
            Channel("127.0.0.1", running.port) as channel,
        ):
            controller = Controller(channel)
            params = trial_params([actor_params("a", "c", endpoint=endpoint)], environment_endpoint=endpoint)
            await endless.wait_running([await controller.start_trial(params)])
            async with served(fake, port):
                await fake.wait_until(lambda: len(fake.entries) == 2)
            assert await running.stop() == 0, running.err
    assert "cannot be reached" in running.err
    assert "Traceback" not in running.err


@pytest.mark.parametrize("hanging", [{"Deregister", "Inquire"}, {"Register"}], ids=["leaving", "registering"])
async def test_a_directory_that_hangs_does_not_hold_up_a_stop(hanging: set[str]) -> None:
    fake, endless = FakeDirectory(), Endless()
    fake.hanging = hanging - {"Deregister"}
    async with (
        served(fake) as directory,
        endless.served() as endpoint,
        server("serve", "--port=0", f"--directory_endpoint={directory}") as running,
    ):
        with trio.fail_after(PATIENCE_SECONDS):
            await fake.wait_until(lambda: bool(fake.requests) and ("Register" in hanging or len(fake.entries) == 2))
            fake.hanging = hanging
            async with Channel("127.0.0.1", running.port) as channel:
                params = trial_params([actor_params("a", "c", endpoint=endpoint)], environment_endpoint=endpoint)
                trial = await Controller(channel).start_trial(params)
                await endless.wait_running([trial])
                assert await running.stop() == 0, running.err
    assert endless.details[trial] == dict.fromkeys(["env", "a"], "the orchestrator is stopping")
    assert ("services may still be registered" in running.err) == ("Deregister" in hanging)
    assert "Traceback" not in running.err


async def test_with_tls_everything_has_it_and_files_may_say_it_all(tmp_path: Path) -> None:
    fake, party = FakeDirectory(), make_party(tmp_path, "us", "localhost", "127.0.0.1")
    config = tmp_path / "config.yaml"
    tls = server_tls(party.chain, party.key, client_roots=party.roots)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1", tls=tls)
            serving = await nursery.start(serve, [fake.service()], listeners)
            config.write_text(
                f"directory_endpoint: grpc://localhost:{serving.port}\n"
                "directory_registration_host: us.example\n"
                "directory_registration_properties: [a=1, b]\n"
                f"private_key: {party.key}\nroot_cert: {party.roots}\ntrust_chain: {party.chain}\n"
                "directory: {check_interval_seconds: 0.05}\n"
            )
            async with server("serve", "--port=0", f"--config={config}") as running:
                await fake.wait_until(lambda: fake.methods().count("Inquire") > 4)
                assert len(fake.entries) == 2
                for entry in fake.entries.values():
                    endpoint = ServiceEndpoint(protocol=ServiceEndpoint.GRPC_SSL, host="us.example", port=running.port)
                    assert entry.data.endpoint == endpoint
                    properties = dict(entry.data.details.properties)
                    assert (properties["a"], properties["b"]) == ("1", "")
                await running.stop()
            nursery.cancel_scope.cancel()
    assert running.process.returncode == 0, running.err
    assert not fake.entries


async def test_a_trial_over_sockets_that_everybody_finds_through_the_directory() -> None:
    """A server finds participants, which find nobody: they are registered; and a controller finds the server."""
    fake, endless = FakeDirectory(), Endless()
    participants = Participants()
    participants.register_environment(endless.environment, "world")
    participants.register_actor(endless.actor, "endless", ["player"])
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            served(fake) as endpoint,
            server("serve", "--host=127.0.0.1", "--port=0", f"--directory_endpoint={endpoint}") as running,
            open_directory(endpoint) as directory,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(
                partial(
                    serve_participants,
                    participants,
                    address="127.0.0.1",
                    directory=directory,
                    registration_host="127.0.0.1",
                )
            )
            await fake.wait_until(lambda: len(fake.entries) == 4)
            found = await directory.find("cogment://discover", ServiceKind.LIFECYCLE)
            assert found.endpoint == GrpcEndpoint("127.0.0.1", running.port)
            async with Channel(found.endpoint.host, found.endpoint.port) as channel:
                controller = Controller(channel)
                trial = await controller.start_trial(trial_params([actor_params("a", "player")], environment="world"))
                await endless.wait_running([trial])
                await controller.terminate_trial(trial, hard=True)
            await running.stop()
            assert {entry.data.details.type for entry in fake.entries.values()} == set(PARTICIPANTS)
            nursery.cancel_scope.cancel()
        assert not fake.entries
