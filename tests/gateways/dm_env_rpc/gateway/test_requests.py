"""Every request in every state of a connection, as an opened gateway answers it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.gateways.dm_env_rpc.gateway.games import Game, joined, playing
from tests.gateways.dm_env_rpc.gateway.test_connection import NOT_JOINED, NOT_RUNNING, RULES, RUNNING, ConnectionState
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.api.dm_env_rpc import properties_pb2
from trio_cogment.base.errors import StatusCode
from trio_cogment.gateways.dm_env_rpc.client.connection import PROCESS
from trio_cogment.gateways.dm_env_rpc.gateway.connection import Request
from trio_cogment.platform import Platform
from trio_cogment.rpc import ClientCall


def read_version() -> pb.EnvironmentRequest:
    read = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key="server.version"))
    request, packed = pb.EnvironmentRequest(), AnyMessage()
    packed.Pack(read)
    # By fields: the class of another descriptor pool is another class.
    request.extension.type_url, request.extension.value = packed.type_url, packed.value
    return request


#: A request of each kind that is good wherever it is allowed. There are the worlds `w`, and `other`, which is empty.
REQUESTS: dict[Request, Callable[[], pb.EnvironmentRequest]] = {
    Request.CREATE_WORLD: lambda: pb.EnvironmentRequest(create_world=pb.CreateWorldRequest()),
    Request.JOIN_WORLD: lambda: pb.EnvironmentRequest(join_world=pb.JoinWorldRequest(world_name="w")),
    Request.STEP: lambda: pb.EnvironmentRequest(step=pb.StepRequest(requested_observations=[2])),
    Request.RESET: lambda: pb.EnvironmentRequest(reset=pb.ResetRequest()),
    Request.RESET_WORLD: lambda: pb.EnvironmentRequest(reset_world=pb.ResetWorldRequest(world_name="w")),
    Request.LEAVE_WORLD: lambda: pb.EnvironmentRequest(leave_world=pb.LeaveWorldRequest()),
    Request.DESTROY_WORLD: lambda: pb.EnvironmentRequest(destroy_world=pb.DestroyWorldRequest(world_name="other")),
    Request.DESTROY_OWN_WORLD: lambda: pb.EnvironmentRequest(destroy_world=pb.DestroyWorldRequest(world_name="w")),
    Request.EXTENSION: read_version,
    Request.UNKNOWN: pb.EnvironmentRequest,
}
#: What of a state is changed by a request that is carried out; the others stay in it.
AFTER = {
    **{(state, request): state for state in ConnectionState for request in Request},
    **{(state, Request.LEAVE_WORLD): NOT_JOINED for state in ConnectionState},
    **{(RUNNING, request): NOT_RUNNING for request in (Request.RESET, Request.RESET_WORLD)},
    (NOT_JOINED, Request.JOIN_WORLD): NOT_RUNNING,
    (NOT_RUNNING, Request.STEP): RUNNING,
}


async def asked(call: ClientCall, request: pb.EnvironmentRequest) -> pb.EnvironmentResponse:
    await call.send(request)
    found: pb.EnvironmentResponse = await call.receive()
    return found


async def bring(call: ClientCall, state: ConnectionState) -> None:
    """Bring a connection into a state; there are the worlds `w` and `other` then."""
    for name in ("w", "other"):
        settings = {"world_name": pb.Tensor(strings=pb.Tensor.StringArray(array=[name]))}
        made = await asked(call, pb.EnvironmentRequest(create_world=pb.CreateWorldRequest(settings=settings)))
        assert made.create_world.world_name == name
    if state is not NOT_JOINED:
        assert (await asked(call, REQUESTS[Request.JOIN_WORLD]())).HasField("join_world")
    if state is RUNNING:
        assert (await asked(call, REQUESTS[Request.STEP]())).step.state == pb.RUNNING


async def state_of(call: ClientCall) -> tuple[ConnectionState, int]:
    """Return the state of a connection by the requests that it allows, and what the next step shows."""
    refused = pb.EnvironmentRequest(step=pb.StepRequest(requested_observations=[99]))
    found = (await asked(call, refused)).error
    if found.code == StatusCode.FAILED_PRECONDITION:
        return NOT_JOINED, 0
    # A sequence that runs judges actions; one that begins does not.
    wrong = pb.EnvironmentRequest(step=pb.StepRequest(actions={77: pb.Tensor()}, requested_observations=[2]))
    answer = await asked(call, wrong)
    if answer.HasField("error"):
        answer = await asked(call, REQUESTS[Request.STEP]())
        return RUNNING, int(answer.step.observations[2].int64s.array[0])
    return NOT_RUNNING, int(answer.step.observations[2].int64s.array[0])


def open_call(platform: Platform) -> ClientCall:
    return platform.channel.call(PROCESS)


@pytest.mark.parametrize("request_kind", Request)
@pytest.mark.parametrize("state", ConnectionState)
async def test_every_request_in_every_state(state: ConnectionState, request_kind: Request) -> None:
    game = Game(length=0)
    async with playing(game) as platform, open_call(platform) as call:
        await bring(call, state)
        started = len(game.sessions)
        answer = await asked(call, REQUESTS[request_kind]())
        expected = RULES[state, request_kind]
        if isinstance(expected, str):
            unknown = request_kind is Request.UNKNOWN
            assert answer.error.code == (StatusCode.INVALID_ARGUMENT if unknown else StatusCode.FAILED_PRECONDITION)
            assert expected in answer.error.message
            assert len(game.sessions) == started
            assert len(game.actions) == 0
        else:
            name = request_kind.value.partition(" ")[0]
            assert answer.WhichOneof("payload") == name
        after = state if isinstance(expected, str) else AFTER[state, request_kind]
        steps = 1 if after is RUNNING else 0
        if (state, request_kind) == (RUNNING, Request.STEP):
            assert answer.step.observations[2].int64s.array[0] == 1
            steps = 2
        assert await state_of(call) == (after, steps)


async def test_refused_requests_change_nothing() -> None:
    """Wrong actions and UIDs in the middle of a sequence: it goes on where it was."""
    game = Game(length=0)
    number = pb.Tensor(int64s=pb.Tensor.Int64Array(array=[3]))
    wrong = {
        "UID 9": {9: number},
        "UID 1": {1: pb.Tensor(doubles=pb.Tensor.DoubleArray(array=[1.0]))},
        "10": {1: pb.Tensor(int64s=pb.Tensor.Int64Array(array=[10]))},
        "-1": {1: pb.Tensor(int64s=pb.Tensor.Int64Array(array=[-1]))},
        "shape": {1: pb.Tensor(int64s=pb.Tensor.Int64Array(array=[1]), shape=[1])},
    }
    async with playing(game) as platform, open_call(platform) as call:
        await bring(call, RUNNING)
        for text, actions in wrong.items():
            answer = await asked(call, pb.EnvironmentRequest(step=pb.StepRequest(actions=actions)))
            assert answer.error.code in (StatusCode.INVALID_ARGUMENT, StatusCode.OUT_OF_RANGE)
            assert text in answer.error.message
        answer = await asked(call, pb.EnvironmentRequest(step=pb.StepRequest(requested_observations=[2, 4711])))
        assert "4711" in answer.error.message
        request = pb.EnvironmentRequest(step=pb.StepRequest(actions={1: number}, requested_observations=[2, 2, 3]))
        answer = await asked(call, request)
    assert (answer.step.state, sorted(answer.step.observations)) == (pb.RUNNING, [2, 3])
    assert game.actions == [[3], [0]]  # at the end the default action, once


async def test_the_first_step_checks_what_is_requested_and_no_actions() -> None:
    game = Game(length=0)
    async with playing(game) as platform, open_call(platform) as call:
        await bring(call, NOT_RUNNING)
        answer = await asked(call, pb.EnvironmentRequest(step=pb.StepRequest(requested_observations=[555])))
        assert "555" in answer.error.message
        request = pb.EnvironmentRequest(step=pb.StepRequest(actions={555: pb.Tensor()}))
        answer = await asked(call, request)
        assert answer.step.state == pb.RUNNING
        assert not answer.step.observations
    assert game.actions == [[0]]


async def test_an_action_that_is_left_out() -> None:
    game = Game(length=0)
    async with playing(game) as platform, open_call(platform) as call:
        await bring(call, RUNNING)
        assert (await asked(call, REQUESTS[Request.STEP]())).step.state == pb.RUNNING
    assert game.actions[0] == [0]
    async with playing(Game(length=0), require_actions=True) as platform, open_call(platform) as call:
        await bring(call, RUNNING)
        answer = await asked(call, REQUESTS[Request.STEP]())
        assert answer.error.code == StatusCode.INVALID_ARGUMENT
        assert "UID 1" in answer.error.message


async def test_a_thousand_requests_before_the_first_reply_is_read() -> None:
    """Each is judged by the state that the one before has left, and they are answered in order."""
    game = Game(length=7)
    async with playing(game) as platform, joined(platform, "ann") as (connection,):
        replies = [await connection.begin_step({"action": number % 10}) for number in range(1000)]
        steps = [await reply for reply in replies]
    assert [int(step.observations["observation"]) for step in steps] == [number % 8 for number in range(1000)]
    assert [number for number, step in enumerate(steps) if step.last] == list(range(7, 1000, 8))
    assert [one for (one,) in game.actions] == [number % 10 for number in range(1000) if number % 8]
