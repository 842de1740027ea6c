"""A game for the tests of seats, and trials of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from trio_cogment import open_platform
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.environments.episode import Episode
from trio_cogment.platform import Platform
from trio_cogment.rl import RL_SPEC, Seat, SeatContext
from trio_cogment.sdk import EnvironmentSession, trial_params
from trio_cogment.spaces import Discrete, Frame, Observation, Space

NAME = "duel"
AGENTS = ("player_0", "player_1")
#: After how many steps of the game each is out.
STEPS = {"player_0": 3, "player_1": 5}


class Duel:
    """Each agent takes a number at each step, or with `turns` at every other one, and that is its reward.

    The mask allows 1, and at odd steps 3, too.
    """

    def __init__(self, *, turns: bool = False, masks: bool = True, action_space: Space | None = None) -> None:
        self.name = NAME
        self.metadata: Mapping[str, Any] = {}
        self.agents: Sequence[str] = AGENTS
        self.turns = turns
        self.masks = masks
        self.observation_spaces: Mapping[str, Space] = dict.fromkeys(AGENTS, Discrete(100))
        self.action_spaces: Mapping[str, Space] = dict.fromkeys(AGENTS, action_space or Discrete(4))
        self.taken: list[dict[str, Any]] = []
        self.step_number = 0

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        self.step_number = 0
        self.taken.append({})
        return {agent: self._observation(agent, None) for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        self.step_number += 1
        for agent, action in actions.items():
            self.taken[-1].setdefault(agent, []).append(int(action) if np.ndim(action) == 0 else action)
        return {agent: self._observation(agent, actions.get(agent)) for agent in self.agents}

    def _observation(self, agent: str, action: Any) -> Observation:
        left = STEPS[agent] - self.step_number
        its_turn = not self.turns or AGENTS[self.step_number % 2] == agent
        return Observation(
            np.int64(self.step_number),
            reward=None if action is None or np.ndim(action) else float(action),
            terminated=left == 0,
            action_mask=np.array([0, 1, 0, self.step_number % 2], np.int8) if self.masks else None,
            active=left > 0 and its_turn,
            alive=left > 0,
        )

    @property
    def over(self) -> bool:
        return self.step_number >= max(STEPS.values())

    def frame(self) -> Frame | None:
        return None

    def close(self) -> None: ...


def serving(game: Duel) -> Any:
    """Return an implementation that plays episodes of a game."""

    async def implementation(session: EnvironmentSession[Any, Any, Any]) -> None:
        names = [actor.name for actor in session.actors]
        episode = Episode(game, names)
        await session.start(_contents(names, episode.begin().observations))
        async for event in session.all_events():
            if event.actions is not None:
                payloads = [action.payload for action in event.actions]
                turn = episode.advance([None if each is None else each.SerializeToString() for each in payloads])
                send = session.end if turn.over else session.produce_observations
                await send(_contents(names, turn.observations))

    return implementation


def _contents(names: Iterable[str], observations: Iterable[Any]) -> list[tuple[Any, Any]]:
    return list(zip(names, observations, strict=True))


@asynccontextmanager
async def playing(game: Duel, seats: Mapping[str, Seat], **options: Any) -> AsyncIterator[Platform]:
    """Run a platform with the game and those of the seats that are local."""
    async with open_platform(RL_SPEC, **options) as platform:
        platform.participants.register_environment(serving(game))
        registry = None if platform.model_registry is None else platform.model_registry_client()
        for agent, seat in seats.items():
            actor = seat.actor(SeatContext(NAME, agent, registry))
            if actor is not None:
                platform.participants.register_actor(actor, f"{seat.label}/{agent}", ["player"])
        yield platform


async def start(platform: Platform, seats: Mapping[str, Seat]) -> str:
    """Start a trial with these seats; return its id."""
    actors = [
        seat.actor_params(agent, environment=NAME, implementation=f"{seat.label}/{agent}")
        for agent, seat in seats.items()
    ]
    return await platform.controller.start_trial(trial_params(actors, spec=RL_SPEC))


async def play(platform: Platform, seats: Mapping[str, Seat], *, check: bool = True) -> TrialOutcome:
    """Play a trial; return how it ended."""
    return await platform.controller.wait_trial(await start(platform, seats), check=check)
