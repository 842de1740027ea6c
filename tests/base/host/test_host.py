"""The host of a program: the system, or a simulated world."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from trio_cogment import Host, Orchestrator, open_platform
from trio_cogment.base.errors import RpcError
from trio_cogment.base.host import SystemFiles, inline_runner
from trio_cogment.base.host.files import write_whole
from trio_cogment.rpc import CallHost, open_channel, open_in_process
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.testing import World, simulate
from trio_cogment.testing.conformance.channel import CheckService


def test_the_system() -> None:
    host = Host()
    assert abs(host.wall_clock() - time.time_ns()) < 60 * 10**9
    assert str(uuid.UUID(host.new_id())) != host.new_id()
    assert len(host.secret_bytes(16)) == 16
    assert host.random("a").random() != host.random("a").random()
    assert isinstance(host.files, SystemFiles)


async def test_connections_and_threads_of_the_system() -> None:
    host = Host()
    (listener,) = await host.listen("127.0.0.1", 0)
    port = listener.socket.getsockname()[1]  # type: ignore[attr-defined]  # that of TCP has one
    async with await host.connect("127.0.0.1", port) as ours, await listener.accept() as theirs:
        await ours.send_all(b"a")
        assert await theirs.receive_some() == b"a"
    await listener.aclose()
    assert await host.runner(1)(sum, [1, 2]) == 3


def test_files_for_their_owner_only(tmp_path: Path) -> None:
    file = Host().files.owner_only().open(f"{tmp_path}/a")
    write_whole(file, b"secret")
    file.close()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


async def test_one_part_of_it_can_be_another() -> None:
    host = replace(Host(), new_id=lambda: "mine", runner=inline_runner)
    async with Orchestrator(host=host) as orchestrator:
        assert not orchestrator.running_trials
    assert host.new_id() == "mine"
    assert host.connect is trio.open_tcp_stream


async def draws(world: World) -> list[object]:
    host = world.host("desk")
    file = host.files.open("file")
    write_whole(file, b"kept")
    file.close()
    assert world.host("desk").files.read("file") == b"kept"
    assert host.random("a").random() == world.host("desk").random("a").random() != host.random("b").random()
    assert host.random("a").random() != world.host("fakes").random("a").random()
    assert await host.runner(4)(sum, [1, 2]) == 3
    return [host.new_id(), host.secret_bytes(8), host.random("a").random(), host.wall_clock()]


def test_a_simulated_one_comes_from_the_seed() -> None:
    one, same, other = (simulate(seed, draws).value for seed in (1, 1, 2))
    assert one == same != other


async def a_call(world: World) -> None:
    (listener,) = await world.host("there").listen("", 9000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.host("here").connect, "there", 9000)
        await (await listener.accept()).aclose()
    await listener.aclose()


def test_simulated_connections() -> None:
    simulate(1, a_call)


async def a_platform(world: World) -> None:
    async with open_platform(host=world.host("desk")) as platform:
        assert platform.participants.host.wall_clock() == world.wall_clock()
        with pytest.raises(RpcError, match="registered"):
            await platform.controller.start_trial(trial_params([actor_params("ann", "player")]))


def test_a_platform_on_a_simulated_host() -> None:
    simulate(1, a_platform)


async def test_a_host_may_open_calls_in_its_own_way() -> None:
    opened: list[object] = []
    services = [CheckService().service()]
    plain = Host()

    def note(*arguments: object, **options: object) -> object:
        opened.append(arguments)
        return open_in_process(plain, services)

    host = CallHost(channel=note, in_process=note)  # type: ignore[arg-type]  # it takes anything
    async with open_channel(host, "there", 1), open_in_process(host, services):
        assert opened == [("there", 1), (services,)]
    async with open_channel(plain, "there", 1) as channel:
        assert type(channel).__name__ == "Channel"
