"""A seat in trials as the tool of a language model, as trainers of such models take environments.

`GRPOTrainer(environment_factory=...)` of TRL makes objects, calls `reset` before each rollout, offers every other
public method to the model as a tool, and asks `get_reward` at the end. So there is one tool here, `act`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rl.views.gymnasium import TrialEnv, make
from trio_cogment.seats.rendering import Conversation, end_told, read_action, tool_prompt
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.gymnasium import from_gymnasium

#: The arguments of `make` that are for the platform alone.
_OF_A_PLATFORM = {"options", "platform", "store", "model_registry", "orchestrator", "directory", "thread"}


class TrialTools:
    """An agent's seat in trials; each episode is a trial. `environment_factory` makes what makes it.

    Attributes:
        env: the same seat as an environment of Gymnasium; `env.close()` ends the trial that runs.
    """

    def __init__(self, env: TrialEnv, name: str) -> None:
        self.env = env
        self._name = name
        self._space = from_gymnasium(env.action_space)
        self._conversation = Conversation(self._space)
        self._mask: Any = None
        self._return = 0.0
        self._is_over = True

    def reset(self, seed: int | None = None, **_row: Any) -> str:
        """Begin an episode, and return what the model is told: its place, and its first observation.

        Args:
            seed: of the episode: the field `seed` of a row of the training data, if there is one.

        Raises:
            EpisodeFailedError, CogmentError: as `TrialEnv.reset`.
        """
        self._conversation, self._return, self._is_over = Conversation(self._space), 0.0, False
        value, info = self.env.reset(seed=seed)
        return tool_prompt(self._name, self.env.agent, self._space, self._told(value, info))

    def act(self, action: str) -> str:
        """Take your next action, and see what comes of it.

        Args:
            action: Your action, as JSON.

        Returns:
            What you observe next; or why this was no action, so that you can take another one.
        """
        if self._is_over:
            raise FailedPreconditionError("act: the episode is over")
        try:
            taken = read_action(self._space, action, self._mask)
        except SpaceError as error:
            return f"That was refused: {error}"
        value, reward, terminated, truncated, info = self.env.step(taken)
        self._return += float(reward)
        self._is_over = terminated or truncated
        told = self._told(value, info)
        return end_told(told, self._return) if self._is_over else told

    def get_reward(self) -> float:
        """Return the sum of the rewards of the episode so far."""
        return self._return

    def _told(self, value: Any, info: dict[str, Any]) -> str:
        self._mask = info.get("action_mask", value.get("action_mask") if isinstance(value, dict) else None)
        return self._conversation.told(value, None if self._is_over else self._mask)


def environment_factory(environment: Any, **options: Any) -> Callable[[], TrialTools]:
    """Return a function that makes seats in trials for a language model, for `environment_factory` of TRL's trainers.

    The seats that it makes share one platform, and so a store.

    Args:
        environment: what is played; see `make`.
        options: all other arguments of `make`: `seats` of the others, `seat` of the model, `store` and so on.

    Raises of the first call: as `make`.
    """
    made: list[TrialEnv] = []

    def factory() -> TrialTools:
        if made:
            shared = {key: value for key, value in options.items() if key not in _OF_A_PLATFORM}
            env = make(environment, **shared, platform=made[0])
        else:
            env = make(environment, **options)
            made.append(env)
        return TrialTools(env, environment if isinstance(environment, str) else env.agent)

    return factory
