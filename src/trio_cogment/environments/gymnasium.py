"""An environment of Gymnasium as the environment of trials with one agent."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.environments.checks import check_of, flag_of, info_of, mask_finder, reward_of
from trio_cogment.environments.env_specs import spec_text
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.spaces import Frame, Observation, Space, SpaceError, from_gymnasium
from trio_cogment.spaces.base import described
from trio_cogment.spaces.pictures import RETURNING_MODES, frame_of

_RESET = "(observation, info)"
_STEP = "(observation, reward, terminated, truncated, info)"


class GymnasiumEnvironment:
    """A `gymnasium.Env`, whose only agent is `player_0`; see `base.Environment`.

    A mask of actions is taken from the observation, if that is a dict, or else from the information; its key is
    `action_mask`.

    Attributes:
        env: the environment itself.
        gymnasium_spec: see `env_specs.spec_text`.
    """

    def __init__(self, env: Any, *, name: str = "") -> None:
        """Use an environment of Gymnasium.

        Args:
            env: the environment, which is closed with this object.
            name: by default its id, or the name of its class.

        Raises:
            InvalidEnvironmentError: one of its spaces has no counterpart.
        """
        self.play_through(env)
        spec = getattr(env, "spec", None)
        self.name = name or getattr(spec, "id", None) or type(env.unwrapped).__name__
        self.gymnasium_spec = spec_text(env)
        self.agents: Sequence[str] = (SINGLE_AGENT,)
        self.metadata: Mapping[str, Any] = {**(env.metadata or {}), "render_mode": env.render_mode}
        self.observation_spaces: Mapping[str, Space] = {
            SINGLE_AGENT: self._space(env.observation_space, "observation_space")
        }
        self.action_spaces: Mapping[str, Space] = {SINGLE_AGENT: self._space(env.action_space, "action_space")}
        self.over = True
        self._check = check_of(self.observation_spaces[SINGLE_AGENT])
        self._mask_of = mask_finder(self.action_spaces[SINGLE_AGENT])
        self._renders = env.render_mode in RETURNING_MODES
        self._seed_game = _own_seeding(env)

    def play_through(self, env: Any) -> None:
        """Play the environment through a wrapper around it, which changes nothing of what it is and returns."""
        self.env = env
        self._step = env.step
        #: Makes a step whose result no view asks for later, and returns what the environment returned; see `told`.
        self.make_step: Callable[[Any], Any] = getattr(env, "unremembered_step", env.step)

    def _space(self, space: Any, field: str) -> Space:
        try:
            return from_gymnasium(space)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error.of(field)) from None

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin an episode.

        Raises:
            InvalidEnvironmentError: what the environment returned is not an observation of its space, or the
                information is none.
        """
        if seed is not None and self._seed_game is not None:
            self._seed_game(seed)
        result = self.env.reset(seed=seed, options=options)
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._wrong("reset", _RESET, result)
        try:
            value = self._checked(result[0])
            info = info_of(result[1])
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error) from None
        self.over = False
        return {SINGLE_AGENT: Observation(value, action_mask=self._mask_of(value, info), info=info)}

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make a step.

        Raises:
            InvalidEnvironmentError: one of the five values that the environment returned makes no sense, or they are
                not five.
        """
        return self.told(self._step(actions[SINGLE_AGENT]))

    def told(self, result: Any) -> dict[str, Observation]:
        """Return what a step has brought; see `step`."""
        if type(result) is not tuple or len(result) != 5:
            raise self._wrong("step", _STEP, result)
        value, reward, terminated, truncated, info = result
        try:
            value = self._checked(value)
            if type(reward) is not float or reward != reward:
                reward = reward_of(reward)
            if type(terminated) is not bool:
                terminated = flag_of(terminated, "terminated")
            if type(truncated) is not bool:
                truncated = flag_of(truncated, "truncated")
            if type(info) is not dict:
                info = info_of(info)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error) from None
        over = self.over = terminated or truncated
        mask = self._mask_of(value, info)
        return {SINGLE_AGENT: Observation(value, reward, terminated, truncated, mask, info, None, not over, not over)}

    def loaded(self, _observations: Mapping[str, Observation], _ended: Collection[str]) -> None:
        """Go on with the state that the environment itself has been given; see `taking_up`."""
        self.over = False

    def _checked(self, value: Any) -> Any:
        if self._seed_game is not None:
            value = copy.deepcopy(value)  # NetHack writes all observations into the same arrays
        try:
            return self._check(value)
        except SpaceError as error:
            raise error.of("observation") from None

    def _wrong(self, method: str, expected: str, result: Any) -> InvalidEnvironmentError:
        got = f"{len(result)} values" if isinstance(result, tuple) else described(result)
        return InvalidEnvironmentError(self.name, SINGLE_AGENT, f"{method}: expected {expected}, got {got}")

    def frame(self) -> Frame | None:
        """Return what the environment renders now; None if its `render_mode` returns no pictures."""
        return frame_of(self.env.render()) if self._renders else None

    def close(self) -> None:
        """Close the environment."""
        self.over = True
        self.env.close()


def _own_seeding(env: Any) -> Callable[[int], object] | None:
    """Return what seeds a game that does not heed the seed of a reset; None if the reset does.

    NetHack (NLE 1.3) takes it and begins another dungeon all the same; its own `seed` is for the reset that follows.
    """
    game = env.unwrapped
    if any(kind.__module__.startswith("nle.") for kind in type(game).__mro__):
        return lambda seed: game.seed(seed, seed, reseed=False)
    return None
