"""The steps of several views as Stable-Baselines3 has them: an episode that ends begins again within the step."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.rl.views.gymnasium import TrialEnv

# isort: split
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array


class RestartingEnvs:
    """Several views, stepped at once; it needs nothing of Stable-Baselines3.

    Attributes:
        envs: the views, whose spaces are equal.
        reset_infos: the infos with which the episodes began.
    """

    def __init__(self, envs: Sequence[TrialEnv]) -> None:
        """Use the views.

        Args:
            envs: at least one.
        """
        self.envs = list(envs)
        self.reset_infos: list[dict[str, Any]] = [{} for _ in self.envs]
        self._space = self.envs[0].observation_space
        self._found: list[Any] = [None] * len(self.envs)
        self._batch: Any = create_empty_array(self._space, n=len(self.envs), fn=np.zeros)
        self._asked = False

    def reset(self, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]) -> Any:
        """Begin an episode in all views, and return the observations.

        Args:
            seeds: for each view.
            options: for each view; empty ones are none.

        Raises:
            CogmentError: as `TrialEnv.reset`.
        """
        self._asked = False
        for number, env in enumerate(self.envs):
            found, info = env.reset(seed=seeds[number], options=options[number] or None)
            self._found[number], self.reset_infos[number] = found, info
        return self._batched()

    def send(self, actions: Any) -> None:
        """Begin a step in all views.

        Raises:
            InvalidActionError: an action is not in the action space; no step was made.
            InvalidArgumentError: there are not as many actions as views.
            FailedPreconditionError: there was no `reset`, or a step has begun already.
        """
        if self._asked:
            raise FailedPreconditionError("step_async: expected step_wait first")
        if len(actions) != len(self.envs):
            raise InvalidArgumentError(f"actions: expected {len(self.envs)}, got {len(actions)}")
        messages = [env.encoded(action) for env, action in zip(self.envs, actions, strict=True)]
        for env, message in zip(self.envs, messages, strict=True):
            env.send(message)
        self._asked = True

    def receive(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """End a step.

        Returns:
            The observations, of new episodes where one has ended; the rewards, of 32 bits; whether an episode has
            ended; and infos, which have its last observation as `terminal_observation`, and as `TimeLimit.truncated`
            whether it was only cut off.

        Raises:
            FailedPreconditionError: no step has begun.
            CogmentError: as `TrialEnv.step`. The other views have been stepped, and all have to be reset.
        """
        if not self._asked:
            raise FailedPreconditionError("step_wait: expected step_async first")
        self._asked = False
        rewards = np.zeros(len(self.envs), np.float32)
        dones = np.zeros(len(self.envs), np.bool_)
        infos = []
        for number, env in enumerate(self.envs):
            found, rewards[number], terminated, truncated, told = env.receive()
            info = {**told, "TimeLimit.truncated": truncated and not terminated}
            if terminated or truncated:
                dones[number], info["terminal_observation"] = True, found
                found, self.reset_infos[number] = env.reset()
            self._found[number] = found
            infos.append(deepcopy(info))
        return self._batched(), rewards, dones, infos

    def _batched(self) -> Any:
        self._batch = concatenate(self._space, self._found, self._batch)
        return deepcopy(self._batch)
