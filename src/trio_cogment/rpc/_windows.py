"""What the engine lets its peer send: windows, grants for large messages, and one connection's memory.

A stream's window is credited on consumption, the connection's on receipt: a call that nobody reads stops itself and no
other. Two things are bounded for all streams together, by `RpcConfig.connection_memory_bytes`:

* grants: a message that does not fit into its stream's window is let through whole once it has begun, or it would wait
  for a consumption that cannot happen. Grants are given in order of arrival while their sum stays within the budget;
  one that is larger than the budget gets it alone. While others wait, who has a grant must go on sending: see
  `_liveness`.
* what is held: beyond the budget the connection is not credited either, until something is taken. Where only pieces
  of messages are held nobody could take anything, so there it is credited still, a little at a time. What came on a
  client's stream that is over by now counts until its caller has taken it, or has gone.

Nothing of this costs anything while messages are small and taken soon: sums are made when a credit is due.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from trio_cogment.config import RpcConfig
from trio_cogment.rpc._frames import HEADER, INITIAL_WINDOW, WINDOW_UPDATE
from trio_cogment.rpc._streams import PREFIX_BYTES, Stream

#: The connection is credited in no smaller steps.
_STEP = INITIAL_WINDOW >> 1


def nothing() -> None:
    """What a callback does that nobody has set."""


class Windows:
    """See the module. `Sender` adds what we send.

    Attributes:
        streams: those that are open, by number.
        out_size: bytes of output not taken yet.
        on_queue: called when a message has to wait for a grant, and none has before it.
    """

    def __init__(self, config: RpcConfig) -> None:
        self.config = config
        self.streams: dict[int, Stream] = {}
        self.out_size = 0
        self.on_queue: Callable[[], None] = nothing
        self._out: list[bytes | memoryview] = []
        self._initial = config.stream_window_bytes
        self._low = max(self._initial >> 1, 1)  # a stream's window below this is looked at
        self._window_size = max(config.connection_window_bytes, INITIAL_WINDOW)
        self._recv_window = self._window_size
        self._budget = config.connection_memory_bytes
        self._granted = 0
        self._applicants: dict[Stream, None] = {}  # an ordered set: whose large message waits for a grant
        self._unread: dict[Stream, None] = {}  # an ordered set: closed, with messages that may still be taken
        self._withheld = False  # the connection wants credit and gets it when something is taken

    def _emit(self, data: bytes) -> None:
        self._out.append(data)
        self.out_size += len(data)

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes = b"") -> None:
        size = len(payload)
        self._emit(HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload)

    def consumed(self, stream: Stream, size: int) -> None:
        """Say that the application has taken a message of `size` bytes (as it was on the wire)."""
        stream.held -= size + PREFIX_BYTES
        if stream.recv_window < self._low or self._withheld:
            if not stream.remote_closed and not stream.closed:
                self._top_up(stream)
            elif stream.granted and stream.held <= self._initial:
                self._release(stream)
            elif stream.closed and not stream.held:
                self._unread.pop(stream, None)
            if self._withheld:
                self._credit_connection()

    def keep(self, stream: Stream, sizes: Collection[int]) -> None:
        """Say that messages of these sizes may still be taken, although the stream is over."""
        stream.held = sum(sizes) + PREFIX_BYTES * len(sizes)
        stream.recv_window = -1  # so that `consumed` needs no look at `closed` on its short way
        self._unread[stream] = None

    def forget(self, stream: Stream) -> None:
        """Say that nothing more will be taken of a stream that is over."""
        if self._unread and stream in self._unread:
            del self._unread[stream]
            stream.held = 0
            if self._withheld:
                self._credit_connection()

    def _top_up(self, stream: Stream) -> None:
        """Let the stream's window grow; small increments are saved up."""
        window = stream.recv_window
        missing = stream.missing
        target = self._initial - stream.held
        if missing > target:
            if missing <= window:
                return
            if stream.granted or self._grant(stream):
                target = missing
        elif stream.granted:
            self._release(stream)  # what was consumed meanwhile has made room enough
        grow = target - window
        if grow >= self._low or (grow > 0 and window < missing <= target):
            stream.recv_window += grow
            self._frame(WINDOW_UPDATE, 0, stream.id, grow.to_bytes(4, "big"))

    # --- grants ---

    def _grant(self, stream: Stream) -> bool:
        """Reserve memory for the rest of a large message, or put the stream in the queue."""
        need = stream.missing
        applicants = self._applicants
        if self._granted and (self._granted + need > self._budget or next(iter(applicants), stream) is not stream):
            if not applicants:
                self.on_queue()
            applicants[stream] = None
            return False
        applicants.pop(stream, None)
        stream.granted = need
        self._granted += need
        return True

    def _release(self, stream: Stream) -> None:
        self._granted -= stream.granted
        stream.granted = 0
        self._applicants.pop(stream, None)
        while self._applicants:
            first = next(iter(self._applicants))
            self._top_up(first)
            if first in self._applicants:
                if not first.granted and first.missing > first.recv_window:
                    return  # it still waits, and so do those behind it
                del self._applicants[first]  # what it consumed meanwhile has made room enough

    def holders(self) -> list[Stream]:
        """Return the streams whose grants others wait for, if it is for them that these wait."""
        if not self._applicants or self._recv_window <= 0:
            return []
        return [stream for stream in self.streams.values() if stream.granted and stream.missing]

    def _reclaim(self, stream: Stream) -> None:
        """A stream is over: its memory is free."""
        if stream.granted or stream in self._applicants:
            self._release(stream)
        if self._withheld:
            self._credit_connection()

    # --- the connection ---

    def _credit_connection(self) -> None:
        held = sum(stream.held for stream in self.streams.values())
        if self._unread:
            held += sum(stream.held for stream in self._unread)
        most = self._budget + (self._granted if self._granted > self._budget else 0)
        grow = min(self._window_size, most - held) - self._recv_window
        if grow < _STEP and self._recv_window < _STEP and self._only_pieces():
            grow = _STEP
        if grow >= _STEP:
            self._recv_window += grow
            self._frame(WINDOW_UPDATE, 0, 0, grow.to_bytes(4, "big"))
        self._withheld = self._recv_window < self._window_size >> 1

    def _only_pieces(self) -> bool:
        """Whether nothing that is held can be taken."""
        return not self._unread and all(stream.held <= stream.piece_size() for stream in self.streams.values())
