"""Parameters of a view's trials: who takes part, and what the orchestrator is told of them."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.base import SINGLE_AGENT, Environment
from trio_cogment.environments.episode import Episode
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.rl.views.options import Rate
from trio_cogment.rl.views.platforms import IMPLEMENTATION, ViewPlatform
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.seats.base import Seat
from trio_cogment.seats.remote import HumanSeat, RemoteSeat
from trio_cogment.spaces import SpaceError, encode_action
from trio_cogment.spaces.values import fill_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEnvironment:
    """An environment that somebody else serves, with `trio_cogment.rl`.

    Attributes:
        endpoint: `grpc://host:port`, or `cogment://discover...`.
        implementation: which of the environments there; may be empty.
        agents: everybody who takes part.
        config: the configuration of its trials; seed, options and instance are set by the view.
    """

    endpoint: str
    implementation: str = ""
    agents: Sequence[str] = (SINGLE_AGENT,)
    config: rl_pb2.EnvironmentConfig | None = None


def driven_agents(
    environment: str, agents: Sequence[str], seats: Mapping[str, object], mine: Collection[str] | None
) -> tuple[str, ...]:
    """Return the agents whom the view drives, in the environment's order.

    Args:
        environment: its name, for errors.
        agents: of the environment.
        seats: who takes the others' seats.
        mine: by default all agents without a seat.

    Raises:
        InvalidArgumentError: a name is of no agent, an agent has no seat or two, or something that is none, or the view
            has none.
    """
    for name, seat in seats.items():
        if not isinstance(seat, Seat):
            hint = "; write policy(function)" if callable(seat) else ""
            raise InvalidArgumentError(
                f"environment {environment!r}: seats: {name!r}: expected a seat, got {type(seat).__name__}{hint}"
            )
    known = ", ".join(map(repr, agents))
    for name in (*seats, *(mine or ())):
        if name not in agents:
            raise InvalidArgumentError(
                f"environment {environment!r}: seats: {name!r} is not an agent; its agents are {known}"
            )
    chosen = tuple(name for name in agents if (name not in seats if mine is None else name in mine))
    for name in agents:
        if (name in seats) == (name in chosen):
            got = "both the view's and another's" if name in seats else "none"
            raise InvalidArgumentError(
                f"environment {environment!r}, actor {name!r}: seats: expected one seat, got {got}; the agents are "
                f"{known}"
            )
    if not chosen:
        raise InvalidArgumentError(
            f"environment {environment!r}: seats: expected an agent for the view, but all have other seats: {known}"
        )
    return chosen


def is_remote(seat: Seat) -> bool:
    """Whether somebody else takes the seat: a client, or a service elsewhere."""
    return isinstance(seat, RemoteSeat | HumanSeat)


def watching(seats: Mapping[str, Seat]) -> list[str]:
    """Return the agents who are to see what the environment renders."""
    # Anything but a seat is refused later, with everything else that is wrong with seats.
    return [agent for agent, seat in seats.items() if isinstance(seat, Seat) and seat.watches]


def episode_of(environment: Environment, agents: Sequence[str], seats: Mapping[str, Seat]) -> Episode:
    """Return the episodes of an environment in this process; whoever watches gets what it renders."""
    return Episode(environment, agents, frames_for=watching(seats))


def params_of(
    environment: Environment | RemoteEnvironment,
    name: str,
    seats: Mapping[str, Seat],
    platform: ViewPlatform,
    *,
    instance: str,
    arguments: Mapping[str, Any] = {},
    rate: Rate | None = None,
) -> TrialParams:
    """Return the parameters of a view's trials; the labels of seats are registered with the platform.

    Args:
        environment: of the trials.
        name: of the environment.
        seats: of others.
        platform: where the trials run.
        instance: the name of the environment object, if it is elsewhere.
        arguments: with which the environment was made.
        rate: ticks by the clock; None: they end when everybody has acted.

    Raises:
        InvalidArgumentError: the default action of the rate is not in the action space of an agent.
    """
    opened = platform.opened
    actors = []
    mine = [agent for agent in environment.agents if agent not in seats]
    for agent in environment.agents:
        seat = seats.get(agent)
        space = None if isinstance(environment, RemoteEnvironment) else environment.action_spaces[agent]
        if seat is None and rate is not None:
            try:
                default = encode_action(rate.default_of(agent, mine), space)
            except SpaceError as error:
                raise InvalidArgumentError(f"environment {name!r}, actor {agent!r}: rate: default: {error}") from None
            actors.append(
                actor_params(
                    agent,
                    PLAYER,
                    implementation=IMPLEMENTATION,
                    endpoint=opened.mine,
                    default_action=default,
                    observe_every=rate.observe_every,
                    hold_action=rate.hold_action,
                )
            )
        elif seat is None:
            actors.append(actor_params(agent, PLAYER, implementation=IMPLEMENTATION, endpoint=opened.mine))
        else:
            actors.append(
                seat.actor_params(
                    agent,
                    environment=name,
                    implementation=platform.register_seat(seat.label),
                    endpoint=opened.endpoint,
                    action_space=space,
                )
            )
    remote = environment if isinstance(environment, RemoteEnvironment) else None
    config = rl_pb2.EnvironmentConfig()
    if remote is None:
        config.id = name
        config.spec = getattr(environment, "gymnasium_spec", "")
        if not config.spec:
            _record_arguments(config, arguments)
    else:
        if remote.config is not None:
            config.CopyFrom(remote.config)
        config.instance = instance
    config.frames_for.extend(watching(seats))
    return trial_params(
        actors,
        environment=platform.serve_environment() if remote is None else remote.implementation,
        environment_endpoint=opened.endpoint if remote is None else remote.endpoint,
        environment_config=config,
        datalog_endpoint=platform.options.datalog_endpoint,
        tick_hz=0.0 if rate is None else rate.tick_hz,
        spec=RL_SPEC,
    )


def _record_arguments(config: rl_pb2.EnvironmentConfig, arguments: Mapping[str, Any]) -> None:
    """Say how an environment of this process was made, as far as a message can: for those who make it again."""
    for name, value in arguments.items():
        try:
            fill_fields(rl_pb2.EnvironmentConfig().arguments, {name: value})  # it may fail half-way
        except SpaceError:
            continue  # a function, for example
        fill_fields(config.arguments, {name: value})


def episode_params(params: TrialParams, seed: int | None, options: dict[str, Any] | None) -> TrialParams:
    """Return parameters with the seed and the options of one episode, for an environment elsewhere.

    Raises:
        InvalidArgumentError: the seed cannot be encoded.
        SpaceError: an option cannot be encoded.
    """
    config = _config_of(params)
    if seed is not None and not _fill_seed(config, seed):
        raise InvalidArgumentError(f"seed: expected an integer of 64 bits, or None; got {seed!r}")
    if options:
        fill_fields(config.options, options)
    return _with_config(params, config)


def recorded_params(
    params: TrialParams, seed: int | None, options: dict[str, Any] | None
) -> tuple[TrialParams, list[str]]:
    """Return parameters that say with which seed and options an episode of an environment in this process begins.

    Nothing reads them to play it. So what cannot be encoded, such as an option that is a function, is left out.

    Returns:
        The parameters; and the fields that are left out, each with the reason.
    """
    config, missing = _config_of(params), []
    if seed is not None and not _fill_seed(config, seed):
        missing.append("seed: expected an integer of 64 bits")
    for name, value in (options or {}).items():
        try:
            fill_fields(
                rl_pb2.EnvironmentConfig().options, {name: value}
            )  # in a message of its own: it may fail half-way
        except SpaceError as error:
            missing.append(str(error.of("options")))
        else:
            fill_fields(config.options, {name: value})
    return _with_config(params, config), missing


def _config_of(params: TrialParams) -> rl_pb2.EnvironmentConfig:
    return rl_pb2.EnvironmentConfig.FromString(params.environment.config.content)


def _with_config(params: TrialParams, config: rl_pb2.EnvironmentConfig) -> TrialParams:
    found = TrialParams()
    found.CopyFrom(params)
    found.environment.config.content = config.SerializeToString()
    return found


def _fill_seed(config: rl_pb2.EnvironmentConfig, seed: int) -> bool:
    try:
        config.seed = operator.index(seed)
    except (TypeError, ValueError):
        return False
    return True
