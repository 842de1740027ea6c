"""Settings of servers of OpenEnv."""

from __future__ import annotations

from trio_cogment.base.config.declarations import PEER, Flag, Settings, Shared, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class OpenEnvConfig(Settings):
    """What a server of OpenEnv allows its clients."""

    max_sockets: int = setting(
        256,
        "how many sockets may be open, and HTTP calls under way, at the same time",
        flag=Flag("--max_sockets"),
        shared=Shared(
            "sockets of OpenEnv",
            "max_peer_sockets",
            PEER,
            "the end of the connection: when it is closed, silent for too long, or its token is revoked; "
            "`openenv.idle_seconds` in the client's turn",
        ),
    )
    max_peer_sockets: int = setting(
        64,
        "how many of them one peer (a token, a certificate or an address) may have. Programs on this machine "
        "without a token are one",
        flag=Flag("--max_peer_sockets"),
    )
    max_message_bytes: int = setting(16 * 1024 * 1024, "the longest message, or body of an HTTP call", of="message")
    idle_seconds: float = setting(
        3600.0, "how long a socket may leave the server without a message while it is the client's turn"
    )
    gather_seconds: float = setting(
        50.0, "how long a reset waits for the trial's other sockets. The stock client gives up after 60 s"
    )
    send_seconds: float = setting(
        30.0,
        "how long a client may take to read an answer, and an HTTP client to send its body; "
        "`web.body_timeout_seconds` and `web.write_stall_timeout_seconds` do not count here",
    )
    call_seconds: float = setting(
        60.0, "how long `POST /reset` and `POST /step` may take; a step's own `timeout_s` may be shorter"
    )
    shutdown_seconds: float = setting(3.0, "how long calls may go on when the server ends; sockets are told at once")
