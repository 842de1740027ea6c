"""Attacks by participants of trials: what they bring into ticks that never end, and data logs that take nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc.aio
from _attack_target import CLIENT, MIB, Participants, Target, long_field, method, starting, trial_params
from _wire_peers import add_stream

from trio_cogment.api import common_pb2, datalog_pb2
from trio_cogment.api import trial_datastore_pb2 as datastore_pb2


def _joining(channel: grpc.aio.Channel, trial_id: str) -> Any:
    join = channel.stream_stream(
        "/cogmentAPI.ClientActorSP/RunTrial",
        common_pb2.ActorRunTrialOutput.SerializeToString,
        common_pb2.ActorRunTrialInput.FromString,
    )
    return join(metadata=[("trial-id", trial_id)])


async def _say(call: Any, message: Any) -> bool:
    """Send a message; False if the trial has been ended."""
    try:
        await call.write(message)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return False
    return True


def _init() -> Any:
    init = common_pb2.ActorRunTrialOutput(state=common_pb2.NORMAL)
    init.init_output.actor_class = "p"
    return init


async def actions_under_way(target: Target) -> None:
    """A trial of 500 client actors, of which all but one act with 4 MiB each."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        environment = await stack.enter_async_context(Participants(ticks=2).serving())
        count = target.many(500)
        reply = await target.attempt(starting(channel, trial_params(environment, [CLIENT] * count)))
        if reply is None:
            return
        calls = []
        for number in range(count):
            if number % 25 == 0:
                channel = await stack.enter_async_context(target.channel())
            calls.append(_joining(channel, reply.trial_id))
            await target.attempt(calls[-1].write(_init()))
        for call in calls:
            await call.read()
        action = common_pb2.ActorRunTrialOutput(state=common_pb2.NORMAL)
        action.action.tick_id = -1
        action.action.content = bytes(4 * MIB - 64)

        async def act(number: int) -> None:
            await calls[number].read()
            await _say(calls[number], action)

        await target.in_lanes(8, act, count - 1)
        await asyncio.sleep(target.seconds_left)


async def said_to_nobody(target: Target) -> None:
    """30 trials that wait for a client, whose other actor says 60 MiB to it meanwhile."""
    said = common_pb2.ActorRunTrialOutput(state=common_pb2.NORMAL)
    said.message.tick_id = -1
    said.message.receiver_name = "b"
    said.message.payload.value = bytes(MIB)
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        environment = await stack.enter_async_context(Participants().serving())

        async def speak(_: int) -> None:
            reply = await starting(channel, trial_params(environment, [CLIENT] * 2))
            call = _joining(await stack.enter_async_context(target.channel()), reply.trial_id)
            calls.append(call)
            await call.write(_init())
            for _ in range(60):
                if not await _say(call, said):
                    break

        calls: list[Any] = []
        await target.in_lanes(10, speak, target.many(30))
        await asyncio.sleep(target.seconds_left)


class _DeafLog:
    """A data log that accepts and reads nothing but the parameters."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = grpc.aio.server(options=[("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)])
        add_stream(server, "/cogmentAPI.DatalogSP/RunTrialDatalog", self._log, datalog_pb2.RunTrialDatalogInput)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            await server.stop(0)

    async def _log(self, _: Any, context: Any) -> None:
        await context.read()
        await context.write(datalog_pb2.RunTrialDatalogOutput().SerializeToString())
        await asyncio.sleep(3600)


async def samples_under_way(target: Target) -> None:
    """200 trials with 3.9 MiB in each tick, and a data log that reads nothing."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        log = await stack.enter_async_context(_DeafLog().serving())
        mine = Participants(observation=bytes(4 * MIB - 1000), ticks=1000)
        endpoint = await stack.enter_async_context(mine.serving())
        params = trial_params(endpoint, [endpoint])
        params.datalog.endpoint = log
        await target.in_lanes(10, lambda _: starting(channel, params), target.many(200))
        await asyncio.sleep(target.seconds_left)


async def outboxes_of_many(target: Target) -> None:
    """1,500 trials of a client each, which does not read the 240 KiB that are said to it."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        environment = await stack.enter_async_context(Participants().serving())
        said = common_pb2.ActorRunTrialOutput(state=common_pb2.NORMAL)
        said.message.tick_id = -1
        said.message.receiver_name = "a"
        said.message.payload.value = bytes(240 * 1024)
        calls: list[Any] = []

        async def one(number: int) -> None:
            reply = await starting(channel, trial_params(environment, [CLIENT]))
            if number % 50 == 0 or not own:
                options = {"grpc_http2_lookahead_bytes": 1024, "grpc_http2_bdp_probe": 0}
                own.append(await stack.enter_async_context(target.channel(**options)))
            call = _joining(own[-1], reply.trial_id)
            calls.append(call)
            await call.write(_init())
            await _say(call, said)

        own: list[grpc.aio.Channel] = []
        await target.in_lanes(16, one, target.many(1500))
        await asyncio.sleep(target.seconds_left)


async def observations_unread(target: Target) -> None:
    """A trial of 300 client actors that read nothing, of which each is given the same 3.9 MiB to see."""
    async with AsyncExitStack() as stack:
        mine = Participants(observation=bytes(4 * MIB - 1000))
        await _join_and_read_nothing(target, stack, mine)
        await asyncio.sleep(target.seconds_left)


async def rewards_unread(target: Target) -> None:
    """A trial of 300 client actors that read nothing, of which each is rewarded with the same 3.9 MiB of user data."""
    reward = common_pb2.Reward(tick_id=-1, receiver_name="*")
    reward.sources.add(value=1, confidence=1).user_data.value = bytes(4 * MIB - 1000)
    async with AsyncExitStack() as stack:
        mine = Participants(reward=reward)
        await _join_and_read_nothing(target, stack, mine)
        await asyncio.sleep(target.seconds_left)


async def _join_and_read_nothing(target: Target, stack: AsyncExitStack, mine: Participants) -> None:
    """Start a trial of 300 client actors, and be all of them, 10 on each connection."""
    channel = await stack.enter_async_context(target.channel())
    environment = await stack.enter_async_context(mine.serving())
    count = target.many(300)
    reply = await target.attempt(starting(channel, trial_params(environment, [CLIENT] * count)))
    if reply is None:
        return
    calls = []
    for number in range(count):
        if number % 10 == 0:
            options = {"grpc_http2_lookahead_bytes": 1024, "grpc_http2_bdp_probe": 0}
            channel = await stack.enter_async_context(target.channel(**options))
        calls.append(_joining(channel, reply.trial_id))
        await target.attempt(calls[-1].write(_init()))
    stack.callback(calls.clear)  # until then they are open


async def wide_rewards(target: Target) -> None:
    """16 clients, half of them compressing, that give 25 rewards each of two million sources of nothing."""
    reward = long_field(4, bytes((0x22, 0)) * (2 * MIB - 100))  # the field `sources` of the reward
    said = bytes((0x08, common_pb2.NORMAL)) + reward
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        endpoint = await stack.enter_async_context(Participants(ticks=1000).serving())

        async def reward_often(number: int) -> None:
            reply = await starting(channel, trial_params(endpoint, [CLIENT]))
            options = {"grpc_default_compression_algorithm": 2} if number % 2 else {}
            own = await stack.enter_async_context(target.channel(**options))
            join = own.stream_stream("/cogmentAPI.ClientActorSP/RunTrial")
            call = join(metadata=[("trial-id", reply.trial_id)])
            await call.write(_init().SerializeToString())
            for _ in range(25):
                if not await _say(call, said):
                    break
            await asyncio.sleep(target.seconds_left)

        await target.in_lanes(16, reward_often, target.many(16))


async def wide_samples(target: Target) -> None:
    """200 samples of 4 MiB that are two million rewards of nothing, for a trial of its own."""
    sample = long_field(2, bytes((0x22, 0)) * (2 * MIB - 100))  # the field `rewards` of the sample
    metadata = [("trial-id", "attacked")]
    params = trial_params(CLIENT, [CLIENT])
    first = datalog_pb2.RunTrialDatalogInput(trial_params=params).SerializeToString()
    async with target.channel() as channel:

        async def log(number: int) -> None:
            call = channel.stream_stream("/cogmentAPI.DatalogSP/RunTrialDatalog")(
                metadata=[("trial-id", f"attacked{number}"), ("user-id", "a")]
            )
            await call.write(first)
            for _ in range(target.many(25)):
                if not await _say(call, sample):
                    break
            await call.done_writing()
            async for _ in call:  # raises what the server says
                pass

        await target.in_lanes(8, log, 8)
        add = method(channel, "TrialDatastoreSP/AddTrial")
        await target.attempt(add(datastore_pb2.AddTrialRequest(user_id="a", trial_params=params), metadata=metadata))
        one = long_field(1, bytes((0x32, 0)) * (2 * MIB - 100))  # the field `actor_samples`
        store = channel.stream_unary("/cogmentAPI.TrialDatastoreSP/AddSample")
        await target.in_lanes(8, lambda _: store(iter([one] * 3), metadata=metadata), target.many(24))
