"""A platform with an environment, and a web proxy whose actors are in its process."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import trio
from google.protobuf.struct_pb2 import Value

from trio_cogment.access import AccessControl, Keys, Rules
from trio_cogment.base.config import WebProxyConfig
from trio_cogment.base.host import Host
from trio_cogment.gateways.rest.messages import dumps
from trio_cogment.gateways.rest.proxy import Caller, RestProxy
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import EnvironmentSession, Participants
from trio_cogment.sdk.spec import Spec, load_spec

APP = Path(__file__).resolve().parents[2] / "interop" / "app"
SECOND = 1_000_000_000
ME = Caller("ipv4:127.0.0.1:50000")
STRANGER = Caller("ipv4:203.0.113.9:50000")


@cache
def spec() -> Spec:
    """Return the types of the application: players with a configuration, and referees without."""
    return load_spec(APP)


def keys(number: int = 1) -> Keys:
    return Keys((bytes([number]) * 32,))


def control(number: int = 1) -> AccessControl:
    """Return what signs tokens, on Trio's clock."""
    ids = itertools.count()
    return AccessControl(
        Rules(keys=keys(number)),
        wall_clock=lambda: SECOND + round(trio.current_time() * SECOND),
        new_id=lambda: f"id{next(ids)}",
    )


def observation(step: int) -> Any:
    return spec().actor_class("player").observation(step=step)  # type: ignore[misc]  # it has a type


class Field:
    """An environment that counts ticks, rewards what actors do, tells them about it, and ends after some ticks.

    Attributes:
        numbers: what the first actor has sent.
        received: what has come besides, as text.
    """

    def __init__(self, last_tick: int = 3) -> None:
        self.last_tick = last_tick
        self.numbers: list[int] = []
        self.received: list[str] = []

    async def run(self, session: EnvironmentSession) -> None:
        await session.start([("*", observation(0))])
        async for event in session.all_events():
            if event.message is not None:
                value = Value()
                event.message.payload.Unpack(value)
                self.received.append(f"{event.message.sender_name}: {value.string_value}")
                await session.send_message(Value(string_value="heard"), event.message.sender_name)
            if event.actions is None:
                continue
            number = event.actions[0].payload.number
            self.numbers.append(number)
            await session.add_reward(float(number), 1.0, session.actors[0].name)
            observations = [("*", observation(event.tick_id + 1))]
            if event.tick_id + 1 >= self.last_tick:
                await session.end(observations)
            else:
                await session.produce_observations(observations)


@asynccontextmanager
async def opened_proxy(
    environment: Callable[[EnvironmentSession], Any] | None = None,
    *,
    config: WebProxyConfig | None = None,
    access: AccessControl | None = None,
) -> AsyncIterator[tuple[RestProxy, Platform]]:
    """Open both; the environment is registered as `field`."""
    ids = itertools.count()
    host = Host(wall_clock=lambda: SECOND + round(trio.current_time() * SECOND), new_id=lambda: f"trial-{next(ids)}")
    participants = Participants(spec(), host=host)
    participants.register_environment(environment or Field().run, "field")
    proxy = RestProxy(spec(), signing=access or control(), control=access, config=config, participants=participants)
    async with open_platform(participants, host=host) as platform:
        proxy.connect(platform.channel)
        yield proxy, platform


def start_body(**more: Any) -> bytes:
    """Return a body that starts a trial with one player, and what is given besides."""
    player = {"name": "ann", "actor_class": "player", "implementation": "web", "config": {"bonus": 7}}
    return dumps({"environment": {"implementation": "field"}, "actors": [player], **more})


def act_body(number: int, **more: Any) -> bytes:
    return dumps({"action": {"number": number}, **more})


def holding(token: str) -> Caller:
    return Caller(STRANGER.peer, seat_token=token)
