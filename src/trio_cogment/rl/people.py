"""Environments of the field as games for people: the parameters of their trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.endpoints import CLIENT, DISCOVER
from trio_cogment.errors import InvalidArgumentError
from trio_cogment.rl.spec import HUMAN, PLAYER, RL_SPEC
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.spaces import Space, SpaceError, encode_action
from trio_cogment.spaces.json_values import from_json_value


def people_params(
    agents: Sequence[str],
    people: Sequence[str],
    *,
    bot: str = "",
    default: Any = None,
    action_spaces: dict[str, Space] | None = None,
    seed: int | None = None,
    environment: str = "",
    gymnasium_spec: str = "",
) -> TrialParams:
    """Return the parameters of trials in which people and bots play; people are shown what the environment renders.

    Args:
        agents: of the environment.
        people: those of them who are people's.
        bot: the implementation that plays the others.
        default: an action in the form of JSON, which is taken for people who are away; None: there is none.
        action_spaces: of the agents, in which the default action has to be.
        seed: of the environment in each trial, and of what bots draw; None: each trial is another.
        environment: the implementation; whoever reads the trial later knows by it what was played.
        gymnasium_spec: how Gymnasium makes it, see `env_specs.spec_text`; for those readers, too.

    Raises:
        InvalidArgumentError: a name is of no agent, somebody has to be a bot and there is none, or the default action
            is not in an action space.
    """
    for name in people:
        if name not in agents:
            raise InvalidArgumentError(f"person {name!r}: expected one of the agents {', '.join(map(repr, agents))}")
    actors = []
    for agent in agents:
        if agent in people:
            taken = None
            if default is not None:
                space = (action_spaces or {})[agent]
                try:
                    taken = encode_action(from_json_value(default, space), space)
                except SpaceError as error:
                    raise error.of("default") from None
            actors.append(
                actor_params(agent, PLAYER, implementation=HUMAN, endpoint=CLIENT, default_action=taken, spec=RL_SPEC)
            )
        elif bot:
            actors.append(actor_params(agent, PLAYER, implementation=bot, endpoint=DISCOVER, spec=RL_SPEC))
        else:
            raise InvalidArgumentError(f"agent {agent!r}: expected a person or a bot")
    config = rl_pb2.EnvironmentConfig(frames_for=people, seed=seed, spec=gymnasium_spec)
    return trial_params(actors, environment=environment, environment_config=config, spec=RL_SPEC)
