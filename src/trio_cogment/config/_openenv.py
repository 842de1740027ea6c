"""Settings of servers of OpenEnv."""

from __future__ import annotations

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SIZE, check_ranges, names_of


@record(kw_only=True)
class OpenEnvConfig:
    """What a server of OpenEnv allows its clients.

    Attributes:
        max_sockets: how many sockets may be open, and HTTP calls under way, at the same time.
        max_peer_sockets: how many of them one peer may have: a token, a certificate or an address. Programs on this
            machine without a token are one.
        max_message_bytes: the longest message, or body of an HTTP call.
        idle_seconds: how long a socket may leave the server without a message while it is the client's turn.
        gather_seconds: how long a reset waits for the trial's other sockets. The stock client gives up after 60 s.
        send_seconds: how long a client may take to read an answer, and an HTTP client to send its body.
        call_seconds: how long `POST /reset` and `POST /step` may take; a step's own `timeout_s` may be shorter.
        shutdown_seconds: how long the sockets have to go when the server ends.
    """

    max_sockets: int = 256
    max_peer_sockets: int = 64
    max_message_bytes: int = 16 * 1024 * 1024
    idle_seconds: float = 3600.0
    gather_seconds: float = 50.0
    send_seconds: float = 30.0
    call_seconds: float = 60.0
    shutdown_seconds: float = 3.0

    def __post_init__(self) -> None:
        sizes = ("max_sockets", "max_peer_sockets", "max_message_bytes")
        check_ranges(self, {name: SIZE if name in sizes else SECONDS for name in names_of(self)})
