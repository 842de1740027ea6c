"""Settings of gateways for clients of dm_env_rpc."""

from __future__ import annotations

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SIZE, check_ranges, names_of


@record(kw_only=True)
class DmEnvRpcConfig:
    """What a gateway allows clients of dm_env_rpc. What holds for one world is in its template.

    Attributes:
        max_worlds: how many worlds there may be at the same time.
        max_peer_worlds: how many of them one peer may have created. A peer is an account: a token, a certificate or an
            address, over all its connections.
        max_connections: how many connections may be open at the same time.
        max_peer_connections: how many of them one peer may have.
        abandoned_seconds: how long a world is kept that nobody has joined when the peer that has created it has no
            connection any more.
        max_kept_messages: how many messages from others are kept for a client that does not read `messages.in`; then
            the oldest ones are dropped.
        leave_seconds: how long the end of a trial may take that nobody waits for: when a client vanishes, and when the
            gateway stops.
    """

    max_worlds: int = 4000
    max_peer_worlds: int = 1000
    max_connections: int = 4000
    max_peer_connections: int = 1000
    abandoned_seconds: float = 10.0
    max_kept_messages: int = 256
    leave_seconds: float = 3.0

    def __post_init__(self) -> None:
        check_ranges(self, {name: SECONDS if name.endswith("_seconds") else SIZE for name in names_of(self)})
