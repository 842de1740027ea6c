"""Shared parts of the adapters of environments with several agents: names, spaces, and who is out."""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from trio_cogment.environments.checks import check_of, flag_of, info_of, mask_finder, reward_of
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.spaces import Frame, Observation, Space, SpaceError, from_gymnasium
from trio_cogment.spaces.base import described
from trio_cogment.spaces.pictures import RETURNING_MODES, frame_of

_log = logging.getLogger(__name__)

#: An agent who has not taken part yet is shown a value of its space that this draws, always the same.
_SEED_OF_BLANKS = 0


class SeveralAgents:
    """The names, spaces and last values of an environment of PettingZoo; the base of both its adapters.

    Agents that PettingZoo names by something else than strings have its text as name.

    Attributes:
        env: the environment itself.
        ids: PettingZoo's ids by name.
        names: the other way round.
    """

    def __init__(self, env: Any, *, name: str = "") -> None:
        """Use an environment of PettingZoo.

        Args:
            env: the environment, which is closed with this object.
            name: by default that in its metadata, or the name of its class.

        Raises:
            InvalidEnvironmentError: it does not know all its agents beforehand, or has a space without a counterpart.
        """
        self.env = env
        render_mode = getattr(env, "render_mode", None)
        own: Mapping[str, Any] = getattr(env, "metadata", None) or {}
        self.name = name or own.get("name") or type(env.unwrapped).__name__
        self.metadata: Mapping[str, Any] = {**own, "render_mode": render_mode}
        self._renders = render_mode in RETURNING_MODES
        self.over = True
        self.ids = self._agents()
        self.names = {agent: name for name, agent in self.ids.items()}
        self.agents: Sequence[str] = tuple(self.ids)
        self.observation_spaces: Mapping[str, Space] = self._spaces("observation_space")
        self.action_spaces: Mapping[str, Space] = self._spaces("action_space")
        self._checks = {name: check_of(space) for name, space in self.observation_spaces.items()}
        self._mask_of = {name: mask_finder(space) for name, space in self.action_spaces.items()}
        self._last: dict[str, Any] = {}
        self._ended: set[str] = set()
        self._has_warned = False
        self._taking_part: set[str] = set()

    def _agents(self) -> dict[str, Any]:
        try:
            possible = list(self.env.possible_agents)
        except AttributeError:
            text = (
                "possible_agents: expected all that may take part, because they are the actors of a trial; got none: "
                "assign a list of them to the environment"
            )
            raise InvalidEnvironmentError(self.name, "", text) from None
        ids = {str(agent): agent for agent in possible}
        if not possible or len(ids) != len(possible):
            text = f"possible_agents: expected agents of different names, got {possible}"
            raise InvalidEnvironmentError(self.name, "", text)
        return ids

    def _spaces(self, field: str) -> dict[str, Space]:
        spaces = {}
        for name, agent in self.ids.items():
            try:
                spaces[name] = from_gymnasium(getattr(self.env, field)(agent))
            except SpaceError as error:
                raise InvalidEnvironmentError(self.name, name, error.of(field)) from None
            except KeyError:
                raise InvalidEnvironmentError(self.name, name, f"{field}: expected a space, got none") from None
        return spaces

    def frame(self) -> Frame | None:
        """Return what the environment renders now; None if its `render_mode` returns no pictures."""
        return frame_of(self.env.render()) if self._renders else None

    def close(self) -> None:
        """Close the environment."""
        self.over = True
        self.env.close()

    def loaded(self, observations: Mapping[str, Observation], ended: Collection[str]) -> None:
        """Go on with the state that the environment itself has been given; see `taking_up`.

        Args:
            observations: the last ones of its agents.
            ended: the agents whose end has been told.
        """
        self.over = False
        self._last = {name: copy.deepcopy(observation.value) for name, observation in observations.items()}
        self._ended = set(ended)
        self._taking_part = {name for name, observation in observations.items() if observation.alive}

    # For the adapters

    def forget(self) -> None:
        """Begin an episode: nobody is out, and nobody has been shown anything."""
        self._last.clear()
        self._ended.clear()
        self._taking_part.clear()

    def has_ended(self, name: str) -> bool:
        """Whether the end of an agent has been told."""
        return name in self._ended

    def live(self) -> list[str]:
        """Return the names of the agents that take part now.

        Raises:
            InvalidEnvironmentError: there is one that is not among the possible ones.
        """
        try:
            return [self.names[agent] for agent in self.env.agents]
        except KeyError as error:
            text = f"agents: expected some of {', '.join(map(repr, self.ids))}; got {error.args[0]!r}, too"
            raise InvalidEnvironmentError(self.name, "", text) from None

    def checked(self, name: str, value: Any) -> Any:
        """Return an observation as a value of the agent's space.

        Raises:
            InvalidEnvironmentError: it is none.
        """
        try:
            return self._checks[name](value)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, name, error.of("observation")) from None

    def reward(self, name: str, reward: Any) -> float:
        """Return an agent's reward.

        Raises:
            InvalidEnvironmentError: it is not a number.
        """
        if type(reward) is float and reward == reward:
            return reward
        try:
            return reward_of(reward)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, name, error) from None

    def flag(self, name: str, flag: Any, field: str) -> bool:
        """Return a flag of an agent.

        Raises:
            InvalidEnvironmentError: it is none.
        """
        try:
            return flag_of(flag, field)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, name, error) from None

    def taking_part(
        self, name: str, value: Any, reward: float | None, info: Any, *, active: bool = True
    ) -> Observation:
        """Return the observation of an agent that goes on."""
        info = self._info(name, info)
        value = self._last[name] = self.checked(name, value)
        self._taking_part.add(name)
        return Observation(value, reward, False, False, self._mask_of[name](value, info), info, None, active)

    def ending(
        self, name: str, value: Any, reward: float | None, terminated: bool, truncated: bool, info: Any
    ) -> Observation:
        """Return the observation that brings an agent's end; it is shown the value of this one from now on.

        A value of None stands for the last one: some environments give none to those whom they remove.
        """
        info = self._info(name, info)
        value = self._shown(name) if value is None else self.checked(name, value)
        # The environment may change its arrays in place.
        self._last[name] = copy.deepcopy(value)
        self._ended.add(name)
        self._taking_part.discard(name)
        return Observation(value, reward, terminated, truncated, None, info, None, False, False)

    def out(self, name: str, reward: float | None = None) -> Observation:
        """Return what an agent gets that does not take part any more, or not yet."""
        return Observation(self._shown(name), reward, active=False, alive=False)

    def require_end(self, name: str) -> None:
        """Accept that an agent is not among the live ones.

        Raises:
            InvalidEnvironmentError: it took part until now, and was not told its end.
        """
        if name in self._taking_part:
            text = "agents: expected it there, because it is neither terminated nor truncated; it has left"
            raise InvalidEnvironmentError(self.name, name, text)

    def require_first_time(self, name: str) -> None:
        """Accept that an agent takes part.

        Raises:
            InvalidEnvironmentError: it was told its end before.
        """
        if name in self._ended:
            raise InvalidEnvironmentError(self.name, name, "agents: expected it not to come back after its end")

    def note_infos(self, infos: Mapping[Any, Any]) -> None:
        """Log once that there is information that belongs to no agent: no actor is told it, and so it is not stored."""
        if self._has_warned or infos.keys() <= self.names.keys():
            return
        self._has_warned = True
        strange = ", ".join(repr(key) for key in infos if key not in self.names)
        _log.warning(
            "environment %r: infos: %s: it belongs to no agent, so nobody is told it and it is not stored; give it to "
            "an agent instead",
            self.name,
            strange,
        )

    def part_of(self, given: Mapping[Any, Any], name: str, field: str) -> Any:
        """Return what an environment gives for an agent.

        Raises:
            InvalidEnvironmentError: it gives nothing.
        """
        try:
            return given[self.ids[name]]
        except KeyError:
            raise InvalidEnvironmentError(self.name, name, f"{field}: expected a value, got none") from None

    def wrong(self, method: str, expected: str, result: Any) -> InvalidEnvironmentError:
        """Return the error about what a method returned."""
        got = f"{len(result)} values" if isinstance(result, tuple) else described(result)
        return InvalidEnvironmentError(self.name, "", f"{method}: expected {expected}, got {got}")

    def _info(self, name: str, info: Any) -> dict[str, Any]:
        if type(info) is dict:
            return info
        try:
            return info_of(info)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, name, error) from None

    def _shown(self, name: str) -> Any:
        if name not in self._last:
            self._last[name] = self.observation_spaces[name].sample(np.random.default_rng(_SEED_OF_BLANKS))
        return self._last[name]
