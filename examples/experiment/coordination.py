"""Two people and an agent want to meet: each round all choose a place, and all get a point if it is the same one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

PLACES = ["park", "museum", "station"]
PEOPLE = ["ann", "bob"]
AGENT = "robot"
#: In pictures.
COLOURS = {"ann": (0, 90, 181), "bob": (180, 60, 0), AGENT: (60, 60, 60)}
#: In what people saw last: nobody has chosen yet.
NOTHING = len(PLACES)


class Meeting(ParallelEnv):
    """The game.

    Args:
        rounds: how many there are.
        agents: who plays, if not all do: a group can go on with fewer.
        render_mode: what people are shown: `ansi`, a text, or `rgb_array`, a picture.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "meeting", "render_modes": ["ansi", "rgb_array"]}

    def __init__(self, rounds: int = 5, agents: list[str] | None = None, render_mode: str | None = None) -> None:
        self.possible_agents = [agent for agent in (*PEOPLE, AGENT) if agents is None or agent in agents]
        self.agents: list[str] = []
        self.render_mode = render_mode
        self._rounds = rounds
        self._round = 0
        self._last: dict[str, int] = {}

    def observation_space(self, agent: str) -> spaces.Space:
        """What each chose in the last round; `NOTHING` before the first one."""
        return spaces.MultiDiscrete([len(PLACES) + 1] * len(self.possible_agents))

    def action_space(self, agent: str) -> spaces.Space:
        """One of the places."""
        return spaces.Discrete(len(PLACES))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Begin."""
        self.agents, self._round, self._last = list(self.possible_agents), 0, {}
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Play a round."""
        self._round += 1
        self._last = {agent: int(action) for agent, action in actions.items()}
        reward = float(len(set(self._last.values())) == 1)
        over = self._round >= self._rounds
        agents = self.agents
        self.agents = [] if over else agents
        return (
            {agent: self._observation() for agent in agents},
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def render(self) -> Any:
        """Return what people are shown."""
        return self._picture() if self.render_mode == "rgb_array" else self._text()

    def _picture(self) -> np.ndarray:
        """Draw the places side by side, and in each of them those who went there last."""
        picture = np.full((60, 60 * len(PLACES), 3), 235, np.uint8)
        picture[:, 60::60] = picture[:, 59:-1:60] = 120
        for row, agent in enumerate(self.possible_agents):
            if agent in self._last:
                top, left = 6 + 18 * row, 60 * self._last[agent] + 24
                picture[top : top + 12, left : left + 12] = COLOURS[agent]
        return picture

    def _text(self) -> str:
        if not self._last:
            return f"Round 1 of {self._rounds}. Where will you meet?"
        chosen = "\n".join(f"{agent} went to the {PLACES[place]}." for agent, place in self._last.items())
        met = "You have met!" if len(set(self._last.values())) == 1 else "You have not met."
        ahead = f"Round {self._round + 1} of {self._rounds}." if self.agents else "That was the last round."
        return f"{chosen}\n{met}\n\n{ahead}"

    def close(self) -> None:
        """There is nothing to close."""

    def _observation(self) -> np.ndarray:
        return np.array([self._last.get(agent, NOTHING) for agent in self.possible_agents])

    def _observations(self) -> dict[str, np.ndarray]:
        return {agent: self._observation() for agent in self.agents}


def follower(observation: np.ndarray) -> int:
    """Go where the first person went last."""
    return int(observation[0]) % len(PLACES)


def stubborn(observation: np.ndarray) -> int:
    """Go to the station, always."""
    return len(PLACES) - 1
