"""gRPC over WebSockets, as @improbable-eng/grpc-web has it and the JavaScript SDK uses it: one call, of any shape.

The client's first message has header fields as lines. Each further one begins with a byte: 0, and bytes of gRPC-Web
follow, or 1 alone, and it sends nothing more. The server answers with frames of gRPC-Web, each a message: one of header
fields, those of the call's messages, and one of the status; a single frame of header fields is the status. The frame
with the headers has to be a message of its own, or clients do not see what comes behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import trio
from typing_extensions import override

from trio_cogment.access import Identity
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.rpc import Metadata
from trio_cogment.rpc.relay import RelayedCall, RelayRoute, encode_metadata
from trio_cogment.web.answering import Answering, relayed
from trio_cogment.web.frames import FrameReader, fields_frame, message_head
from trio_cogment.web.hosting import Hosting, admitted, counted, read_until_closed
from trio_cogment.web.intake import BATCH_UNITS, MOST_AT_ONCE, in_batches, units_of
from trio_cogment.web.joining import Farewell
from trio_cogment.web.requests import CallHead, Request, call_head, lines
from trio_cogment.web.websockets import Alive, Answer, BrokenSocketError, Closed, WebSocket

#: The name of the protocol, in the handshake.
PROTOCOL = "grpc-websockets"
_DATA = 0
_HALF_CLOSE = b"\x01"
_LEFT = RpcError(StatusCode.CANCELLED, "the caller left")


class SocketAnswering(Answering):
    """An answer over a WebSocket."""

    socket: WebSocket
    farewell: Farewell

    @override
    def opening(self, metadata: Metadata) -> bytes:
        return self.wrapped(fields_frame(encode_metadata(metadata)))

    @override
    def wrapped(self, frame: bytes) -> bytes:
        return self.socket.message(frame)

    @override
    def shared(self, message: SharedMessage) -> Sequence[bytes]:
        size = message.ByteSize()
        frame_head = message_head(size)
        head = self.socket.message_head(len(frame_head) + size)
        return (head + frame_head + message.head, *message.tails) if head else ()

    @override
    def closing(self) -> bytes:
        return self.socket.close()

    @override
    def on_message(self, message: Any) -> None:
        if not isinstance(message, SharedMessage):  # nobody shares an END
            self.farewell.sent(message)
        super().on_message(message)

    @override
    def on_end(self, error: RpcError | None) -> None:
        if not self.over.is_set():
            last = self.farewell.owed(error)
            if last is not None:
                self._open(Metadata())
                super().on_message(last)
        super().on_end(error)


class SocketCall:
    """The call of one WebSocket.

    Args:
        connection: it came by, after the handshake.
        socket: see above.
        route: what is called.
        request: that has asked for the WebSocket.
    """

    def __init__(self, connection: Hosting, socket: WebSocket, route: RelayRoute, request: Request) -> None:
        self._connection = connection
        self._socket = socket
        self._route = route
        self._request = request
        self._frames = FrameReader(connection.config.max_receive_message_bytes)
        self._answering = SocketAnswering(
            connection.output, connection.writer, route, connection.limits.write_high_water_bytes
        )
        self._answering.socket = socket
        self._answering.farewell = Farewell(route.method)
        self._heard = trio.current_time()
        self._waits_for_room = False
        self._unread: list[bytes] = []  # messages that came together with the first one
        self._events: Iterator[list[bytes | Answer | Alive | Closed]] = iter(())  # what came behind them

    async def serve(self, left_over: bytes) -> None:
        """Serve the call, and close the WebSocket.

        Args:
            left_over: what came together with the handshake.
        """
        try:
            head = await self._head(left_over)
            if head is None:
                await self._linger()
                return
            identity = admitted(self._connection, self._request, self._route.method.path, head.metadata)
            counted(self._connection, identity)
        except RpcError as error:
            self._answering.refuse(error)
        except BrokenSocketError as error:
            self._break(error)
        else:
            await self._serve(head, identity)
        finally:
            self._frames.discard()  # errors are in cycles with what has raised them, and may live for a while
        await self._linger()

    async def _serve(self, head: CallHead, identity: Identity) -> None:
        connection = self._connection
        call = connection.relay.relay(self._route, head.metadata, head.timeout, connection.peer, identity)
        with connection.serving(call, identity):
            await relayed(call, self._route, self._answering, self._both, connection.config.farewell_timeout_seconds)

    async def _both(self, call: RelayedCall) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_alive, call)
            await self._requests(call)
            nursery.cancel_scope.cancel()

    # --- what the client sends ---

    async def _head(self, left_over: bytes) -> CallHead | None:
        """Wait for the first message; None when the client leaves instead."""
        limit = self._connection.config.max_header_list_bytes
        seconds = self._connection.limits.head_timeout_seconds
        with trio.move_on_after(seconds):
            data = left_over
            while True:
                self._events = in_batches(self._socket.receive(data))
                for events in self._events:
                    messages = self._messages(events)
                    if messages is None:
                        return None
                    if messages:
                        self._unread = messages[1:]
                        if len(messages[0]) > limit:
                            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, f"metadata is larger than {limit} bytes")
                        return call_head(lines(messages[0]), limit)
                    await self._connection.turn(len(events) // 4)
                self._connection.writer.flush()
                await self._count()
                data = await self._connection.byte_stream.receive_some()
                await self._connection.turn(units_of(data))
                if not data:
                    return None
        raise RpcError(StatusCode.DEADLINE_EXCEEDED, f"no header fields came within {seconds:g} s")

    def _messages(self, events: Iterable[bytes | Answer | Alive | Closed]) -> list[bytes] | None:
        """Return the messages among what has been received; None: the client has closed the WebSocket."""
        messages = []
        for event in events:
            if type(event) is bytes:
                messages.append(event)
            elif isinstance(event, Answer):
                self._connection.output.answer(event.data)
            elif isinstance(event, Closed):
                return None
        return messages

    async def _requests(self, call: RelayedCall) -> None:
        """Pass on what comes, and end the call if the client leaves."""
        connection = self._connection
        receive_some, writer = connection.byte_stream.receive_some, connection.writer
        socket, frames, intake = self._socket, self._frames, connection.intake
        try:
            await self._pass_on(call, self._unread)
            left = not await self._handle(call, self._events)
            while not left and (data := await receive_some()):
                self._heard = trio.current_time()
                await connection.turn(units_of(data))
                left = not await self._handle(call, in_batches(socket.receive(data)))
                writer.flush()
                if socket.begun or frames.begun or intake.begun:
                    await self._count()
            await connection.turn(
                1
            )  # a thousand clients may leave in one moment, and each call that ends costs something
            call.abort(_LEFT)
        except RpcError as error:
            call.refuse(error)
        except BrokenSocketError as error:
            self._break(error)
            call.abort(_LEFT)
        except trio.BrokenResourceError:
            call.abort(_LEFT)

    async def _handle(self, call: RelayedCall, batches: Iterator[list[bytes | Answer | Alive | Closed]]) -> bool:
        """Pass on what one read has brought; False: the client has closed the WebSocket."""
        for events in batches:
            messages = self._messages(events)
            if messages is None:
                return False
            await self._pass_on(call, messages)
            if len(events) == MOST_AT_ONCE:
                await self._connection.turn(BATCH_UNITS)
        return True

    async def _count(self) -> None:
        """Wait until there is room for the message that has begun."""
        socket, frames = self._socket, self._frames
        # A message of gRPC may be spread over several of the WebSocket.
        missing = max(socket.missing, frames.missing - socket.begun)
        self._waits_for_room = True
        try:
            await self._connection.intake.begin(socket.begun + frames.begun, missing)
        finally:
            self._waits_for_room = False

    async def _pass_on(self, call: RelayedCall, messages: list[bytes]) -> None:
        """Pass on messages, in one go as far as there is room for them and they are not very many."""
        writer = self._connection.writer
        self._connection.intake.missing = 0  # the client is not waited for
        payloads = self._payloads(call, messages)
        while True:
            writer.in_batch = True  # a handler may answer in this task
            try:
                late, done = self._pass_on_nowait(call, islice(payloads, MOST_AT_ONCE))
            except LocalProtocolError as error:
                raise RpcError(StatusCode.INTERNAL, str(error)) from None
            finally:
                writer.in_batch = False
            if late is None:
                if done < MOST_AT_ONCE:
                    return
                await self._connection.turn(BATCH_UNITS)
                continue
            writer.flush()
            self._waits_for_room = True
            try:
                if isinstance(late, bytes):
                    await call.large_turn()
                    late = call.decode(late)
                    self._answering.prompt = True
                await call.send_together([late])
            finally:
                self._waits_for_room = False

    def _payloads(self, call: RelayedCall, messages: list[bytes]) -> Iterator[bytes]:
        """Return the messages of gRPC that these complete."""
        for data in messages:
            if data == _HALF_CLOSE:
                call.done_sending_nowait()
            elif not data or data[0] != _DATA:
                raise RpcError(StatusCode.INTERNAL, "expected a message that begins with 0, or 1 alone")
            else:
                yield from self._frames.receive(data[1:])

    def _pass_on_nowait(self, call: RelayedCall, payloads: Iterator[bytes]) -> tuple[Any, int]:
        """Pass messages on; return one that must wait, for room or (as bytes) to be decoded, and how many had not."""
        done, decode = 0, call.decode
        for payload in payloads:
            if call.waits(payload):
                return payload, done
            message = decode(payload)
            self._answering.prompt = True
            try:
                call.hand_over_nowait(message, len(payload))
            except trio.WouldBlock:
                return message, done
            done += 1
        return None, done

    # --- is the client there? ---

    async def _keep_alive(self, call: RelayedCall) -> None:
        """Send a ping after a silence, and end the call if nothing comes then."""
        config = self._connection.limits
        while True:
            await trio.sleep_until(self._heard + config.ping_seconds)
            before = self._heard
            if trio.current_time() < before + config.ping_seconds:
                continue
            self._connection.send_soon(self._socket.ping())
            await trio.sleep(config.ping_timeout_seconds)
            if self._waits_for_room:
                self._heard = trio.current_time()  # what it may have answered has not been read
            elif self._heard == before:
                call.abort(_LEFT)
                self._connection.lose()

    # --- the end ---

    def _break(self, error: BrokenSocketError) -> None:
        """Close it because of what the client sent."""
        self._connection.send_soon(self._socket.close(error.code, str(error)))

    async def _linger(self) -> None:
        """Read on until the client has closed it too: what it sends must not make the system drop what it was sent."""
        await read_until_closed(self._connection, self._socket, self._socket.close())
