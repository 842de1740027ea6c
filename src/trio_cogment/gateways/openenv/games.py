"""Games of a server: an environment of the field and the seats of others, registered with a platform."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from trio_cogment.api.common_pb2 import ActorParams
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError
from trio_cogment.environments.making import Target, is_made, make_environment
from trio_cogment.environments.serving import Hosting, environment
from trio_cogment.environments.spec import PLAYER
from trio_cogment.environments.stage import Description
from trio_cogment.gateways.openenv.trials import Game
from trio_cogment.platform import Platform
from trio_cogment.seats.base import Seat, SeatContext
from trio_cogment.spaces import SpaceError, check_action


@asynccontextmanager
async def registered_game(
    platform: Platform,
    target: Target,
    *,
    seats: Mapping[str, Seat],
    default_actions: Mapping[str, Any],
    arguments: dict[str, Any],
    hosting: Hosting,
    description: str,
    max_idle: int,
) -> AsyncIterator[Game]:
    """Register an environment and the seats of others, for the time of the block; see `serve_openenv`.

    Their names stay taken afterwards, because a platform forgets none.

    Raises:
        CogmentError: see `serve_openenv`.
    """
    served = environment(target, hosting=hosting, arguments=arguments, max_idle=max_idle)
    if is_made(target):
        found = Description.of(make_environment(target, **arguments))
    else:
        found = await served.describe()
    name, agents = found.name, list(found.agents)
    _require_agents(name, agents, {"seats": seats, "default_actions": default_actions})
    try:
        yield Game(
            name=name,
            description=description or f"{name}: {len(agents)} {'seat' if len(agents) == 1 else 'seats'} of a trial",
            agents=agents,
            observation_spaces=found.observation_spaces,
            action_spaces=found.action_spaces,
            implementation=_register(name, lambda free: platform.participants.register_environment(served, free)),
            others={agent: _seated(platform, seat, found, agent) for agent, seat in seats.items()},
            default_actions=_checked(name, default_actions, found),
            config=EnvironmentConfig(frames_for=[agent for agent, seat in seats.items() if seat.watches]),
        )
    finally:
        await served.aclose()


def _require_agents(name: str, agents: list[str], given: Mapping[str, Mapping[str, Any]]) -> None:
    for field, by_agent in given.items():
        for agent in by_agent:
            if agent not in agents:
                known = ", ".join(map(repr, agents))
                raise InvalidArgumentError(f"environment {name!r}: {field}: expected agents of {known}; got {agent!r}")


def _checked(name: str, default_actions: Mapping[str, Any], found: Description) -> dict[str, Any]:
    checked = {}
    for agent, action in default_actions.items():
        try:
            checked[agent] = check_action(action, found.action_spaces[agent])
        except SpaceError as error:
            raise InvalidArgumentError(
                f"environment {name!r}, actor {agent!r}: {error.of('default_actions')}"
            ) from None
    return checked


def _seated(platform: Platform, seat: Seat, found: Description, agent: str) -> ActorParams:
    registry = None if platform.model_registry is None else platform.model_registry_client()
    actor = seat.actor(SeatContext(found.name, agent, registry))
    implementation = ""
    if actor is not None:
        implementation = _register(
            f"{found.name}/{agent}", lambda free: platform.participants.register_actor(actor, free, [PLAYER])
        )
    return seat.actor_params(
        agent, environment=found.name, implementation=implementation, action_space=found.action_spaces[agent]
    )


def _register(name: str, register: Callable[[str], None]) -> str:
    """Register something by a name, or by the first variation of it that is free; return that."""
    for number in itertools.count(1):
        free = name if number == 1 else f"{name} ({number})"
        try:
            register(free)
        except AlreadyExistsError:
            continue
        return free
    raise AssertionError("unreachable")
