"""Shared parts of the views of PettingZoo: who takes part, their spaces, and opening the match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, UnimplementedError
from trio_cogment.rl.views.copies import Remade
from trio_cogment.rl.views.gymnasium import find_environment
from trio_cogment.rl.views.match import Match
from trio_cogment.rl.views.options import PlatformOptions, Rate
from trio_cogment.rl.views.turns import Turns
from trio_cogment.seats.base import Seat
from trio_cogment.spaces import to_gymnasium

try:
    import pettingzoo
except ModuleNotFoundError as missing:
    if missing.name != "pettingzoo":
        raise
    raise MissingExtraError.of("pettingzoo", "pettingzoo") from missing

#: The base classes of the views, which have no types of their own.
ParallelEnv: Any = pettingzoo.ParallelEnv
AECEnv: Any = pettingzoo.AECEnv


#: What happens to actions that an agent's mask forbids.
Illegal = Literal["refuse", "play"]


class NoStateError(UnimplementedError, NotImplementedError):
    """The environment of a view has no `state`, or is elsewhere."""


class SeatedAgents(Remade):
    """The part of a view of PettingZoo that is the same in both.

    Attributes:
        possible_agents: the agents whom the caller drives, in the environment's order.
        agents: those of them that take part now.
        observation_spaces: by agent.
        action_spaces: by agent.
        metadata: what the environment says about itself.
        render_mode: with which the environment was made.
        state_space: of what `state` returns; only if the environment has it.
    """

    agents: list[str]
    state_space: Any

    def __init__(self, match: Match, *, render_mode: str | None = None, plays_illegal: bool = False) -> None:
        """Take the seats.

        Args:
            match: whose agents the caller drives; it is closed with this object.
            render_mode: with which the environment was made.
            plays_illegal: the environment gets actions that its mask forbids; else they are refused here.
        """
        self._match = match
        self._turns = Turns(match, plays_illegal=plays_illegal)
        self._begun = False
        self.possible_agents = list(match.mine)
        self.agents = []
        self.observation_spaces = {agent: to_gymnasium(match.observation_spaces[agent]) for agent in match.mine}
        self.action_spaces = {agent: to_gymnasium(match.action_spaces[agent]) for agent in match.mine}
        found = match.environment
        self.metadata: dict[str, Any] = {"name": match.name, "render_modes": []}
        if found is not None:
            self.metadata.update(found.metadata)
            self.metadata.pop("render_mode", None)
        state_space = getattr(self.environment, "state_space", None)
        if state_space is not None:  # what has none has no such attribute, in PettingZoo
            self.state_space = state_space
        self.render_mode = render_mode

    @property
    def trial_id(self) -> str:
        """The id of this episode's trial, or of the last one; empty before the first."""
        return self._match.trial_id

    @property
    def environment(self) -> Any:
        """The environment itself, if it is in this process; None if it is elsewhere."""
        return getattr(self._match.environment, "env", self._match.environment)

    def observation_space(self, agent: str) -> Any:
        """Return an agent's observation space, always the same object.

        Raises:
            InvalidArgumentError: the agent is not one of `possible_agents`.
        """
        return self._of_agent(self.observation_spaces, agent, "observation_space")

    def action_space(self, agent: str) -> Any:
        """Return an agent's action space, always the same object; see `observation_space`."""
        return self._of_agent(self.action_spaces, agent, "action_space")

    def _of_agent(self, values: Mapping[str, Any], agent: str, field: str) -> Any:
        try:
            return values[agent]
        except KeyError:
            raise self._turns.unknown(agent, field) from None

    def store_model(self, name: str, data: bytes) -> int:
        """Store a version of a model in the registry, for seats of it from the next `reset` on; return its number.

        Raises:
            FailedPreconditionError: there is no registry: `model_registry` was not given.
        """
        return self._match.platform.store_model(self._match.name, name, data)

    def render(self) -> Any:
        """Render the environment as it does by itself.

        Raises:
            InvalidArgumentError: the environment is elsewhere, or cannot render.
        """
        return self._match.render()

    def state(self) -> Any:
        """Return the environment's state, all of it, as the environment does by itself.

        Raises:
            NoStateError: the environment has none, or is elsewhere.
        """
        match = self._match
        state = getattr(self.environment, "state", None)
        if state is None:
            where = "it is elsewhere" if match.environment is None else "it has none"
            raise NoStateError(f"environment {match.name!r}: state: expected one, but {where}")
        try:
            return match.ask(state)
        except NotImplementedError as error:
            raise NoStateError(f"environment {match.name!r}: state: expected one, but it has none") from error

    def close(self) -> None:
        """End the trial that runs, and close everything; closing again is harmless."""
        self.agents = []
        self._match.close()


def check_illegal(illegal_actions: str | None) -> None:
    """Check what a caller says about illegal actions.

    Raises:
        InvalidArgumentError: it is neither of the two words, nor None.
    """
    if illegal_actions not in ("refuse", "play", None):
        raise InvalidArgumentError(f"illegal_actions: expected 'refuse' or 'play', got {illegal_actions!r}")


def plays_illegal(illegal_actions: str | None, environment: Any) -> bool:
    """Return whether an environment gets actions that its mask forbids; of one elsewhere (None) nothing is known."""
    return (illegal_actions or getattr(environment, "illegal_actions", "play")) == "play"


def open_match(
    environment: Any,
    *,
    seats: Mapping[str, Seat] | None,
    agents: Sequence[str],
    implementation: str,
    render_mode: str | None,
    options: PlatformOptions,
    platform: Any,
    arguments: dict[str, Any],
    rate: Rate | None = None,
) -> Match:
    """Return the match of a view of PettingZoo; see `make_parallel` for the arguments and the errors."""
    found = find_environment(
        environment,
        seats=seats,
        agents=agents,
        implementation=implementation,
        render_mode=render_mode,
        arguments=arguments,
    )
    return Match(found, seats=seats or {}, platform=platform, options=options, arguments=arguments, rate=rate)
