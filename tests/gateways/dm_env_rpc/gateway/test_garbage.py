"""Requests that nobody means: refused at once, within bounds of memory, and the connection goes on where it was."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator

import pytest
import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateways.dm_env_rpc.gateway.games import Game, playing
from tests.gateways.dm_env_rpc.gateway.test_connection import ConnectionState
from tests.gateways.dm_env_rpc.gateway.test_requests import REQUESTS, asked, bring, open_call
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.api.dm_env_rpc import properties_pb2
from trio_cogment.base.errors import StatusCode
from trio_cogment.gateways.dm_env_rpc.gateway.connection import Request
from trio_cogment.rpc import ClientCall

T = pb.Tensor
MOST = 2**31 - 1
REFUSED = {
    StatusCode.INVALID_ARGUMENT,
    StatusCode.OUT_OF_RANGE,
    StatusCode.NOT_FOUND,
    StatusCode.UNIMPLEMENTED,
    StatusCode.FAILED_PRECONDITION,
}
#: Tensors that are not a number from 0 to 9, or no tensors at all.
TENSORS = {
    "nothing": T(),
    "only a shape": T(shape=[2]),
    "four thousand million": T(int64s=T.Int64Array(array=[1]), shape=[MOST, 2]),
    "more than there is": T(int64s=T.Int64Array(array=[1]), shape=[MOST] * 8),
    "no elements": T(int64s=T.Int64Array()),
    "no elements of a shape": T(int64s=T.Int64Array(), shape=[MOST]),
    "two unknown dimensions": T(int64s=T.Int64Array(array=[1]), shape=[-1, -1]),
    "negative": T(int64s=T.Int64Array(array=[1]), shape=[-(2**31)]),
    "many dimensions": T(int64s=T.Int64Array(array=[1]), shape=[1] * 10_000),
    "too many elements": T(int64s=T.Int64Array(array=[1] * 10_000)),
    "bytes": T(uint8s=T.Uint8Array(array=b"\x01")),
    "floats": T(doubles=T.DoubleArray(array=[1.0])),
    "not a number": T(floats=T.FloatArray(array=[float("nan")])),
    "text": T(strings=T.StringArray(array=["1"])),
    "truth": T(bools=T.BoolArray(array=[True])),
    "messages": T(protos=T.ProtoArray(array=[{"type_url": "x" * 1000, "value": b"\xff" * 1000}])),
    "too high": T(int64s=T.Int64Array(array=[2**63 - 1])),
    "too low": T(int64s=T.Int64Array(array=[-(2**63)])),
}


def nested(depth: int) -> AnyMessage:
    """Return an `Any` in an `Any`, this many times."""
    found = AnyMessage(type_url="type.googleapis.com/dm_env_rpc.v1.extensions.properties.PropertyRequest")
    for _ in range(depth):
        outer = AnyMessage()
        outer.Pack(found)
        found = outer
    return found


def extension(content: AnyMessage) -> pb.EnvironmentRequest:
    request = pb.EnvironmentRequest()
    request.extension.type_url, request.extension.value = content.type_url, content.value
    return request


def written(key: str, value: pb.Tensor) -> AnyMessage:
    packed = AnyMessage()
    write = properties_pb2.WritePropertyRequest(key=key, value=value)
    packed.Pack(properties_pb2.PropertyRequest(write_property=write))
    return packed


def requests() -> Iterator[tuple[str, pb.EnvironmentRequest]]:
    """Yield requests that are refused in the middle of a sequence, with names for them."""
    for name, tensor in TENSORS.items():
        yield f"action: {name}", pb.EnvironmentRequest(step=pb.StepRequest(actions={1: tensor}))
        yield f"seed: {name}", pb.EnvironmentRequest(reset=pb.ResetRequest(settings={"max_stepss": tensor}))
        yield f"feedback: {name}", extension(written("feedback.ben", tensor))
        yield (
            f"env_config: {name}",
            pb.EnvironmentRequest(
                create_world=pb.CreateWorldRequest(settings={"world_name": tensor, "start_when": tensor})
            ),
        )
    yield "unknown UIDs", pb.EnvironmentRequest(step=pb.StepRequest(requested_observations=range(100, 20_000)))
    yield "a huge UID", pb.EnvironmentRequest(step=pb.StepRequest(actions={2**64 - 1: T()}))
    number = T(int64s=T.Int64Array(array=[1]))
    many = dict.fromkeys(range(1, 20000), number)
    yield "unknown actions", pb.EnvironmentRequest(step=pb.StepRequest(actions=many))
    yield (
        "huge settings",
        pb.EnvironmentRequest(
            reset=pb.ResetRequest(settings={f"env.{'x' * 1000}.{index}": number for index in range(1000)})
        ),
    )
    yield "a long name", pb.EnvironmentRequest(reset_world=pb.ResetWorldRequest(world_name="x" * 1_000_000))
    yield "another long name", pb.EnvironmentRequest(destroy_world=pb.DestroyWorldRequest(world_name="x" * 1_000_000))
    deep = T(int64s=T.Int64Array(array=[1]))
    yield (
        "deep settings",
        pb.EnvironmentRequest(reset=pb.ResetRequest(settings={"env.arguments" + ".a" * 20_000: deep})),
    )
    for depth in (1, 50, 2000):
        yield f"an extension in {depth} others", extension(nested(depth))
    yield "an empty extension", extension(AnyMessage())
    yield "a property request without content", extension(nested(0))
    broken = AnyMessage(type_url=nested(0).type_url, value=b"\xff" * 100_000)
    yield "a broken extension", extension(broken)
    yield "an unknown property", extension(written("x" * 1_000_000, number))
    yield "no payload", pb.EnvironmentRequest()


async def goes_on(call: ClientCall, seen: int) -> None:
    """See that the sequence goes on where it was."""
    answer = await asked(call, REQUESTS[Request.STEP]())
    assert answer.step.state == pb.RUNNING
    assert answer.step.observations[2].int64s.array[0] == seen


async def test_each_is_refused() -> None:
    game = Game(length=0)
    async with playing(game, ("ann",)) as platform, open_call(platform) as call:
        await bring(call, ConnectionState.RUNNING)
        for seen, (name, request) in zip(itertools.count(1), requests(), strict=False):
            answer = await asked(call, request)
            assert answer.WhichOneof("payload") == "error", name
            assert answer.error.code in REFUSED, (name, answer.error)
            assert len(answer.error.message) < 2000, name
            await goes_on(call, seen)
        assert len(game.sessions) == 1


async def test_shapes_take_no_memory() -> None:
    async with playing(Game(length=0)) as platform, open_call(platform) as call:
        await bring(call, ConnectionState.RUNNING)
        for name, tensor in TENSORS.items():
            request = pb.EnvironmentRequest(step=pb.StepRequest(actions={1: tensor}))
            tracemalloc.start()
            try:
                await asked(call, request)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak < 16 * 2**20, name


async def test_a_first_step_is_not_judged_by_its_actions() -> None:
    async with playing(Game(length=0)) as platform, open_call(platform) as call:
        for tensor in TENSORS.values():
            await asked(call, REQUESTS[Request.LEAVE_WORLD]())
            if tensor is TENSORS["nothing"]:
                await bring(call, ConnectionState.NOT_RUNNING)
            else:
                await asked(call, REQUESTS[Request.JOIN_WORLD]())
            request = pb.EnvironmentRequest(step=pb.StepRequest(actions={1: tensor, 2**64 - 1: tensor}))
            assert (await asked(call, request)).step.state == pb.RUNNING


@given(content=st.lists(st.binary(max_size=60), min_size=1, max_size=20))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_any_message_gets_an_answer(content: list[bytes]) -> None:
    async def ask() -> None:
        async with playing(Game(length=0)) as platform, open_call(platform) as call:
            await bring(call, ConnectionState.RUNNING)
            for each in content:
                try:
                    request = pb.EnvironmentRequest.FromString(each)
                except DecodeError:
                    continue  # the transport refuses it
                answer = await asked(call, request)
                assert answer.WhichOneof("payload") in ("error", request.WhichOneof("payload"))

    trio.run(ask)


@pytest.mark.parametrize("count", [1, 7])
async def test_no_more_answers_than_requests(count: int) -> None:
    async with playing(Game(length=0)) as platform, open_call(platform) as call:
        for _ in range(count):
            await call.send(pb.EnvironmentRequest())
        await call.done_sending()
        answers = [each async for each in call]
    assert [each.error.code for each in answers] == [StatusCode.INVALID_ARGUMENT] * count
