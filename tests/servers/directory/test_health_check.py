"""One health check of one service: whether it answers, and how long that may take."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.servers.directory.bench import ENVIRONMENT, OTHER, Net, Told, service_of
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest
from trio_cogment.api.directory_pb2 import ServiceEndpoint, ServiceType
from trio_cogment.base.config import DirectoryServerConfig, OutgoingConfig, RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import Connect, Host
from trio_cogment.rpc import Channel, HealthService, ServingStatus, open_listeners, serve, standard_services
from trio_cogment.rpc.outgoing import Outgoing
from trio_cogment.servers.directory import Service
from trio_cogment.servers.directory._health_check import HealthChecker, parsed_load

Clock = trio.testing.MockClock
CONFIG = DirectoryServerConfig(connect_timeout_seconds=3, answer_timeout_seconds=10)


def registered(host: str, kind: int = ENVIRONMENT, protocol: int = ServiceEndpoint.GRPC, port: int = 9000) -> Service:
    return Service(kind=kind, protocol=protocol, host=host, port=port)


class Bench:
    def __init__(self, net: Net, checker: HealthChecker) -> None:
        self.net = net
        self._checker = checker

    async def check(self, host: str, **options: Any) -> tuple[int | None, Any]:
        """Return the load and the time it took."""
        began = trio.current_time()
        load = await self._checker.check(registered(host, **options))
        return load, trio.current_time() - began


def through(connect: Connect) -> Outgoing:
    return Outgoing(OutgoingConfig(), Host(connect=connect), CONFIG.connect_timeout_seconds)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        yield Bench(net, HealthChecker(through(net.dial), CONFIG, RpcConfig(), random.Random(0)))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("0", 0), ("7", 7), ("254", 254), ("255", 255), ("256", 0), ("007", 7), ("abc", 0), ("", 0), ("-1", 0),
        ("1_0", 0), (" 5", 0), ("+5", 0), ("5.5", 0), ("٣", 0), ("²", 0), ("9" * 5000, 0),
    ],
)  # fmt: skip
def test_loads(text: str, load: int) -> None:
    assert parsed_load(text) == load


@pytest.mark.parametrize("kind", sorted(set(ServiceType.values()) - {0, OTHER}))
async def test_status_of_every_type(kind: int, autojump_clock: Clock) -> None:
    async with bench() as at:
        at.net.host("it", Told("42"), kind)
        assert (await at.check("it", kind=kind))[0] == 42
        at.net.host("it", Told("42"), 3 if kind == ENVIRONMENT else ENVIRONMENT)
        assert (await at.check("it", kind=kind))[0] is None  # somebody else is there now


class Failing:
    """Has a method that fails with a status, or never answers."""

    def __init__(self, **outcomes: StatusCode | None) -> None:
        for name, code in outcomes.items():
            setattr(self, name, self._method(code))

    def _method(self, code: StatusCode | None) -> Any:
        async def method(_request: Any, _call: Any) -> Any:
            if code is None:
                await trio.sleep_forever()
            raise RpcError(code or StatusCode.UNKNOWN, "no")

        return method


@pytest.mark.parametrize(
    ("outcomes", "has_version", "load", "seconds"),
    [
        ({}, True, 0, 0),  # a service of before Status
        ({"Status": StatusCode.INTERNAL}, True, 0, 0),
        ({"Status": StatusCode.INTERNAL}, False, None, 0),
        ({"Status": StatusCode.UNAVAILABLE}, True, None, 0),
        ({"Status": None}, True, 0, 5),
        ({"Status": None, "Version": None}, False, None, 7.5),
        ({"Status": StatusCode.UNKNOWN, "Version": StatusCode.UNAVAILABLE}, False, None, 0),
    ],
)
async def test_who_cannot_say_its_status(
    outcomes: dict[str, StatusCode | None],
    has_version: bool,
    load: int | None,
    seconds: float,
    autojump_clock: Clock,
) -> None:
    implementation = Failing(**outcomes)
    if has_version:
        implementation.Version = Told().Version  # type: ignore[attr-defined]  # looked up by its name
    async with bench() as at:
        at.net.host("it", implementation)
        assert await at.check("it") == (load, pytest.approx(seconds, abs=0.3))


@pytest.mark.parametrize("status", [ServingStatus.SERVING, ServingStatus.NOT_SERVING])
@pytest.mark.parametrize("hanging", [False, True])
async def test_health_has_the_last_word(status: ServingStatus, hanging: bool, autojump_clock: Clock) -> None:
    health = HealthService()
    health.set_status("cogmentAPI.EnvironmentSP", status)
    implementation = Failing(Status=None, Version=None) if hanging else Failing()
    async with bench() as at:
        at.net.hosts["it"] = [service_of(implementation), health.service()]
        load, seconds = await at.check("it")
    assert load == (0 if status is ServingStatus.SERVING else None)
    assert seconds == pytest.approx(7.5 if hanging else 0, abs=0.3)


@pytest.mark.parametrize("gone", [StatusCode.UNAVAILABLE, StatusCode.CANCELLED])
@pytest.mark.parametrize("others", [{}, {"Status": StatusCode.UNKNOWN}])
async def test_who_goes_while_it_is_asked_is_asked_no_more(
    others: dict[str, StatusCode | None], gone: StatusCode, autojump_clock: Clock
) -> None:
    """Though its server says for a while that it serves."""
    outcomes = others | {"Version" if others else "Status": gone}
    async with bench() as at:
        at.net.hosts["it"] = [service_of(Failing(**outcomes)), HealthService(["cogmentAPI.EnvironmentSP"]).service()]
        assert await at.check("it") == (None, pytest.approx(0, abs=0.3))


async def test_who_asks_says_so(autojump_clock: Clock) -> None:
    said: list[object] = []

    class Listening(Told):
        async def Status(self, request: StatusRequest, call: Any) -> StatusReply:
            said.append(call.metadata.first("authorization"))
            return await super().Status(request, call)

    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        net.host("it", Listening("3"))
        for token in (lambda: "abc", None):
            checker = HealthChecker(through(net.dial), CONFIG, RpcConfig(), random.Random(0), token)
            assert await checker.check(registered("it")) == 3
        nursery.cancel_scope.cancel()
    assert said == ["Bearer abc", None]


@pytest.mark.parametrize("kind", [ENVIRONMENT, OTHER])
async def test_a_host_whose_name_cannot_be_looked_up_is_not_there(kind: int, autojump_clock: Clock) -> None:
    async def connect(_host: str, _port: int) -> trio.abc.Stream:
        raise UnicodeError("label empty or too long")

    checker = HealthChecker(through(connect), CONFIG, RpcConfig(), random.Random(0))
    assert await checker.check(registered("a..b", kind=kind)) is None


async def test_who_is_not_there(autojump_clock: Clock) -> None:
    async with bench() as at:
        at.net.dead, at.net.silent = {"dead"}, {"silent"}
        for options in ({}, {"kind": OTHER}, {"protocol": ServiceEndpoint.GRPC_SSL}):
            assert await at.check("nobody", **options) == (None, pytest.approx(0, abs=0.3))
            assert await at.check("dead", **options) == (None, pytest.approx(3))
        assert await at.check("silent") == (None, pytest.approx(10, abs=0.3))


@pytest.mark.parametrize(
    "options", [{"kind": OTHER}, {"protocol": ServiceEndpoint.GRPC_SSL}, {"kind": OTHER, "protocol": 2}]
)
async def test_a_foreign_service_needs_to_say_nothing(options: dict[str, Any], autojump_clock: Clock) -> None:
    async with bench() as at:
        at.net.silent = {"silent"}
        assert await at.check("silent", **options) == (0, 0)


async def test_real_sockets() -> None:
    async with trio.open_nursery() as nursery:
        services = [service_of(Told("9"))]
        serving = await nursery.start(
            serve, [*services, *standard_services(services)], await open_listeners("127.0.0.1")
        )
        mute = await nursery.start(trio.serve_tcp, _say_nothing, 0)
        port, mute_port = serving.ports[0], mute[0].socket.getsockname()[1]
        closed = await open_listeners("127.0.0.1")
        closed_port = closed[0].socket.getsockname()[1]
        await closed[0].aclose()
        config = DirectoryServerConfig(connect_timeout_seconds=20, answer_timeout_seconds=0.5)
        checker = HealthChecker(through(trio.open_tcp_stream), config, RpcConfig(), random.Random(0))
        patient = DirectoryServerConfig(connect_timeout_seconds=20, answer_timeout_seconds=20)
        for options, expected in (
            ({"port": port}, 9),
            ({"port": port, "kind": 3}, None),  # the server is well, and has no such service
            ({"port": port, "kind": OTHER}, 0),
            ({"port": mute_port, "kind": OTHER}, 0),
            ({"port": closed_port}, None),
        ):
            check = HealthChecker(through(trio.open_tcp_stream), patient, RpcConfig(), random.Random(0)).check
            assert await check(registered("127.0.0.1", **options)) == expected
        assert await checker.check(registered("127.0.0.1", port=mute_port)) is None
        for host in ("no such\u3002host..name", "x" * 70 + ".example", "[", "%"):
            assert await checker.check(registered(host)) is None
        nursery.cancel_scope.cancel()


GREETINGS = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x16\x03\x01\x00\x05hello",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    bytes(100_000),
    b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\xff" * 1000,  # SETTINGS, then nonsense
]


@pytest.mark.parametrize("greeting", GREETINGS)
async def test_a_server_that_speaks_something_else(greeting: bytes, autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:

        async def greet(stream: trio.abc.Stream) -> None:
            async with stream:
                try:
                    await stream.send_all(greeting)
                except trio.BrokenResourceError:
                    pass  # it did not want to hear it

        async def dial(_host: str, _port: int) -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(greet, theirs)
            return ours

        check = HealthChecker(through(dial), CONFIG, RpcConfig(), random.Random(0)).check
        assert await check(registered("it")) is None
        assert await check(registered("it", kind=OTHER)) == 0


async def _say_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def test_what_a_peer_elsewhere_registers_is_not_connected_to_on_this_machine() -> None:
    async with trio.open_nursery() as nursery:
        services = [service_of(Told())]
        running = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
        check = HealthChecker(through(trio.open_tcp_stream), CONFIG, RpcConfig(), random.Random(0)).check
        for kind in (ENVIRONMENT, OTHER):
            for host in ("127.0.0.1", "localhost"):
                service = registered(host, kind, port=running.port)
                assert await check(service) == 0
                assert await check(service, "203.0.113.7") is None
                assert await check(service, "127.0.0.1") == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("host", "authority"),
    [("a.name", "a.name:9000"), ("127.0.0.1", "127.0.0.1:9000"), ("2001:db8::1", "[2001:db8::1]:9000")],
)
async def test_a_service_is_called_by_its_name(
    host: str, authority: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    called: list[str] = []
    over = Channel.over

    def noted(*args: Any, authority: str, **options: Any) -> Channel:
        called.append(authority)
        # A service that has answered is not waited for.
        assert options["config"].farewell_timeout_seconds == 0.2
        return over(*args, authority=authority, **options)

    monkeypatch.setattr(Channel, "over", noted)
    async with bench() as at:
        at.net.host(host, Told("9"))
        assert (await at.check(host))[0] == 9
    assert called == [authority]


async def test_a_service_that_reports_no_load_has_none(autojump_clock: Clock) -> None:
    class Silent(Told):
        async def Status(self, request: StatusRequest, _call: Any) -> StatusReply:
            return StatusReply()

    async with bench() as at:
        at.net.host("it", Silent())
        assert (await at.check("it"))[0] == 0
