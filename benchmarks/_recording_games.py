"""Games of `recording.py`: a few numbers, moving pictures, and two players whose observations have parts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pettingzoo
from gymnasium import spaces

#: Episodes of the games that are made here have this many steps, as CartPole's have at most.
EPISODE_STEPS = 500

SIZE, FRAMES = 84, 4
_SPRITES = (("ball", 4, 4), ("bat", 16, 3), ("bat", 16, 3), ("brick", 6, 10), ("brick", 6, 10), ("ghost", 9, 9))


class Sprites(gymnasium.Env[Any, Any]):
    """Sprites that move over a background, one of them as the player says: the last four pictures of 84x84 grey levels.

    It is what an Atari game looks like to an agent: most pixels stay, a few move, and nothing is noise.
    """

    observation_space = spaces.Box(0, 255, (SIZE, SIZE, FRAMES), np.uint8)
    action_space = spaces.Discrete(5)

    def __init__(self) -> None:
        rows, columns = np.mgrid[0:SIZE, 0:SIZE]
        self._background = np.where((rows // 12 + columns // 12) % 2 == 0, 40, 60).astype(np.uint8)
        self._background[:10] = 20
        shapes = []
        for name, height, width in _SPRITES:
            shape = np.full((height, width), 120 + 15 * len(shapes), np.uint8)
            if name == "ghost":
                shape[2:4, 2:7:4] = 255
                shape[-1, ::2] = 90
            shapes.append(shape)
        self._shapes = shapes
        self._places = np.zeros((len(shapes), 2))
        self._speeds = np.zeros((len(shapes), 2))
        self._pictures = np.empty((FRAMES, SIZE, SIZE), np.uint8)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._places = self.np_random.uniform(12, 60, self._places.shape)
        self._speeds = self.np_random.integers(-3, 4, self._speeds.shape).astype(float)
        self._steps = 0
        self._pictures[:] = self._drawn()
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._speeds[0] = ((0, 0), (-2, 0), (2, 0), (0, -2), (0, 2))[action]
        self._places += self._speeds
        outside = (self._places < 11) | (self._places > SIZE - 17)
        self._speeds[outside] *= -1
        np.clip(self._places, 11, SIZE - 17, out=self._places)
        self._pictures[:-1] = self._pictures[1:]
        self._pictures[-1] = self._drawn()
        self._steps += 1
        caught = bool(np.abs(self._places[0] - self._places[-1]).max() < 6)
        return self._seen(), float(caught), False, self._steps == EPISODE_STEPS, {}

    def _drawn(self) -> Any:
        picture = self._background.copy()
        for shape, (row, column) in zip(self._shapes, self._places.astype(int), strict=True):
            picture[row : row + shape.shape[0], column : column + shape.shape[1]] = shape
        return picture

    def _seen(self) -> Any:
        return np.moveaxis(self._pictures, 0, -1).copy()  # the agent's own


PLAYERS = ("player_0", "player_1")
_SEEN = spaces.Dict(
    {
        "place": spaces.Box(-10, 10, (2,), np.float32),
        "other": spaces.Box(-10, 10, (2,), np.float32),
        "energy": spaces.Box(0, 100, (), np.float32),
        "cards": spaces.MultiBinary(8),
        "turn": spaces.Discrete(3),
    }
)
_DONE = spaces.Dict({"move": spaces.Box(-1, 1, (2,), np.float32), "card": spaces.Discrete(8)})


class Duel(pettingzoo.ParallelEnv[str, Any, Any]):
    """Two players at once, who see and do what has several parts."""

    metadata = {"name": "duel_v0"}  # noqa: RUF012  PettingZoo's own form
    possible_agents = [*PLAYERS]  # noqa: RUF012  as PettingZoo has it

    def __init__(self) -> None:
        self.agents: list[str] = []
        self._random = np.random.default_rng(1)
        self._steps = 0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return _SEEN

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return _DONE

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.agents = [*PLAYERS]
        self._steps = 0
        self._places = self._random.uniform(-5, 5, (2, 2)).astype(np.float32)
        self._energy = np.full(2, 100, np.float32)
        self._cards = self._random.integers(0, 2, (2, 8), dtype=np.int8)
        return self._seen(), {agent: {} for agent in PLAYERS}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        self._steps += 1
        rewards = {}
        for number, agent in enumerate(PLAYERS):
            action = actions[agent]
            self._places[number] = np.clip(self._places[number] + 0.1 * action["move"], -10, 10)
            self._energy[number] = max(0.0, self._energy[number] - 0.1)
            self._cards[number, action["card"]] ^= 1
            rewards[agent] = float(self._cards[number, 0]) - 0.5
        over = self._steps == EPISODE_STEPS
        if over:
            self.agents = []
        flags = dict.fromkeys(PLAYERS, False)
        return self._seen(), rewards, flags, dict.fromkeys(PLAYERS, over), {agent: {} for agent in PLAYERS}

    def _seen(self) -> dict[str, Any]:
        return {
            agent: {
                "place": self._places[number].copy(),
                "other": self._places[1 - number].copy(),
                "energy": np.array(self._energy[number]),
                "cards": self._cards[number].copy(),
                "turn": np.int64(self._steps % 3),
            }
            for number, agent in enumerate(PLAYERS)
        }


class JointDuel(gymnasium.Env[Any, Any]):
    """The same game as one agent would play it for both: Minari knows no other."""

    observation_space = spaces.Dict(dict.fromkeys(PLAYERS, _SEEN))
    action_space = spaces.Dict(dict.fromkeys(PLAYERS, _DONE))

    def __init__(self) -> None:
        self._game = Duel()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._game.reset(seed)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, rewards, _, truncations, _ = self._game.step(action)
        return seen, sum(rewards.values()), False, truncations[PLAYERS[0]], {}


GAMES = ("cartpole", "sprites", "duel")
_IDS = {"cartpole": "CartPole-v1", "sprites": "Sprites-v0", "duel": "JointDuel-v0"}

gymnasium.register("Sprites-v0", entry_point="_recording_games:Sprites", disable_env_checker=True)
gymnasium.register("JointDuel-v0", entry_point="_recording_games:JointDuel", disable_env_checker=True)


def make(game: str) -> gymnasium.Env[Any, Any]:
    """Return a game as an environment of Gymnasium."""
    return gymnasium.make(_IDS[game])


class Policy:
    """What is played: actions that are made before, so that they cost next to nothing; CartPole's pole is kept up."""

    def __init__(self, game: str) -> None:
        self._game = game
        random = np.random.default_rng(7)
        self._moves = random.uniform(-1, 1, (64, 2)).astype(np.float32)
        self._numbers = [np.int64(number) for number in random.integers(0, 5, 1024)]
        self._steps = 0

    def __call__(self, values: Any) -> Any:
        """Return the action of a player, or of the only one."""
        if self._game == "cartpole":
            return int(3 * values[2] + values[3] > 0)
        self._steps += 1
        number = self._numbers[self._steps // 8 % 1024]  # a player keeps to what it does for a while
        if self._game == "sprites":
            return number
        return {"move": self._moves[self._steps % 64], "card": number}
