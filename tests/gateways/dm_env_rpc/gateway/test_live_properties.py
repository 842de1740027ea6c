"""The properties of a connection while trials run: what can be read is true, and what is sent arrives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from trio.testing import wait_all_tasks_blocked

from tests.gateways.dm_env_rpc.gateway.games import Game, joined, params_of, playing, step, together
from trio_cogment._version import __version__
from trio_cogment.api.common_pb2 import Message
from trio_cogment.base.config import DmEnvRpcConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.gateways.dm_env_rpc import Connection, DmEnvRpcError, open_connection
from trio_cogment.sdk import ActorSession, EnvironmentSession, RecvMessage, RecvReward, actor_params

BOTH = ("ann", "ben")


async def read(connection: Connection, *names: str) -> list[Any]:
    return [(await connection.read_property(name)).tolist() for name in names]


async def refused(connection: Connection, name: str, value: Any) -> tuple[StatusCode, str]:
    with pytest.raises(DmEnvRpcError) as caught:
        await connection.write_property(name, value)
    return caught.value.code, caught.value.message


async def inbox(connection: Connection) -> list[tuple[str, str]]:
    """Return senders and texts of the messages that have come."""
    found = []
    for packed in (await connection.read_property("messages.in")).tolist():
        message, text = Message(), StringValue()
        assert packed.Unpack(message)
        assert message.payload.Unpack(text)
        found.append((message.sender_name, text.value))
    return found


async def test_the_trial() -> None:
    params = params_of(*BOTH, environment_name="arena")
    async with playing(Game(length=2), params) as platform, joined(platform, *BOTH) as (ann, ben):
        names = ("trial.actors", "trial.actors.ann", "trial.env", "server.version", "worlds", "worlds.w")
        assert await read(ann, *names) == [["ann", "ben"], "player", "arena", __version__, ["w"], []]
        await together(ann, ben)
        live = ("trial.id", "trial.state", "trial.tick", "trial.last_error")
        assert await read(ann, *live) == ["w.1", "RUNNING", 0, ""]
        await together(ann, ben)
        assert await read(ann, *live) == ["w.1", "RUNNING", 1, ""]
        await together(ann, ben)
        assert await read(ann, *live) == ["w.1", "ENDED", 2, ""]
        await together(ann, ben)
        assert await read(ann, *live) == ["w.2", "RUNNING", 0, ""]
        async with open_connection(platform.channel) as other:
            assert await read(other, "worlds", "worlds.w") == [["w"], []]
            with pytest.raises(DmEnvRpcError, match=r"trial\.id.*after JoinWorld") as caught:
                await other.read_property("trial.id")
            assert caught.value.code is StatusCode.NOT_FOUND


async def test_messages_go_out() -> None:
    """To the environment, to another client of the gateway, and to an actor of another kind."""
    heard: list[RecvMessage] = []

    async def bot(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.message is not None:
                heard.append(event.message)
            if event.observation is not None:
                await session.do_action(b"")

    game = Game(length=0)
    params = params_of(*BOTH, actor_params("bot", "player", implementation="bot"))
    async with playing(game, params) as platform:
        platform.participants.register_actor(bot, "bot")
        async with joined(platform, *BOTH) as (ann, ben):
            await together(ann, ben)
            await ann.write_property("messages.out.env", "hello")
            await ann.write_property("messages.out.bot", "hello bot")
            await ann.write_property("messages.out.ben", "hello ben")
            packed = AnyMessage()
            packed.Pack(Int32Value(value=7))
            number = np.empty((), object)
            number[()] = packed
            await ann.write_property("messages.out.env", number)
            await wait_all_tasks_blocked()
            assert await inbox(ben) == [("ann", "hello ben")]
            assert await inbox(ben) == []
            code, text = await refused(ann, "messages.out.ann", "to myself")
            assert (code, "'messages.out.ann'" in text) == (StatusCode.NOT_FOUND, True)
            code, _ = await refused(ann, "messages.out.bot", 1.5)
            assert code is StatusCode.INVALID_ARGUMENT
    words, value = StringValue(), Int32Value()
    assert [each.sender_name for each in game.messages] == ["ann", "ann"]
    assert game.messages[0].payload.Unpack(words)
    assert game.messages[1].payload.Unpack(value)
    assert (words.value, value.value) == ("hello", 7)
    assert [each.sender_name for each in heard] == ["ann"]


async def test_there_is_nobody_to_send_to_without_a_sequence() -> None:
    async with playing(Game(length=1)) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        await step(ann)
        code, text = await refused(ann, "messages.out.env", "hello")
        assert code is StatusCode.FAILED_PRECONDITION
        assert "there is no trial" in text


async def test_messages_come_in_and_the_oldest_ones_go() -> None:
    async def turn(session: EnvironmentSession, number: int) -> None:
        for part in range(3):
            await session.send_message(StringValue(value=f"{number}.{part}"), "ann")

    game = Game(length=0, turn=turn)
    config = DmEnvRpcConfig(max_kept_messages=4)
    async with playing(game, config=config) as platform, joined(platform, "ann") as (ann,):
        for _ in range(3):
            await step(ann)
        assert await inbox(ann) == [("env", text) for text in ("1.2", "2.0", "2.1", "2.2")]
        assert await inbox(ann) == []
        await step(ann)
        assert await inbox(ann) == [("env", f"3.{part}") for part in range(3)]


async def test_feedback_is_a_reward_of_another_actor() -> None:
    """It comes with the next observation of a client, and as an event to an actor of another kind."""
    got: list[RecvReward] = []

    async def bot(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.reward is not None:
                got.append(event.reward)
            if event.observation is not None:
                await session.do_action(b"")

    params = params_of(*BOTH, actor_params("bot", "player", implementation="bot"))
    async with playing(Game(length=0), params) as platform:
        platform.participants.register_actor(bot, "bot")
        async with joined(platform, *BOTH) as (ann, ben):
            await together(ann, ben)
            await ann.write_property("feedback.ben", 0.25)
            await ann.write_property("feedback.bot", -1)
            assert [reward for _, _, reward in await together(ann, ben)] == [0.0, 0.25]
            await together(ann, ben)
            code, _ = await refused(ann, "feedback.ben", "well done")
            assert code is StatusCode.INVALID_ARGUMENT
            for name in ("feedback.ann", "feedback.env"):
                assert (await refused(ann, name, 1.0))[0] is StatusCode.NOT_FOUND
            assert (await refused(ann, "trial.id", "mine"))[0] is StatusCode.PERMISSION_DENIED
    assert [(each.value, each.tick_id) for each in got] == [(-1.0, 0)]


async def test_every_property_that_is_listed_is_what_it_says() -> None:
    async with playing(Game(length=0), BOTH) as platform, joined(platform, *BOTH) as (ann, ben):
        await together(ann, ben)
        todo, seen = [""], set()
        while todo:
            for each in await ann.list_properties(todo.pop()):
                seen.add(each.key)
                if each.listable:
                    todo.append(each.key)
                if each.readable:
                    value = await ann.read_property(each.key)
                    assert each.spec is None or value.ndim == len(each.spec.shape)
                else:
                    with pytest.raises(DmEnvRpcError) as caught:
                        await ann.read_property(each.key)
                    assert caught.value.code is StatusCode.PERMISSION_DENIED
        assert {"messages.out.env", "messages.out.ben", "feedback.ben", "reward.sources", "trial.tick"} <= seen
        assert await together(ann, ben) == [(ann.state, 1, 0.0)] * 2


async def test_an_extension_that_is_unknown() -> None:
    async with playing(Game()) as platform, open_connection(platform.channel) as ann:
        packed = AnyMessage()
        packed.Pack(Struct())
        with pytest.raises(DmEnvRpcError, match=r"got 'google\.protobuf\.Struct'") as caught:
            await ann.extension(packed)
        assert caught.value.code is StatusCode.UNIMPLEMENTED
        with trio.fail_after(5):
            assert await read(ann, "server.version") == [__version__]
