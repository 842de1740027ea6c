"""The ticks of a match, from one moment at which an agent of the caller's is to act to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.spaces import Observation, Space, SpaceError, check_action
from trio_cogment.spaces.masks import check_allowed

_MASK = "action_mask"


class Ticks(Protocol):
    """What is needed of a `Match`; see there."""

    @property
    def name(self) -> str:
        """The name of the environment."""

    @property
    def mine(self) -> Sequence[str]:
        """The agents of the caller's."""

    @property
    def action_spaces(self) -> Mapping[str, Space]:
        """By agent."""

    @property
    def over(self) -> bool:
        """No step can be made."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Mapping[str, Observation]:
        """Begin an episode."""

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        """Make one tick."""

    def receive(self) -> Mapping[str, Observation]:
        """End the tick that was begun."""


class Turns:
    """An episode as the caller's agents see it: what happens while none of them is to act belongs to the step before.

    Args:
        match: whose episodes they are.
        plays_illegal: the environment gets actions that its mask forbids; else they are refused here.

    Attributes:
        live: the agents of the caller's that take part, in the environment's order.
        asked: those of them who are to act now.
        observations: the newest of each.
        rewards: of the last step: the sum over its ticks, for each agent that took part in it.
        ended: who ended in the last step: whether terminated, and whether truncated.
    """

    def __init__(self, match: Ticks, *, plays_illegal: bool = True) -> None:
        self._match = match
        self._plays_illegal = plays_illegal
        self.live: list[str] = []
        self.asked: list[str] = []
        self.observations: dict[str, Observation] = {}
        self.rewards: dict[str, float] = {}
        self.ended: dict[str, tuple[bool, bool]] = {}

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Begin an episode, and let the others act until it is the turn of an agent of the caller's.

        Raises whatever `Match.reset` and `Match.step` raise; nobody takes part then.
        """
        self.live, self.asked = [], []
        self._advance(self._match.reset(seed, options))

    def step(self, actions: Mapping[str, Any]) -> None:
        """Make a step.

        Args:
            actions: of those who are asked.

        Raises whatever `Match.step` raises; the episode goes on after an `InvalidActionError`, and after no other.
        """
        try:
            found = self._match.step(actions)
        except InvalidActionError:
            raise
        except BaseException:  # Control-C, too: no step can follow
            self.live, self.asked = [], []
            raise
        self._advance(found)

    def receive(self) -> None:
        """End a step that was begun with `Match.send`; see `step`."""
        try:
            found = self._match.receive()
        except BaseException:  # as in `step`
            self.live, self.asked = [], []
            raise
        self._advance(found)

    def _advance(self, found: Mapping[str, Observation]) -> None:
        self.rewards = dict.fromkeys(self.live, 0.0)
        self.ended = {}
        self._take(found)
        # The others act while nobody is asked who is in the game.
        while not self.asked and self.live and not self._match.over:
            try:
                found = self._match.step({})
            except BaseException:  # as in `step`
                self.live = []
                raise
            self._take(found)

    def _take(self, found: Mapping[str, Observation]) -> None:
        over, rewards = self._match.over, self.rewards
        self.live, self.asked = [], []
        for agent in self._match.mine:
            observation = self.observations[agent] = found[agent]
            reward = observation.reward
            if reward is not None:
                rewards[agent] = rewards.get(agent, 0.0) + reward
            if observation.terminated or observation.truncated:
                self.ended[agent] = observation.terminated, observation.truncated
            elif observation.alive and not over:
                self.live.append(agent)
                if observation.active:
                    self.asked.append(agent)
            else:
                continue
            if reward is None:
                rewards.setdefault(agent, 0.0)

    def check_action(self, agent: str, action: Any) -> None:
        """Check an action before the step of which it is a part.

        Raises:
            InvalidActionError: it is not in the agent's action space, or its mask forbids it.
        """
        space = self._match.action_spaces[agent]
        try:
            value = check_action(action, space)
        except SpaceError as error:
            raise InvalidActionError(self._match.name, agent, error) from None
        if self._plays_illegal or agent not in self.asked:
            return
        try:
            check_allowed(space, value, self.observations[agent].action_mask)
        except SpaceError as error:
            raise InvalidActionError(self._match.name, agent, error.of("action")) from None

    def check_running(self, begun: bool) -> None:
        """Check that a step can be made.

        Args:
            begun: there has been a reset.

        Raises:
            FailedPreconditionError: it cannot.
        """
        if not self.live:
            because = ", because the episode is over for all agents here" if begun else ""
            raise FailedPreconditionError(f"environment {self._match.name!r}: step: expected a reset first{because}")

    def unknown(self, agent: object, field: str) -> InvalidArgumentError:
        """Return the error about an agent that is not one of the caller's."""
        known = ", ".join(map(repr, self._match.mine))
        return InvalidArgumentError(
            f"environment {self._match.name!r}: {field}: expected agents out of {known}; got {agent!r}"
        )


def info_of(observation: Observation) -> dict[str, Any]:
    """Return the information of an observation; with the action mask, unless that is in the value."""
    info, mask, value = observation.info, observation.action_mask, observation.value
    if mask is not None and _MASK not in info and not (isinstance(value, dict) and _MASK in value):
        return {**info, _MASK: mask}
    return info
