"""A parallel environment of PettingZoo, all of whose agents act at once, as the environment of trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trio_cogment.environments.agents import SeveralAgents
from trio_cogment.spaces import Observation

_RESET = "(observations, infos), which are dicts"
_STEP = "(observations, rewards, terminations, truncations, infos), which are dicts"


class ParallelEnvironment(SeveralAgents):
    """A `pettingzoo.ParallelEnv`; see `base.Environment`.

    Agents may leave and others of `possible_agents` may join during an episode; who has left does not come back.
    """

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin an episode.

        Raises:
            InvalidEnvironmentError: what the environment returned makes no sense.
        """
        result = self.env.reset(seed=seed, options=options)
        if not _are_dicts(result, 2):
            raise self.wrong("reset", _RESET, result)
        observations, infos = result
        self.note_infos(infos)
        self.forget()
        live = set(self.live())
        self.over = not live
        return {name: self._joining(name, observations, infos) if name in live else self.out(name) for name in self.ids}

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make a step.

        Raises:
            InvalidEnvironmentError: what the environment returned makes no sense.
        """
        result = self.env.step({self.ids[name]: action for name, action in actions.items()})
        if not _are_dicts(result, 5):
            raise self.wrong("step", _STEP, result)
        self.note_infos(result[4])
        live = set(self.live())
        found = {}
        for name in self.ids:
            if name in actions:
                found[name] = self._next(name, result, live)
            elif name in live:
                found[name] = self._joining(name, result[0], result[4], result[1])
            else:
                found[name] = self.out(name)
        self.over = not live
        return found

    def _next(self, name: str, result: tuple[Any, ...], live: set[str]) -> Observation:
        observations, rewards, terminations, truncations, infos = result
        reward = self.reward(name, self.part_of(rewards, name, "reward"))
        terminated = self.flag(name, self.part_of(terminations, name, "terminated"), "terminated")
        truncated = self.flag(name, self.part_of(truncations, name, "truncated"), "truncated")
        if terminated or truncated:
            # It may still be in `agents`, which counts only if all flags say so, too.
            live.discard(name)
            agent = self.ids[name]
            return self.ending(name, observations.get(agent), reward, terminated, truncated, infos.get(agent, {}))
        if name not in live:
            self.require_end(name)
        value = self.part_of(observations, name, "observation")
        return self.taking_part(name, value, reward, self.part_of(infos, name, "info"))

    def _joining(
        self, name: str, observations: Mapping[Any, Any], infos: Mapping[Any, Any], rewards: Mapping[Any, Any] = {}
    ) -> Observation:
        self.require_first_time(name)
        agent = self.ids[name]
        value = self.part_of(observations, name, "observation")
        reward = self.reward(name, rewards[agent]) if agent in rewards else None
        return self.taking_part(name, value, reward, infos.get(agent, {}))


def _are_dicts(result: Any, count: int) -> bool:
    return isinstance(result, tuple) and len(result) == count and all(isinstance(part, Mapping) for part in result)
