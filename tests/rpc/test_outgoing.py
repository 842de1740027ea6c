"""Connections to what peers have named: judged by the address that is connected to, and failing with one text."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable

import pytest
import trio

from trio_cogment.base.config import OutgoingConfig
from trio_cogment.base.host import Host
from trio_cogment.rpc._byte_stream_over import peer_name
from trio_cogment.rpc.outgoing import Outgoing, UnreachableError

Clock = trio.testing.MockClock
PEER = "203.0.113.7"


class Names:
    """Resolves names, another time to something else, and remembers where was connected to."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.connected: list[str] = []
        self.outcome: Callable[[], Awaitable[None]] | None = None

    async def resolve(self, _name: str, _port: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        return self.answers.pop(0)

    async def connect(self, address: str, _port: int) -> trio.abc.Stream:
        self.connected.append(address)
        await trio.lowlevel.checkpoint()
        if self.outcome is not None:
            await self.outcome()
        return trio.testing.memory_stream_pair()[0]

    def outgoing(self, **lists: tuple[str, ...]) -> Outgoing:
        return Outgoing(OutgoingConfig(**lists), Host(resolve=self.resolve, connect=self.connect), 10.0)


async def test_a_name_that_changes_its_mind_gains_nothing(autojump_clock: Clock) -> None:
    """The address that was judged is connected to, and not the name."""
    names = Names(["8.8.8.8"], ["127.0.0.1"])
    connect = names.outgoing().connect_for(PEER)
    await connect("rebind.example", 9000)
    assert names.connected == ["8.8.8.8"]
    with pytest.raises(UnreachableError):
        await connect("rebind.example", 9000)
    assert names.connected == ["8.8.8.8"]


async def test_of_several_addresses_only_those_that_are_permitted(autojump_clock: Clock) -> None:
    names = Names(["10.0.0.1", "8.8.8.8", "::1", "1.1.1.1"])

    async def refused() -> None:
        if names.connected[-1] == "8.8.8.8":
            raise ConnectionRefusedError

    names.outcome = refused
    await names.outgoing().connect_for(PEER)("many.example", 9000)
    assert names.connected == ["8.8.8.8", "1.1.1.1"]


async def test_one_text_whatever_the_reason(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def refuse() -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    async def no_route() -> None:
        raise OSError(errno.EHOSTUNREACH, "no route")

    texts = set()
    local, public = "127.0.0.1", "8.8.8.8"
    cases = ((local, None), (public, refuse), (public, no_route), (public, trio.sleep_forever))
    for answer, outcome in cases:
        await trio.sleep(3)  # so that each has a line of its own
        names = Names([answer])
        names.outcome = outcome
        with pytest.raises(OSError, match="it cannot be reached") as caught:
            await names.outgoing().connect_for(PEER)("a.example", 9000)
        texts.add((type(caught.value), str(caught.value)))

    async def unknown(_name: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(UnreachableError) as caught_too:
        await Outgoing(OutgoingConfig(), Host(resolve=unknown), 10.0).connect_for(PEER)("no.example", 9000)
    texts.add((type(caught_too.value), str(caught_too.value)))
    assert len(texts) == 1
    assert "a.example:9000, which 203.0.113.7 has named: [Errno 13] a peer must not name 127.0.0.1" in caplog.messages
    assert any("refused" in message for message in caplog.messages)


async def test_callers_of_this_machine_are_told_the_reason(autojump_clock: Clock) -> None:
    names = Names(["127.0.0.1"])

    async def refuse() -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    names.outcome = refuse
    outgoing = names.outgoing(denied_networks=("10.0.0.0/8",))
    with pytest.raises(ConnectionRefusedError):
        await outgoing.connect_for(None)("localhost", 9000)
    names.answers.append(["10.0.0.1"])
    with pytest.raises(OSError, match=r"must not name 10\.0\.0\.1"):
        await outgoing.connect_for(None)("denied.example", 9000)


async def test_without_a_rule_nothing_is_in_the_way() -> None:
    host = Host()
    assert Outgoing(OutgoingConfig(), host, 10.0).host_for(None) is host
    assert await host.resolve("127.0.0.1", 9000) == ["127.0.0.1"]
    with pytest.raises(OSError, match=r"looks like 'a\.\.b'|not known"):
        await host.resolve("a..b", 9000)


async def test_the_program_s_own_streams_have_the_name_that_access_knows() -> None:
    one, other = trio.testing.memory_stream_pair()
    assert peer_name(one) == peer_name(other) == "stream"


def test_what_cannot_be_reached_is_one_error_of_the_system() -> None:
    error = UnreachableError()
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror) == (errno.EHOSTUNREACH, "it cannot be reached")


async def test_calls_for_somebody_are_connected_by_the_rules_and_are_otherwise_the_host_s() -> None:
    connected: list[tuple[str, int]] = []

    async def connect(name: str, port: int) -> trio.abc.Stream:
        connected.append((name, port))
        return trio.testing.memory_stream_pair()[0]

    host = Host(connect=connect)
    for config, reach in ((OutgoingConfig(denied_networks=("10.0.0.0/8",)), None), (OutgoingConfig(), "token:ann")):
        chosen = Outgoing(config, host, 10.0).host_for(reach)
        assert chosen is not host
        assert chosen.random == host.random
        with pytest.raises(OSError, match=r"must not name 10\.0\.0\.1|cannot be reached"):
            await chosen.connect("10.0.0.1", 9000)
    assert connected == []


@pytest.mark.parametrize(
    ("silent", "seconds", "reached"), [(0, 0, True), (1, 3, True), (2, 6, True), (3, 9, False), (4, 9, False)]
)
async def test_an_address_that_does_not_answer_gives_way_to_the_next_one(
    silent: int, seconds: float, reached: bool, autojump_clock: Clock
) -> None:
    """After three seconds; all of them together have nine tenths of the time, so that the answer comes in time."""
    addresses = [f"8.8.8.{number}" for number in range(1, 5)]
    names = Names(addresses)

    async def answer() -> None:
        if len(names.connected) <= silent:
            await trio.sleep_forever()

    names.outcome = answer
    began = trio.current_time()
    if reached:
        await names.outgoing().connect_for(PEER)("many.example", 9000)
        assert names.connected == addresses[: silent + 1]
    else:
        with pytest.raises(UnreachableError):
            await names.outgoing().connect_for(PEER)("many.example", 9000)
    assert trio.current_time() - began == pytest.approx(seconds)
