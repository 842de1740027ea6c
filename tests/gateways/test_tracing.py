"""Spans of what comes by gateways, and of a datastore elsewhere: each is a part of the trace of who has asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio

from tests.gateways.dm_env_rpc.gateway.games import Game, joined, playing
from tests.gateways.dm_env_rpc.gateway.games import step as step_of
from tests.gateways.legacy.clients import theatre, with_clients
from tests.gateways.openenv.games import Walk
from tests.gateways.openenv.games import served as openenv
from tests.gateways.openenv.test_server import client as openenv_client
from tests.gateways.rest.playing import Field, act_body
from tests.gateways.rest.test_routes import SEAT, opened
from tests.helpers import params_of
from tests.otlp import Received, Receiver, receiving
from trio_cogment.base.config import TracingConfig
from trio_cogment.base.tracing import open_tracing
from trio_cogment.platform import open_platform
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.sdk import ActorSession, DatastoreClient, EnvironmentSession

SERVER, CLIENT = 2, 3


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def config(receiver: Receiver) -> TracingConfig:
    return TracingConfig(endpoint=receiver.endpoint, flush_seconds=30.0)


@asynccontextmanager
async def dm_env_rpc() -> AsyncIterator[Callable[[], Any]]:
    async with playing(Game(length=2)) as platform:

        async def play() -> None:
            async with joined(platform, "ann") as (connection,):
                for _ in range(3):
                    await step_of(connection)

        yield play


@asynccontextmanager
async def legacy() -> AsyncIterator[Callable[[], Any]]:
    async with theatre(with_clients("d2")) as here:

        async def play() -> None:
            client = here.client()
            await client.start()
            await client.act(b"on")
            await client.end()
            await here.platform.controller.wait_trial(client.trial_id, check=False)

        yield play


@pytest.mark.parametrize(
    ("gateway", "methods"),
    [
        (dm_env_rpc, {"dm_env_rpc.v1.Environment/Process"}),
        (legacy, {"cogment.Trial/Start", "cogment.Trial/Action", "cogment.Trial/End"}),
    ],
)
async def test_calls_of_a_gateway(
    gateway: Callable[[], AbstractAsyncContextManager[Any]], methods: set[str], receiver: Receiver
) -> None:
    async with open_tracing(config(receiver)) as tracing, gateway() as play:
        with trio.fail_after(60), tracing.span("program", {}):
            await play()
    program = receiver.one("program")
    found = [span for span in receiver.spans if span.name in methods]
    assert {span.name for span in found} == methods
    assert {span.trace_id for span in found} == {program.trace_id}
    for span in found:
        assert span.attributes["rpc.method"] == span.name
        assert "program" in [each.name for each in above(receiver, span)]


def above(receiver: Receiver, span: Received) -> list[Received]:
    found = []
    while span.parent_id:
        span = receiver.parent_of(span)
        found.append(span)
    return found


async def test_the_web_socket_of_openenv(receiver: Receiver) -> None:
    async with open_tracing(config(receiver)), openenv(Walk) as (server, _), openenv_client(server) as walker:
        await walker.reset(seed=7)
        await walker.step(1)
    span = receiver.one("GET /ws")
    assert (span.kind, span.parent_id) == (SERVER, "")
    assert span.attributes["http.response.status_code"] == 101
    [trial, *_] = receiver.named("trial")
    assert span in above(receiver, trial)


async def test_requests_of_the_web_proxy(receiver: Receiver) -> None:
    async with open_tracing(config(receiver)), opened(Field(1).run) as (client, _, platform):
        await client.start_and_join()
        await client.ask("POST", f"{SEAT}/0", act_body(5))
        await client.ask("POST", f"{SEAT}/1", act_body(5))
        await platform.controller.wait_trial("lab-1")
    spans = [span for span in receiver.spans if "http.route" in span.attributes]
    assert len(spans) == 4
    assert {span.kind for span in spans} == {SERVER}
    assert "lab-1" not in repr([span.name for span in spans])
    assert spans[0] in above(receiver, receiver.one("trial"))


async def act(session: ActorSession) -> None:
    await session.start()
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"a")


async def ends_at_once(session: EnvironmentSession) -> None:
    await session.start([("*", b"")])
    async for event in session.all_events():
        if event.actions:
            await session.end([("*", b"")])


async def test_a_datastore_over_the_wire(receiver: Receiver) -> None:
    """Its data log is a part of the trial's trace, and who reads finds its calls in its own."""
    async with (
        open_tracing(config(receiver)) as tracing,
        open_platform(store="memory:") as stored,
        trio.open_nursery() as nursery,
    ):
        serving = await nursery.start(serve, stored.services, await open_listeners("127.0.0.1", 0))
        endpoint = f"grpc://127.0.0.1:{serving.port}"
        async with open_platform() as platform:
            platform.participants.register_environment(ends_at_once)
            platform.participants.register_actor(act, "actor")
            params = params_of("ann")
            params.datalog.endpoint = endpoint
            trial_id = await platform.controller.start_trial(params=params)
            await platform.controller.wait_trial(trial_id)
        async with Channel("127.0.0.1", serving.port) as channel:
            with tracing.span("reader", {}):
                reader = DatastoreClient(channel)
                assert [trial.trial_id for trial in await reader.trials()] == [trial_id]
                assert [sample async for sample in reader.samples([trial_id])]
        nursery.cancel_scope.cancel()
    [*logs] = receiver.named("cogmentAPI.DatalogSP/RunTrialDatalog")
    theirs, ours = sorted(logs, key=lambda span: span.kind)
    assert (theirs.kind, ours.kind) == (SERVER, CLIENT)
    assert receiver.parent_of(theirs) == ours
    assert [span.name for span in above(receiver, ours)][:2] == ["data log", "trial"]
    for method in ("RetrieveTrials", "RetrieveSamples"):
        calls = receiver.named(f"cogmentAPI.TrialDatastoreSP/{method}")
        of_server = next(span for span in calls if span.kind == SERVER)
        assert [(span.name, span.kind) for span in above(receiver, of_server)] == [
            (of_server.name, CLIENT),
            ("reader", 1),
        ]
