"""An environment of dm_env as the environment of trials with one agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.environments.checks import check_of, mask_finder, reward_of
from trio_cogment.environments.dm_specs import Mapped, mapped
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.spaces import Frame, Observation, Space, SpaceError
from trio_cogment.spaces.base import described

_STEP = "TimeStep(step_type, reward, discount, observation)"
_FIRST, _MID, _LAST = 0, 1, 2


class DmEnvironment:
    """A `dm_env.Environment`, whose only agent is `player_0`; see `base.Environment`.

    An episode that ends with a discount of 0 is terminated, one that ends with another is truncated. A discount other
    than what that says (1 before the end) is in the information, as `discount`. dm_env has no seeds: an environment
    that has a method `seed` is seeded by it.

    Attributes:
        env: the environment itself.
    """

    def __init__(self, env: Any, *, name: str = "", seed: Callable[[int], object] | None = None) -> None:
        """Use an environment of dm_env.

        Args:
            env: the environment, which is closed with this object.
            name: by default the name of its class.
            seed: seeds the environment's generator before a reset; by default its method `seed`, if it has one.

        Raises:
            InvalidEnvironmentError: one of its specs has no counterpart.
        """
        self.env = env
        self.name = name or type(env).__name__
        self.agents: Sequence[str] = (SINGLE_AGENT,)
        self.metadata: Mapping[str, Any] = {"render_modes": [], "render_mode": None}
        self._observation = self._mapped(env.observation_spec(), "observation_spec")
        self._action = self._mapped(env.action_spec(), "action_spec")
        self.observation_spaces: Mapping[str, Space] = {SINGLE_AGENT: self._observation.space}
        self.action_spaces: Mapping[str, Space] = {SINGLE_AGENT: self._action.space}
        self._check = check_of(self._observation.space)
        self._mask_of = mask_finder(self._action.space)
        self._seed = seed or getattr(env, "seed", None)
        self.over = True

    def _mapped(self, spec: Any, field: str) -> Mapped:
        try:
            return mapped(spec)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error.of(field)) from None

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin an episode.

        Raises:
            InvalidArgumentError: there is a seed, and nothing that takes it; or there are options.
            InvalidEnvironmentError: what the environment returned makes no sense.
        """
        if options:
            text = f"options: expected none, because dm_env has none; got {', '.join(map(repr, options))}"
            raise InvalidArgumentError(f"environment {self.name!r}: {text}")
        if seed is not None:
            if self._seed is None:
                text = "seed: expected none, because the environment has no method seed; DmEnvironment(seed=) takes one"
                raise InvalidArgumentError(f"environment {self.name!r}: {text}")
            self._seed(seed)
        kind, _, _, value = self._parts("reset", self.env.reset())
        if kind != _FIRST:
            raise self._wrong_kind("reset", "FIRST", kind)
        self.over = False
        value = self._checked(value)
        return {SINGLE_AGENT: Observation(value, action_mask=self._mask_of(value, {}))}

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make a step.

        Raises:
            InvalidEnvironmentError: what the environment returned makes no sense.
        """
        action = self._action.give(actions[SINGLE_AGENT])
        kind, reward, discount, value = self._parts("step", self.env.step(action))
        if kind == _FIRST:
            raise self._wrong_kind("step", "MID or LAST", kind)
        try:
            number = reward_of(reward)
            rate = self._discount(discount)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error) from None
        value = self._checked(value)
        self.over = kind == _LAST
        terminated, truncated = self.over and rate == 0, self.over and rate != 0
        info: dict[str, Any] = {} if rate == 1 or terminated else {"discount": rate}
        going_on = not self.over
        mask = self._mask_of(value, info)
        return {SINGLE_AGENT: Observation(value, number, terminated, truncated, mask, info, None, going_on, going_on)}

    def frame(self) -> Frame | None:
        """Return None: dm_env draws nothing."""
        return None

    def close(self) -> None:
        """Close the environment."""
        self.over = True
        self.env.close()

    def _parts(self, method: str, result: Any) -> tuple[int, Any, Any, Any]:
        if not isinstance(result, tuple) or len(result) != 4:
            got = f"{len(result)} values" if isinstance(result, tuple) else described(result)
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, f"{method}: expected {_STEP}, got {got}")
        kind, reward, discount, value = result
        if kind not in (_FIRST, _MID, _LAST):
            raise self._wrong_kind(method, "a StepType", kind)
        return int(kind), reward, discount, value

    def _wrong_kind(self, method: str, expected: str, kind: Any) -> InvalidEnvironmentError:
        text = f"{method}: step_type: expected {expected}, got {kind!r}"
        return InvalidEnvironmentError(self.name, SINGLE_AGENT, text)

    def _discount(self, discount: Any) -> float:
        try:
            return reward_of(discount)
        except SpaceError as error:
            raise error.of("discount") from None

    def _checked(self, value: Any) -> Any:
        try:
            return self._check(self._observation.take(value))
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, SINGLE_AGENT, error.of("observation")) from None
