"""Receive windows of one connection: grants for large messages, and a bound on memory.

Flow control has two levels (RFC 9113, 5.2), and they are credited at different times:

* a stream's window is credited when the application has *taken* a message. A call that nobody reads stops itself;
* the connection's window is credited when bytes have *arrived*. If it waited for the application as well, one call
  that nobody reads would stop all others.

A WINDOW_UPDATE waits until the window is half used. One for each message would double the number of frames, and cost
the peer more than the message itself; half a window leaves the peer enough to go on with until the update arrives.

A stream begins with a window that is small enough for a thousand calls. It becomes larger where the peer has used it up
by the time that the application has taken what came: for a bulk transfer, or for messages that are larger than the
window, half of which would otherwise wait for an update that crosses the network first. A call that nobody reads keeps
the small one.

That alone leaves two gaps. Each is closed by a bound over all streams, `RpcConfig.connection_memory_bytes`:

* A message larger than its stream's window would never arrive whole, and the application can take only whole messages.
  So once such a message has begun, its stream gets a *grant*: a window as large as the rest of the message. Grants are
  given in order of arrival, while their sum stays within the bound. A message larger than the bound gets it alone.
  While streams wait, those with a grant have to go on sending: see `_stalled_messages`.
* Many streams that each hold a window of unread messages add up. Beyond the bound the connection is not credited
  (`withheld`) until something is taken. If only pieces of messages are held, nobody could take anything, so the
  connection is then credited in small steps. A client's stream that is over counts until its caller has taken what
  came, or has gone (`keep`, `forget`).

None of this costs anything while messages are small and taken soon: the sums are made only when a credit is due.

Padding counts for both windows (RFC 9113, 6.1) and is held by nobody. A window as large as the rest of a message is too
small for a peer that pads each frame, however often it is topped up. So once a peer has padded a frame (`padded`), its
windows leave room for the padding of some more frames beside what is missing of a message, or of the next one's prefix.

Where a server bounds the memory of all its connections together (`ConnectionMemory`), a connection begins with the
smallest window there is, 65,535 bytes, which nobody has to lend it. What it is credited beyond that is borrowed, and so
is what it holds beyond that: for a large message as a whole, before it is let through, so that what has begun to come
can be finished. While a connection cannot borrow what it holds it is not credited. Should only pieces of messages be
held then, it waits for memory that others give back, and so do large messages.

Invariants:

* `granted` is the sum of `Stream.granted` over the open streams;
* whoever waits for a grant is behind a stream that has one, or waits for memory: where that is not limited, nobody
  waits with `granted` at 0;
* no window is ever made larger than what its bound leaves free, apart from the small steps above.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.recount import Count
from trio_cogment.budget.byte_pool import Loan
from trio_cogment.rpc._frames import INITIAL_WINDOW, ConnectionFaultError, ErrorCode
from trio_cogment.rpc._streams import PREFIX_BYTES, Stream

#: The connection is credited in no smaller steps.
_STEP: Final = INITIAL_WINDOW >> 1
#: A window of which less than this part is left (a sixteenth) has been used up.
_USED_UP_SHIFT: Final = 4
#: The most padding of one frame, with the byte that says how long it is.
_MOST_PADDING: Final = 256
#: Room for the padding of several frames, so that not each of them is answered with a WINDOW_UPDATE.
_PADDING_ROOM: Final = 16 * _MOST_PADDING


class ReceiveWindow:
    """The windows that this end grants its peer.

    `Stream.recv_window`, `held` and `granted` of each stream belong to this class, apart from the frame parser, which
    subtracts what arrives; for whole messages, its short way, it subtracts it from `size` as well.

    Args:
        config: the sizes.
        streams: those that are open, by number; only read.
        send_update: called with a stream's number (0 for the connection) and an increment, to send a WINDOW_UPDATE.
        on_wait: called when a message has to wait for a grant, and none has been waiting before it.
        held: what is borrowed for what has arrived.
        promised: what is borrowed for what may be sent.
        on_credit: called when the connection is credited while nothing has come from the peer.

    Attributes:
        initial: the window of a new stream, in bytes.
        size: bytes that the peer may still send on the connection.
        low: below this the connection is due a credit.
        stream_low: `Stream.low_window` of a new stream.
        granted: bytes promised to large messages.
        loan: what is borrowed for what has arrived, and for large messages.
        withheld: a credit is due and waits until something is taken.
    """

    def __init__(
        self,
        config: RpcConfig,
        streams: Mapping[int, Stream],
        send_update: Callable[[int, int], None],
        on_wait: Callable[[], None],
        held: Loan,
        promised: Loan,
        on_credit: Callable[[], None],
    ) -> None:
        self.initial = config.stream_window_bytes
        self._widest = max(self.initial, config.connection_window_bytes >> 1)
        self.granted = 0
        self.withheld = False
        self._full = max(config.connection_window_bytes, INITIAL_WINDOW)  # it cannot begin with less (RFC 9113, 6.9.2)
        self.loan = held
        self._promised = promised
        self._on_credit = on_credit
        #: Where memory is not limited, nothing need be asked for.
        self.size = INITIAL_WINDOW if promised.limited else self._full
        self.low = self.size >> 1
        self.stream_low = self.initial >> 1  # a stream's window below this is looked at
        self._padding = 0  # the window that one frame may need beside its data
        self._padding_room = 0
        self._budget = config.connection_memory_bytes
        self._streams = streams
        self._send_update = send_update
        self._on_wait = on_wait
        self._applicants: dict[Stream, None] = {}  # an ordered set: whose large message waits for a grant
        self._unread: dict[Stream, None] = {}  # an ordered set: closed, with messages that may still be taken

    # --- what has arrived ---

    def received(self, size: int) -> None:
        """Count a DATA frame's bytes on the connection. The parser's short way for whole messages does it in place.

        Raises:
            ConnectionFaultError: the peer has sent more than the window allows.
        """
        if size > self.size:
            raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is exceeded")
        self.size -= size

    def padded(self) -> None:
        """The peer has padded a frame: leave room for that from now on."""
        self._padding = _MOST_PADDING
        self._padding_room = _PADDING_ROOM
        self.stream_low = low = max(self.stream_low, _PADDING_ROOM + 1)  # what may be left after a large message
        for stream in self._streams.values():
            stream.low_window = max(stream.low_window, low)

    # --- what the application has taken ---

    def consumed(self, stream: Stream, size: int) -> None:
        """Say that the application has taken a message of `size` bytes (as it was on the wire)."""
        stream.held -= size + PREFIX_BYTES
        if stream.recv_window < stream.low_window or self.withheld:  # so far, the message path does it as well
            self.settle_stream(stream)

    def settle_stream(self, stream: Stream) -> None:
        """Credit what is due, and give back what was promised, after a message of this stream has been taken."""
        if not stream.remote_closed and not stream.closed:
            full = stream.full_window
            if stream.recv_window < full >> _USED_UP_SHIFT and stream.held < full >> 1 and full < self._widest:
                # The peer has used it up, and the application has taken it: a larger one would have been of use.
                # A message that was let through whole had come as far as the first window, and needed the grant for
                # the rest: two such messages, so that there is room for the next one before the update comes.
                full = 2 * max(full, stream.granted + self.initial) + self.initial
                stream.full_window = full = min(full, self._widest)
                # It is credited in steps as small as those of the first window: who sends must see that a slow reader
                # goes on.
                stream.low_window = max(full - (self.initial >> 1), self.stream_low)
            window = stream.recv_window
            self.update_stream_window(stream)
            if stream.held and stream.recv_window == window and not self.withheld:
                return  # memory is given back with the next credit, at the latest: to count what is held takes long
        elif stream.granted and stream.held <= stream.full_window:
            self._release(stream)
        elif stream.closed and not stream.held:
            self._unread.pop(stream, None)
        if self.withheld:
            self.credit_connection()
        elif self.loan.size:
            self.settle()

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
            if self.withheld:
                self.credit_connection()

    def reclaim(self, stream: Stream) -> None:
        """A stream is over: what was granted to it is free."""
        if stream.granted or stream in self._applicants:
            self._release(stream)
        if self.withheld:
            self.credit_connection()
        elif self.loan.size:
            self.settle()

    # --- streams ---

    def update_stream_window(self, stream: Stream) -> None:
        """Let the stream's window grow; small increments are saved up."""
        window = stream.recv_window
        least = stream.missing  # what the window has to be
        target = stream.full_window - stream.held
        if least:
            least += self._padding
        elif self._padding and stream.held == stream.have:
            # Nothing can be taken, so the next message has to begin: its prefix needs room, too.
            least = PREFIX_BYTES - stream.have + self._padding
            target = max(target, least)
        if least > target:
            if least <= window:
                return
            if self._is_full(stream):
                self._applicants.pop(stream, None)
                return
            need = stream.missing + self._padding_room
            if stream.granted or self._reserve_for_large_message(stream, need):
                target = need
        elif stream.granted:
            self._release(stream)  # what was consumed meanwhile has made enough room without it
        grow = target - window
        # A small step is sent all the same when the rest of a message waits for it: nothing else would come.
        if grow >= self.initial >> 1 or (grow > 0 and window < least <= target):
            stream.recv_window += grow
            self._send_update(stream.id, grow)

    def _is_full(self, stream: Stream) -> bool:
        """Whether a message has begun in the room for padding only, and may not go on before another is taken."""
        return bool(self._padding) and stream.held - stream.piece_size() >= stream.full_window

    def _reserve_for_large_message(self, stream: Stream, need: int) -> bool:
        """Reserve memory for the rest of a large message, or put the stream in the queue."""
        applicants = self._applicants
        # Who comes first is served first, also when a later and smaller message would fit: or the large one could wait
        # indefinitely. With nothing granted, any size is let through.
        if self.granted and (self.granted + need > self._budget or next(iter(applicants), stream) is not stream):
            waits = True
        else:
            waits = not self._borrow_for_message(need)
        if waits:
            if not applicants:
                self._on_wait()
            applicants[stream] = None
            return False
        applicants.pop(stream, None)
        stream.granted = need
        self.granted += need
        return True

    def _borrow_for_message(self, need: int) -> bool:
        """Borrow what a large message will take; wait for memory if there is not enough."""
        loan = self.loan
        if need <= loan.largest:
            if loan.resize(loan.size + need):
                return True
        # One that is larger than what anybody can borrow is let through when there is enough for a large one.
        elif loan.resize(loan.size + int(loan.largest)):
            loan.set(loan.size + need - int(loan.largest))
            return True
        loan.wait(self._memory_is_back)
        return False

    def _release(self, stream: Stream) -> None:
        self.granted -= stream.granted
        stream.granted = 0
        self._applicants.pop(stream, None)
        self._serve_applicants()

    def _serve_applicants(self) -> None:
        while self._applicants:
            first = next(iter(self._applicants))
            self.update_stream_window(first)
            if first in self._applicants:
                if not first.granted and first.missing + self._padding > first.recv_window:
                    return  # it still waits, and so do those behind it
                del self._applicants[first]  # what was consumed meanwhile has made enough room without a grant

    def holders(self) -> list[Stream]:
        """Return the streams whose grants others wait for; none while the connection's own window is shut."""
        if not self._applicants or self.size <= 0:
            return []
        return [
            stream
            for stream in self._streams.values()
            if stream.granted and stream.missing and not self._is_full(stream)
        ]

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        granted = sum(stream.granted for stream in self._streams.values())
        yield Count("bytes that are granted", self.granted, granted, None)
        waiting = len(self._applicants)
        for_memory = self.loan.limited
        yield Count("streams that wait for a grant", waiting, waiting if granted or for_memory else 0, None)
        held = sum(stream.held for stream in (*self._streams.values(), *self._unread))
        most = self._budget + (self.granted if self.granted > self._budget else 0)
        grow = min(self._full, most - held) - self.size
        in_vain = self.withheld and grow >= _STEP and not self.loan.limited
        yield Count("credits that are withheld for nothing", int(in_vain), 0)

    # --- the connection ---

    def credit_connection(self) -> None:
        """Let the connection's window grow as far as memory allows."""
        held = self._count()
        full, room = self._full, self._borrow(held)
        if room < full:
            full = room
        most = self._budget + (self.granted if self.granted > self._budget else 0)
        grow = min(full, most - held) - self.size
        if grow < _STEP and self.size < _STEP and self._only_pieces():
            if room:
                grow = _STEP
            else:
                self.loan.wait(self._memory_is_back)
                self._on_wait()
        self.low = max(full >> 1, _STEP)
        if grow >= _STEP:
            self.size += grow
            self._send_update(0, grow)
            self._promised.set(max(0, self.size - INITIAL_WINDOW))
        self.withheld = self.size < self.low or not room

    def _count(self) -> int:
        """Return how many bytes have arrived and have not been taken."""
        return sum(stream.held for stream in self._streams.values()) + sum(stream.held for stream in self._unread)

    def _borrow(self, held: int) -> int:
        """Borrow memory for what is held; return how large the window may be: 0 if there is none for that."""
        if self.granted:
            # What is granted is borrowed already, whether it has come or not.
            for stream in self._streams.values():
                if stream.granted > stream.held:
                    held += stream.granted - stream.held
            size = max(self.granted, held - INITIAL_WINDOW)
        else:
            size = max(0, held - INITIAL_WINDOW)
        if not self.loan.resize(size):
            return 0
        most = INITIAL_WINDOW + self._promised.most()
        return self._full if most >= self._full else int(most)

    def settle(self) -> None:
        """Give back the memory for what has been taken meanwhile."""
        if self.loan.size:
            self._borrow(self._count())

    def _memory_is_back(self) -> None:
        self._serve_applicants()
        self.credit_connection()
        self._on_credit()

    def incomplete(self) -> list[Stream]:
        """Return the streams whose messages are not whole, where they make this connection borrow."""
        if not self.loan.size:
            return []
        return [stream for stream in self._streams.values() if stream.missing and not self._is_full(stream)]

    def close(self) -> None:
        """The connection is gone: what it has borrowed is free, and no credit is due any more."""
        self.withheld = False
        self._applicants.clear()
        self.loan.end()
        self._promised.end()

    def _only_pieces(self) -> bool:
        """Whether nothing that is held can be taken."""
        return not self._unread and all(stream.held <= stream.piece_size() for stream in self._streams.values())
