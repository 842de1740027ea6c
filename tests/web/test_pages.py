"""Pages over a connection: who may have them, bodies, errors, long answers, and WebSockets."""

from __future__ import annotations

import importlib
import json
import math
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.events import Request as Handshake

from tests.access.keys import FOREIGN, KEYS, NOW, Clock, control, grant, token_text
from tests.web.peers import ECHO, ECHO_ONE, HOST, OWN, Tab, served, serving, websocket_fields
from trio_cogment.access import EVERYTHING, Identity, Role, Rules, anonymous
from trio_cogment.base.about import API_VERSION, GRPC_VERSION
from trio_cogment.base.config import RpcConfig, WebConfig
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import Turns, _turns
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.web import OriginPolicy, PageAccess, PublicAddress, WebSide
from trio_cogment.web.assets import Assets
from trio_cogment.web.pages import identity_of
from trio_cogment.web.replies import Reply, Send, Streamed, html_page, json_data, redirect
from trio_cogment.web.requests import Request
from trio_cogment.web.routing import AnyRoute, Route, Socket, SocketRoute, Visit

RIGHT = "/pages/dashboard"
JSON = "application/json"


class Pages:
    """Routes of each kind, and what they were asked."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.left = 0
        self.entered = trio.Event()
        self.sent = 0

    def routes(self) -> list[AnyRoute]:
        return [
            Route("GET", "/page/{name}", self.page, right=RIGHT),
            Route("POST", "/page/{name}", self.change, right=RIGHT, max_body_bytes=100),
            Route("DELETE", "/page/{name}", self.page, right=RIGHT),
            Route("GET", "/anybody", self.page, right=None),
            Route("POST", "/foreign", self.change, right=RIGHT, foreign=True, max_body_bytes=100),
            Route("DELETE", "/foreign", self.page, right=RIGHT, foreign=True),
            Route("GET", "/fails/{how}", self.fails, right=RIGHT),
            Route("GET", "/long", self.long, right=RIGHT),
            Route("GET", "/html", self.html, right=RIGHT),
            SocketRoute("/socket", self.socket, right=RIGHT),
            SocketRoute("/flood", self.flood, right=RIGHT),
            SocketRoute("/refuses", self.refuses, right=RIGHT),
            SocketRoute("/text", self.text, right=None, foreign=True, text=True, max_message_bytes=50),
        ]

    async def page(self, visit: Visit) -> Reply:
        self.visits.append(visit)
        return json_data({"name": visit.parameters.get("name"), "known": visit.identity is not None})

    async def change(self, visit: Visit) -> Reply:
        self.visits.append(visit)
        return json_data({"got": visit.json()})

    async def html(self, visit: Visit) -> Reply:
        return html_page(visit.request, 200, "<i>", visit.who.account)

    async def fails(self, visit: Visit) -> Reply:
        how = visit.parameters["how"]
        if how == "bug":
            raise KeyError("secret")
        if how == "slow":
            await trio.sleep(math.inf)
        if how == "elsewhere":
            return redirect(visit.request, "/anybody")
        if how == "missing":
            raise NotFoundError("trial '<b>': there is none")
        raise RpcError(StatusCode[how], "because")

    async def long(self, visit: Visit) -> Streamed:
        async def write(send: Send) -> None:
            self.entered.set()
            try:
                for _ in range(100):
                    await send(b"x" * 100_000)
                    self.sent += 1
                if visit.query.get("fails"):
                    raise RuntimeError("in the middle")
            finally:
                self.left += 1

        return Streamed(200, b"application/octet-stream", write)

    async def socket(self, visit: Visit, socket: Socket) -> None:
        self.visits.append(visit)
        self.entered.set()
        try:
            while True:
                data = await socket.receive()
                if data == b"bye":
                    return
                if data == b"bug":
                    raise KeyError("secret")
                await socket.send(data.upper())
        finally:
            self.left += 1

    async def flood(self, _visit: Visit, socket: Socket) -> None:
        try:
            while True:
                await socket.send(bytes(10_000))
                self.sent += 1
        finally:
            self.left += 1

    async def text(self, _visit: Visit, socket: Socket) -> None:
        await socket.send(await socket.receive())
        socket.close_with(4123, "enough")

    async def refuses(self, _visit: Visit, _socket: Socket) -> None:
        raise NotFoundError("there is no such trial")


def access_of(clock: Clock | None = None) -> PageAccess:
    return PageAccess(control(Rules(keys=KEYS), clock), host=Host(wall_clock=clock or Clock()), session_seconds=1000.0)


def side_of(pages: Pages, access: PageAccess | None = None, **limits: Any) -> WebSide:
    return WebSide(config=WebConfig(**limits), routes=pages.routes, access=access or access_of())


def bearer(*roles: Role, **more: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {token_text(grant(*roles), **more)}"}


ADMIN = bearer(Role.ADMIN)


def raw(method: str, path: str, *fields: str) -> bytes:
    head = [f"{method} {path} HTTP/1.1", f"host: {HOST}", f"authorization: {ADMIN['authorization']}", *fields]
    return "\r\n".join([*head, "", ""]).encode()


async def test_a_page(autojump_clock: object) -> None:
    pages = Pages()
    async with served(side_of(pages)) as there:
        answer = await there.ask("GET", "/page/a%3Cb%3E?q=1", **ADMIN)
        assert (answer.status, answer.body) == (200, b'{"name":"a<b>","known":true}')
        assert answer.headers["content-type"] == JSON
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        answer = await there.ask("POST", "/page/a", b'{"x": 1}', content_type=JSON, **ADMIN)
        assert (answer.status, answer.body) == (200, b'{"got":{"x":1}}')
        assert (await there.ask("DELETE", "/page/a", **ADMIN)).status == 200
        assert (await there.ask("GET", "/nothing", **ADMIN)).status == 404
        answer = await there.ask("PUT", "/page/a", **ADMIN)
        assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, POST")
    first, _, _ = pages.visits
    assert first.query == {"q": "1"}
    assert first.who.account == "token:alice"


async def test_somebody_has_to_be_known_also_where_calls_are_open(autojump_clock: object) -> None:
    pages = Pages()
    async with served(WebSide(routes=pages.routes)) as there:
        for method, path in (("GET", "/page/a"), ("POST", "/page/a"), ("DELETE", "/page/a"), ("GET", "/long")):
            answer = await there.ask(method, path)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        answer = await there.ask("GET", "/anybody")
        assert answer.body == b'{"name":null,"known":false}'
        answer = await there.ask("GET", "/page/a", accept="text/html,*/*")
        assert answer.status == 401
        assert b'<form method="post" action="../enter">' in answer.body
        assert b'<input type="hidden" name="to" value="/page/a">' in answer.body
    assert len(pages.visits) == 1


@pytest.mark.parametrize("role", [*Role, None], ids=lambda role: "no role" if role is None else role.value)
async def test_the_roles_of_a_page(role: Role | None, autojump_clock: object) -> None:
    pages = Pages()
    async with served(side_of(pages)) as there:
        answer = await there.ask("GET", "/page/a", **bearer(*(() if role is None else (role,))))
        assert answer.status == (200 if role in (Role.ADMIN, Role.OPERATOR, Role.OBSERVER) else 403)
        assert bool(pages.visits) is (answer.status == 200)


BAD = {
    "forged": token_text(grant(Role.ADMIN))[:-2],
    "foreign": token_text(grant(Role.ADMIN), keys=FOREIGN),
    "expired": token_text(grant(Role.ADMIN), expires_at=NOW),
    "none": "x.y.z",
}


@pytest.mark.parametrize("token", BAD.values(), ids=BAD.keys())
async def test_tokens_that_do_not_count(token: str, autojump_clock: object) -> None:
    pages = Pages()
    ways: list[tuple[str, dict[str, str]]] = [
        ("/page/a", {"authorization": f"Bearer {token}"}),
        (f"/~{token}/page/a", {}),
        ("/page/a", {"cookie": f"trio-cogment-9000={token}"}),
    ]
    for path, fields in ways:
        async with served(side_of(pages)) as there:
            assert (await there.ask("GET", path, **fields)).status == 401
            assert (await there.ask("GET", path, accept="text/html", **fields)).status == 401
        async with served(side_of(pages)) as there:
            more = websocket_fields("") | fields | {"origin": OWN}
            assert (await there.ask("GET", path.replace("page/a", "socket"), **more)).status == 401
    assert pages.visits == []


async def test_who_opens_a_link_that_does_not_count_is_told_what_to_do(autojump_clock: object) -> None:
    """People who play have a link and no token."""
    async with served(side_of(Pages())) as there:
        token = token_text(grant(Role.SEAT), expires_at=NOW)
        answer = await there.ask("GET", f"/~{token}/page/a", accept="text/html")
        assert answer.status == 401
        assert b"The token has expired." in answer.body
        assert b"Please ask for another one." in answer.body
        answer = await there.ask("GET", "/page/a", accept="text/html", cookie=f"trio-cogment-9000={token}")
        assert b"This page needs a token" in answer.body


async def test_each_way_of_a_token(autojump_clock: object) -> None:
    pages = Pages()
    token = token_text(grant(Role.ADMIN))
    async with served(side_of(pages)) as there:
        assert (await there.ask("GET", f"/~{token}/page/a")).status == 200
        assert (await there.ask("GET", "/page/a", cookie=f"trio-cogment-9000={token}")).status == 200
        assert (await there.ask("DELETE", "/page/a", cookie=f"trio-cogment-9000={token}")).status == 401
        assert (await there.ask("DELETE", "/page/a", origin=OWN, cookie=f"trio-cogment-9000={token}")).status == 200


async def test_calls_by_a_token_in_the_path(autojump_clock: object) -> None:
    """The only place for one that the JavaScript SDK has."""
    call = {"content_type": "application/grpc-web+proto"}
    seat, admin = token_text(grant(Role.SEAT)), token_text(grant(Role.ADMIN))
    frame = bytes(5)
    for path, open_status, closed_status in (
        (f"/~{admin}{ECHO_ONE}", b"grpc-status: 0", b"grpc-status: 0"),
        (f"/~{seat}{ECHO_ONE}", b"grpc-status: 7", b"grpc-status: 7"),
        (f"/~x{ECHO_ONE}", b"grpc-status: 16", b"grpc-status: 16"),
        (ECHO_ONE, b"grpc-status: 0", b"grpc-status: 16"),
    ):
        async with served(side_of(Pages())) as there:
            assert open_status in (await there.ask("POST", path, frame, **call)).body
        async with served(side_of(Pages()), access=control()) as there:
            assert closed_status in (await there.ask("POST", path, frame, **call)).body
        async with served(access=control()) as there:  # a side without pages
            assert closed_status in (await there.ask("POST", path, frame, **call)).body


async def test_calls_by_a_cookie(autojump_clock: object) -> None:
    access = access_of()
    token = access.enter(access.new_code())
    call = {"content_type": "application/grpc-web+proto", "cookie": f"trio-cogment-9000={token}"}
    async with served(side_of(Pages(), access), access=control()) as there:
        assert b"grpc-status: 0" in (await there.ask("POST", ECHO_ONE, bytes(5), origin=OWN, **call)).body
        assert b"grpc-status: 16" in (await there.ask("POST", ECHO_ONE, bytes(5), **call)).body
        page = "http://localhost:3000"
        assert b"grpc-status: 16" in (await there.ask("POST", ECHO_ONE, bytes(5), origin=page, **call)).body


ROUTES = ["/page/a", "/foreign", "/long", "/socket", "/enter/x", "/enter", "/leave", "/assets/style.css"]
FOREIGN_FIELDS = {
    "origin": {"origin": "https://evil.example"},
    "null": {"origin": "null"},
    "host": {"host": "evil.example:9000"},
    "host and origin": {"host": "evil.example:9000", "origin": "http://evil.example:9000"},
}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "WebSocket"])
@pytest.mark.parametrize("fields", FOREIGN_FIELDS.values(), ids=FOREIGN_FIELDS.keys())
async def test_foreign_pages_get_nothing(fields: dict[str, str], method: str, autojump_clock: object) -> None:
    more = {"access_control_request_method": "POST"} if method == "OPTIONS" else {}
    more |= websocket_fields("") if method == "WebSocket" else {}
    pages, access = Pages(), access_of()
    access.new_code()
    for path in ROUTES:
        async with served(side_of(pages, access)) as there:
            answer = await there.ask("GET" if method == "WebSocket" else method, path, **fields, **more, **ADMIN)
            assert answer.status == 403
            assert "set-cookie" not in answer.headers
            assert not [name for name in answer.headers if name.startswith("access-control")]
    assert pages.visits == []


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "WebSocket"])
async def test_pages_of_this_machine_are_other_origins_too(method: str, autojump_clock: object) -> None:
    """They may make calls; a page of the server is not theirs, whatever they send."""
    fields = {"origin": "http://localhost:3000", **ADMIN}
    fields |= {"access_control_request_method": "DELETE"} if method == "OPTIONS" else {}
    fields |= websocket_fields("") if method == "WebSocket" else {}
    pages = Pages()
    path = "/socket" if method == "WebSocket" else "/page/a"
    async with served(side_of(pages)) as there:
        answer = await there.ask("GET" if method == "WebSocket" else method, path, **fields)
        assert answer.status == 403
    assert pages.visits == []


async def test_what_is_for_pages_of_other_origins(autojump_clock: object) -> None:
    page = {"origin": "http://localhost:3000"}
    pages = Pages()
    async with served(side_of(pages)) as there:
        answer = await there.ask("OPTIONS", "/foreign", access_control_request_method="DELETE", **page)
        assert (answer.status, answer.headers["access-control-allow-methods"]) == (204, "DELETE, POST")
        answer = await there.ask("OPTIONS", "/foreign", access_control_request_method="PUT", **page)
        assert answer.status == 403
        answer = await there.ask("DELETE", "/foreign", **page, **ADMIN)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, page["origin"])
        cookie = f"trio-cogment-9000={token_text(grant(Role.ADMIN))}"
        assert (await there.ask("DELETE", "/foreign", cookie=cookie, **page)).status == 401


STATUSES = [
    ("INVALID_ARGUMENT", 400),
    ("UNAUTHENTICATED", 401),
    ("PERMISSION_DENIED", 403),
    ("NOT_FOUND", 404),
    ("missing", 404),
    ("ALREADY_EXISTS", 409),
    ("FAILED_PRECONDITION", 409),
    ("RESOURCE_EXHAUSTED", 429),
    ("INTERNAL", 500),
    ("DATA_LOSS", 500),
    ("UNIMPLEMENTED", 501),
    ("UNAVAILABLE", 503),
    ("CANCELLED", 503),
    ("DEADLINE_EXCEEDED", 504),
    ("slow", 504),
    ("elsewhere", 303),
]


@pytest.mark.parametrize(("how", "status"), STATUSES)
async def test_errors(how: str, status: int, autojump_clock: object) -> None:
    async with served(side_of(Pages())) as there:
        answer = await there.ask("GET", f"/fails/{how}", **ADMIN)
        assert answer.status == status
        answer = await there.ask("GET", f"/fails/{how}", accept="text/html", **ADMIN)
        assert answer.status == status
        assert b"<b>" not in answer.body
        assert f"{how}: ".encode() not in answer.body  # the name of a status is for programs


async def test_a_bug_is_logged_and_harms_nobody(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    async with served(side_of(Pages())) as there:
        answer = await there.ask("GET", "/fails/bug", **ADMIN)
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert (await there.ask("GET", "/page/a", **ADMIN)).status == 200
    assert "GET /fails/bug failed" in caplog.text


async def test_text_in_pages_is_text(autojump_clock: object) -> None:
    name = "<script>alert(1)</script>"
    fields = {"authorization": f"Bearer {token_text(grant(Role.ADMIN, name=name))}"}
    async with served(side_of(Pages())) as there:
        body = (await there.ask("GET", "/html", **fields)).body
    assert b"<script>" not in body
    assert b"&lt;script&gt;" in body
    assert b"<title>&lt;i&gt;</title>" in body


@pytest.mark.parametrize(
    ("body", "fields", "status"),
    [
        (b"[1]", {"content_type": "text/plain"}, 415),
        (b"[1]", {}, 415),
        (b"[1", {"content_type": JSON}, 400),
        (b" " * 101, {"content_type": JSON}, 413),
        (b" " * 100_000, {"content_type": JSON}, 413),
    ],
)
async def test_bodies(body: bytes, fields: dict[str, str], status: int, autojump_clock: object) -> None:
    async with served(side_of(Pages())) as there:
        assert (await there.ask("POST", "/page/a", body, **fields, **ADMIN)).status == status


async def test_a_body_that_does_not_end(autojump_clock: object) -> None:
    head = raw("POST", "/page/a", "content-length: 50")
    async with served(side_of(Pages(), body_timeout_seconds=5.0)) as there:
        began = trio.current_time()
        await there.send(head + b"{")
        assert (await there.rest()).startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() - began == 5.0


async def test_bodies_are_not_read_of_who_may_not(autojump_clock: object) -> None:
    async with served(side_of(Pages())) as there:
        head = f"POST /page/a HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 50\r\n\r\n"
        await there.send(head.encode())
        assert (await there.rest()).startswith(b"HTTP/1.1 401 ")


async def test_the_printed_address(autojump_clock: object) -> None:
    access, pages = access_of(), Pages()
    code = access.new_code()
    async with served(side_of(pages, access)) as there:
        assert (await there.ask("HEAD", f"/enter/{code}")).status == 204
        assert (await there.ask("GET", f"/enter/{code}", sec_purpose="prefetch")).status == 204
        answer = await there.ask("GET", f"/enter/{code}")
        assert answer.status == 200
        assert b'http-equiv="refresh" content="0; url=../"' in answer.body
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
        assert (await there.ask("GET", "/page/a", cookie=cookie)).status == 200
        assert pages.visits[0].who.admin
        again = await there.ask("GET", f"/enter/{code}", cookie=cookie)  # the same browser
        assert again.status == 200
        assert b'http-equiv="refresh"' in again.body
        assert "set-cookie" not in again.headers
        again = await there.ask("GET", f"/enter/{code}")
        assert again.status == 403
        assert b"SIGHUP" in again.body
        assert "set-cookie" not in again.headers
        answer = await there.ask("POST", "/leave", cookie=cookie, origin=OWN)
        assert answer.status == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]
        left = await there.ask("GET", "/page/a", cookie=cookie)  # a browser that has kept it
        assert left.status == 401
        assert b"has left" in left.body
        answer = await there.ask("POST", "/leave", cookie=cookie, origin=OWN, accept="text/html")
        assert b"You have left" in answer.body
        assert b'<a href="./enter">Come in again</a>' in answer.body
        assert "Max-Age=0" in answer.headers["set-cookie"]
        answer = await there.ask("GET", "/leave", cookie=cookie, accept="text/html")
        assert b'<form method="post" action="./leave">' in answer.body
        assert "set-cookie" not in answer.headers


async def test_a_token_by_the_form(autojump_clock: object) -> None:
    async with served(side_of(Pages())) as there:

        async def given(token: str, to: str = "", origin: str = OWN) -> Any:
            form = {"content_type": "application/x-www-form-urlencoded", "origin": origin}
            return await there.ask("POST", "/enter", urlencode({"token": token, "to": to}).encode(), **form)

        token = token_text(grant(Role.OBSERVER))
        answer = await given(token)
        assert answer.headers["set-cookie"].startswith(f"trio-cogment-9000={token};")
        assert b'content="0; url=./"' in answer.body
        answer = await given(token, "/page/a?x=1&y=2")
        assert b'content="0; url=./page/a?x=1&amp;y=2"' in answer.body
        for elsewhere in ("https://evil.example", "//evil.example", "javascript:alert(1)", "/a b", "/\n"):
            assert b"url=./" in (await given(token, elsewhere)).body  # and so on this server
        for bad, status in (("", 401), ("<b>", 401), (BAD["expired"], 401), ("x" * 5000, 400)):
            answer = await given(bad, "/page/a")
            assert answer.status == status
            assert "set-cookie" not in answer.headers
            assert b'name="to" value="/page/a"' in answer.body  # and so it can be tried again
        answer = await given(token, origin="null")
        assert answer.status == 403
        assert "set-cookie" not in answer.headers


async def test_who_is_refused_can_give_another_token(autojump_clock: object) -> None:
    async with served(side_of(Pages())) as there:
        for token, status in ((token_text(grant(Role.SEAT)), 403), (BAD["expired"], 401)):
            answer = await there.ask("GET", f"/~{token}/page/a", accept="text/html")
            assert answer.status == status
            assert b'action="../../enter"' in answer.body  # out of the path that has the token
            assert b'name="to" value="/page/a"' in answer.body
        assert b"xpired" in answer.body
        answer = await there.ask("GET", "/enter", accept="text/html")
        assert answer.status == 200
        assert b'<form method="post" action="./enter">' in answer.body


async def test_a_server_below_a_prefix(autojump_clock: object) -> None:
    address = PublicAddress.parse("https://lab.example.org/cogment")
    policy = OriginPolicy(address=address)
    async with served(WebSide(policy, routes=Pages().routes, access=access_of())) as there:
        token = token_text(grant(Role.OBSERVER))
        form = {"content_type": "application/x-www-form-urlencoded", "origin": "https://lab.example.org"}
        for path in ("/cogment/enter", "/enter"):  # a proxy passes the prefix on, or takes it away
            answer = await there.ask("POST", path, f"token={token}&to=/page/a".encode(), host="lab.example.org", **form)
            assert answer.status == 200
            assert b'content="0; url=/cogment/page/a"' in answer.body
            assert b'href="/cogment/assets/style.css"' in answer.body
            cookie, _, rest = answer.headers["set-cookie"].partition(";")
            assert cookie == f"__Secure-trio-cogment={token}"
            assert "Path=/cogment/" in rest
            assert rest.endswith("Secure")
        for path in ("/cogment/page/a", "/page/a"):
            assert (await there.ask("GET", path, host="lab.example.org", cookie=cookie)).status == 200
        answer = await there.ask("GET", f"/cogment/~{token}/fails/elsewhere")
        assert answer.headers["location"] == f"/cogment/~{token}/anybody"
        for path in ("/cogmentpage/a", "/other/page/a"):
            assert (await there.ask("GET", path, host="lab.example.org", cookie=cookie)).status == 404


async def test_assets(autojump_clock: object) -> None:
    async with served(side_of(Pages())) as there:
        answer = await there.ask("GET", "/assets/style.css")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/css; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        etag = answer.headers["etag"]
        again = await there.ask("GET", "/assets/style.css", if_none_match=f'"other", {etag}')
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == etag
        head = await there.ask("HEAD", "/assets/style.css")
        assert (head.status, head.body) == (200, b"")
        for name in ("", "none.js", "../side.py", "..%2Fside.py", "%2e%2e/side.py", "vendor"):
            assert (await there.ask("GET", f"/assets/{name}")).status == 404
        assert (await there.ask("POST", "/assets/style.css")).status == 405


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("a.css", b"text/css; charset=utf-8"),
        ("a.html", b"text/html; charset=utf-8"),
        ("a.js", b"text/javascript; charset=utf-8"),
        ("a.json", b"application/json"),
        ("a.png", b"image/png"),
        ("a.svg", b"image/svg+xml"),
        ("LICENSE.txt", b"text/plain; charset=utf-8"),
        ("deep/a.webp", b"image/webp"),
        ("a.py", None),
        ("README", None),
    ],
)
def test_what_kind_of_file_it_is(
    name: str, content_type: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_pages"
    path = package / "assets" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"content")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        found = Assets("some_pages").reply(Request("GET", "/", "", ()), name)
    except NotFoundError:
        assert content_type is None
    else:
        assert (found.status, found.body, found.content_type) == (200, b"content", content_type)
    finally:
        sys.modules.pop("some_pages", None)
        importlib.invalidate_caches()


# --- long answers ---


async def test_a_long_answer(autojump_clock: object) -> None:
    async with served(side_of(Pages())) as there:
        answer = await there.ask("GET", "/long", **ADMIN)
        assert answer.body == b"x" * 10_000_000
        assert (await there.ask("HEAD", "/long", **ADMIN)).body == b""
        assert (await there.ask("GET", "/page/a", **ADMIN)).status == 200


async def test_a_long_answer_that_nobody_reads(autojump_clock: object) -> None:
    """No more of it is made than what has room, and the connection ends."""
    pages = Pages()
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with serving(ours, theirs, side_of(pages, write_stall_timeout_seconds=5.0)):
        await ours.send_all(
            f"GET /long HTTP/1.1\r\nhost: {HOST}\r\nauthorization: {ADMIN['authorization']}\r\n\r\n".encode()
        )
        await pages.entered.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert pages.sent <= 4
        await trio.sleep(6)
        assert pages.left == 1


async def test_a_long_answer_that_fails_is_not_complete(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(side_of(Pages())) as there:
        await there.send(raw("GET", "/long?fails=1"))
        assert not (await there.rest()).endswith(b"0\r\n\r\n")
    assert "failed in the middle" in caplog.text


# --- WebSockets ---


async def test_a_socket(autojump_clock: object) -> None:
    pages = Pages()
    async with served(side_of(pages)) as there:
        tab = Tab(there.stream)
        await tab.open("/socket", **ADMIN)
        await tab.send(b"one")
        await tab.send(b"two")
        assert await tab.message() == b"ONE"
        assert await tab.message() == b"TWO"
        await tab.send(b"bye")
        assert await tab.end() == (1000, "")
        await there.ended.wait()
    assert pages.left == 1
    assert pages.visits[0].who.account == "token:alice"


async def test_messages_of_a_page_that_come_together(autojump_clock: object) -> None:
    texts = [b"m%d" % number for number in range(100)]
    async with served(side_of(Pages())) as there:
        tab = Tab(there.stream)
        await tab.open("/socket", **ADMIN)
        await there.send(b"".join(tab.client.send(BytesMessage(data=text)) for text in texts))
        assert [await tab.message() for _ in texts] == [text.upper() for text in texts]


async def test_a_socket_of_text_for_pages_of_others(autojump_clock: object) -> None:
    """With a limit of its own; its handler says how it is closed."""
    foreign = "https://other.example"
    for text, ended in (("né", (4123, "enough")), ("x" * 51, (1009, "the message is too large"))):
        side = WebSide(OriginPolicy(origins=[foreign]), routes=Pages().routes, access=access_of())
        async with served(side) as there:
            tab = Tab(there.stream)
            await tab.open("/text", origin=foreign)
            await there.send(tab.client.send(TextMessage(data=text)))
            if ended[0] == 4123:
                assert (await tab.event()).data == text
            assert await tab.end() == ended
    async with served(side_of(Pages())) as there:
        answer = await there.ask("GET", "/text", b"", origin=foreign, **websocket_fields(""))
        assert answer.status == 403
    side = WebSide(OriginPolicy(origins=[foreign]), routes=Pages().routes, access=access_of())
    async with served(side) as there:
        answer = await there.ask("GET", "/socket", b"", origin=foreign, **websocket_fields(""), **ADMIN)
        assert answer.status == 403


async def test_a_socket_of_somebody_unknown_stays_while_it_answers_pings(autojump_clock: object) -> None:
    async with served(side_of(Pages(), ping_seconds=10.0, ping_timeout_seconds=5.0)) as there:
        tab = Tab(there.stream)
        await tab.open("/text")
        for _ in range(5):
            ping = await tab.event()
            assert isinstance(ping, Ping)
            await there.send(tab.client.send(ping.response()))
        await there.send(tab.client.send(TextMessage(data="still there")))
        assert (await tab.event()).data == "still there"
        assert trio.current_time() > 45


async def test_a_page_that_leaves(autojump_clock: object) -> None:
    for way in ("close", "lost"):
        pages = Pages()
        async with served(side_of(pages)) as there:
            tab = Tab(there.stream)
            await tab.open("/socket", **ADMIN)
            await pages.entered.wait()
            if way == "close":
                await there.send(tab.client.send(CloseConnection(code=1001)))
                assert (await tab.event()).code == 1000
            else:
                await there.stream.aclose()
            await there.ended.wait()
        assert pages.left == 1


async def test_how_a_socket_ends(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    async with served(side_of(Pages())) as there:
        tab = Tab(there.stream)
        await tab.open("/socket", **ADMIN)
        await tab.send(b"bug")
        assert await tab.end() == (1011, "unexpected failure; the server's log has the details")
    assert "the WebSocket /socket failed" in caplog.text
    async with served(side_of(Pages())) as there:
        tab = Tab(there.stream)
        await tab.open("/refuses", **ADMIN)
        assert await tab.end() == (4000, "there is no such trial")
    async with served(side_of(Pages(), max_page_message_bytes=100)) as there:
        tab = Tab(there.stream)
        await tab.open("/socket", **ADMIN)
        await tab.send(bytes(101))
        assert (await tab.end())[0] == 1009


async def test_what_comes_behind_the_end_of_a_socket_disturbs_nobody(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(side_of(Pages())) as there:
        tab = Tab(there.stream)
        await tab.open("/refuses", **ADMIN)
        assert (await tab.event()).code == 4000
        await there.send(b"\xff" * 20)  # no frame
        await there.ended.wait()
    assert caplog.records == []


def test_a_page_shows_any_characters() -> None:
    """A name may have half of a character in it, which UTF-8 does not have."""
    reply = html_page(Request("GET", "/", "", (), False), 200, "n\ud800", "a < b")
    assert b"<title>n?</title>" in reply.body
    assert b"<p>a &lt; b</p>" in reply.body


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (StatusCode.INVALID_ARGUMENT, 400),
        (StatusCode.OUT_OF_RANGE, 400),
        (StatusCode.UNAUTHENTICATED, 401),
        (StatusCode.PERMISSION_DENIED, 403),
        (StatusCode.NOT_FOUND, 404),
        (StatusCode.ALREADY_EXISTS, 409),
        (StatusCode.ABORTED, 409),
        (StatusCode.FAILED_PRECONDITION, 409),
        (StatusCode.RESOURCE_EXHAUSTED, 429),
        (StatusCode.INTERNAL, 500),
        (StatusCode.UNKNOWN, 500),
        (StatusCode.DATA_LOSS, 500),
        (StatusCode.UNIMPLEMENTED, 501),
        (StatusCode.UNAVAILABLE, 503),
        (StatusCode.CANCELLED, 503),
        (StatusCode.DEADLINE_EXCEEDED, 504),
    ],
)
async def test_what_a_refusal_is_to_http(code: StatusCode, status: int, autojump_clock: object) -> None:
    async def refuses(_visit: Visit) -> Reply:
        raise RpcError(code, "because")

    side = WebSide(routes=lambda: [Route("GET", "/refuses", refuses, right=None)])
    async with served(side) as there:
        answer = await there.ask("GET", "/refuses")
    assert (answer.status, json.loads(answer.body)["message"]) == (status, "because")


def test_who_it_is_by_a_certificate() -> None:
    """Where there is no token; an address alone is nobody."""
    request = Request("GET", "/", "", ())
    certified = Identity(account="certificate:ann", local=False, grant=EVERYTHING)
    found: list[Identity | None] = []
    for identity in (certified, anonymous("ipv4:10.0.0.7:1")):
        connection: Any = SimpleNamespace(visitor=SimpleNamespace(identity=identity), peer="ipv4:10.0.0.7:1")
        found.append(identity_of(connection, access_of(), request))
    connection = SimpleNamespace(visitor=None, peer="ipv4:10.0.0.7:1")
    assert [*found, identity_of(connection, access_of(), request)] == [certified, None, None]


async def test_who_answers(autojump_clock: object) -> None:
    async with served(side_of(Pages())) as there:
        answer = await there.ask("GET", "/")
        assert json.loads(answer.body) == {"message": "trio-cogment", "version": API_VERSION, "server": GRPC_VERSION}


def test_who_may_have_a_route_is_said_by_name() -> None:
    make: Any = SocketRoute
    with pytest.raises(TypeError):
        make("/socket", Pages().socket, None)
    make = Route
    with pytest.raises(TypeError):
        make("GET", "/page", Pages().page, None)


async def test_a_page_that_never_reads(autojump_clock: object) -> None:
    pages = Pages()
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with serving(ours, theirs, side_of(pages, write_stall_timeout_seconds=5.0)) as there:
        tab = Tab(ours)
        await tab.open("/flood", **ADMIN)
        for _ in range(3):
            await tab.message()
        await trio.testing.wait_all_tasks_blocked()
        assert pages.sent < 60
        await there.ended.wait()
        assert pages.left == 1


async def test_a_page_that_answers_no_ping(autojump_clock: object) -> None:
    pages = Pages()
    async with served(side_of(pages, ping_seconds=10.0, ping_timeout_seconds=5.0)) as there:
        tab = Tab(there.stream)
        await tab.open("/socket", **ADMIN)
        began = trio.current_time()
        await there.ended.wait()
        assert trio.current_time() - began == 15.0
    assert pages.left == 1


async def test_a_page_that_answers_stays(autojump_clock: object) -> None:
    pages = Pages()
    async with served(side_of(pages, ping_seconds=10.0, ping_timeout_seconds=5.0)) as there:
        tab = Tab(there.stream)
        await tab.open("/socket", **ADMIN)
        for _ in range(5):
            event = await tab.event()
            assert isinstance(event, Ping)
            await there.send(tab.client.send(event.response()))
        await tab.send(b"here")
        assert await tab.message() == b"HERE"


async def test_a_token_that_ends_meanwhile(autojump_clock: object) -> None:
    clock = Clock()
    access = access_of(clock)
    token = access.enter(access.new_code())
    async with served(side_of(Pages(), access, ping_seconds=10.0)) as there:
        tab = Tab(there.stream)
        await tab.open("/socket", cookie=f"trio-cogment-9000={token}")
        clock.seconds += 1000
        assert await tab.end() == (1008, "the token does not count any more")


async def test_sockets_need_a_page_of_the_server(autojump_clock: object) -> None:
    access = access_of()
    cookie = f"trio-cogment-9000={access.enter(access.new_code())}"
    for origin, status in (("", 401), (OWN, 101)):
        async with served(side_of(Pages(), access)) as there:
            answer = await there.ask("GET", "/socket", b"", origin=origin, cookie=cookie, **websocket_fields(""))
            assert answer.status == status
    for path, status in (("/page/a", 404), ("/none", 404), (ECHO, 400)):
        async with served(side_of(Pages(), access)) as there:
            answer = await there.ask("GET", path, b"", **websocket_fields(""), **ADMIN)
            assert answer.status == status
    async with served(side_of(Pages(), access)) as there:
        answer = await there.ask("GET", "/socket", b"", **(websocket_fields("") | {"sec_websocket_key": "x"}), **ADMIN)
        assert answer.status == 400


async def test_a_server_that_stops_ends_them_at_once() -> None:
    pages = Pages()
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(partial(serve, [], listeners, web=side_of(pages)))
        tab = Tab(await trio.open_tcp_stream("127.0.0.1", running.port))
        await tab.open("/socket", **ADMIN)
        await pages.entered.wait()
        nursery.start_soon(running.drain, 60.0)
        assert await tab.end() == (1001, "the server is stopping")
        assert pages.left == 1
        await tab.stream.aclose()
        nursery.cancel_scope.cancel()


async def test_an_answer_of_a_server_that_stops_says_that_no_other_follows() -> None:
    answering = trio.Event()

    async def slow(_visit: Visit) -> Reply:
        entered.set()
        await answering.wait()
        return Reply(200, b"late")

    entered = trio.Event()
    side = WebSide(routes=lambda: [Route("GET", "/slow", slow, right=None)])
    async with trio.open_nursery() as nursery:
        running = await nursery.start(partial(serve, [], await open_listeners("127.0.0.1"), web=side))
        stream = await trio.open_tcp_stream("127.0.0.1", running.port)
        async with stream:
            await stream.send_all(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await entered.wait()
            nursery.start_soon(running.drain, 3000.0)
            await trio.testing.wait_all_tasks_blocked()
            answering.set()
            answer = b"".join([part async for part in stream])
        assert b"\r\nconnection: close\r\n" in answer.lower()
        assert answer.endswith(b"\r\n\r\nlate")


class _Held(Turns):
    """Turns that nobody gets for a while."""

    def __init__(self) -> None:
        super().__init__(trio.current_time)
        self.wanted = trio.Event()
        self.open = trio.Event()
        self.open.set()

    async def turn(self, lane: Lane, units: int = 1) -> None:
        if not self.open.is_set():
            self.wanted.set()
            await self.open.wait()
        await super().turn(lane, units)


async def test_a_socket_that_is_asked_for_while_a_server_begins_to_stop_ends_at_once() -> None:
    """The request has come together with another one, and is looked at when the server stops already."""
    pages, turns = Pages(), _Held()
    _turns.set(turns)

    async def hold(_visit: Visit) -> Reply:
        turns.open = trio.Event()
        return Reply(200, b"first")

    side = WebSide(routes=lambda: [Route("GET", "/hold", hold, right=None), *pages.routes()], access=access_of())
    async with trio.open_nursery() as nursery:
        running = await nursery.start(partial(serve, [], await open_listeners("127.0.0.1"), web=side))
        async with await trio.open_tcp_stream("127.0.0.1", running.port) as stream:
            client = WSConnection(ConnectionType.CLIENT)
            asks = client.send(Handshake(host=HOST, target="/text", extra_headers=[(b"origin", OWN.encode())]))
            await stream.send_all(raw("GET", "/hold") + asks)
            await turns.wanted.wait()
            nursery.start_soon(running.drain, 3000.0)
            await trio.testing.wait_all_tasks_blocked()
            turns.open.set()
            answer = b""
            while (1001).to_bytes(2, "big") + b"the server is stopping" not in answer:
                more = await stream.receive_some()
                assert more, answer
                answer += more
    assert b"first" in answer


async def test_sockets_count_as_calls() -> None:
    pages = Pages()
    config = RpcConfig(max_calls=1)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(partial(serve, [], listeners, web=side_of(pages), config=config))
        first, second = [await trio.open_tcp_stream("127.0.0.1", running.port) for _ in range(2)]
        tab = Tab(first)
        await tab.open("/socket", **ADMIN)
        await pages.entered.wait()
        await second.send_all(raw("GET", "/page/a"))
        assert (await second.receive_some()).startswith(b"HTTP/1.1 429 ")
        await tab.send(b"bye")
        assert await tab.end() == (1000, "")
        assert await first.receive_some() == b""
        await second.send_all(raw("GET", "/page/a"))
        assert (await second.receive_some()).startswith(b"HTTP/1.1 200 ")
        await first.aclose()
        await second.aclose()
        nursery.cancel_scope.cancel()
