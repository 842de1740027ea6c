"""A reverse proxy before a server, as people have one: a path of its own, TLS, another Host.

It is for one test: one thread for each connection and direction, and no connection is used for two requests.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Front:
    """What is passed on, and how.

    Attributes:
        port: of the server.
        prefix: paths that begin with it are passed on.
        keeps_prefix: with it, or without it.
        keeps_host: the server sees the Host that the browser has used.
    """

    port: int
    prefix: str
    keeps_prefix: bool
    keeps_host: bool

    def rewritten(self, head: bytes) -> bytes | None:
        """Return the head of a request as it is passed on; None: it is not for this server."""
        method, _, rest = head.partition(b" ")
        prefix = self.prefix.encode()
        if not rest.startswith(prefix + b"/"):
            return None
        if not self.keeps_prefix:
            rest = rest.removeprefix(prefix)
        if not self.keeps_host:
            rest = re.sub(rb"(?im)^host:[^\r]*", b"Host: 127.0.0.1:%d" % self.port, rest)
        if b"upgrade: websocket" not in rest.lower():
            rest = re.sub(rb"(?im)^connection:[^\r]*", b"Connection: close", rest)
        return method + b" " + rest


@contextmanager
def standing(front: Front, listener: socket.socket, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """Have the proxy for the time of the block."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def serve(plain: socket.socket) -> None:
        with suppress(OSError), closing(plain if tls is None else tls.wrap_socket(plain, server_side=True)) as browser:
            head = b""
            while _HEAD_END not in head:
                data = browser.recv(65536)
                if not data:
                    return
                head += data
            passed = front.rewritten(head)
            if passed is None:
                browser.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                return
            with closing(socket.create_connection(("127.0.0.1", front.port))) as server:
                server.sendall(passed)
                back = threading.Thread(target=pump, args=(server, browser), daemon=True)
                back.start()
                pump(browser, server)
                back.join()

    def pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
