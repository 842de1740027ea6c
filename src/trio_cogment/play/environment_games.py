"""Environments of the field as games for people: the parameters of their trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.endpoints import CLIENT, DISCOVER
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.base import Environment
from trio_cogment.environments.spec import HUMAN, PLAYER, RL_SPEC
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.spaces import SpaceError, encode_action
from trio_cogment.spaces.json_values import from_json_value


def people_params(
    environment: Environment,
    people: Sequence[str],
    *,
    bot: str = "",
    default: Any = None,
    seed: int | None = None,
    tick_hz: float = 0.0,
    observe_every: int = 0,
    hold_action: bool = False,
) -> TrialParams:
    """Return the parameters of trials in which people and bots play; people are shown what the environment renders.

    The implementation of the environment is its name: whoever reads a trial later knows by it what was played.

    Args:
        environment: what is played; it may be closed.
        people: those of its agents who are people's.
        bot: the implementation that plays the others.
        default: an action in the form of JSON, which is taken for people who are away; None: there is none.
        tick_hz: ticks end by the clock, so many a second; 0: when everybody has acted.
        observe_every: people are shown every n-th tick.
        hold_action: when a person has not acted in time, the last action is taken again.
        seed: of the environment in each trial, and of what bots draw; None: each trial is another.

    Raises:
        InvalidArgumentError: a name is of no agent, somebody has to be a bot and there is none, or the default action
            is not in an action space.
    """
    agents = environment.agents
    for name in people:
        if name not in agents:
            raise InvalidArgumentError(f"person {name!r}: expected one of the agents {', '.join(map(repr, agents))}")
    actors = []
    for agent in agents:
        if agent in people:
            taken = None
            if default is not None:
                space = environment.action_spaces[agent]
                try:
                    taken = encode_action(from_json_value(default, space), space)
                except SpaceError as error:
                    raise error.of("default") from None
            actors.append(
                actor_params(
                    agent,
                    PLAYER,
                    implementation=HUMAN,
                    endpoint=CLIENT,
                    default_action=taken,
                    observe_every=observe_every,
                    hold_action=hold_action,
                    spec=RL_SPEC,
                )
            )
        elif bot:
            actors.append(actor_params(agent, PLAYER, implementation=bot, endpoint=DISCOVER, spec=RL_SPEC))
        else:
            raise InvalidArgumentError(f"agent {agent!r}: expected a person or a bot")
    spec = getattr(environment, "gymnasium_spec", "")
    config = rl_pb2.EnvironmentConfig(frames_for=people, seed=seed, spec=spec)
    return trial_params(actors, environment=environment.name, environment_config=config, tick_hz=tick_hz, spec=RL_SPEC)


def with_seed(params: TrialParams, seed: int) -> None:
    """Give the environment of a trial a seed, unless it has one: a trial that may go on has to be played again then."""
    config = rl_pb2.EnvironmentConfig.FromString(params.environment.config.content)
    if not config.HasField("seed"):
        config.seed = seed
        params.environment.config.content = config.SerializeToString()
