"""How often a peer may do what costs us more than it costs the peer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trio_cogment.config import RpcConfig
from trio_cogment.rpc._frames import ConnectionFaultError, ErrorCode

#: How many small WINDOW_UPDATEs a piece of output may bring about: for the stream and for the connection, twice each.
_UPDATES_PER_PIECE = 4


class RateLimit:
    """So many events in any interval of this length; one more breaks the connection with ENHANCE_YOUR_CALM."""

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
    """The rates of one connection. None is counted where an honest peer's messages pass.

    Attributes:
        resets: calls ended by the client before we answered (CVE-2023-44487), also by a fault that makes us end them
            (CVE-2025-8671), calls beyond the limit, malformed ones, and those on streams that are over.
        settings: each is answered.
        empty: frames that carry nothing, or next to nothing.
    """

    __slots__ = ("_data_mark", "_pings", "_updates", "empty", "resets", "settings")

    def __init__(self, config: RpcConfig, clock: Callable[[], float]) -> None:
        interval = config.flood_interval_seconds
        self.resets = RateLimit(config.max_resets, interval, clock, "too many calls reset")
        self.settings = RateLimit(config.max_settings, interval, clock, "too many SETTINGS")
        self.empty = RateLimit(config.max_empty_frames, interval, clock, "too many frames without content")
        # The text makes gRPC's clients PING half as often from then on.
        self._pings = RateLimit(config.max_pings, interval, clock, "too_many_pings")
        self._data_mark: object = None
        self._updates = 0  # WINDOW_UPDATEs that need no explanation

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

    def count_update(self, pieces_written: int) -> None:
        """Count a WINDOW_UPDATE that grants little, or that is for a stream that is over.

        A peer that reads small messages may send one for each, so only what exceeds the output so far is counted.

        Raises:
            ConnectionFaultError: it is one too many.
        """
        if self._updates < _UPDATES_PER_PIECE * pieces_written:
            self._updates += 1
        else:
            self.empty.count()
