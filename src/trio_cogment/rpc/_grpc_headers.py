"""gRPC in HTTP/2 headers, written and read back: paths, timeouts, metadata, statuses.

Everything here is a pure function of header lists (pairs of bytes). The rules are those of the gRPC documents
`PROTOCOL-HTTP2.md`, `http-grpc-status-mapping.md` and `statuscodes.md`. Requests of gRPC-Web are read here as well,
after a server's web side has judged them (`_grpc_web`).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from trio_cogment._version import __version__
from trio_cogment.base.errors import STATUS_DETAILS, StatusCode
from trio_cogment.rpc._grpc_web import WebAnswer, WebRules
from trio_cogment.rpc._hpack import RawHeaders as RawHeaders
from trio_cogment.rpc._hpack import unindexed
from trio_cogment.rpc._peer_statuses import STATUS_OF_HTTP
from trio_cogment.rpc.metadata import Metadata

CONTENT_TYPE = (b"content-type", b"application/grpc")
_GRPC_SUBTYPES = (b"application/grpc+", b"application/grpc;")
_OF_PROTOBUF = (b"application/grpc", b"application/grpc+proto")
_GRPC_WEB = b"application/grpc-web"
_WEB_OF_PROTOBUF = (b"application/grpc-web", b"application/grpc-web+proto")
USER_AGENT = (b"user-agent", f"trio-cogment/{__version__}".encode())
#: The message encodings that can be read, by gRPC's names.
ENCODINGS = (b"identity", b"deflate", b"gzip")
ACCEPT_ENCODING = (b"grpc-accept-encoding", b",".join(ENCODINGS))
RESPONSE_HEADERS: RawHeaders = [(b":status", b"200"), CONTENT_TYPE, ACCEPT_ENCODING]

_NAME = re.compile(rb"[a-z0-9_.\-]+\Z")
_VALUE = re.compile(rb"[\x20-\x7e]*\Z")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])\Z")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MAX_TIMEOUT_VALUE = 99_999_999  # eight digits

#: Not metadata: the transport's own fields. `user-agent` says what the library is, not what the caller sent.
_RESERVED = frozenset([b"te", b"content-type", b"content-length", b"user-agent", b"host"])

#: They are about an HTTP/1 connection; in HTTP/2 they make a message malformed (RFC 9113, 8.2.2).
_OF_CONNECTIONS = frozenset([b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"])

#: So much of a peer's content type is repeated in messages.
_LONGEST_SHOWN = 100

#: With so few fields a header list of a response is most likely one of a few.
_USUAL_FIELDS = 4

_STATUS_OF_TEXT = {b"%d" % code: code for code in StatusCode}


class RefusedRequest(Exception):  # noqa: N818 - not an error of this end: the answer to a malformed request
    """A request that gets a status instead of a handler."""

    def __init__(
        self,
        code: StatusCode,
        message: str,
        http_status: bytes = b"200",
        headers: Sequence[tuple[bytes, bytes]] = (),
        web: WebAnswer | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status
        self.headers = headers  # what else the answer says
        self.web = web

    def response(self) -> RawHeaders:
        """Return the answer."""
        return [*status_alone(self.code, self.message, self.web, self.http_status), *self.headers]


class BadMetadataError(ValueError):
    """Metadata that may not be on the wire."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The headers of an accepted request.

    Attributes:
        path, timeout, metadata, encoding, accept_encoding: as they say it.
        web: how the call is answered, if it is one of gRPC-Web.
    """

    path: str
    timeout: float | None
    metadata: Metadata
    encoding: bytes
    accept_encoding: bytes
    web: WebAnswer | None = None


@dataclass(frozen=True, slots=True)
class Trailers:
    """How a call ended, as the peer said it."""

    code: StatusCode
    message: str
    metadata: Metadata


def is_malformed(headers: RawHeaders) -> bool:
    """Whether HTTP/2 forbids one of these fields."""
    return any(name in _OF_CONNECTIONS or (name == b"te" and value != b"trailers") for name, value in headers)


# --- requests ---


def request_headers(
    path: str, *, scheme: str, authority: str, timeout: float | None, metadata: Metadata, encoding: str = ""
) -> RawHeaders:
    """Return the headers of a request."""
    headers: RawHeaders = [*_usual_headers(path, scheme, authority)]
    if encoding:
        headers.append((b"grpc-encoding", encoding.encode()))
    if timeout is not None:
        headers.append(unindexed(b"grpc-timeout", encode_timeout(timeout)))
    if metadata:
        headers += encode_metadata(metadata)
    return headers


@lru_cache(maxsize=256)  # a program has few methods and servers
def _usual_headers(path: str, scheme: str, authority: str) -> RawHeaders:
    return [
        (b":method", b"POST"),
        (b":scheme", scheme.encode()),
        (b":path", path.encode()),
        (b":authority", authority.encode()),
        (b"te", b"trailers"),
        CONTENT_TYPE,
        USER_AGENT,
        ACCEPT_ENCODING,
    ]


def is_grpc(content_type: bytes) -> bool:
    """Whether this is gRPC's content type, with whatever subtype; gRPC-Web and its like are not (gRPC over HTTP/2)."""
    return content_type == CONTENT_TYPE[1] or content_type.startswith(_GRPC_SUBTYPES)


def is_protobuf(content_type: bytes) -> bool:
    """Whether the messages of gRPC's content type are those of protobuf, with whatever parameters."""
    return content_type.partition(b";")[0].rstrip().lower() in _OF_PROTOBUF


def parse_request(headers: RawHeaders, max_header_list_bytes: int, web: WebRules | None = None) -> RequestHead:
    """Check a request's headers.

    Args:
        headers: see above.
        max_header_list_bytes: more are refused, as HTTP/2 counts them.
        web: judges requests of gRPC-Web; None: there must be none.

    Raises:
        RefusedRequest: they do not make a gRPC request; the stream gets the status it carries.
    """
    pseudo: dict[bytes, bytes] = {}
    fields: RawHeaders = []
    size = 0
    for name, value in headers:
        size += len(name) + len(value) + 32
        if name[:1] != b":":
            fields.append((name, value))
        elif fields or name in pseudo:  # RFC 9113, 8.3: before all fields, and once
            raise RefusedRequest(StatusCode.INTERNAL, "malformed pseudo-header fields", b"400")
        else:
            pseudo[name] = value
    too_large = f"metadata is larger than {max_header_list_bytes} bytes" if size > max_header_list_bytes else ""
    known = _known_fields(fields)
    if web is not None and known.get(b"content-type", b"")[: len(_GRPC_WEB)].lower() == _GRPC_WEB:
        return _parse_web_request(web, pseudo, fields, known, too_large)
    return _parse(pseudo, fields, known, too_large)


def _parse_web_request(
    web: WebRules, pseudo: dict[bytes, bytes], fields: RawHeaders, known: dict[bytes, bytes], too_large: str
) -> RequestHead:
    path, authority = (pseudo.get(name, b"").decode("latin-1") for name in (b":path", b":authority"))
    request = web(path, authority, fields)
    try:
        pseudo[b":path"] = request.path.encode("latin-1")
        return _parse(pseudo, request.fields, known, too_large, request.answer)
    except RefusedRequest as refusal:
        refusal.web = request.answer
        raise


def _parse(
    pseudo: dict[bytes, bytes],
    fields: RawHeaders,
    known: dict[bytes, bytes],
    too_large: str,
    web: WebAnswer | None = None,
) -> RequestHead:
    if too_large:
        raise RefusedRequest(StatusCode.RESOURCE_EXHAUSTED, too_large, b"431")
    path = _checked_request_line(pseudo, known, web is not None)
    timeout = known.get(b"grpc-timeout")
    try:
        metadata = decode_metadata(fields)
    except BadMetadataError as error:
        raise RefusedRequest(StatusCode.INTERNAL, str(error)) from None
    encoding = known.get(b"grpc-encoding", b"identity")
    if encoding not in ENCODINGS:
        message = f"message encoding {encoding.decode('latin-1')!r} is not supported"
        raise RefusedRequest(StatusCode.UNIMPLEMENTED, message, headers=[ACCEPT_ENCODING])
    return RequestHead(
        path,
        None if timeout is None else decode_timeout(timeout),
        metadata,
        encoding,
        known.get(b"grpc-accept-encoding", b""),
        web,
    )


def _known_fields(fields: RawHeaders) -> dict[bytes, bytes]:
    return {name: value for name, value in fields if name in (b"te", b"content-type") or name[:5] == b"grpc-"}


def _checked_request_line(pseudo: dict[bytes, bytes], fields: dict[bytes, bytes], over_web: bool) -> str:
    method = pseudo.get(b":method")
    if method != b"POST":
        raise RefusedRequest(StatusCode.INTERNAL, "expected the method POST", b"405" if method else b"400")
    content_type = fields.get(b"content-type", b"")
    if not over_web and not is_grpc(content_type):
        raise RefusedRequest(StatusCode.INTERNAL, "expected the content-type application/grpc", b"415")
    if pseudo.get(b":scheme") not in (b"http", b"https"):
        raise RefusedRequest(StatusCode.INTERNAL, "expected the scheme http or https", b"400")
    if not pseudo.keys() <= {b":method", b":scheme", b":path", b":authority"}:
        raise RefusedRequest(StatusCode.INTERNAL, "malformed pseudo-header fields", b"400")
    if not over_web and fields.get(b"te") != b"trailers":
        raise RefusedRequest(StatusCode.INTERNAL, "expected 'te: trailers'; is there an incompatible proxy?", b"400")
    if over_web:
        if content_type.partition(b";")[0].rstrip().lower() not in _WEB_OF_PROTOBUF:
            raise RefusedRequest(StatusCode.UNIMPLEMENTED, _other_messages(content_type, _WEB_OF_PROTOBUF))
    elif content_type != CONTENT_TYPE[1] and not is_protobuf(content_type):
        raise RefusedRequest(StatusCode.UNIMPLEMENTED, _other_messages(content_type))
    path = pseudo.get(b":path", b"")
    if path[:1] != b"/" or not _VALUE.match(path):
        raise RefusedRequest(StatusCode.UNIMPLEMENTED, "expected the path /<service>/<method>")
    return path.decode("ascii")


def _other_messages(content_type: bytes, supported: Sequence[bytes] = _OF_PROTOBUF) -> str:
    shown = content_type[:_LONGEST_SHOWN].decode("ascii", "backslashreplace")
    expected = b" or ".join(supported).decode()
    return f"content-type {shown!r} is not supported; expected {expected}"


def encode_timeout(seconds: float) -> bytes:
    """Return a `grpc-timeout` value, rounded up: one to eight digits, in the finest unit that holds it."""
    for unit, scale in ((b"u", 1e6), (b"m", 1e3), (b"S", 1.0), (b"M", 1 / 60)):
        value = max(math.ceil(seconds * scale), 1)
        if value <= _MAX_TIMEOUT_VALUE:
            return b"%d%b" % (value, unit)
    return b"%dH" % min(math.ceil(seconds / 3600), _MAX_TIMEOUT_VALUE)


def decode_timeout(value: bytes) -> float:
    """Return the seconds that a `grpc-timeout` value stands for; raise RefusedRequest if it is none."""
    match = _TIMEOUT.match(value)
    if match is None:
        raise RefusedRequest(StatusCode.INTERNAL, "malformed grpc-timeout")
    return int(match[1]) * _UNITS[match[2]]


# --- metadata ---


def encode_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> RawHeaders:
    """Return checked metadata as header fields; bytes travel as base64 without padding."""
    return [
        (name.encode(), base64.b64encode(value).rstrip(b"=") if isinstance(value, bytes) else value.encode())
        for name, value in metadata
    ]


def metadata_bytes(metadata: Metadata) -> int:
    """Return the size of metadata as HTTP/2 counts it (RFC 9113, 10.5.1)."""
    return sum(len(name) + len(value) + 32 for name, value in encode_metadata(metadata))


def decode_metadata(headers: RawHeaders, *, keep: bytes = b"") -> Metadata:
    """Return the custom metadata among header fields, in order.

    Args:
        headers: the header list of one frame.
        keep: one name beginning with `grpc-` that is wanted all the same.

    Raises:
        BadMetadataError: an illegal name (RFC 9113, 8.2.1), text that is not printable ASCII, or broken base64.
    """
    pairs: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        if name in _RESERVED or name[:1] == b":" or (name[:5] == b"grpc-" and name != keep):
            continue
        if not _NAME.match(name):
            raise BadMetadataError("illegal metadata name")
        text = name.decode("ascii")
        if not _VALUE.match(value):
            raise BadMetadataError(f"metadata {text!r}: expected printable ASCII")
        if name[-4:] == b"-bin":
            pairs.extend((text, _decode_binary(text, part)) for part in value.split(b","))
        else:
            pairs.append((text, value.decode("ascii").strip(" ")))
    return Metadata.from_wire(pairs)


def _decode_binary(name: str, value: bytes) -> bytes:
    value = value.strip(b" ").rstrip(b"=")
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        raise BadMetadataError(f"metadata {name!r}: expected base64") from None


# --- statuses ---


def trailer_headers(
    code: StatusCode, message: str, metadata: Sequence[tuple[str, str | bytes]], *, alone: bytes = b""
) -> RawHeaders:
    """Return the trailers that carry a status; with `alone`, an HTTP status, the whole response is in them."""
    headers: RawHeaders = [(b":status", alone), CONTENT_TYPE] if alone else []
    headers.append((b"grpc-status", b"%d" % code))
    if message:
        quoted = urllib.parse.quote(message, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}")
        headers.append(unindexed(b"grpc-message", quoted.encode()))
    if metadata:
        headers += encode_metadata(metadata)
    return headers


def status_alone(code: StatusCode, message: str, web: WebAnswer | None, http_status: bytes = b"200") -> RawHeaders:
    """Return the response that consists of a status.

    Args:
        code: the status.
        message: of the status.
        web: how a request of gRPC-Web is answered; None: it was one of gRPC.
        http_status: beside it, for gRPC.
    """
    if web is None:
        return trailer_headers(code, message, (), alone=http_status)
    return [*web.opening, *trailer_headers(code, message, ())]


def parse_trailers(headers: RawHeaders) -> Trailers:
    """Return the status in a response's last header list; a missing or broken one is a status as well."""
    fields = dict(headers)
    raw = fields.get(b"grpc-status")
    if raw is None:
        return Trailers(*_status_without_grpc(fields), Metadata())
    message = fields.get(b"grpc-message", b"").decode("latin-1")
    if "%" in message:
        message = urllib.parse.unquote(message, errors="replace")
    try:
        metadata = decode_metadata(headers, keep=STATUS_DETAILS.encode())
    except BadMetadataError as error:
        return Trailers(StatusCode.INTERNAL, f"malformed response: {error}", Metadata())
    code = _STATUS_OF_TEXT.get(raw.lstrip(b"0") or raw[:1])
    if code is None:
        return Trailers(StatusCode.UNKNOWN, message or "the peer sent an unknown status", metadata)
    return Trailers(code, message, metadata)


def _status_without_grpc(fields: dict[bytes, bytes]) -> tuple[StatusCode, str]:
    http = fields.get(b":status", b"200")
    if http != b"200":
        return STATUS_OF_HTTP.get(http, StatusCode.UNKNOWN), f"HTTP status {http.decode('latin-1')}"
    return StatusCode.UNKNOWN, "the response ended without grpc-status"


def is_informational(headers: RawHeaders) -> bool:
    """Whether the real response is still to come (RFC 9110, 15.2)."""
    return any(name == b":status" and value[:1] == b"1" for name, value in headers)


class ResponseHeaders(NamedTuple):
    """What a header list of a response says.

    Attributes:
        is_malformed: HTTP/2 forbids one of its fields.
        is_informational: the real response is still to come (RFC 9110, 15.2); never at the end.
        size: as HTTP/2 counts it (RFC 9113, 10.5.1).
        parsed: the metadata that opens the response, or how the call has ended; None if nothing of it counts.
        encoding: of the messages; None if it is not said.
    """

    is_malformed: bool
    is_informational: bool
    size: int
    parsed: Metadata | Trailers | None
    encoding: bytes | None


def examine_response(headers: RawHeaders, *, ended: bool) -> ResponseHeaders:
    """Return what a header list of a response says.

    Args:
        headers: see above.
        ended: it is the last one.
    """
    if len(headers) <= _USUAL_FIELDS:  # most responses of a server say the same, word for word
        return _examined_before(tuple(headers), ended)
    return _examine(headers, ended)


def _examine(headers: Sequence[tuple[bytes, bytes]], ended: bool) -> ResponseHeaders:
    fields = list(headers)
    if is_malformed(fields):
        return ResponseHeaders(True, False, 0, None, None)
    if not ended and is_informational(fields):
        return ResponseHeaders(False, True, 0, None, None)
    size = sum(len(name) + len(value) + 32 for name, value in fields)
    parsed = parse_trailers(fields) if ended else parse_response(fields)
    return ResponseHeaders(False, False, size, parsed, dict(fields).get(b"grpc-encoding"))


_examined_before = lru_cache(maxsize=64)(_examine)


def parse_response(headers: RawHeaders) -> Metadata | Trailers:
    """Check the headers that open a response; a `Trailers` result means that the call has failed already."""
    fields = dict(headers)
    http = fields.get(b":status", b"")
    if http != b"200":
        if b"grpc-status" in fields:
            return parse_trailers(headers)
        return Trailers(
            STATUS_OF_HTTP.get(http, StatusCode.UNKNOWN), f"HTTP status {http.decode('latin-1')}", Metadata()
        )
    content_type = fields.get(b"content-type", b"")
    if not is_grpc(content_type):
        return Trailers(StatusCode.UNKNOWN, "the response is not application/grpc", Metadata())
    if content_type != CONTENT_TYPE[1] and not is_protobuf(content_type):
        return Trailers(StatusCode.UNKNOWN, _other_messages(content_type), Metadata())
    try:
        return decode_metadata(headers)
    except BadMetadataError as error:
        return Trailers(StatusCode.INTERNAL, f"malformed response: {error}", Metadata())
