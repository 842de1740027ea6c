"""Environments of the tests: small ones of PettingZoo and dm_env."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import AgentSelector

BEATS = {0: 2, 1: 0, 2: 1}


class Rps(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Rock, paper, scissors: everybody sees the other's last move; 3 is none yet."""

    def __init__(self, rounds: int = 3, render_mode: str | None = None) -> None:
        self.metadata = {"name": "rps", "render_modes": ["ansi"]}
        self.render_mode = render_mode
        self.possible_agents = ["player_0", "player_1"]
        self.agents: list[str] = []
        self.rounds = rounds
        self.rendered = self.closed = 0

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(4)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = list(self.possible_agents)
        self.round = 0
        return dict.fromkeys(self.agents, 3), {agent: {"options": options or {}} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        one, two = (int(actions[agent]) for agent in self.possible_agents)
        self.round += 1
        score = 0 if one == two else 1 if BEATS[one] == two else -1
        over = self.round >= self.rounds
        everybody = list(self.agents)
        if over:
            self.agents = []
        return (
            {"player_0": two, "player_1": one},
            {"player_0": score, "player_1": -score},
            dict.fromkeys(everybody, False),
            dict.fromkeys(everybody, over),
            {agent: {} for agent in everybody},
        )

    def render(self) -> Any:
        self.rendered += 1
        return f"round {self.round}"

    def close(self) -> None:
        self.closed += 1


class Crowd(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Agents leave and join: `a_0` ends after two steps, `late_0` joins with the second, all end after four."""

    def __init__(self, change: Callable[[tuple[Any, ...]], Any] | None = None) -> None:
        self.metadata: dict[str, Any] = {}
        self.possible_agents = ["a_0", "b_0", "late_0"]
        self.agents: list[str] = []
        self.change = change
        self.array = np.zeros(1, np.float32)

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-9, 9, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = ["a_0", "b_0"]
        self.steps = 0
        self.array[:] = 0
        return dict.fromkeys(self.agents, self.array), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert sorted(actions) == sorted(self.agents)
        self.steps += 1
        self.array[:] = self.steps  # the same array indefinitely
        seen = [*self.agents] + ["late_0"] * (self.steps == 2)
        result: Any = (
            dict.fromkeys(seen, self.array),
            dict.fromkeys(seen, float(self.steps)),
            {agent: agent == "a_0" and self.steps == 2 for agent in seen},
            dict.fromkeys(seen, self.steps == 4),
            {agent: {"action_mask": np.array([1, 0], np.int8)} for agent in seen},
        )
        self.agents = [agent for agent in seen if not (result[2][agent] or result[3][agent])]
        return self.change(result) if self.change is not None else result


class Countdown(AECEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Three agents in turns take one or two of a heap; who takes the last one wins, who says 2 of one left is out."""

    def __init__(self, heap: int = 7, mask: str = "observation") -> None:
        super().__init__()
        self.metadata = {"name": "countdown_v0"}
        self.render_mode = None
        self.possible_agents = ["p_0", "p_1", "p_2"]
        self.first = heap
        self.mask = mask

    def observation_space(self, agent: str) -> Any:
        heap = spaces.Discrete(100)
        if self.mask != "observation":
            return heap
        return spaces.Dict({"observation": heap, "action_mask": spaces.Box(0, 1, (2,), np.int8)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def _mask(self, agent: str) -> Any:
        mine = agent == self.agent_selection
        return np.array([mine, mine and self.heap > 1], np.int8)

    def observe(self, agent: str) -> Any:
        if self.mask != "observation":
            return self.heap
        return {"observation": self.heap, "action_mask": self._mask(agent)}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = list(self.possible_agents)
        self.heap = self.first
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.selector = AgentSelector(self.agents)
        self.agent_selection = self.selector.next()
        self._inform()

    def _inform(self) -> None:
        masks = {agent: {"action_mask": self._mask(agent)} for agent in self.agents}
        self.infos = masks if self.mask == "info" else {agent: {} for agent in self.agents}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        taken = int(action) + 1
        if taken > self.heap:
            self.terminations[agent] = True
            self.rewards[agent] = -5
        else:
            self.heap -= taken
            self.rewards[agent] = taken
        if self.heap == 0:
            self.rewards = {other: 10 if other == agent else -1 for other in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        self.selector.reinit([other for other in self.agents if not self.terminations[other]] or self.agents)
        if self.heap:
            order = self.possible_agents
            follow = [order[(order.index(agent) + step) % 3] for step in (1, 2, 3)]
            self.agent_selection = next(other for other in follow if other in self.selector.agent_order)
        self._inform()
        self._deads_step_first()

    def close(self) -> None:
        pass


class Catch(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """Counts to three, with nested observations and actions of all specs."""

    def __init__(self, steps: list[Any] | None = None) -> None:
        self.steps = steps or [
            lambda value: dm_env.transition(0.5, value),
            lambda value: dm_env.transition(1, value, discount=0.9),
            lambda value: dm_env.termination(2.0, value),
        ]
        self.got: list[Any] = []
        self.closed = 0
        self.count = 0

    def observation_spec(self) -> Any:
        return {
            "count": specs.DiscreteArray(10, name="count"),
            "position": specs.BoundedArray((2,), np.float64, [-1, 0], [1, 2]),
            "speed": specs.Array((), np.float32),
            "name": specs.StringArray(()),
            "tags": specs.StringArray((2,), bytes),
            "pair": (specs.Array((1,), np.int16), specs.Array((1,), bool)),
        }

    def action_spec(self) -> Any:
        return [specs.DiscreteArray(3), specs.BoundedArray((2,), np.float32, -1, 1), specs.StringArray((1,), bytes)]

    def _value(self) -> Any:
        return {
            "count": np.array(self.count, np.int32),
            "position": np.array([0, 1.5]),
            "speed": np.array(0.25, np.float32),
            "name": np.array("é?", dtype=object),
            "tags": np.array([b"x", b"y"], dtype=object),
            "pair": (np.array([-7], np.int16), np.array([True])),
        }

    def reset(self) -> Any:
        self.count = 0
        return dm_env.restart(self._value())

    def step(self, action: Any) -> Any:
        self.got.append(action)
        self.count += 1
        return self.steps[self.count - 1](self._value())

    def close(self) -> None:
        self.closed += 1


class Dice(AECEnv):  # type: ignore[misc]  # PettingZoo has no types
    """One agent rolls; an unseeded reset goes on with the generator."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"name": "dice_v0"}
        self.possible_agents = ["p_0"]
        self.generator, _ = seeding.np_random(0)

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(2**40)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(1)

    def observe(self, agent: str) -> Any:
        return self.drawn

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if seed is not None:
            self.generator, _ = seeding.np_random(seed)
        self.agents = ["p_0"]
        self.agent_selection = "p_0"
        self.drawn = int(self.generator.integers(2**40))
        self.rewards = self._cumulative_rewards = {"p_0": 0}
        self.terminations = self.truncations = {"p_0": False}
        self.infos: dict[str, Any] = {"p_0": {}}

    def step(self, action: Any) -> None:
        raise AssertionError("nobody steps here")
