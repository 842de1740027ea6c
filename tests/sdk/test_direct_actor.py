"""Client actors without a task: what they are told, and how their part ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from google.protobuf.wrappers_pb2 import StringValue

from trio_cogment import ActorSession, EnvironmentSession, Event, EventType, Participants, actor_params, open_platform
from trio_cogment import trial_params as make_params
from trio_cogment.api.common_pb2 import ActorRunTrialOutput
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.base.log_context import bound_trial
from trio_cogment.base.outcome import EndCause
from trio_cogment.platform import Platform
from trio_cogment.rpc import InProcessChannel, open_channel, open_listeners, serve
from trio_cogment.sdk._inline import InlineEvents
from trio_cogment.sdk.direct_actor import DirectActor, join_trial_nowait

TICKS = 3
PARAMS = make_params([actor_params("ann", "player", endpoint="cogment://client")])


async def environment(session: EnvironmentSession) -> None:
    """Play some ticks."""
    await session.start([("*", b"0")])
    async for event in session.all_events():
        if event.actions is not None:
            told = [("*", event.actions[0].payload + b"!")]
            if event.tick_id == TICKS:
                await session.end(told)
            elif event.type is EventType.ACTIVE:
                await session.produce_observations(told)


class Player:
    """An actor that answers each observation with its content."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.session: ActorSession[bytes, Any, Any] | None = None
        self.raises: Exception | None = None
        self.over = trio.Event()
        self.errors: list[Exception | None] = []
        self.trials: set[str] = set()

    def on_session(self, session: ActorSession[bytes, Any, Any]) -> None:
        """See `ActorHandler`."""
        self.session = session
        self.trials.add(bound_trial())

    def on_event(self, event: Event[bytes, None]) -> None:
        """See `ActorHandler`."""
        self.trials.add(bound_trial())
        assert self.session is not None
        if self.raises is not None:
            raise self.raises
        if event.observation is not None:
            self.seen.append((event.type, event.tick_id, event.observation.payload))
            if event.type is EventType.ACTIVE:
                self.session.do_action_nowait(event.observation.payload)

    def on_over(self, error: Exception | None) -> None:
        """See `ActorHandler`."""
        self.errors.append(error)
        self.over.set()


@asynccontextmanager
async def platform_with(play: Any = environment) -> AsyncIterator[tuple[Platform, trio.Nursery]]:
    participants = Participants()
    participants.register_environment(play)
    async with (
        trio.open_nursery() as nursery,
        open_platform(participants) as platform,
    ):
        yield platform, nursery


def join(platform: Platform, nursery: trio.Nursery, trial_id: str, player: Player, name: str = "ann") -> DirectActor:
    actor = join_trial_nowait(platform.channel, trial_id, player, actor_name=name, spawn=nursery.start_soon)
    assert actor is not None
    return actor


async def ended(platform: Platform, trial_id: str) -> Any:
    with trio.fail_after(30):
        return await platform.controller.wait_trial(trial_id, check=False)


async def test_a_trial_is_played_to_its_end_without_a_task() -> None:
    player = Player()
    async with platform_with() as (platform, nursery):
        trial_id = await platform.controller.start_trial(PARAMS)
        join(platform, nursery, trial_id, player)
        with trio.fail_after(30):
            await player.over.wait()
        assert not nursery.child_tasks
        outcome = await ended(platform, trial_id)
    assert outcome.cause is EndCause.ENVIRONMENT
    kinds = [EventType.ACTIVE] * (TICKS + 1) + [EventType.ENDING]
    assert player.seen == [(kind, tick, b"0" + b"!" * tick) for tick, kind in enumerate(kinds)]
    assert player.errors == [None]
    assert player.trials == {trial_id}
    assert player.session is not None
    assert player.session.is_over


async def test_what_it_raises_ends_its_part_and_is_told_to_the_orchestrator() -> None:
    player = Player()
    player.raises = ValueError("no idea")
    async with platform_with() as (platform, nursery):
        trial_id = await platform.controller.start_trial(PARAMS)
        join(platform, nursery, trial_id, player)
        with trio.fail_after(30):
            await player.over.wait()
        outcome = await ended(platform, trial_id)
    assert player.errors == [player.raises]
    assert outcome.cause is EndCause.PARTICIPANT_FAILED
    assert "ValueError: no idea" in outcome.reason


async def test_leaving_ends_the_part_at_once() -> None:
    player = Player()
    async with platform_with() as (platform, nursery):
        trial_id = await platform.controller.start_trial(PARAMS)
        actor = join(platform, nursery, trial_id, player)
        actor.leave()
        actor.leave()
        assert player.errors == [None]
        outcome = await ended(platform, trial_id)
    assert outcome.cause is not EndCause.ENVIRONMENT
    assert player.errors == [None]


@pytest.mark.parametrize(
    ("trial_id", "name", "code"),
    [("nowhere", "ann", StatusCode.NOT_FOUND), ("t", "ben", StatusCode.NOT_FOUND)],
)
async def test_why_a_trial_cannot_be_joined_is_told(
    trial_id: str, name: str, code: StatusCode, autojump_clock: trio.testing.MockClock
) -> None:
    player = Player()
    async with platform_with() as (platform, nursery):
        await platform.controller.start_trial(PARAMS, trial_id="t")
        join(platform, nursery, trial_id, player, name)
        with trio.fail_after(30):
            await player.over.wait()
        await platform.controller.terminate_trial("t", hard=True)
    (error,) = player.errors
    assert isinstance(error, RpcError)
    assert error.code is code
    assert player.session is None


async def test_a_place_that_is_taken_is_refused() -> None:
    first, second = Player(), Player()

    async def waiting(session: EnvironmentSession) -> None:
        await session.start()
        async for _ in session.all_events():
            pass

    async with platform_with(waiting) as (platform, nursery):
        trial_id = await platform.controller.start_trial(PARAMS)
        join(platform, nursery, trial_id, first)
        join(platform, nursery, trial_id, second)
        with trio.fail_after(30):
            await second.over.wait()
        (error,) = second.errors
        assert isinstance(error, RpcError)
        assert error.code is StatusCode.FAILED_PRECONDITION
        assert first.errors == []
        await platform.controller.terminate_trial(trial_id, hard=True)
        assert first.errors == [None]
        assert first.session is not None
        assert first.session.details


async def test_what_the_orchestrator_does_not_take_at_once_is_sent_by_a_task() -> None:
    player = Player()
    async with platform_with() as (platform, nursery):
        trial_id = await platform.controller.start_trial(PARAMS)
        join(platform, nursery, trial_id, player)
        assert player.session is not None
        paused = platform.orchestrator.runs[0]
        paused.on_datalog_full(True)
        limit = RpcConfig().call_outbox_messages
        for number in range(limit + 3):
            player.session.send_message_nowait(StringValue(value=str(number)), "env")
        (task,) = nursery.child_tasks
        assert task.name == f"trial {trial_id}: outbox of an actor"
        paused.on_datalog_full(False)
        with trio.fail_after(30):
            await player.over.wait()
            await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
    assert player.errors == [None]


async def test_elsewhere_it_is_not_possible() -> None:
    async with platform_with() as (platform, nursery):
        server: Any = await nursery.start(serve, platform.services, await open_listeners("127.0.0.1"))
        async with open_channel(Host(), "127.0.0.1", server.port) as channel:
            found = join_trial_nowait(channel, "t", Player(), actor_name="ann", spawn=nursery.start_soon)
            assert found is None
        nursery.cancel_scope.cancel()


async def test_the_end_of_the_platform_is_told() -> None:
    player = Player()

    async def waiting(session: EnvironmentSession) -> None:
        await session.start()
        async for _ in session.all_events():
            pass

    async with platform_with(waiting) as (platform, nursery):
        trial_id = await platform.controller.start_trial(PARAMS)
        join(platform, nursery, trial_id, player)
    assert player.errors == [None]
    assert player.session is not None
    assert player.session.details


async def test_a_channel_that_ends_before_the_trial_does_is_an_error() -> None:
    player = Player()

    async def waiting(session: EnvironmentSession) -> None:
        await session.start()
        async for _ in session.all_events():
            pass

    async with platform_with(waiting) as (platform, nursery):
        trial_id = await platform.controller.start_trial(PARAMS)
        async with InProcessChannel(platform.services) as channel:
            actor = join_trial_nowait(channel, trial_id, player, actor_name="ann", spawn=nursery.start_soon)
            assert actor is not None
        (error,) = player.errors
        assert isinstance(error, RpcError)
        assert error.code is StatusCode.UNAVAILABLE


class Blocked:
    """A call that takes a message only when it is told to."""

    def __init__(self) -> None:
        self.room = trio.Event()
        self.taken: list[Any] = []

    def hand_over_nowait(self, message: Any) -> None:
        raise trio.WouldBlock

    async def send_together(self, messages: tuple[Any, ...]) -> None:
        await self.room.wait()
        self.taken.extend(messages)


class Leaving(InlineEvents):
    """A part whose messages are all forgotten when it is left."""

    def _wake(self) -> None: ...

    def _leave(self) -> None:
        self._waiting.clear()

    def leave(self) -> None:
        """Leave the trial."""
        self._leave()

    async def send(self) -> None:
        """Send what waits."""
        await self._send_waiting()


async def test_who_leaves_while_a_message_is_sent_sends_no_other(autojump_clock: trio.testing.MockClock) -> None:
    call, nothing = Blocked(), lambda *_: None
    part = Leaving(
        None,  # type: ignore[arg-type]  # sending asks nothing of the session
        call,  # type: ignore[arg-type]  # nor more of the call
        take=nothing,
        on_event=nothing,
        reply=lambda: False,
        who="ann",
    )
    part.post(ActorRunTrialOutput(details="1"))
    part.post(ActorRunTrialOutput(details="2"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(part.send)
        await trio.testing.wait_all_tasks_blocked()
        part.leave()
        call.room.set()
    assert [message.details for message in call.taken] == ["1"]
