"""Requests of pages, in the name of whoever looks; and who may."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin

import pytest
import trio
import trio.testing

from tests.dashboard.shown import params, platform_with_pages
from tests.web.peers import Answer, serving, websocket_fields
from trio_cogment.access import Grant, Role
from trio_cogment.dashboard._dashboard import params_json
from trio_cogment.platform import Platform
from trio_cogment.web import PageAccess, WebSide

API = "/dashboard/api"
JSON = "application/json"


@dataclass
class Visitor:
    """Somebody with a token."""

    side: WebSide
    token: str

    async def ask(self, method: str, path: str, body: Any = None, **fields: str) -> Answer:
        fields = {"authorization": f"Bearer {self.token}", **fields}
        data = b"" if body is None else json.dumps(body).encode()
        more = {} if body is None else {"content_type": JSON}
        async with serving(*trio.testing.memory_stream_pair(), self.side) as there:
            return await there.ask(method, path, data, **fields, **more)

    async def json(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.ask(method, path, body)
        assert answer.status in (200, 201), answer.body
        return json.loads(answer.body)


@dataclass
class There:
    """The platform, and those who look at it."""

    platform: Platform
    side: WebSide
    access: PageAccess

    def visitor(self, role: Role, name: str = "ann") -> Visitor:
        names = ("x",) if role is Role.SEAT else ()
        grant = Grant(name=name, roles=frozenset([role]), trials=names, actors=names)
        return Visitor(self.side, self.access.mint(grant, 1000.0, ()))


@asynccontextmanager
async def there() -> AsyncIterator[There]:
    async with platform_with_pages() as (platform, side, access):
        yield There(platform, side, access)


async def ended(platform: Platform, trial_id: str) -> None:
    await platform.controller.wait_trial_state(trial_id)


async def test_the_page_and_its_files(autojump_clock: object) -> None:
    async with there() as here:
        admin = here.visitor(Role.ADMIN)
        page = await admin.ask("GET", "/dashboard")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        files: list[str] = []
        for path in (part.split(b'"')[0].decode() for part in page.body.split(b'="')[1:]):
            if "/" in path and not path.startswith(("text/", "image/")):
                files.append(path)
                assert (await admin.ask("GET", urljoin("/dashboard", path))).status == 200, path
        assert len(files) == 8
        assert not any(path.startswith("/") for path in files)  # a proxy may have something before them
        assert b"<script>" not in page.body
        assert b"style=" not in page.body
        home = await admin.ask("GET", "/", accept="text/html")
        assert (home.status, home.headers["location"]) == (303, "./dashboard")
        assert json.loads((await admin.ask("GET", "/")).body)["message"] == "trio-cogment"
        home = await admin.ask("GET", f"/~{admin.token}/", accept="text/html", authorization="")
        assert home.headers["location"] == f"../~{admin.token}/dashboard"
        assert await admin.json("GET", f"{API}/me") == {"name": "ann", "roles": ["admin"], "pages": {}}


async def test_start_and_stop(autojump_clock: object) -> None:
    async with there() as here:
        admin = here.visitor(Role.ADMIN)
        assert (await admin.json("GET", f"{API}/defaults"))["params"] == params_json(params())
        body = {"trial_id": "one", "user_id": "me", "params": params_json(params())}
        assert await admin.json("POST", f"{API}/trials", body) == {"trial_id": "one"}
        assert (await admin.ask("POST", f"{API}/trials", body)).status == 409
        found = await admin.json("GET", f"{API}/trials/one/params")
        assert found["params"]["environment"]["implementation"] == "arena"
        made = await admin.json("POST", f"{API}/trials", {})
        assert made["trial_id"]
        assert await admin.json("POST", f"{API}/trials/one/stop", {}) == {}
        assert await admin.json("POST", f"{API}/trials/{made['trial_id']}/stop", {"hard": True}) == {}
        with trio.fail_after(60):
            await ended(here.platform, "one")
            await ended(here.platform, made["trial_id"])


async def test_a_branch_of_a_stored_trial(autojump_clock: object) -> None:
    async with there() as here:
        admin = here.visitor(Role.ADMIN)
        await admin.json("POST", f"{API}/trials", {"trial_id": "one", "user_id": "me"})
        await trio.sleep(5)  # on the virtual clock: some ticks
        await admin.json("POST", f"{API}/trials/one/stop", {"hard": True})
        with trio.fail_after(60):
            await ended(here.platform, "one")
        body = {"branch_of": "one", "tick": 1, "trial_id": "two"}
        assert await admin.json("POST", f"{API}/trials", body) == {"trial_id": "two"}
        found = (await admin.json("GET", f"{API}/trials/two/params"))["params"]
        assert (found["properties"]["branch.trial"], found["properties"]["branch.tick"]) == ("one", "1")
        missing = await admin.ask("POST", f"{API}/trials", {"branch_of": "one", "tick": 10**9})
        assert (missing.status, "tick 1000000000: expected one that is stored" in missing.body.decode()) == (404, True)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("trials", {"branch_of": "none", "tick": 0}, 404, "none"),
        ("trials", {"branch_of": "none"}, 400, "tick: expected a number of 0 or more"),
        ("trials", {"branch_of": "none", "tick": -1}, 400, "tick: expected a number of 0 or more"),
        ("trials", {"branch_of": 3, "tick": 1}, 400, "branch_of: expected text"),
        ("trials", {"params": {"nonsense": 1}}, 400, "params: "),
        ("trials", {"params": 5}, 400, "params: "),
        ("trials", {"trial_id": 5}, 400, "trial_id: expected text"),
        ("trials", [], 400, "expected a JSON object"),
        ("trials", {"params": {"actors": [{"name": "a"}]}}, 400, "actor_class"),
        ("trials/none/stop", {}, 404, "none"),
        ("trials/none/stop", {"hard": "yes"}, 400, "hard: expected true or false"),
        (f"trials/{quote('<script>', safe='')}/stop", {}, 404, "<script>"),
    ],
)
async def test_bad_requests(path: str, body: Any, status: int, text: str, autojump_clock: object) -> None:
    async with there() as here:
        answer = await here.visitor(Role.ADMIN).ask("POST", f"{API}/{path}", body)
        assert answer.status == status
        assert answer.headers["content-type"] == JSON  # whatever it says is not a page
        assert text in json.loads(answer.body)["message"]


#: Each role, and what it gets: status by what is asked.
ROLES: dict[Role, dict[str, int]] = {
    Role.ADMIN: {},
    Role.OPERATOR: {},
    Role.OBSERVER: {"start": 403, "stop": 403, "defaults": 403},
    **dict.fromkeys(
        [Role.PARTICIPANT, Role.SEAT, Role.DIRECTORY, Role.ORCHESTRATOR, Role.WORKER],
        dict.fromkeys(
            ["page", "me", "live", "start", "stop", "defaults", "params", "stored", "models", "samples"], 403
        ),
    ),
}
ASKED: dict[str, tuple[str, str, Any, int]] = {
    "page": ("GET", "/dashboard", None, 200),
    "me": ("GET", f"{API}/me", None, 200),
    "start": ("POST", f"{API}/trials", {}, 201),
    "stop": ("POST", f"{API}/trials/x/stop", {}, 404),
    "defaults": ("GET", f"{API}/defaults", None, 200),
    "params": ("GET", f"{API}/trials/x/params", None, 404),
    "stored": ("GET", f"{API}/stored", None, 200),
    "samples": ("GET", f"{API}/stored/x/samples", None, 404),
    "models": ("GET", f"{API}/models", None, 200),
    "directory": ("GET", f"{API}/directory", None, 501),
}


@pytest.mark.parametrize("role", Role, ids=lambda role: role.value)
async def test_each_role(role: Role, autojump_clock: object) -> None:
    async with there() as here:
        visitor = here.visitor(role)
        for name, (method, path, body, status) in ASKED.items():
            answer = await visitor.ask(method, path, body)
            assert answer.status == ROLES[role].get(name, status), name
        answer = await visitor.ask("GET", "/dashboard/live", **websocket_fields(""))
        assert answer.status == ROLES[role].get("live", 101)


async def test_nobody_known_gets_nothing(autojump_clock: object) -> None:
    async with there() as here:
        nobody = Visitor(here.side, "")
        for method, path, body, _ in ASKED.values():
            assert (await nobody.ask(method, path, body, authorization="")).status == 401
        assert (await nobody.ask("GET", "/dashboard/live", authorization="", **websocket_fields(""))).status == 401


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "WebSocket"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000"])
async def test_pages_of_others_get_nothing(origin: str, method: str, autojump_clock: object) -> None:
    more = {"access_control_request_method": "POST"} if method == "OPTIONS" else {}
    more |= websocket_fields("") if method == "WebSocket" else {}
    async with there() as here:
        admin = here.visitor(Role.ADMIN)
        paths = ["/dashboard/live"] if method == "WebSocket" else [path for _, path, _, _ in ASKED.values()]
        for path in paths:
            answer = await admin.ask("GET" if method == "WebSocket" else method, path, origin=origin, **more)
            # A method that nothing answers is refused for that; the page learns no more of it.
            assert answer.status in (403, 405), path
            assert answer.status == 403 or method in ("POST", "DELETE", "GET")
        assert list(here.platform.orchestrator.trials) == []


async def test_operators_see_their_own(autojump_clock: object) -> None:
    async with there() as here:
        ann, bob = here.visitor(Role.OPERATOR, "ann"), here.visitor(Role.OPERATOR, "bob")
        await ann.json("POST", f"{API}/trials", {"trial_id": "anns"})
        assert (await ann.ask("GET", f"{API}/trials/anns/params")).status == 200
        assert (await bob.ask("GET", f"{API}/trials/anns/params")).status == 404
        assert (await bob.ask("POST", f"{API}/trials/anns/stop", {})).status == 404
        await trio.sleep(1)
        assert (await ann.json("GET", f"{API}/stored"))["matched"] == 1
        assert (await bob.json("GET", f"{API}/stored"))["matched"] == 0
        assert (await bob.ask("GET", f"{API}/stored/anns/download")).status == 404
        branch = {"branch_of": "anns", "tick": 0}
        assert (await bob.ask("POST", f"{API}/trials", branch)).status == 403
        assert (await ann.ask("POST", f"{API}/trials", branch)).status == 201
        await ann.json("POST", f"{API}/trials/anns/stop", {"hard": True})


async def test_stored_trials(autojump_clock: object) -> None:
    async with there() as here:
        admin = here.visitor(Role.ADMIN)
        for name in ("short-1", "short-2"):
            await admin.json("POST", f"{API}/trials", {"trial_id": name, "user_id": "me"})
            await ended(here.platform, name)
        await trio.sleep(1)
        found = await admin.json("GET", f"{API}/stored")
        assert [row["id"] for row in found["trials"]] == ["short-2", "short-1"]
        assert found["trials"][0]["end"]["cause"] == "ENVIRONMENT"
        assert (await admin.json("GET", f"{API}/stored?search=t-1"))["matched"] == 1
        assert (await admin.json("GET", f"{API}/stored?property=a=b"))["matched"] == 0
        assert (await admin.ask("GET", f"{API}/stored?property=a")).status == 400
        described = await admin.json("GET", f"{API}/stored/short-1")
        assert described["actors"] == ["quick", "slow"]
        answer = await admin.ask("GET", f"{API}/stored/short-1/samples")
        assert answer.headers["content-type"] == "application/x-ndjson"
        samples = [json.loads(line) for line in answer.body.splitlines()]
        assert [sample["tick"] for sample in samples] == list(range(61))
        first = samples[0]["actors"]["quick"]
        assert first["observation"]["value"]["$array"]["shape"] == [24, 24, 3]
        assert samples[0]["messages"][0]["payload"]["type"] == "google.protobuf.StringValue"
        assert [one["from"] for one in samples[19]["messages"]] == [""]
        answer = await admin.ask("GET", f"{API}/stored/short-1/samples?payloads=0")
        assert set(json.loads(answer.body.splitlines()[0])["actors"]["quick"]) == {"reward"}
        saved = await admin.ask("GET", f"{API}/stored/short-1/download")
        assert saved.headers["content-disposition"] == "attachment; filename*=UTF-8''short-1.samples"
        assert len(saved.body) > 10_000
        for path in ("none", "none/samples", "none/download", quote('a"b\n', safe="")):
            assert (await admin.ask("GET", f"{API}/stored/{path}")).status == 404


async def test_models(autojump_clock: object) -> None:
    async with there() as here:
        admin = here.visitor(Role.ADMIN)
        assert await admin.json("GET", f"{API}/models") == {"models": [{"name": "pilot", "data": {}}]}
        versions = (await admin.json("GET", f"{API}/models/pilot"))["versions"]
        assert [one["number"] for one in versions] == [1, 2, 3]
        assert versions[2]["data"] == {"score": "1.5", "parent": "2"}
        answer = await admin.ask("GET", f"{API}/models/pilot/2")
        assert answer.body == bytes(2000)
        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''pilot-2"
        for path, status in (("none", 404), ("pilot/9", 404), ("pilot/x", 400), ("pilot/-1", 400)):
            assert (await admin.ask("GET", f"{API}/models/{path}")).status == status, path
