"""Settings of the web proxy: trials by REST."""

from __future__ import annotations

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SIZE, Range, check_ranges


@record(kw_only=True)
class WebProxyConfig:
    """Limits of a web proxy.

    Attributes:
        max_seats: actors that play by it or wait to, and requests that wait for an actor's trial, each.
        max_peer_seats: how many of them one peer may have: actors in the trials that it has started, and its requests.
            A peer is an account: a token, a certificate or an address. All who start trials elsewhere are one.
        idle_seconds: an actor leaves whose turn it is, or that nobody has joined, when no request came for so long.
        max_unread_bytes: of rewards and messages that an actor has not fetched; with more it is lost to its trial.
        join_timeout_seconds: how long who joins waits for a trial with such an actor to start.
        token_seconds: how long the token counts that who joins gets; to join again gives a new one.
        ended_seconds: how long the seat of an actor is remembered whose part is over.
        max_body_bytes: of a request; a longer one is refused.
    """

    max_seats: int = 10_000
    max_peer_seats: int = 2500
    idle_seconds: float = 3600.0
    max_unread_bytes: int = 16 * 1024 * 1024
    join_timeout_seconds: float = 60.0
    token_seconds: float = 86_400.0
    ended_seconds: float = 60.0
    max_body_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)


_RANGES: dict[str, Range] = {
    "max_seats": SIZE,
    "max_peer_seats": SIZE,
    "idle_seconds": SECONDS,
    "max_unread_bytes": SIZE,
    "join_timeout_seconds": SECONDS,
    "token_seconds": SECONDS,
    "ended_seconds": SECONDS,
    "max_body_bytes": SIZE,
}
