"""A vector view as a `VecEnv` of Stable-Baselines3, which takes no vector environments of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError
from trio_cogment.rl.views.gymnasium import TrialEnv
from trio_cogment.rl.views.restarting import RestartingEnvs
from trio_cogment.rl.views.vector import TrialVectorEnv

try:
    from stable_baselines3.common.env_util import is_wrapped
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as missing:
    if missing.name != "stable_baselines3":
        raise
    error = MissingExtraError("stable_baselines3 is not installed: pip install stable-baselines3")
    error.name = missing.name
    raise error from missing


class SB3VecEnv(VecEnv):  # type: ignore[misc]  # Stable-Baselines3 is not there for the type checker
    """One agent's seats in several trials, as Stable-Baselines3 takes them; made of what `make_vec` returns.

    What it gives is, step by step, what Stable-Baselines3's `DummyVecEnv` gives of the environments themselves. An
    episode that ends begins again within the step, whatever the `autoreset_mode` of the vector environment is.

    Attributes:
        envs: the environments, each of which is a seat of trials of its own.
    """

    def __init__(self, vector: TrialVectorEnv) -> None:
        """Take the seats.

        Args:
            vector: made by `make_vec`; it is closed with this object, and not to be stepped beside it.

        Raises:
            InvalidArgumentError: it is something else.
        """
        _require_vector(vector)
        self._vector = vector
        self._steps = RestartingEnvs(vector.envs)
        self.envs = self._steps.envs
        super().__init__(len(self.envs), vector.single_observation_space, vector.single_action_space)
        self.reset_infos = self._steps.reset_infos
        self.metadata = self.envs[0].metadata

    @property
    def trial_ids(self) -> list[str]:
        """The id of the trial of each environment's episode; empty before the first."""
        return self._vector.trial_ids

    def reset(self) -> Any:
        """Begin an episode in all environments, and return the observations; see `VecEnv.reset`.

        Raises:
            CogmentError: as `TrialEnv.reset`.
        """
        found = self._steps.reset(self._seeds, self._options)
        self._reset_seeds()
        self._reset_options()
        return found

    def step_async(self, actions: Any) -> None:
        """Begin a step in all environments.

        Raises:
            InvalidActionError: an action is not in the action space; no step was made.
            FailedPreconditionError: there was no `reset`.
        """
        self._steps.send(actions)

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """End a step, and return observations, rewards, ends and infos; see `RestartingEnvs.receive`.

        Raises:
            CogmentError: as `TrialEnv.step`. The other environments have been stepped, and all have to be reset.
        """
        return self._steps.receive()

    def store_model(self, name: str, data: bytes) -> int:
        """Store a version of a model in the registry, for seats of it in the trials after; return its number.

        Raises:
            FailedPreconditionError: there is no registry: `model_registry` was not given.
        """
        return self._vector.store_model(name, data)

    def close(self) -> None:
        """End the trials that run, and close everything; closing again is harmless."""
        self._vector.close()

    def get_images(self) -> Sequence[Any]:
        """Return what each environment renders."""
        return [env.render() for env in self.envs]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of some environments, or of all."""
        return [env.get_wrapper_attr(attr_name) for env in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of some environments, or of all."""
        for env in self._chosen(indices):
            env.set_wrapper_attr(attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of some environments, or of all."""
        return [env.get_wrapper_attr(method_name)(*method_args, **method_kwargs) for env in self._chosen(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Tell of some environments, or of all, whether they have a wrapper."""
        return [is_wrapped(env, wrapper_class) for env in self._chosen(indices)]

    def _chosen(self, indices: Any) -> list[TrialEnv]:
        return [self.envs[index] for index in self._get_indices(indices)]

    def __reduce__(self) -> tuple[Callable[[TrialVectorEnv], SB3VecEnv], tuple[TrialVectorEnv]]:
        return SB3VecEnv, (self._vector,)


def _require_vector(found: object) -> None:
    if not isinstance(found, TrialVectorEnv):
        hint = "; Stable-Baselines3 takes that as it is" if isinstance(found, TrialEnv) else ""
        raise InvalidArgumentError(
            f"vector: expected what make_vec(environment, number) returns, got {type(found).__name__}{hint}"
        )
