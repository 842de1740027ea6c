"""A peer that pads every DATA frame: h2 on one side, an engine on the other, and nothing between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import h2.config
import h2.connection
import h2.events

from tests.rpc.raw_peer import message, request_headers
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import Kind
from trio_cogment.rpc._streams import Stream

#: Any number of them may be wanted in turn.
Paddings = Iterable[int]


class PaddingPeer:
    """A sender of messages on some calls, whose every frame is padded, and the engine that takes them.

    Args:
        config: of the engine.
        client_side: the role of the engine.
        paddings: of the frames, in turn, again and again; a frame is sent when it fits with its padding and a byte.
        on_message: called with what has come.
    """

    def __init__(
        self,
        config: RpcConfig,
        *,
        client_side: bool,
        paddings: Paddings,
        on_message: Callable[[Stream, bytes], None] | None = None,
    ) -> None:
        self.engine = Engine(client_side=client_side, config=config)
        self.peer = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=not client_side, header_encoding=None)
        )
        self.came: dict[int, list[int]] = {}
        self.updates = 0
        self._paddings = itertools.cycle(paddings)
        self._padding = next(self._paddings)
        self._unsent: dict[int, bytearray] = {}
        self._on_message = on_message or (lambda stream, payload: self.engine.consumed(stream, len(payload)))
        self.peer.initiate_connection()
        self._exchange()

    def open(self) -> int:
        """Open a call on which the peer sends; return its number."""
        if self.engine.client_side:
            number = self.engine.open_request(request_headers()).id
            self._exchange()
            self.peer.send_headers(number, _grpc_headers.RESPONSE_HEADERS)
        else:
            number = self.peer.get_next_available_stream_id()
            self.peer.send_headers(number, request_headers())
        self._exchange()
        self.came[number] = []
        self._unsent[number] = bytearray()
        return number

    def send(self, number: int, size: int) -> None:
        """Have the peer send a message of this many bytes, as far as it may."""
        self._unsent[number] += message(bytes(size))
        self.go_on()

    def go_on(self) -> None:
        """Send what the windows admit, until they admit nothing any more."""
        self._exchange()
        while sum(self._send_frame(number, unsent) for number, unsent in self._unsent.items()):
            self._exchange()

    @property
    def left(self) -> int:
        """How many bytes the peer could not send."""
        return sum(map(len, self._unsent.values()))

    def _send_frame(self, number: int, unsent: bytearray) -> bool:
        window = self.peer.local_flow_control_window(number)
        size = min(len(unsent), window - self._padding - 1, self.peer.max_outbound_frame_size - self._padding - 1)
        if size <= 0:
            return False
        self.peer.send_data(number, bytes(unsent[:size]), pad_length=self._padding)
        del unsent[:size]
        self._padding = next(self._paddings)
        return True

    def _exchange(self) -> None:
        while True:
            to_engine, to_peer = self.peer.data_to_send(), self.engine.take_output()
            if not to_engine and not to_peer:
                return
            for kind, stream, value in self.engine.receive_data(to_engine):
                if kind is Kind.MESSAGE:
                    self.came[stream.id].append(len(value))
                    self._on_message(stream, value)
            assert self.engine.fault is None
            events = self.peer.receive_data(to_peer)
            self.updates += sum(isinstance(event, h2.events.WindowUpdated) for event in events)
