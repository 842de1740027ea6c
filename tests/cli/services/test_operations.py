"""Operations of a server: metrics, ports, restarts, parameters checked at the start, an orderly stop."""

from __future__ import annotations

import signal
import socket
import urllib.request
from functools import partial
from pathlib import Path

import grpc
import pytest
import trio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.process import PATIENCE_SECONDS, Endless, run_main, server
from tests.ports import free_port
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel
from trio_cogment.sdk import Controller, actor_params, join_trial, trial_params

SERVE = ("serve", "--host=127.0.0.1", "--port=0")
LIFECYCLE = "cogmentAPI.TrialLifecycleSP"
CLIENT_ACTOR = "cogmentAPI.ClientActorSP"
STANDARD = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}


async def scrape(port: int) -> dict[str, float]:
    """Return the values of all metrics, by name and the values of the labels, in the order of their names."""

    def fetch() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as response:
            text: bytes = response.read()
            return text.decode()

    families = text_string_to_metric_families(await trio.to_thread.run_sync(fetch))
    samples = [sample for family in families for sample in family.samples]
    return {
        " ".join([sample.name, *(value for _, value in sorted(sample.labels.items()))]): sample.value
        for sample in samples
    }


@pytest.mark.parametrize("where", ["flag", "environment", "old name"])
async def test_metrics_of_running_trials(where: str) -> None:
    port, endless = free_port(), Endless()
    names = {"environment": "COGMENT_ORCHESTRATOR_PROMETHEUS_PORT", "old name": "PROMETHEUS_PORT"}
    arguments = (*SERVE, f"--prometheus_port={port}") if where == "flag" else SERVE
    variables = {} if where == "flag" else {names[where]: str(port)}
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*arguments, variables=variables) as running,
            endless.served() as endpoint,
            Channel("127.0.0.1", running.port) as channel,
        ):
            before = await scrape(port)
            assert before["orchestrator_trials RUNNING"] == 0
            assert before["orchestrator_tick_duration_seconds_count"] == 0
            controller = Controller(channel)
            params = trial_params([actor_params("a", "cls", endpoint=endpoint)], environment_endpoint=endpoint)
            trials = [await controller.start_trial(params) for _ in range(2)]
            await endless.wait_running(trials)
            during = await scrape(port)
            assert during["orchestrator_trials RUNNING"] == 2
            assert during["orchestrator_tick_duration_seconds_count"] >= 4
            assert during["orchestrator_tick_latency_seconds_count"] >= 6
            assert during["orchestrator_actor_latency_seconds_count cls"] >= 6
            assert during["process_cpu_seconds_total"] > 0
            await controller.terminate_trial(trials[:1], hard=True)
            after = await scrape(port)
            assert (after["orchestrator_trials RUNNING"], after["orchestrator_trials ENDED"]) == (1, 1)
            assert after["orchestrator_trial_duration_seconds_count"] == 1
            await running.stop()
            assert running.process.returncode == 0, running.err


def test_a_metrics_port_that_is_taken_prevents_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        output = run_main(*SERVE, f"--prometheus_port={taken.getsockname()[1]}")
    assert output.code == 1
    (line,) = output.err.splitlines()
    assert line.startswith("trio-cogment: cannot listen on ipv4:127.0.0.1:")


def described(port: int) -> tuple[set[str], dict[str, object]]:
    """Return the services a server reflects, and how it says that the two of an orchestrator are."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub, healths = health_pb2_grpc.HealthStub(channel), {}
        for name in ("", LIFECYCLE, CLIENT_ACTOR):
            try:
                reply = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_SECONDS)
                healths[name] = reply.status
            except grpc.RpcError as error:
                healths[name] = error.code()
        return set(ProtoReflectionDescriptorDatabase(channel).get_services()), healths


async def test_each_of_two_servers_speaks_for_itself() -> None:
    port = free_port()
    arguments = ("services", "orchestrator", "--host=127.0.0.1", "--lifecycle_port=0", f"--actor_port={port}")
    serving, unknown = health_pb2.HealthCheckResponse.SERVING, grpc.StatusCode.NOT_FOUND
    async with server(*arguments, addresses=2) as running:
        services, healths = await trio.to_thread.run_sync(described, running.addresses[0][1])
        assert services == {LIFECYCLE, *STANDARD}
        assert healths == {"": serving, LIFECYCLE: serving, CLIENT_ACTOR: unknown}
        services, healths = await trio.to_thread.run_sync(described, running.addresses[1][1])
        assert services == {CLIENT_ACTOR, *STANDARD}
        assert healths == {"": serving, LIFECYCLE: unknown, CLIENT_ACTOR: serving}


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
async def test_ipv6_when_it_is_asked_for() -> None:
    async with server("serve", "--host=127.0.0.1,::1", "--port=0", addresses=2) as running:
        assert [host for host, _, _ in running.addresses] == ["127.0.0.1", "[::1]"]
        assert len({port for _, port, _ in running.addresses}) == 1
        with trio.fail_after(PATIENCE_SECONDS):
            async with Channel("::1", running.port) as channel:
                assert list(await Controller(channel).trial_infos()) == []
        await running.stop()


async def test_a_restart_on_the_same_port_with_live_connections() -> None:
    """The first server's connections are still open when it stops: TIME_WAIT is on its side."""
    endless = Endless()
    with trio.fail_after(PATIENCE_SECONDS):
        async with endless.served() as endpoint, Channel("127.0.0.1", free_port()) as channel:
            port = int(channel.authority.rpartition(":")[2])
            controller = Controller(channel)
            for _ in range(2):
                async with server("serve", "--host=127.0.0.1", f"--port={port}") as running, trio.open_nursery() as n:
                    actors = [actor_params("joined", "c", endpoint=CLIENT)]
                    trial_id = await start_when_ready(controller, trial_params(actors, environment_endpoint=endpoint))
                    join = partial(join_trial, actor_name="joined")
                    n.start_soon(join, channel, trial_id, endless.actor)
                    await endless.wait_running([trial_id])
                    await running.stop()
                    assert running.process.returncode == 0, running.err


async def start_when_ready(controller: Controller, params: TrialParams) -> str:
    """Start a trial; the channel may still believe that nobody is there."""
    while True:
        try:
            return await controller.start_trial(params)
        except RpcError as error:
            if error.code is not StatusCode.UNAVAILABLE:
                raise
            await trio.sleep(0.05)


PARAMS = "trial_params: {{environment: {{endpoint: 'grpc://h:1'}}, actors: [{{{}}}]}}"


@pytest.mark.parametrize(
    ("actor", "expected"),
    [
        ("actor_class: c", "trial_params.actors[0].name: it must not be empty"),
        ("name: env, actor_class: c", "trial_params.actors[0].name: 'env' is the environment's name"),
        ("name: a, actor_class: c, response_timeout: -1", "trial_params.actors[0].response_timeout: seconds"),
    ],
)
def test_params_with_which_no_trial_could_start(actor: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS.format(actor))
    output = run_main(*SERVE, f"--params={path}")
    assert (output.code, output.out) == (1, "")
    (line,) = output.err.splitlines()
    assert line.startswith(f"trio-cogment: --params: {path}: {expected}")


@pytest.mark.parametrize(
    ("text", "hooks", "expected"),
    [
        (PARAMS.format("actor_class: c"), ["--pre_trial_hooks=grpc://h:1"], "actors[0].name: it must not be empty"),
        ("other: 1", [], "trial_params.actors: at least one actor was expected"),
    ],
)
async def test_params_that_may_be_mended_only_warn(text: str, hooks: list[str], expected: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    async with server(*SERVE, f"--params={path}", *hooks) as running:
        await running.stop()
        assert running.process.returncode == 0
    (line,) = [line for line in running.err.splitlines() if "WARNING" in line]
    assert f"--params: {path}: " in line
    assert expected in line


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("cogment://runner", "'cogment://runner': expected cogment://client or cogment://discover"),
        ("cogment://discover/nothing", "'cogment://discover/nothing': expected a path among actor, environment"),
        ("http://h:1", "'http://h:1': expected grpc://host:port"),
        ("''", "cogment://discover"),
    ],
)
async def test_an_endpoint_that_leads_nowhere_fails_the_trial_that_needs_it(
    endpoint: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS.format(f"name: a, actor_class: c, endpoint: {endpoint}"))
    async with server(*SERVE, f"--params={path}") as running:
        with trio.fail_after(PATIENCE_SECONDS):
            async with Channel("127.0.0.1", running.port) as channel:
                for _ in range(2):
                    with pytest.raises(RpcError) as caught:
                        await Controller(channel).start_trial()
                    assert f"actors[0].endpoint (actor 'a'): {problem}" in caught.value.message
        assert await running.stop() == 0
    (line,) = [line for line in running.err.splitlines() if "WARNING" in line and "--params" in line]
    assert f"--params: {path}: trial_params.actors[0].endpoint: {problem}" in line
    assert line.endswith("; trials that need it fail")


async def test_a_stop_closes_connections_in_order() -> None:
    """Who has no call running is told to go elsewhere (GOAWAY), not cut off."""
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE) as running:
            async with await trio.open_tcp_stream("127.0.0.1", running.port) as stream:
                await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
                data = await stream.receive_some()
                running.process.send_signal(signal.SIGTERM)
                data += b"".join([part async for part in stream])
            await running.process.wait()
    frames = {}
    while data:
        length, kind = int.from_bytes(data[:3], "big"), data[3]
        frames[kind] = data[9 : 9 + length]
        data = data[9 + length :]
    goaway = frames[7]
    assert int.from_bytes(goaway[4:8], "big") == 0  # NO_ERROR
    assert running.process.returncode == 0


async def test_a_status_file_of_a_stopped_server_ends_with_t(tmp_path: Path) -> None:
    status = tmp_path / "status"
    async with server(*SERVE, f"--status_file={status}") as running:
        await running.wait_serving()
        assert status.read_bytes() == b"IR"
        await running.stop(signal.SIGINT)
    assert status.read_bytes() == b"IRT"
