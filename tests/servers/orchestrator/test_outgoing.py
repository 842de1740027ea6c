"""Endpoints in the parameters of trials, and whose they are."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from trio_cogment.api import orchestrator_pb2
from trio_cogment.api.common_pb2 import EnvironmentParams, TrialParams
from trio_cogment.api.orchestrator_pb2 import TrialStartRequest
from trio_cogment.base.config import OrchestratorConfig, OutgoingConfig, RpcConfig
from trio_cogment.base.errors import CogmentError, RpcError
from trio_cogment.base.host import Host
from trio_cogment.rpc import methods_of, open_channel, open_listeners, serve
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services

PEER = "203.0.113.7"
METHODS = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name["TrialLifecycleSP"])
FAST = RpcConfig(await_server_seconds=0.0, connect_timeout_seconds=2.0)


class Target:
    """A service of this machine that only its own programs should reach; counts who connects."""

    def __init__(self) -> None:
        self.visitors = 0
        self.port = 0

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async def visited(stream: trio.SocketStream) -> None:
            self.visitors += 1
            await stream.aclose()

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(visited, listeners)


@asynccontextmanager
async def attacked(**outgoing: tuple[str, ...]) -> AsyncIterator[tuple[Orchestrator, Target]]:
    target = Target()
    config = OrchestratorConfig(farewell_seconds=0.2)
    async with trio.open_nursery() as nursery:
        await nursery.start(target.run)
        async with Orchestrator(config=config, rpc_config=FAST, outgoing=OutgoingConfig(**outgoing)) as orchestrator:
            yield orchestrator, target
        nursery.cancel_scope.cancel()


def params(target: Target, where: str, host: str = "127.0.0.1") -> TrialParams:
    endpoint, nobody = f"grpc://{host}:{target.port}", "grpc://127.0.0.1:1"
    found = TrialParams(environment=EnvironmentParams(name="env", endpoint=nobody))
    found.actors.add(name="a", actor_class="c", endpoint=nobody, optional=True)
    if where == "environment":
        found.environment.endpoint = endpoint
    elif where == "actor":
        found.actors[0].endpoint = endpoint
    else:
        found.datalog.endpoint = endpoint
    return found


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110  what others do over sockets sets no event here
            await trio.sleep(0.01)


async def try_it(orchestrator: Orchestrator, given: TrialParams, reach: str | None) -> str:
    """Start a trial and wait for its end; return what whoever started it is told."""
    try:
        trial_id = await orchestrator.start_trial(params=given, reach=reach)
    except CogmentError as error:
        return str(error)
    await until(lambda: not orchestrator.running_trials)
    (trial,) = orchestrator.known([trial_id])
    return str(trial.info())


@pytest.mark.parametrize("where", ["environment", "actor", "datalog"])
async def test_a_peer_elsewhere_cannot_look_around_on_this_machine(where: str) -> None:
    async with attacked() as (orchestrator, target):
        told = await try_it(orchestrator, params(target, where), PEER)
        assert target.visitors == 0
        assert "refused" not in told.lower()
    async with attacked() as (orchestrator, target):
        await try_it(orchestrator, params(target, where), None)
        assert target.visitors > 0


async def test_a_name_is_judged_by_its_address() -> None:
    async with attacked() as (orchestrator, target):
        await try_it(orchestrator, params(target, "environment", "localhost"), PEER)
        assert target.visitors == 0


async def test_default_parameters_are_the_operator_s() -> None:
    async with attacked() as (orchestrator, target):
        orchestrator.default_params.CopyFrom(params(target, "environment"))
        await orchestrator.start_trial(reach=PEER)
        await until(lambda: target.visitors > 0)


async def test_a_network_may_be_allowed() -> None:
    async with attacked(allowed_networks=("127.0.0.0/8",)) as (orchestrator, target):
        await try_it(orchestrator, params(target, "environment"), PEER)
        assert target.visitors > 0


async def test_old_servers_are_not_for_peers_elsewhere() -> None:
    async with attacked() as (orchestrator, target):
        given = params(target, "environment")
        given.environment.endpoint = "legacy://127.0.0.1:9000"
        with pytest.raises(CogmentError, match="only callers on the orchestrator's machine"):
            await orchestrator.start_trial(params=given, reach=PEER)


def own_address() -> str:
    """Return an address of this machine that is not a loopback address; empty: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
    return "" if address.startswith("127.") else address


async def test_over_the_wire_a_caller_is_judged_by_its_address() -> None:
    """Where this machine has no other address, a caller of this machine is all that can be shown."""
    address = own_address()
    async with attacked() as (orchestrator, target), trio.open_nursery() as nursery:
        listeners = await open_listeners(address or "127.0.0.1")
        running = await nursery.start(serve, orchestrator_services(orchestrator), listeners)
        async with open_channel(Host(), address or "127.0.0.1", running.port) as channel:
            request = TrialStartRequest(params=params(target, "environment"))
            with suppress(RpcError):
                await channel.unary(METHODS["StartTrial"], request)
            await until(lambda: not orchestrator.running_trials)
        assert bool(target.visitors) == (not address)
        nursery.cancel_scope.cancel()
