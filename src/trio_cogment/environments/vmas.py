"""Scenarios of VMAS as the environment of trials: its agents act together, each with a reward of its own."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.environments.checks import check_of, reward_of
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.spaces import Box, Dict, Discrete, Frame, MultiDiscrete, Observation, Space, SpaceError, Tuple

#: What the names of these environments begin with: `vmas/balance`.
PREFIX = "vmas/"
#: Arguments that a batch of one has for itself.
_ITS_OWN = ("num_envs", "seed", "wrapper", "dict_spaces", "terminated_truncated", "grad_enabled", "device")
#: PyTorch takes seeds of 64 bits, and NumPy of 32.
_SEEDS = 2**32

#: Held while a scenario computes: all of them draw from one random state, which is one of the process.
_turn = threading.Lock()


class VmasEnvironment:
    """A scenario of VMAS, a batch of one; its agents have VMAS's names. See `base.Environment`.

    VMAS has one random state for all environments of a process, and a reset with a seed seeds it for all of them. Here
    each environment has a state of its own, which is put there while it computes, and taken away again: environments
    beside each other draw what they would draw alone.

    An end is one of all agents: VMAS tells it for the batch's environment. `max_steps=` truncates.

    Attributes:
        env: VMAS's own environment.
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        """Make an environment.

        Args:
            name: of the scenario, with or without `vmas/`.
            arguments: of `vmas.make_env`, such as `max_steps` or `continuous_actions`, and of the scenario.

        Raises:
            MissingExtraError: VMAS is not installed.
            NotFoundError: there is no such scenario.
            InvalidArgumentError: an argument is none, or is one that a batch of one has for itself.
            InvalidEnvironmentError: a space has no counterpart.
        """
        self._torch, vmas = _packages()
        scenario = name.removeprefix(PREFIX)
        self.name = PREFIX + scenario
        known = {*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios}
        if scenario not in known:
            meant = suggestion(scenario, known, "vmas.scenarios and vmas.mpe_scenarios are those that there are")
            raise NotFoundError(f"environment {self.name!r}: there is no scenario of that name; {meant}")
        for key in set(_ITS_OWN) & arguments.keys():
            text = f"{key}: expected none: each trial has a batch of one"
            raise InvalidArgumentError(f"environment {self.name!r}: {text}")
        seed = int(np.random.default_rng().integers(_SEEDS))
        self._shared: list[Any] = vmas.simulator.environment.environment.Environment.vmas_random_state
        with _turn:
            self._drawn = list(self._shared)
        with self._own_state():
            try:
                self.env: Any = vmas.make_env(scenario, num_envs=1, seed=seed, terminated_truncated=True, **arguments)
            except (TypeError, ValueError, AssertionError) as error:
                raise InvalidArgumentError(f"environment {self.name!r}: {error}") from error
        names = [agent.name for agent in self.env.agents]
        self.agents: Sequence[str] = tuple(names)
        self.metadata: Mapping[str, Any] = {"render_modes": [], "render_mode": None}
        self.observation_spaces: Mapping[str, Space] = self._spaces("observation_space")
        self.action_spaces: Mapping[str, Space] = self._spaces("action_space")
        self._checks = {agent: check_of(space) for agent, space in self.observation_spaces.items()}
        self.over = True

    def _spaces(self, field: str) -> dict[str, Space]:
        found = {}
        for agent, space in zip(self.agents, getattr(self.env, field).spaces, strict=True):
            try:
                found[agent] = _space(space)
            except SpaceError as error:
                raise InvalidEnvironmentError(self.name, agent, error.of(field)) from None
        return found

    @contextmanager
    def _own_state(self) -> Iterator[None]:
        """Let the block draw from this environment's random state."""
        with _turn:
            others = list(self._shared)
            self._shared[:] = self._drawn
            try:
                yield
            finally:
                self._drawn = list(self._shared)
                self._shared[:] = others

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin an episode.

        Raises:
            InvalidArgumentError: there are options.
        """
        if options:
            text = f"options: expected none, because VMAS has none; got {', '.join(map(repr, options))}"
            raise InvalidArgumentError(f"environment {self.name!r}: {text}")
        with self._own_state():
            values = self.env.reset(seed=None if seed is None else seed % _SEEDS)
        self.over = False
        return {
            agent: Observation(self._checked(agent, value)) for agent, value in zip(self.agents, values, strict=True)
        }

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make a step.

        Raises:
            InvalidEnvironmentError: what the scenario returned makes no sense.
        """
        given = [self._action(agent, actions[agent]) for agent in self.agents]
        with self._own_state():
            values, rewards, terminated, truncated, infos = self.env.step(given)
        ends = bool(terminated[0]), bool(truncated[0])
        self.over = any(ends)
        found = {}
        for agent, value, reward, info in zip(self.agents, values, rewards, infos, strict=True):
            try:
                number = reward_of(float(reward[0]))
            except SpaceError as error:
                raise InvalidEnvironmentError(self.name, agent, error) from None
            told = self._checked(agent, value)
            found[agent] = Observation(
                told, number, *ends, info=_first(info), active=not self.over, alive=not self.over
            )
        return found

    def _action(self, agent: str, action: Any) -> Any:
        row = np.atleast_1d(np.asarray(action))[np.newaxis]
        if isinstance(self.action_spaces[agent], Box):
            return self._torch.as_tensor(row, dtype=self._torch.float32)
        return self._torch.as_tensor(row)

    def _checked(self, agent: str, value: Any) -> Any:
        try:
            return self._checks[agent](_first(value))
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, agent, error.of("observation")) from None

    def frame(self) -> Frame | None:
        """Return None: scenarios are drawn in a window only."""
        return None

    def close(self) -> None:
        """End the episode."""
        self.over = True


def _space(space: Any) -> Space:
    """Return the counterpart of a space of the old Gym, which VMAS has; by its name, or Gym would have to be there."""
    kind = type(space).__name__
    if kind == "Box":
        # VMAS says float, and its tensors are of 32 bits.
        low, high = (np.asarray(bound, np.float32) for bound in (space.low, space.high))
        return Box(low, high, space.shape, np.float32)
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return MultiDiscrete(np.asarray(space.nvec))
    if kind == "Dict":
        return Dict([(key, _space(part)) for key, part in space.spaces.items()])
    if kind == "Tuple":
        return Tuple([_space(part) for part in space.spaces])
    raise SpaceError(f"expected a Box, Discrete, MultiDiscrete, Dict or Tuple, got {kind}")


def _first(value: Any) -> Any:
    """Return the only row of what is a batch, in NumPy; a number where it has no dimensions."""
    if isinstance(value, Mapping):
        return {key: _first(part) for key, part in value.items()}
    row = value[0].detach().cpu().numpy()
    return row.copy() if row.ndim else row.item()


def _packages() -> tuple[Any, Any]:
    if importlib.util.find_spec("vmas") is None:
        raise MissingExtraError.plain("vmas")
    import torch
    import vmas
    import vmas.simulator.environment.environment

    return torch, vmas
