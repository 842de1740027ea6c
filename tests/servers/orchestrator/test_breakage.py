"""Breakages, row by row of the reference's table; where it does nothing, we do something."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from tests.helpers import (
    Script,
    actor_that_acts,
    bench,
    environment_of,
    observation_set,
    start_environment,
    until_given_up,
)
from tests.servers.orchestrator.puppets import CLIENT, LAST, LAST_ACK, settle, stage
from tests.servers.orchestrator.test_reference_cases import params
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import ServerCall
from trio_cogment.sdk import actor_params

S = TrialState
Clock = trio.testing.MockClock


async def test_environment_breaks_before_its_action_set_is_sent(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a"))
        await play["env"].observe(indexes=[0])
        play["env"].leave()
        await settle()
        assert await play.state() == S.ENDED
        assert "'env' left the trial" in str(play["a"].end)


async def test_environment_breaks_while_its_observation_is_awaited(autojump_clock: Clock) -> None:
    """Reference: nothing happens."""
    async with stage() as play:
        await play.play(params("a"))
        await play["env"].observe(indexes=[0])
        await play["a"].act()
        play["env"].leave()
        await settle()
        assert await play.state() == S.ENDED
        assert "'env' left the trial" in str(play["a"].end)


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_environment_breaks_while_finalising(acknowledged: bool, autojump_clock: Clock) -> None:
    """Reference: 60 s, and END with details. Ours: it counts as acknowledged, with details unless it had."""
    async with stage() as play:
        await play.play(params("a"))
        await play["env"].say(LAST)
        await play["env"].observe(indexes=[0])
        if acknowledged:
            await play["env"].say(LAST_ACK)
        play["env"].leave()
        await settle()
        assert await play.state() == S.TERMINATING
        await play["a"].say(LAST_ACK)
        assert await play.state() == S.ENDED
        assert trio.current_time() == 0
        expected = "" if acknowledged else "the environment did not acknowledge the end of the trial"
        assert play["a"].end == expected


async def test_environment_breaks_before_its_final_set(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a"))
        await play["env"].observe(indexes=[0])
        await play.soft()
        await play["a"].act()
        assert await play.state() == S.TERMINATING
        play["env"].leave()
        await settle()
        assert await play.state() == S.ENDED
        assert "'env' left the trial" in str(play["a"].end)


async def test_environment_sends_more_than_a_message_may_have(autojump_clock: Clock) -> None:
    """Reference: its stream dies silently, and the trial is stuck."""
    seen: list[Any] = []

    async def large(call: ServerCall) -> None:
        actors = await start_environment(call)
        await call.send(observation_set(actors, bytes(5 * 1024 * 1024)))
        await trio.sleep_forever()

    async with bench(Script(large).environment(), Script(actor_that_acts(seen)).actor(), wire=True) as table:
        unlogged = params("a")
        unlogged.ClearField("datalog")
        await table.controller.start_trial(unlogged, trial_id="t")
        info = await table.controller.wait_trial_state("t")
        await settle()
    assert info is not None
    assert info.state == S.ENDED
    assert "RESOURCE_EXHAUSTED" in seen[-1].details


@pytest.mark.parametrize("endpoint", ["", CLIENT], ids=["service actor", "client actor"])
@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize("stage_of_trial", ["pending", "running", "wait final", "wait acks"])
async def test_actor_breaks(endpoint: str, optional: bool, stage_of_trial: str, autojump_clock: Clock) -> None:
    """Reference: a required one ends the trial only at the next action set."""
    lost = actor_params("lost", "cls", endpoint=endpoint or "cogment://discover", optional=optional)
    async with stage() as play:
        if stage_of_trial == "pending":
            # Somebody else is awaited still.
            await play.start(params(lost, "a"))
            if endpoint:
                await play.join("lost")
            else:
                await play["lost"].ready()
        else:
            await play.play(params(lost, "a"))
            await play["env"].observe(indexes=[0, 0])
        if stage_of_trial in ("wait final", "wait acks"):
            await play.soft()
            await play["lost"].act()
            await play["a"].act()
        if stage_of_trial == "wait acks":
            await play["env"].observe(indexes=[0, 0])
        play["lost"].leave()
        await settle()
        if stage_of_trial in ("pending", "running") and not optional:
            assert await play.state() == S.ENDED
            assert "actor 'lost'" in str(play["a"].end)
            return
        if stage_of_trial == "pending":
            await play["a"].ready()
            await play["env"].ready()
            await play["env"].observe(indexes=[0, 0])
        if stage_of_trial in ("pending", "running"):
            play["env"].take()
            await play["a"].act()
            assert list(play["env"].take_set().unavailable_actors) == [0]
            await play.soft()
            await play["env"].observe(indexes=[0, 0])
            await play["a"].act()
        if stage_of_trial != "wait acks":
            await play["env"].observe(indexes=[0, 0])
        for name in ("a", "env"):
            await play[name].say(LAST_ACK)
        assert await play.state() == S.ENDED
        assert [play["a"].end, play["env"].end] == ["", ""]


async def test_message_to_an_environment_that_is_not_up_or_gone(autojump_clock: Clock) -> None:
    """Reference: the sender is barred."""
    async with stage() as play:
        await play.start(params("a"))
        await play["a"].ready()
        await play["a"].tell("env", b"early")
        assert play["a"].end is None
        await play["env"].ready()
        assert play["env"].got[-1].message.payload.value == b"early"
        await play["env"].say(LAST)
        await play["env"].observe(indexes=[0])
        play["env"].leave()
        await settle()
        await play["a"].tell("env", b"late")
        assert await play.state() == S.TERMINATING
        assert play["a"].end is None


async def test_message_to_a_client_that_has_not_joined(autojump_clock: Clock) -> None:
    """Reference: the receiver is barred."""
    async with stage() as play:
        await play.start(params("a", actor_params("c", "cls", endpoint=CLIENT)))
        await play["a"].ready()
        await play["a"].tell("*")
        assert (await play.join("c")).kinds() == ["NORMAL/init_input", "NORMAL/message"]


async def test_data_log_breaks(autojump_clock: Clock) -> None:
    """Reference: one line in the log, and no samples any more."""
    streams: list[list[int]] = []

    async def breaks(call: ServerCall) -> None:
        await call.receive()
        ticks: list[int] = []
        streams.append(ticks)
        async for message in call:
            ticks.append(message.sample.info.tick_id)
            if len(streams) == 1 and len(ticks) == 3:
                raise RpcError(StatusCode.UNAVAILABLE, "gone")

    services = Script(environment_of(10, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, Script(breaks).datalog()) as table:
        await table.controller.start_trial(params("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await settle()
    assert streams == [[0, 1, 2], list(range(3, 11))]


async def test_data_log_cannot_be_found(autojump_clock: Clock) -> None:
    async with stage() as play:
        lost = params("a")
        lost.datalog.endpoint = "grpc://127.0.0.1:9"
        with pytest.raises(RpcError) as caught:
            await play.start(lost)
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert "datalog" in caught.value.message
        assert not await play.table.controller.trial_infos()


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "stops reading"])
async def test_watcher_breaks(leaves: bool, autojump_clock: Clock) -> None:
    """Reference: one that stops reading freezes every trial."""
    async with stage(config=OrchestratorConfig(watch_queue_entries=10)) as play, AsyncExitStack() as watching:
        broken = await watching.enter_async_context(play.table.controller.watch_trials())
        await settle()
        if leaves:
            await watching.aclose()
        states = await play.watched()
        for number in range(200):
            assert await play.start(params("a"), f"another {number}")
        await play.play(params("a"))
        await play["env"].observe(indexes=[0])
        await play.hard()
        assert states == [1, 2, 3, 4, 5]
        if not leaves:
            seen = await until_given_up(broken)
            changes = [(f"another {number}", state) for number in range(200) for state in (S.INITIALIZING, S.PENDING)]
            assert 10 < len(seen) < len(changes)
            assert seen == changes[: len(seen)]
