"""Servers in small of Google Cloud Storage and of Azure, as far as a store needs them: on loopback, in this process."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Cloud(ThreadingHTTPServer):
    """A server with one bucket or container, whose name is the first part of each path.

    Attributes:
        objects: bytes and metadata by key.
        refuses: every request is answered with this status.
        requests: the methods and headers of all requests.
    """

    daemon_threads = True

    def __init__(self, handler: type[_Handler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.refuses = 0
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Cloud
    protocol_version = "HTTP/1.1"
    metadata = ""
    taken = 0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
        """Say nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        key = unquote(url.path).lstrip("/").partition("/")[2]
        with self.server.lock:
            self.server.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            if self.server.refuses:
                self._answer(self.server.refuses, b"<Error><Code>AccessDenied</Code><Message>not you</Message></Error>")
            else:
                self.answer(key, parse_qs(url.query, keep_blank_values=True), body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815  the library's names

    def answer(self, key: str, query: dict[str, list[str]], body: bytes) -> None:
        """Do a request."""
        objects = self.server.objects
        if self.command == "PUT":
            if self.only_creates() and key in objects:
                self._answer(self.taken)
                return
            told = {
                name.lower(): value for name, value in self.headers.items() if name.lower().startswith(self.metadata)
            }
            objects[key] = body, told
            self._answer(201, b"", **self._about(key))
        elif self.command == "DELETE":
            self._answer(204 if objects.pop(key, None) else 404)
        elif not key:
            self._answer(200, self.listed(query["prefix"][0]).encode())
        elif key in objects:
            self._answer(200, objects[key][0], **self._about(key))
        else:
            self._answer(404)

    def only_creates(self) -> bool:
        raise NotImplementedError

    def listed(self, prefix: str) -> str:
        raise NotImplementedError

    def _about(self, key: str) -> dict[str, str]:
        data, told = self.server.objects[key]
        return {**told, "etag": f'"{hashlib.md5(data).hexdigest()}"', "last-modified": formatdate(0, usegmt=True)}

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Google(_Handler):
    """The XML API of Google Cloud Storage."""

    metadata = "x-goog-meta-"
    taken = 412

    def only_creates(self) -> bool:
        return self.headers.get("x-goog-if-generation-match") == "0"

    def listed(self, prefix: str) -> str:
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>e</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, (data, _) in sorted(self.server.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"


class Azure(_Handler):
    """The Blob service of Azure."""

    metadata = "x-ms-meta-"
    taken = 409

    def only_creates(self) -> bool:
        return self.headers.get("if-none-match") == "*"

    def answer(self, key: str, query: dict[str, list[str]], body: bytes) -> None:
        """See `_Handler.answer`; several are deleted by one request."""
        if "batch" not in query.get("comp", []):
            super().answer(key, query, body)
            return
        names = [unquote(path) for path in re.findall(r"^DELETE /[^/]+/(\S+) ", body.decode(), re.MULTILINE)]
        parts = []
        for number, name in enumerate(names):
            self.server.objects.pop(name, None)
            parts.append(
                "--x\r\nContent-Type: application/http\r\nContent-ID: "
                f"{number}\r\n\r\nHTTP/1.1 202 Accepted\r\nx-ms-request-id: {number}\r\n\r\n"
            )
        answer = "".join(parts) + "--x--\r\n"
        self._answer(202, answer.encode(), **{"content-type": "multipart/mixed; boundary=x"})

    def listed(self, prefix: str) -> str:
        entries = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{formatdate(0, usegmt=True)}</Last-Modified>"
            f"<Etag>e</Etag><Content-Length>{len(data)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
            for key, (data, _) in sorted(self.server.objects.items())
            if key.startswith(prefix)
        )
        return f"<EnumerationResults><Blobs>{entries}</Blobs><NextMarker/></EnumerationResults>"


@contextmanager
def cloud(handler: type[_Handler]) -> Iterator[Cloud]:
    """Run a server for the time of a `with` block."""
    with Cloud(handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
