"""A platform with an environment, and openers of its orchestrator in this process and over HTTP/2."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio
from google.protobuf.wrappers_pb2 import StringValue

from tests.helpers import wire_channel
from trio_cogment import EnvironmentSession, EventType, Participants, Reward, actor_params, open_platform
from trio_cogment import trial_params as make_params
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.platform import Platform
from trio_cogment.rpc import CallOpener

TICKS = 3


def params_of(*names: str, **options: Any) -> TrialParams:
    """Return the parameters of a trial whose actors are clients."""
    return make_params([actor_params(name, "player", endpoint="cogment://client", **options) for name in names])


async def environment(session: EnvironmentSession) -> None:
    """Answer with the first actor's action; in each tick there is a reward, and a message with the tick."""
    await session.start([("*", b"0")])
    async for event in session.all_events():
        if event.actions is not None:
            told = [("*", (event.actions[0].payload or b"-") + b"!")]
            await session.send_message(StringValue(value=str(event.tick_id)), "*")
            rewards = [Reward("*", float(event.tick_id))]
            if event.tick_id == TICKS or event.type is EventType.ENDING:
                await session.end(told, rewards)
            else:
                await session.produce_observations(told, rewards)


@dataclass
class Playground:
    """A platform, and how it is reached."""

    platform: Platform
    opener: CallOpener
    nursery: trio.Nursery

    async def start(self, *names: str, **options: Any) -> str:
        """Start a trial."""
        return await self.platform.controller.start_trial(params_of(*names, **options))


@asynccontextmanager
async def playground(where: str = "in process", play: Any = environment) -> AsyncIterator[Playground]:
    """Open a platform, and reach it in process or over HTTP/2."""
    participants = Participants()
    participants.register_environment(play)
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        platform = await stack.enter_async_context(open_platform(participants))
        opener = platform.channel
        if where != "in process":
            opener = await stack.enter_async_context(wire_channel(platform.services))
        with trio.fail_after(30):
            yield Playground(platform, opener, nursery)
