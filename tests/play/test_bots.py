"""A bot in the place of a person: what it is told, whose actions count, and how it is let go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialInput,
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    CommunicationState,
    Message,
)
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.play.bots import Asked, Bot
from trio_cogment.rpc import RpcError, StatusCode

READY = ActorRunTrialOutput(init_output=ActorInitialOutput())
SAYS = ActorRunTrialOutput(message=Message(receiver_name="*"))


def acts(content: bytes) -> ActorRunTrialOutput:
    return ActorRunTrialOutput(action=Action(tick_id=-1, content=content))


class Service:
    """The service of an implementation; and the call of it, which hears and says what a test gives it."""

    def __init__(self) -> None:
        self.heard: list[ActorRunTrialInput | None] = []
        self.opened: tuple[str, Any] = ("", ())
        self._say, self._said = trio.open_memory_channel[Any](100)

    def says(self, *messages: Any) -> None:
        for message in messages:
            self._say.send_nowait(message)

    @asynccontextmanager
    async def call(self, method: Any, metadata: Any) -> AsyncIterator[Service]:
        self.opened = method.path, metadata
        yield self

    async def send(self, message: ActorRunTrialInput) -> None:
        await trio.lowlevel.checkpoint()
        self.heard.append(message)

    async def done_sending(self) -> None:
        await trio.lowlevel.checkpoint()
        self.heard.append(None)

    async def receive(self) -> Any:
        message = await self._said.receive()
        if isinstance(message, Exception):
            raise message
        return message


class Stand:
    """A bot, and the actions that came of it."""

    def __init__(self) -> None:
        self.service, self.taken = Service(), list[tuple[int, bytes]]()
        opener: Any = self.service
        self.bot = Bot(opener, "t", ActorInitialInput(actor_name="ann"), lambda *action: self.taken.append(action))


async def test_it_is_told_its_part_and_answers_what_it_is_asked() -> None:
    stand = Stand()
    stand.service.says(SAYS, READY, SAYS, acts(b"one"), acts(b"two"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stand.bot.run)
        await wait_all_tasks_blocked()
        assert stand.service.opened == ("/cogmentAPI.ServiceActorSP/RunTrial", (("trial-id", "t"),))
        (first,) = stand.service.heard
        assert first is not None
        assert (first.state, first.init_input.actor_name) == (CommunicationState.NORMAL, "ann")
        for number in (4, 7):
            stand.bot.ask(Asked(number, 100 + number, b"seen"))
            await wait_all_tasks_blocked()
            shown = stand.service.heard[-1]
            assert shown is not None
            assert (shown.state, shown.observation.tick_id) == (CommunicationState.NORMAL, number)
            assert (shown.observation.timestamp, shown.observation.content) == (100 + number, b"seen")
        assert stand.taken == [(4, b"one"), (7, b"two")]
        stand.service.says(acts(b"late"), None)
        stand.bot.dismiss()
    end, done = stand.service.heard[-2:]
    assert end is not None
    assert end.state == CommunicationState.END
    assert done is None
    assert len(stand.taken) == 2


async def test_only_what_was_asked_last_counts() -> None:
    stand = Stand()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stand.bot.run)
        await wait_all_tasks_blocked()
        stand.bot.ask(Asked(1, 1, b""))
        stand.bot.ask(Asked(2, 2, b""))
        stand.service.says(READY, acts(b"x"), None)
        await wait_all_tasks_blocked()
        assert stand.taken == [(2, b"x")]
        assert len(stand.service.heard) == 2
        stand.bot.dismiss()


async def test_an_answer_that_comes_after_the_person_is_not_taken() -> None:
    stand = Stand()
    stand.service.says(READY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stand.bot.run)
        stand.bot.ask(Asked(1, 1, b""))
        await wait_all_tasks_blocked()
        stand.bot.dismiss()
        stand.service.says(acts(b"x"), SAYS, None)
    assert stand.taken == []


async def test_it_is_not_asked_what_it_was_dismissed_from() -> None:
    stand = Stand()
    stand.service.says(READY, None)
    stand.bot.ask(Asked(1, 1, b""))
    stand.bot.dismiss()
    await stand.bot.run()
    assert len([message for message in stand.service.heard if message and message.HasField("observation")]) == 0


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((None,), "^the bot has left$"),
        ((READY, None), "^the bot has left$"),
        ((RpcError(StatusCode.UNAVAILABLE, "gone"),), "^the bot failed: gone$"),
        ((READY, RpcError(StatusCode.UNKNOWN, "a bug")), "^the bot failed: a bug$"),
    ],
)
async def test_one_that_fails_or_leaves(said: tuple[Any, ...], expected: str) -> None:
    stand = Stand()
    stand.service.says(*said)
    stand.bot.ask(Asked(1, 1, b""))
    with pytest.raises(FailedPreconditionError, match=expected):
        await stand.bot.run()
    assert stand.taken == []
