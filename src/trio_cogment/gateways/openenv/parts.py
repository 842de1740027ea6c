"""An actor's part in one trial, as a client of OpenEnv sees it: its turns, and how it ends. Pure."""

from __future__ import annotations

import dataclasses

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.gateways.openenv.messages import Turn
from trio_cogment.spaces import Observation, Space, decode_observation


class Part:
    """Reads the observations of one actor.

    Attributes:
        over: the actor has had its last turn; nobody asks it any more.
    """

    def __init__(self, seat: str, space: Space) -> None:
        """Prepare for the observations of a seat, which are values of a space."""
        self._seat = seat
        self._space = space
        self._reward: float | None = None
        self.over = False

    def observe(self, message: pb.Observation, *, final: bool) -> Turn | None:
        """Take an observation; return what the client is told, or None if it is not asked to act.

        Args:
            message: what the environment sent.
            final: the trial is ending: there is no further observation.

        Raises:
            SpaceError: the message makes no sense, or its value is not in the space.
        """
        if self.over:
            return None
        observation = decode_observation(message, self._space)
        if observation.reward is not None:
            self._reward = observation.reward + (self._reward or 0.0)
        ended = observation.terminated or observation.truncated
        self.over = ended or final or not observation.alive
        if not self.over and not observation.active:
            return None
        return Turn(self._told(observation, ended), self.over, self._seat)

    def _told(self, observation: Observation, ended: bool) -> Observation:
        reward, self._reward = self._reward, None
        # A trial that somebody else has ended: for the task it was no end.
        truncated = observation.truncated or (self.over and not ended)
        return dataclasses.replace(observation, reward=reward, truncated=truncated)
