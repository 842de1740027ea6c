"""Several trials at once as a vector environment of Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.environments.making import maker_of
from trio_cogment.rl.views.copies import Recipe, Remade
from trio_cogment.rl.views.gymnasium import (
    TrialEnv,
    find_environment,
    seated,
    spec_of,
)
from trio_cogment.rl.views.options import PlatformOptions
from trio_cogment.seats.base import Seat

# isort: split
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate


class TrialVectorEnv(Remade, VectorEnv[Any, Any, Any]):
    """One agent's seats in several trials that run at once; `make_vec` makes it.

    Observations, rewards, flags and infos are those of `gymnasium.vector.SyncVectorEnv`, step by step. All trials get
    their actions before the answer of any is waited for.

    Attributes:
        envs: the environments, each of which is a seat of trials of its own.
        autoreset_mode: what happens after the end of an episode.
    """

    def __init__(
        self, envs: Sequence[TrialEnv], *, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP, copy: bool = True
    ) -> None:
        """Take the seats; the environments are closed with this object.

        Args:
            envs: with equal spaces.
            autoreset_mode: what happens after the end of an episode.
            copy: whether `reset` and `step` return observations that belong to the caller.

        Raises:
            InvalidArgumentError: there is no environment, or their spaces differ.
        """
        if not envs:
            raise InvalidArgumentError("num_envs: expected at least 1, got 0")
        first = envs[0]
        for number, env in enumerate(envs):
            if (env.observation_space, env.action_space) != (first.observation_space, first.action_space):
                raise InvalidArgumentError(f"environment {number}: expected the spaces of the first, got others")
        self.envs = list(envs)
        self.num_envs = len(envs)
        self.autoreset_mode = autoreset_mode
        self.metadata = {**first.metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = first.render_mode
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = _batched(first.observation_space, self.num_envs)
        self.action_space = _batched(first.action_space, self.num_envs)
        self._copy = copy
        self._found: list[Any] = [None] * self.num_envs
        self._batch: Any = create_empty_array(first.observation_space, n=self.num_envs, fn=np.zeros)
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)

    @property
    def trial_ids(self) -> list[str]:
        """The id of the trial of each environment's episode; empty before the first."""
        return [env.trial_id for env in self.envs]

    @property  # type: ignore[misc]  # read-only, as in SyncVectorEnv
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]  # several, as there
        """The generators of the environments."""
        return tuple(env.np_random for env in self.envs)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # several, as in SyncVectorEnv
        """Their seeds."""
        return tuple(env.np_random_seed for env in self.envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in all environments; see `gymnasium.vector.VectorEnv.reset`.

        Args:
            seed: of the environments; of a number, each gets one more than the one before.
            options: for all environments. Those for which a `reset_mask` among them is false are not reset.

        Raises:
            InvalidArgumentError: there are not as many seeds as environments, or the mask is none.
            CogmentError: as `TrialEnv.reset`.
        """
        seeds = self._seeds(seed)
        mask: Any = np.ones(self.num_envs, dtype=np.bool_)
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = self._mask(options.pop("reset_mask"))
        infos: dict[str, Any] = {}
        for number, env in enumerate(self.envs):
            if not mask[number]:
                continue
            self._found[number], info = env.reset(seed=seeds[number], options=options)
            infos = self._add_info(infos, info, number)
        self._ended[mask] = False
        return self._batched(), infos

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + number for number in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise InvalidArgumentError(f"seed: expected {self.num_envs}, one for each environment, got {len(seed)}")
        return seed

    def _mask(self, mask: Any) -> Any:
        is_mask = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (self.num_envs,)
        if not is_mask or not mask.any():
            raise InvalidArgumentError(
                f'options["reset_mask"]: expected an array of {self.num_envs} bool, one of them true at least, got '
                f"{mask!r}"
            )
        return mask

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Make a step in all environments; see `gymnasium.vector.VectorEnv.step`.

        Raises:
            InvalidActionError: an action is not in the action space; no step was made.
            FailedPreconditionError: there was no `reset`, or with `AutoresetMode.DISABLED` an episode is over.
            CogmentError: as `TrialEnv.step`. The other environments have been stepped, and all have to be reset.
        """
        mode, ended = self.autoreset_mode, self._ended
        messages = []
        for number, action in enumerate(iterate(self.action_space, actions)):
            skipped = mode is AutoresetMode.NEXT_STEP and ended[number]
            messages.append(None if skipped else self.envs[number].encoded(action))
        if len(messages) != self.num_envs:
            raise InvalidArgumentError(f"actions: expected {self.num_envs}, got {len(messages)}")
        for env, message in zip(self.envs, messages, strict=True):
            if message is not None:
                env.send(message)
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminations = np.zeros(self.num_envs, dtype=np.bool_)
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {}
        for number, env in enumerate(self.envs):
            if messages[number] is None:
                self._found[number], info = env.reset()
            else:
                found, rewards[number], terminations[number], truncations[number], info = env.receive()
                if mode is AutoresetMode.SAME_STEP and (terminations[number] or truncations[number]):
                    infos = self._add_info(infos, {"final_obs": found, "final_info": info}, number)
                    found, info = env.reset()
                self._found[number] = found
            infos = self._add_info(infos, info, number)
        self._ended = np.logical_or(terminations, truncations)
        return self._batched(), rewards, terminations, truncations, infos

    def _batched(self) -> Any:
        if any(found is None for found in self._found):
            raise FailedPreconditionError("reset: expected one of all environments first")
        self._batch = concatenate(self.single_observation_space, self._found, self._batch)
        return deepcopy(self._batch) if self._copy else self._batch

    def store_model(self, name: str, data: bytes) -> int:
        """Store a version of a model in the registry, for seats of it in the trials after; return its number.

        Raises:
            FailedPreconditionError: there is no registry: `model_registry` was not given.
        """
        number: int = self.envs[0].store_model(name, data)  # they share a platform
        return number

    def render(self) -> tuple[Any, ...]:
        """Return what each environment renders."""
        return tuple(env.render() for env in self.envs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return an attribute of each environment, or what it returns if it is a method."""
        found = (env.get_wrapper_attr(name) for env in self.envs)
        return tuple(each(*args, **kwargs) if callable(each) else each for each in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of all environments: to the values of a list, or all to the same.

        Raises:
            InvalidArgumentError: there are not as many values as environments.
        """
        given = values if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(given) != self.num_envs:
            raise InvalidArgumentError(f"values: expected {self.num_envs}, one for each environment, got {len(given)}")
        for env, value in zip(self.envs, given, strict=True):
            env.set_wrapper_attr(name, value)

    def close_extras(self, **kwargs: Any) -> None:
        """Close all environments; see `gymnasium.vector.VectorEnv.close`."""
        for env in self.envs:
            env.close()

    def __del__(self) -> None:
        """Leave it to the environments: this may be any thread, at any moment."""


def _batched(single: Any, count: int) -> Any:
    """Return the space of a batch, as `batch_space` does, with the keys in the order of the single space.

    Gymnasium's sorts them, so that `flatten` of a batch has its columns in another order than that of each row.
    """
    if isinstance(single, spaces.Dict):
        return spaces.Dict([(key, _batched(part, count)) for key, part in single.spaces.items()])
    if isinstance(single, spaces.Tuple):
        return spaces.Tuple([_batched(part, count) for part in single.spaces])
    return batch_space(single, count)


def make_vec(
    environment: Any,
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    seats: Mapping[str, Seat] | None = None,
    seat: str = "",
    agents: Sequence[str] = (SINGLE_AGENT,),
    implementation: str = "",
    render_mode: str | None = None,
    options: PlatformOptions | None = None,
    platform: Any = None,
    store: Any = None,
    model_registry: Any = None,
    orchestrator: str = "",
    directory: Any = None,
    thread: bool | None = None,
    **arguments: Any,
) -> TrialVectorEnv:
    """Return a vector environment whose episodes are trials, `num_envs` of them at once on one platform.

    Args:
        environment: see `make`; one that is made already has to know how it can be made again.
        num_envs: how many.
        autoreset_mode: what happens after the end of an episode: see `gymnasium.vector.AutoresetMode`.
        copy: whether observations belong to the caller.
        seats: see `make`; each seat is taken in all trials.
        seat: see `make`, as for all others.
        agents: for an environment that is served elsewhere.
        implementation: for an environment that is served elsewhere.
        render_mode: with which the environments are made.
        options: where the trials run.
        platform: see `make`.
        store: keeps the episodes.
        model_registry: for seats of models.
        orchestrator: where the trials run, if not here.
        directory: asked for what is discovered.
        thread: run the platform in a thread of its own.
        arguments: with which the environments are made.

    Raises:
        CogmentError: as `make`.
    """
    if options is None:
        options = PlatformOptions(
            store=store, model_registry=model_registry, orchestrator=orchestrator, directory=directory, thread=thread
        )
    if num_envs < 1:
        raise InvalidArgumentError(f"num_envs: expected at least 1, got {num_envs}")
    target = environment if isinstance(environment, str) else maker_of(environment)
    envs: list[TrialEnv] = []
    shared = platform
    try:
        for number in range(num_envs):
            found = find_environment(
                target,
                seats=seats,
                agents=agents,
                implementation=implementation,
                render_mode=render_mode,
                arguments=arguments,
            )
            own = {agent: taken.beside(number) for agent, taken in (seats or {}).items()}
            match = seated(found, own, seat, platform=shared, options=None if number else options, arguments=arguments)
            shared = match.platform
            envs.append(TrialEnv(match, render_mode=render_mode))
        vector = TrialVectorEnv(envs, autoreset_mode=AutoresetMode(autoreset_mode), copy=copy)
    except BaseException:  # Control-C, too: nobody else would close them
        for env in envs:
            env.close()
        raise
    kwargs = {"seats": seats, "seat": seat, "implementation": implementation, "options": options, **arguments}
    kwargs = {key: value for key, value in kwargs.items() if value}
    vector.spec = spec_of(environment, match, {**kwargs, "num_envs": num_envs})
    settings = {
        "num_envs": num_envs,
        "autoreset_mode": autoreset_mode,
        "copy": copy,
        "seat": seat,
        "agents": agents,
        "implementation": implementation,
        "render_mode": render_mode,
    }
    vector.recipe = Recipe(match, make_vec, environment, seats, settings, arguments)
    return vector
