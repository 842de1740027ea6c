"""The send queue of one connection: the output, the outboxes of the streams, and the peer's windows.

A message goes straight into the output while three things allow it: the window of its stream, the window of the
connection, and the high-water mark of the output. Otherwise it waits in its stream's outbox.

Waiting streams take turns, one frame each. If a stream could send all it has, a message of 100 MiB would hold up every
small message behind it. With turns a large message delays the others by one frame, and the output never grows far
beyond the high-water mark. Most of what a slow peer leaves unread then stays in the outboxes, where `has_room` can hold
back the call that caused it.

What several streams wait for, such as an observation that all actors of a trial see, is one piece of memory, and counts
once until the last of them has sent it. So it does for the high-water mark, up to a MiB: all of them leave in one
system call.

When there is room again, those who were refused are told in the order in which they came, and no more of them than the
room is for: of hundreds that all woke for the room of a few, nearly all would only wait again.

Four limits protect the memory:

* of one stream: `RpcConfig.call_outbox_messages` and `call_outbox_bytes`;
* of all outboxes together: `RpcConfig.connection_memory_bytes`. Beyond it a stream may send only what its windows and
  the output take at once;
* of all connections of a server together: what waits here beyond `_FREE_BYTES`, in outboxes, in the output and on its
  way to the socket, is borrowed (`_more_room`), and a message waits outside until it can be. Without a loan the output
  is short, too, and so are the frames: a crowd of peers that do not read would otherwise fill it, one by one;
* of answers: `answer_bytes` counts the output that exists only because of the peer. The frame handler ends the
  connection when that is too much. Nothing else bounds it, as such frames are under no flow control.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from typing import Any, Final

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.recount import Count
from trio_cogment.budget.byte_pool import Loan
from trio_cogment.rpc._frames import (
    DATA,
    HEADER,
    INITIAL_WINDOW,
    MAX_WINDOW,
    MESSAGE_HEADER,
    WINDOW_UPDATE,
    ConnectionFaultError,
    ErrorCode,
)
from trio_cogment.rpc._streams import PREFIX_BYTES, Stream

#: What every peer accepts in a frame until its SETTINGS say otherwise (RFC 9113, 6.5.2).
_DEFAULT_MAX_FRAME: Final = 16384
#: How many small WINDOW_UPDATEs a piece of output explains: for the stream and for the connection, twice each. A piece
#: is a message, at least, and 256 bytes of it.
_UPDATES_PER_PIECE: Final = 4
#: A message of this size is not copied to put its prefix before it.
_LARGE_BYTES: Final = 16 * 1024
#: With less than this left, a stream that has its turn may send one frame more.
_SMALL_REST: Final = 1024
#: What may wait in outboxes without a loan.
_FREE_BYTES: Final = 64 * 1024
#: The high-water mark of the output without a loan.
_LOW_MARK: Final = 32 * 1024
#: So far the output goes beyond its high-water mark where it has the same memory again and again.
_SAME_BYTES: Final = 1024 * 1024


def _gathered(pieces: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the same bytes in fewer pieces: small ones are put together, large ones are left as they are."""
    together: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < _LARGE_BYTES:
            small.append(piece)
            continue
        if small:
            together.append(b"".join(small))
            small.clear()
        together.append(piece)
    if small:
        together.append(b"".join(small))
    return together


def _ignore(_: Stream) -> None:
    """Do nothing: the default of `SendQueue.on_sent`."""


def _nothing() -> None:
    """Do nothing: the default of `SendQueue.on_room`."""


class SendQueue:
    """The sending half of a connection. It knows frames, windows and outboxes, but not what a stream's state means.

    Args:
        config: the sizes.
        loan: what is borrowed for what waits.
        client_side: the role.
        on_room: called when others have given memory back, and calls may ask for room again.

    Attributes:
        loan: what is borrowed for what waits.
        streams: those that are open, for the writer.
        out_size: bytes of output that have not been taken.
        window: bytes that the peer allows on the connection; the frame parser adds to it, too.
        initial_window: bytes that the peer allows on a new stream.
        answer_bytes: bytes of output that the peer has caused.
        updates_due: how many small WINDOW_UPDATEs the output so far explains that have not come; the frame parser
            and handler subtract those that do.
        on_sent: called when a stream's outbox has become empty and `Stream.end` is set.
        ready: an ordered set of streams that have something to send, and whose own windows are open.
        starved: the streams that `has_room` has refused because all outboxes are full, in order, with the sizes of
            their messages.
        rooms: what `take_rooms` would return.
    """

    def __init__(
        self, config: RpcConfig, loan: Loan, *, client_side: bool, on_room: Callable[[], None] = _nothing
    ) -> None:
        self.loan = loan
        self.streams: Sized = ()
        self.out_size = 0
        self.window = INITIAL_WINDOW
        self.initial_window = INITIAL_WINDOW
        self.answer_bytes = 0
        self.updates_due = 0
        self.on_sent: Callable[[Stream], None] = _ignore
        self._out: list[bytes | memoryview] = []
        self._budget = config.connection_memory_bytes
        self._on_room = on_room
        self._free_bytes = min(_FREE_BYTES, self._budget)
        self._wake_below = self._budget  # with fewer bytes in all outboxes, those that were refused may ask again
        self._in_flight = 0  # bytes that were taken last; they may be on their way still
        self._high_water = config.write_high_water_bytes
        self._mark = min(_LOW_MARK, self._high_water) if loan.limited else self._high_water
        self._low_mark = self._mark
        self._max_frame = _DEFAULT_MAX_FRAME
        self._max_frame_wanted = config.max_frame_bytes
        #: The longest frame now: short ones while the output is short.
        self._longest = _DEFAULT_MAX_FRAME
        self._outbox_messages = config.call_outbox_messages
        self._outbox_bytes = config.call_outbox_bytes
        self._queued = 0  # bytes of memory in all outboxes
        self._shared: dict[int, int] = {}  # how often a large piece that others may have, too, waits; by its identity
        # Streams that have something to send and an open window of their own, in the order of their turns (a dict is
        # an ordered set). Streams whose own window is shut are not here: otherwise every WINDOW_UPDATE would cost a
        # look at each of them, and a peer could make 13 bytes cost as much as a thousand calls.
        self.ready: dict[Stream, None] = {}
        self.starved: dict[Stream, int] = {}
        self.rooms: list[Stream] = []
        self._offered = 0  # bytes for which those of `rooms` that were refused have been told that there is room
        self._blocks = 0  # header blocks in the output
        self._free_blocks = math.inf if client_side else 2 * config.max_concurrent_streams

    # --- frames ---

    def write(self, data: bytes) -> None:
        """Add bytes to the output."""
        self._out.append(data)
        self.out_size += len(data)

    def write_frame(self, kind: int, flags: int, stream_id: int, payload: bytes = b"") -> None:
        """Add a frame to the output."""
        size = len(payload)
        self.write(HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload)

    def write_answer(self, kind: int, flags: int, stream_id: int, payload: bytes = b"") -> None:
        """Add a frame that a frame of the peer calls for."""
        self.answer_bytes += len(payload) + 9
        self.write_frame(kind, flags, stream_id, payload)

    def write_headers(self, block: bytes) -> None:
        """Add the frames of a header block.

        Header blocks are under no flow control, so a client that opens calls and does not read could fill the memory
        with the responses. An honest client has at most MAX_CONCURRENT_STREAMS calls open until it reads that some
        have ended, so two blocks for each (headers and trailers) can wait. Only those beyond that count as answers.
        """
        self.write(block)
        self._blocks += 1
        if self._blocks > self._free_blocks:
            self.answer_bytes += len(block)

    def write_window_update(self, stream_id: int, increment: int) -> None:
        """Add a WINDOW_UPDATE; stream 0 is the connection."""
        self.write_frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))

    def take_output(self) -> bytes:
        """Return everything there is to send, and let waiting streams produce more."""
        data = b"".join(self._out)
        self._take_all()
        return data

    def take_pieces(self) -> list[bytes | memoryview]:
        """As `take_output`, in pieces that are to be sent one after the other: large ones are not copied."""
        pieces = _gathered(self._out)
        self._take_all()
        return pieces

    def _take_all(self) -> None:
        size = self.out_size
        self.updates_due += _UPDATES_PER_PIECE * (len(self._out) + (size >> 8))
        self._out.clear()
        self.out_size = self.answer_bytes = self._blocks = 0
        self._in_flight = size
        if self.ready:
            self._pump()
        if self.loan.size:
            self.settle()
        if self.starved and not self.ready:
            self._wake_starved()  # what the peer's windows admit goes on

    # --- what is borrowed ---

    def _may_queue(self, size: int) -> bool:
        """Whether a message may wait that does not fit into what may wait without a loan."""
        if self._queued >= self._budget:
            self._wake_below = self._budget
            return False
        loan = self.loan
        waiting = self._queued + self.out_size + self._in_flight - _FREE_BYTES
        if loan.hold(waiting, size):
            return True
        self._wake_below = (self._queued >> 1) + 1
        loan.wait(self._memory_is_back)
        return False

    def _raise_mark(self) -> None:
        """Borrow a longer output, where there is enough to fill it."""
        if self.loan.resize(self.loan.size + self._high_water):
            self._set_mark(self._high_water)

    def _set_mark(self, mark: int) -> None:
        self._mark = mark
        # Where a long output was borrowed, so was each message that it takes: its frames need no other bound.
        short = self.loan.limited and mark == self._low_mark
        self._longest = min(self._max_frame, max(mark, _DEFAULT_MAX_FRAME)) if short else self._max_frame

    def settle(self) -> None:
        """Give back what was borrowed for what has been sent meanwhile."""
        need = self._queued + self.out_size + self._in_flight - _FREE_BYTES
        if need > 0:
            self.loan.set(need + (self._high_water if self._mark > self._low_mark else 0))
        else:
            self.loan.set(0)
            if self._mark != self._low_mark:
                self._set_mark(self._low_mark)

    def discard(self) -> None:
        """The connection is gone: leave nothing for when the last who know of it are collected."""
        self._out.clear()
        self.out_size = self._in_flight = 0
        self.loan.end()

    def sent(self) -> None:
        """Say that what was taken last has been sent."""
        self._in_flight = 0
        if self.loan.size:
            self.settle()

    def _memory_is_back(self) -> None:
        if self.starved:
            self._wake_starved()
            if self.starved:
                self.loan.wait(self._memory_is_back)
            self._on_room()

    @property
    def waiting_bytes(self) -> int:
        """How many bytes wait in outboxes."""
        return self._queued

    # --- messages ---

    def has_room(self, stream: Stream, size: int, tails: tuple[bytes, ...] = ()) -> bool:
        """Whether a message of `size` bytes may be given to `send_message`, or to `send_shared` with these tails."""
        more = size  # of memory
        if self._shared:
            for tail in tails:
                if id(tail) in self._shared:
                    more -= len(tail)
        if not stream.outbox:
            return self._queued + more <= self._free_bytes or self._may_queue(more) or self._goes_at_once(stream, size)
        return (
            len(stream.outbox) < self._outbox_messages
            and stream.outbox_bytes + size <= self._outbox_bytes
            and (self._queued + more <= self._free_bytes or self._may_queue(more))
        )

    def give_up(self, stream: Stream) -> None:
        """Say that nobody waits for room on a stream that `has_room` has refused: it is for others."""
        self.starved.pop(stream, None)

    def _goes_at_once(self, stream: Stream, size: int) -> bool:
        """Outboxes are full, or no memory is left: only a message that need not wait for the peer is taken.

        Calls that the peer does not read have filled the memory. A call that it does read goes on. The peer's windows
        alone do not tell: they may be as wide as the peer likes, while nobody reads from its socket.
        """
        if stream.closed:
            return True
        if (
            size + PREFIX_BYTES <= min(stream.send_window, self.window)
            and self.out_size < self._mark
            and not self.ready  # none that was let through before waits behind the output
            and (size <= _LOW_MARK or self.loan.exceed(size))
        ):
            return True
        self.starved[stream] = size
        return False

    def send_at_once(self, stream: Stream, payload: bytes) -> bool:
        """Put a message into the output if it need not wait, whatever `has_room` would say; else return False."""
        length = len(payload)
        size = length + PREFIX_BYTES
        # This is the hot path: one comparison chain, one pack, one append. A closed stream needs no test of its own
        # here, as its window is negative.
        if (
            size > stream.send_window
            or size > self.window
            or size > self._longest
            or stream.outbox
            or self.out_size >= self._mark
        ):
            return False
        stream.send_window -= size
        self.window -= size
        header = MESSAGE_HEADER.pack(size << 8, 0, stream.id, 0, length)
        if length < _LARGE_BYTES:
            self._out.append(header + payload)
        else:
            self._out += (header, payload)
        self.out_size += size + 9
        return True

    def send_large_at_once(self, stream: Stream, head: bytes, tail: bytes) -> bool:
        """Put a large message into the output if it need not wait, with `tail` as it is; else return False.

        It fits into one frame, and is borrowed for as if it waited in its outbox; without that memory its frames have
        to be short. Most do neither wait nor share their frame, and that way would cost twice as much.
        """
        size = len(head) + len(tail) + PREFIX_BYTES
        out_size = self.out_size
        need = self._queued + out_size + self._in_flight - _FREE_BYTES + size
        if (
            size > stream.send_window
            or size > self.window
            or size > self._max_frame
            or stream.outbox
            or self.ready
            or (out_size >= self._high_water and (out_size >= _SAME_BYTES or self._out[-1] is not tail))
            or (need > self.loan.size and not self.loan.resize(need))
        ):
            return False
        stream.send_window -= size
        self.window -= size
        self._out += (MESSAGE_HEADER.pack(size << 8, 0, stream.id, 0, size - PREFIX_BYTES) + head, tail)
        self.out_size = out_size + size + 9
        return True

    def send_message(self, stream: Stream, payload: bytes) -> None:
        """Send a message, or queue it on its stream if a window or the high-water mark says so."""
        if not self.send_at_once(stream, payload) and not stream.closed:
            prefix = b"\0" + len(payload).to_bytes(4, "big")
            if len(payload) < _LARGE_BYTES:
                self._enqueue(stream, prefix + payload)
            elif not self.send_large_at_once(stream, b"", payload):
                self._enqueue(stream, prefix, payload)

    def send_compressed(self, stream: Stream, payload: bytes) -> None:
        """As `send_message`, for a payload that is compressed."""
        if not stream.closed:
            self._enqueue(stream, b"\1" + len(payload).to_bytes(4, "big") + payload)

    def send_shared(self, stream: Stream, head: bytes, tails: tuple[bytes, ...]) -> None:
        """As `send_message`, for a payload in pieces, of which only the first is copied while it waits."""
        if not stream.closed:
            length = len(head)
            for tail in tails:
                size = len(tail)
                length += size
                if size >= _LARGE_BYTES:
                    held = self._shared.get(id(tail), 0)
                    self._shared[id(tail)] = held + 1
                    if held:
                        self._queued -= size  # it is counted, and will be once more
            self._enqueue(stream, b"\0" + length.to_bytes(4, "big") + head, *tails)

    def send_framed(self, stream: Stream, frame: bytes) -> None:
        """Send bytes behind the stream's messages as they are; there is always room for them, as they are its last."""
        if not stream.closed:
            self._enqueue(stream, frame)

    def _enqueue(self, stream: Stream, *pieces: bytes) -> None:
        for piece in pieces:
            if piece:
                stream.outbox.append(piece)
                stream.outbox_bytes += len(piece)
                self._queued += len(piece)
        self.schedule(stream)
        if self._mark < self._high_water and (self.out_size >= self._mark or self._queued >= self._mark):
            self._raise_mark()
        if self.ready:
            self._pump()

    def take_rooms(self) -> list[Stream]:
        """Return the streams for which `has_room` may have become true since the last call.

        These are the streams with `Stream.watched` set, and those that were refused because all outboxes were full.
        """
        rooms, self.rooms = self.rooms, []
        self._offered = 0
        return rooms

    def drop(self, stream: Stream) -> None:
        """Forget what the stream has queued."""
        self.starved.pop(stream, None)
        if stream.outbox:
            self._queued -= stream.outbox_bytes
            if self._shared:
                for piece in stream.outbox:
                    self._queued += self._still_held(piece, len(piece))
            stream.outbox.clear()
            stream.outbox_bytes = 0
            if self.starved:
                self._wake_starved()
        self.ready.pop(stream, None)

    def _still_held(self, piece: bytes | memoryview, left: int) -> int:
        """Return how much less memory than `left`, the rest of a piece, is free now that its stream has it no more."""
        whole: Any = piece.obj if isinstance(piece, memoryview) else piece
        held = self._shared.get(id(whole), 0)
        if held == 1:
            del self._shared[id(whole)]
            return left - len(whole)
        if held:
            self._shared[id(whole)] = held - 1
            return left
        return 0

    def close(self, stream: Stream) -> None:
        """The stream is over: forget what it has queued, and tell who waits for room."""
        stream.send_window = -1  # so that `send_message` needs no look at `closed` on its short way
        if stream.watched or stream in self.starved:
            self.rooms.append(stream)
        self.drop(stream)

    # --- windows ---

    def apply_settings(self, initial_window: int, max_frame: int, streams: Iterable[Stream]) -> None:
        """Take the peer's SETTINGS; a change of the initial window changes every open stream (RFC 9113, 6.9.2).

        Raises:
            ConnectionFaultError: they make a window too large.
        """
        self._max_frame = min(max_frame, self._max_frame_wanted)
        self._set_mark(self._mark)
        change = initial_window - self.initial_window
        if change:
            self.initial_window = initial_window
            for stream in streams:
                stream.send_window += change  # may go below zero
                if stream.send_window > MAX_WINDOW:
                    raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS make a window too large")
                self.schedule(stream)
        self.resume()

    def credit(self, increment: int) -> None:
        """Take a WINDOW_UPDATE of the connection, and send what it lets through.

        Raises:
            ConnectionFaultError: the increment is 0, or makes the window too large.
        """
        self.window += increment
        if not increment or self.window > MAX_WINDOW:
            code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
            raise ConnectionFaultError(code, "bad WINDOW_UPDATE")
        if self.ready:  # as `resume`, without its call: peers send many of these
            self._pump()
        if self.starved:
            self._wake_starved()

    def credit_stream(self, stream: Stream, increment: int) -> bool:
        """Take a WINDOW_UPDATE of a stream, and send what it lets through; False when it makes the window too large."""
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW:
            return False
        if stream.outbox and stream.send_window > 0:  # as `schedule`, and then as `resume`
            self.ready[stream] = None
        if self.ready:
            self._pump()
        if self.starved:
            self._wake_starved()
        return True

    def resume(self) -> None:
        """Some window has grown: send what it lets through, and let callers ask for room again."""
        if self.ready:
            self._pump()
        if self.starved:
            self._wake_starved()

    def schedule(self, stream: Stream) -> None:
        """Let the stream send when its turn comes, if it has something to send and its own window is open."""
        if stream.outbox and stream.send_window > 0:
            self.ready[stream] = None

    def _pump(self) -> None:
        """Move queued messages to the output, a frame of each stream in turn, as far as windows and the mark allow."""
        ready = self.ready
        while ready and self.window > 0 and self.out_size < self._mark:
            stream = next(iter(ready))
            del ready[stream]
            self._send_frame(stream)
            if 0 < stream.outbox_bytes < _SMALL_REST:
                self._send_frame(stream)  # the rest of a message, which need not cost a turn and a system call
            if stream.outbox:
                self.schedule(stream)  # behind the others
            elif stream.end is not None and not stream.local_closed:
                self.on_sent(stream)

    def _send_frame(self, stream: Stream) -> None:
        room = min(stream.send_window, self.window, self._longest)
        if room <= 0:
            return  # SETTINGS have shut its window since it was put in the queue
        pieces: list[bytes | memoryview] = []
        size = held = 0
        outbox, shared = stream.outbox, self._shared
        while outbox and size < room:  # several small messages share a frame
            head = outbox[0]
            if len(head) <= room - size:
                pieces.append(outbox.popleft())
                size += len(head)
                if shared:
                    held += self._still_held(head, len(head))
            else:
                view = memoryview(head)  # a large message is cut without copying what is left again and again
                cut = room - size
                pieces.append(view[:cut])
                outbox[0] = view[cut:]
                size = room
                if shared and id(view.obj) in shared:
                    held += cut
        stream.outbox_bytes -= size
        self._queued += held - size
        stream.send_window -= size
        self.window -= size
        self._out.append(HEADER.pack(size >> 8, size & 0xFF, DATA, 0, stream.id))
        self._out += pieces
        self.out_size += size + 9
        if stream.watched:
            stream.watched = False
            self.rooms.append(stream)
        if self.starved and self._queued < self._wake_below:
            self._wake_starved()

    def recount_of(self, streams: Collection[Stream]) -> Iterator[Count]:
        """See `trio_cogment.base.recount`; `streams` are those that are open."""
        yield Count("bytes of output", self.out_size, sum(map(len, self._out)), None)
        queued = sum(sum(map(len, stream.outbox)) for stream in streams)
        yield Count("bytes of the outboxes, each", sum(stream.outbox_bytes for stream in streams), queued, None)
        pieces = [piece for stream in streams for piece in stream.outbox]
        wholes: list[Any] = [piece.obj if isinstance(piece, memoryview) else piece for piece in pieces]
        shared = {id(whole): len(whole) for whole in wholes if id(whole) in self._shared}
        alone = sum(len(piece) for piece, whole in zip(pieces, wholes, strict=True) if id(whole) not in shared)
        yield Count("bytes of all outboxes", self._queued, alone + sum(shared.values()), None)
        times = sum(id(whole) in shared for whole in wholes)
        yield Count("pieces that several streams may have", sum(self._shared.values()), times, None)

    def _wake_starved(self) -> None:
        """Tell those who were refused that there may be room, as many as it is for."""
        starved, rooms = self.starved, self.rooms
        if not self._queued and not self.out_size:
            rooms += starved  # nothing that is sent would bring the others their turn
            starved.clear()
            return
        largest = self.loan.largest
        # As in `_may_queue`, and as in `_goes_at_once`.
        queued, out = self._queued + self._offered, self.out_size
        budget = self._budget - queued
        borrowed = self.loan.most() - (queued + out + self._in_flight - _FREE_BYTES)
        at_once = 0 if self.ready else self._mark - self._offered - out
        woken: list[Stream] = []
        for stream, size in starved.items():
            if budget > 0 and min(size, largest) <= borrowed:
                budget -= size
                borrowed -= size
            elif at_once <= 0:
                break  # the next room is for this one
            elif size + PREFIX_BYTES <= min(stream.send_window, self.window):
                at_once -= size
            else:
                continue
            self._offered += size
            woken.append(stream)
        for stream in woken:
            del starved[stream]
        rooms += woken
