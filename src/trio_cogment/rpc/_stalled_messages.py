"""Large messages that do not come any further while the messages of others wait for the room they hold.

The receive window grants a large message its room as a whole, within a budget of the connection (`_receive_window`). A
sender that announces such messages and then stops would keep the others waiting indefinitely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc._frames import ErrorCode
from trio_cogment.rpc._streams import Stream

#: A message must make at least this much progress within the patience, or be complete.
_LEAST_PROGRESS_BYTES = 16 * 1024
#: Or the large messages of the connection together must make this much: then the link is slow, and not the sender.
_BUSY_BYTES = 16 * _LEAST_PROGRESS_BYTES


class Holding(Protocol):
    """An engine, as far as the room for large messages is concerned."""

    def holders(self) -> Iterable[Stream]:
        """Return the streams whose large messages hold room that others wait for."""

    def reset(self, stream: Stream, code: int) -> None:
        """End a stream."""


class _Progress:
    """How far the large message of one stream has come.

    Attributes:
        seen: bytes that were missing at the last look.
        missing: the same at `since`.
        others: what had come of all large messages together at `since`.
        since: when it was seen to come further, or had a reason not to.
    """

    __slots__ = ("missing", "others", "seen", "since")

    def __init__(self, missing: int, others: int, now: float) -> None:
        self.seen = self.missing = missing
        self.others = others
        self.since = now


class StalledMessages:
    """Ends calls whose large messages do not come any further while the messages of others wait for their room.

    A sender of several large messages may send them one after the other (grpcio does), and its link may be slow. While
    enough comes of all of them together, one that waits for its turn is not stalled.

    Args:
        engine: of the connection.
        patience: seconds that a message may come no further.
        wake: sends the engine's output.
    """

    def __init__(self, engine: Holding, patience: float, wake: Callable[[], None]) -> None:
        self._engine = engine
        self._patience = patience
        self._wake = wake
        self._progress: dict[Stream, _Progress] = {}
        self._came = 0  # bytes of all of them

    def look(self, now: float) -> float:
        """End the calls for which it is time; return when to look again."""
        for stream, progress in self._progress.items():
            left = stream.missing
            self._came += progress.seen - left if left <= progress.seen else progress.seen
        holders: dict[Stream, _Progress] = {}
        for stream in self._engine.holders():
            progress = self._progressed(stream, now)
            if now - progress.since >= self._patience:
                self._end(stream)
            else:
                holders[stream] = progress
        self._progress = holders
        return now + self._patience / 4 if holders else math.inf

    def _progressed(self, stream: Stream, now: float) -> _Progress:
        missing = stream.missing
        progress = self._progress.get(stream)
        if (
            progress is None
            or missing > progress.seen  # it is another message
            or progress.missing - missing >= _LEAST_PROGRESS_BYTES
            or self._came - progress.others >= _BUSY_BYTES
        ):
            return _Progress(missing, self._came, now)
        progress.seen = missing
        return progress

    def _end(self, stream: Stream) -> None:
        text = f"a message has come no further for {self._patience:g} s while others waited for its room"
        if stream.call is not None:
            stream.call.on_broken(StatusCode.RESOURCE_EXHAUSTED, text)
        else:
            self._engine.reset(stream, ErrorCode.CANCEL)
        self._wake()
