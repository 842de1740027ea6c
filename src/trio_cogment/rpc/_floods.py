"""Limits of frames that cost this end more than they cost the peer.

Flow control bounds DATA alone. Every other frame is free to send, and some make the receiver work, answer or remember
something (RFC 9113, 10.5). Two kinds of limits answer to that. Where memory is at stake, the amount is bounded: see
`_send_queue` for answers that are not read, `_header_blocks` and `_control` for header blocks. Where work is at stake,
the rate is bounded, here:

=============================================  ==================  =====================================
what the peer sends                            limit               known as
=============================================  ==================  =====================================
calls that it resets before they are answered  `max_resets`        rapid reset, CVE-2023-44487
calls that it makes the server reset           `max_resets`        MadeYouReset, CVE-2025-8671
SETTINGS                                       `max_settings`      SETTINGS flood, CVE-2019-9515
PING                                           `max_pings`         PING flood, CVE-2019-9512
PRIORITY                                       `max_empty_frames`  resource loop, CVE-2019-9513
empty DATA and CONTINUATION, unknown types,    `max_empty_frames`  empty frames flood, CVE-2019-9518;
1xx responses, PING answers                                        CONTINUATION flood, CVE-2024-27316
small WINDOW_UPDATEs, more than output calls   `max_empty_frames`  data dribble, CVE-2019-9511
for, and those for streams that are over
=============================================  ==================  =====================================

An honest peer must never meet a limit. So nothing is counted on the way of a message, and where honest peers do send
many such frames (PING, WINDOW_UPDATE), only those are counted that the data passed so far does not explain.

Whoever exceeds a limit loses the connection with ENHANCE_YOUR_CALM. All calls of the connection end with it; that is
intended, as they come from the same peer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc._frames import ConnectionFaultError, ErrorCode


class RateLimit:
    """At most `limit` events in any interval of `interval` seconds.

    Times are kept one by one, and not as a counter that is reset: between two resets of a counter, twice the limit
    would pass.
    """

    __slots__ = ("_clock", "_interval", "_limit", "_text", "_times")

    def __init__(self, limit: int, interval: float, clock: Callable[[], float], text: str) -> None:
        self._limit = limit
        self._interval = interval
        self._clock = clock
        self._text = text
        self._times: deque[float] = deque()

    def count(self) -> None:
        """Count one event.

        Raises:
            ConnectionFaultError: it is one too many.
        """
        now = self._clock()
        times = self._times
        while times and now - times[0] > self._interval:
            times.popleft()
        if len(times) >= self._limit:
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, self._text)
        times.append(now)


class Floods:
    """The rates of one connection; see the module.

    Args:
        config: the limits.
        clock: the time in seconds.
        peer_may_reset: counts a reset for all connections of the peer together; False if it is one too many.

    Attributes:
        settings: each is answered, and may change the window of every stream.
        empty: frames that carry nothing, or next to nothing.
    """

    __slots__ = ("_data_mark", "_peer_may_reset", "_pings", "_resets", "empty", "settings")

    def __init__(self, config: RpcConfig, clock: Callable[[], float], peer_may_reset: Callable[[], bool]) -> None:
        self._peer_may_reset = peer_may_reset
        interval = config.flood_interval_seconds
        self._resets = RateLimit(config.max_resets, interval, clock, "too many calls reset (max_resets)")
        self.settings = RateLimit(config.max_settings, interval, clock, "too many SETTINGS (max_settings)")
        self.empty = RateLimit(
            config.max_empty_frames, interval, clock, "too many frames without content (max_empty_frames)"
        )
        # gRPC's clients know this text: they PING half as often from then on (gRPC's A8).
        self._pings = RateLimit(config.max_pings, interval, clock, "too_many_pings")
        self._data_mark: object = None

    def count_reset(self) -> None:
        """Count a call that ends before it is answered, by the client's RST_STREAM or by a fault of the client's.

        Calls beyond MAX_CONCURRENT_STREAMS, malformed ones, and those on streams that are over count as well: each
        costs a handler, or an answer, and none counts as an open stream.

        Raises:
            ConnectionFaultError: it is one too many.
        """
        self._resets.count()
        if not self._peer_may_reset():
            raise ConnectionFaultError(
                ErrorCode.ENHANCE_YOUR_CALM, "too many calls reset on the connections of one peer (max_peer_resets)"
            )

    def count_ping(self, data_mark: object) -> None:
        """Count a PING, unless data has passed since the last one.

        gRPC for Go measures round trips with a PING for almost every message; `data_mark`, anything that DATA in
        either direction changes, tells those from a flood.

        Raises:
            ConnectionFaultError: it is one too many.
        """
        if data_mark == self._data_mark:
            self._pings.count()
        self._data_mark = data_mark
