"""Environments of PettingZoo as the environment of trials: agents act all at once, or one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trio_cogment.environments.agents import SeveralAgents
from trio_cogment.environments.errors import InvalidEnvironmentError
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


class AECEnvironment(SeveralAgents):
    """A `pettingzoo.AECEnv`; see `base.Environment`.

    A step of an episode is the action of one agent, whose turn it is; only it is `active`. All agents get an
    observation with every step. Their rewards are those of that step: what `last()` returns for an agent is the sum
    since its last turn. Agents that are out are answered here.
    """

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin an episode.

        Raises:
            InvalidEnvironmentError: what the environment says of its agents makes no sense.
        """
        self.env.reset(seed=seed, options=options)
        self.forget()
        return self._observations(None)

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make a step: the action of the agent whose turn it is.

        Raises:
            InvalidEnvironmentError: what the environment says of its agents makes no sense.
        """
        ((_, action),) = actions.items()
        self.env.step(action)
        return self._observations(self.env.rewards)

    def _observations(self, given: Mapping[Any, Any] | None) -> dict[str, Observation]:
        env = self.env
        self.note_infos(env.infos)
        found: dict[str, Observation] = {}
        rewards: dict[str, float | None] = {}
        live = self.live()
        ending = set()
        for name in live:
            # Answering for those who are out clears the rewards.
            rewards[name] = None if given is None else self.reward(name, self.part_of(given, name, "reward"))
            if not self.has_ended(name) and self._flags(name) != (False, False):
                ending.add(name)
        for name in self._answered_for():
            if name in ending:
                # When it is asked for the last time: what it sees then may depend on whose turn it is.
                found[name] = self._end(name, rewards[name])
        for name in ending - found.keys():
            found[name] = self._end(name, rewards[name])
        self.over = not env.agents
        selected = None if self.over else self.names.get(env.agent_selection)
        if not self.over and selected is None:
            text = f"agent_selection: expected one of {', '.join(map(repr, self.ids))}; got {env.agent_selection!r}"
            raise InvalidEnvironmentError(self.name, "", text)
        if selected is not None:
            self.require_first_time(selected)
        for name in self.ids:
            if name in found:
                continue
            if name not in live or self.has_ended(name):
                self.require_end(name)
                # A reward that comes after the end is not lost.
                found[name] = self.out(name, rewards.get(name) or None)
            else:
                agent = self.ids[name]
                info = self.part_of(env.infos, name, "info")
                found[name] = self.taking_part(name, env.observe(agent), rewards[name], info, active=name == selected)
        return found

    def _end(self, name: str, reward: float | None) -> Observation:
        info = self.part_of(self.env.infos, name, "info")
        return self.ending(name, self.env.observe(self.ids[name]), reward, *self._flags(name), info)

    def _flags(self, name: str) -> tuple[bool, bool]:
        terminated = self.flag(name, self.part_of(self.env.terminations, name, "terminated"), "terminated")
        return terminated, self.flag(name, self.part_of(self.env.truncations, name, "truncated"), "truncated")

    def _answered_for(self) -> Iterator[str]:
        """Answer for those who are out, as long as it is their turn; yield each before it is answered for."""
        env = self.env
        while env.agents:
            agent = env.agent_selection
            if agent not in self.names or self._flags(self.names[agent]) == (False, False):
                return
            yield self.names[agent]
            env.step(None)
            if agent in env.agents:
                text = "agents: expected it to leave when it was answered None after its end"
                raise InvalidEnvironmentError(self.name, self.names[agent], text)
