"""Clients that make requests as they like, and vanish, in one world: each gets legal answers, and nothing is left."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.gateways.dm_env_rpc.gateway.games import DONE, Game, params_of, playing, seat
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import StatusCode
from trio_cogment.gateways.dm_env_rpc import Connection, DmEnvRpcError, open_connection
from trio_cogment.platform import Platform
from trio_cogment.sdk import EnvironmentSession, Reward

NAMES = ("ann", "ben", "cleo")
#: What requests at random may be refused with; anything else would be a mistake of the gateway.
LEGAL = {
    StatusCode.FAILED_PRECONDITION,
    StatusCode.NOT_FOUND,
    StatusCode.ALREADY_EXISTS,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.INVALID_ARGUMENT,
    StatusCode.UNAVAILABLE,
}
#: What clients do, and how often.
WISHES = {
    "step": 60,
    "join": 12,
    "sleep": 6,
    "talk": 4,
    "reset": 3,
    "wrong": 3,
    "reset_world": 2,
    "leave": 2,
    "create": 2,
    "settings": 2,
    "destroy": 1,
}


class Someone:
    """A client that plays, and now and then does something else."""

    def __init__(self, platform: Platform, generator: random.Random) -> None:
        self._platform, self._random = platform, generator
        self.answers = 0

    async def run(self, lives: int) -> None:
        for _ in range(lives):
            async with open_connection(self._platform.channel) as connection:
                # Who is stopped in the middle of a request has vanished.
                with trio.move_on_after(self._random.choice((0.5, 5, 60))):
                    for _ in range(25):
                        await self._something(connection)
                assert connection.failure is None  # each answer was legal
            await trio.sleep(self._random.random())

    async def _something(self, connection: Connection) -> None:
        what = self._random.choices(
            (
                "step",
                "join",
                "reset",
                "reset_world",
                "leave",
                "create",
                "destroy",
                "settings",
                "sleep",
                "talk",
                "wrong",
            ),
            (60, 12, 3, 2, 2, 2, 1, 2, 6, 4, 3),
        )[0]
        try:
            await getattr(self, f"_{what}")(connection)
        except DmEnvRpcError as error:
            if error.code not in LEGAL:
                raise
        self.answers += 1

    async def _step(self, connection: Connection) -> None:
        if connection.specs is not None:
            await connection.step({"action": self._random.randrange(DONE.n)})

    async def _join(self, connection: Connection) -> None:
        await connection.join_world("w", {"actor_name": self._random.choice(NAMES)})

    async def _reset(self, connection: Connection) -> None:
        await connection.reset()

    async def _settings(self, connection: Connection) -> None:
        await connection.reset({"max_steps": self._random.randrange(5)})

    async def _reset_world(self, connection: Connection) -> None:
        await connection.reset_world("w")

    async def _leave(self, connection: Connection) -> None:
        await connection.leave_world()

    async def _create(self, connection: Connection) -> None:
        await connection.create_world({"world_name": "w"})

    async def _destroy(self, connection: Connection) -> None:
        await connection.destroy_world("w")

    async def _sleep(self, _: Connection) -> None:
        await trio.sleep(self._random.choice((0.1, 1, 8)))

    async def _talk(self, connection: Connection) -> None:
        await connection.write_property(f"feedback.{self._random.choice(NAMES)}", 1.0)

    async def _wrong(self, connection: Connection) -> None:
        await connection.reset({"nothing of the kind": 1})


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", range(25))
async def test_anything_goes(seed: int, autojump_clock: MockClock) -> None:
    generator = random.Random(seed)

    async def turn(_: EnvironmentSession, number: int) -> None:
        if generator.random() < 0.01:
            raise ValueError("the dice fell off the table")
        if generator.random() < 0.05:
            await trio.sleep(generator.choice((0.1, 7)))

    rewards = {number: [Reward("*", 1.0)] for number in range(1, 9)}
    game = Game(length=generator.choice((-1, 1, 4, 8)), turn=turn, rewards=rewards, out={"ben": (3, True)})
    policies: dict[str, Any] = {
        "on_leave": generator.choice(("end", "autopilot", "vacate")),
        "reset": generator.choice(("wait", "world")),
        "destroy": generator.choice(("refuse", "force")),
        "start_when": generator.choice(("all", "first", 2)),
        "step_timeout_seconds": 5,
        "reset_world_timeout_seconds": 10,
        "world_idle_seconds": generator.choice((3, 600)),
    }
    params = params_of(*(seat(name, optional=generator.random() < 0.5) for name in NAMES))
    async with playing(game, params, **policies) as platform:
        clients = [Someone(platform, generator) for _ in range(4)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.run, 6)
        async with open_connection(platform.channel) as last:
            # Whatever has happened, there is a world to play in.
            if "w" not in (await last.read_property("worlds")).tolist():
                await last.create_world({"world_name": "w"})
            await trio.sleep(60)
            infos = await platform.controller.trial_infos()
            assert {info.state for info in infos} <= {TrialState.ENDED}
            assert (await last.read_property("worlds")).tolist() in ([], ["w"])
    assert all(client.answers > 10 for client in clients)
