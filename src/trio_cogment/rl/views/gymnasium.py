"""A seat of a trial as an environment of Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError
from trio_cogment.environments.base import SINGLE_AGENT, Environment
from trio_cogment.environments.gymnasium import GymnasiumEnvironment
from trio_cogment.environments.making import make_environment, make_to_watch
from trio_cogment.rl.views.copies import Recipe, Remade
from trio_cogment.rl.views.match import BranchPoint, Match
from trio_cogment.rl.views.options import PlatformOptions, Rate, is_address
from trio_cogment.rl.views.parameters import RemoteEnvironment, watching
from trio_cogment.rl.views.turns import Turns, info_of
from trio_cogment.seats.base import Seat
from trio_cogment.spaces import to_gymnasium
from trio_cogment.spaces.masks import flat_mask

try:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
except ModuleNotFoundError as missing:
    if missing.name != "gymnasium":
        raise
    raise MissingExtraError.of("gymnasium", "gym") from missing

from trio_cogment.rl.views.raw_types import TypeMemory, like

_HOME = "trio_cogment.rl.views"


class TrialEnv(Remade, gymnasium.Env[Any, Any]):
    """An agent's seat in trials, as an environment: each episode is a trial, each step a tick. `make` makes it.

    Where the others of the trial are to act and this agent is not, the ticks of theirs belong to the step before; the
    reward is the sum of all of them.

    Attributes:
        agent: the agent that the caller drives.
    """

    def __init__(self, match: Match, *, render_mode: str | None = None, spec: EnvSpec | None = None) -> None:
        """Take the seat.

        Args:
            match: whose only agent that is the caller's it becomes; it is closed with this object.
            render_mode: with which the environment was made.
            spec: how this object can be made again.
        """
        self._match = match
        (self.agent,) = match.mine
        self._turns = Turns(match)
        self.observation_space = to_gymnasium(match.observation_spaces[self.agent])
        self.action_space = to_gymnasium(match.action_spaces[self.agent])
        self.spec = spec
        found = match.environment
        metadata = {} if found is None else found.metadata
        self.metadata = {"render_modes": [], **metadata}
        self.metadata.pop("render_mode", None)
        self.render_mode = render_mode
        self._mask: Any = None
        env = getattr(found, "env", None)
        self._types = env if isinstance(env, TypeMemory) else None
        self._converts = not isinstance(
            self.observation_space,
            gymnasium.spaces.Box | gymnasium.spaces.MultiDiscrete | gymnasium.spaces.MultiBinary,
        )

    @property
    def trial_id(self) -> str:
        """The id of this episode's trial, or of the last one; empty before the first."""
        return self._match.trial_id

    @property
    def environment(self) -> Any:
        """The environment itself, if it is in this process; None if it is elsewhere."""
        env = getattr(self._match.environment, "env", self._match.environment)
        return env.env if isinstance(env, TypeMemory) else env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, in a new trial; see `gymnasium.Env.reset`. A trial that still runs is ended hard.

        Raises:
            EpisodeFailedError: an actor cannot be reached or is lost, or the environment raised an exception.
            CogmentError: the environment returned what makes no sense, for example.
        """
        super().reset(seed=seed)
        self._turns.reset(seed, options)
        found = self._turns.observations[self.agent]
        self._mask = found.action_mask
        return self._value(found.value), info_of(found)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make a step; see `gymnasium.Env.step`.

        Raises:
            InvalidActionError: the action is not in the action space; the episode goes on.
            FailedPreconditionError: there was no `reset`, or the episode is over.
            EpisodeFailedError, CogmentError: as `reset`; the episode is over.
        """
        self._turns.step({self.agent: action})
        return self._found()

    def action_masks(self) -> Any:
        """Return which actions are allowed now, as MaskablePPO of sb3-contrib takes it; see `spaces.masks.flat_mask`.

        Raises:
            SpaceError: the action space is none of those that have masks there.
        """
        return flat_mask(self._match.action_spaces[self.agent], self._mask)

    def encoded(self, action: Any) -> Any:
        """Check and encode an action; see `Match.encoded`."""
        return self._match.encoded({self.agent: action})

    def send(self, messages: Any) -> None:
        """Begin a step; see `Match.send`."""
        self._match.send(messages)

    def receive(self) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """End a step; see `step`."""
        self._turns.receive()
        return self._found()

    def _found(self) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        turns, types = self._turns, self._types
        found = turns.observations[self.agent]
        reward: Any = turns.rewards.get(self.agent, 0.0)
        self._mask = found.action_mask
        if types is not None and type(types.reward) is not float:
            reward = like(reward, types.reward)
        return self._value(found.value), reward, found.terminated, found.truncated, info_of(found)

    def _value(self, value: Any) -> Any:
        return like(value, self._types.observation) if self._converts and self._types is not None else value

    def store_model(self, name: str, data: bytes) -> int:
        """Store a version of a model in the registry, for seats of it from the next `reset` on; return its number.

        Raises:
            FailedPreconditionError: there is no registry: `model_registry` was not given.
        """
        return self._match.platform.store_model(self._match.name, name, data)

    def render(self) -> Any:
        """Render the environment as it does by itself; see `gymnasium.Env.render`.

        Raises:
            InvalidArgumentError: the environment is elsewhere, or cannot render.
        """
        return self._match.render()

    def close(self) -> None:
        """End the trial that runs, and close everything; closing again is harmless."""
        self._match.close()


def make(
    environment: Any,
    *,
    seats: Mapping[str, Seat] | None = None,
    seat: str = "",
    agents: Sequence[str] = (SINGLE_AGENT,),
    implementation: str = "",
    render_mode: str | None = None,
    rate: Rate | None = None,
    options: PlatformOptions | None = None,
    platform: Any = None,
    store: Any = None,
    model_registry: Any = None,
    orchestrator: str = "",
    directory: Any = None,
    thread: bool | None = None,
    **arguments: Any,
) -> TrialEnv:
    """Return an environment of Gymnasium whose episodes are trials.

    Args:
        environment: what is played: an id (`CartPole-v1`, `rps_v2`), an environment, or a function that makes one; see
            `trio_cogment.environments.making.make_environment`. Or where it is served: `grpc://host:port`, or
            `cogment://discover...`.
        seats: who takes the seats of the other agents.
        seat: the agent that the caller drives; by default the one who is not in `seats`.
        agents: for an environment that is served elsewhere, all its agents.
        implementation: of an environment that is served elsewhere, if there are several.
        render_mode: with which the environment is made.
        rate: ticks end by the clock, and the agent takes part with a default action when it is late; see `Rate`.
        options: where the trials run, all of it; the arguments from `store` on are for what is needed most.
        platform: another view, whose platform is shared: the trials are kept in its store.
        store: keeps every episode as a trial: `memory:` or `sqlite:PATH`.
        model_registry: the folder of a model registry, for seats of models.
        orchestrator: run the trials there, `grpc://host:port`, instead of on a platform of the environment's own.
        directory: asked for what `cogment://discover` describes.
        thread: run the platform in a thread of its own; see `PlatformOptions`.
        arguments: with which the environment is made.

    Raises:
        MissingExtraError: a package is not installed; the text has the command that installs it.
        InvalidArgumentError: there is no such environment or agent, or not everybody has a seat.
        CogmentError: the platform cannot be opened, or the environment elsewhere cannot be reached.
    """
    if options is None:
        options = PlatformOptions(
            store=store, model_registry=model_registry, orchestrator=orchestrator, directory=directory, thread=thread
        )
    found = find_environment(
        environment,
        seats=seats,
        agents=agents,
        implementation=implementation,
        render_mode=render_mode,
        arguments=arguments,
    )
    match = seated(found, seats, seat, platform=platform, options=options, arguments=arguments, rate=rate)
    own = {"seats": seats, "seat": seat, "implementation": implementation, "rate": rate, "options": options}
    kwargs = {**own, **arguments}
    if match.environment is None:
        kwargs["agents"] = agents
    spec = spec_of(environment, match, {key: value for key, value in kwargs.items() if value})
    view = TrialEnv(match, render_mode=render_mode, spec=spec)
    settings = {
        "seat": seat,
        "agents": agents,
        "implementation": implementation,
        "render_mode": render_mode,
        "rate": rate,
    }
    view.recipe = Recipe(match, make, environment, seats, settings, arguments)
    return view


def seated(
    environment: Environment | RemoteEnvironment,
    seats: Mapping[str, Seat] | None,
    seat: str,
    *,
    platform: Any,
    options: PlatformOptions | None,
    arguments: Mapping[str, Any] = {},
    branch: BranchPoint | None = None,
    rate: Rate | None = None,
) -> Match:
    """Return a match with one agent of the caller's; see `make`."""
    match = Match(
        environment,
        seats=seats or {},
        mine=(seat,) if seat else None,
        platform=platform,
        options=options,
        arguments=arguments,
        branch=branch,
        rate=rate,
    )
    if len(match.mine) == 1:
        return match
    match.close()
    raise InvalidArgumentError(
        f"environment {match.name!r}: seats: expected one agent without a seat, got "
        f"{', '.join(map(repr, match.mine))}; make_parallel or make_aec drive several"
    )


def find_environment(
    target: Any,
    *,
    seats: Mapping[str, Seat] | None,
    agents: Sequence[str],
    implementation: str,
    render_mode: str | None,
    arguments: dict[str, Any],
) -> Environment | RemoteEnvironment:
    """Return the environment of a view: in this process, or where it is served.

    Where somebody watches it, and it has no `render_mode`, one is chosen that returns pictures.

    Raises:
        InvalidArgumentError: an environment elsewhere was given arguments.
    """
    if is_address(target):
        return _remote(target, agents, implementation, render_mode, arguments)
    if render_mode is not None:
        arguments = {**arguments, "render_mode": render_mode}
    made = (make_to_watch if watching(seats or {}) else make_environment)(target, **arguments)
    if isinstance(made, GymnasiumEnvironment):
        made.play_through(TypeMemory(made.env))
    return made


def _remote(
    endpoint: str, agents: Sequence[str], implementation: str, render_mode: str | None, arguments: dict[str, Any]
) -> RemoteEnvironment:
    from trio_cogment.api import rl_pb2
    from trio_cogment.spaces.values import fill_fields

    if render_mode is not None:
        raise InvalidArgumentError(
            f"environment {endpoint!r}: render_mode: expected None, because it is elsewhere; got {render_mode!r}"
        )
    config = rl_pb2.EnvironmentConfig()
    if arguments:
        fill_fields(config.arguments, arguments)
    return RemoteEnvironment(endpoint=endpoint, implementation=implementation, agents=agents, config=config)


def spec_of(target: Any, match: Match, kwargs: dict[str, Any]) -> EnvSpec | None:
    """Return how to make a view again; None for an environment that was made already and does not know how."""
    original = getattr(target, "spec", None)
    if isinstance(target, gymnasium.Env):
        if original is None:
            return None
        target = original.make
    name = match.name.rpartition("/")[2] if match.environment is not None else "Trial-v0"
    inner = getattr(getattr(match.environment, "env", None), "spec", None)
    spec = EnvSpec(
        id="trio_cogment/Trial-v0",
        entry_point=f"{_HOME}.gymnasium:make",
        vector_entry_point=f"{_HOME}.vector:make_vec",
        nondeterministic=bool(getattr(inner, "nondeterministic", False)),
        reward_threshold=getattr(inner, "reward_threshold", None),
        disable_env_checker=True,
        order_enforce=False,
        kwargs={"environment": target, **kwargs},
    )
    try:
        spec.id = f"trio_cogment/{name}"
    except (AttributeError, gymnasium.error.Error):
        pass  # the name is none that Gymnasium takes
    return spec


def register(name: str, *, id: str = "", **kwargs: Any) -> str:  # noqa: A002  as in gymnasium.register
    """Register trials of an environment with Gymnasium, so that `gymnasium.make` and `make_vec` make them.

    Args:
        name: of the environment, such as `CartPole-v1`.
        id: what to register it as; by default `trio_cogment/` and the name.
        kwargs: arguments of `make`.

    Returns:
        The id, for `gymnasium.make`.
    """
    found = id or f"trio_cogment/{name.rpartition(':')[2].rpartition('/')[2]}"
    if found not in gymnasium.registry:
        gymnasium.register(
            found,
            entry_point=f"{_HOME}.gymnasium:make",
            vector_entry_point=f"{_HOME}.vector:make_vec",
            disable_env_checker=True,
            order_enforce=False,
            kwargs={"environment": name, **kwargs},
        )
    return found
