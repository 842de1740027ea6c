"""Pages and what they ask for: which handler answers a method and a path, and who may have it.

A `Route` is for requests, a `SocketRoute` for WebSockets. Patterns are paths with names in braces: `{trial_id}` stands
for one part of a path, whatever is in it, and is given to the handler as it was before it was encoded; `{rest*}`, at
the end, for all that follows. Where two patterns fit, the one that was given first counts. ::

    async def stop(visit: Visit) -> Reply:
        body = visit.json()
        ...
        return json_data({"stopped": True})

    Route("POST", "/api/trials/{trial_id}/stop", stop, right="/cogmentAPI.TrialLifecycleSP/TerminateTrial",
          max_body_bytes=1024)

* `right` says who may have it: the path of a call, whose row in the table of rights then counts, or `access.PAGES` and
  a name in `access.rights.PAGE_RIGHTS`. What a handler reaches of somebody else's is its own to check: it has
  `visit.identity`. A route whose right is None is open to anybody, and judges callers itself if it has to.
* What changes something has another method than GET. Pages of other origins that the policy lets in may use only
  routes with `foreign`; these then answer what browsers ask about it before (CORS).
* A handler returns a `Reply`, or `Streamed` for what is long. It gets the body as a whole, up to `max_body_bytes`
  (`WebConfig.body_timeout_seconds` for it to come, `page_timeout_seconds` for the answer). One that `waits` for
  something else to happen has no limit; it is cancelled when the client leaves, and when the server stops. A
  `CogmentError` becomes the HTTP status that stands for it, with its text; any other error is logged, and becomes 500
  without details.
* The handler of a WebSocket has a `PageSocket`: messages of bytes (on the wire of text, if the route says so), `send`
  waits while the page does not read, `receive` gives one at a time. It is cancelled when the page leaves, when its
  token does not count any more, and when the server stops.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

from trio_cogment.access import Identity, anonymous
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.budget.shares import share_of
from trio_cogment.web.page_access import expect_known
from trio_cogment.web.replies import Reply, Streamed
from trio_cogment.web.requests import Request

_JSON = b"application/json"
_FORM = b"application/x-www-form-urlencoded"
_MAX_FIELDS = 64
#: How deep JSON may be; the parser's own limit would be a RecursionError.
_MAX_DEPTH = 64


class UnsupportedTypeError(InvalidArgumentError):
    """The body has another content type than what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request to a page's route, and who makes it.

    Attributes:
        request: its head.
        parameters: what the names in the pattern stand for.
        peer: the other end, in gRPC's notation.
        identity: who it is; None: nobody knows. Where a route has a right, somebody is known.
        body: of the request.
    """

    request: Request
    parameters: Mapping[str, str]
    peer: str
    identity: Identity | None
    body: bytes = b""

    @property
    def who(self) -> Identity:
        """Who it is.

        Raises:
            UnauthenticatedError: nobody knows.
        """
        return expect_known(self.identity)

    @property
    def share(self) -> str:
        """The account whose share it uses; see `access.share_of`. Of whom nobody knows it is that of the address."""
        return share_of(anonymous(self.peer) if self.identity is None else self.identity)

    @property
    def query(self) -> dict[str, str]:
        """The fields of the query; of several with the same name the last.

        Raises:
            InvalidArgumentError: there are too many.
        """
        return _fields("query", self.request.query)

    def json(self) -> Any:
        """Return the body.

        Raises:
            InvalidArgumentError: it is something else than JSON.
        """
        self.expect(_JSON)
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            raise InvalidArgumentError("expected JSON in the body") from None
        if _depth(value) > _MAX_DEPTH:
            raise InvalidArgumentError(f"expected JSON of depth {_MAX_DEPTH} at most")
        return value

    def json_object(self) -> dict[str, Any]:
        """Return the body.

        Raises:
            InvalidArgumentError: it is something else than a JSON object.
        """
        value = self.json()
        if not isinstance(value, dict):
            raise InvalidArgumentError("expected a JSON object in the body")
        return value

    def form(self) -> dict[str, str]:
        """Return the fields of the body.

        Raises:
            InvalidArgumentError: it is something else than a form.
        """
        self.expect(_FORM)
        return _fields("form", self.body.decode("latin-1"))

    def expect(self, content_type: bytes) -> None:
        """Refuse a body that is of another content type; whatever follows a semicolon does not count.

        Raises:
            UnsupportedTypeError: it is.
        """
        if self.request.first(b"content-type").partition(b";")[0].strip().lower() != content_type:
            raise UnsupportedTypeError(f"expected the content-type {content_type.decode()}")


def _fields(what: str, text: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise InvalidArgumentError(f"{what}: expected {_MAX_FIELDS} fields at most, in UTF-8") from None


def _depth(value: Any) -> int:
    """Return how deep a value of JSON is, looking no deeper than is allowed."""
    depth, level = 0, [value]
    while level and depth <= _MAX_DEPTH:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


Handler: TypeAlias = Callable[[Visit], Awaitable[Reply | Streamed]]


class Socket(Protocol):
    """A WebSocket as its handler sees it: `page_sockets.PageSocket`."""

    async def send(self, data: bytes) -> None:
        """Send a message; wait while the page does not read what was sent before."""

    async def receive(self) -> bytes:
        """Return the next message of the page."""

    def close_with(self, code: int, reason: str = "") -> None:
        """Say how it is to be closed when the handler has returned; by default with 1000."""


SocketHandler: TypeAlias = Callable[[Visit, Socket], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """What answers requests; see the module.

    Attributes:
        method: of HTTP; one for GET answers HEAD, too.
        pattern: of the path.
        handler: answers.
        right: who may have it; None: anybody.
        foreign: pages of other origins may use it.
        waits: the answer may take as long as it likes.
        max_body_bytes: a longer body is refused.
    """

    method: str
    pattern: str
    handler: Handler
    right: str | None = field(kw_only=True)
    foreign: bool = field(default=False, kw_only=True)
    waits: bool = field(default=False, kw_only=True)
    max_body_bytes: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """What answers WebSockets; see the module.

    Attributes:
        pattern: of the path.
        handler: serves it until it is closed.
        right: who may have it; None: anybody.
        foreign: pages of other origins may use it.
        text: messages are text on the wire, and bytes in UTF-8 for the handler.
        max_message_bytes: a longer message of the page ends it; 0: `WebConfig.max_page_message_bytes`.
    """

    pattern: str
    handler: SocketHandler
    right: str | None = field(kw_only=True)
    foreign: bool = field(default=False, kw_only=True)
    text: bool = field(default=False, kw_only=True)
    max_message_bytes: int = field(default=0, kw_only=True)


AnyRoute: TypeAlias = Route | SocketRoute


@dataclass(frozen=True, slots=True)
class Found:
    """What there is at a path.

    Attributes:
        routes: by their methods.
        socket: for WebSockets; None: there is nothing.
        parameters: of the path; they are the same for all.
    """

    routes: Mapping[str, Route]
    socket: SocketRoute | None
    parameters: Mapping[str, str]

    @property
    def methods(self) -> list[str]:
        """The methods that are answered."""
        return sorted([*self.routes, *(["HEAD"] if "GET" in self.routes else [])])

    @property
    def foreign_methods(self) -> list[str]:
        """The methods that pages of other origins may use."""
        return sorted(method for method, route in self.routes.items() if route.foreign)

    def route(self, method: str) -> Route | None:
        """Return what answers a method; None: nothing."""
        return self.routes.get("GET" if method == "HEAD" else method)


@dataclass(slots=True)
class _Place:
    """All that has the same pattern."""

    parts: tuple[str, ...]
    routes: dict[str, Route] = field(default_factory=dict)
    socket: SocketRoute | None = None


class Router:
    """Finds routes by their paths.

    Args:
        routes: see the module.

    Raises:
        ValueError: two are for the same method and pattern, or a pattern is none.
    """

    def __init__(self, routes: Iterable[AnyRoute]) -> None:
        self._places: dict[str, _Place] = {}
        for route in routes:
            place = self._places.setdefault(route.pattern, _Place(_parts(route.pattern)))
            if isinstance(route, SocketRoute):
                taken, place.socket = place.socket is not None, route
            else:
                taken = route.method in place.routes
                place.routes[route.method] = route
            if taken:
                raise ValueError(f"two routes for {route.pattern}")

    def find(self, path: str) -> Found | None:
        """Return what there is at a path; None: nothing.

        Raises:
            InvalidArgumentError: the path is not UTF-8.
        """
        given = path.split("/")
        for place in self._places.values():
            parameters = _match(place.parts, given)
            if parameters is not None:
                return Found(place.routes, place.socket, parameters)
        return None


def _parts(pattern: str) -> tuple[str, ...]:
    parts = tuple(pattern.split("/"))
    names = [part for part in parts if part.startswith("{")]
    whole = [part for part in names if part.endswith("*}")]
    if parts[0] or any(not part.endswith("}") for part in names) or whole not in ([], [parts[-1]]):
        raise ValueError(f"route {pattern!r}: expected a path with {{name}} in it, and {{name*}} at most at its end")
    return parts


def _match(parts: tuple[str, ...], given: list[str]) -> dict[str, str] | None:
    """Return what the names in a pattern stand for; None: it does not fit."""
    last = parts[-1]
    if last.endswith("*}"):
        if len(given) < len(parts):
            return None
        given = [*given[: len(parts) - 1], "/".join(given[len(parts) - 1 :])]
    if len(given) != len(parts):
        return None
    found = {}
    for part, text in zip(parts, given, strict=True):
        if not part.startswith("{"):
            if part != text:
                return None
        elif not text:
            return None
        else:
            found[part.strip("{*}")] = text
    return {name: _decoded(text) for name, text in found.items()}


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgumentError("expected a path in UTF-8") from None
