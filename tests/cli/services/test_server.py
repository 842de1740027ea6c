"""The frame that runs any server process, shown by a second service: what an orchestrator has, it has as well."""

from __future__ import annotations

import signal
from pathlib import Path

import grpc
import pytest
import trio
from click.testing import CliRunner
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.cli import tiny
from tests.cli.process import PATIENCE_SECONDS, environment_variables, run, run_main, server
from tests.cli.services.test_directory_access import served
from tests.cli.services.test_operations import scrape
from tests.ports import free_port
from tests.rpc.tls_files import make_party
from trio_cogment.api.common_pb2 import VersionRequest
from trio_cogment.api.directory_pb2 import ServiceEndpoint, ServiceType
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import RpcError
from trio_cogment.cli.services import services
from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.rpc import Channel, client_tls, methods_of
from trio_cogment.testing.fakes.directory import FakeDirectory

MODULE = "tests.cli.tiny"
TINY = ("services", "tiny", "--host=127.0.0.1", "--port=0")
NAMES = {"cogmentAPI.TrialDatastoreSP", "cogmentAPI.DatalogSP"}
REFLECTION = {"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
HEALTH = "grpc.health.v1.Health"
REGISTRATION = "COGMENT_TRIAL_DATASTORE_DIRECTORY_REGISTRATION_"


async def versions(channel: Channel) -> set[str]:
    reply = await channel.unary(methods_of(tiny.STORE)["Version"], VersionRequest())
    return {entry.name for entry in reply.versions}


def health(port: int) -> dict[str, object]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return {
            name: stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_SECONDS).status
            for name in ("", *NAMES)
        }


def reflected(port: int) -> set[str]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        return set(ProtoReflectionDescriptorDatabase(channel).get_services())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_it_serves_until_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    said = tmp_path / "said"
    async with server(*TINY, f"--said={said}", module=MODULE) as running:
        assert running.out == f"tiny listening on 127.0.0.1:{running.port} (TrialDatastoreSP, DatalogSP)\n"
        with trio.fail_after(PATIENCE_SECONDS):
            async with Channel("127.0.0.1", running.port) as channel:
                assert "trio-cogment" in await versions(channel)
            assert await trio.to_thread.run_sync(health, running.port) == dict.fromkeys(["", *NAMES], 1)
            assert await trio.to_thread.run_sync(reflected, running.port) == {*NAMES, HEALTH, *REFLECTION}
            assert await running.stop(number) == 0, running.err
    assert said.read_text() == " stopped"
    assert "Traceback" not in running.err


async def test_it_is_registered_once_for_each_kind_and_has_metrics(tmp_path: Path) -> None:
    fake, said = FakeDirectory(check_services=True), tmp_path / "said"
    metrics = free_port()
    variables = {
        "COGMENT_TRIAL_DATASTORE_PORT": "0",
        "COGMENT_TRIAL_DATASTORE_PROMETHEUS_PORT": str(metrics),
        f"{REGISTRATION}HOST": "127.0.0.1",
        f"{REGISTRATION}PROPERTIES": "zone=a",
        # Those of an orchestrator concern nobody else.
        "PROMETHEUS_PORT": "1",
        "COGMENT_ORCHESTRATOR_DIRECTORY_REGISTRATION_HOST": "elsewhere",
        "COGMENT_ORCHESTRATOR_DIRECTORY_AUTO_REGISTER": "false",
    }
    with trio.fail_after(PATIENCE_SECONDS):
        async with served(fake) as directory:
            arguments = ("services", "small", f"--said={said}", f"--directory_endpoint={directory}")
            async with server(*arguments, variables=variables, module=MODULE) as running:
                await fake.wait_until(lambda: len(fake.entries) == 2)
                shown = [entry.data for entry in fake.entries.values()]
                async with Channel("127.0.0.1", running.port) as channel:
                    assert await versions(channel)
                    figures = await scrape(metrics)
                await running.stop()
    assert [data.details.type for data in shown] == [ServiceType.DATASTORE_SERVICE, ServiceType.DATALOG_SERVICE]
    for data in shown:
        assert data.endpoint == ServiceEndpoint(protocol=ServiceEndpoint.GRPC, host="127.0.0.1", port=running.port)
        assert data.details.properties["zone"] == "a"
    assert not fake.entries
    assert said.read_text() == "directory registry stopped"
    assert figures["process_cpu_seconds_total"] > 0
    assert figures["grpc_server_handled_total OK Version cogmentAPI.TrialDatastoreSP unary"] == 1
    assert figures["grpc_server_started_total Version cogmentAPI.DatalogSP unary"] == 0
    assert not any(name.startswith("orchestrator_") for name in figures)


async def test_it_can_have_tls_and_do_without_reflection(tmp_path: Path) -> None:
    party, said = make_party(tmp_path, "us", "localhost", "127.0.0.1"), tmp_path / "said"
    tls = {
        "COGMENT_PRIVATE_KEY_FILE": str(party.key),
        "COGMENT_ROOT_CERT_FILE": str(party.roots),
        "COGMENT_TRUST_CHAIN_FILE": str(party.chain),
    }
    ours = client_tls(party.roots, certificate=party.chain, key=party.key)
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*TINY, f"--said={said}", variables=tls, module=MODULE) as running:
            async with Channel("127.0.0.1", running.port, tls=ours) as channel:
                assert await versions(channel)
            async with Channel("127.0.0.1", running.port) as channel:
                with pytest.raises(RpcError):
                    await versions(channel)
        assert said.read_text() == "client_tls"
        async with server(*TINY, "--grpc_reflection=false", module=MODULE) as running:
            assert await trio.to_thread.run_sync(health, running.port) == dict.fromkeys(["", *NAMES], 1)
            with pytest.raises(grpc.RpcError) as caught:
                await trio.to_thread.run_sync(reflected, running.port)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("check", "--broken: so it is"),
        ("open", "the store is of a newer version"),
        ("inside", "the store is locked"),
    ],
)
def test_what_prevents_its_start_is_one_line(broken: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "commands", {**services.commands, "tiny": tiny.tiny})
    output = run_main(*TINY, f"--broken={broken}")
    assert (output.code, output.err) == (1, f"trio-cogment: {expected}\n")
    assert not output.out  # nothing is announced that does not serve


async def test_a_bug_shows_where_it_is() -> None:
    output = await run(*TINY, "--broken=bug", module=MODULE)
    assert output.code == 1
    assert "RuntimeError: never thought of" in output.err
    assert "Traceback" in output.err


# Its flags


def settings(monkeypatch: pytest.MonkeyPatch, *arguments: str, **variables: str) -> tuple[ServerSettings, list[int]]:
    """Return what the service would run with, and its ports."""
    found: list[tuple[ServerSettings, list[int]]] = []
    monkeypatch.setattr(tiny, "run_server", lambda settings, application: found.append((settings, application.ports)))
    monkeypatch.setattr(services, "commands", {**services.commands, "tiny": tiny.tiny})
    ours = environment_variables(**variables)
    result = CliRunner(env=ours).invoke(services, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_flags_and_their_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    found, ports = settings(monkeypatch, "tiny")
    assert ports == [9003]
    assert (found.hosts, found.prometheus_port, found.status_file) == (["0.0.0.0"], 0, None)
    assert (found.grpc_reflection, found.tls, found.directory, found.log.level) == (True, None, None, "info")
    prefix = "COGMENT_TRIAL_DATASTORE_"
    variables = {
        f"{prefix}PORT": "1",
        f"{prefix}GRPC_REFLECTION": "false",
        f"{prefix}PROMETHEUS_PORT": "2",
        "COGMENT_DIRECTORY_ENDPOINT": "grpc://d:1",
        f"{prefix}DIRECTORY_REGISTRATION_HOST": "h",
        f"{prefix}DIRECTORY_AUTO_REGISTER": "false",
        "COGMENT_LOG_LEVEL": "debug",
    }
    found, ports = settings(monkeypatch, "tiny", **variables)
    assert (ports, found.grpc_reflection, found.prometheus_port, found.log.level) == ([1], False, 2, "debug")
    assert found.directory is not None
    assert (found.directory.endpoint, found.directory.host) == (GrpcEndpoint("d", 1), "h")
    assert not found.directory.auto_register
    flags = ("--log_level=error", "tiny", "--port=3", "--grpc_reflection", "--prometheus_port=4", "--host=a,b")
    found, ports = settings(monkeypatch, *flags, **variables)
    assert (ports, found.grpc_reflection, found.prometheus_port, found.hosts) == ([3], True, 4, ["a", "b"])
    assert found.log.level == "error"
    found, _ = settings(monkeypatch, "--log_level=error", "tiny", "--log_level=off")
    assert found.log.level == "off"
