"""Ports for servers whose port must be known before they listen."""

from __future__ import annotations

import itertools
import os
import socket

#: Below those that the system chooses. Processes that test side by side begin at different ones.
_candidates = itertools.count(20000 + os.getpid() * 53 % 8000)
_ATTEMPTS = 500


def free_port() -> int:
    """Return a port that was free a moment ago, another one each time."""
    for port in itertools.islice(_candidates, _ATTEMPTS):
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port
    raise AssertionError("no port is free")
