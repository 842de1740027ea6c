"""HTTP/2 with gRPC's message framing, sans I/O: bytes in, events out; calls in, bytes out. Both roles.

The engine is the state of one connection. It knows nothing of Trio, of services or of deadlines. A shell
(`_connection`) reads from the socket, gives the bytes to `receive_data`, acts on the events it returns, and writes what
`take_output` returns. So all of HTTP/2 can be tested, and fuzzed, without a socket or a clock.

What owns what
--------------

The engine is put together from parts, each in a module of its own. A part knows only those above it in this list:

* `_send_queue.SendQueue`: the output, the outboxes of streams that wait, and the windows that the peer grants;
* `_receive_window.ReceiveWindow`: the windows that this end grants, grants for large messages, the bound on memory;
* `_stream_table.StreamTable`: the open streams, their numbers, how each begins and ends;
* `_frame_handler.FrameHandler`: what each frame means. It turns header blocks into requests, responses and statuses;
* `_frame_parser.FrameParser`: bytes into frames, DATA into messages.

Beside them stand `_control.ControlPlane` (SETTINGS and HPACK, by h2 and hpack; its docstring says why no more of them
is used), `_header_blocks.HeaderBlocks` (HEADERS and CONTINUATION put together) and `_floods.Floods` (how often a peer
may do what costs this end more than the peer).

A `Stream` is a record that the parts share: each field is written by the parts that its docstring names.

How it works
------------

Receiving: the parser takes the bytes apart. Messages go straight into the list of events; every other frame goes to the
handler, which adds events, writes answers to the send queue, and opens or closes streams in the table. Windows are
counted by the parser and credited by the receive window.

Sending: a message goes into the output, or into its stream's outbox. WINDOW_UPDATE, SETTINGS and `take_output` are what
lets the queue go on.

Nothing that a peer sends makes the engine raise. A fault on one stream resets that stream and is an event. A fault of
the connection is a `ConnectionFaultError` within the engine; `receive_data` alone catches it, writes GOAWAY, and sets
`fault`.

Speed: the engine is on the way of every message, so the methods that the shell calls once for each message are those of
the parts themselves, bound in `Engine.__init__`, instead of methods that would pass the call on.

Invariants that the tests hold on to
------------------------------------

* The same bytes in any split give the same events and the same fault.
* Every stream is announced as ended at most once.
* After a fault there are no events.
* DATA in the output is bounded by the high-water mark and one frame; what the peer causes, by the bound on
  answers (`RpcConfig.max_control_output_bytes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.base.recount import Count
from trio_cogment.budget.memory import ConnectionMemory
from trio_cogment.rpc._control import ControlPlane, max_block_bytes
from trio_cogment.rpc._floods import Floods
from trio_cogment.rpc._frame_handler import FrameHandler
from trio_cogment.rpc._frame_parser import FrameParser
from trio_cogment.rpc._frames import (
    GOAWAY,
    INITIAL_WINDOW,
    MAX_WINDOW,
    PING,
    PREFACE,
    SETTING,
    SETTINGS,
    ConnectionFaultError,
    ErrorCode,
    Event,
)
from trio_cogment.rpc._grpc_web import WebRules
from trio_cogment.rpc._header_blocks import HeaderBlocks
from trio_cogment.rpc._receive_window import ReceiveWindow
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._stream_table import StreamTable
from trio_cogment.rpc._streams import Stream

#: Tells the PING that goes with a drain from those that look for life.
DRAIN_PING: Final = b"draining"


def _nothing() -> None:
    """What a callback does that nobody has set."""


def _allowed() -> bool:
    return True


class Engine:
    """One connection; see the module.

    Besides its own methods it has those of its parts:

    * of the stream table: `open_request`, `send_headers`, `end`, `finish_now` and `reset`;
    * of the send queue: `send_message`, `send_compressed`, `send_shared`, `send_framed`, `has_room`, `give_up`,
      `take_output`, `sent` and `take_rooms`;
    * of the receive window: `consumed`, `keep`, `forget`, `holders` and `incomplete`.

    Args:
        client_side: the role.
        config: limits.
        clock: the time in seconds, for rates; without one everything happens at once.
        memory: what is borrowed for what waits; None: as much as the limits of the connection allow.
        web: judges requests of gRPC-Web; None: they are refused.

    Attributes:
        streams: those that are open, by number.
        table, parser: the parts of these names, for what is read of them with every batch of bytes.
        loan: what is borrowed for what waits to be sent.
        output, window: the send queue and the receive window, for what is asked with every message.
        on_output: called when there is output, or room for messages, though nothing has come from the peer.
        on_queue: called when a message has to wait for a grant, and none has before it.
        on_drained: called when no new streams are accepted (`refuse_new`) and the last stream is over.
        on_reset: called for each call that its client has made for nothing (`Floods.count_reset`); returns whether it
            may, also in view of its other connections.
        fault: why the connection cannot go on.
    """

    def __init__(
        self,
        *,
        client_side: bool,
        config: RpcConfig,
        clock: Callable[[], float] = float,
        memory: ConnectionMemory | None = None,
        web: WebRules | None = None,
    ) -> None:
        memory = memory or ConnectionMemory()
        self.client_side = client_side
        self.config = config
        self.streams: dict[int, Stream] = {}
        self.on_output: Callable[[], None] = _nothing
        self.on_queue: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing
        self.on_reset: Callable[[], bool] = _allowed
        self.fault: RemoteProtocolError | None = None
        max_block = max_block_bytes(config.max_header_list_bytes)
        floods = Floods(config, clock, self._peer_may_reset)
        blocks = HeaderBlocks(max_block)
        self._control = control = ControlPlane(client_side=client_side, max_block_bytes=max_block)
        self.loan = memory.messages.loan()
        self._send_queue = queue = SendQueue(config, self.loan, client_side=client_side, on_room=self._output_is_there)
        self.output = queue
        queue.streams = self.streams
        self.window = window = ReceiveWindow(
            config,
            self.streams,
            queue.write_window_update,
            self._message_waits,
            held=memory.messages.loan(),
            promised=memory.windows.loan(),
            on_credit=self._output_is_there,
        )
        self.table = table = StreamTable(
            self.streams,
            client_side=client_side,
            config=config,
            control=control,
            queue=queue,
            window=window,
            on_empty=self._last_stream_over,
        )
        queue.on_sent = table.send_end
        self._handler = FrameHandler(
            client_side=client_side,
            config=config,
            control=control,
            table=table,
            queue=queue,
            window=window,
            blocks=blocks,
            floods=floods,
            web=web,
        )
        self.parser = FrameParser(
            client_side=client_side,
            config=config,
            streams=self.streams,
            window=window,
            blocks=blocks,
            floods=floods,
            queue=queue,
            handler=self._handler,
        )
        self.open_request = table.open_request
        self.send_headers = table.send_headers
        self.end = table.end
        self.finish_now = table.finish_now
        self.reset = table.reset
        self.send_message = queue.send_message
        self.send_compressed = queue.send_compressed
        self.send_shared = queue.send_shared
        self.send_framed = queue.send_framed
        self.has_room = queue.has_room
        self.give_up = queue.give_up
        self.take_output = queue.take_output
        self.take_rooms = queue.take_rooms
        self.sent = queue.sent
        self.consumed = window.consumed
        self.keep = window.keep
        self.forget = window.forget
        self.holders = window.holders
        self.incomplete = window.incomplete
        self._write_preface()

    def _write_preface(self) -> None:
        config = self.config
        settings = {
            0x3: config.max_concurrent_streams,
            0x4: config.stream_window_bytes,
            0x5: config.max_frame_bytes,
            0x6: config.max_header_list_bytes,
        }
        if self.client_side:
            self._send_queue.write(PREFACE)
            settings = {0x2: 0} | settings  # no push
            del settings[0x3]
        payload = b"".join(SETTING.pack(*item) for item in settings.items())
        self._send_queue.write_frame(SETTINGS, 0, 0, payload)
        # The connection's window is not among the settings; a WINDOW_UPDATE makes it larger (RFC 9113, 6.9.2).
        more = self.window.size - INITIAL_WINDOW
        if more > 0:
            self._send_queue.write_window_update(0, more)

    def _peer_may_reset(self) -> bool:
        return self.on_reset()

    def _output_is_there(self) -> None:
        self.on_output()

    def _message_waits(self) -> None:
        self.on_queue()

    def _last_stream_over(self) -> None:
        self.on_drained()

    # --- state ---

    @property
    def out_size(self) -> int:
        """Bytes of output that have not been taken."""
        return self._send_queue.out_size

    @property
    def opened(self) -> bool:
        """Whether the peer has sent what it must send first."""
        return self.parser.opened

    @property
    def goaway_received(self) -> bool:
        """Whether the peer has said that it takes no new streams."""
        return self._handler.goaway_received

    @property
    def draining(self) -> bool:
        """Whether new streams of the peer are refused."""
        return self.table.draining

    @property
    def calls_begun(self) -> int:
        """How many calls the peer has begun."""
        return self.table.begun

    @property
    def oldest(self) -> int:
        """The number of the stream that has been open for longest; 0 if none is."""
        return next(iter(self.streams), 0)

    def limit_requests(self, number: int) -> None:
        """Handle at most this many header blocks in one `receive_data`; without this, all that come.

        When there are more, `parser.paused` is set; then call `receive_data` again, with no bytes, before any are read.
        """
        self.parser.limit_requests(number)

    def data_mark(self) -> object:
        """Return something that changes when DATA passes in either direction, but for rare coincidences."""
        return self.window.size, self._send_queue.window

    def can_open(self) -> bool:
        """Whether another request may be sent now (the peer's MAX_CONCURRENT_STREAMS)."""
        return len(self.streams) < self._control.remote_max_streams

    def exhausted(self) -> bool:
        """Whether no request can be sent on this connection ever again."""
        return self._handler.goaway_received or self.fault is not None or self.table.exhausted()

    # --- what is borrowed ---

    def send_mark(self) -> object:
        """Return something that changes when what waits to be sent gets any further; None if nothing is borrowed."""
        queue = self._send_queue
        return (queue.waiting_bytes, queue.window, queue.out_size) if self.loan.size else None

    def settle(self) -> None:
        """Give back the memory for what is not there any more."""
        self.window.settle()
        if self.loan.size:
            self._send_queue.settle()

    def close(self) -> None:
        """The connection is gone; give back what it has borrowed."""
        self.window.close()
        self._send_queue.discard()

    # --- receiving ---

    def receive_data(self, data: bytes) -> list[Event]:
        """Take bytes from the peer; return what they mean.

        When the peer has broken the connection, `fault` is set and the GOAWAY that says so is in the output; what came
        before the fault is returned still, and nothing after it. (Too many small WINDOW_UPDATEs are a fault at the end
        of the bytes.)
        """
        events: list[Event] = []
        if self.fault is None:
            try:
                self.parser.feed(data, events)
            except ConnectionFaultError as fault:
                self.go_away(fault.code, str(fault))
                self._control.break_off()
                self.fault = RemoteProtocolError(str(fault))
                self.fault.__cause__ = fault.__cause__
        return events

    # --- the connection as a whole ---

    def ping(self, payload: bytes) -> None:
        """Send a PING with these eight bytes."""
        self._send_queue.write_frame(PING, 0, 0, payload)

    def go_away(self, code: int, text: str = "", *, last: int | None = None) -> None:
        """Tell the peer that this connection is over (RFC 9113, 6.8). Written here and not by h2: see `_control`.

        Args:
            code: why.
            text: the same for whoever reads the peer's log.
            last: the highest stream that is served still; those seen so far when left out.
        """
        last = self.table.newest if last is None else last
        payload = last.to_bytes(4, "big") + int(code).to_bytes(4, "big") + text.encode()
        self._send_queue.write_frame(GOAWAY, 0, 0, payload)

    def announce_drain(self) -> None:
        """Ask the peer to open no more streams, without refusing those that are on their way (RFC 9113, 6.8).

        When the PING that goes with it is answered (`Kind.PONG`), the peer has seen that.
        """
        self.go_away(ErrorCode.NO_ERROR, last=MAX_WINDOW)
        self.ping(DRAIN_PING)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        streams = self.streams.values()
        yield from self._send_queue.recount_of(streams)
        yield Count("streams that are closed", sum(stream.closed for stream in streams), 0)

    def refuse_new(self) -> None:
        """Say which streams are served still, and refuse those after them."""
        self.table.refuse_new()
        self.go_away(ErrorCode.NO_ERROR)
        if not self.streams:
            self.on_drained()
