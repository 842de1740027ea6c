"""Asking a directory: what is sent, what is believed, and what becomes of every failure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from tests.ports import free_port
from trio_cogment.api.directory_pb2 import (
    FullServiceData,
    InquireRequest,
    RegisterRequest,
    ServiceDetails,
    ServiceEndpoint,
    ServiceType,
)
from trio_cogment.base.config import DirectoryConfig, RpcConfig
from trio_cogment.base.endpoints import ClientEndpoint, GrpcEndpoint
from trio_cogment.base.errors import (
    CogmentError,
    EndpointError,
    FailedPreconditionError,
    InvalidArgumentError,
    RpcError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, ServiceKind
from trio_cogment.rpc import InProcessChannel, RunningServer, open_listeners, serve, serve_stream
from trio_cogment.servers.discovery import DirectoryClient, Registration, open_directory
from trio_cogment.servers.discovery._directory_channel import _fast_reconnect
from trio_cogment.testing.fakes.directory import FakeDirectory

Clock = trio.testing.MockClock
ACTOR = ServiceType.ACTOR_SERVICE
CONTEXT = {ACTOR_CLASS: "player", IMPLEMENTATION: "greedy"}


@asynccontextmanager
async def asking(fake: FakeDirectory, token: str = "", **config: float) -> AsyncIterator[DirectoryClient]:
    async with InProcessChannel([fake.service()]) as channel:
        yield DirectoryClient(channel, token=token, config=DirectoryConfig(**config))


def inquiries(fake: FakeDirectory) -> list[tuple[str, InquireRequest]]:
    return [
        (request.token, request.message) for request in fake.requests if isinstance(request.message, InquireRequest)
    ]


# What is asked


async def test_the_newest_that_fits_is_found() -> None:
    fake = FakeDirectory()
    fake.add(ACTOR, "old", 1, CONTEXT)
    new = fake.add(ACTOR, "new", 2, {"zone": "a", **CONTEXT})
    fake.add(ACTOR, "other", 3, {ACTOR_CLASS: "judge"})
    fake.add(ServiceType.ENVIRONMENT_SERVICE, "world", 4, CONTEXT)
    async with asking(fake) as directory:
        found = await directory.find("", ServiceKind.ACTOR, context=CONTEXT)
        assert (found.endpoint, found.kind, found.ssl) == (GrpcEndpoint("new", 2), ServiceKind.ACTOR, False)
        assert (found.service_id, found.properties) == (new, {"zone": "a", **CONTEXT})
        environment = await directory.find("cogment://discover/environment", ServiceKind.ACTOR, context=CONTEXT)
        assert environment.endpoint == GrpcEndpoint("world", 4)
        by_id = await directory.find("cogment://discover/service?__id=1", ServiceKind.ACTOR)
        assert by_id.endpoint == GrpcEndpoint("old", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", InquireRequest(details=ServiceDetails(type=ACTOR, properties=CONTEXT))),
        (
            "cogment://discover?__implementation=x&zone",
            InquireRequest(
                details=ServiceDetails(type=ACTOR, properties={ACTOR_CLASS: "player", IMPLEMENTATION: "x", "zone": ""})
            ),
        ),
        (
            "cogment://discover/datalog?a=b",
            InquireRequest(details=ServiceDetails(type=ServiceType.DATALOG_SERVICE, properties={"a": "b"})),
        ),
        ("cogment://discover/service?__id=77", InquireRequest(service_id=77)),
    ],
)
@pytest.mark.parametrize(
    ("token", "query", "sent"), [("", "", ""), ("t", "", "t"), ("t", "u", "u"), ("t", "-", ""), ("", "u", "u")]
)
async def test_inquiries_on_the_wire(text: str, expected: InquireRequest, token: str, query: str, sent: str) -> None:
    fake = FakeDirectory()
    if query:
        text = text or "cogment://discover"
        text += ("&" if "?" in text else "?") + f"__authentication-token={query.strip('-')}"
    async with asking(fake, token) as directory:
        with pytest.raises(FailedPreconditionError):
            await directory.find(text, ServiceKind.ACTOR, context=CONTEXT)
    assert inquiries(fake)[0] == (sent, expected)
    assert {token for token, _ in inquiries(fake)} == {sent}


async def test_an_actor_without_a_class_is_found_if_there_is_none_of_the_class() -> None:
    fake = FakeDirectory()
    fake.add(ACTOR, "general", 1, {IMPLEMENTATION: "greedy"})
    fake.add(ACTOR, "other", 2, {IMPLEMENTATION: "greedy", ACTOR_CLASS: "judge"})
    fake.add(ACTOR, "lazy", 3, {IMPLEMENTATION: "lazy"})
    fake.add(ACTOR, "mine", 4, {IMPLEMENTATION: "greedy"}, token="mine")

    async def found(text: str = "", token: str = "", **context: str) -> object:
        async with asking(fake, token) as directory:
            return (await directory.find(text, ServiceKind.ACTOR, context=CONTEXT | context)).endpoint

    assert await found() == GrpcEndpoint("general", 1)
    assert await found("cogment://discover?__implementation=lazy") == GrpcEndpoint("lazy", 3)
    assert await found("cogment://discover?__actor_class=anything") == GrpcEndpoint("general", 1)
    assert await found(token="mine") == GrpcEndpoint("mine", 4)
    assert await found("cogment://discover?__authentication-token=mine") == GrpcEndpoint("mine", 4)
    assert await found(**{ACTOR_CLASS: "judge"}) == GrpcEndpoint("other", 2)  # the class comes first
    with pytest.raises(FailedPreconditionError, match="knows no actor with __actor_class=player"):
        await found(**{IMPLEMENTATION: "nobody"})
    fake.add(ACTOR, "exact", 5, CONTEXT)
    assert await found() == GrpcEndpoint("exact", 5)


async def test_only_registrations_of_the_same_token_are_found() -> None:
    fake = FakeDirectory()
    fake.add(ACTOR, "mine", 1, token="mine")
    fake.add(ACTOR, "open", 2)
    async with asking(fake, "mine") as directory:
        assert (await directory.find("", ServiceKind.ACTOR)).endpoint == GrpcEndpoint("mine", 1)
        other = "cogment://discover?__authentication-token"
        assert (await directory.find(other, ServiceKind.ACTOR)).endpoint == GrpcEndpoint("open", 2)
        with pytest.raises(FailedPreconditionError, match="same authentication token") as caught:
            await directory.find("cogment://discover?__authentication-token=wrong", ServiceKind.ACTOR)
        assert "wrong" not in str(caught.value)


async def test_one_reply_is_enough(autojump_clock: Clock) -> None:
    """The first reply is taken, and the call left, whatever the directory would go on to do."""
    left = trio.Event()

    class Endless(FakeDirectory):
        async def Inquire(self, request: InquireRequest, call: Any) -> None:
            await super().Inquire(request, call)
            try:
                await trio.sleep_forever()
            finally:
                left.set()

    fake = Endless()
    fake.add(ACTOR, "h", 1)
    async with asking(fake) as directory:
        assert (await directory.find("", ServiceKind.ACTOR)).endpoint == GrpcEndpoint("h", 1)
        await left.wait()
    assert trio.current_time() == autojump_clock.current_time()


@pytest.mark.parametrize("text", ["grpc://h:1", "cogment://client", "nonsense"])
async def test_only_discoveries_are_asked_for(text: str) -> None:
    async with asking(FakeDirectory()) as directory:
        with pytest.raises(EndpointError, match=r"^actors: .*expected"):
            await directory.find(text, ServiceKind.ACTOR, field_name="actors")


# What is believed


def reply(protocol: int = ServiceEndpoint.GRPC, host: str = "h", port: int = 1, kind: int = ACTOR) -> FullServiceData:
    return FullServiceData(
        endpoint=ServiceEndpoint(protocol=protocol, host=host, port=port),  # type: ignore[arg-type]  # enum values
        service_id=5,
        details=ServiceDetails(type=kind),  # type: ignore[arg-type]  # an enum value
    )


@pytest.mark.parametrize(
    ("data", "endpoint", "ssl"),
    [
        (reply(), GrpcEndpoint("h", 1), False),
        (reply(port=65535), GrpcEndpoint("h", 65535), False),
        (reply(ServiceEndpoint.GRPC_SSL), GrpcEndpoint("h", 1), True),
        (reply(ServiceEndpoint.COGMENT, "client", 0), ClientEndpoint(), False),
        (reply(ServiceEndpoint.COGMENT, "client", 9), ClientEndpoint(), False),
    ],
)
async def test_good_replies(data: FullServiceData, endpoint: GrpcEndpoint | ClientEndpoint, ssl: bool) -> None:
    fake = FakeDirectory()
    fake.replies = [data, reply(host="second")]
    async with asking(fake) as directory:
        found = await directory.find("", ServiceKind.ACTOR)
    assert (found.endpoint, found.ssl) == (endpoint, ssl)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (FullServiceData(), "has no endpoint"),
        (FullServiceData(service_id=5, details=ServiceDetails(type=ACTOR)), "has no endpoint"),
        (reply(port=0), "port 0"),
        (reply(port=65536), "port 65536"),
        (reply(ServiceEndpoint.GRPC_SSL, port=0), "port 0"),
        (reply(host=""), "host ''"),
        (reply(ServiceEndpoint.UNKNOWN), "unknown protocol 0"),
        (reply(17), "unknown protocol 17"),
        (reply(ServiceEndpoint.COGMENT, "discover"), "only cogment://client is allowed"),
        (reply(ServiceEndpoint.COGMENT, ""), "only cogment://client is allowed"),
        (reply(kind=ServiceType.ENVIRONMENT_SERVICE), "type ENVIRONMENT_SERVICE and not ACTOR_SERVICE"),
        (reply(kind=ServiceType.UNKNOWN_SERVICE), "type UNKNOWN_SERVICE and not ACTOR_SERVICE"),
        (reply(kind=55), "type 55 and not ACTOR_SERVICE"),
    ],
)
@pytest.mark.parametrize(
    "text", ["cogment://discover", "cogment://discover/actor", "cogment://discover/service?__id=5"]
)
async def test_bad_replies_are_refused_by_field(data: FullServiceData, problem: str, text: str) -> None:
    fake = FakeDirectory()
    fake.replies = [data, reply()]
    async with asking(fake) as directory:
        with pytest.raises(FailedPreconditionError) as caught:
            await directory.find(text, ServiceKind.ACTOR, field_name="actors[0].endpoint")
    said = str(caught.value)
    assert said.startswith("actors[0].endpoint: cogment://discover")
    assert problem in said
    assert "Register it again" in said


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("", "no actor with __actor_class=player, __implementation=greedy"),
        ("cogment://discover/prehook", "no prehook with any properties"),
        ("cogment://discover/service?__id=8", "no service 8"),
    ],
)
async def test_nobody_there_says_what_to_do(text: str, described: str) -> None:
    async with asking(FakeDirectory()) as directory:
        with pytest.raises(FailedPreconditionError, match=described) as caught:
            await directory.find(text, ServiceKind.ACTOR, field_name="f", context=CONTEXT)
    assert str(caught.value).startswith("f: the directory knows ")
    assert "Start it" in str(caught.value)


# Failures


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (StatusCode.UNAVAILABLE, UnavailableError, "cannot be reached: why"),
        (StatusCode.UNKNOWN, UnavailableError, "failed: UNKNOWN: why"),
        (StatusCode.INTERNAL, UnavailableError, "failed: INTERNAL: why"),
        (StatusCode.RESOURCE_EXHAUSTED, UnavailableError, "failed: RESOURCE_EXHAUSTED: why"),
        (StatusCode.UNAUTHENTICATED, FailedPreconditionError, "refused: UNAUTHENTICATED: why"),
        (StatusCode.PERMISSION_DENIED, FailedPreconditionError, "refused: PERMISSION_DENIED: why"),
        (StatusCode.UNIMPLEMENTED, FailedPreconditionError, "refused: UNIMPLEMENTED: why"),
    ],
)
async def test_statuses_of_the_directory(code: StatusCode, kind: type[CogmentError], said: str) -> None:
    fake = FakeDirectory()
    fake.failing = dict.fromkeys(["Inquire", "Register", "Deregister"], RpcError(code, "why"))
    async with asking(fake) as directory:
        for attempt in (
            partial(directory.find, "", ServiceKind.ACTOR),
            partial(directory.register, ServiceKind.ACTOR, GrpcEndpoint("h", 1)),
            partial(directory.deregister, Registration(1, "s")),
        ):
            with pytest.raises(kind, match=said):
                await attempt()


async def test_hanging_directory_takes_no_longer_than_allowed(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    fake.hanging = {"Inquire", "Register", "Deregister"}
    async with asking(fake, inquiry_timeout_seconds=7, registration_timeout_seconds=11) as directory:
        for seconds, attempt in (
            (7, partial(directory.find, "", ServiceKind.ACTOR)),
            (11, partial(directory.register, ServiceKind.ACTOR, GrpcEndpoint("h", 1))),
            (11, partial(directory.deregister, Registration(1, "s"))),
            (11, partial(directory.look_up, 1)),
        ):
            started = trio.current_time()
            with pytest.raises(UnavailableError, match="did not answer in time"):
                await attempt()
            assert trio.current_time() - started == pytest.approx(seconds)


async def test_an_inquiry_that_is_cut_off_is_repeated_once() -> None:
    fake = FakeDirectory()
    fake.add(ACTOR, "h", 1)
    fake.failing["Inquire"] = RpcError(StatusCode.UNAVAILABLE, "restarting")

    class Flaky(FakeDirectory):
        async def Inquire(self, request: InquireRequest, call: Any) -> None:
            try:
                await fake.Inquire(request, call)
            finally:
                fake.failing.clear()

    async with asking(Flaky()) as directory:
        assert (await directory.find("", ServiceKind.ACTOR)).endpoint == GrpcEndpoint("h", 1)
    assert fake.methods() == ["Inquire", "Inquire"]


async def test_no_reply_at_all() -> None:
    class Mute(FakeDirectory):
        async def Register(self, call: Any) -> None:
            await call.receive()

        Deregister = Register

    async with asking(Mute()) as directory:
        with pytest.raises(UnavailableError, match="ended without a reply"):
            await directory.register(ServiceKind.ACTOR, GrpcEndpoint("h", 1))
        with pytest.raises(UnavailableError, match="ended without a reply"):
            await directory.deregister(Registration(1, "s"))


@pytest.mark.parametrize("token", ["a b", "\N{LATIN SMALL LETTER E WITH ACUTE}", "a\n"])
def test_tokens_that_cannot_travel(token: str) -> None:
    with pytest.raises(InvalidArgumentError, match="authentication-token"):
        DirectoryClient(InProcessChannel(), token=token)


# Being found


@pytest.mark.parametrize(
    ("endpoint", "ssl", "expected"),
    [
        (GrpcEndpoint("h", 9), False, ServiceEndpoint(protocol=ServiceEndpoint.GRPC, host="h", port=9)),
        (GrpcEndpoint("h", 9), True, ServiceEndpoint(protocol=ServiceEndpoint.GRPC_SSL, host="h", port=9)),
        (ClientEndpoint(), False, ServiceEndpoint(protocol=ServiceEndpoint.COGMENT, host="client")),
    ],
)
async def test_registering_and_taking_it_back(
    endpoint: GrpcEndpoint | ClientEndpoint, ssl: bool, expected: ServiceEndpoint
) -> None:
    fake = FakeDirectory()
    async with asking(fake, "t") as directory:
        registration = await directory.register(ServiceKind.ACTOR, endpoint, {"a": "b"}, ssl=ssl)
        assert registration.secret not in repr(registration)
        (request,) = fake.requests
        details = ServiceDetails(type=ACTOR, properties={"a": "b"})
        assert (request.token, request.message) == ("t", RegisterRequest(endpoint=expected, details=details))
        shown = await directory.look_up(registration.service_id)
        assert shown is not None
        assert shown.endpoint == expected
        with pytest.raises(FailedPreconditionError, match="wrong token or secret"):
            await directory.deregister(Registration(registration.service_id, "guess"))
        await directory.deregister(registration)
        assert await directory.look_up(registration.service_id) is None
        with pytest.raises(FailedPreconditionError, match="refused: unknown service"):
            await directory.deregister(registration)


async def test_refused_registration_says_why() -> None:
    fake = FakeDirectory()
    async with asking(fake) as directory:
        with pytest.raises(
            FailedPreconditionError, match="registering actor grpc://:1: the directory refused: no host"
        ):
            await directory.register(ServiceKind.ACTOR, GrpcEndpoint("", 1))
        await directory.register(ServiceKind.ACTOR, GrpcEndpoint("one", 1), {"a": "b"}, permanent=True)
        await directory.register(ServiceKind.ACTOR, GrpcEndpoint("two", 2), {"a": "b"}, permanent=True)
    assert [data.endpoint.host for data in fake.of_type(ACTOR)] == ["two"]


async def test_the_directory_about_itself() -> None:
    async with asking(FakeDirectory()) as directory:
        assert "trio-cogment" in await directory.version()
        assert set(await directory.status()) == {"overall_load"}
        assert await directory.status(["nothing"]) == {}


# Over connections


@asynccontextmanager
async def served(fake: FakeDirectory, port: int = 0) -> AsyncIterator[RunningServer]:
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", port)
        yield await nursery.start(serve, [fake.service()], listeners)
        nursery.cancel_scope.cancel()


async def test_restart_of_the_directory_is_bridged() -> None:
    fake, port = FakeDirectory(), free_port()
    fake.add(ACTOR, "h", 1)
    config = DirectoryConfig(reconnect_max_seconds=0.02)
    found: list[Any] = []
    with trio.fail_after(60):
        async with open_directory(f"grpc://127.0.0.1:{port}", config=config) as directory:

            async def ask() -> None:
                found.append(await directory.find("", ServiceKind.ACTOR))

            async with served(fake, port):
                await ask()
            async with trio.open_nursery() as asking_again:
                asking_again.start_soon(ask)
                asking_again.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                assert len(found) == 1
                async with served(fake, port):
                    await fake.wait_until(lambda: len(fake.requests) == 3)
                    while len(found) < 3:
                        await trio.testing.wait_all_tasks_blocked(0.01)


async def test_dead_directory_is_named_with_the_reason() -> None:
    port = free_port()
    config = DirectoryConfig(inquiry_timeout_seconds=0.1)
    rpc_config = RpcConfig(await_server_seconds=0)
    async with open_directory(f"grpc://127.0.0.1:{port}", config=config, rpc_config=rpc_config) as directory:
        with pytest.raises(UnavailableError) as caught:
            await directory.find("", ServiceKind.ACTOR, field_name="datalog.endpoint")
        said = str(caught.value)
        assert said.startswith("datalog.endpoint: cogment://discover/actor: the directory at grpc://127.0.0.1:")
        assert "cannot connect to" in said
        with pytest.raises(UnavailableError, match="cannot be reached: cannot connect to"):
            await directory.register(ServiceKind.ACTOR, GrpcEndpoint("h", 1))


async def test_a_connection_that_died_silently_does_not_stay_in_the_way(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory's host vanishes without a word: an inquiry notices, and is answered over a new connection."""
    fake = FakeDirectory()
    fake.add(ACTOR, "h", 1)
    streams: list[trio.abc.Stream] = []
    async with trio.open_nursery() as nursery:

        async def connect(_host: str, _port: int) -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            streams.append(theirs)
            nursery.start_soon(serve_stream, [fake.service()], theirs)
            return ours

        async with open_directory("grpc://directory:9005", host=Host(connect=connect)) as directory:
            await directory.find("", ServiceKind.ACTOR)

            async def swallow(_data: object) -> None:
                await trio.lowlevel.checkpoint()

            await trio.sleep(60)
            monkeypatch.setattr(streams[0], "send_all", swallow)
            started = trio.current_time()
            assert (await directory.find("", ServiceKind.ACTOR)).endpoint == GrpcEndpoint("h", 1)
            assert trio.current_time() - started < directory.config.inquiry_timeout_seconds
        assert len(streams) == 2
        nursery.cancel_scope.cancel()


async def test_what_is_cancelled_may_still_say_goodbye(autojump_clock: Clock) -> None:
    fake = FakeDirectory()
    async with served(fake) as serving:
        with trio.CancelScope() as scope:
            async with open_directory(f"grpc://127.0.0.1:{serving.port}") as directory:
                registration = await directory.register(ServiceKind.ACTOR, GrpcEndpoint("h", 1))
                scope.cancel()
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.move_on_after(1, shield=True):
                        await directory.deregister(registration)
    assert not fake.entries


async def test_an_exception_leaves_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with open_directory("grpc://127.0.0.1:9"):
            raise KeyError


@pytest.mark.parametrize("text", ["", "cogment://discover", "cogment://client", "localhost:9005"])
async def test_a_directory_is_not_discovered(text: str) -> None:
    with pytest.raises(EndpointError, match=r"directory_endpoint: .*expected grpc://host:port"):
        async with open_directory(text):
            raise AssertionError


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="inquiry_timeout_seconds: expected"):
        DirectoryConfig(inquiry_timeout_seconds=float("nan"))
    with pytest.raises(ValueError, match="check_interval_seconds: expected"):
        DirectoryConfig(check_interval_seconds=0)


def test_times_of_the_channel_fit_into_an_inquiry() -> None:
    hasty = _fast_reconnect(RpcConfig(keepalive_seconds=0), DirectoryConfig(inquiry_timeout_seconds=10))
    assert (hasty.keepalive_seconds, hasty.keepalive_timeout_seconds) == (2, 2)
    assert (hasty.connect_backoff_initial_seconds, hasty.connect_backoff_max_seconds) == (1, 2)
