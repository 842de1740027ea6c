"""An agent's part in one trial, without the trial: messages in, actions out, nothing to wait for."""

from __future__ import annotations

import dataclasses
from typing import Any

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.seats.errors import SeatError
from trio_cogment.spaces import Observation, Space, SpaceError, decode_observation, encode_action

#: What is answered by who is not asked.
NO_ACTION = pb.Action()


class Player:
    """Reads the observations of one agent in one trial, and makes messages of its actions.

    Attributes:
        environment: the name of the environment, for errors.
        agent: whose part it is.
    """

    def __init__(self, environment: str, agent: str) -> None:
        self.environment = environment
        self.agent = agent
        self._observation_space: Space | None = None
        self._action_space: Space | None = None
        self._mask: Any = None

    @property
    def action_space(self) -> Space:
        """The agent's action space, which came with its first observation."""
        assert self._action_space is not None
        return self._action_space

    def observe(self, message: pb.Observation) -> Observation | None:
        """Return what the agent has to act on, always with its spaces; None if it is not asked for an action.

        Raises:
            SeatError: the message makes no sense, or it is the first and has no spaces.
        """
        try:
            observation = decode_observation(message)
        except SpaceError as error:
            raise SeatError(self.environment, self.agent, error) from None
        if observation.action_space is not None:
            self._observation_space, self._action_space = observation.observation_space, observation.action_space
        if not (observation.active and observation.alive):
            return None
        if self._action_space is None:
            raise SeatError(
                self.environment,
                self.agent,
                "action_space: expected it with the first observation of the trial, got none; the environment has to "
                "be one that trio_cogment.rl serves, or one that does the same",
            )
        return dataclasses.replace(
            observation, observation_space=self._observation_space, action_space=self._action_space
        )

    def act(self, action: Any) -> pb.Action:
        """Return an action as a message.

        Raises:
            SeatError: it is not in the action space.
        """
        try:
            return encode_action(action, self._action_space)
        except SpaceError as error:
            raise SeatError(self.environment, self.agent, error) from None
