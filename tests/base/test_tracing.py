"""Traces: what is a span of what, what is sent where, and what becomes of it when nobody takes it."""

from __future__ import annotations

import itertools
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import httpx
import pytest
import trio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers import NORMAL, HookScript, Script, actor_that_acts, bench, environment_of, params_of, wait_ended
from tests.otlp import Received, Receiver, receiving
from trio_cogment import open_platform
from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput, VersionRequest
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.config import TracingConfig
from trio_cogment.base.endpoints import CLIENT as CLIENT_ENDPOINT
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.log_context import TrialFilter
from trio_cogment.base.tracing import open_tracing, tracing_of_run
from trio_cogment.rpc import ServerCall, open_listeners, serve
from trio_cogment.sdk import (
    ActorSession,
    EnvironmentSession,
    Participants,
    actor_params,
    join_trial,
    run_participants,
    trial_params,
)
from trio_cogment.web import WebSide
from trio_cogment.web.replies import json_data
from trio_cogment.web.routing import Route, Visit

START = "cogmentAPI.TrialLifecycleSP/StartTrial"
RUN_ENVIRONMENT = "cogmentAPI.EnvironmentSP/RunTrial"
RUN_ACTOR = "cogmentAPI.ServiceActorSP/RunTrial"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SERVER, CLIENT, INTERNAL = 2, 3, 1
ERROR = 2


def config(receiver: Receiver, **changes: Any) -> TracingConfig:
    return TracingConfig(endpoint=receiver.endpoint, flush_seconds=30.0, **{"tick_ratio": 1.0, **changes})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@contextmanager
def kept() -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    """Make a provider as a program with OpenTelemetry has one."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


async def play(ticks: int = 3, **options: Any) -> None:
    """Run a trial of two actors to its end."""
    actor, environment = Script(actor_that_acts()).actor(), Script(environment_of(ticks)).environment()
    async with bench(actor, environment, **options) as table:
        trial_id = await table.controller.start_trial(params=params_of("ann", "bob"), trial_id="t1")
        await wait_ended(table.orchestrator, trial_id)


async def test_a_trial_is_a_trace_of_its_participants_and_ticks(receiver: Receiver) -> None:
    async with open_tracing(config(receiver), service="game"):
        await play(ticks=3)
    assert receiver.paths == {"/v1/traces"}
    assert {span.service for span in receiver.spans} == {"game"}
    trial = receiver.one("trial")
    assert (trial.parent_id, trial.kind, trial.status) == ("", INTERNAL, 0)
    assert trial.attributes == {
        "trio_cogment.trial.id": "t1",
        "user.id": "trio-cogment",
        "trio_cogment.trial.end_cause": "environment",
        "trio_cogment.trial.ticks": 4,
    }
    assert {span.trace_id for span in receiver.spans} == {trial.trace_id}
    for name in ("environment env", "actor ann", "actor bob", "tick"):
        assert all(receiver.parent_of(span) is trial for span in receiver.named(name))
        assert receiver.named(name)
    assert receiver.parent_of(receiver.one(RUN_ENVIRONMENT)) == receiver.one("environment env")
    assert {receiver.parent_of(span).name for span in receiver.named(RUN_ACTOR)} == {"actor ann", "actor bob"}
    assert receiver.one("actor ann").attributes["trio_cogment.actor.class"] == "player"
    ticks = receiver.named("tick")
    assert [span.attributes["trio_cogment.tick.id"] for span in ticks] == [0, 1, 2]
    for tick in ticks:
        assert sorted(attributes["trio_cogment.actor.name"] for _, attributes in tick.events) == ["ann", "bob"]
        assert tick.began <= tick.ended
        # As the spans that were open: of the same kind, of the same state.
        assert (tick.kind, tick.status, tick.state) == (trial.kind, trial.status, trial.state)


async def test_every_nth_tick_is_a_span(receiver: Receiver) -> None:
    async with open_tracing(config(receiver, tick_ratio=0.2)):
        await play(ticks=40)
    ids = [span.attributes["trio_cogment.tick.id"] for span in receiver.named("tick")]
    assert len(ids) == 8
    assert {later - earlier for earlier, later in itertools.pairwise(ids)} == {5}
    assert ids[0] == int(receiver.one("trial").trace_id, 16) % 5


async def test_inputs_of_a_tick_that_is_no_span_go_straight_to_the_machine(receiver: Receiver) -> None:
    straight: dict[int, bool] = {}

    def note(message: Any) -> None:
        if message.HasField("observation") and message.state == NORMAL:
            (trial,) = table.orchestrator.trials
            straight[message.observation.tick_id] = trial._handle == trial.machine.handle

    actor = Script(actor_that_acts(cast(Any, SimpleNamespace(append=note)))).actor()
    async with (
        open_tracing(config(receiver, tick_ratio=0.2)),
        bench(actor, Script(environment_of(10)).environment()) as table,
    ):
        await table.controller.start_trial(params=params_of("ann"), trial_id="t1")
        await wait_ended(table.orchestrator, "t1")
    traced = {span.attributes["trio_cogment.tick.id"] for span in receiver.named("tick")}
    assert len(traced) == 2
    assert {tick for tick, is_straight in straight.items() if not is_straight} == traced


async def test_a_span_that_is_over_is_sent_though_nothing_follows(receiver: Receiver) -> None:
    async with open_tracing(config(receiver, export_interval_seconds=0.01)) as tracing:
        with tracing.span("whole", {}) as whole:
            tracing.make_ended(
                "part", lambda: ({"a": 1}, [("event", {"b": "c"}, 3)]), parent=whole, start_ns=2, end_ns=4
            )
            assert tracing.figures()["ended"] == 1
            await trio.to_thread.run_sync(receiver.wait, lambda spans: bool(spans))
            (part,) = receiver.spans
    assert (part.name, part.attributes, part.events) == ("part", {"a": 1}, (("event", {"b": "c"}),))
    assert (part.began, part.ended) == (2, 4)
    assert receiver.parent_of(part) == receiver.one("whole")


async def test_no_tick_is_a_span_at_a_ratio_of_nothing(receiver: Receiver) -> None:
    async with open_tracing(config(receiver, tick_ratio=0.0)):
        await play()
    assert receiver.named("trial")
    assert not receiver.named("tick")


async def test_nothing_is_recorded_at_a_sample_ratio_of_nothing(receiver: Receiver) -> None:
    async with open_tracing(config(receiver, sample_ratio=0.0)) as tracing:
        await play()
        assert not tracing.trials
    assert not receiver.spans


async def test_who_did_not_act_in_time_is_missing_in_the_tick(autojump_clock: Any) -> None:
    async def silent(call: ServerCall) -> None:
        await call.receive()
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        async for _ in call:
            pass

    params = trial_params([actor_params("ann", "player", response_timeout_seconds=1.0, optional=True)])
    services = [Script(silent).actor(), Script(environment_of(2)).environment()]
    with kept() as (provider, exporter):
        async with (
            open_tracing(TracingConfig(tick_ratio=1.0), provider=provider),
            bench(*services) as table,
        ):
            trial_id = await table.controller.start_trial(params=params)
            await wait_ended(table.orchestrator, trial_id)
        first, *_ = [span for span in exporter.get_finished_spans() if span.name == "tick"]
    assert first.attributes is not None
    assert first.attributes["trio_cogment.tick.missing_actors"] == ("ann",)
    assert not first.events
    assert first.start_time is not None
    assert first.end_time == first.start_time + 1_000_000_000


async def test_a_failed_trial_and_who_has_failed_it(receiver: Receiver) -> None:
    async def breaks(call: ServerCall) -> None:
        await call.receive()
        raise ValueError("broken")

    services = [Script(breaks).actor(), Script(environment_of(2)).environment()]
    async with open_tracing(config(receiver)), bench(*services, wire=True) as table:
        trial_id = await table.controller.start_trial(params=params_of("ann"))
        await wait_ended(table.orchestrator, trial_id)
    trial = receiver.one("trial")
    assert trial.status == ERROR
    assert trial.attributes["error.type"] == "participant_failed"
    ours, theirs = sorted(receiver.named(RUN_ACTOR), key=lambda span: span.kind, reverse=True)
    assert (ours.kind, theirs.kind) == (CLIENT, SERVER)
    for span in (ours, theirs):
        assert span.attributes["rpc.response.status_code"] == "UNKNOWN"
        assert span.status == ERROR


async def test_calls_over_the_wire_carry_the_context(receiver: Receiver) -> None:
    async def hook(request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        return request

    services = [
        Script(actor_that_acts()).actor(),
        Script(environment_of(1)).environment(),
        HookScript(hook).service(),
    ]
    options: dict[str, Any] = {"default_params": params_of("ann"), "pre_trial_hooks": ["cogment://discover"]}
    async with open_tracing(config(receiver)), bench(*services, wire=True, **options) as table:
        trial_id = await table.controller.start_trial()
        await wait_ended(table.orchestrator, trial_id)
    trial = receiver.one("trial")
    start = by_kind(receiver.named(START))
    assert receiver.parent_of(trial) == start[SERVER]
    assert receiver.parent_of(start[SERVER]) == start[CLIENT]
    assert start[CLIENT].parent_id == ""
    hooks = by_kind(receiver.named("cogmentAPI.TrialHooksSP/OnPreTrial"))
    assert receiver.parent_of(hooks[SERVER]) == hooks[CLIENT]
    assert receiver.parent_of(hooks[CLIENT]) == trial
    for name, participant in ((RUN_ACTOR, "actor ann"), (RUN_ENVIRONMENT, "environment env")):
        calls = by_kind(receiver.named(name))
        assert receiver.parent_of(calls[SERVER]) == calls[CLIENT]
        assert receiver.parent_of(calls[CLIENT]) == receiver.one(participant)
        for call in calls.values():
            assert call.attributes["trio_cogment.trial.id"] == trial_id
            assert call.attributes["rpc.system.name"] == "grpc"
            assert call.attributes["rpc.method"] == name
            assert call.attributes["rpc.response.status_code"] == "OK"


def by_kind(spans: list[Received]) -> dict[int, Received]:
    found = {span.kind: span for span in spans}
    assert len(found) == len(spans)
    return found


async def test_the_context_of_any_client_is_taken(receiver: Receiver) -> None:
    """A client that knows nothing of us: grpcio, with the headers of W3C Trace Context."""
    async with (
        open_tracing(config(receiver)),
        open_platform(Participants()) as platform,
        trio.open_nursery() as nursery,
    ):
        serving = await nursery.start(serve, platform.services, await open_listeners("127.0.0.1", 0))

        def ask(*metadata: tuple[str, str]) -> None:
            with grpc.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
                method = channel.unary_unary("/cogmentAPI.TrialLifecycleSP/Version", VersionRequest.SerializeToString)
                method(VersionRequest(), metadata=metadata, timeout=30)

        await trio.to_thread.run_sync(ask, ("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2"))
        await trio.to_thread.run_sync(ask, ("traceparent", PARENT[:-1] + "0"))
        await trio.to_thread.run_sync(ask, ("traceparent", "00-nonsense"))
        await trio.to_thread.run_sync(ask)
        nursery.cancel_scope.cancel()
    # Of the second the caller has decided that it is not recorded.
    theirs, *others = receiver.named("cogmentAPI.TrialLifecycleSP/Version")
    assert (theirs.trace_id, theirs.parent_id) == tuple(PARENT.split("-")[1:3])
    assert theirs.state == "a=1,b=2"
    assert theirs.attributes["network.peer.address"] == "127.0.0.1"
    assert [span.parent_id for span in others] == ["", ""]


async def act(session: ActorSession) -> None:
    await session.start()
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"a")


async def test_a_client_actor_is_linked_to_its_own_trace(receiver: Receiver) -> None:
    async with open_tracing(config(receiver)), bench(Script(environment_of(1)).environment(), wire=True) as table:
        params = trial_params([actor_params("ann", "player", endpoint=CLIENT_ENDPOINT)])
        trial_id = await table.controller.start_trial(params=params)
        await join_trial(table.channel, trial_id, act, actor_name="ann")
        await wait_ended(table.orchestrator, trial_id)
    joined = by_kind(receiver.named("cogmentAPI.ClientActorSP/RunTrial"))[SERVER]
    actor = receiver.one("actor ann")
    assert receiver.parent_of(actor) == receiver.one("trial")
    assert actor.links == ((joined.trace_id, joined.span_id),)
    assert joined.trace_id != actor.trace_id


async def test_a_program_with_opentelemetry_of_its_own() -> None:
    """Its provider makes the spans, and what it does in a participant is a part of the participant's."""
    with kept() as (provider, exporter):
        tracer = provider.get_tracer("game")

        async def environment(session: EnvironmentSession) -> None:
            await session.start([("*", b"")])
            async for event in session.all_events():
                if event.actions:
                    with tracer.start_as_current_span("physics"):
                        await session.end([("*", b"")])

        async with open_tracing(provider=provider), open_platform() as platform:
            platform.participants.register_environment(environment)
            platform.participants.register_actor(act, "actor")
            with tracer.start_as_current_span("experiment"):
                trial_id = await platform.controller.start_trial(params=params_of("ann"))
            await platform.controller.wait_trial(trial_id)
        assert tracing_of_run() is None
        spans = {span.name: span for span in exporter.get_finished_spans()}
        parents = {span.context.span_id: span.name for span in spans.values()}

        def line(name: str) -> list[str]:
            found = [name]
            while (parent := spans[found[-1]].parent) is not None:
                found.append(parents[parent.span_id])
            return found

        assert line("trial") == ["trial", START, "experiment"]
        assert line("physics")[:3] == ["physics", RUN_ENVIRONMENT, "environment env"]


async def test_requests_for_pages_are_spans_without_their_paths(receiver: Receiver) -> None:
    """A link to a seat has a token in its path: the pattern is told, and nothing else."""

    async def hello(visit: Visit) -> Any:
        if visit.parameters["name"] == "broken":
            raise ValueError("broken")
        return json_data({"hello": visit.parameters["name"]})

    async with open_tracing(config(receiver)), site([Route("GET", "/hello/{name}", hello, right=None)]) as get:
        await get("/hello/secret", {"traceparent": PARENT})
        await get("/hello/broken", {})
    first, second = receiver.named("GET /hello/{name}")
    assert (first.trace_id, first.parent_id) == tuple(PARENT.split("-")[1:3])
    assert (first.kind, first.status, first.attributes["http.response.status_code"]) == (SERVER, 0, 200)
    assert (second.status, second.attributes["http.response.status_code"]) == (ERROR, 500)
    assert "secret" not in repr(receiver.spans)


@asynccontextmanager
async def site(routes: list[Any]) -> AsyncIterator[Any]:
    """Serve pages; gives what asks for one."""
    listeners = await open_listeners("127.0.0.1", 0)
    side = WebSide(routes=lambda: routes)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(partial(serve, web=side), [], listeners)

        async def get(path: str, headers: dict[str, str], method: str = "GET") -> httpx.Response:
            async with httpx.AsyncClient() as client:
                return await client.request(method, f"http://127.0.0.1:{serving.port}{path}", headers=headers)

        yield get
        nursery.cancel_scope.cancel()


async def test_records_of_the_log_name_their_trace(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    caplog.handler.addFilter(TrialFilter())
    async with open_tracing(config(receiver)):
        await play()
    logging.getLogger("after").info("nothing")
    trial = receiver.one("trial")
    about = [record for record in caplog.records if getattr(record, "trial_id", "")]
    assert {record.__dict__["trace_id"] for record in about} == {trial.trace_id}
    known = {span.span_id for span in receiver.spans}
    assert {record.__dict__["span_id"] for record in about} <= known
    assert caplog.records[-1].__dict__["trace_id"] == ""


# When nobody takes the spans


class Held:
    """Exports that end when they are let go: a tick that waits for one would wait until they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()
        #: Of each that has had to wait: it was let go.
        self.ends: list[bool] = []
        export = OTLPSpanExporter.export

        def held(exporter: OTLPSpanExporter, spans: Any) -> Any:
            if not self.let_go.is_set():
                self.begun.set()
                self.ends.append(self.let_go.wait(20))
            return export(exporter, spans)

        monkeypatch.setattr(OTLPSpanExporter, "export", held)


async def test_no_tick_waits_for_a_receiver_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        port = silent.getsockname()[1]
        settings = TracingConfig(
            endpoint=f"http://127.0.0.1:{port}", tick_ratio=1.0, max_queued_spans=8, max_batch_spans=8,
            export_interval_seconds=0.01, export_timeout_seconds=0.5, flush_seconds=0.1,
        )  # fmt: skip
        async with open_tracing(settings) as tracing:
            await play(ticks=4)
            await trio.to_thread.run_sync(held.begun.wait)
            await play(ticks=100)  # ten times what there is room for
            assert not held.ends
            assert tracing.figures()["ended"] >= 108
            assert tracing.figures()["sent"] + tracing.figures()["failed"] == 0
            held.let_go.set()
    assert all(held.ends)
    assert tracing.figures()["sent"] == 0


async def test_no_tick_waits_for_a_receiver_that_is_killed_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has not taken meanwhile waits in a queue of 50; the trial of 200 ticks has not."""
    held = Held(monkeypatch)
    held.let_go.set()
    with receiving() as first:
        settings = config(first, export_interval_seconds=0.01, export_timeout_seconds=0.05, max_queued_spans=50)
        async with open_tracing(settings) as tracing:
            await play(ticks=1)
            await trio.to_thread.run_sync(first.wait, lambda spans: any(span.name == "trial" for span in spans))
            await trio.to_thread.run_sync(first.stop)
            held.let_go.clear()
            await play(ticks=4)
            await trio.to_thread.run_sync(held.begun.wait)
            await play(ticks=200)
            assert not held.ends
            held.let_go.set()
            with receiving(first.port) as second:
                await play(ticks=1)
                is_there = partial(second.wait, lambda spans: any(span.name == "trial" for span in spans))
                await trio.to_thread.run_sync(is_there)
        figures = tracing.figures()
    assert all(held.ends)
    assert figures["sent"] == len(first.spans) + len(second.spans)
    assert figures["ended"] >= 200 > figures["sent"]


async def test_a_trial_that_a_request_starts_is_part_of_it(receiver: Receiver) -> None:
    """As of the web proxy: the trial belongs to the trace of who has sent the request."""

    async with open_tracing(config(receiver)), open_platform() as platform:
        platform.participants.register_environment(ends_at_once)
        platform.participants.register_actor(act, "actor")

        async def start(_visit: Visit) -> Any:
            return json_data({"trial": await platform.controller.start_trial(params=params_of("ann"))})

        async with site([Route("POST", "/trials", start, right=None)]) as get:
            answer = await get("/trials", {"traceparent": PARENT}, method="POST")
        await platform.controller.wait_trial(answer.json()["trial"])
    trial = receiver.one("trial")
    assert receiver.parent_of(trial).name == START
    assert receiver.parent_of(receiver.parent_of(trial)) == receiver.one("POST /trials")
    assert trial.trace_id == PARENT.split("-")[1]


async def test_versions_of_models_that_a_participant_asks_for(receiver: Receiver, tmp_path: Path) -> None:
    async def learner(session: ActorSession) -> None:
        models = platform.model_registry_client()
        await models.publish("policy", b"weights")
        await act(session)

    services: dict[str, Any] = {"model_registry": tmp_path}
    async with open_tracing(config(receiver)), open_platform(**services) as platform:
        platform.participants.register_environment(ends_at_once)
        platform.participants.register_actor(learner, "learner")
        await platform.controller.wait_trial(await platform.controller.start_trial(params=params_of("ann")))
    [stored] = receiver.named("cogmentAPI.ModelRegistrySP/CreateVersion")
    assert receiver.parent_of(stored).name == RUN_ACTOR
    assert stored.attributes["trio_cogment.model.id"] == "policy"
    assert stored.attributes["trio_cogment.model.version"] == 1


async def ends_at_once(session: EnvironmentSession) -> None:
    await session.start([("*", b"")])
    async for event in session.all_events():
        if event.actions:
            await session.end([("*", b"")])


async def test_a_program_of_participants_is_traced_by_a_variable(receiver: Receiver) -> None:
    participants = Participants()
    participants.register_environment(ends_at_once)
    async with trio.open_nursery() as nursery:
        run = partial(run_participants, participants, port=0, address="127.0.0.1", signals=())
        variables = {"COGMENT_TRACING_ENDPOINT": receiver.endpoint}
        serving = await nursery.start(partial(run, variables=variables))

        def ask() -> None:
            with grpc.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
                method = channel.unary_unary("/cogmentAPI.EnvironmentSP/Version", VersionRequest.SerializeToString)
                method(VersionRequest(), timeout=30)

        await trio.to_thread.run_sync(ask)
        nursery.cancel_scope.cancel()
    assert receiver.one("cogmentAPI.EnvironmentSP/Version").service == "trio-cogment-participants"


# What is refused


async def test_an_endpoint_that_is_none() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a URL such as http://localhost"):
        async with open_tracing(TracingConfig(endpoint="localhost:4318")):
            pass


async def test_a_run_has_one_tracing(receiver: Receiver) -> None:
    async with open_tracing(config(receiver)):
        with pytest.raises(RuntimeError, match="already"):
            async with open_tracing(config(receiver)):
                pass
    async with open_tracing(config(receiver)):
        assert tracing_of_run() is not None


def test_nothing_imports_opentelemetry_unasked() -> None:
    program = """
import sys, trio, trio_cogment
async def main():
    async with trio_cogment.open_platform(store="memory:"):
        pass
trio.run(main)
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
