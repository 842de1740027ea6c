"""Admission of connections to a server, and the refusal of the others.

Three things can be short: connections (`PeerLimits`), descriptors, and memory of the kernel's. Descriptors are needed
for more than connections: a database opens its journal, a trial connects to its actors. So a server refuses
connections while some are left (`RpcConfig.reserved_descriptors`). Linux gives a new descriptor the lowest free number,
hence as many are in use as the number of the newest says.

Should they run out all the same, `accept` fails, and the connection would stay in the kernel's queue and keep the
listener readable. Each server therefore has one descriptor in reserve: it is closed, the connection accepted, closed at
once, and the descriptor opened again. Where that fails, accepting pauses, as trying at once would be a busy loop.

A client that is refused is told so with GOAWAY (ENHANCE_YOUR_CALM and the name of the limit), as far as that costs
little: a few at a time may take the time to read it, all others are closed at once.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from trio_cogment.access import Identity
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.budget.peer_limits import PeerConnection, PeerLimits
from trio_cogment.budget.refusals import refusals
from trio_cogment.rpc._byte_stream_over import byte_stream_over
from trio_cogment.rpc._frames import GOAWAY, HEADER, ErrorCode

if sys.platform != "win32":
    import resource

logger = logging.getLogger(__name__)

#: How many refused connections may read why.
_TOLD_AT_ONCE = 16
_TOLD_SECONDS = 0.5
_TOLD_BYTES = 64 * 1024
_KIND = "refused connections"


class Admission:
    """Who is let in to one server.

    Args:
        config: the limits.
    """

    def __init__(self, config: RpcConfig) -> None:
        self.limits = PeerLimits(config, trio.current_time)
        self._config = config
        self._being_told = 0

    def admit(self, stream: trio.abc.Stream, identity: Identity) -> PeerConnection:
        """Count a connection that was accepted, until its `close`.

        Raises:
            ResourceExhaustedError: there are enough; its text names the limit.
        """
        reserved = self._config.reserved_descriptors
        if _descriptor(stream) >= _most_descriptors() - reserved:
            raise ResourceExhaustedError(f"reserved_descriptors: the last {reserved} are not for connections")
        return self.limits.connect(identity)

    async def refuse(self, stream: trio.abc.Stream, reason: ResourceExhaustedError) -> None:
        """Close a connection; tell its client why if not too many are being told."""
        refusals().add(_KIND, logger, "connection refused: %s", reason)
        if self._being_told >= _TOLD_AT_ONCE or isinstance(stream, trio.SSLStream):
            await trio.aclose_forcefully(stream)
            return
        byte_stream = byte_stream_over(stream)
        self._being_told += 1
        try:
            with trio.move_on_after(_TOLD_SECONDS):
                await byte_stream.send_all(_refusal(str(reason)))
                await byte_stream.linger(_TOLD_BYTES)
        except trio.BrokenResourceError:
            pass  # it did not wait for the answer
        finally:
            self._being_told -= 1
            await byte_stream.aclose()  # closes also when cancelled

    def out_of(self, what: str) -> None:
        """Say that `accept` has failed."""
        refusals().add(_KIND, logger, "connection refused: cannot accept: %s", what)


def _refusal(reason: str) -> bytes:
    """Return a GOAWAY frame.

    No SETTINGS go before it, though RFC 9113 (3.4) has every connection begin with them: after SETTINGS gRPC's C core
    takes the server for one that works, and comes back at once instead of waiting longer each time.
    """
    payload = bytes(4) + int(ErrorCode.ENHANCE_YOUR_CALM).to_bytes(4, "big") + reason.encode()
    return HEADER.pack(len(payload) >> 8, len(payload) & 0xFF, GOAWAY, 0, 0) + payload


class ReserveDescriptor:
    """A descriptor that is held to be given up; `close` it in the end."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._open()

    def _open(self) -> None:
        try:
            self._descriptor = os.open(os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            self._descriptor = -1  # somebody else has been quicker; it is tried again at the next opportunity

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """Free it for the block, and take it back afterwards."""
        self.close()
        try:
            yield
        finally:
            self._open()

    def close(self) -> None:
        """Give it up for good."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            os.close(descriptor)


def _descriptor(stream: Any) -> int:
    while isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    return stream.socket.fileno() if isinstance(stream, trio.SocketStream) else -1


def _most_descriptors() -> float:
    if sys.platform == "win32":
        return math.inf
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if soft == resource.RLIM_INFINITY else soft
