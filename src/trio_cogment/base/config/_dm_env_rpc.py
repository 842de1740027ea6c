"""Settings of gateways for clients of dm_env_rpc."""

from __future__ import annotations

from trio_cogment.base.config.declarations import CLOSED, PEER, Flag, Settings, Shared, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class DmEnvRpcConfig(Settings):
    """What a gateway allows clients of dm_env_rpc. What holds for one world is in its template."""

    max_worlds: int = setting(
        4000,
        "how many worlds there may be at the same time",
        flag=Flag("--max_worlds", "COGMENT_DM_ENV_RPC_MAX_WORLDS"),
        shared=Shared(
            "worlds of dm_env_rpc",
            "max_peer_worlds",
            "whoever has created the world",
            "DestroyWorld; nobody in it for `world_idle_seconds`, or `dm_env_rpc.abandoned_seconds` after "
            "the last connection of whoever has created it",
        ),
    )
    max_peer_worlds: int = setting(
        1000, "how many of them one peer (a token, a certificate or an address) may have created"
    )
    max_connections: int = setting(
        4000,
        "how many connections of clients may be open at the same time",
        flag=Flag("--max_connections", "COGMENT_DM_ENV_RPC_MAX_CONNECTIONS"),
        shared=Shared("connections of dm_env_rpc", "max_peer_connections", PEER, CLOSED),
    )
    max_peer_connections: int = setting(1000, "how many of them one peer may have")
    abandoned_seconds: float = setting(
        10.0,
        "how long a world is kept that nobody has joined when the peer that has created it has no connection any more",
    )
    max_kept_messages: int = setting(
        256,
        "how many messages from others are kept for a client that does not read `messages.in`; then the oldest "
        "ones are dropped",
        of="connection",
    )
    leave_seconds: float = setting(
        3.0,
        "how long the end of a trial may take that nobody waits for: when a client vanishes, and when the "
        "gateway stops",
    )
