"""The service `TrialAttempts`: who may call it, and what it does for orchestrators that go on with trials."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.access.keys import control, grant, token_text
from tests.servers.datastore.harness import params_with
from tests.test_resuming import LAST_TICK, PARAMS, TOTALS, Table
from trio_cogment import Platform, open_platform
from trio_cogment.access import EXACTLY, AccessControl, Grant, Role
from trio_cogment.api.attempts_pb2 import (
    DESCRIPTOR,
    GiveUpRequest,
    LeftTrial,
    ReleaseRequest,
    TakeOverRequest,
    WatchLeftRequest,
)
from trio_cogment.api.common_pb2 import EndOfTrial
from trio_cogment.api.datalog_pb2 import DESCRIPTOR as DATALOG
from trio_cogment.api.datalog_pb2 import (
    DatalogSample,
    LogExporterSampleRequest,
    RunTrialDatalogInput,
    SampleInfo,
)
from trio_cogment.base import services
from trio_cogment.base.config import DatastoreConfig, OrchestratorConfig, PlatformConfig, RpcConfig
from trio_cogment.base.errors import InvalidArgumentError, RpcError, StatusCode
from trio_cogment.base.services import (
    ATTEMPTS,
    SERVICES,
    TRIAL_ATTEMPT,
    TRIAL_ID,
    TRIAL_ORCHESTRATOR,
    TRIAL_OWNER,
    TRIAL_QUOTAS,
    ServiceKind,
)
from trio_cogment.rpc import CallOpener, Channel, InProcessChannel, methods_of, open_listeners, serve
from trio_cogment.sdk import DatastoreClient
from trio_cogment.servers.datastore import Datastore, TrialEnd, datastore_services
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.storage import ELSEWHERE, RELEASED
from trio_cogment.servers.orchestrator._attempts import Attempts
from trio_cogment.servers.orchestrator._connections import OWN_TOKEN_SECONDS, Connections
from trio_cogment.testing.conformance.trial_store import get, new_trial

METHODS = methods_of(DESCRIPTOR.services_by_name[ATTEMPTS])
DATA_LOG = methods_of(SERVICES[ServiceKind.DATALOG].descriptor())["RunTrialDatalog"]
LOG_EXPORTER = methods_of(DATALOG.services_by_name[services.LOG_EXPORTER])["RunTrialDatalog"]
_HERE, _THERE = "grpc://here:9000", "grpc://there:9000"
REQUESTS = {
    "WatchLeft": WatchLeftRequest(),
    "TakeOver": TakeOverRequest(trial_id="a", attempt=1, orchestrator=_HERE),
    "GiveUp": GiveUpRequest(trial_id="a", attempt=1, end=EndOfTrial()),
    "Release": ReleaseRequest(trial_id="a", attempt=1),
}


@asynccontextmanager
async def listening(datastore: Datastore, access: AccessControl | None = None) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(partial(serve, datastore_services(datastore), listeners, access=access))
        yield running.port
        nursery.cancel_scope.cancel()


async def first_reply(channel: CallOpener, method: str) -> Any:
    async with channel.call(METHODS[method]) as call:
        await call.send(REQUESTS[method])
        await call.done_sending()
        return await call.receive()


@pytest.mark.parametrize(
    ("held", "may"),
    [
        (grant(Role.ADMIN), True),
        (grant(Role.ORCHESTRATOR), True),
        (grant(Role.ORCHESTRATOR, trials=(EXACTLY + "a",)), False),
        (Grant(name="x", roles=frozenset([Role.ORCHESTRATOR]), owner="token:ann"), False),
        (grant(Role.OPERATOR), False),
        (grant(Role.OBSERVER), False),
        (grant(Role.PARTICIPANT, trials=("a",)), False),
    ],
)
@pytest.mark.parametrize("method", METHODS)
async def test_only_orchestrators_may_and_none_with_the_token_of_a_trial(method: str, held: Grant, may: bool) -> None:
    """The participants of a trial know the token that its orchestrator calls them with."""
    store = MemoryStore(1 << 20)
    await store.apply([new_trial("a", endpoint=RELEASED, attempt=1)])
    async with (
        Datastore(store) as datastore,
        listening(datastore, control()) as port,
        Channel("127.0.0.1", port, token=token_text(held)) as channel,
    ):
        if may:
            assert await first_reply(channel, method) is not None
        else:
            with pytest.raises(RpcError) as refused:
                await first_reply(channel, method)
            assert refused.value.code is StatusCode.PERMISSION_DENIED


async def test_a_data_log_with_the_token_of_a_trial_is_no_attempt_at_it() -> None:
    """The participants know that token: with an attempt they would take the trial from its orchestrator."""
    store = MemoryStore(1 << 20)
    own, shared = (token_text(grant(Role.ORCHESTRATOR, trials=trials)) for trials in ((), (EXACTLY + "a",)))
    async with (
        Datastore(store) as datastore,
        listening(datastore, control()) as port,
        Channel("127.0.0.1", port, token=own) as orchestrator,
        Channel("127.0.0.1", port, token=shared) as participant,
    ):
        async with data_log(orchestrator, 0) as attempt:
            for said in (0, attempt, attempt + 1):
                with pytest.raises(RpcError) as refused:
                    async with data_log(participant, said):
                        pass
                assert refused.value.code is StatusCode.PERMISSION_DENIED
        async with data_log(orchestrator, attempt) as still:
            assert still == attempt == 1


@pytest.mark.parametrize("method", [DATA_LOG, LOG_EXPORTER], ids=["documented", "other"])
async def test_a_data_log_with_the_token_of_a_trial_does_not_replace_its_parameters(method: Any) -> None:
    """The next attempt at the trial would be started with them."""
    store = MemoryStore(1 << 20)
    own, shared = (token_text(grant(Role.ORCHESTRATOR, trials=trials)) for trials in ((), (EXACTLY + "a",)))
    async with (
        Datastore(store) as datastore,
        listening(datastore, control()) as port,
        Channel("127.0.0.1", port, token=own) as orchestrator,
        Channel("127.0.0.1", port, token=shared) as participant,
        data_log(orchestrator, 0),
        participant.call(method, metadata=((TRIAL_ID, "a"),)) as call,
    ):
        message = RunTrialDatalogInput if method is DATA_LOG else LogExporterSampleRequest
        await call.send(message(trial_params=params_with("bob")))
        with pytest.raises(RpcError, match="its id is taken by a trial that is under way"):
            await call.receive()
        assert (await get(store, "a")).params == params_with("ann")


@pytest.mark.parametrize(("quotas", "code"), [("", None), ("stored_bytes=0", StatusCode.RESOURCE_EXHAUSTED)])
async def test_a_data_log_of_an_attempt_says_whose_it_is_and_what_that_one_may_store(
    quotas: str, code: StatusCode | None
) -> None:
    store = MemoryStore(1 << 20)
    about = ((TRIAL_ID, "a"), (TRIAL_ATTEMPT, "0"), (TRIAL_OWNER, "token:ann"), (TRIAL_QUOTAS, quotas))
    async with (
        Datastore(store) as datastore,
        listening(datastore, control()) as port,
        Channel("127.0.0.1", port, token=token_text(grant(Role.ORCHESTRATOR))) as channel,
        channel.call(DATA_LOG, metadata=about) as call,
    ):
        await call.send(RunTrialDatalogInput(trial_params=params_with("ann")))
        if code is None:
            assert (await call.receive()) is not None
            assert (await get(store, "a")).owner == "token:ann"
        else:
            with pytest.raises(RpcError) as refused:
                await call.receive()
            assert refused.value.code is code


async def test_of_many_who_take_over_one_has_the_trial() -> None:
    store = MemoryStore(1 << 20)
    await store.apply([new_trial("a", endpoint=RELEASED, attempt=3)])
    taken = []
    async with Datastore(store) as datastore, listening(datastore) as port:

        async def take(number: int) -> None:
            request = TakeOverRequest(trial_id="a", attempt=3, orchestrator=f"grpc://host{number}:9000")
            async with Channel("127.0.0.1", port) as channel:
                reply = await channel.unary(METHODS["TakeOver"], request)
            taken.append((reply.attempt, request.orchestrator))

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(take, number)
        assert sorted(attempt for attempt, _ in taken) == [0] * 9 + [4]
        assert (await get(store, "a")).endpoint == ELSEWHERE + dict(taken)[4]


@asynccontextmanager
async def data_log(channel: CallOpener, attempt: int, endpoint: str = _HERE) -> AsyncIterator[int]:
    """Write a trial as the orchestrator at an endpoint does; gives the number of the attempt."""
    about = ((TRIAL_ID, "a"), (TRIAL_ORCHESTRATOR, endpoint), (TRIAL_ATTEMPT, str(attempt)))
    async with channel.call(DATA_LOG, metadata=about) as call:
        await call.send(RunTrialDatalogInput(trial_params=params_with("ann")))
        reply = await call.receive()
        assert reply is not None
        yield reply.attempt


@asynccontextmanager
async def watched(channel: CallOpener, endpoint: str) -> AsyncIterator[trio.MemoryReceiveChannel[LeftTrial]]:
    """Hear of the trials that nobody runs, as the orchestrator at an endpoint."""
    told, heard = trio.open_memory_channel[LeftTrial](100)

    async def listen(task_status: trio.TaskStatus[None]) -> None:
        async with channel.call(METHODS["WatchLeft"]) as call:
            await call.send(WatchLeftRequest(orchestrator=endpoint))
            await call.done_sending()
            assert await call.receive() == LeftTrial()
            task_status.started()
            async for left in call:
                told.send_nowait(left)

    async with trio.open_nursery() as nursery:
        await nursery.start(listen)
        yield heard
        nursery.cancel_scope.cancel()


async def take_over(channel: CallOpener, attempt: int, endpoint: str) -> int:
    request = TakeOverRequest(trial_id="a", attempt=attempt, orchestrator=endpoint)
    return int((await channel.unary(METHODS["TakeOver"], request)).attempt)


async def test_an_orchestrator_hears_of_its_own_as_soon_as_their_data_log_is_gone(autojump_clock: MockClock) -> None:
    """Another one hears of them when their data log has not come back in time; that one has to hurry."""
    store = MemoryStore(1 << 20)
    async with (
        Datastore(store) as datastore,
        InProcessChannel(datastore_services(datastore)) as channel,
        watched(channel, _HERE) as own,
        watched(channel, _THERE) as others,
    ):
        began = trio.current_time()
        async with data_log(channel, 0) as attempt:
            assert attempt == 1
            await trio.sleep(10)
        left = await own.receive()
        assert (left.trial_id, left.attempt, left.params) == ("a", 1, params_with("ann"))
        assert trio.current_time() - began - 10 < 1
        assert (await others.receive()).trial_id == "a"
        assert trio.current_time() - began - 10 >= datastore.config.abandoned_after_seconds
        assert (await get(store, "a")).endpoint == RELEASED
        # Its data log comes back after all, before somebody has taken it over: it is nobody else's.
        async with data_log(channel, 1) as attempt:
            assert attempt == 1
            assert await take_over(channel, 1, _THERE) == 0
        assert await take_over(channel, 1, _HERE) == 2
        with pytest.raises(RpcError, match="attempt 1 may not write it, it is at attempt 2"):
            async with data_log(channel, 1):
                pass


@pytest.mark.parametrize("released", [False, True], ids=["killed", "stopped"])
async def test_what_nobody_takes_over_is_ended(released: bool, autojump_clock: MockClock) -> None:
    store = MemoryStore(1 << 20)
    config = DatastoreConfig(abandoned_after_seconds=20, resumable_seconds=300)
    async with (
        Datastore(store, config=config) as datastore,
        InProcessChannel(datastore_services(datastore)) as channel,
    ):
        async with data_log(channel, 0):
            pass
        if released:
            await datastore.release("a", 1)
        began = trio.current_time()
        async with store.watch() as watch:
            while (await get(store, "a")).end is TrialEnd.OPEN:
                await watch.changed()
        assert 320 <= trio.current_time() - began < 322


async def test_what_nobody_can_go_on_with_is_not_kept(autojump_clock: MockClock) -> None:
    store = MemoryStore(1 << 20)
    params = params_with("ann")
    params.datalog.exclude_fields.append("actions")
    async with Datastore(store, config=DatastoreConfig(abandoned_after_seconds=20)) as datastore:
        async with datastore.sink().counted(0).open("a", "me", params) as stream:
            await stream.write(DatalogSample(info=SampleInfo(tick_id=0)))
            await stream.flush()
        with trio.fail_after(22):
            async with store.watch() as watch:
                while (await get(store, "a")).end is TrialEnd.OPEN:
                    await watch.changed()


@pytest.mark.parametrize("here", [_HERE, _THERE], ids=["itself", "another"])
async def test_an_orchestrator_that_starts_much_later_goes_on(here: str, autojump_clock: MockClock) -> None:
    """Each attempt has the whole time again, and one whose orchestrator came is not kept any more."""
    store = MemoryStore(1 << 20)
    config = DatastoreConfig(abandoned_after_seconds=20, resumable_seconds=300)
    async with (
        Datastore(store, config=config) as datastore,
        InProcessChannel(datastore_services(datastore)) as channel,
    ):
        for attempt in range(1, 4):
            if attempt == 1 or here == _HERE:  # whose data log this is
                async with data_log(channel, attempt if attempt > 1 else 0):
                    pass
            await trio.sleep(290)
            async with watched(channel, here) as left:
                assert (await left.receive()).attempt == attempt
            assert await take_over(channel, attempt, here) == attempt + 1
        await trio.sleep(19)
        assert (await get(store, "a")).end is TrialEnd.OPEN


async def test_an_orchestrator_asks_anew_before_its_token_has_expired(autojump_clock: MockClock) -> None:
    async with (
        Datastore(MemoryStore(1 << 20)) as datastore,
        InProcessChannel(datastore_services(datastore)) as channel,
        trio.open_nursery() as nursery,
    ):
        began = trio.current_time()
        await Attempts(Connections(nursery, None, RpcConfig()), channel, "x").watch_left("", lambda _trial: None)
        assert trio.current_time() - began == OWN_TOKEN_SECONDS / 2


async def test_trials_of_orchestrators_elsewhere_are_not_taken_from_them_by_the_one_here() -> None:
    """After a restart of a datastore that has its file to itself, those of its own process are certainly left."""
    store = MemoryStore(1 << 20)
    store.exclusive = True  # type: ignore[attr-defined]  # as a file is
    await store.apply([new_trial("here", endpoint=_HERE, attempt=1)])
    await store.apply([new_trial("there", endpoint=ELSEWHERE + _THERE, attempt=1)])
    async with Datastore(store) as datastore:
        assert [trial.trial_id for trial in await datastore.left_open("")] == ["here"]
        assert [trial.trial_id for trial in await datastore.left_open(_THERE, elsewhere=True)] == ["there"]
        assert await datastore.left_open("", elsewhere=True) == []


@pytest.mark.parametrize("said", ["", "-1", "x", "9" * 30, "1.5"])
async def test_what_is_no_attempt_is_refused(said: str) -> None:
    async with (
        Datastore(MemoryStore(1 << 20)) as datastore,
        listening(datastore) as port,
        Channel("127.0.0.1", port) as channel,
    ):
        about = ((TRIAL_ID, "a"), (TRIAL_ATTEMPT, said))
        async with channel.call(DATA_LOG, metadata=about) as call:
            await call.send(RunTrialDatalogInput(trial_params=params_with("ann")))
            with pytest.raises(RpcError, match="trial-attempt: expected a number from 0 on"):
                await call.receive()


@asynccontextmanager
async def orchestrator(port: int, table: Table, name: str) -> AsyncIterator[Platform]:
    settings = OrchestratorConfig(resume=True, datastore=f"grpc://127.0.0.1:{port}", farewell_seconds=0.5)
    config = PlatformConfig(orchestrator=settings)
    async with open_platform(table.participants(), config=config, access=control()) as platform:
        platform.reached_at(f"grpc://{name}:9000")
        yield platform


@pytest.mark.parametrize("settings", [{"resume": True}, {}])
async def test_the_token_for_all_trials_is_for_no_datastore_that_a_directory_names(settings: dict[str, bool]) -> None:
    orchestrator = OrchestratorConfig(datastore="cogment://discover", **settings)
    if not settings:
        async with open_platform(config=PlatformConfig(orchestrator=orchestrator), access=control()):
            return
    with pytest.raises(InvalidArgumentError, match="datastore: with resume, where tokens are asked for, expected its"):
        async with open_platform(config=PlatformConfig(orchestrator=orchestrator), access=control()):
            pass


async def test_a_stop_hands_trials_over_where_tokens_are_asked_for() -> None:
    """With the keys of the site orchestrators make the tokens that they need, to take trials over and to read them."""
    store = MemoryStore(1 << 30)
    reached = trio.Event()
    first, second = Table(5, reached.set), Table()
    with trio.fail_after(20):
        async with Datastore(store) as datastore, listening(datastore, control()) as port:
            async with orchestrator(port, first, "one") as one:
                await one.controller.start_trial(PARAMS, trial_id="t")
                await reached.wait()
            assert (await get(store, "t")).endpoint == RELEASED
            async with (
                orchestrator(port, second, "two"),
                InProcessChannel(datastore_services(datastore)) as channel,
            ):
                client = DatastoreClient(channel)
                async for _ in client.samples(["t"], follow=True):
                    pass
                samples = [sample async for sample in client.samples(["t"], partial=True)]
    assert [sample.tick_id for sample in samples] == list(range(LAST_TICK + 1))
    assert [sample.actors["a"].observation for sample in samples] == TOTALS
    assert second.ticks == list(range(5, LAST_TICK + 1))
    assert (await get(store, "t")).attempt == 2
