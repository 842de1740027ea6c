"""A platform with trials to look at, and a dashboard in front of it: `python -m tests.dashboard.shown`.

Prints the address of its pages, and ends with its standard input.
"""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import trio
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue

from trio_cogment import ActorSession, EnvironmentSession, actor_params, open_platform, trial_params
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.spaces_pb2 import Array
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.dashboard import open_dashboard
from trio_cogment.platform import Platform
from trio_cogment.rpc import RunningServer, open_listeners, serve
from trio_cogment.sdk.spec import ActorClass, Spec
from trio_cogment.spaces import decode_array, encode_array
from trio_cogment.web import PageAccess, WebSide

SPEC = Spec.of(ActorClass("player", observation=Array, action=Array))
SIZE = 24
#: Ticks a second of the trials that run on.
PACE = 20.0


def picture(tick: int) -> Array:
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    x, y = (SIZE / 2 * (1 + 0.7 * turn(tick / 15)) for turn in (math.cos, math.sin))
    blob = 255 * np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / 12)
    return encode_array(np.stack([blob, 255 - blob, np.full_like(blob, 80)], axis=2).astype(np.uint8))


def told(tick: int) -> Struct:
    """Return what the environment tells actors now and then."""
    found = Struct()
    found.update({"phase": "far" if tick % 80 < 40 else "near", "tick": tick})
    return found


async def arena(session: EnvironmentSession) -> None:
    """Show a blob that moves, to whoever acts, and reward being near it."""
    await session.start([("*", picture(0))])
    async for event in session.all_events():
        if event.actions is None:
            continue
        tick = event.tick_id + 1
        for action in event.actions:
            if action.available:
                name = ("quick", "slow")[action.actor_index]
                await session.add_reward(float(decode_array(action.payload)[0]), 1.0, name)
        if tick % 40 == 20:
            await session.send_message(told(tick), ["quick"])
        if session.trial_id.startswith("short") and tick >= 60:
            await session.end([("*", picture(tick))])
        else:
            if not session.trial_id.startswith("short"):
                await trio.sleep(1 / PACE)
            await session.produce_observations([("*", picture(tick))])


async def player(session: ActorSession, seconds: float = 0.0) -> None:
    """Follow the blob, more or less, and say something now and then."""
    await session.start()
    async for event in session.all_events():
        if event.observation is None:
            continue
        tick = event.tick_id
        if seconds and not session.trial_id.startswith("short"):
            await trio.sleep(seconds)
        phase = 0.0 if seconds else 1.0
        moves = [math.sin(tick / 15 + phase), math.cos(tick / 15 + phase)]
        await session.do_action(encode_array(np.array(moves, np.float32)))
        if tick % 40 == 0:
            await session.send_message(StringValue(value=f"tick {tick} <b>here</b>"), ["*"])


def params() -> TrialParams:
    return trial_params(
        [
            actor_params("quick", "player", implementation="quick"),
            actor_params("slow", "player", implementation="slow"),
        ],
        environment="arena",
        datalog_endpoint="cogment://discover",
    )


@dataclass
class Shown:
    """What is shown, and how to come in."""

    platform: Platform
    serving: RunningServer
    access: PageAccess

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.serving.port}"

    def entrance(self) -> str:
        return f"{self.address}/enter/{self.access.new_code()}"


@asynccontextmanager
async def platform_with_pages() -> AsyncIterator[tuple[Platform, WebSide, PageAccess]]:
    """Have a platform with a model, and what its port has for browsers."""
    with TemporaryDirectory() as folder:
        async with (
            open_platform(
                SPEC,
                config=PlatformConfig(default_params=params()),
                store="memory:",
                model_registry=folder,
                host=Host(runner=inline_runner),  # a virtual clock does not wait for threads
            ) as platform,
            open_dashboard(platform, types=SPEC) as routes,
        ):
            platform.participants.register_environment(arena, "arena")
            platform.participants.register_actor(player, "quick", ["player"])
            platform.participants.register_actor(partial(player, seconds=0.02), "slow", ["player"])
            registry = platform.model_registry_client()
            for number in range(1, 4):
                data = {"score": str(0.5 * number), "parent": str(max(1, number - 1))}
                await registry.store("pilot", bytes(1000 * number), user_data=data)
            access = PageAccess()
            yield platform, WebSide(routes=routes, access=access), access


@asynccontextmanager
async def shown(nursery: trio.Nursery) -> AsyncIterator[Shown]:
    """Have all that on a port."""
    async with platform_with_pages() as (platform, side, access):
        listeners = await open_listeners("127.0.0.1")
        serving = await nursery.start(partial(serve, web=side), platform.services, listeners)
        yield Shown(platform, serving, access)
        await platform.stop()
        await serving.drain(2)


async def main() -> None:
    async with trio.open_nursery() as nursery, shown(nursery) as there:
        controller = there.platform.controller
        for name in ("run-a", "run-b", "short-1", "short-2"):
            await controller.start_trial(trial_id=name)
        print(there.entrance(), flush=True)
        # Each line that comes asks for another address.
        while await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            print(there.entrance(), flush=True)
        began = trio.current_time()
    print(f"{trio.current_time() - began:.3f}", flush=True)


if __name__ == "__main__":
    trio.run(main)
