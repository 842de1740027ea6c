"""Environments of EnvPool as the environment of trials with one agent: each is a pool of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.environments.checks import check_of, reward_of
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.spaces import Frame, Observation, Space, SpaceError, from_gymnasium

#: What the names of these environments begin with: `envpool/Pong-v5`.
PREFIX = "envpool/"
#: Seeds of EnvPool are of 31 bits.
_SEEDS = 2**31
#: Arguments that a pool of one has for itself.
_ITS_OWN = ("num_envs", "batch_size", "seed", "env_type")


class EnvPoolEnvironment:
    """An environment of EnvPool, whose only agent is `player_0`; see `base.Environment`.

    A pool takes its seed when it is made, by default the same number always, and a reset changes nothing about that.
    So a reset with a seed makes a pool anew; one without goes on with the pool that there is, whose first seed is drawn
    by lot. A pool of one begins its next episode with the step after an end: trials reset it instead.

    Attributes:
        pool: the pool itself.
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        """Make an environment.

        Args:
            name: its task id, with or without `envpool/`.
            arguments: of the pool, such as `frame_skip`.

        Raises:
            MissingExtraError: EnvPool is not installed.
            NotFoundError: there is no such task.
            InvalidArgumentError: an argument is none, or is one that a pool of one has for itself.
            InvalidEnvironmentError: a space has no counterpart, or several players share an environment.
        """
        self._envpool = _envpool()
        self._task = name.removeprefix(PREFIX)
        self.name = PREFIX + self._task
        known = self._envpool.list_all_envs()
        if self._task not in known:
            meant = suggestion(self._task, known, "envpool.list_all_envs() are those that there are")
            raise NotFoundError(f"environment {self.name!r}: there is no task of that name; {meant}")
        for key in set(_ITS_OWN) & arguments.keys():
            raise InvalidArgumentError(f"environment {self.name!r}: {key}: expected none: each trial has a pool of one")
        self._arguments = arguments
        self.pool: Any = self._made(int(np.random.default_rng().integers(_SEEDS)))
        if self.pool.config.get("max_num_players", 1) != 1:
            raise InvalidEnvironmentError(self.name, "", "expected one player, got a task of several")
        self.agents: Sequence[str] = (SINGLE_AGENT,)
        self.metadata: Mapping[str, Any] = {"render_modes": [], "render_mode": None}
        self.observation_spaces: Mapping[str, Space] = {SINGLE_AGENT: self._space("observation_space")}
        self.action_spaces: Mapping[str, Space] = {SINGLE_AGENT: self._space("action_space")}
        self._check = check_of(self.observation_spaces[SINGLE_AGENT])
        self._dtype = np.dtype(self.pool.action_space.dtype)
        self.over = True

    def _made(self, seed: int) -> Any:
        try:
            return self._envpool.make(self._task, env_type="gymnasium", num_envs=1, seed=seed, **self._arguments)
        except (TypeError, ValueError, KeyError) as error:
            raise InvalidArgumentError(f"environment {self.name!r}: {error}") from error

    def _space(self, field: str) -> Space:
        try:
            return from_gymnasium(getattr(self.pool, field))
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error.of(field)) from None

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin an episode.

        Raises:
            InvalidArgumentError: there are options.
        """
        if options:
            text = f"options: expected none, because EnvPool has none; got {', '.join(map(repr, options))}"
            raise InvalidArgumentError(f"environment {self.name!r}: {text}")
        if seed is not None:
            pool, self.pool = self.pool, self._made(seed % _SEEDS)
            pool.close()
        value, info = self.pool.reset()
        self.over = False
        return {SINGLE_AGENT: Observation(self._first(value), info=_first_of(info))}

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make a step.

        Raises:
            InvalidEnvironmentError: what the pool returned makes no sense.
        """
        action = np.asarray(actions[SINGLE_AGENT], self._dtype)[np.newaxis]
        value, rewards, terminations, truncations, info = self.pool.step(action)
        terminated, truncated = bool(terminations[0]), bool(truncations[0])
        try:
            reward = reward_of(rewards[0])
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error) from None
        over = self.over = terminated or truncated
        found = Observation(
            self._first(value), reward, terminated, truncated, None, _first_of(info), None, not over, not over
        )
        return {SINGLE_AGENT: found}

    def _first(self, value: Any) -> Any:
        try:
            return self._check(_row(value))
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error.of("observation")) from None

    def frame(self) -> Frame | None:
        """Return None: pools are not drawn."""
        return None

    def close(self) -> None:
        """Close the pool."""
        self.over = True
        self.pool.close()


def _row(value: Any) -> Any:
    """Return the only row of a batch, as a copy: the pool uses its memory again."""
    if isinstance(value, Mapping):
        return {key: _row(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_row, value))
    row = value[0]
    return row.copy() if isinstance(row, np.ndarray) else row


def _first_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the information of the only environment, without what is about its place in the pool."""
    own = {key: value for key, value in info.items() if key not in ("env_id", "players")}
    return {key: _row(value) for key, value in own.items() if isinstance(value, np.ndarray | Mapping) and len(value)}


def _envpool() -> Any:
    try:
        import envpool
    except ModuleNotFoundError as error:
        if error.name != "envpool":
            raise
        raise MissingExtraError.plain("envpool") from error
    return envpool
