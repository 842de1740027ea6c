"""Requests of browsers: the head, and the call that it makes if it makes one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import Metadata
from trio_cogment.rpc.relay import BadMetadataError, RawHeaders, RefusedRequest, decode_metadata, decode_timeout

#: Content types of gRPC-Web. What may follow is the messages' format, which is protobuf.
_BINARY = b"application/grpc-web"
_TEXT = b"application/grpc-web-text"
_FORMATS = (b"", b"+proto")
#: Fields that are HTTP's and the browser's: no metadata of a call.
_NOT_METADATA = frozenset(
    [
        *(b"accept", b"accept-charset", b"accept-encoding", b"accept-language", b"cache-control", b"connection"),
        *(b"content-encoding", b"content-length", b"content-type", b"cookie", b"date", b"dnt", b"expect", b"host"),
        *(b"keep-alive", b"origin", b"pragma", b"priority", b"proxy-connection", b"referer", b"save-data", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"upgrade-insecure-requests", b"user-agent", b"via"),
        *(b"x-grpc-web", b"x-user-agent"),
    ]
)
_TOKEN_MARK = "/~"
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*?)[ \t]*\Z")


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request.

    Attributes:
        method: `GET`, for example.
        path: without the query.
        query: what follows the first `?`.
        headers: names in lower case.
        secure: it came over TLS.
        foreign: see `origins.Admitted`.
        token: what its path had before the rest, as `/~TOKEN/...`.
        written: the path as it was sent, with the token, without what the server's public address has before it.
        base: what the browser has before that path, as `/lab`, where that is known; see `origins.PublicAddress`.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[bytes, bytes], ...]
    secure: bool = False
    foreign: str = ""
    token: str = ""
    written: str = ""
    base: str = ""

    def all(self, name: bytes) -> list[bytes]:
        """Return the values of all fields of this name."""
        return [value for key, value in self.headers if key == name]

    def first(self, name: bytes) -> bytes:
        """Return the value of the first field of this name; empty without one."""
        return next((value for key, value in self.headers if key == name), b"")

    def texts(self, name: bytes) -> list[str]:
        """Return what `all` does, as text."""
        return [value.decode("latin-1") for value in self.all(name)]

    def listed(self, name: bytes) -> list[bytes]:
        """Return the parts of all fields of this name, which are separated by commas, in lower case."""
        return [part.strip().lower() for value in self.all(name) for part in value.split(b",") if part.strip()]

    @property
    def wants_html(self) -> bool:
        """Whether somebody wants to look at the answer."""
        return any(kind.startswith(b"text/html") for kind in self.listed(b"accept"))

    @property
    def upgrades_to_websocket(self) -> bool:
        """Whether it asks for a WebSocket."""
        return b"websocket" in self.listed(b"upgrade")

    def at(self, path: str) -> str:
        """Return how the answer refers to a path of this server; a token in the request's path stays in it.

        A proxy may serve the server below a path that it takes away, so the reference is relative to the request's own
        path, unless the server knows what is before it.
        """
        return self.outside(f"{_TOKEN_MARK}{self.token}{path}" if self.token else path)

    def outside(self, path: str) -> str:
        """Return what `at` does, without the token: for who comes with another one, or with a cookie."""
        if self.base:
            return self.base + path
        up = (self.written or self.path).count("/") - 1
        return ("../" * up or "./") + path[1:]


def token_in_path(path: str) -> tuple[str, str]:
    """Return the token that a path begins with (`/~TOKEN/...`), empty without one, and the path that is meant."""
    if not path.startswith(_TOKEN_MARK):
        return "", path
    token, _, rest = path[len(_TOKEN_MARK) :].partition("/")
    return token, f"/{rest}"


@dataclass(frozen=True, slots=True)
class CallHead:
    """What a call says before its messages.

    Attributes:
        metadata: of the caller.
        timeout: in seconds, None for no limit.
    """

    metadata: Metadata
    timeout: float | None


def call_head(headers: Iterable[tuple[bytes, bytes]], max_bytes: int) -> CallHead:
    """Return what header fields say about a call.

    Args:
        headers: names in lower case.
        max_bytes: of the metadata, as HTTP/2 counts them.

    Raises:
        RpcError: they cannot be those of a call.
    """
    fields: RawHeaders = []
    timeout: float | None = None
    for name, value in call_fields(headers):
        if name == b"grpc-timeout":
            timeout = _timeout(value)
        else:
            fields.append((name, value))
    if sum(len(name) + len(value) + 32 for name, value in fields) > max_bytes:
        raise RpcError(StatusCode.RESOURCE_EXHAUSTED, f"metadata is larger than {max_bytes} bytes")
    try:
        return CallHead(decode_metadata(fields), timeout)
    except BadMetadataError as error:
        raise RpcError(StatusCode.INTERNAL, str(error)) from None


def call_fields(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the header fields that are a call's; names are in lower case."""
    fields: RawHeaders = []
    for name, value in headers:
        if name in _NOT_METADATA or name.startswith((b"sec-", b"access-control-")):
            continue
        if name == TRIAL_ID.encode():
            # A browser makes one field of several with the same name.
            fields.extend((name, part.strip()) for part in value.split(b","))
        else:
            fields.append((name, value))
    return fields


def _timeout(value: bytes) -> float:
    try:
        return decode_timeout(value)
    except RefusedRequest as refused:
        raise RpcError(refused.code, refused.message) from None


def lines(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a block, as they begin a call over a WebSocket.

    Raises:
        RpcError: it contains something else.
    """
    fields = []
    for line in block.split(b"\r\n"):
        if line:
            match = _LINE.match(line)
            if match is None:
                raise RpcError(StatusCode.INTERNAL, "expected header fields in the first message")
            fields.append((match[1].lower(), match[2]))
    return fields


def is_text(content_type: bytes) -> bool | None:
    """Return whether a content type is that of gRPC-Web as text, or else as bytes; None: it is neither."""
    kind = content_type.partition(b";")[0].strip().lower()
    for prefix, text in ((_TEXT, True), (_BINARY, False)):
        if kind.startswith(prefix) and kind[len(prefix) :] in _FORMATS:
            return text
    return None


def wants_text(accept: Iterable[bytes], asked_in_text: bool) -> bool:
    """Return whether the answer to a call is to be text.

    Args:
        accept: what the caller takes, in its order; what is not gRPC-Web does not count.
        asked_in_text: the form of the request, which the answer has unless the caller says else.
    """
    for kind in accept:
        text = is_text(kind)
        if text is not None:
            return text
    return asked_in_text


def reply_type(text: bool) -> bytes:
    """Return the content type of an answer."""
    return (_TEXT if text else _BINARY) + b"+proto"
