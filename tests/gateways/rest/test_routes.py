"""The routes over HTTP: statuses, tokens in fields, other origins, and clients that leave."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from tests.gateways.rest.playing import Field, act_body, control, observation, opened_proxy, spec, start_body
from tests.web.peers import Served, serving
from trio_cogment.base.config import WebConfig, WebProxyConfig
from trio_cogment.gateways.rest import rest_routes
from trio_cogment.gateways.rest.openapi import document
from trio_cogment.gateways.rest.proxy import RestProxy
from trio_cogment.platform import Platform
from trio_cogment.sdk import EnvironmentSession
from trio_cogment.web import OriginPolicy, PageAccess, WebSide

TRIALS, SEAT = "/controller/trials", "/actor/ann/lab-1"
OTHER = "https://app.example.org"


class Client:
    """Sends requests over one connection."""

    def __init__(self, there: Served) -> None:
        self.there = there
        self.token = ""

    async def ask(self, method: str, path: str, body: bytes = b"", **fields: str) -> tuple[int, Any]:
        """Return the status of an answer, and what it says."""
        answer = await self.there.ask(method, path, body, cogment_actor_trial_token=self.token, **fields)
        return answer.status, json.loads(answer.body) if answer.body else None

    async def start_and_join(self) -> None:
        status, reply = await self.ask("POST", TRIALS, start_body(trial_id="lab-1"))
        assert (status, reply["trial_id"]) == (202, "lab-1")
        status, reply = await self.ask("POST", SEAT)
        assert status == 200
        self.token = reply["token"]


@asynccontextmanager
async def opened(
    environment: Any = None, config: WebProxyConfig | None = None, **options: Any
) -> AsyncIterator[tuple[Client, RestProxy, Platform]]:
    async with opened_proxy(environment, config=config, **options) as (proxy, platform):
        side = WebSide(
            OriginPolicy([], [OTHER]),
            config=WebConfig(page_timeout_seconds=2),
            routes=partial(rest_routes, proxy),
            access=PageAccess(options.get("access")),
        )
        async with serving(*trio.testing.memory_stream_pair(), side) as there:
            yield Client(there), proxy, platform


async def test_a_whole_trial(autojump_clock: object) -> None:
    async with opened(Field(2).run) as (client, _, platform):
        assert await client.ask("GET", TRIALS) == (200, [])
        await client.start_and_join()
        assert await client.ask("GET", TRIALS) == (200, [{"trial_id": "lab-1", "env_name": "env", "state": 3}])
        status, reply = await client.ask("POST", f"{SEAT}/0", act_body(5))
        assert (status, reply["tick_id"], reply["observation"]) == (200, "1", {"step": 1})
        status, reply = await client.ask("GET", f"{SEAT}/1")
        assert (status, reply["tick_id"], reply["final"]) == (200, "2", True)
        status, reply = await client.ask("POST", f"{SEAT}/2/", act_body(5))
        assert (status, reply["tick_id"], reply["ended"]) == (200, "3", True)
        assert (await platform.controller.wait_trial("lab-1")).ticks == 3
        assert (await client.ask("POST", f"{SEAT}/3", act_body(5)))[0] == 404
        assert (await client.ask("POST", SEAT))[0] == 409


async def test_what_this_is(autojump_clock: object) -> None:
    async with opened() as (client, _, _):
        status, reply = await client.ask("GET", "/")
        assert (status, sorted(reply)) == (200, ["message", "version", "version_hash"])
        status, reply = await client.ask("GET", "/openapi.json")
        assert (status, reply["openapi"], reply["info"]["title"]) == (200, "3.0.1", "Cogment Web Proxy")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", TRIALS, b"", 400, "body: expected JSON"),
        ("POST", TRIALS, b"{}", 400, "environment: "),
        ("POST", TRIALS, start_body(trial_id="lab-1"), 409, "trial_id: "),
        ("POST", TRIALS, start_body(actors=[{"name": "", "implementation": "web"}]), 400, "actor"),
        ("PUT", TRIALS, b"", 405, None),
        ("DELETE", TRIALS, b"", 405, None),
        ("GET", SEAT, b"", 405, None),
        ("GET", "/actor", b"", 404, ""),
        ("POST", f"{SEAT}/x", b"{}", 400, "tick_id: expected an integer"),
        ("POST", f"{SEAT}/7", act_body(1), 409, "tick_id: expected 0"),
        ("POST", f"{SEAT}/0", b"{}", 400, "action: "),
        ("POST", f"{SEAT}/0", b'{"action": {"x": 1}}', 400, "action: "),
        ("POST", "/actor/bob/lab-1/0", act_body(1), 401, "Cogment-Actor-Trial-Token"),
        ("DELETE", "/actor/ann/other", b"", 401, "Cogment-Actor-Trial-Token"),
        ("HEAD", f"{SEAT}/0", b"", 400, None),
        ("POST", f"{SEAT}/0", b"x" * 2000, 413, "expected a body of 1000 bytes at most"),
    ],
)
async def test_requests_that_are_refused(
    method: str, path: str, body: bytes, status: int, text: str | None, autojump_clock: object
) -> None:
    async with opened(config=WebProxyConfig(max_body_bytes=1000)) as (client, _, _):
        await client.start_and_join()
        answer = await client.there.ask(method, path, body, cogment_actor_trial_token=client.token)
        assert answer.status == status
        if text is not None:
            assert text in json.loads(answer.body)["message"]
        if status == 405:
            assert answer.headers["allow"]


@pytest.mark.parametrize(("method", "path"), [("POST", f"{SEAT}/0"), ("GET", f"{SEAT}/0"), ("DELETE", SEAT)])
@pytest.mark.parametrize("token", ["", "x", "tc1.a.b.c"])
async def test_without_a_good_token(method: str, path: str, token: str, autojump_clock: object) -> None:
    async with opened() as (client, _, _):
        await client.start_and_join()
        client.token = token
        status, reply = await client.ask(method, path)
        assert status == 401
        assert reply["message"]


async def test_where_tokens_are_asked_for(autojump_clock: object) -> None:
    async with opened(access=control()) as (client, _, _):
        for method, path in (("GET", TRIALS), ("POST", TRIALS), ("POST", SEAT)):
            answer = await client.there.ask(method, path, start_body() if path == TRIALS and method == "POST" else b"")
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_an_orchestrator_that_is_away(autojump_clock: object) -> None:
    async with opened() as (client, _, platform):
        await platform.stop()
        assert (await client.ask("POST", TRIALS, start_body()))[0] == 503


async def slow(session: EnvironmentSession) -> None:
    """Take longer for each step than a page may take."""
    await session.start([("*", observation(0))])
    async for event in session.all_events():
        if event.actions is not None:
            await trio.sleep(300)
            await session.produce_observations([("*", observation(event.tick_id + 1))])


async def test_an_answer_may_take_as_long_as_the_environment_does(autojump_clock: object) -> None:
    async with opened(slow) as (client, _, platform):
        await client.start_and_join()
        before = trio.current_time()
        assert (await client.ask("POST", f"{SEAT}/0", act_body(1)))[1]["tick_id"] == "1"
        assert trio.current_time() - before >= 300
        await platform.controller.terminate_trial("lab-1", hard=True)


async def test_a_client_that_leaves_keeps_its_seat(autojump_clock: object) -> None:
    async with opened(slow) as (client, proxy, platform):
        await client.start_and_join()
        body = act_body(1)
        head = f"POST {SEAT}/0 HTTP/1.1\r\nhost: localhost\r\nCogment-Actor-Trial-Token: {client.token}\r\n"
        await client.there.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        await client.there.stream.aclose()
        await client.there.ended.wait()
        assert trio.current_time() == before  # nobody waits for the answer any more
        side = WebSide(routes=partial(rest_routes, proxy))
        async with serving(*trio.testing.memory_stream_pair(), side) as there:
            again = Client(there)
            again.token = client.token
            status, reply = await again.ask("POST", SEAT)
            assert (status, reply["tick_id"], reply["observation"]) == (200, "1", {"step": 1})
        await platform.controller.terminate_trial("lab-1", hard=True)


async def test_a_request_behind_one_that_waits(autojump_clock: object) -> None:
    async with opened(slow) as (client, _, platform):
        await client.start_and_join()
        body = act_body(1)
        head = f"POST {SEAT}/0 HTTP/1.1\r\nhost: localhost\r\nCogment-Actor-Trial-Token: {client.token}\r\n"
        await client.there.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await trio.testing.wait_all_tasks_blocked()
        await client.there.send(b"GET /controller/trials HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        answers = await client.there.rest()
        assert answers.index(b'"tick_id":"1"') < answers.index(b'"trial_id":"lab-1"')
        await platform.controller.terminate_trial("lab-1", hard=True)


async def test_pages_of_other_origins(autojump_clock: object) -> None:
    """Those that the operator has allowed, with the field of the token and every method that there is."""
    async with opened() as (client, _, _):
        for method, path in (("POST", TRIALS), ("GET", TRIALS), ("DELETE", SEAT), ("POST", f"{SEAT}/0")):
            answer = await client.there.ask(
                "OPTIONS",
                path,
                origin=OTHER,
                access_control_request_method=method,
                access_control_request_headers="content-type,cogment-actor-trial-token",
            )
            assert answer.status == 204
            assert method in answer.headers["access-control-allow-methods"]
            assert "cogment-actor-trial-token" in answer.headers["access-control-allow-headers"]
            assert answer.headers["access-control-allow-origin"] == OTHER
        status, _ = await client.ask("POST", TRIALS, start_body(), origin=OTHER)
        assert status == 202


@pytest.mark.parametrize("fields", [{"origin": "https://evil.example"}, {"origin": "null"}, {"host": "evil.example"}])
async def test_pages_that_nobody_has_allowed(fields: dict[str, str], autojump_clock: object) -> None:
    async with opened() as (client, _, _):
        assert (await client.ask("POST", TRIALS, start_body(), **fields))[0] == 403


def test_the_description_names_every_route() -> None:
    paths = document("1")["paths"]
    described = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    there = {(route.method, route.pattern) for route in rest_routes(RestProxy(spec(), signing=control()))}
    assert {(method, path) for method, path in there if not path.endswith("/") or path == "/"} - described == {
        ("GET", "/openapi.json")
    }
    assert described <= there


def test_the_description_is_complete() -> None:
    """Each reference leads somewhere, and the operations have the names that clients were generated with."""
    found = document("1")
    text = json.dumps(found)
    schemas = found["components"]["schemas"]
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.partition('"')[0] in schemas
    operations = {operation["operationId"] for path in found["paths"].values() for operation in path.values()}
    assert operations == {
        *("getInfo-fm", "listTrials-fm", "startTrial-fm", "joinTrial-fm", "leaveTrial-fm", "act-fm", "actEmpty-fm")
    }
    assert {
        *("ErrorResponse", "APIInfoResponse", "StartTrialResponse", "TrialParams", "DatalogParams"),
        *("EnvironmentParams", "ActorParams", "TrialInfo", "SentReward", "RecvReward", "RecvRewardSource"),
    } <= set(schemas)


def test_the_description_is_of_openapi() -> None:
    """What tools that generate clients insist on: fields that are required are described, and so is each answer."""
    found = document("1")
    for name, schema in found["components"]["schemas"].items():
        assert set(schema.get("required", ())) <= schema["properties"].keys(), name
    for path in found["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                assert 200 <= int(status) < 600
                assert answer.keys() == {"description", "content"}
                assert answer["description"].endswith(".")


def test_what_a_field_is_without_a_value_is_described() -> None:
    """It is what the gateway takes then."""
    schemas = document("1")["components"]["schemas"]
    defaults = {
        (name, field): given["default"]
        for name, schema in schemas.items()
        for field, given in schema["properties"].items()
        if "default" in given
    }
    assert defaults[("SentReward", "confidence")] == 1


def test_a_request_that_succeeds_has_the_status_that_is_described() -> None:
    described = {
        (method.upper(), path): next(iter(operation["responses"]))
        for path, operations in document("1")["paths"].items()
        for method, operation in operations.items()
    }
    assert described == {
        ("GET", "/"): "200",
        ("GET", TRIALS): "200",
        ("POST", TRIALS): "202",
        ("POST", "/actor/{actor_name}/{trial_id}"): "200",
        ("DELETE", "/actor/{actor_name}/{trial_id}"): "202",
        ("POST", "/actor/{actor_name}/{trial_id}/{tick_id}"): "200",
        ("GET", "/actor/{actor_name}/{trial_id}/{tick_id}"): "200",
    }


async def test_who_leaves(autojump_clock: object) -> None:
    async with opened() as (client, _, platform):
        await client.start_and_join()
        status, reply = await client.ask("DELETE", SEAT)
        assert status == 202
        assert reply["message"]
        assert (await client.ask("DELETE", SEAT))[0] in (401, 404)
        await platform.controller.terminate_trial("lab-1", hard=True)
