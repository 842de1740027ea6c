"""What every answer says besides its content: what browsers may do with it, and which pages may see it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus

from trio_cogment.web.requests import Request

#: What a page of this server may load, run and talk to: only what comes from the server itself.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"vary", b"origin"),
)
#: The fields of an answer that pages of other origins may read.
_EXPOSED = (b"access-control-expose-headers", b"grpc-status,grpc-message,grpc-status-details-bin")
_TOKENS = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, -]{1,4096}\Z")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is there as a whole.

    Attributes:
        status: of HTTP.
        body: see above.
        content_type: of the body; empty without one.
        headers: besides those that every answer has.
    """

    status: int
    body: bytes = b""
    content_type: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


def common_headers(foreign: str) -> list[tuple[bytes, bytes]]:
    """Return the fields of every answer.

    Args:
        foreign: the origin of another server whose page may see it; empty: there is none.
    """
    headers = list(SECURITY_HEADERS)
    if foreign:
        headers += [(b"access-control-allow-origin", foreign.encode("latin-1")), _EXPOSED]
    return headers


def json_reply(status: int, message: str, **more: str) -> Reply:
    """Return a short answer for programs and for people who read it in a browser."""
    body = json.dumps({"message": message, **more}, ensure_ascii=True).encode() + b"\n"
    return Reply(status, body, b"application/json")


def refusal(status: int, message: str = "") -> Reply:
    """Return the answer to what is not served."""
    return json_reply(status, message or HTTPStatus(status).phrase.lower())


def preflight(request: Request, seconds: float) -> Reply | None:
    """Return the answer to the question whether a page may make a call; None: that is not the question.

    The page's origin has been admitted. It may set any field: none means more here than what other programs send.
    """
    if request.method != "OPTIONS" or not request.foreign or not request.first(b"access-control-request-method"):
        return None
    if request.first(b"access-control-request-method") != b"POST":
        return refusal(403, "pages of other origins may use POST")
    headers = [
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-max-age", b"%d" % seconds),
    ]
    fields = request.first(b"access-control-request-headers")
    if fields:
        if not _TOKENS.match(fields):
            return refusal(400, "access-control-request-headers: expected names of fields")
        headers.append((b"access-control-allow-headers", fields))
    return Reply(204, headers=tuple(headers))
