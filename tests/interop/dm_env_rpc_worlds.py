"""Environments of the project that are played over dm_env_rpc: catch, tensors of every kind, numbers for several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Observation, Space, Text


class Catch:
    """The game of `dm_env_rpc/catch_server.py`: each episode has the next seed, from 1 on."""

    SIZE = 10
    name = "catch"
    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self, agents: tuple[str, ...] = (SINGLE_AGENT,)) -> None:
        self.agents = agents
        observed = Dict({"board": Box(-np.inf, np.inf, (self.SIZE, self.SIZE), "float32")})
        self.observation_spaces: Mapping[str, Space] = dict.fromkeys(agents, observed)
        low, high = (int(end) for end in (np.iinfo(np.int8).min, np.iinfo(np.int8).max))
        acted = Dict({"paddle": Box(low, high, (), "int8")})
        self.action_spaces: Mapping[str, Space] = dict.fromkeys(agents, acted)
        self._seed = self._row = 0

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self._seed = self._seed + 1 if seed is None else seed
        self._column = np.random.RandomState(self._seed).randint(self.SIZE)
        self._row = 0
        self._paddles = dict.fromkeys(self.agents, self.SIZE // 2)
        return self._seen()

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        for agent, action in actions.items():
            self._paddles[agent] = int(np.clip(self._paddles[agent] + int(action["paddle"]), 0, self.SIZE - 1))
        self._row += 1
        return self._seen()

    @property
    def over(self) -> bool:
        return self._row == self.SIZE - 1

    def _seen(self) -> Mapping[str, Observation]:
        found = {}
        for agent, paddle in self._paddles.items():
            board = np.zeros((self.SIZE, self.SIZE), np.float32)
            board[self._row, self._column] = board[self.SIZE - 1, paddle] = 1
            caught = 1.0 if paddle == self._column else -1.0
            reward = None if self._row == 0 else caught if self.over else 0.0
            found[agent] = Observation(
                {"board": board}, active=not self.over, alive=not self.over, terminated=self.over, reward=reward
            )
        return found

    def frame(self) -> None:
        return None

    def close(self) -> None:
        pass


class Everything:
    """Actions and observations of every kind that has a specification of a fixed shape; five steps are an episode."""

    STEPS = 5
    name = "everything"
    metadata: ClassVar[dict[str, Any]] = {}
    agents = (SINGLE_AGENT,)
    _SPACE = Dict(
        {
            "choice": Discrete(4),
            "small": Discrete(3, -1, "int8"),
            "choices": MultiDiscrete([2, 3, 4]),
            "flags": MultiBinary(3),
            "nested": Dict({"free": Box(-np.inf, np.inf, (2, 3), "float64"), "word": Text(8, 0)}),
            "pixels": Box(0, 255, (4, 4, 3), "uint8"),
            "ranges": Box(np.array([-1, 0, 2], np.float32), np.array([1, 5, 2.5], np.float32), dtype="float32"),
            "short": Box(-300, 300, (2,), "int16"),
            "unbounded": Box(-(2**63), 2**63 - 1, (), "int64"),
        }
    )
    observation_spaces: Mapping[str, Space] = {SINGLE_AGENT: _SPACE}
    action_spaces: Mapping[str, Space] = {SINGLE_AGENT: _SPACE}
    _steps = 0

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self._steps = 0
        nested = {"free": np.zeros((2, 3)), "word": "word"}
        value = {
            "choice": np.int64(1),
            "small": np.int8(-1),
            "choices": np.array([1, 2, 3]),
            "flags": np.array([1, 0, 1], np.int8),
            "nested": nested,
            "pixels": np.arange(48, dtype=np.uint8).reshape(4, 4, 3),
            "ranges": np.array([0, 1, 2], np.float32),
            "short": np.array([-300, 300], np.int16),
            "unbounded": np.array(2**63 - 1),
        }
        return {SINGLE_AGENT: Observation(value)}

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        # What it is told is what is seen next.
        self._steps += 1
        observation = Observation(
            actions[SINGLE_AGENT], active=not self.over, alive=not self.over, truncated=self.over, reward=0.5
        )
        return {SINGLE_AGENT: observation}

    @property
    def over(self) -> bool:
        return self._steps == self.STEPS

    def frame(self) -> None:
        return None

    def close(self) -> None:
        pass


class Numbers:
    """Each agent gives a digit and sees all of them, its own first, behind the number of the step.

    Its reward is half of what it gave more than the one after it. Each episode is longer than the one before.
    """

    name = "numbers"
    metadata: ClassVar[dict[str, Any]] = {}
    _STEPS = 4

    def __init__(self, *agents: str) -> None:
        self.agents = agents
        seen = Box(0, 100, (len(agents) + 1,), "int64")
        self.observation_spaces: Mapping[str, Space] = dict.fromkeys(agents, seen)
        self.action_spaces: Mapping[str, Space] = dict.fromkeys(agents, Discrete(10))
        self._episodes = self._step = 0

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self._step = 0
        self._episodes += 1
        return self._seen([self._episodes] * len(self.agents), None)

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        self._step += 1
        numbers = [int(actions[agent]) for agent in self.agents]
        following = [*numbers[1:], numbers[0]]
        return self._seen(numbers, [(own - other) / 2 for own, other in zip(numbers, following, strict=True)])

    @property
    def over(self) -> bool:
        return self._step == self._STEPS + self._episodes

    def _seen(self, numbers: list[int], rewards: list[float] | None) -> Mapping[str, Observation]:
        return {
            agent: Observation(
                np.array([self._step, *numbers[index:], *numbers[:index]]),
                active=not self.over,
                alive=not self.over,
                terminated=self.over,
                reward=None if rewards is None else rewards[index],
            )
            for index, agent in enumerate(self.agents)
        }

    def frame(self) -> None:
        return None

    def close(self) -> None:
        pass
