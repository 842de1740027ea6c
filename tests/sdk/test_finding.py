"""A trial is found, whichever orchestrator runs it: by the datastore, or by asking all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from purerpc import Service
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.cli.process import listening, run_here
from trio_cogment import (
    ActorSession,
    EnvironmentSession,
    Participants,
    Platform,
    actor_params,
    connect,
    open_platform,
    trial_params,
)
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfoReply, TrialInfoRequest
from trio_cogment.base.config import DirectoryServerConfig, RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode, UnavailableError
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import CallOpener, InProcessChannel
from trio_cogment.sdk._finding import FoundTrial, Informants, TrialFinder
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.discovery import DirectoryClient

AT_ONCE = RpcConfig(await_server_seconds=0)


async def endless(session: EnvironmentSession) -> None:
    await session.start([("*", b"0")])
    async for _ in session.all_events():
        pass


async def idle(session: ActorSession) -> None:
    async for _ in session.all_events():
        pass


def players() -> Participants:
    participants = Participants()
    participants.register_environment(endless)
    participants.register_actor(idle, "idle")
    return participants


@dataclass
class Three:
    """Three orchestrators of one directory; with a datastore, it is the first one's."""

    platforms: list[Platform]
    endpoints: list[str]
    directory: DirectoryClient
    services: list[Service]


@asynccontextmanager
async def three(*, datastore: bool) -> AsyncIterator[Three]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(DirectoryServer(config=DirectoryServerConfig(startup_lag_seconds=0)))
        services = directory_services(server)
        channel = await stack.enter_async_context(InProcessChannel(services))
        directory = DirectoryClient(channel)
        platforms, endpoints = [], []
        for number in range(3):
            store = "memory:" if datastore and number == 0 else None
            platform = await stack.enter_async_context(open_platform(players(), store=store, directory=directory))
            endpoint = await stack.enter_async_context(listening(*platform.services))
            platform.reached_at(endpoint)
            await directory.register(
                ServiceKind.LIFECYCLE, parse_server_endpoint(endpoint), properties={"n": str(number)}
            )
            if store is not None:
                for kind in (ServiceKind.DATASTORE, ServiceKind.DATALOG):
                    await directory.register(kind, parse_server_endpoint(endpoint))
            platforms.append(platform)
            endpoints.append(endpoint)
        yield Three(platforms, endpoints, directory, services)


async def begin(platform: Platform, *, stored: bool) -> str:
    params = trial_params([actor_params("ann", "player")], datalog_endpoint="cogment://discover" if stored else "")
    trial_id = await platform.controller.start_trial(params)
    await platform.controller.wait_trial_state(trial_id, TrialState.RUNNING)
    return trial_id


@pytest.mark.parametrize("datastore", [False, True], ids=["asked", "stored"])
async def test_a_trial_of_any_orchestrator_is_found(datastore: bool) -> None:
    async with three(datastore=datastore) as all_, connect(directory=all_.directory, variables={}) as client:
        for platform, endpoint in zip(all_.platforms, all_.endpoints, strict=True):
            trial_id = await begin(platform, stored=datastore)
            for find in (client.find_trial, (await client.controller()).find_trial):
                found = await find(trial_id)
                assert (found.endpoint, found.is_stored, found.ended) == (endpoint, datastore, False)
            controller = await client.controller(found.endpoint)
            (info,) = await controller.trial_infos([trial_id])
            assert info.trial_id == trial_id
            await controller.terminate_trial(trial_id, hard=True)
            await controller.wait_trial(trial_id, check=False)
            found = await client.find_trial(trial_id)
            assert found.ended
        with pytest.raises(NotFoundError, match="'nobody': no datastore and no orchestrator knows it"):
            await client.find_trial("nobody")


@pytest.mark.parametrize("datastore", [False, True], ids=["asked", "stored"])
async def test_the_command_line_finds_a_trial_of_any_orchestrator(datastore: bool) -> None:
    async with three(datastore=datastore) as all_, listening(*all_.services) as directory:
        for platform, endpoint in zip(all_.platforms, all_.endpoints, strict=True):
            trial_id = await begin(platform, stored=datastore)
            output = await run_here("client", "trial", "find", f"--directory_endpoint={directory}", trial_id)
            # A datastore knows no state of a trial that has no sample yet.
            state = "no sample yet" if datastore else "RUNNING"
            assert (output.code, output.out) == (0, f"{trial_id}  {endpoint}  {state}\n"), output.err


async def test_who_does_not_answer_is_named_unless_somebody_knows() -> None:
    async with three(datastore=False) as all_:
        gone = GrpcEndpoint("127.0.0.1", 1)
        await all_.directory.register(ServiceKind.LIFECYCLE, gone, permanent=True, properties={"gone": "1"})
        async with connect(directory=all_.directory, variables={}, config=AT_ONCE) as client:
            trial_id = await begin(all_.platforms[2], stored=False)
            assert (await client.find_trial(trial_id)).endpoint == all_.endpoints[2]
            with pytest.raises(UnavailableError, match=r"not all have: grpc://127\.0\.0\.1:1: "):
                await client.find_trial("nobody")


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_a_controller_alone_asks_its_own_server(store: str | None) -> None:
    async with open_platform(players(), store=store) as platform:
        trial_id = await begin(platform, stored=store is not None)
        found = await platform.controller.find_trial(trial_id)
        assert (found.endpoint, found.is_stored, found.state) == ("", store is not None, TrialState.RUNNING)
        with pytest.raises(NotFoundError):
            await platform.controller.find_trial("nobody")


async def test_a_stored_trial_of_an_orchestrator_that_is_gone() -> None:
    async with open_platform(players(), store="memory:") as platform:
        platform.reached_at("grpc://192.0.2.1:9000")
        trial_id = await begin(platform, stored=True)
        found = await platform.controller.find_trial(trial_id)
        assert (found.endpoint, found.is_stored) == ("grpc://192.0.2.1:9000", True)


async def test_whom_the_directory_names_is_remembered_until_nobody_knows_a_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with three(datastore=False) as all_, connect(directory=all_.directory, variables={}) as client:
        asked = []
        inquire = DirectoryClient.inquire

        async def counted(directory: DirectoryClient, *arguments: Any, **options: Any) -> Any:
            asked.append(arguments)
            return await inquire(directory, *arguments, **options)

        monkeypatch.setattr(DirectoryClient, "inquire", counted)
        for platform, endpoint in zip(all_.platforms, all_.endpoints, strict=True):
            trial_id = await begin(platform, stored=False)
            assert (await client.find_trial(trial_id)).endpoint == endpoint
        assert len(asked) == 1
        async with open_platform(players()) as newcomer, listening(*newcomer.services) as endpoint:
            await all_.directory.register(
                ServiceKind.LIFECYCLE, parse_server_endpoint(endpoint), properties={"n": "new"}
            )
            trial_id = await begin(newcomer, stored=False)
            assert (await client.find_trial(trial_id)).endpoint == endpoint
            assert len(asked) == 2
            with pytest.raises(NotFoundError):
                await client.find_trial("nobody")
            assert len(asked) == 3


async def test_who_is_slow_is_not_waited_for_when_another_knows(autojump_clock: MockClock) -> None:
    """Whoever is connected answers by himself; the call at the slow one ends when that answers."""
    answers: dict[str, Any] = {}

    class Slow(CallOpener):
        def __init__(self, name: str) -> None:
            self.name = name

        def call(self, *_arguments: Any, **_options: Any) -> Any:
            raise AssertionError

        def unary_nowait(self, method: Any, request: Any, on_reply: Any, **_options: Any) -> Any:
            assert (method.path.rpartition("/")[2], request) == ("GetTrialInfo", TrialInfoRequest())
            answers[self.name] = on_reply
            return object()

    async def look_up() -> Informants:
        return Informants(None, {"slow": Slow("slow"), "owner": Slow("owner")})

    found: list[FoundTrial] = []

    async def find() -> None:
        found.append(await TrialFinder(look_up).find("t"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(find)
        await wait_all_tasks_blocked()
        reply = TrialInfoReply()
        reply.trial.add(trial_id="t", state=TrialState.RUNNING)
        answers["owner"](reply, None)
    assert [one.endpoint for one in found] == ["owner"]
    assert trio.current_time() == 0
    answers["slow"](None, RpcError(StatusCode.DEADLINE_EXCEEDED, "late"))


class Asked:
    """A datastore that has the answer to one question."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def trial(self, _trial_id: str) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def found_by(datastore: Any) -> FoundTrial:
    async def look_up() -> Informants:
        return Informants(datastore, {})

    return await TrialFinder(look_up).find("t")


async def test_a_stored_trial_whose_orchestrator_is_gone_is_nowhere() -> None:
    stored = SimpleNamespace(orchestrator="", ended=False, state=TrialState.RUNNING)
    assert await found_by(Asked(stored)) == FoundTrial("t", "", TrialState.RUNNING, is_stored=True)


async def test_a_datastore_that_does_not_answer_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"not all have: the datastore: it is gone$"):
        await found_by(Asked(RpcError(StatusCode.UNAVAILABLE, "it is gone")))
    with pytest.raises(NotFoundError):
        await found_by(Asked(RpcError(StatusCode.UNIMPLEMENTED, "none here")))
    with pytest.raises(RpcError, match="not for you"):
        await found_by(Asked(RpcError(StatusCode.PERMISSION_DENIED, "not for you")))
