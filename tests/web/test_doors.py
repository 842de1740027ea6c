"""Every door of HTTP and WebSockets against the same matrix: whose page, by which name, and with which token it asks.

The doors are found in the code: a module that makes routes, or takes connections, and is not in the tables here, fails
the first two tests.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio.testing

from tests.access.keys import FOREIGN, KEYS, NOW, Clock, grant, token_text
from tests.dashboard.shown import platform_with_pages
from tests.experiment.test_server import example, running
from tests.gateways.openenv.games import Walk, game_of
from tests.gateways.rest.playing import opened_proxy
from tests.play.pages import Counting, params, platform_of
from tests.web.peers import OWN, Answer, serving, websocket_fields
from trio_cogment.access import AccessControl, Grant, Revoked, Role, Rules
from trio_cogment.access.rights import scope_of
from trio_cogment.base.config import OpenEnvConfig, WebProxyConfig
from trio_cogment.dashboard import open_dashboard
from trio_cogment.environments.serving import environment
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.experiment.routes import experiment_routes
from trio_cogment.experiment.texts import Picture
from trio_cogment.gateways.openenv.server import opened_application
from trio_cogment.gateways.rest import rest_routes
from trio_cogment.platform import open_platform
from trio_cogment.play.games import Game
from trio_cogment.play.routes import play_routes
from trio_cogment.play.server import open_play
from trio_cogment.sdk import Participants
from trio_cogment.web import OriginPolicy, PageAccess, WebSide
from trio_cogment.web.common_pages import common_routes
from trio_cogment.web.routing import AnyRoute, Route, SocketRoute

SOURCE = Path(__file__).parents[2] / "src" / "trio_cogment"
#: To browsers all ports of a machine are one site: pages from there do get the cookie sent.
SAME_SITE = ("http://127.0.0.1:9001", "http://127.0.0.1", "http://localhost:9000")
EVIL, FRIEND = "https://evil.example", "https://friend.example"
#: Fields of requests that no page of the server's own sends: another page's, or found by a name of somebody's choice.
REFUSED = [
    *({"origin": origin} for origin in (EVIL, "null", "https://127.0.0.1.evil.example:9000")),
    *({"host": host} for host in ("evil.example", "evil.example:9000", "127.0.0.1.evil.example:9000")),
]
#: What is open to anybody: it shows nothing of anybody's, or is where a token is given.
OPEN = {
    *("/", "/enter", "/enter/{code}", "/leave", "/health", "/openapi.json", "/openapi.json/"),
    *("/assets/{name*}", "/play/assets/{name*}", "/dashboard/assets/{name*}", "/experiment/assets/{name*}"),
    # The key is what lets somebody in, as a token does; see `test_the_key_of_an_experiment`.
    *("/experiment/{key}", "/experiment/{key}/", "/experiment/{key}/socket", "/experiment/{key}/pictures/{name}"),
}
#: Where the handler judges callers itself; see `rest_routes`.
JUDGED = {path + end for path in ("/controller/trials", "/actor/{actor_name}/{trial_id}") for end in ("", "/")} | {
    "/actor/{actor_name}/{trial_id}/{tick_id}" + end for end in ("", "/")
}


def access_control() -> AccessControl:
    ids = itertools.count()
    return AccessControl(Rules(keys=KEYS), wall_clock=Clock(), new_id=lambda: f"id{next(ids)}")


# The doors


@asynccontextmanager
async def dashboard(_access: AccessControl) -> AsyncIterator[list[AnyRoute]]:
    async with platform_with_pages() as (platform, _, _), open_dashboard(platform) as routes:
        yield routes()


@asynccontextmanager
async def play(access: AccessControl) -> AsyncIterator[list[AnyRoute]]:
    game = Game(name="game", params=params("ann"), title="Game")
    async with platform_of(Counting()) as platform, open_play(platform, [game]) as server:
        yield play_routes(server, PageAccess(access))


@asynccontextmanager
async def experiment(_access: AccessControl) -> AsyncIterator[list[AnyRoute]]:
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder)) as server:
            yield experiment_routes(server)


@asynccontextmanager
async def openenv(_access: AccessControl) -> AsyncIterator[list[AnyRoute]]:
    participants = Participants(RL_SPEC)
    participants.register_environment(environment(Walk))
    async with (
        open_platform(participants) as platform,
        opened_application(game_of(Walk()), platform, OpenEnvConfig(), asked=True) as application,
    ):
        yield application.routes()


@asynccontextmanager
async def rest(access: AccessControl) -> AsyncIterator[list[AnyRoute]]:
    async with opened_proxy(config=WebProxyConfig(join_timeout_seconds=0.1), access=access) as (proxy, _):
        yield list(rest_routes(proxy))


@asynccontextmanager
async def common(access: AccessControl) -> AsyncIterator[list[AnyRoute]]:
    yield list(common_routes(PageAccess(access)))


Door = Callable[[AccessControl], AbstractAsyncContextManager[list[AnyRoute]]]
#: And the modules that make their routes.
DOORS: dict[Door, set[str]] = {
    dashboard: {f"dashboard/{name}.py" for name in ("_dashboard", "_server_pages", "_stored")},
    play: {"play/routes.py"},
    experiment: {"experiment/routes.py"},
    openenv: {"gateways/openenv/app.py"},
    rest: {"gateways/rest/routes.py"},
    common: {"web/common_pages.py", "web/sign_in.py", "web/assets.py"},
}
#: What takes connections, and the test of its matrix.
TAKES = {
    "rpc/server.py": "tests/access/test_wire.py, tests/web/test_roles.py, and here what it hands to the web side",
    "web/metrics_endpoint.py": "tests/web/test_metrics_endpoint.py",
}


def modules_with(pattern: str) -> set[str]:
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text(encoding="utf-8"))
        if re.search(pattern, text, re.MULTILINE):
            found.add(path.relative_to(SOURCE).as_posix())
    return found


def test_every_module_that_makes_routes_is_here() -> None:
    made = modules_with(r"\b(Socket)?Route\((?!\))") - {"rpc/relay.py"}  # those of calls, which are gRPC's
    assert made == set().union(*DOORS.values())


def test_every_module_that_takes_connections_is_here() -> None:
    taking = r"serve_listeners|serve_tcp|serve_ssl_over_tcp|(?<![\w.])listener\.accept\(|start_server\(|create_server\("
    taking += r"|HTTPServer|make_server|grpc\.(aio\.)?server\(|uvicorn|hypercorn"
    assert modules_with(taking) == set(TAKES)


# The matrix


class Asking:
    """Asks for one route over connections of its own."""

    def __init__(self, side: WebSide, route: AnyRoute, access: AccessControl) -> None:
        self._side = side
        self._access = access
        self.route = route
        self.path = re.sub(r"\{[^}]*\}", "1", route.pattern)

    async def __call__(self, *, way: str = "field", token: str = "", **fields: str) -> Answer:
        path, more = self.path, {**fields}
        if token and way == "path":
            path = f"/~{token}{path}"
        elif token and way == "cookie":
            more = {"cookie": f"trio-cogment-9000={token}", "origin": OWN, **more}
        elif token:
            more["authorization"] = f"Bearer {token}"
        method = "GET" if isinstance(self.route, SocketRoute) else self.route.method
        if isinstance(self.route, SocketRoute):
            more = {**websocket_fields(""), **more}
        ends = trio.testing.memory_stream_pair()
        async with serving(*ends, self._side, access=self._access) as there:
            return await there.ask(method, path, **more)


@asynccontextmanager
async def opened(door: Door) -> AsyncIterator[tuple[list[Asking], AccessControl]]:
    access = access_control()
    async with door(access) as routes:
        pages = PageAccess(access)
        side = WebSide(OriginPolicy([], [FRIEND]), routes=lambda: routes, access=pages)
        yield [Asking(side, route, access) for route in routes], access


doors = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)


@doors
async def test_whose_page_asks_and_by_which_name(door: Door, autojump_clock: object) -> None:
    async with opened(door) as (asking, _):
        token = token_text(grant(Role.ADMIN))
        for ask in asking:
            for way in ("field", "path", "cookie"):
                with_token = partial(ask, way=way, token=token)
                for fields in REFUSED:
                    answer = await with_token(**fields)
                    assert answer.status == 403, (ask.path, way, fields)
                    assert "access-control-allow-origin" not in answer.headers
                answer = await with_token(origin=FRIEND)
                if not ask.route.foreign:
                    assert answer.status == 403, (ask.path, way)
                elif way != "cookie":  # which other pages do not get sent
                    # Some of these want the token of an actor, too.
                    assert answer.status != 403, (ask.path, way)
                    assert answer.status != 401 or ask.route.pattern in JUDGED, (ask.path, way)


@doors
async def test_a_page_of_another_port_cannot_use_the_cookie(door: Door, autojump_clock: object) -> None:
    async with opened(door) as (asking, _):
        for ask in asking:
            if ask.route.pattern in OPEN and door_may_open(door, ask.route) and ask.route.foreign:
                continue
            for origin in SAME_SITE:
                answer = await ask(way="cookie", token=token_text(grant(Role.ADMIN)), origin=origin)
                assert answer.status == (401 if ask.route.foreign else 403), (ask.path, origin)


@doors
async def test_what_is_open_to_anybody(door: Door, autojump_clock: object) -> None:
    async with opened(door) as (asking, _):
        for ask in asking:
            expected = ask.route.right is None and ask.route.pattern not in JUDGED
            assert expected is (ask.route.pattern in OPEN and door_may_open(door, ask.route)), ask.path
            status = (await ask()).status
            assert (status != 401) is expected, (ask.path, status)


def door_may_open(door: Door, route: AnyRoute) -> bool:
    """The description of an OpenEnv server names the seats of its game; that of a web proxy is the same everywhere."""
    return not (door is openenv and route.pattern == "/openapi.json")


@doors
@pytest.mark.parametrize("role", [*Role, None], ids=lambda role: "no role" if role is None else role.value)
async def test_each_role(door: Door, role: Role | None, autojump_clock: object) -> None:
    async with opened(door) as (asking, _):
        held = grant(*(() if role is None else (role,)))
        for ask in asking:
            right = ask.route.right
            if right is None:
                continue
            answer = await ask(token=token_text(held))
            refused = answer.status == 403 and b"not allowed for your roles" in answer.body
            assert answer.status != 401
            assert refused is (scope_of(held.roles, right) is None), (ask.path, answer.body)


def tokens_that_do_not_count(access: AccessControl) -> Iterator[tuple[str, str]]:
    admin = grant(Role.ADMIN)
    yield "nonsense", "x"
    yield "forged", token_text(admin)[:-2]
    yield "of another key", token_text(admin, keys=FOREIGN)
    yield "expired", token_text(admin, expires_at=NOW)
    yield "revoked", token_text(admin, token_id="gone")
    yield "revoked by name", token_text(grant(Role.ADMIN, name="mallory"))
    for name, holder, token_id in (("derived", "ann", "gone"), ("derived by name", "mallory", "x")):
        source = access.verified(token_text(grant(Role.ADMIN, name=holder), token_id=token_id), local=False)
        yield name, access.mint(Grant(name="heir", roles=frozenset([Role.ADMIN])), 60, source.derives)


@doors
@pytest.mark.parametrize("way", ["field", "path", "cookie"])
async def test_tokens_that_do_not_count(door: Door, way: str, autojump_clock: object) -> None:
    async with opened(door) as (asking, access):
        tokens = dict(tokens_that_do_not_count(access))
        access.adopt(Rules(keys=KEYS, revoked=Revoked.parse("gone\nname=mallory")))
        for ask in asking:
            if ask.route.pattern in OPEN and door_may_open(door, ask.route):
                continue
            for name, token in tokens.items():
                assert (await ask(way=way, token=token)).status == 401, (ask.path, name)
                if ask.route.pattern in JUDGED:
                    assert (await ask(cogment_actor_trial_token=token)).status == 401, (ask.path, name)


@doors
async def test_other_methods_are_no_way_around(door: Door, autojump_clock: object) -> None:
    async with opened(door) as (asking, _):
        there = {(ask.route.method, ask.path) for ask in asking if isinstance(ask.route, Route)}
        for ask in asking:
            if not isinstance(ask.route, Route):
                continue
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                if (method, ask.path) in there:
                    continue
                other = Asking(ask._side, Route(method, ask.path, ask.route.handler, right=None), ask._access)
                assert (await other(token=token_text(grant(Role.ADMIN)))).status in (404, 405, 415), (method, ask.path)


@pytest.mark.parametrize("path", ["/experiment/{key}", "/experiment/{key}/", "/experiment/{key}/socket"])
async def test_the_key_of_an_experiment(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    access, let_in = access_control(), 0
    async with running(tmp_path) as server:

        async def serve_page(_socket: object) -> None:
            nonlocal let_in
            let_in += 1

        monkeypatch.setattr(server, "serve_page", serve_page)
        routes = experiment_routes(server)
        side = WebSide(OriginPolicy([], [FRIEND]), routes=lambda: routes, access=PageAccess(access))
        [route] = [each for each in routes if each.pattern == path]
        is_page = isinstance(route, Route)
        ask = Asking(side, route, access)
        for key in ("1", server.key[:-1], server.key + "x", server.key.swapcase(), "%C3%A9", "assets", "%00"):
            ask.path = path.replace("{key}", key)
            for token in ("", token_text(grant(Role.ADMIN))):
                answer = await ask(token=token)
                assert answer.status == 404 if is_page else not let_in, key
                if is_page:
                    assert b"There is no such study" in answer.body
        ask.path = path.replace("{key}", server.key)
        for fields in REFUSED:
            assert (await ask(**fields)).status == 403, fields
        assert not let_in
        answer = await ask()
        assert answer.status == {"/experiment/{key}": 303, "/experiment/{key}/": 200}.get(path, 101)
        if answer.status == 303:  # a link that has lost its last slash
            assert answer.headers["location"] == f"../experiment/{server.key}/"
        await trio.testing.wait_all_tasks_blocked()
        assert let_in == (0 if is_page else 1)


async def test_pictures_of_an_experiment_need_its_key(tmp_path: Path, autojump_clock: object) -> None:
    access, picture = access_control(), Picture("png", b"\x89PNG")
    async with running(tmp_path, example(pictures={"map.png": picture})) as server:
        routes = experiment_routes(server)
        side = WebSide(OriginPolicy([], [FRIEND]), routes=lambda: routes, access=PageAccess(access))
        [route] = [each for each in routes if "/pictures/" in each.pattern]
        ask = Asking(side, route, access)
        for key, name, status in (
            (server.key, picture.name, 200),
            (server.key, "map.png", 404),
            (server.key, "..%2F", 404),
            ("x", picture.name, 404),
        ):
            ask.path = f"/experiment/{key}/pictures/{name}"
            answer = await ask()
            assert answer.status == status, (key, name)
            if status == 200:
                assert answer.headers["content-type"] == "image/png"
                assert answer.body == picture.content
