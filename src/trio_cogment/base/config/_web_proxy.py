"""Settings of the web proxy: trials by REST."""

from __future__ import annotations

from trio_cogment.base.config.declarations import Settings, Shared, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class WebProxyConfig(Settings):
    """Limits of a web proxy."""

    max_seats: int = setting(
        10_000,
        "actors that play by it, and requests that wait for their trial to start, each; more are refused",
        shared=Shared(
            "seats by REST",
            "max_peer_seats",
            "whoever has started the trial by REST; all other trials: one account",
            "the end of the trial, `leave`, a revoked token; `web_proxy.idle_seconds` in the actor's turn",
        ),
    )
    max_peer_seats: int = setting(
        2500,
        "how many of them one peer (a token, a certificate or an address) may have: actors in the trials that "
        "it has started, and its requests. All who start trials elsewhere are one",
    )
    idle_seconds: float = setting(
        3600.0, "an actor leaves whose turn it is, or that nobody has joined, when no request for it came for so long"
    )
    max_unread_bytes: int = setting(
        16 * 1024 * 1024,
        "of rewards and messages that an actor has not fetched; with more it is lost to its trial",
        of="participant",
    )
    join_timeout_seconds: float = setting(60.0, "how long who joins waits for a trial with such an actor to start")
    token_seconds: float = setting(86_400.0, "how long the token of an actor counts; to join again gives a new one")
    ended_seconds: float = setting(60.0, "how long the seat of an actor is remembered whose part is over")
    max_body_bytes: int = setting(4 * 1024 * 1024, "of a request; a longer one is answered with 413", of="message")
