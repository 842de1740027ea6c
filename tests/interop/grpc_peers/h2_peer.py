"""h2 as a peer, in an environment of its own: what libraries of gRPC do not send, and others do.

`python h2_peer.py client PORT` plays its rows against a server and prints what came of each; `python h2_peer.py server`
prints its port, answers each call by the name of its method, and ends with its standard input.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import Counter
from typing import Any

import h2.config
import h2.connection
import h2.events

NOTE = b"\0\0\0\0\2\x08\x02"
LARGE = b"\0\0\4\x94\4" + b"\x1a\x80\xa8\x12" + bytes(300_032)
CODES = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"]
CODES += ["PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"]
CODES += ["UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"]
SECONDS = 20
OPENING = [(":status", "200"), ("content-type", "application/grpc")]
#: What a server of this module sends in `grpc-retry-pushback-ms`, by the names of its methods.
PUSHBACKS = {"Text": "abc", "Huge": "3000000000", "Negative": "-1", "Units": "300ms"}
#: How often each of these has been called, over whichever connection.
attempts = Counter[str]()


class Peer:
    """A connection, and what has come on each of its streams."""

    def __init__(self, sock: socket.socket, *, client: bool) -> None:
        sock.settimeout(SECONDS)
        self.socket = sock
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.fields: dict[int, dict[str, str]] = {}
        self.data: dict[int, bytearray] = {}
        self.paths: dict[int, str] = {}
        self.over: dict[int, str] = {}  # how a stream ended: "ended", or "reset with CODE"
        self.gone = False
        self.flush()

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.socket.sendall(data)

    def read(self) -> list[Any]:
        """Read once, give back the windows, and note what has come."""
        data = self.socket.recv(65_536)
        if not data:
            self.gone = True
            return []
        events: list[Any] = self.h2.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                self.paths[event.stream_id] = dict(event.headers)[":path"].rpartition("/")[2]
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                self.fields.setdefault(event.stream_id, {}).update(dict(event.headers))
            elif isinstance(event, h2.events.DataReceived):
                self.data.setdefault(event.stream_id, bytearray()).extend(event.data)
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.over.setdefault(event.stream_id, "ended")
            elif isinstance(event, h2.events.StreamReset):
                self.over.setdefault(event.stream_id, f"RST_STREAM with {event.error_code!r}")
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.gone = True
        self.flush()
        return events

    def send(self, stream: int, data: bytes, *, padding: int | None = None, end: bool = False) -> None:
        """Send DATA, as the windows allow it."""
        while data or end:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            size = min(len(data), room - (0 if padding is None else padding + 1))
            if data and size <= 0:
                if self.gone or self.over.get(stream, "ended") != "ended":
                    return
                self.read()
                continue
            part, data = data[:size], data[size:]
            self.h2.send_data(stream, part, end_stream=end and not data, pad_length=padding)
            self.flush()
            if not data:
                return

    # --- the client ---

    def begin(self, method: str) -> int:
        stream: int = self.h2.get_next_available_stream_id()
        fields = [(":method", "POST"), (":scheme", "http"), (":path", f"/peers.Peers/{method}"), (":authority", "here")]
        self.h2.send_headers(stream, [*fields, ("te", "trailers"), ("content-type", "application/grpc")])
        self.flush()
        return stream

    def status(self, stream: int) -> str:
        """Wait for the end of a call, and return its status."""
        while stream not in self.over and not self.gone:
            self.read()
        fields = self.fields.get(stream, {})
        assert "grpc-retry-pushback-ms" not in fields
        if "grpc-status" in fields:
            return CODES[int(fields["grpc-status"])]
        return self.over.get(stream, "the connection is closed")

    def call(self, method: str, data: bytes, **how: Any) -> str:
        stream = self.begin(method)
        self.send(stream, data, end=True, **how)
        status = self.status(stream)
        if method == "Chat":
            assert self.data[stream] == data
        return status


def connected(port: str) -> Peer:
    return Peer(socket.create_connection(("127.0.0.1", int(port))), client=True)


def play(port: str) -> dict[str, str]:
    peer, found = connected(port), {}
    found["one message each way"] = peer.call("Echo", NOTE)
    found["300 messages each way"] = peer.call("Chat", NOTE * 300)
    found["300,000 bytes each way"] = peer.call("Chat", LARGE)
    found["the same, padded"] = peer.call("Chat", LARGE, padding=255)
    found["300 messages, each padded"] = padded(peer)
    stream = peer.begin("First")
    peer.send(stream, NOTE)
    found["the answer before the last request"] = peer.status(stream)
    found["a message that is cut off"] = peer.call("Echo", NOTE[:-1])
    found["no message, and END_STREAM on empty DATA"] = peer.call("Echo", b"")
    stream = peer.begin("Echo")
    peer.send(stream, NOTE)
    peer.h2.send_data(stream, b"", end_stream=True)
    peer.flush()
    found["END_STREAM on empty DATA"] = peer.status(stream)
    stream = peer.begin("Wait")
    peer.send(stream, NOTE)
    peer.h2.reset_stream(stream, 0)
    peer.flush()
    found["a call after a reset with NO_ERROR"] = peer.call("Echo", NOTE)
    found["the server is full"] = peer.call("Refuse", b"\0\0\0\0\0")
    pinging = connected(port)
    stream = pinging.begin("Wait")
    pinging.send(stream, NOTE, end=True)
    for _ in range(1000):
        pinging.h2.ping(bytes(8))
        pinging.flush()
        pinging.read()
        if pinging.gone:
            break
    found["a PING every 10 ms"] = "the connection is closed" if pinging.gone else "OK"
    found["a call after that"] = connected(port).call("Echo", NOTE)
    return found


def padded(peer: Peer) -> str:
    stream = peer.begin("Chat")
    for number in range(300):
        peer.send(stream, NOTE, padding=number % 256, end=number == 299)
    status = peer.status(stream)
    assert peer.data[stream] == NOTE * 300
    return status


# --- the server ---


def answer(peer: Peer, stream: int, method: str) -> None:
    data = bytes(peer.data.get(stream, b""))

    def opening() -> None:
        peer.h2.send_headers(stream, OPENING)

    def trailers(status: int = 0, *more: tuple[str, str]) -> None:
        peer.h2.send_headers(stream, [("grpc-status", str(status)), *more], end_stream=True)
        peer.flush()

    if method in PUSHBACKS:
        attempts[method] += 1
        pushback = [("grpc-retry-pushback-ms", PUSHBACKS[method]), ("attempts", str(attempts[method]))]
        peer.h2.send_headers(stream, [*OPENING, ("grpc-status", "14"), *pushback], end_stream=True)
    elif method in ("Echo", "Chat", "Padded"):
        opening()
        peer.send(stream, data, padding=255 if method == "Padded" else None)
        trailers()
    elif method == "PaddedNotes":
        opening()
        for at in range(0, len(data), len(NOTE)):
            peer.send(stream, data[at : at + len(NOTE)], padding=at % 256)
        trailers()
    elif method == "First":
        opening()
        peer.send(stream, NOTE)
        trailers()
        peer.h2.reset_stream(stream, 0)
    elif method == "Cut":
        opening()
        peer.send(stream, NOTE[:-1])
        trailers()
    elif method == "EndsWithData":
        opening()
        peer.send(stream, NOTE, end=True)
    elif method == "Reset":
        peer.h2.reset_stream(stream, 0)
    elif method == "ResetAfterMessage":
        opening()
        peer.send(stream, NOTE)
        peer.h2.reset_stream(stream, 0)
    peer.flush()


def serve_connection(sock: socket.socket) -> None:
    peer, done = Peer(sock, client=False), set[int]()
    try:
        while not peer.gone:
            peer.read()
            for stream, method in list(peer.paths.items()):
                ready = stream in peer.over or (method == "First" and stream in peer.data)
                if ready and stream not in done:
                    done.add(stream)
                    answer(peer, stream, method)
    except OSError:
        pass
    finally:
        sock.close()


def serve() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=serve_connection, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "client":
        print(json.dumps(play(sys.argv[2])))
    else:
        serve()
