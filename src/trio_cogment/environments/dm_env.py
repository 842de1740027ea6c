"""An environment of dm_env as the environment of trials with one agent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.environments.checks import check_of, mask_finder, reward_of
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.spaces import Box, Dict, Discrete, Frame, Observation, Space, SpaceError, Tuple
from trio_cogment.spaces.base import described
from trio_cogment.spaces.composite import part
from trio_cogment.spaces.elementary import any_text

# Specs of dm_env as spaces, and their values both ways.


@dataclass(frozen=True, slots=True)
class Mapped:
    """A spec as a space.

    Attributes:
        space: that of the spec's values.
        take: returns a value of the environment as one that may be in the space.
        give: returns a value of the space as the environment expects it.
    """

    space: Space
    take: Callable[[Any], Any]
    give: Callable[[Any], Any]


def mapped(spec: Any) -> Mapped:
    """Return a spec, or dicts, lists and tuples of specs, as a space.

    Raises:
        SpaceError: a part of it has no counterpart; the text says which.
    """
    if isinstance(spec, Mapping):
        return _of_mapping(spec)
    if isinstance(spec, list | tuple):
        return _of_items(spec)
    if hasattr(spec, "string_type"):
        return _of_strings(spec.shape, spec.string_type)
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise SpaceError(f"expected specs of dm_env, or dicts, lists or tuples of them; got {described(spec)}")
    if hasattr(spec, "num_values"):
        # Environments index with what they get; dm_env's own values are arrays without dimensions.
        return Mapped(Discrete(spec.num_values, dtype=spec.dtype), _as_number, np.asarray)
    if spec.dtype.kind in "US":
        return _of_strings(spec.shape, str if spec.dtype.kind == "U" else bytes)
    if spec.dtype.kind not in "biuf":
        raise SpaceError(f"expected a spec of numbers or strings, got one of {spec.dtype}")
    low, high = _bounds(spec)
    return Mapped(Box(low, high, spec.shape, spec.dtype), _as_array, _same)


def _bounds(spec: Any) -> tuple[Any, Any]:
    if hasattr(spec, "minimum"):
        return spec.minimum, spec.maximum
    if spec.dtype.kind == "f":
        return -np.inf, np.inf
    if spec.dtype.kind == "b":
        return 0, 1
    return np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max


def _of_mapping(specs: Mapping[Any, Any]) -> Mapped:
    for key in specs:
        if not isinstance(key, str):
            raise SpaceError(f"expected strings as keys, got {described(key)}")
    parts: dict[str, Mapped] = {key: part(mapped, key, spec) for key, spec in specs.items()}

    def take(value: Any) -> Any:
        if not isinstance(value, Mapping) or value.keys() != parts.keys():
            return value  # the check of the space says what is wrong
        return {key: part(inner.take, key, value[key]) for key, inner in parts.items()}

    def give(value: Any) -> Any:
        return {key: inner.give(value[key]) for key, inner in parts.items()}

    return Mapped(Dict({key: inner.space for key, inner in parts.items()}), take, give)


def _of_items(specs: Any) -> Mapped:
    parts: list[Mapped] = [part(mapped, position, spec) for position, spec in enumerate(specs)]
    kind = type(specs)
    # A named tuple takes its parts one by one.
    make = kind._make if hasattr(kind, "_make") else kind

    def take(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            return value  # the check of the space says what is wrong
        return tuple(part(inner.take, position, value[position]) for position, inner in enumerate(parts))

    def give(value: Any) -> Any:
        return make([inner.give(one) for inner, one in zip(parts, value, strict=True)])

    return Mapped(Tuple([inner.space for inner in parts]), take, give)


def _of_strings(shape: tuple[int, ...], kind: type) -> Mapped:
    """Map an array of strings to tuples of strings within tuples."""
    space: Space = any_text()  # dm_env's strings have no bounds, and spaces of strings do
    for length in reversed(shape):
        space = Tuple([space] * length)

    def take(value: Any) -> Any:
        array = np.asarray(value, dtype=object)
        if array.shape != shape:
            raise SpaceError(f"expected the shape {shape}, got {array.shape}")
        return _nested(array.tolist())

    def give(value: Any) -> Any:
        texts = np.empty(shape, dtype=object)
        for index in np.ndindex(shape):
            text = value
            for position in index:
                text = text[position]
            texts[index] = text.encode("utf-8") if kind is bytes else text
        return texts

    return Mapped(space, take, give)


def _nested(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_nested(inner) for inner in value)
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _as_number(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) and value.shape == () else value


def _as_array(value: Any) -> Any:
    # dm_env's own checks take anything of which NumPy makes an array.
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _same(value: Any) -> Any:
    return value


#: What names of dm_control's tasks and of Melting Pot's substrates begin with.
CONTROL_PREFIX = "dm_control/"
MELTING_POT_PREFIX = "meltingpot/"
#: Seeds of NumPy's older generators are of 32 bits.
_SEEDS = 2**32
_STEP = "TimeStep(step_type, reward, discount, observation)"
_FIRST, _MID, _LAST = 0, 1, 2


class DmEnvironment:
    """A `dm_env.Environment`, whose only agent is `player_0`; see `base.Environment`.

    An episode that ends with a discount of 0 is terminated, one that ends with another is truncated. A discount other
    than what that says (1 before the end) is in the information, as `discount`. dm_env has no seeds: an environment
    that has a method `seed` is seeded by it, and a task of dm_control by the generator that it has.

    Attributes:
        env: the environment itself.
    """

    def __init__(self, env: Any, *, name: str = "", seed: Callable[[int], object] | None = None) -> None:
        """Use an environment of dm_env.

        Args:
            env: the environment, which is closed with this object.
            name: by default the name of its class.
            seed: seeds the environment's generator before a reset; by default its method `seed`, or that of the
                generator of its task, if it has one.

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
        self._seed = seed or _seed_of(env)
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

    def loaded(self, _observations: Mapping[str, Observation], _ended: Collection[str]) -> None:
        """Go on with the state that the environment itself has been given; see `taking_up`."""
        self.over = False

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


def _seed_of(env: Any) -> Callable[[int], object] | None:
    """Return what seeds an environment; None if nothing is known."""
    own = getattr(env, "seed", None)
    if callable(own):
        return own  # type: ignore[no-any-return]  # what is callable takes a seed, by its name
    generator = getattr(getattr(env, "task", None), "random", None)
    if isinstance(generator, np.random.RandomState):
        return lambda seed: generator.seed(seed % _SEEDS)  # dm_control's tasks draw from it
    return None


class SeveralDmEnvironment:
    """A `dm_env.Environment` of several players, as Melting Pot's are; see `base.Environment`.

    Its specs, observations, actions and rewards are sequences with a part for each player: `player_0`, `player_1`, ...
    All act at once, and an episode ends for all: with a discount of 0 it is terminated, with another truncated.

    Attributes:
        env: the environment itself.
    """

    def __init__(self, env: Any, *, name: str = "", seed: Callable[[int], object] | None = None) -> None:
        """Use an environment of dm_env; see `DmEnvironment`."""
        self.env = env
        self.name = name or type(env).__name__
        seen, done = env.observation_spec(), env.action_spec()
        if len(seen) != len(done):
            text = f"observation_spec: expected {len(done)} parts, as action_spec has; got {len(seen)}"
            raise InvalidEnvironmentError(self.name, "", text)
        self.agents: Sequence[str] = tuple(f"player_{player}" for player in range(len(done)))
        self.metadata: Mapping[str, Any] = {"render_modes": [], "render_mode": None, "is_parallelizable": True}
        self._observations = [self._mapped(spec, "observation_spec", player) for player, spec in enumerate(seen)]
        self._actions = [self._mapped(spec, "action_spec", player) for player, spec in enumerate(done)]
        self.observation_spaces: Mapping[str, Space] = self._spaces(self._observations)
        self.action_spaces: Mapping[str, Space] = self._spaces(self._actions)
        self._checks = [check_of(one.space) for one in self._observations]
        self._masks = [mask_finder(one.space) for one in self._actions]
        self._seed = seed or _seed_of(env)
        self.over = True

    def _mapped(self, spec: Any, field: str, player: int) -> Mapped:
        try:
            return mapped(spec)
        except SpaceError as error:
            raise InvalidEnvironmentError(self.name, self.agents[player], error.of(field)) from None

    def _spaces(self, parts: Sequence[Mapped]) -> dict[str, Space]:
        return {agent: part.space for agent, part in zip(self.agents, parts, strict=True)}

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin an episode; see `DmEnvironment.reset`."""
        if options:
            text = f"options: expected none, because dm_env has none; got {', '.join(map(repr, options))}"
            raise InvalidArgumentError(f"environment {self.name!r}: {text}")
        if seed is not None:
            if self._seed is None:
                text = "seed: expected none, because the environment has no method seed"
                raise InvalidArgumentError(f"environment {self.name!r}: {text}")
            self._seed(seed)
        return self._told("reset", self.env.reset(), first=True)

    def loaded(self, _observations: Mapping[str, Observation], _ended: Collection[str]) -> None:
        """Go on with the state that the environment itself has been given; see `taking_up`."""
        self.over = False

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make a step of all players.

        Raises:
            InvalidEnvironmentError: what the environment returned makes no sense.
        """
        given = [part.give(actions[agent]) for agent, part in zip(self.agents, self._actions, strict=True)]
        return self._told("step", self.env.step(given))

    def _told(self, method: str, result: Any, *, first: bool = False) -> dict[str, Observation]:
        if not isinstance(result, tuple) or len(result) != 4:
            raise InvalidEnvironmentError(self.name, "", f"{method}: expected {_STEP}, got {described(result)}")
        kind, rewards, discount, values = result
        if kind not in ((_FIRST,) if first else (_MID, _LAST)):
            expected = "FIRST" if first else "MID or LAST"
            text = f"{method}: step_type: expected {expected}, got {kind!r}"
            raise InvalidEnvironmentError(self.name, "", text)
        self.over = over = kind == _LAST
        for field, parts in (("observation", values), ("reward", () if first else rewards)):
            if not (first and field == "reward") and len(parts) != len(self.agents):
                text = f"{field}: expected {len(self.agents)} parts, one for each player; got {len(parts)}"
                raise InvalidEnvironmentError(self.name, "", text)
        found = {}
        for player, agent in enumerate(self.agents):
            try:
                value = self._checks[player](self._observations[player].take(values[player]))
                reward = None if first else reward_of(rewards[player])
                rate = 1.0 if first else reward_of(discount)
            except SpaceError as error:
                raise InvalidEnvironmentError(self.name, agent, error) from None
            terminated, truncated = over and rate == 0, over and rate != 0
            info: dict[str, Any] = {} if rate == 1 or terminated else {"discount": rate}
            mask = self._masks[player](value, info)
            found[agent] = Observation(value, reward, terminated, truncated, mask, info, None, not over, not over)
        return found

    def frame(self) -> Frame | None:
        """Return None: dm_env draws nothing."""
        return None

    def close(self) -> None:
        """Close the environment."""
        self.over = True
        self.env.close()


def wrapped(env: Any, name: str = "") -> DmEnvironment | SeveralDmEnvironment:
    """Return an environment of dm_env as one for trials: of several players, if its rewards are of several."""
    many = isinstance(env.reward_spec(), list | tuple) and isinstance(env.action_spec(), list | tuple)
    return SeveralDmEnvironment(env, name=name) if many else DmEnvironment(env, name=name)


# By name


def of_control_suite(target: str, arguments: Mapping[str, Any]) -> DmEnvironment:
    """Return a task of dm_control by its name, such as `dm_control/cartpole-swingup`.

    Raises:
        MissingExtraError: dm_control is not installed.
        NotFoundError: there is no such task.
    """
    try:
        from dm_control import suite
    except ModuleNotFoundError as error:
        if error.name != "dm_control":
            raise
        raise MissingExtraError.plain("dm-control") from error
    domain, _, task = target.removeprefix(CONTROL_PREFIX).partition("-")
    known = [f"{CONTROL_PREFIX}{domain}-{task}" for domain, task in suite.ALL_TASKS]
    if target not in known:
        meant = suggestion(target, known, "dm_control.suite.ALL_TASKS has those that there are")
        raise NotFoundError(f"environment {target!r}: there is no task of that name; {meant}")
    return DmEnvironment(suite.load(domain, task, **arguments), name=target)


def of_melting_pot(target: str, arguments: Mapping[str, Any]) -> SeveralDmEnvironment:
    """Return a substrate of Melting Pot by its name, such as `meltingpot/commons_harvest__open`.

    Its roles are the default ones, unless there is an argument `roles`. A substrate takes no other one, and no seed:
    even what it is built with, it plays in one of several ways.

    Raises:
        MissingExtraError: Melting Pot is not installed.
        NotFoundError: there is no such substrate.
        InvalidArgumentError: it does not take such an argument, or such a role.
    """
    try:
        from meltingpot import substrate
    except ModuleNotFoundError as error:
        if error.name != "meltingpot":
            raise
        raise MissingExtraError.plain("dm-meltingpot") from error
    name = target.removeprefix(MELTING_POT_PREFIX)
    if name not in substrate.SUBSTRATES:
        meant = suggestion(name, substrate.SUBSTRATES, "meltingpot.substrate.SUBSTRATES are those that there are")
        raise NotFoundError(f"environment {target!r}: there is no substrate of that name; {meant}")
    others = ", ".join(repr(key) for key in arguments if key != "roles")
    if others:
        raise InvalidArgumentError(f"environment {target!r}: arguments: expected roles alone, got {others}")
    roles = arguments.get("roles") or substrate.get_config(name).default_player_roles
    try:
        built = substrate.build(name, roles=roles)
    except ValueError as error:  # one of its roles is none of this substrate
        raise InvalidArgumentError(f"environment {target!r}: roles: {error}") from error
    return SeveralDmEnvironment(built, name=target)
