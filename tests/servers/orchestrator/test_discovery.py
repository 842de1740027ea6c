"""Trials whose participants a directory knows; and what becomes of a start when it does not."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
from purerpc import Service

from tests.access.keys import control
from tests.helpers import Bench, HookScript, RunTrial, Script, actor_that_acts, bench, environment_of, params_of
from tests.rpc.tls_files import Party, make_party
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.directory_pb2 import InquireRequest, ServiceEndpoint, ServiceType
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.config import DirectoryConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import (
    CallOpener,
    InProcessChannel,
    ServerCall,
    client_tls,
    open_listeners,
    serve,
    serve_stream,
    server_tls,
)
from trio_cogment.sdk import EventType, actor_params, join_trial, trial_params
from trio_cogment.servers.discovery import DirectoryClient
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services
from trio_cogment.testing.fakes.directory import FakeDirectory

Clock = trio.testing.MockClock
PATIENCE_SECONDS = 60
ENVIRONMENT, ACTOR = ServiceType.ENVIRONMENT_SERVICE, ServiceType.ACTOR_SERVICE
PLAYER = {"__actor_class": "player"}


class Net:
    """Hosts in memory: each serves what it was given, and remembers how often it was dialled."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._hosts: dict[str, list[Service]] = {}
        self.dialled: list[str] = []

    def host(self, name: str, *services: Service) -> None:
        self._hosts[name] = list(services)

    async def connect(self, host: str, _port: int) -> trio.abc.Stream:
        self.dialled.append(host)
        if host not in self._hosts:
            raise OSError("no such host")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(serve_stream, self._hosts[host], theirs)
        return ours


class Nobody:
    def find(self, _kind: ServiceKind, _properties: object) -> CallOpener | None:
        return None


@asynccontextmanager
async def table(
    fake: FakeDirectory, network: Net | None = None, *, token: str = "", **options: Any
) -> AsyncIterator[Bench]:
    """Run an orchestrator that knows nothing but a directory."""
    timeouts = DirectoryConfig(inquiry_timeout_seconds=5)
    host = Host(wall_clock=lambda: 1, new_id=partial(next, iter(map(str, range(1000)))))
    if network is not None:
        host = replace(host, connect=network.connect)
    async with InProcessChannel([fake.service()]) as channel:
        orchestrator = Orchestrator(
            host=host,
            directory=DirectoryClient(channel, token=token, config=timeouts),
            **{"local": Nobody(), **options},
        )
        services = orchestrator_services(orchestrator)
        async with orchestrator, InProcessChannel(services) as ours:
            yield Bench(orchestrator, ours)


@asynccontextmanager
async def net() -> AsyncIterator[Net]:
    async with trio.open_nursery() as nursery:
        yield Net(nursery)
        nursery.cancel_scope.cancel()


async def datalog(call: ServerCall) -> None:
    async for _ in call:
        pass


def a_world(network: Net, fake: FakeDirectory) -> None:
    """Register an environment, two kinds of players and a data log, each on a host of its own."""
    network.host("world", Script(environment_of(2)).environment())
    network.host("greedy", Script(actor_that_acts()).actor())
    network.host("shy", Script(actor_that_acts()).actor())
    network.host("log", Script(datalog).datalog())
    fake.add(ENVIRONMENT, "world", 1, {"__implementation": "e"})
    fake.add(ACTOR, "greedy", 2, {**PLAYER, "__implementation": "greedy"})
    fake.add(ACTOR, "shy", 3, {**PLAYER, "__implementation": "shy"})
    fake.add(ServiceType.DATALOG_SERVICE, "log", 4)


def asked(fake: FakeDirectory) -> list[tuple[int, dict[str, str]]]:
    found: list[tuple[int, dict[str, str]]] = []
    for request in fake.requests:
        assert isinstance(request.message, InquireRequest)
        found.append((request.message.details.type, dict(request.message.details.properties)))
    return found


async def test_everybody_is_found_in_order(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    params = trial_params(
        [
            actor_params("a", "player", implementation="greedy"),
            actor_params("b", "player", implementation="shy"),
            actor_params("c", "player", endpoint="cogment://discover?__implementation=shy"),
        ],
        environment="e",
    )
    params.datalog.endpoint = "cogment://discover"
    async with net() as network, table(fake, network) as bench:
        a_world(network, fake)
        for _ in range(2):
            trial_id = await bench.controller.start_trial(params)
            info = await bench.controller.wait_trial_state(trial_id)
            assert info is not None
            assert info.tick_id == 2
    shy = {**PLAYER, "__implementation": "shy"}
    one_start = [
        (ServiceType.DATALOG_SERVICE, {}),
        (ENVIRONMENT, {"__implementation": "e"}),
        (ACTOR, {**PLAYER, "__implementation": "greedy"}),
        (ACTOR, shy),
        (ACTOR, shy),
    ]
    assert asked(fake) == one_start * 2  # each again at each start
    assert sorted(network.dialled) == ["greedy", "log", "shy", "world"]


async def test_what_is_served_here_is_not_asked_for(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    local = InProcessChannel([Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()])

    class OnlyEnvironments:
        def find(self, kind: ServiceKind, _properties: object) -> CallOpener | None:
            return local if kind is ServiceKind.ENVIRONMENT else None

        def registered(self, _kind: ServiceKind) -> str:
            return "'world'"

    async with net() as network, local, table(fake, network, local=OnlyEnvironments()) as bench:
        a_world(network, fake)
        trial_id = await bench.controller.start_trial(params_of("a"))
        await bench.controller.wait_trial_state(trial_id)
        assert asked(fake) == [(ACTOR, PLAYER)]
        assert network.dialled == ["shy"]  # the newest that fits
        fake.requests.clear()
        number = fake.add(ENVIRONMENT, "world", 1)
        by_id = params_of("a")
        by_id.environment.endpoint = f"cogment://discover/service?__id={number}"
        await bench.controller.wait_trial_state(await bench.controller.start_trial(by_id))
        assert fake.requests[0].message == InquireRequest(service_id=number)
        assert network.dialled == ["shy", "world"]


async def test_hooks_are_found_at_each_start(autojump_clock: Clock) -> None:
    """A directory that is away costs the starts it is away for, and no other."""
    fake = FakeDirectory()

    async def on_pre_trial(request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        request.params.CopyFrom(params_of("a"))
        return request

    hooks = ["cogment://discover/prehook?stage=1"]
    async with net() as network, table(fake, network, pre_trial_hooks=hooks) as bench:
        a_world(network, fake)
        network.host("hook", HookScript(on_pre_trial).service())
        fake.add(ServiceType.PRE_HOOK_SERVICE, "hook", 9, {"stage": "1"})
        fake.failing["Inquire"] = RpcError(StatusCode.UNAVAILABLE, "gone")
        with pytest.raises(RpcError) as caught:
            await bench.controller.start_trial(trial_id="t")
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert caught.value.message.startswith(
            "trial 't': pre_trial_hooks[0]: cogment://discover/prehook?stage=1: the directory"
        )
        fake.failing.clear()
        assert await bench.controller.start_trial(trial_id="t") == "t"
        await bench.controller.wait_trial_state("t")


async def test_actor_that_the_directory_says_will_come(autojump_clock: Clock) -> None:
    fake, seen = FakeDirectory(), trio.Event()

    async def player(session: Any) -> None:
        async for event in session.all_events():
            if event.observation is not None and event.type is EventType.ACTIVE:
                await session.do_action(b"a")
        seen.set()

    async with net() as network, table(fake, network) as bench:
        a_world(network, fake)
        fake.add(ACTOR, "client", protocol=ServiceEndpoint.COGMENT, properties={**PLAYER, "human": "yes"})
        params = trial_params([actor_params("a", "player", endpoint="cogment://discover?human=yes")])
        trial_id = await bench.controller.start_trial(params)
        (info,) = await bench.controller.trial_infos([trial_id])
        assert info.state == TrialState.PENDING
        await join_trial(bench.channel, trial_id, player, actor_name="a")
        assert seen.is_set()
        await bench.controller.wait_trial_state(trial_id)
    assert network.dialled == ["world"]


async def test_tokens(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    async with net() as network, table(fake, network, token="ours") as bench:
        a_world(network, fake)
        with pytest.raises(RpcError, match="same authentication token") as caught:
            await bench.controller.start_trial(params_of("a"))
        assert caught.value.code is StatusCode.FAILED_PRECONDITION
        for entry in fake.entries.values():
            entry.token = "ours"
        fake.entries[2].token = "theirs"  # greedy
        await bench.controller.start_trial(params_of("a"))
        params = trial_params(
            [actor_params("a", "player", endpoint="cogment://discover?__authentication-token=theirs")]
        )
        fake.requests.clear()
        await bench.controller.wait_trial_state(await bench.controller.start_trial(params))
        assert [request.token for request in fake.requests] == ["ours", "theirs"]
        assert asked(fake)[1] == (ACTOR, PLAYER)
        assert "greedy" in network.dialled


def with_endpoint(where: str, endpoint: str) -> TrialParams:
    params = params_of("a")
    if where == "datalog":
        params.datalog.endpoint = endpoint
    elif where == "environment":
        params.environment.endpoint = endpoint
    else:
        params.actors[0].endpoint = endpoint
    return params


WHERE = {
    "datalog": "datalog.endpoint",
    "environment": "environment.endpoint",
    "actor": "actors[0].endpoint (actor 'a')",
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        ("cogment://discover?nobody=1", StatusCode.FAILED_PRECONDITION),
        ("cogment://discover/service?__id=99", StatusCode.FAILED_PRECONDITION),
        ("cogment://discover/lifecycle", StatusCode.INVALID_ARGUMENT),
        ("cogment://discover/bogus", StatusCode.INVALID_ARGUMENT),
        ("nonsense", StatusCode.INVALID_ARGUMENT),
        ("cogment://discover?ssl=1", StatusCode.FAILED_PRECONDITION),
        ("cogment://discover?bad=1", StatusCode.FAILED_PRECONDITION),
        ("cogment://discover?down=1", StatusCode.UNAVAILABLE),
        ("cogment://discover?hang=1", StatusCode.UNAVAILABLE),
    ],
)
async def test_what_cannot_be_found_fails_the_start_and_leaves_nothing(
    where: str, endpoint: str, code: StatusCode, autojump_clock: Clock
) -> None:
    class Moody(FakeDirectory):
        async def Inquire(self, request: InquireRequest, call: Any) -> None:
            if "down" in request.details.properties:
                raise RpcError(StatusCode.UNAVAILABLE, "connection refused")
            if "hang" in request.details.properties:
                await trio.sleep_forever()
            await super().Inquire(request, call)

    fake = Moody()
    async with net() as network, table(fake, network) as bench, bench.controller.watch_trials() as watch:
        for kind in (ServiceType.DATALOG_SERVICE, ENVIRONMENT, ACTOR):
            fake.add(kind, "safe", 1, {"ssl": "1", **PLAYER}, protocol=ServiceEndpoint.GRPC_SSL)
            fake.add(kind, "bad", 0, {"bad": "1", **PLAYER})
        a_world(network, fake)  # the newest are found first
        started = trio.current_time()
        with pytest.raises(RpcError) as caught:
            await bench.controller.start_trial(with_endpoint(where, endpoint), trial_id="t")
        assert trio.current_time() - started <= 5.001
        assert caught.value.code is code
        assert caught.value.message.startswith(f"trial 't': {WHERE[where]}: ")
        assert not await bench.controller.trial_infos()
        assert not network.dialled
        states = [(await watch.receive()).state for _ in range(2)]
        assert states == [TrialState.INITIALIZING, TrialState.ENDED]
        good = params_of("a")
        assert await bench.controller.start_trial(good, trial_id="t") == "t"
        await bench.controller.wait_trial_state("t")


async def test_client_actors_are_no_environments(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    fake.add(ENVIRONMENT, "client", protocol=ServiceEndpoint.COGMENT)
    async with table(fake) as bench:
        with pytest.raises(RpcError, match=r"environment\.endpoint: .*for actors only") as caught:
            await bench.controller.start_trial(params_of("a"))
    assert caught.value.code is StatusCode.FAILED_PRECONDITION


async def test_hard_termination_and_stopping_end_an_inquiry(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    fake.hanging.add("Inquire")
    codes: list[StatusCode] = []
    async with table(fake) as bench, trio.open_nursery() as nursery:

        async def start(trial_id: str) -> None:
            with pytest.raises(RpcError) as caught:
                await bench.controller.start_trial(params_of("a"), trial_id=trial_id)
            codes.append(caught.value.code)

        for name in ("s", "t"):
            nursery.start_soon(start, name)
        await fake.wait_until(lambda: len(fake.requests) == 2)
        await bench.controller.terminate_trial("t", hard=True)
        await trio.testing.wait_all_tasks_blocked()
        assert codes == [StatusCode.FAILED_PRECONDITION]
        await bench.orchestrator.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert len(codes) == 2
        assert not list(bench.orchestrator.trials)


async def test_a_cancelled_start_leaves_nothing(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    fake.hanging.add("Inquire")
    async with table(fake) as bench:
        with trio.move_on_after(1) as scope:
            await bench.orchestrator.start_trial(trial_id="t", params=params_of("a"))
        assert scope.cancelled_caught
        assert not list(bench.orchestrator.trials)


async def test_a_thousand_starts_with_one_id_have_one_winner(autojump_clock: Clock) -> None:
    fake, started = FakeDirectory(), []
    async with net() as network, table(fake, network) as bench:
        a_world(network, fake)

        async def start() -> None:
            started.append(await bench.orchestrator.start_trial(trial_id="t", params=params_of("a")))

        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(start)
        assert sorted(started) == [""] * 999 + ["t"]
        assert len(fake.requests) == 2


# Outgoing TLS


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return make_party(tmp_path_factory.mktemp("tls"), "host", "localhost")


@asynccontextmanager
async def hosts(services: Iterable[Service], tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("localhost", tls=tls)
        serving = await nursery.start(serve, list(services), listeners)
        yield serving.port
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("protocol", "ours", "theirs", "code"),
    [
        (ServiceEndpoint.GRPC, False, False, None),
        (ServiceEndpoint.GRPC_SSL, True, True, None),
        (ServiceEndpoint.GRPC, True, True, None),  # dialled with TLS, whatever the directory says
        (ServiceEndpoint.GRPC_SSL, False, True, StatusCode.FAILED_PRECONDITION),
    ],
)
async def test_tls_is_for_all_outgoing_calls(
    protocol: int, ours: bool, theirs: bool, code: StatusCode | None, party: Party
) -> None:
    context = client_tls(party.roots) if ours else None
    serving = server_tls(party.chain, party.key) if theirs else None
    services = [Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()]
    fake = FakeDirectory()
    with trio.fail_after(PATIENCE_SECONDS):
        async with hosts(services, serving) as port, table(fake, client_tls=context) as bench:
            for kind in (ENVIRONMENT, ACTOR):
                fake.add(kind, "localhost", port, PLAYER, protocol=protocol)
            start = partial(bench.controller.start_trial, params_of("a"))
            if code is not None:
                with pytest.raises(RpcError, match="expects TLS") as caught:
                    await start()
                assert caught.value.code is code
            else:
                info = await bench.controller.wait_trial_state(await start())
                assert info is not None
                assert info.tick_id == 1


async def test_those_elsewhere_are_told_who_calls_and_those_here_need_not(autojump_clock: Clock) -> None:
    tokens: dict[str, list[str]] = {}

    def noting(who: str, run: RunTrial) -> Script:
        async def noted(call: ServerCall) -> None:
            tokens[who] = [str(value) for name, value in call.metadata if name == "authorization"]
            await run(call)

        return Script(noted)

    async with net() as network:
        network.host("elsewhere", noting("elsewhere", actor_that_acts()).actor())
        services = noting("environment", environment_of(1)).environment(), noting("here", actor_that_acts()).actor()
        async with bench(*services, connect=network.connect, access=control()) as bench_:
            params = params_of("a", "b")
            params.actors[1].endpoint = "grpc://elsewhere:9000"
            await bench_.controller.start_trial(params, trial_id="t")
            await bench_.controller.wait_trial_state("t")
    assert tokens["here"] == tokens["environment"] == []
    (token,) = tokens["elsewhere"]
    assert token.startswith("Bearer ")
