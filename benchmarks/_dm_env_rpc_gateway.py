"""The program of `dm_env_rpc.py` whose worlds are trials: `_dm_env_rpc_gateway.py [PORT]`; it prints its own port.

The environment is catch in this process, or the server at the port, over a bridge.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import trio

from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.environments.serving import environment
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC, DmEnvRpcGateway, Profile, dm_env_rpc_environment
from trio_cogment.platform import open_platform
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import Participants, actor_params, trial_params
from trio_cogment.spaces import Box, Dict, Observation, Space

ROWS, COLUMNS = 10, 5


class Catch:
    """The game of `_dm_env_rpc_library.py`."""

    name = "catch"
    metadata: ClassVar[dict[str, Any]] = {}
    agents = (SINGLE_AGENT,)
    observation_spaces: Mapping[str, Space] = {
        SINGLE_AGENT: Dict({"board": Box(-np.inf, np.inf, (ROWS, COLUMNS), "float32")})
    }
    action_spaces: Mapping[str, Space] = {SINGLE_AGENT: Dict({"paddle": Box(-128, 127, (), "int8")})}

    def __init__(self) -> None:
        self._random = np.random.RandomState(1)
        self._row = self._paddle = self._column = 0

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self._column = self._random.randint(COLUMNS)
        self._row, self._paddle = 0, COLUMNS // 2
        return self._seen(None)

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        self._paddle = int(np.clip(self._paddle + int(actions[SINGLE_AGENT]["paddle"]), 0, COLUMNS - 1))
        self._row += 1
        return self._seen((1.0 if self._paddle == self._column else -1.0) if self.over else 0.0)

    @property
    def over(self) -> bool:
        return self._row == ROWS - 1

    def _seen(self, reward: float | None) -> Mapping[str, Observation]:
        board = np.zeros((ROWS, COLUMNS), np.float32)
        board[self._row, self._column] = board[ROWS - 1, self._paddle] = 1
        going_on = not self.over
        return {
            SINGLE_AGENT: Observation(
                {"board": board}, reward, active=going_on, alive=going_on, terminated=not going_on
            )
        }

    def frame(self) -> None:
        return None

    def close(self) -> None:
        pass


async def main() -> None:
    spec = DM_ENV_RPC_SPEC if sys.argv[1:] else RL_SPEC
    participants = Participants(spec)
    if sys.argv[1:]:
        participants.register_environment(dm_env_rpc_environment(f"grpc://127.0.0.1:{sys.argv[1]}"))
    else:
        participants.register_environment(environment(Catch))
    params = trial_params([actor_params(SINGLE_AGENT, PLAYER, endpoint="cogment://client", spec=spec)], spec=spec)
    async with (
        open_platform(participants, extensions=[DmEnvRpcGateway(Profile.of(params, spec=spec))]) as platform,
        trio.open_nursery() as nursery,
    ):
        server: Any = await nursery.start(serve, platform.services, await open_listeners("127.0.0.1"))
        print(server.port, flush=True)


if __name__ == "__main__":
    trio.run(main)
