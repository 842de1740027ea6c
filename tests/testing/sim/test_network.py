"""The simulated network: a stream like any other, and what happens to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import serve
from trio_cogment.testing import Link, SimHost, SimNetwork, SimStream, World, simulate
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, WAIT, CheckService
from trio_cogment.testing.sim.network import CONNECT_SECONDS

PORT = 9000


async def pair(world: World, link: Link | None = None) -> tuple[SimStream, SimStream]:
    """Return both ends of a new connection from here to there."""
    here, there = world.network.host("here"), world.network.host("there")
    if link is not None:
        world.network.set_link("here", "there", link)
    listener = there.listeners.get(PORT) or there.listen(PORT)
    client = await here.connect("there", PORT)
    return client, await listener.accept()


def run(scenario: Callable[[World], Awaitable[None]], seeds: int = 5) -> None:
    for seed in range(seeds):
        simulate(seed, scenario)


def test_stream_is_like_every_stream_of_trio() -> None:
    async def scenario(world: World) -> None:
        async def make() -> tuple[SimStream, SimStream]:
            return await pair(world)

        async def make_clogged() -> tuple[SimStream, SimStream]:
            ends = await pair(world)
            for end in ends:
                await end.send_all(bytes(end.outgoing.room))
            return ends

        await trio.testing.check_half_closeable_stream(make, make_clogged)

    run(scenario, 10)


@pytest.mark.parametrize(
    "link",
    [
        Link(),
        Link(latency_seconds=0.2, jitter_seconds=0.5, fragments=0.9, loss=0.3),
        Link(bytes_per_second=1e6, buffer_bytes=1000, fragments=0.5),
    ],
)
def test_bytes_arrive_in_order_whatever_the_link_is_like(link: Link) -> None:
    async def scenario(world: World) -> None:
        client, server = await pair(world, link)
        sent = world.rng.randbytes(50_000)
        got = bytearray()

        async def send() -> None:
            rest = sent
            while rest:
                size = world.rng.randint(1, 3000)
                await client.send_all(rest[:size])
                rest = rest[size:]
            await client.send_eof()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            async for data in server:
                got += data
        assert bytes(got) == sent

    run(scenario)


def test_time_is_latency_and_bandwidth() -> None:
    async def scenario(world: World) -> None:
        client, server = await pair(
            world, Link(latency_seconds=1, jitter_seconds=0, bytes_per_second=1000, buffer_bytes=10_000)
        )
        start = trio.current_time()
        assert start == 2.0  # there and back
        await client.send_all(bytes(3000))
        assert trio.current_time() == start
        assert len(await server.receive_some()) == 3000
        assert trio.current_time() == start + 4

    run(scenario, 1)


def test_sender_waits_for_a_reader() -> None:
    async def scenario(world: World) -> None:
        client, server = await pair(world, Link(buffer_bytes=1000))
        with trio.move_on_after(3600) as scope:
            await client.send_all(bytes(1001))
        assert scope.cancelled_caught
        assert len(await server.receive_some()) == 1000
        with trio.fail_after(1):
            await client.send_all(b"x")

    run(scenario)


def test_partition_delays_and_healing_delivers() -> None:
    async def scenario(world: World) -> None:
        client, server = await pair(world)
        await client.send_all(b"on its way, ")
        world.network.partition(["here"])
        await client.send_all(b"held back")
        with trio.move_on_after(600) as scope:
            await server.receive_some()
        assert scope.cancelled_caught
        world.network.heal()
        got = b""
        with trio.fail_after(5):
            while len(got) < 21:
                got += await server.receive_some()
        assert got == b"on its way, held back"

    run(scenario)


def test_one_partition_heals_and_another_goes_on() -> None:
    async def scenario(world: World) -> None:
        network = world.network
        for name in ("here", "there", "elsewhere"):
            await trio.lowlevel.checkpoint()
            network.host(name).listen(PORT)
        network.partition(["here"])
        network.partition(["elsewhere"])
        network.heal(["here"], ["there"])
        await network.host("here").connect("there", PORT)
        for one, other in (("here", "elsewhere"), ("elsewhere", "there")):
            with trio.move_on_after(60) as scope:
                await network.host(one).connect(other, PORT)
            assert scope.cancelled_caught
        network.heal(["elsewhere"])
        await network.host("here").connect("elsewhere", PORT)
        await network.host("elsewhere").connect("there", PORT)

    run(scenario)


@pytest.mark.parametrize(
    "name_it",
    [
        lambda network, name: network.partition([name]),
        lambda network, name: network.partition(["here"], [name]),
        lambda network, name: network.heal(["here"], [name]),
        lambda network, name: network.set_link("here", name, Link()),
        lambda network, name: network.connections(name),
        lambda network, name: network.connections("here", name),
    ],
)
def test_a_name_that_no_host_ever_has_fails_the_run(name_it: Callable[[SimNetwork, str], object]) -> None:
    async def scenario(world: World, *to_come: str) -> None:
        world.network.host("here")
        name_it(world.network, "there")
        assert world.network.unknown_hosts() == ["there"]
        for name in to_come:
            world.network.host(name)
        await trio.sleep(1)

    assert simulate(0, scenario, "there").seconds == 1
    with pytest.raises(ValueError, match=r"network: no host ever had the name 'there'; did you mean 'here'\?"):
        simulate(0, scenario, "their")


@pytest.mark.parametrize(
    ("hosts", "advice"), [((), "there are no hosts"), (("desk", "lab"), "the hosts are 'desk', 'lab'")]
)
def test_a_name_that_is_like_no_host_comes_with_those_there_are(hosts: tuple[str, ...], advice: str) -> None:
    async def scenario(world: World) -> None:
        for name in hosts:
            world.network.host(name)
        world.network.partition(["there"])

    with pytest.raises(ValueError, match=f"network: no host ever had the name 'there'; {advice}"):
        simulate(0, scenario)


def test_who_sends_into_a_partition_gives_up_and_who_is_idle_does_not() -> None:
    async def scenario(world: World) -> None:
        client, server = await pair(world, Link(give_up_seconds=60))
        world.network.partition(["here"], ["there"])
        await client.send_all(b"lost")
        with trio.move_on_after(3600) as scope, pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        assert not scope.cancelled_caught
        assert trio.current_time() < 70
        with trio.move_on_after(3600) as scope:
            await server.receive_some()
        assert scope.cancelled_caught

    run(scenario)


def test_half_open_connection_says_nothing() -> None:
    async def scenario(world: World) -> None:
        client, server = await pair(world, Link(buffer_bytes=10))
        (connection,) = world.network.connections("here", "there")
        connection.go_dark()
        await server.aclose()
        with trio.move_on_after(3600) as scope:
            await client.receive_some()
        assert scope.cancelled_caught
        await client.send_all(b"fits in it")
        with trio.move_on_after(899) as scope:
            await client.send_all(b"!")
        assert scope.cancelled_caught
        with trio.fail_after(2), pytest.raises(trio.BrokenResourceError, match="nothing that was sent arrives"):
            await client.send_all(b"!")

    run(scenario)


def test_reset_reaches_both_ends() -> None:
    async def scenario(world: World) -> None:
        client, server = await pair(world)
        (connection,) = world.network.connections()
        connection.reset()
        for end in client, server:
            with trio.fail_after(1), pytest.raises(trio.BrokenResourceError):
                await end.receive_some()
            with pytest.raises(trio.BrokenResourceError):
                await end.send_all(b"x")
            await end.aclose()
        assert not world.network.connections()

    run(scenario)


def test_nobody_listens_nobody_known_nobody_answers() -> None:
    async def scenario(world: World) -> None:
        here, there = world.network.host("here"), world.network.host("there")
        with pytest.raises(ConnectionRefusedError):
            await here.connect("there", PORT)
        with pytest.raises(OSError, match="no such host"):
            await here.connect("elsewhere", PORT)
        listener = there.listen(PORT)
        with pytest.raises(OSError, match="is taken"):
            there.listen(PORT)
        world.network.partition(["here"])
        with pytest.raises(TimeoutError):
            await here.connect("there", PORT)
        assert 126 < trio.current_time() < 129
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.connect, "there", PORT)
            await trio.sleep(1)
            world.network.heal()
        await listener.aclose()
        with pytest.raises(ConnectionRefusedError):
            await here.connect("there", PORT)

    run(scenario)


@pytest.mark.parametrize("power", [False, True])
def test_crash_of_a_host(power: bool) -> None:
    async def scenario(world: World) -> None:
        client, server = await pair(world)
        there = world.network.host("there")
        with there.running() as program:
            there.crash(power=power)
            await trio.sleep_forever()
        assert program.cancelled_caught
        with pytest.raises(trio.BrokenResourceError):
            await server.send_all(b"never leaves")
        with trio.move_on_after(600) as scope:
            if power:
                await client.receive_some()
            else:
                with pytest.raises(trio.BrokenResourceError):
                    await client.receive_some()
        assert scope.cancelled_caught == power
        before = trio.current_time()
        with pytest.raises(TimeoutError if power else ConnectionRefusedError):
            await world.network.host("here").connect("there", PORT)
        assert trio.current_time() - before == pytest.approx(CONNECT_SECONDS if power else 0, abs=0.1)
        with pytest.raises(OSError, match="is down"):
            there.listen(PORT)
        there.restart()
        there.listen(PORT)

    run(scenario)


def test_links_are_checked() -> None:
    for bad in ({"latency_seconds": 0}, {"loss": 1.0}, {"jitter_seconds": -1}, {"buffer_bytes": 0}):
        with pytest.raises(ValueError, match="expected"):
            Link(**bad)


# --- the real engine over it ---


async def serve_checks(world: World, task_status: trio.TaskStatus[SimHost] = trio.TASK_STATUS_IGNORED) -> None:
    there = world.network.host("there")
    config = RpcConfig(keepalive_seconds=20, keepalive_timeout_seconds=10)
    with there.running():
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: serve_it(there, config, task_status))
            task_status.started(there)


async def serve_it(there: SimHost, config: RpcConfig, task_status: trio.TaskStatus[object]) -> None:
    await serve([CheckService().service()], [there.listen(PORT)], config=config, task_status=task_status)


def test_calls_over_a_bad_link() -> None:
    async def scenario(world: World) -> None:
        link = Link(latency_seconds=0.05, jitter_seconds=0.1, fragments=0.5, loss=0.05, bytes_per_second=1e6)
        world.network.set_default_link(link)
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_checks, world)
            async with world.network.host("here").channel("there", PORT) as channel:
                content = world.rng.randbytes(200_000)
                assert (await channel.unary(ECHO_ONE, Action(tick_id=1, content=content))).content == content
                async with channel.call(ECHO) as call:
                    for number in range(20):
                        await call.send(Action(tick_id=number))
                        assert (await call.receive()).tick_id == number
            nursery.cancel_scope.cancel()

    run(scenario)


def test_channel_finds_a_restarted_server_again() -> None:
    async def scenario(world: World) -> None:
        async with trio.open_nursery() as nursery:
            there = await nursery.start(serve_checks, world)
            async with world.network.host("here").channel("there", PORT) as channel:
                await channel.unary(ECHO_ONE, Action(tick_id=1))
                there.crash()
                with pytest.raises(RpcError) as caught:
                    await channel.unary(ECHO_ONE, Action(tick_id=2), timeout=1)
                assert caught.value.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
                await trio.sleep(world.rng.uniform(0, 100))
                there.restart()
                await nursery.start(serve_checks, world)
                await channel.unary(ECHO_ONE, Action(tick_id=3), wait_for_ready=True, timeout=60)
            nursery.cancel_scope.cancel()

    run(scenario, 20)


def test_keepalive_finds_a_half_open_connection() -> None:
    async def scenario(world: World) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_checks, world)
            async with world.network.host("here").channel("there", PORT) as channel, channel.call(WAIT) as call:
                await call.send(Action())
                await trio.sleep(1)
                (connection,) = world.network.connections()
                connection.go_dark()
                await trio.sleep(31)
                assert connection.server.gone
            nursery.cancel_scope.cancel()

    run(scenario)


def test_hosts_are_named_one_by_one() -> None:
    network = World(1).network
    desk: Any = network.host("desk")
    wrongs: list[Any] = ["desk", desk.name, [desk], [None]]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="expected names of hosts"):
            network.partition(wrong)
        with pytest.raises(TypeError, match="expected names of hosts"):
            network.partition(["desk"], wrong)
    with pytest.raises(TypeError, match="others: expected `ones` beside them"):
        network.heal(others=["desk"])
    with pytest.raises(TypeError, match="expected names of hosts"):
        network.connections(desk)
    with pytest.raises(TypeError, match="expected names of hosts"):
        network.set_link("desk", desk, Link())


def test_a_host_to_come_is_cut_off_already() -> None:
    async def scenario(world: World) -> None:
        network = world.network
        listener = network.host("there").listen(PORT)
        network.partition(["later"])
        with trio.move_on_after(60) as scope:
            await network.host("later").connect("there", PORT)
        assert scope.cancelled_caught
        network.heal()
        await network.host("later").connect("there", PORT)
        await listener.accept()

    run(scenario, 1)


@pytest.mark.parametrize("name", ["latency_seconds", "jitter_seconds", "retransmit_seconds"])
@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1.0])
def test_links_take_some_time(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected"):
        Link(**{name: seconds})  # type: ignore[arg-type]  # seconds, all of them
