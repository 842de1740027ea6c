"""A gateway in front of games of this package's own server, over a bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.gateways.dm_env_rpc.servers import Server, served
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.dm_env_rpc_bridge_pb2 import BridgeConfig
from trio_cogment.base.config import DmEnvRpcConfig
from trio_cogment.environments.spec import PLAYER
from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC, dm_env_rpc_environment
from trio_cogment.gateways.dm_env_rpc.gateway.gateway import DmEnvRpcGateway
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import Participants, actor_params, trial_params
from trio_cogment.spaces.values import fill_fields


def game_params(actors: Sequence[str] = ("player_0",), *, max_steps: int = 0, **create_settings: Any) -> TrialParams:
    config = BridgeConfig()
    if create_settings:
        fill_fields(config.create_settings, create_settings)
    return trial_params(
        [actor_params(name, PLAYER, endpoint="cogment://client", spec=DM_ENV_RPC_SPEC) for name in actors],
        environment_config=config,
        max_steps=max_steps,
        spec=DM_ENV_RPC_SPEC,
    )


@asynccontextmanager
async def gateway_over_games(
    params: TrialParams, *, config: DmEnvRpcConfig | None = None, **policies: Any
) -> AsyncIterator[tuple[Platform, Server]]:
    """Run a platform whose gateway has one template, and whose environment is a game of a server."""
    profile = Profile.of(params, spec=DM_ENV_RPC_SPEC, **policies)
    async with served() as (url, server, _):
        participants = Participants(DM_ENV_RPC_SPEC)
        participants.register_environment(dm_env_rpc_environment(url))
        async with open_platform(participants, extensions=[DmEnvRpcGateway(profile, config=config)]) as platform:
            yield platform, server
