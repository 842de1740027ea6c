"""The streams of one connection: which numbers they have, and how each begins and ends.

A stream ends in one of three ways: both ends have sent END_STREAM, one of them has sent RST_STREAM, or the connection
is over. All of them come to `StreamTable.close`, which is therefore the one place where what a stream has taken is
given back: its outbox, its grant of memory, and its place among the streams that may be open.

A closed stream is forgotten at once. What the peer still sends on it is told from what it sends on a stream that has
never been (an *idle* one, RFC 9113, 5.1.1) by its number alone: numbers only grow, so two integers are all that must be
remembered. The first is an ordinary race, the second breaks the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc._control import ControlPlane
from trio_cogment.rpc._frames import DATA, END_STREAM, RST_STREAM, ErrorCode
from trio_cogment.rpc._hpack import RawHeaders
from trio_cogment.rpc._receive_window import ReceiveWindow
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._streams import Stream

_MAX_STREAM: Final = 2**31 - 1


class StreamTable:
    """The open streams.

    Args:
        streams: filled by this object, and by nobody else; the receive window reads it as well.
        on_empty: called while `draining`, when the last stream is over.

    Attributes:
        open: the open streams by number.
        newest: the highest number the peer has used.
        begun: how many calls the peer has begun. The numbers do not tell that, as it may pass over any of them.
        draining: new streams of the peer are refused.
    """

    def __init__(
        self,
        streams: dict[int, Stream],
        *,
        client_side: bool,
        config: RpcConfig,
        control: ControlPlane,
        queue: SendQueue,
        window: ReceiveWindow,
        on_empty: Callable[[], None],
    ) -> None:
        self.open = streams
        self.newest = 0
        self.begun = 0
        self.draining = False
        self._client_side = client_side
        self._max_message = config.max_receive_message_bytes
        self._control = control
        self._queue = queue
        self._window = window
        self._on_empty = on_empty
        self._next = 1  # the number of the next request of this end
        # Numbers that the peer has skipped: using a later one has closed them (RFC 9113, 5.1.1), so a request on one of
        # them is an error and not a race. Sixteen gaps are enough: nobody honest leaves any.
        self._skipped: deque[range] = deque(maxlen=16)

    # --- numbers ---

    def is_idle(self, stream_id: int) -> bool:
        """Whether no stream has had this number. Even ones are never used: they are for pushes, which are disabled."""
        return not stream_id & 1 or stream_id > (self._next - 2 if self._client_side else self.newest)

    def was_skipped(self, stream_id: int) -> bool:
        """Whether the peer has passed this number over, so that it cannot use it any more."""
        return any(stream_id in gap for gap in self._skipped)

    def exhausted(self) -> bool:
        """Whether all numbers for requests have been used."""
        return self._next > _MAX_STREAM

    # --- beginning ---

    def open_request(self, headers: RawHeaders) -> Stream:
        """Send a request's headers and return its stream."""
        stream = self._add(self._next)
        self._next += 2
        stream.headers_sent = True
        self._queue.write_headers(self._control.send_headers(stream.id, headers, end_stream=False))
        return stream

    def accept(self, stream_id: int) -> Stream:
        """Return a new stream for a request with this number, which must be higher than `newest`."""
        if stream_id > self.newest + 2:
            self._skipped.append(range(self.newest + 2, stream_id, 2))
        self.newest = stream_id
        self.begun += 1
        return self._add(stream_id)

    def _add(self, stream_id: int) -> Stream:
        stream = self.open[stream_id] = Stream(
            stream_id,
            recv_window=self._window.initial,
            send_window=self._queue.initial_window,
            max_message=self._max_message,
        )
        stream.low_window = self._window.stream_low
        return stream

    def send_headers(self, stream: Stream, headers: RawHeaders) -> None:
        """Send the headers of a response."""
        if not stream.closed:
            stream.headers_sent = True
            self._queue.write_headers(self._control.send_headers(stream.id, headers, end_stream=False))

    # --- ending ---

    def end(self, stream: Stream, trailers: RawHeaders) -> None:
        """Close this side once everything queued has gone: with these trailers, or bare when the list is empty."""
        if stream.closed or stream.local_closed or stream.end is not None:
            return
        stream.end = trailers
        if not stream.outbox:
            self.send_end(stream)

    def finish_now(self, stream: Stream, trailers: RawHeaders) -> None:
        """End a server's stream with this status at once: what is queued is dropped, what comes is ignored."""
        if stream.closed or stream.local_closed:
            return
        self._queue.drop(stream)
        stream.end = trailers
        self.send_end(stream)

    def send_end(self, stream: Stream) -> None:
        """Send END_STREAM, with the trailers if there are any. The outbox is empty."""
        # Trailers are encoded here and not in `end`: HPACK's table follows the order of blocks on the wire.
        assert stream.end is not None
        if stream.end:
            self._queue.write_headers(self._control.send_headers(stream.id, stream.end, end_stream=True))
        else:
            self._queue.write_frame(DATA, END_STREAM, stream.id)
        stream.local_closed = stream.headers_sent = True
        if stream.remote_closed:
            self.close(stream)
        elif not self._client_side:
            # The response is complete; the rest of the request is of no use (RFC 9113, 8.1).
            self.reset(stream, ErrorCode.NO_ERROR)

    def refuse_new(self) -> None:
        """From now on the peer's new streams are refused, and `on_empty` is called when the last one is over."""
        self.draining = True

    def reset(self, stream: Stream, code: int) -> None:
        """Send RST_STREAM, unless the stream is over."""
        if not stream.closed:
            # A server resets mostly what a client made it reset, so it counts as an answer.
            send = self._queue.write_frame if self._client_side else self._queue.write_answer
            send(RST_STREAM, 0, stream.id, int(code).to_bytes(4, "big"))
            self.close(stream)

    def close(self, stream: Stream) -> None:
        """The stream is over in both directions: give back what it has taken."""
        stream.closed = True
        stream.chunks.clear()  # what refers to the stream may stay for a while
        self._queue.close(stream)
        self.open.pop(stream.id, None)
        window = self._window
        if window.granted or window.withheld or window.loan.size:
            window.reclaim(stream)
        if self.draining and not self.open:
            self._on_empty()
