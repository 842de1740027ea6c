"""The pages over HTTP: links and their tokens, and what is refused."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import pytest
from trio.testing import MockClock, memory_stream_pair

from tests.access.keys import KEYS, Clock, control, grant, token_text
from tests.play.pages import Counting, Socket, params, platform_of, read_message
from tests.web.peers import Served, Tab, served, serving, websocket_fields
from trio_cogment.access import Grant, Identity, Revoked, Role, Rules
from trio_cogment.base.errors import PermissionDeniedError
from trio_cogment.base.host import Host
from trio_cogment.play.games import Game
from trio_cogment.play.routes import lobby_link, play_routes, seat_link, with_module
from trio_cogment.play.server import PlayServer, open_play
from trio_cogment.web import PageAccess, SocketRoute, WebSide

NAME = "<b>Game</b>"
FILES = re.compile(rb'(?:href|src)="([^"#:]+)"')
IMPORTED = re.compile(rb'^import .* from "([^"]+)";$', re.MULTILINE)


@asynccontextmanager
async def pages_of(*, renderer: bytes = b"") -> AsyncIterator[tuple[Served, PlayServer, PageAccess, Clock]]:
    clock = Clock()
    access = PageAccess(host=Host(wall_clock=clock))
    game = Game(name="game", params=params("ann"), title=NAME, renderer=renderer)
    async with platform_of(Counting()) as platform, open_play(platform, [game]) as server:
        side = WebSide(routes=partial(play_routes, server, access), access=access)
        async with served(side) as there:
            await there.ask("GET", "/")  # the routes are made when the first browser comes
            yield there, server, access, clock


async def test_the_link_of_a_lobby_and_its_files(autojump_clock: MockClock) -> None:
    async with pages_of() as (there, _, access, _clock):
        link = lobby_link(access, 60, "game")
        page = await there.ask("GET", link)
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "unsafe" not in page.headers["content-security-policy"]
        # Each file that it names is there, and each that a script imports.
        waiting, asked = [urljoin(link, path.decode()) for path in FILES.findall(page.body)], set[str]()
        while waiting:
            path = waiting.pop()
            if path in asked:
                continue
            asked.add(path)
            file = await there.ask("GET", path)
            assert (path, file.status) == (path, 200)
            waiting += [urljoin(path, name.decode()) for name in IMPORTED.findall(file.body)]
        names = {path.partition("/play/assets/")[2] for path in asked}
        assert {"play.css", "play.js", "forms.js"} < names


async def test_the_link_of_a_seat(autojump_clock: MockClock) -> None:
    async with pages_of() as (there, server, _, _clock):
        [game] = server.games
        [made], _ = await server.start(game, 1, False)
        link = made(())
        assert (await there.ask("GET", link)).status == 200
        assert (await there.ask("GET", f"{link}socket", **websocket_fields(""))).status == 101


async def test_the_socket_of_a_seat_is_that_of_its_page(autojump_clock: MockClock) -> None:
    """Also where a game is named as the trial."""
    async with pages_of() as (there, server, access, _clock):
        [game] = server.games
        [made], _ = await server.start(game, 1, False)
        tab = Tab(there.stream)
        await tab.open(f"{made(())}socket")
        while (message := read_message(await tab.message()))["type"] != "seat":
            pass
        assert message["welcome"]["actor"] == "ann"
        ours, theirs = memory_stream_pair()
        async with serving(ours, theirs, WebSide(routes=partial(play_routes, server, access), access=access)):
            tab = Tab(ours)
            await tab.open(f"{seat_link(access, 60, 'game', 'ann')}socket")
            assert await tab.end() == (4000, "there is no such seat, or its trial is long over")


@pytest.mark.parametrize("wrong", ["", "x", "tc1.0.0.0", "tc1.%00.a.b", "<script>", "~", "a" * 9000])
async def test_forged_tokens(wrong: str, autojump_clock: MockClock) -> None:
    async with pages_of() as (there, _, _access, _clock):
        answer = await there.ask("GET", f"/~{wrong}/play/")
        assert answer.status in (400, 401, 404)
        assert b"Traceback" not in answer.body
        assert b"<script>" not in answer.body


async def test_a_token_of_another_key_and_one_that_was_changed(autojump_clock: MockClock) -> None:
    async with pages_of() as (there, _, access, _clock):
        foreign = seat_link(PageAccess(), 60, "trial", "ann")
        assert (await there.ask("GET", foreign)).status == 401
        changed = lobby_link(access, 60, "game").replace(".", ".x", 2)
        assert (await there.ask("GET", changed)).status == 401


async def test_a_stale_token(autojump_clock: MockClock) -> None:
    async with pages_of() as (there, _, access, clock):
        link = lobby_link(access, 60, "game")
        clock.seconds += 61
        assert (await there.ask("GET", link)).status == 401


async def test_a_seat_is_for_one_actor_of_one_trial(autojump_clock: MockClock) -> None:
    async with pages_of() as (there, server, access, _clock):
        [game] = server.games
        await server.start(game, 1, False)
        for trial_id, actor in (("other", "ann"), (server.seats[0].trial_id, "bob"), ("lobby:none", "waits")):
            link = seat_link(access, 60, trial_id, actor)
            # The page comes, and its socket says that there is nothing.
            assert (await there.ask("GET", link)).status == 200
        token = access.mint(Grant(name="ann", roles=frozenset([Role.OPERATOR])), 60, ())
        assert (await there.ask("GET", f"/~{token}/play/")).status == 403
        token = access.mint(Grant(name="ann", roles=frozenset([Role.OBSERVER])), 60, ())
        assert (await there.ask("GET", f"/~{token}/play/")).status == 403


async def test_nobody_without_a_token(autojump_clock: MockClock) -> None:
    async with pages_of() as (there, _, _access, _clock):
        for path in ("/play/", "/play/renderer"):
            assert (await there.ask("GET", path)).status == 401
        assert (await there.ask("GET", "/play/socket", **websocket_fields(""))).status == 401


async def test_an_administrator_finds_the_links(autojump_clock: MockClock) -> None:
    async with pages_of() as (there, server, access, _clock):
        token = access.mint(Grant(name="admin", roles=frozenset([Role.ADMIN])), 60, ())
        page = await there.ask("GET", "/play/", authorization=f"Bearer {token}")
        assert NAME.encode() not in page.body
        assert b"&lt;b&gt;Game&lt;/b&gt;" in page.body
        [link] = re.findall(r'<li><a href="([^"]+)"', page.body.decode())
        assert (await there.ask("GET", urljoin("/play/", link))).status == 200
        assert b'<a href="../leave">' in page.body
        [game] = server.games
        await server.start(game, 1, False)
        page = await there.ask("GET", "/play/", authorization=f"Bearer {token}")
        assert page.body.count(b"<li>") == 2


async def test_a_renderer_is_shut_in(autojump_clock: MockClock) -> None:
    async with pages_of(renderer=b"<p>mine</p>") as (there, server, access, _clock):
        [game] = server.games
        [made], _ = await server.start(game, 1, False)
        link = made(())
        page = await there.ask("GET", f"{link}renderer")
        assert page.status == 200
        assert page.body.endswith(b"</script><p>mine</p>")
        policy = page.headers["content-security-policy"]
        assert "sandbox allow-scripts" in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'self'" in policy
        assert "connect-src" not in policy
        other = seat_link(access, 60, "other", "ann")
        assert (await there.ask("GET", f"{other}renderer")).status == 404


@pytest.mark.parametrize("before", [b"", b"<!doctype html>", b"\n<!DOCTYPE html PUBLIC 'x'>"])
def test_a_page_of_ones_own_has_the_module(before: bytes) -> None:
    """Behind the document type, before everything else, and without a request."""
    page = with_module(before + b"<script type=module>import 'trio-cogment'</script>")
    assert page.startswith(
        before + b'<script type="importmap">{"imports": {"trio-cogment": "data:text/javascript;base64,'
    )
    [module] = re.findall(rb"base64,([^\"]+)", page)
    assert b"export function connect(handlers)" in base64.b64decode(module)
    assert page.endswith(b"import 'trio-cogment'</script>")


async def test_links_of_a_platform_with_a_secret_outlast_the_process(autojump_clock: MockClock) -> None:
    """They are signed with the platform's secret, and so count at its other servers, too."""
    rules = Rules(keys=KEYS)
    link = seat_link(PageAccess(control(rules)), 60, "trial", "ann")
    token = link.removeprefix("/~").removesuffix("/play/")
    identity = PageAccess(control(rules)).identify(token, local=True)
    assert identity.grant.names_actor("trial", "player", "ann")
    assert not identity.grant.names_actor("trial", "player", "bob")


async def test_links_that_an_administrator_finds_end_with_its_token(autojump_clock: MockClock) -> None:
    """Those that the server itself has printed go on."""
    platform = control(Rules(keys=KEYS))
    access = PageAccess(platform)
    game = Game(name="game", params=params("ann"), title=NAME)
    async with platform_of(Counting()) as there, open_play(there, [game]) as server:
        side = WebSide(routes=partial(play_routes, server, access), access=access)
        async with served(side) as pages:
            await pages.ask("GET", "/")
            await server.start(game, 1, False)
            printed = lobby_link(access, 60, "game")
            for token in (token_text(grant(Role.ADMIN)), access.enter(access.new_code())):
                page = await pages.ask("GET", "/play/", authorization=f"Bearer {token}")
                links = [urljoin("/play/", link) for link in re.findall(r'<li><a href="([^"]+)"', page.body.decode())]
                assert len(links) == 2
                for link in (*links, printed):
                    assert (await pages.ask("GET", link)).status == 200
                name = access.identify(token, local=True).grant.name
                platform.adopt(Rules(keys=KEYS, revoked=Revoked.parse(f"name={name}")))
                assert (await pages.ask("GET", "/play/", authorization=f"Bearer {token}")).status == 401
                for link in links:
                    assert (await pages.ask("GET", link)).status == 401
                assert (await pages.ask("GET", printed)).status == 200
                platform.adopt(Rules(keys=KEYS))


async def test_a_seat_ends_with_the_link_of_the_lobby(autojump_clock: MockClock) -> None:
    platform = control(Rules(keys=KEYS))
    access = PageAccess(platform)
    game = Game(name="game", params=params("ann"), title=NAME)
    async with platform_of(Counting()) as there, open_play(there, [game]) as server:
        side = WebSide(routes=partial(play_routes, server, access), access=access)
        async with served(side) as pages:
            await pages.ask("GET", "/")
            ours, theirs = memory_stream_pair()
            link = lobby_link(access, 60, "game")
            async with serving(ours, theirs, side):
                tab = Tab(ours)
                await tab.open(f"{link}socket")
                await tab.send(b'{"type": "hello", "ticket": ""}')
                await tab.send(b'{"type": "ready"}')
                while "link" not in (header := read_message(await tab.message())):
                    pass
            seat = header["link"]
            assert (await pages.ask("GET", seat)).status == 200
            identity = access.identify(link.split("/")[1][1:], local=True)
            platform.adopt(Rules(keys=KEYS, revoked=Revoked.parse(identity.token_id)))
            assert (await pages.ask("GET", link)).status == 401
            assert (await pages.ask("GET", seat)).status == 401


async def test_an_administrator_has_no_seat(autojump_clock: MockClock) -> None:
    """It finds links, and sits down by one of them."""
    async with pages_of() as (_, server, access, _clock):
        [socket] = [route for route in play_routes(server, access) if isinstance(route, SocketRoute)]
        who = Identity(account="token:admin", local=True, grant=grant(Role.ADMIN))
        visit: Any = SimpleNamespace(who=who)
        with pytest.raises(PermissionDeniedError, match="expected the link of a seat, or of a lobby"):
            await socket.handler(visit, Socket())  # type: ignore[arg-type]  # it is not used
