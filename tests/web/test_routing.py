"""Routing: the route of a path, and what a visit says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.access import EVERYTHING, Identity, anonymous
from trio_cogment.base.errors import InvalidArgumentError, UnauthenticatedError
from trio_cogment.budget.shares import share_of
from trio_cogment.web.replies import Reply
from trio_cogment.web.requests import Request
from trio_cogment.web.routing import AnyRoute, Route, Router, Socket, SocketRoute, UnsupportedTypeError, Visit

SOMEBODY = Identity(account="token:ann", local=True, grant=EVERYTHING)


async def nothing(_visit: Visit) -> Reply:
    return Reply(204)


async def silence(_visit: Visit, _socket: Socket) -> None:
    pass


def get(pattern: str) -> Route:
    return Route("GET", pattern, nothing, right=None)


def names(routes: list[AnyRoute], path: str) -> tuple[str, dict[str, str]] | None:
    found = Router(routes).find(path)
    if found is None:
        return None
    return (*(route.pattern for route in found.routes.values()),)[0], dict(found.parameters)


ROUTES: list[AnyRoute] = [
    get("/"),
    get("/trials/all"),
    get("/trials/{trial_id}"),
    get("/trials/{trial_id}/ticks/{tick}"),
    get("/files/{name*}"),
]


@pytest.mark.parametrize(
    ("path", "pattern", "parameters"),
    [
        ("/", "/", {}),
        ("/trials/all", "/trials/all", {}),
        ("/trials/a", "/trials/{trial_id}", {"trial_id": "a"}),
        ("/trials/a%2Fb%20%3Cb%3E", "/trials/{trial_id}", {"trial_id": "a/b <b>"}),
        ("/trials/%252F", "/trials/{trial_id}", {"trial_id": "%2F"}),
        ("/trials/a/ticks/3", "/trials/{trial_id}/ticks/{tick}", {"trial_id": "a", "tick": "3"}),
        ("/files/a/b.js", "/files/{name*}", {"name": "a/b.js"}),
        ("/files/..", "/files/{name*}", {"name": ".."}),
    ],
)
def test_paths(path: str, pattern: str, parameters: dict[str, str]) -> None:
    assert names(ROUTES, path) == (pattern, parameters)


@pytest.mark.parametrize("path", ["", "/trials", "/trials/", "/trials//ticks/1", "/files/", "/trials/a/", "/Trials/a"])
def test_other_paths(path: str) -> None:
    assert Router(ROUTES).find(path) is None


def test_the_first_that_fits_counts() -> None:
    assert names([get("/{a}"), get("/b")], "/b") == ("/{a}", {"a": "b"})


def test_a_path_has_to_be_utf8() -> None:
    with pytest.raises(InvalidArgumentError, match="UTF-8"):
        Router(ROUTES).find("/trials/%ff")


@pytest.mark.parametrize("pattern", ["x", "/{a*}/b", "/{a", "/{a*}/{b*}"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match="expected a path"):
        Router([get(pattern)])


def test_methods_of_a_path() -> None:
    post = Route("POST", "/a", nothing, right=None, foreign=True)
    socket = SocketRoute("/a", silence, right=None)
    found = Router([get("/a"), post, socket]).find("/a")
    assert found is not None
    assert found.methods == ["GET", "HEAD", "POST"]
    assert found.foreign_methods == ["POST"]
    assert found.socket is socket
    assert found.route("HEAD") is found.route("GET")
    assert found.route("POST") is post
    assert found.route("DELETE") is None


def test_two_for_the_same() -> None:
    with pytest.raises(ValueError, match="two routes for /a"):
        Router([get("/a"), get("/a")])
    with pytest.raises(ValueError, match="two routes for /a"):
        Router([SocketRoute("/a", silence, right=None)] * 2)


@given(st.text(alphabet="/ab{}*%~.<>\u00e9", max_size=20))
def test_any_path_is_found_or_not(path: str) -> None:
    try:
        found = Router(ROUTES).find(path)
    except InvalidArgumentError:
        return
    assert found is None or found.routes


def visit(body: bytes = b"", content_type: str = "application/json", query: str = "", known: bool = True) -> Visit:
    headers = ((b"content-type", content_type.encode()),)
    request = Request("POST", "/", query, headers)
    return Visit(request=request, parameters={}, peer="unix:", identity=SOMEBODY if known else None, body=body)


def test_bodies() -> None:
    assert visit(b'{"a": [1, null]}').json() == {"a": [1, None]}
    assert visit(b"[1]", "application/json; charset=utf-8").json() == [1]
    assert visit(b'{"a": 1}').json_object() == {"a": 1}
    assert visit(b"a=1&b=%3Cb%3E&c", "application/x-www-form-urlencoded").form() == {"a": "1", "b": "<b>", "c": ""}
    assert visit(query="a=1&a=2&b=").query == {"a": "2", "b": ""}


def nested(depth: int, *, keys: bool = False) -> bytes:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if keys else [value]
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", nested(64), nested(64, keys=True), b"[" * 100_000],
    ids=["none", "half", "bytes", "deep", "deep objects", "deepest"],
)
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="expected JSON"):
        visit(body).json()


def test_json_may_be_deep() -> None:
    assert visit(nested(63)).json()
    assert visit(nested(63, keys=True)).json()


def test_an_object_is_expected() -> None:
    with pytest.raises(InvalidArgumentError, match="a JSON object"):
        visit(b"[]").json_object()


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_page_of_another_site_can_send_no_json(content_type: str) -> None:
    """The content types that a form, or a script without permission, can send."""
    with pytest.raises(UnsupportedTypeError, match="content-type application/json"):
        visit(b"{}", content_type).json()


def test_too_many_fields() -> None:
    with pytest.raises(InvalidArgumentError, match="query: expected 64 fields"):
        _ = visit(query="&".join(f"a{n}=" for n in range(65))).query
    with pytest.raises(InvalidArgumentError, match="form: expected 64 fields"):
        visit("&".join(f"a{n}=" for n in range(65)).encode(), "application/x-www-form-urlencoded").form()


def test_who() -> None:
    assert visit().who is SOMEBODY
    assert visit().share == share_of(SOMEBODY)
    assert visit(known=False).share == share_of(anonymous("unix:"))
    with pytest.raises(UnauthenticatedError, match="expected a token"):
        _ = visit(known=False).who
