"""The game of `servers.Duel` as an environment of the project, so that it can be played with and without a bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from tests.gateways.dm_env_rpc.servers import Duel
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces import Box, Dict, Observation, Space

BOTH = ("ann", "bob")
_LOW, _HIGH = (int(end) for end in (np.iinfo(np.int32).min, np.iinfo(np.int32).max))


class DuelHere:
    """A `Duel` that is over for both players at once, as an environment."""

    name = "duel"
    metadata: ClassVar[dict[str, Any]] = {}
    agents = BOTH
    observation_spaces: Mapping[str, Space] = dict.fromkeys(BOTH, Dict({"last": Box(_LOW, _HIGH, (2,), "int32")}))
    action_spaces: Mapping[str, Space] = dict.fromkeys(BOTH, Dict({"number": Box(0, 9, (), "int32")}))

    def __init__(self, length: int) -> None:
        self._game = duel(length)
        self.over = False

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self.over = False
        return {
            agent: Observation({"last": seen["last"]}) for agent, seen in zip(BOTH, self._game.begin(), strict=True)
        }

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        states, seen = self._game.advance([actions.get(agent) or {} for agent in BOTH])
        self.over = pb.RUNNING not in states
        return {
            agent: Observation(
                {"last": own["last"]},
                float(own["reward"]),
                terminated=state == pb.TERMINATED,
                truncated=state == pb.INTERRUPTED,
                active=state == pb.RUNNING,
                alive=state == pb.RUNNING,
            )
            for agent, state, own in zip(BOTH, states, seen, strict=True)
        }

    def frame(self) -> None:
        return None

    def close(self) -> None:
        pass


def duel(length: int) -> Duel:
    """Return a game that is over for both players after this many steps."""
    game = Duel()
    game.lengths = (length, length)
    return game
