"""Staying registered: with a directory that is late, dies, forgets, refuses, hangs, or lies."""

from __future__ import annotations

import itertools
import logging
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from trio_cogment._version import __version__
from trio_cogment.api.directory_pb2 import DeregisterRequest, RegisterRequest, ServiceEndpoint, ServiceType
from trio_cogment.base.config import DirectoryConfig
from trio_cogment.base.errors import RpcError, StatusCode, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import InProcessChannel, open_listeners, serve
from trio_cogment.servers.discovery import (
    DirectoryClient,
    Offer,
    Registrations,
    keep_registered,
    open_directory,
    own_address,
)
from trio_cogment.testing.fakes.directory import FakeDirectory

Clock = trio.testing.MockClock
LIFECYCLE, CLIENT_ACTOR = ServiceType.TRIAL_LIFE_CYCLE_SERVICE, ServiceType.CLIENT_ACTOR_CONNECTION_SERVICE
OFFERS = (Offer(kind=ServiceKind.CLIENT_ACTOR, port=9001), Offer(kind=ServiceKind.LIFECYCLE, port=9000))
PATIENCE_SECONDS = 60


class Bench:
    """Services that are kept registered in a directory whose misfortunes a test decides."""

    def __init__(self, fake: FakeDirectory, state: Registrations, scope: trio.CancelScope) -> None:
        self.fake = fake
        self.state = state
        self._scope = scope

    def leave(self) -> None:
        self._scope.cancel()

    def registered(self) -> list[tuple[int, str, int]]:
        return [
            (entry.data.details.type, entry.data.endpoint.host, entry.data.endpoint.port)
            for entry in self.fake.entries.values()
        ]


BOTH = [(CLIENT_ACTOR, "us", 9001), (LIFECYCLE, "us", 9000)]


@asynccontextmanager
async def keeping(
    fake: FakeDirectory | None = None,
    offers: Sequence[Offer] = OFFERS,
    config: DirectoryConfig | None = None,
    token: str = "",
    **options: Any,
) -> AsyncIterator[Bench]:
    fake = fake or FakeDirectory()
    options = {"registration_host": "us", "host": Host(random=lambda _name: random.Random(1)), **options}
    async with InProcessChannel([fake.service()]) as channel, trio.open_nursery() as nursery:
        directory = DirectoryClient(channel, token=token, config=config)
        scope = trio.CancelScope()

        async def keep(task_status: trio.TaskStatus[Registrations]) -> None:
            with scope:
                await keep_registered(directory, offers, task_status=task_status, **options)

        state = await nursery.start(keep)
        yield Bench(fake, state, scope)
        scope.cancel()


# What is registered


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ({}, {"__version": __version__, "__registration_source": "Self-Command_Line"}),
        ({"registration_host": ""}, {"__version": __version__, "__registration_source": "Self-Implicit"}),
        ({"source": "Mine"}, {"__version": __version__, "__registration_source": "Mine"}),
        (
            {"properties": {"zone": "a", "empty": "", "__version": "7", "own": "theirs"}},
            {
                "__version": "7",
                "__registration_source": "Self-Command_Line",
                "zone": "a",
                "empty": "",
                "own": "theirs",
            },
        ),
    ],
)
async def test_one_stream_and_one_request_each(
    options: dict[str, Any], properties: dict[str, str], autojump_clock: Clock
) -> None:
    async def find() -> str:
        return "us"

    own = {"own": "ours"} if "properties" in options else {}
    offers = [Offer(kind=offer.kind, port=offer.port, properties=own) for offer in OFFERS]
    async with keeping(offers=offers, token="t", find_host=find, **options) as bench:
        await bench.state.complete.wait_value(True)
    assert bench.fake.methods() == ["Register", "Register", "Deregister", "Deregister"]
    assert {request.token for request in bench.fake.requests} == {"t"}
    for request, (kind, host, port) in zip(bench.fake.requests, BOTH, strict=False):
        message = request.message
        assert isinstance(message, RegisterRequest)
        assert message.endpoint == ServiceEndpoint(protocol=ServiceEndpoint.GRPC, host=host, port=port)
        assert message.details.type == kind
        assert dict(message.details.properties) == properties
        assert not message.permanent
    assert not bench.fake.entries


async def test_ssl_is_told(autojump_clock: Clock) -> None:
    async with keeping(ssl=True) as bench:
        await bench.state.complete.wait_value(True)
        protocols = {entry.data.endpoint.protocol for entry in bench.fake.entries.values()}
        await trio.sleep(60)
        assert bench.fake.methods().count("Register") == 2
    assert protocols == {ServiceEndpoint.GRPC_SSL}


async def test_own_address_is_one_that_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = []

    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
            assert host == socket.gethostname().encode()
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in answers.pop(0)]

        async def getnameinfo(self, *args: Any) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Resolver())
    for addresses, chosen in (
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1"),
        (["127.0.1.1", "10.0.0.2"], "10.0.0.2"),
        (["127.0.1.1", "127.0.0.1"], "127.0.1.1"),
    ):
        answers.append(addresses)
        assert await own_address() == chosen
    monkeypatch.setattr(Resolver, "getaddrinfo", partial(_fail, socket.gaierror(-2, "Name or service not known")))
    with pytest.raises(UnavailableError, match=r"no IPv4 address: .*--directory_registration_host"):
        await own_address()


async def _fail(error: Exception, *_arguments: Any, **_options: Any) -> None:
    raise error


# Misfortunes


async def test_a_directory_that_is_late(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeDirectory()
    fake.failing["Register"] = RpcError(StatusCode.UNAVAILABLE, "connection refused")
    async with keeping(fake) as bench:
        await trio.sleep(100)
        assert not bench.state.complete.value
        attempts = len(fake.requests)
        assert 8 < attempts < 20
        fake.failing.clear()
        await bench.state.complete.wait_value(True)
        assert trio.current_time() < 100 + 12 + 1
        assert bench.registered() == BOTH
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["registering actservice grpc://us:9001: the directory cannot be reached: connection refused"]


def _seeded(seed: int, _name: str) -> random.Random:
    return random.Random(seed)


async def test_pauses_grow_and_differ(autojump_clock: Clock) -> None:
    pauses: dict[int, list[float]] = {}
    for seed in (1, 2):
        times: list[float] = []
        fake = FakeDirectory()
        note = partial(_note_time, times)
        fake.Register = note  # type: ignore[method-assign]  # of this fake alone
        config = DirectoryConfig(retry_initial_seconds=1, retry_max_seconds=8)
        async with keeping(fake, config=config, host=Host(random=partial(_seeded, seed))):
            await trio.sleep(60)
        pauses[seed] = [later - earlier for earlier, later in itertools.pairwise(times)]
        for pause, expected in zip(pauses[seed], [1, 2, 4, 8, 8, 8], strict=False):
            assert pause == pytest.approx(expected, rel=0.2001)
    assert pauses[1] != pauses[2]


async def _note_time(times: list[float], _call: object) -> None:
    times.append(trio.current_time())
    raise RpcError(StatusCode.UNAVAILABLE)


async def test_a_directory_that_forgets(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with keeping() as bench:
        await bench.state.complete.wait_value(True)
        await trio.sleep(100)
        assert bench.fake.methods().count("Register") == 2
        bench.fake.forget()
        forgotten = trio.current_time()
        await bench.state.complete.wait_value(False)
        await bench.state.complete.wait_value(True)
        assert trio.current_time() <= forgotten + 12
        assert bench.registered() == BOTH
    assert not bench.fake.entries
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 2
    assert "no longer shows service 1 (actservice grpc://us:9001); registering it again" in warnings[0]


async def test_a_directory_that_hides_us_has_never_two_of_us(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    class Hiding(FakeDirectory):
        async def Inquire(self, request: Any, call: Any) -> None:
            for entry in self.entries.values():
                entry.hidden = self.blind
            await super().Inquire(request, call)

        blind = True

    fake = Hiding()
    async with keeping(fake) as bench:
        await trio.sleep(200)
        assert bench.registered() == BOTH
        assert fake.methods().count("Register") > 10
        fake.blind = False
        await trio.sleep(30)
        registrations = fake.methods().count("Register")
        await trio.sleep(100)
        assert fake.methods().count("Register") == registrations
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 2  # once for each service, however long it lasts


async def test_an_id_that_is_anothers_now_is_not_ours(autojump_clock: Clock) -> None:
    """The directory restarted, and gave our number to somebody else."""
    async with keeping() as bench:
        await bench.state.complete.wait_value(True)
        bench.fake.forget()
        theirs = bench.fake.add(CLIENT_ACTOR, "them", 1)
        assert theirs == 1
        await trio.sleep(30)
        assert bench.registered() == [(CLIENT_ACTOR, "them", 1), *BOTH]
        assert bench.fake.methods().count("Register") == 4
    assert bench.registered() == [(CLIENT_ACTOR, "them", 1)]


async def test_one_refused_service_does_not_bar_the_other(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    class Choosy(FakeDirectory):
        async def _begin(self, method: str, call: Any, request: Any) -> str:
            refused = method == "Register" and request.details.type == CLIENT_ACTOR and not self.mild
            self.refusing = "no client actors here" if refused else ""
            return await super()._begin(method, call, request)

        mild = False

    fake = Choosy()
    async with keeping(fake) as bench:
        await trio.sleep(60)
        assert bench.registered() == BOTH[1:]
        assert not bench.state.complete.value
        fake.mild = True
        await bench.state.complete.wait_value(True)
        assert sorted(bench.registered()) == sorted(BOTH)
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["registering actservice grpc://us:9001: the directory refused: no client actors here"]


async def test_a_directory_that_hangs(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeDirectory()
    fake.hanging.add("Register")
    async with keeping(fake) as bench:
        await trio.sleep(100)
        assert 2 <= len(fake.requests) <= 4
        fake.hanging.clear()
        await bench.state.complete.wait_value(True)
        fake.hanging.add("Inquire")
        await bench.state.complete.wait_value(False)
        fake.hanging.clear()
        await bench.state.complete.wait_value(True)
        assert bench.registered() == BOTH
        assert fake.methods().count("Register") - 2 <= 4
    assert any("did not answer in time" in record.message for record in caplog.records)


async def test_an_address_that_is_found_later_or_changes(autojump_clock: Clock) -> None:
    hosts: list[str] = []

    async def find() -> str:
        if not hosts:
            raise UnavailableError("no address yet")
        return hosts[-1]

    async with keeping(registration_host="", find_host=find) as bench:
        await trio.sleep(10)
        assert not bench.fake.requests
        hosts.append("first")
        await bench.state.complete.wait_value(True)
        hosts.append("second")
        await trio.sleep(60)
        assert {host for _, host, _ in bench.registered()} == {"first"}
        bench.fake.forget()
        await trio.sleep(60)
        assert {host for _, host, _ in bench.registered()} == {"second"}


# Leaving


async def test_leaving_is_bounded_when_the_directory_hangs(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    config = DirectoryConfig(deregistration_timeout_seconds=3)
    async with keeping(config=config) as bench:
        await bench.state.complete.wait_value(True)
        bench.fake.hanging.add("Deregister")
        started = trio.current_time()
        bench.leave()
    assert trio.current_time() - started == pytest.approx(3)
    assert "the directory did not answer within 3 s; services may still be registered" in caplog.text


async def test_errors_while_leaving_are_only_logged(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with keeping() as bench:
        await bench.state.complete.wait_value(True)
        bench.fake.refusing = "you stay"
    assert [request.method for request in bench.fake.requests] == ["Register"] * 2 + ["Deregister"] * 2
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "deregistering service 1: the directory refused: you stay",
        "deregistering service 2: the directory refused: you stay",
    ]


async def test_only_what_was_registered_is_taken_back(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    fake.hanging.add("Register")
    async with keeping(fake) as bench:
        await fake.wait_until(lambda: len(fake.requests) == 1)
        started = trio.current_time()
        bench.leave()
    assert fake.methods() == ["Register"]
    assert trio.current_time() - started == pytest.approx(1)


@pytest.mark.parametrize("reply_after_seconds", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("made_before", [0, 1])
async def test_a_registration_that_is_being_made_is_taken_back_too(
    reply_after_seconds: float, made_before: int, autojump_clock: Clock
) -> None:
    class Slow(FakeDirectory):
        async def Register(self, call: Any) -> None:
            delayed: Any = _Delayed(call, reply_after_seconds if len(self.entries) == made_before else 0)
            await super().Register(delayed)

    fake = Slow()
    async with keeping(fake) as bench:
        await fake.wait_until(lambda: len(fake.entries) > made_before)
        started = trio.current_time()
        bench.leave()
    assert fake.methods() == ["Register"] * (made_before + 1) + ["Deregister"] * (made_before + 1)
    assert not fake.entries
    assert trio.current_time() - started == pytest.approx(reply_after_seconds)


async def test_leaving_has_one_limit_for_all_it_does(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(FakeDirectory):
        async def _begin(self, method: str, call: Any, request: Any) -> str:
            if self.entries:
                self.hanging = {"Register", "Deregister"}
            return await super()._begin(method, call, request)

    fake = Sticky()
    async with keeping(fake) as bench:
        await fake.wait_until(lambda: len(fake.requests) == 2)
        started = trio.current_time()
        bench.leave()
    assert fake.methods() == ["Register", "Register", "Deregister"]
    assert trio.current_time() - started == pytest.approx(2)
    assert "did not answer within 2 s; services may still be registered" in caplog.text


class _Delayed:
    """A call whose handler is slow to answer."""

    def __init__(self, call: Any, seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        self.metadata = call.metadata

    def __aiter__(self) -> Any:
        return self._call.__aiter__()

    async def send(self, message: object) -> None:
        await trio.sleep(self._seconds)
        await self._call.send(message)


async def test_registrations_are_taken_back_with_their_secrets(autojump_clock: Clock) -> None:
    async with keeping() as bench:
        await bench.state.complete.wait_value(True)
        secrets = [(number, entry.secret) for number, entry in bench.fake.entries.items()]
    taken = [request.message for request in bench.fake.requests if isinstance(request.message, DeregisterRequest)]
    assert [(message.service_id, message.secret) for message in taken] == secrets


# Over sockets


async def run(fake: FakeDirectory, port: int, task_status: trio.TaskStatus[tuple[int, trio.CancelScope]]) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(serve, [fake.service()], await open_listeners("127.0.0.1", port))
            task_status.started((serving.port, scope))


async def test_a_directory_that_dies_and_comes_back_over_sockets() -> None:
    """Dead at the start, there, dead, back without its memory; and deregistered by being cancelled from outside."""
    config = DirectoryConfig(
        check_interval_seconds=0.05,
        retry_initial_seconds=0.01,
        retry_max_seconds=0.05,
        reconnect_max_seconds=0.02,
        registration_timeout_seconds=0.5,
    )
    first, second = FakeDirectory(), FakeDirectory()
    everything = trio.CancelScope()

    async def ours(port: int, task_status: trio.TaskStatus[Registrations]) -> None:
        with everything:
            async with (
                open_directory(f"grpc://127.0.0.1:{port}", config=config) as directory,
                trio.open_nursery() as nursery,
            ):
                task_status.started(
                    await nursery.start(partial(keep_registered, directory, OFFERS, registration_host="us"))
                )

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            port, scope = await nursery.start(run, FakeDirectory(), 0)
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            state = await nursery.start(ours, port)
            await trio.testing.wait_all_tasks_blocked()
            assert not state.complete.value
            _, scope = await nursery.start(run, first, port)
            await state.complete.wait_value(True)
            assert len(first.entries) == 2
            scope.cancel()
            await state.complete.wait_value(False)
            _, scope = await nursery.start(run, second, port)
            await state.complete.wait_value(True)
            assert len(second.entries) == 2
            everything.cancel()
            await second.wait_until(lambda: not second.entries)
            scope.cancel()
