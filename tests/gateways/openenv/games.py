"""Small games, and a server of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import trio

from trio_cogment.access import AccessControl
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.environments.base import Environment
from trio_cogment.environments.serving import environment
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.gateways.openenv.server import OpenEnvServer, serve_game
from trio_cogment.gateways.openenv.trials import Game
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import Participants
from trio_cogment.spaces import Box, Discrete, Frame, Observation, Space

PLAYERS = ("player_0", "player_1")


class Table:
    """What the games have in common."""

    name = "game"
    agents: Sequence[str] = PLAYERS
    metadata: Mapping[str, Any] = {}
    over = False
    observation_spaces: Mapping[str, Space]
    action_spaces: Mapping[str, Space]

    def frame(self) -> Frame | None:
        return None

    def close(self) -> None:
        pass


class Walk(Table):
    """One agent, which walks to 3; the seed is where it begins. Options: `fail` raises in the first step."""

    name = "Walk-v0"
    agents: Sequence[str] = ("player_0",)
    observation_spaces: Mapping[str, Space] = {"player_0": Box(-np.inf, np.inf, (2,), "float32")}
    action_spaces: Mapping[str, Space] = {"player_0": Discrete(3, -1)}

    def __init__(self) -> None:
        self.generator = np.random.default_rng()
        self.place = 0
        self.fail = False

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.place = -int(self.generator.integers(10))
        self.over, self.fail = False, bool(options and options.get("fail"))
        return {"player_0": Observation(self._view())}

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        if self.fail:
            raise RuntimeError("the floor is gone")
        self.place += int(actions["player_0"])
        self.over = self.place >= 3
        return {"player_0": Observation(self._view(), reward=0.1, terminated=self.over, info={"place": self.place})}

    def _view(self) -> np.ndarray[Any, Any]:
        return np.array([self.place, np.inf], np.float32)


class Wide(Walk):
    """An observation that no buffer of the system can hold."""

    observation_spaces: Mapping[str, Space] = {"player_0": Box(0, 255, (1_500_000,), "uint8")}

    def _view(self) -> np.ndarray[Any, Any]:
        return np.full(1_500_000, 255, np.uint8)


class RockPaperScissors(Table):
    """Two agents act at the same time; five rounds, cut off by a limit."""

    name = "rps_v2"
    observation_spaces: Mapping[str, Space] = dict.fromkeys(PLAYERS, Discrete(4))
    action_spaces: Mapping[str, Space] = dict.fromkeys(PLAYERS, Discrete(3))

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self.rounds, self.over = 0, False
        return {player: Observation(np.int64(3)) for player in PLAYERS}

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        self.rounds += 1
        self.over = self.rounds == 5
        mine, other = (int(actions[player]) for player in PLAYERS)
        won = {0: 0.0, 1: 1.0, 2: -1.0}[(mine - other) % 3]
        return {
            "player_0": Observation(np.int64(other), reward=won, truncated=self.over),
            "player_1": Observation(np.int64(mine), reward=-won, truncated=self.over),
        }


class TakingTurns(Table):
    """The agents act by turns; every step pays 1 to both. An action of 1 takes the one who did it out of the game."""

    name = "turns_v0"
    observation_spaces: Mapping[str, Space] = dict.fromkeys(PLAYERS, Discrete(100))
    action_spaces: Mapping[str, Space] = dict.fromkeys(PLAYERS, Discrete(2))

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self.steps, self.turn, self.out, self.over = 0, "player_0", set[str](), False
        return {player: self._view(player, None, just_out=False) for player in PLAYERS}

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        self.steps += 1
        ((player, action),) = actions.items()
        just_out = player if action == 1 else ""
        self.out |= {player} if action == 1 else set()
        rest = [each for each in PLAYERS if each not in self.out]
        self.over = not rest
        if rest:
            other = PLAYERS[1 - PLAYERS.index(player)]
            self.turn = other if other in rest else rest[0]
        return {each: self._view(each, 1.0, just_out=each == just_out) for each in PLAYERS}

    def _view(self, player: str, reward: float | None, *, just_out: bool) -> Observation:
        alive = player not in self.out
        return Observation(
            np.int64(self.steps),
            reward=reward if alive or just_out else None,
            terminated=just_out,
            active=alive and player == self.turn,
            alive=alive,
            action_mask=np.array([1, 1], np.int8),
        )


def game_of(made: Environment, **more: Any) -> Game:
    return Game(
        name=made.name,
        description="For tests.",
        agents=made.agents,
        observation_spaces=made.observation_spaces,
        action_spaces=made.action_spaces,
        implementation="default",
        **more,
    )


@asynccontextmanager
async def served(
    make: Callable[[], Environment],
    *,
    config: OpenEnvConfig | None = None,
    participants: Participants | None = None,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    access: AccessControl | None = None,
    **more: Any,
) -> AsyncIterator[tuple[OpenEnvServer, Platform]]:
    """Serve a game on a platform of its own."""
    participants = participants or Participants(RL_SPEC)
    participants.register_environment(environment(make))
    async with open_platform(participants) as platform, trio.open_nursery() as nursery:
        game = game_of(make(), **more)

        async def run(*, task_status: trio.TaskStatus[OpenEnvServer]) -> None:
            given = {"hosts": hosts, "origins": origins, "access": access}
            door: dict[str, Any] = {name: value for name, value in given.items() if value}
            await serve_game(game, platform, config=config, task_status=task_status, **door)

        server: OpenEnvServer = await nursery.start(run)
        yield server, platform
        nursery.cancel_scope.cancel()
