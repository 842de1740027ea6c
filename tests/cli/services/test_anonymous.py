"""Calls without a token to a real server with `--auth=token`, by every protocol: all are refused.

The server has everything in it: a trial that runs, samples, a model, registrations, a run, gateways, metrics, pages.
Everything is tried over HTTP/2, gRPC-Web and WebSockets; every method there is also by grpcio.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trio

from tests.access.keys import FOREIGN, grant
from tests.access.test_wire import PATHS, code_of, services
from tests.cli.process import PATIENCE_SECONDS, Endless, Server, server
from tests.cli.services.test_auth import HERE, token, with_tokens
from tests.gateways.legacy.clients import OldClient
from tests.ports import free_port
from tests.trainer.bench import Client as TrainerTestClient
from tests.trainer.configs import a_config
from tests.web.clients import channel_over, over_http, over_websocket
from trio_cogment.access import Role, Token
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput
from trio_cogment.api.directory_pb2 import (
    DeregisterRequest,
    InquireRequest,
    RegisterRequest,
    ServiceDetails,
    ServiceEndpoint,
    ServiceType,
)
from trio_cogment.api.trainer.trainer_pb2 import CancelRunRequest, ListRunsRequest, SubmitRunRequest
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    DeleteTrialsRequest,
    RetrieveSamplesRequest,
    RetrieveTrialsRequest,
    StoredTrialSample,
)
from trio_cogment.base.errors import CogmentError, RpcError, StatusCode
from trio_cogment.base.services import SERVICES, TRIAL_ID, USER_ID, ServiceKind
from trio_cogment.gateways.dm_env_rpc import open_connection
from trio_cogment.rpc import CallOpener, Channel, bind, methods_of
from trio_cogment.sdk import (
    Controller,
    ModelRegistryClient,
    actor_params,
    connect,
    join_trial,
    trial_params,
)

STORE = methods_of(SERVICES[ServiceKind.DATASTORE].descriptor())
DATALOG = methods_of(SERVICES[ServiceKind.DATALOG].descriptor())
DIRECTORY = methods_of(SERVICES[ServiceKind.DIRECTORY].descriptor())
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
WORLD = """
dm_env_rpc: {spec: dm_env_rpc}
trial_params:
  actors: [{name: ann, actor_class: player, endpoint: "cogment://client"}]
"""
OLD = """
legacy: {classes: [player]}
trial_params:
  actors: [{name: ann, actor_class: player, endpoint: "cogment://client"}]
"""


class Lab:
    """A server, what is in it, and who it belongs to."""

    def __init__(self, running: Server, admin: str, metrics_port: int) -> None:
        self.running = running
        self.admin = admin
        self.metrics_port = metrics_port
        self.endless = Endless()
        self.trial_id = ""
        self.trap = 0

    async def fill(self, stack: AsyncExitStack) -> None:
        """Start a trial, store samples and a model, register a service, submit a run, and lay a trap."""
        endpoint = await stack.enter_async_context(self.endless.served())
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        listeners = await nursery.start(partial(trio.serve_tcp, self._caught, 0, host="127.0.0.1"))
        self.trap_port = listeners[0].socket.getsockname()[1]
        client = await stack.enter_async_context(
            connect(f"grpc://127.0.0.1:{self.running.port}", access_token=self.admin, variables={})
        )
        params = trial_params(
            [actor_params("a", "endless", endpoint=endpoint), actor_params("c", "player", endpoint="cogment://client")],
            environment_endpoint=endpoint,
            datalog_endpoint="cogment://discover",
        )
        params.actors[1].optional, params.actors[1].initial_connection_timeout = True, 0.1
        self.trial_id = await (await client.controller()).start_trial(params)
        await self.endless.wait_running([self.trial_id])
        await (await client.model_registry()).store("walker", b"weights")
        async with self.channel() as channel:
            await register(channel, "hers", 4000)
            await TrainerTestClient(channel).submit("run")

    async def _caught(self, _stream: trio.abc.Stream) -> None:
        self.trap += 1

    def channel(self) -> Channel:
        return Channel("127.0.0.1", self.running.port, token=self.admin)

    async def check_unharmed(self) -> None:
        """Everything is as it was, and the trial goes on."""
        await self.endless.wait_tick(self.trial_id, self.endless.ticks[self.trial_id] + 3)
        async with self.channel() as channel:
            infos = await Controller(channel).trial_infos()
            assert [info.trial_id for info in infos if info.state != TrialState.ENDED] == [self.trial_id]
            assert len(infos) == 1
            stored = (await channel.unary(STORE["RetrieveTrials"], RetrieveTrialsRequest())).trial_infos
            assert [info.trial_id for info in stored] == [self.trial_id]
            # A forged sample would have been far ahead.
            assert stored[0].samples_count <= self.endless.ticks[self.trial_id] + 10
            info, data = await ModelRegistryClient(channel).retrieve("walker")
            assert (info.version_number, data) == (1, b"weights")
            assert [model.model_id async for model in ModelRegistryClient(channel).list_models()] == ["walker"]
            found = await inquire(channel)
            assert [reply.data.endpoint.port for reply in found if reply.data.details.properties.get("whose")] == [4000]
            runs = (await TrainerTestClient(channel).ask("ListRuns", ListRunsRequest())).runs
            assert [run.run_id for run in runs] == ["run"]
        assert self.trap == 0


async def register(channel: CallOpener, whose: str, port: int) -> None:
    endpoint = ServiceEndpoint(protocol=ServiceEndpoint.GRPC, host="127.0.0.1", port=port)
    details = ServiceDetails(type=ServiceType.OTHER_SERVICE, properties={"whose": whose})
    request = RegisterRequest(endpoint=endpoint, details=details, permanent=True)
    await answers(channel, DIRECTORY["Register"], request)


async def inquire(channel: CallOpener) -> list[Any]:
    return await answers(
        channel, DIRECTORY["Inquire"], InquireRequest(details=ServiceDetails(type=ServiceType.OTHER_SERVICE))
    )


async def answers(
    channel: CallOpener, method: Any, *requests: Any, metadata: Mapping[str, str] | None = None
) -> list[Any]:
    """Make a call of any kind; return all answers."""
    async with channel.call(method, metadata=metadata or {}) as call:
        try:
            for request in requests:
                await call.send(request)
            await call.done_sending()
        except RpcError:
            pass  # what it was refused with comes below
        return [reply async for reply in call]


@asynccontextmanager
async def lab(secret: Path, folder: Path) -> AsyncIterator[Lab]:
    admin, metrics_port = token(secret, "root", "--role=admin"), free_port()
    (folder / "world.yaml").write_text(WORLD)
    (folder / "old.yaml").write_text(OLD)
    everything = (
        *("serve", HERE, "--port=0", f"--trainer={folder / 'runs'}", f"--archive_dir={folder / 'models'}"),
        *("--storage=memory:", f"--persistence_file={folder / 'directory'}", f"--prometheus_port={metrics_port}"),
        *(f"--dm_env_rpc={folder / 'world.yaml'}", f"--legacy={folder / 'old.yaml'}"),
    )
    with trio.fail_after(2 * PATIENCE_SECONDS):
        async with server(*everything, *with_tokens(secret)) as running, AsyncExitStack() as stack:
            found = Lab(running, admin, metrics_port)
            await found.fill(stack)
            yield found
        assert "Traceback" not in running.err


@asynccontextmanager
async def stranger(port: int, protocol: str) -> AsyncIterator[CallOpener]:
    """Open a channel of somebody without a token."""
    if protocol == "http2":
        async with Channel("127.0.0.1", port) as channel:
            yield channel
        return
    everything = [bind(service, object()) for service in services()]

    async def dial() -> trio.abc.Stream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    forward = over_websocket if protocol == "websocket" else over_http
    async with channel_over(dial, everything, forward) as over_http1:
        yield over_http1


def attacks(here: Lab, channel: CallOpener) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return what a stranger may try, by what it would be good for."""
    controller, models, trainer = Controller(channel), ModelRegistryClient(channel), TrainerTestClient(channel)
    trial_id, trap = here.trial_id, f"grpc://127.0.0.1:{here.trap_port}"
    old = OldClient(channel, trial_id=trial_id, actor_id=1)
    sample = DatalogSample()
    sample.info.tick_id, sample.info.timestamp, sample.info.state = 10**6, 1, TrialState.RUNNING
    forged = StoredTrialSample(tick_id=10**6, state=TrialState.RUNNING)
    elsewhere = trial_params([actor_params("a", "x", endpoint=trap)], environment_endpoint=trap, datalog_endpoint=trap)
    trial = {TRIAL_ID: trial_id, USER_ID: "u"}

    async def play() -> None:
        joined = False

        async def part(_session: Any) -> None:
            nonlocal joined
            joined = True

        await join_trial(channel, trial_id, part, actor_name="c")
        if not joined:  # pages are told by the last message, as their clients see no status
            raise RpcError(StatusCode.UNAUTHENTICATED, "the trial is over before it has begun")

    async def world(what: str) -> None:
        async with open_connection(channel) as connection:
            if what == "create":
                await connection.create_world()
            else:
                await connection.read_property("worlds")

    ask = partial(answers, channel)
    return {
        "read trials": controller.trial_infos,
        "watch trials": lambda: controller.wait_trial(trial_id),
        "read stored trials": lambda: ask(STORE["RetrieveTrials"], RetrieveTrialsRequest()),
        "read samples": lambda: ask(STORE["RetrieveSamples"], RetrieveSamplesRequest(trial_ids=[trial_id])),
        "read models": lambda: models.retrieve("walker"),
        "read runs": lambda: trainer.ask("ListRuns", ListRunsRequest()),
        "read registrations": lambda: inquire(channel),
        "read worlds": lambda: world("read"),
        "terminate softly": lambda: controller.terminate_trial(trial_id),
        "terminate": lambda: controller.terminate_trial(trial_id, hard=True),
        "terminate as an old client": old.end,
        "play": play,
        "play as an old client": lambda: old.act(b"forged"),
        "start a trial": lambda: controller.start_trial(trial_params([])),
        "start a world's trial": lambda: world("create"),
        "start as an old client": old.start,
        "have it connect to me by a trial": lambda: controller.start_trial(elsewhere),
        "have it connect to me by a registration": lambda: register(channel, "mine", here.trap_port),
        "delete samples": lambda: ask(STORE["DeleteTrials"], DeleteTrialsRequest(trial_ids=[trial_id])),
        "forge samples": lambda: ask(STORE["AddSample"], AddSampleRequest(trial_sample=forged), metadata=trial),
        "forge samples as a data log": lambda: ask(
            DATALOG["RunTrialDatalog"],
            RunTrialDatalogInput(trial_params=TrialParams()),
            RunTrialDatalogInput(sample=sample),
            metadata=trial,
        ),
        "forge a trial": lambda: ask(STORE["AddTrial"], AddTrialRequest(trial_params=TrialParams()), metadata=trial),
        "delete a model": lambda: models.delete_model("walker"),
        "forge a version": lambda: models.publish("walker", b"forged"),
        "forge an archived version": lambda: models.store("walker", b"forged"),
        "replace a registration": lambda: register(channel, "hers", 4001),
        "push out registrations": lambda: register(channel, "hers", 4000),
        "deregister": lambda: ask(DIRECTORY["Deregister"], DeregisterRequest(service_id=1, secret="x")),
        "start a program": lambda: trainer.ask("SubmitRun", SubmitRunRequest(run_id="x", config_json=a_config())),
        "cancel a run": lambda: trainer.ask("CancelRun", CancelRunRequest(run_id="run")),
        "take a worker's place": lambda: trainer.register("run"),
        "forge steps": lambda: trainer.publish([]),
    }


@pytest.mark.parametrize("protocol", ["http2", "grpc-web", "websocket"])
async def test_nothing_works_without_a_token(protocol: str, secret: Path, tmp_path: Path) -> None:
    async with lab(secret, tmp_path) as here, stranger(here.running.port, protocol) as channel:
        tried = attacks(here, channel)
        for name, attack in tried.items():
            with pytest.raises(CogmentError) as caught:
                await attack()
            refusal = caught.value
            while refusal.__cause__ is not None and not isinstance(refusal, RpcError):
                refusal = refusal.__cause__  # type: ignore[assignment]  # what was raised for it
            assert "UNAUTHENTICATED" in str(refusal), (name, refusal)
        assert len(tried) > 30
        await here.check_unharmed()
        await here.running.stop()
    assert "call from ipv4:127.0.0.1 refused" in here.running.err


async def test_no_method_is_open(secret: Path, tmp_path: Path) -> None:
    """By grpcio, with no token, a forged one and a foreign one."""
    foreign = FOREIGN.sign(Token(token_id="f", grant=grant(Role.ADMIN), expires_at=0))

    def ask(port: int, forged: str) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for text in (None, forged, foreign, "nonsense"):
                for path in PATHS:
                    code = code_of(channel, path, text)
                    open_to_all = path == HEALTH_CHECK and text is None
                    assert code is (grpc.StatusCode.OK if open_to_all else grpc.StatusCode.UNAUTHENTICATED), path

    async with lab(secret, tmp_path) as here:
        await trio.to_thread.run_sync(ask, here.running.port, here.admin[:-2])
        await here.check_unharmed()


async def test_pages_and_metrics_tell_nothing(secret: Path, tmp_path: Path) -> None:
    def metrics(port: int, authorization: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
        if authorization:
            request.add_header("authorization", authorization)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code

    async with lab(secret, tmp_path) as here:
        scraper = await trio.to_thread.run_sync(token, secret, "prometheus")
        for authorization, expected in (("", 401), ("Bearer x", 401), (f"Bearer {scraper}", 200)):
            found = await trio.to_thread.run_sync(metrics, here.metrics_port, authorization)
            assert found == expected
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.running.port}") as browser:
            for path in (
                "/",
                "/dashboard",
                "/logs",
                "/play",
                "/events",
                "/trials",
                f"/trials/{here.trial_id}",
                "/runs",
            ):
                reply = await browser.get(path)
                assert here.trial_id not in reply.text, path
                assert "walker" not in reply.text, path
        # A scraper's token can do nothing else.
        async with Channel("127.0.0.1", here.running.port, token=scraper) as channel:
            with pytest.raises(RpcError) as caught:
                await Controller(channel).trial_infos()
            assert caught.value.code is StatusCode.PERMISSION_DENIED
        await here.check_unharmed()
