"""The client against a server of this package: every request, errors, pipelining, cancellation, lost servers."""

from __future__ import annotations

import numpy as np
import pytest
import trio
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.gateways.dm_env_rpc.servers import Catch, Server, served
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import (
    EndpointError,
    LocalProtocolError,
    RemoteProtocolError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.gateways.dm_env_rpc import Connection, DmEnvRpcError, Specs, State, open_connection
from trio_cogment.gateways.dm_env_rpc.client import pipeline as module
from trio_cogment.gateways.dm_env_rpc.client.requests import Reply, Step
from trio_cogment.rpc import InProcessChannel, bind
from trio_cogment.spaces import SpaceError

SERVICE = pb.DESCRIPTOR.services_by_name["Environment"]


async def joined(connection: Connection, **settings: object) -> str:
    world = await connection.create_world(settings)
    await connection.join_world(world)
    return world


def state_of(connection: Connection) -> State:
    return connection.state


def what_is_joined(connection: Connection) -> tuple[str | None, Specs | None]:
    return connection.world, connection.specs


async def played(connection: Connection) -> None:
    await joined(connection)
    await connection.step()


async def test_a_sequence() -> None:
    async with served() as (url, _, _), open_connection(url) as connection:
        assert (connection.state, connection.specs, connection.world) == (State.NOT_JOINED, None, None)
        world = await connection.create_world({"game": "catch", "seed": 3})
        specs = await connection.join_world(world)
        assert connection.specs is specs
        assert (connection.state, connection.world) == (State.TERMINATED, world)
        assert specs.actions.uids == {"paddle": 1}
        assert specs.actions.specs["paddle"].minimum == -1
        assert list(specs.observations.specs) == ["board", "ball.column", "reward"]
        step = await connection.step({"paddle": 77})  # is ignored, though no paddle can move so far
        assert (step.state, step.first, step.last) == (State.RUNNING, True, False)
        steps = [await connection.step({"paddle": 1}) for _ in range(Catch.ROWS - 1)]
        assert [(step.state, step.first, step.last) for step in steps] == [
            *[(State.RUNNING, False, False)] * (Catch.ROWS - 2),
            (State.TERMINATED, False, True),
        ]
        last = steps[-1].observations
        assert last["board"].dtype == np.float32
        assert last["board"][-1, -1] == 1
        assert last["ball.column"].shape == ()
        assert abs(last["reward"]) == 0.1
        assert connection.state is State.TERMINATED
        assert (await connection.step()).first


async def test_observations_of_choice() -> None:
    async with served() as (url, _, _), open_connection(url) as connection:
        await joined(connection)
        assert list((await connection.step(observations=["reward"])).observations) == ["reward"]
        assert (await connection.step(observations=[])).observations == {}
        with pytest.raises(SpaceError, match=r"observation 'score': expected one of 'board', 'ball\.column', 'reward'"):
            await connection.step(observations=["score"])


async def test_resets_and_leaving() -> None:
    async with served() as (url, server, _), open_connection(url) as connection:
        world = await joined(connection, seed=4)
        first = await connection.step()
        specs = await connection.reset({"seed": 4})
        assert specs is connection.specs
        assert connection.state is State.INTERRUPTED
        again = await connection.step()
        assert again.first
        assert again.observations["ball.column"] == first.observations["ball.column"]
        await connection.reset_world(settings={"seed": 5})
        assert connection.state is State.INTERRUPTED
        await connection.step()
        other = await connection.create_world()
        await connection.reset_world(other)
        assert state_of(connection) is State.RUNNING
        with pytest.raises(DmEnvRpcError, match="destroy_world: FAILED_PRECONDITION: somebody has joined"):
            await connection.destroy_world(world)
        await connection.leave_world()
        assert state_of(connection) is State.NOT_JOINED
        assert what_is_joined(connection) == (None, None)
        await connection.leave_world()
        await connection.join_world(world)
        await connection.leave_world()
        await connection.destroy_world(world)
        assert set(server.worlds) == {other}


async def test_what_the_server_refuses_changes_nothing() -> None:
    async with served() as (url, _, _), open_connection(url) as connection:
        with pytest.raises(DmEnvRpcError) as refused:
            await connection.join_world("hall", {"slot": 0})
        assert (refused.value.code, refused.value.request) == (StatusCode.NOT_FOUND, "join_world")
        assert str(refused.value) == f"{url}: join_world: NOT_FOUND: there is no world 'hall'"
        with pytest.raises(DmEnvRpcError, match=r"create_world: INVALID_ARGUMENT: setting 'level\.depth'"):
            await connection.create_world({"level": {"depth": 3}})
        await joined(connection)
        await connection.step()
        with pytest.raises(DmEnvRpcError, match="step: INVALID_ARGUMENT: paddle: expected at most 1, got 5"):
            await connection.step({"paddle": 5})
        assert connection.state is State.RUNNING
        assert not (await connection.step({"paddle": 1})).first
        with pytest.raises(DmEnvRpcError, match="join_world: FAILED_PRECONDITION"):
            await connection.join_world("catch-1")
        with pytest.raises(SpaceError, match="action 'paddle': expected numbers of the type int8"):
            await connection.step({"paddle": 0.5})


async def test_an_error_without_a_code() -> None:
    def forget(response: pb.EnvironmentResponse) -> None:
        if response.HasField("error"):
            response.error.code = 0
            response.error.details.add(type_url="type/hint", value=b"1")

    async with served() as (url, server, _), open_connection(url) as connection:
        server.mangle = forget
        with pytest.raises(DmEnvRpcError, match="UNKNOWN: there is no world") as refused:
            await connection.destroy_world("hall")
        assert [(each.type_url, each.value) for each in refused.value.details] == [("type/hint", b"1")]


async def test_without_a_world() -> None:
    async with served() as (url, _, _), open_connection(url) as connection:
        with pytest.raises(LocalProtocolError, match="step: expected a world that is joined; none is"):
            await connection.step()
        with pytest.raises(LocalProtocolError, match="reset_world: expected a name; none is joined"):
            await connection.reset_world()
        with pytest.raises(DmEnvRpcError, match="reset: FAILED_PRECONDITION: no world is joined"):
            await connection.reset()


async def test_properties() -> None:
    async with served() as (url, _, _), open_connection(url) as connection:
        version, world = await connection.list_properties()
        assert (version.key, version.readable, version.writable, version.listable) == ("version", True, False, False)
        assert version.spec is not None
        assert version.spec.type.name == "str"
        assert (world.key, world.spec, world.listable) == ("world", None, True)
        (difficulty,) = await connection.list_properties("world")
        assert difficulty.writable
        assert await connection.read_property("version") == "1.2"
        await connection.write_property(difficulty.key, np.float32(0.5))
        assert (await connection.read_property(difficulty.key)) == np.float32(0.5)
        with pytest.raises(DmEnvRpcError, match="extension: NOT_FOUND: there is no property 'colour'"):
            await connection.read_property("colour")
        with pytest.raises(DmEnvRpcError, match="extension: INVALID_ARGUMENT: unknown extension"):
            await connection.extension(AnyMessage(type_url="type.googleapis.com/other"))


async def test_a_thousand_requests_under_way() -> None:
    async with served() as (url, server, _), open_connection(url) as connection:
        await joined(connection)
        server.hold = trio.Event()
        replies = [await connection.begin_step({"paddle": 0}) for _ in range(1000)]
        assert connection.under_way == 1000
        assert not replies[0].is_there
        server.hold.set()
        states = [(await reply).state for reply in replies]
        one = [State.RUNNING] * (Catch.ROWS - 1) + [State.TERMINATED]
        assert states == (one * 167)[:1000]
        assert connection.under_way == 0


async def test_steps_whose_replies_are_given_to_a_function() -> None:
    async with served() as (url, server, _), open_connection(url) as connection:
        await joined(connection)
        server.hold = trio.Event()
        taken: list[Reply[Step]] = []
        replies = [connection.begin_step_nowait({"paddle": 0}) for _ in range(3)]
        for reply in replies:
            reply.give_to(taken.append)
        assert taken == []
        server.hold.set()
        assert not (await connection.step()).last
        assert taken == replies
        assert [reply.result().first for reply in taken] == [True, False, False]
        replies[0].give_to(taken.append)  # it is there
        assert taken[3:] == replies[:1]
        assert (await replies[1]).state is State.RUNNING
        with pytest.raises(SpaceError):
            connection.begin_step_nowait({"colour": 0})
    lost = connection.begin_step_nowait()
    with pytest.raises(UnavailableError):
        lost.result()


async def test_a_step_that_would_wait_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REQUESTS_UNDER_WAY", 1)
    async with served() as (url, server, _), open_connection(url) as connection:
        await joined(connection)
        server.hold = trio.Event()
        connection.begin_step_nowait()
        with pytest.raises(trio.WouldBlock):
            connection.begin_step_nowait()
        assert connection.under_way == 1
        server.hold.set()
        assert not (await connection.step()).last


async def test_more_requests_than_may_be_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REQUESTS_UNDER_WAY", 3)
    async with served() as (url, server, _), open_connection(url) as connection:
        await joined(connection)
        server.hold = trio.Event()
        for _ in range(3):
            await connection.begin_step()
        with trio.move_on_after(0) as scope:
            await connection.begin_step()
        assert scope.cancelled_caught
        assert connection.under_way == 3
        server.hold.set()
        assert not (await connection.step()).last
        assert server.log.count("step") == 4


async def test_a_reply_that_nobody_waits_for_any_more() -> None:
    async with served() as (url, server, _), open_connection(url) as connection:
        await joined(connection)
        await connection.step()
        server.hold = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.step, {"paddle": 1})
            await trio.testing.wait_all_tasks_blocked()
            assert connection.under_way == 1
            nursery.cancel_scope.cancel()
        reply = await connection.begin_step({"paddle": 1})
        server.hold.set()
        # Both steps were made: the paddle is two places further.
        assert (await reply).observations["board"][-1].tolist() == [0, 0, 0, 0, 1]
        assert (await reply).observations["board"][2].any()


async def test_a_server_that_dies() -> None:
    async with served() as (url, server, life), open_connection(url) as connection:
        await joined(connection)
        server.hold = trio.Event()
        replies = [await connection.begin_step() for _ in range(3)]
        life.cancel()
        for reply in replies:
            with pytest.raises(UnavailableError, match=f"{url}: the connection was lost: UNAVAILABLE"):
                await reply
        with pytest.raises(UnavailableError, match="the connection was lost"):
            await connection.step()
        assert connection.under_way == 0


async def test_a_connection_that_was_closed() -> None:
    async with served() as (url, server, _):
        async with open_connection(url) as connection:
            await joined(connection)
            server.hold = trio.Event()
            reply = await connection.begin_step()
        for late in (reply, await connection.begin_step()):
            with pytest.raises(UnavailableError, match="the connection has been closed"):
                await late
        server.hold.set()
        while server.open:  # the server has learned of it
            await trio.lowlevel.checkpoint()
        assert server.worlds["catch-1"].slots == [None]


async def test_replies_that_break_the_protocol() -> None:
    def end_at_once(response: pb.EnvironmentResponse) -> None:
        if response.HasField("step"):
            response.step.state = pb.INTERRUPTED

    def mistake(response: pb.EnvironmentResponse) -> None:
        response.leave_world.SetInParent()

    def twice(response: pb.EnvironmentResponse) -> None:
        if response.HasField("join_world"):
            for spec in response.join_world.specs.observations.values():
                spec.name = "same"

    cases = (
        (end_at_once, "step: expected .*while the connection is terminated .*; got step: INTERRUPTED"),
        (mistake, "create_world: expected a reply of that kind, got leave_world"),
        (twice, "join_world: specs: expected names that are unique, got 'same' twice"),
    )
    async with served() as (url, server, _):
        for mangle, text in cases:
            server.mangle = mangle
            async with open_connection(url) as connection:
                with pytest.raises(RemoteProtocolError, match=text):
                    await played(connection)
                with pytest.raises(RemoteProtocolError, match=text):
                    await connection.leave_world()


async def test_an_observation_that_is_not_what_it_should_be() -> None:
    def spoil(response: pb.EnvironmentResponse) -> None:
        if response.HasField("step"):
            response.step.observations[9].floats.array[:] = [1.0]

    async with served() as (url, server, _), open_connection(url) as connection:
        await joined(connection)
        server.mangle = spoil
        with pytest.raises(RemoteProtocolError, match="step: reward: dtype: expected float64"):
            await connection.step()
        server.mangle = lambda _: None
        assert not (await connection.step()).first


async def test_a_channel_within_the_process() -> None:
    server = Server()
    async with (
        InProcessChannel([bind(SERVICE, server)]) as channel,
        open_connection(channel) as one,
        open_connection(channel) as other,
    ):
        world = await one.create_world({"game": "duel"})
        await one.join_world(world)
        await other.join_world(world)
        first = await one.begin_step()
        assert (await other.step()).first
        assert (await first).first


@pytest.mark.parametrize("text", ["localhost", "http://localhost:1", "localhost:0", ""])
async def test_endpoints(text: str) -> None:
    with pytest.raises(EndpointError, match=r"server: '.*': expected grpc://host:port"):
        async with open_connection(text):
            pass


async def test_an_address_as_the_published_library_takes_it() -> None:
    async with served() as (url, _, _), open_connection(url.removeprefix("grpc://")) as connection:
        await connection.join_world(await connection.create_world())
