"""Headers of every answer: what browsers may do with it, and which pages may see it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from trio_cogment.base.errors import StatusCode, status_of
from trio_cogment.web.json_text import json_text
from trio_cogment.web.requests import Request

#: What a page of this server may load, run and talk to: only what comes from the server itself.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # Not `no-referrer`: the forms of such a page are sent with `Origin: null` (https://fetch.spec.whatwg.org, "append a
    # request `Origin` header"), and who has sent them could not be told. Other servers are told nothing in either case.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"vary", b"origin"),
)
#: The fields of an answer that pages of other origins may read.
_EXPOSED = (b"access-control-expose-headers", b"grpc-status,grpc-message,grpc-status-details-bin")
#: Which status of HTTP stands for one of gRPC; 500 for the others.
HTTP_STATUS: dict[StatusCode, int] = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.ABORTED: 409,
    StatusCode.FAILED_PRECONDITION: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.CANCELLED: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}
#: Fields of a call's answer that are not the handler's to set.
_NOT_FROM_HANDLERS = (b"access-control-", b"content-", b"sec-", b"set-cookie", b"x-frame-", b"cross-origin-")
_OF_HTTP = frozenset([b"vary", b"cache-control", b"date", b"server", b"location", b"referrer-policy", b"trailer"])
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
{head}<title>{title}</title>
<link rel="stylesheet" href="{style}">
</head>
<body>
<main class="narrow">
<h1>{title}</h1>
{content}
</main>
</body>
</html>
"""
_SCRIPT_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="{icon}">
{links}
<script type="module" src="{script}"></script>
</head>
<body>
{skip}<div id="app"><main class="narrow" id="content"><p>Connecting …</p></main></div>
<noscript><p class="card">This page needs JavaScript.</p></noscript>
</body>
</html>
"""
#: Asked for beside the page's own script, which imports them.
_LIBRARIES = ("preact", "preact-hooks", "htm")
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


#: Sends a piece of an answer, and waits while the client does not read.
Send: TypeAlias = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that is made while it is sent.

    Attributes:
        status, content_type, headers: as of a `Reply`.
        write: sends the body, in pieces; when it fails, the client sees that the body is not complete.
    """

    status: int
    content_type: bytes
    write: Callable[[Send], Awaitable[None]]
    headers: tuple[tuple[bytes, bytes], ...] = ()


def common_headers(foreign: str, own: Collection[bytes] = ()) -> list[tuple[bytes, bytes]]:
    """Return the fields of every answer.

    Args:
        foreign: the origin of another server whose page may see it; empty: there is none.
        own: names of fields for which the answer has values of its own.
    """
    headers = [field for field in SECURITY_HEADERS if field[0] not in own]
    if foreign:
        headers += [(b"access-control-allow-origin", foreign.encode("latin-1")), _EXPOSED]
    return headers


def of_handler(fields: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return those fields of a handler's initial metadata that an answer may say: not those that browsers obey."""
    return [(name, value) for name, value in fields if name not in _OF_HTTP and not name.startswith(_NOT_FROM_HANDLERS)]


def json_reply(status: int, message: str, **more: str) -> Reply:
    """Return a short answer for programs and for people who read it in a browser."""
    body = json.dumps({"message": message, **more}).encode() + b"\n"
    return Reply(status, body, b"application/json")


def json_data(value: Any, status: int = 200) -> Reply:
    """Return an answer for programs: any value that JSON can have; see `json_text`."""
    return Reply(status, json_text(value).encode(), b"application/json")


def html_page(request: Request, status: int, title: str, *paragraphs: str, content: str = "", head: str = "") -> Reply:
    """Return a small page for people.

    Args:
        request: what it answers.
        status: of HTTP.
        title: of the page; text.
        paragraphs: text, with any characters.
        content: HTML behind them.
        head: HTML that goes into the page's head.
    """
    told = "".join(f"<p>{html.escape(text)}</p>\n" for text in paragraphs)
    style = html.escape(request.at("/assets/style.css"))
    body = _PAGE.format(title=html.escape(title), content=told + content, head=head, style=style)
    return Reply(status, body.encode("utf-8", "replace"), b"text/html; charset=utf-8")


def script_page(
    request: Request, title: str, script: str, *styles: str, icon: str = "", skip: str = "content"
) -> Reply:
    """Return a page that a script makes, in the element `app`.

    Args:
        request: what it answers.
        title: until the script has another one.
        script: the path of the module.
        styles: the paths of its style sheets, beside the one that all pages have.
        icon: the path of a picture; empty: there is none.
        skip: the id of the element to which the first link on the page leads; empty: the script makes that link.
    """

    def link(kind: str, path: str) -> str:
        return f'<link rel="{kind}" href="{html.escape(request.at(path))}">'

    links = [link("stylesheet", path) for path in ("/assets/style.css", *styles)]
    links += [link("modulepreload", f"/assets/vendor/{name}.js") for name in _LIBRARIES]
    body = _SCRIPT_PAGE.format(
        title=html.escape(title),
        icon=html.escape(request.at(icon)) if icon else "data:,",
        links="\n".join(links),
        script=html.escape(request.at(script)),
        skip=f'<a class="skip" href="#{skip}">To the content</a>\n' if skip else "",
    )
    return Reply(200, body.encode(), b"text/html; charset=utf-8")


def redirect(request: Request, path: str) -> Reply:
    """Return the answer that leads a browser to another page of this server."""
    return Reply(303, headers=((b"location", request.at(path).encode("latin-1")),))


def failure(error: Exception) -> Reply:
    """Return the answer that says what has gone wrong; see `errors.status_of`."""
    code, text = status_of(error)
    reply = refusal(HTTP_STATUS.get(code, 500), text)
    if reply.status == 401:
        return Reply(reply.status, reply.body, reply.content_type, ((b"www-authenticate", b"Bearer"),))
    return reply


def refusal(status: int, message: str = "") -> Reply:
    """Return the answer to what is not served."""
    return json_reply(status, message or HTTPStatus(status).phrase.lower())


def preflight(request: Request, seconds: float, methods: Iterable[str] = ("POST",)) -> Reply | None:
    """Return the answer to the question whether a page may make a call; None: that is not the question.

    The page's origin has been admitted. It may set any field: none means more here than what other programs send.

    Args:
        request: the question.
        seconds: for how long a browser may remember the answer.
        methods: that pages of other origins may use at this path.
    """
    if request.method != "OPTIONS" or not request.foreign or not request.first(b"access-control-request-method"):
        return None
    allowed = list(methods)
    if request.first(b"access-control-request-method").decode("latin-1") not in allowed:
        return refusal(403, f"pages of other origins may use {', '.join(allowed) or 'nothing'} here")
    headers = [
        (b"access-control-allow-methods", ", ".join(allowed).encode()),
        (b"access-control-max-age", b"%d" % seconds),
    ]
    fields = request.first(b"access-control-request-headers")
    if fields:
        if not _TOKENS.match(fields):
            return refusal(400, "access-control-request-headers: expected names of fields")
        headers.append((b"access-control-allow-headers", fields))
    return Reply(204, headers=tuple(headers))
