"""`ClientActorSP`: joining, refusals, leaving; in process and over HTTP/2."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.helpers import (
    END,
    HEARTBEAT,
    LAST_ACK,
    NORMAL,
    Bench,
    Script,
    actor_that_acts,
    bench,
    environment_of,
)
from trio_cogment.api import orchestrator_pb2
from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorRunTrialOutput,
    TrialState,
)
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import ClientCall, methods_of
from trio_cogment.sdk import actor_params, trial_params

RUN_TRIAL = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name["ClientActorSP"])["RunTrial"]

CLIENT = "cogment://client"

pytestmark = pytest.mark.parametrize("wire", [False, True])


def joining(table: Bench, trial_id: str = "t") -> ClientCall:
    return table.channel.call(RUN_TRIAL, metadata=[("trial-id", trial_id)])


def init(**selection: str) -> ActorRunTrialOutput:
    return ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(**selection))


def client_params(*names: str, **options: Any) -> Any:
    return trial_params([actor_params(name, "player", endpoint=CLIENT, **options) for name in names])


async def play_to_the_end(call: ClientCall) -> list[Any]:
    """Act on everything by the book, and return what came."""
    seen: list[Any] = []
    await actor_that_acts(seen, start=False)(call)  # type: ignore[arg-type]  # the ends of a call are alike here
    return seen


@pytest.mark.parametrize("selection", [{"actor_name": "b"}, {"actor_class": "player"}])
async def test_client_joins_by_name_or_class_and_plays(
    wire: bool, selection: dict[str, str], autojump_clock: trio.testing.MockClock
) -> None:
    async with bench(Script(environment_of(2)).environment(), wire=wire) as table:
        await table.controller.start_trial(client_params("b"), trial_id="t")
        async with joining(table) as call:
            await call.send(init(**selection))
            first = await call.receive()
            assert (first.init_input.actor_name, first.init_input.actor_class) == ("b", "player")
            assert first.init_input.env_name == "env"
            assert not first.init_input.HasField("config")
            seen = await play_to_the_end(call)
            assert seen[-1].state == END
            assert await call.receive() is None
        info = await table.controller.wait_trial_state("t")
        assert info is not None
        assert info.state == TrialState.ENDED


async def test_heartbeats_before_joining_are_answered(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    async with bench(Script(environment_of(1)).environment(), wire=wire) as table:
        await table.controller.start_trial(client_params("b"), trial_id="t")
        async with joining(table) as call:
            for beat in (ActorRunTrialOutput(state=HEARTBEAT), ActorRunTrialOutput(state=HEARTBEAT, details="")):
                await call.send(beat)
                assert (await call.receive()).state == HEARTBEAT
            for nothing in (ActorRunTrialOutput(), ActorRunTrialOutput(state=NORMAL, details="hello")):
                await call.send(nothing)
            await call.send(init(actor_name="b"))
            assert (await call.receive()).HasField("init_input")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (init(actor_name="nobody"), StatusCode.NOT_FOUND),
        (init(actor_class="nothing"), StatusCode.NOT_FOUND),
        (init(), StatusCode.INVALID_ARGUMENT),
        (ActorRunTrialOutput(state=NORMAL, action=Action()), StatusCode.INVALID_ARGUMENT),
        (ActorRunTrialOutput(state=LAST_ACK), StatusCode.INVALID_ARGUMENT),
        (ActorRunTrialOutput(init_output=ActorInitialOutput(actor_name="b")), StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_bad_first_message_is_refused_and_the_place_stays_free(
    wire: bool, message: ActorRunTrialOutput, code: StatusCode, autojump_clock: trio.testing.MockClock
) -> None:
    async with bench(Script(environment_of(1)).environment(), wire=wire) as table:
        await table.controller.start_trial(client_params("b"), trial_id="t")
        async with joining(table) as call:
            await call.send(message)
            with pytest.raises(RpcError) as caught:
                await call.receive()
            assert caught.value.code is code
        async with joining(table) as call:
            await call.send(init(actor_name="b"))
            assert (await call.receive()).HasField("init_input")


async def test_unknown_trial_and_missing_metadata(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    async with bench(wire=wire) as table:
        for metadata, code in (([], StatusCode.INVALID_ARGUMENT), ([("trial-id", "x")], StatusCode.NOT_FOUND)):
            async with table.channel.call(RUN_TRIAL, metadata=metadata) as call:
                with pytest.raises(RpcError) as caught:
                    await call.receive()
                assert caught.value.code is code


async def test_place_can_be_taken_once(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    async with bench(Script(environment_of(1)).environment(), wire=wire) as table:
        await table.controller.start_trial(client_params("b", "c"), trial_id="t")
        async with joining(table) as first, joining(table) as second:
            await first.send(init(actor_name="b"))
            assert (await first.receive()).HasField("init_input")
            await second.send(init(actor_name="b"))
            with pytest.raises(RpcError) as caught:
                await second.receive()
            assert caught.value.code is StatusCode.FAILED_PRECONDITION


async def test_client_that_never_says_who_it_is_is_sent_away(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    config = OrchestratorConfig(client_join_timeout_seconds=3)
    async with bench(Script(environment_of(1)).environment(), wire=wire, config=config) as table:
        await table.controller.start_trial(client_params("b"), trial_id="t")
        async with joining(table) as call:
            with pytest.raises(RpcError) as caught:
                await call.receive()
            assert caught.value.code is StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("leaving", ["END", "half-close"])
async def test_client_may_leave_before_it_joined(
    wire: bool, leaving: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with bench(Script(environment_of(1)).environment(), wire=wire) as table:
        await table.controller.start_trial(client_params("b"), trial_id="t")
        async with joining(table) as call:
            if leaving == "END":
                await call.send(ActorRunTrialOutput(state=END))
            else:
                await call.done_sending()
            assert await call.receive() is None


async def test_required_client_that_vanishes_ends_the_trial(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Any] = []
    async with bench(Script(environment_of(None, seen)).environment(), wire=wire) as table:
        await table.controller.start_trial(client_params("b"), trial_id="t")
        async with joining(table) as call:
            await call.send(init(actor_name="b"))
            await call.receive()
        info = await table.controller.wait_trial_state("t")
        assert info is not None
        await trio.testing.wait_all_tasks_blocked()
    # The environment had not been contacted, or was told.
    assert not seen or seen[-1].state == END


async def test_client_that_stops_sending_is_told_how_it_ends(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with bench(Script(environment_of(2)).environment(), wire=wire) as table:
        await table.controller.start_trial(client_params("b"), trial_id="t")
        async with joining(table) as call:
            await call.send(init(actor_name="b"))
            await call.receive()
            await call.done_sending()
            messages = [message async for message in call]
        assert messages[-1].state == END
        info = await table.controller.wait_trial_state("t")
        assert info is not None


async def test_optional_client_that_never_comes_is_left_out(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    params = trial_params(
        [
            actor_params("a", "player"),
            actor_params("b", "player", endpoint=CLIENT, optional=True, initial_connection_timeout_seconds=2),
        ]
    )
    services = Script(environment_of(2)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, wire=wire) as table:
        await table.controller.start_trial(params, trial_id="t")
        info = await table.controller.wait_trial_state("t")
        assert info is not None
        assert info.tick_id == 2
        assert trio.current_time() >= 2
        async with joining(table) as call:
            await call.send(init(actor_name="b"))
            with pytest.raises(RpcError) as caught:
                await call.receive()
            assert caught.value.code is StatusCode.FAILED_PRECONDITION
