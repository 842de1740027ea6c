"""Calls in process that take time."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_cogment import actor_params, trial_params
from trio_cogment.api.common_pb2 import Action
from trio_cogment.testing import (
    DelayedChannel,
    Link,
    World,
    simulate,
)
from trio_cogment.testing.conformance.channel import ECHO, CheckService


async def busy_world(session: Any) -> None:
    await session.start([("*", b"0")])
    async for event in session.all_events():
        if event.actions is not None:
            await (session.end if session.tick_id == 20 else session.produce_observations)([("*", b"x")])


async def busy_actor(session: Any) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"y")


@pytest.mark.parametrize("latency", [0.0, 0.01, 1.0])
def test_a_platform_in_process_takes_the_time_of_its_link(latency: float) -> None:
    """Nobody thinks here: without a latency, all of it happens in one instant."""

    async def scenario(world: World) -> float:
        link = Link(latency_seconds=latency, jitter_seconds=latency / 10) if latency else None
        async with world.open_platform(link=link) as platform:
            platform.participants.register_environment(busy_world)
            platform.participants.register_actor(busy_actor, "busy")
            began = trio.current_time()
            trial = await platform.controller.start_trial(trial_params([actor_params("ann", "player")]))
            await platform.controller.wait_trial_state(trial)
            return trio.current_time() - began

    seconds = simulate(1, scenario).value
    # Twenty times: observation, action, and both ways the orchestrator is in between.
    assert 80 * latency <= seconds <= 110 * latency
    assert simulate(1, scenario).value == seconds


def test_messages_overtake_nothing_and_statuses_come_after_them() -> None:
    async def scenario(world: World) -> list[float]:
        link = Link(latency_seconds=0.1, jitter_seconds=0.5)
        async with DelayedChannel([CheckService().service()], link, world.stream) as channel:
            times = []
            async with channel.call(ECHO) as call:
                for number in range(30):
                    await call.send(Action(tick_id=number))
                await call.done_sending()
                ticks = []
                async for reply in call:
                    ticks.append(reply.tick_id)
                    times.append(trio.current_time())
            assert ticks == list(range(30))
            return times

    times = simulate(3, scenario).value
    assert times[0] > 0.2
    assert times[-1] < 3  # they travel together
