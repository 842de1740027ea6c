"""The metrics' HTTP endpoint: what it answers, and that no client can hold it up."""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector

from trio_cogment.base.config import MetricsConfig
from trio_cogment.cli.services.web_flags import WebSettings, refuses_pages
from trio_cogment.rpc import open_listeners
from trio_cogment.web.metrics_endpoint import Refuses, serve_metrics

PATIENCE_SECONDS = 40


@asynccontextmanager
async def served(
    registry: CollectorRegistry | None = None,
    permits: Callable[[str], bool] | None = None,
    refuses: Refuses | None = None,
    **limits: Any,
) -> AsyncIterator[int]:
    if registry is None:
        registry = CollectorRegistry()
        Counter("things", "Some things", registry=registry).inc(3)
    listeners = await open_listeners("127.0.0.1", 0)
    config = MetricsConfig(**limits)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(serve_metrics, config=config, permits=permits, refuses=refuses), registry, listeners
            )
            yield listeners[0].socket.getsockname()[1]
            nursery.cancel_scope.cancel()


async def exchange(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes, read to the end, and return status, headers and body."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        data = b"".join([part async for part in stream])
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


def get(path: str, method: str = "GET", *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: h", *lines, "", ""]).encode()


async def test_a_scraper_gets_text() -> None:
    async with served() as port:
        status, headers, body = await exchange(port, get("/metrics?x=1"))
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=")
        assert headers["content-length"] == str(len(body))
        assert headers["connection"] == "close"
        assert b"things_total 3.0\n" in body


async def test_a_scraper_can_ask_for_openmetrics() -> None:
    async with served() as port:
        accept = "accept: application/openmetrics-text; version=1.0.0"
        _, headers, body = await exchange(port, get("/metrics", "GET", accept))
        assert headers["content-type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")


async def test_an_ordinary_client_is_content() -> None:
    def fetch(port: int) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as response:
            content: bytes = response.read()
            return content

    async with served() as port:
        assert b"things_total" in await trio.to_thread.run_sync(fetch, port)


@pytest.mark.parametrize(
    ("request_bytes", "expected", "text"),
    [
        (get("/"), 404, b"only /metrics"),
        (get("/metrics/"), 404, b"only /metrics"),
        (get("/metrics", "POST", "content-length: 3") + b"abc", 405, b"only GET and HEAD"),
        (get("/metrics", "DELETE"), 405, b"only GET and HEAD"),
        (b"nonsense\r\n\r\n", 400, b"bad request"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400, b"bad request"),  # no host
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, b"bad request"),  # somebody tries TLS
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, b"only /metrics"),
        (get("/metrics", "GET", "x: " + "y" * 60_000), 431, b"too long"),
    ],
)
async def test_what_is_refused(request_bytes: bytes, expected: int, text: bytes) -> None:
    async with served() as port:
        status, headers, body = await exchange(port, request_bytes)
        assert status == expected
        assert headers.get("allow", "") == ("GET, HEAD" if expected == 405 else "")
        assert text in body
        assert len(body) < 100
        # Nobody else notices.
        assert (await exchange(port, get("/metrics")))[0] == 200


async def test_head_has_no_body() -> None:
    async with served() as port:
        status, headers, body = await exchange(port, get("/metrics", "HEAD"))
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 0


async def test_a_client_that_says_nothing_more_is_let_go() -> None:
    async with served(request_timeout_seconds=0.2) as port:
        for beginning in (b"", b"GET /metr"):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(beginning)
                assert not await stream.receive_some()


async def test_a_client_that_reads_nothing_is_let_go() -> None:
    registry = CollectorRegistry()
    counter = Counter("things", "x" * 1000, ["label"], registry=registry)
    for number in range(20_000):
        counter.labels("x" * 1000 + str(number))
    async with (
        served(registry, request_timeout_seconds=0.2, max_connections=1) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(get("/metrics"))
        # The only slot is free again when its time is over, whatever we do.
        await wait_answered(port)


async def wait_answered(port: int) -> None:
    """Wait for a free slot: nothing but trying shows it from outside."""
    while True:
        if await attempt(port) is not None:
            return
        await trio.sleep(0.01)


async def attempt(port: int) -> int | None:
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(get("/nothing"))
            data = await stream.receive_some()
    except trio.BrokenResourceError:
        return None
    return int(data.split()[1]) if data else None


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    async with served(max_connections=2) as port:
        async with (
            await trio.open_tcp_stream("127.0.0.1", port) as one,
            await trio.open_tcp_stream("127.0.0.1", port) as two,
        ):
            await one.send_all(b"GET")
            await two.send_all(b"GET")
            await trio.testing.wait_all_tasks_blocked()
            assert await attempt(port) is None
        await wait_answered(port)


async def test_an_address_elsewhere_has_its_share_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"127.0.0.1": ("ipv4:203.0.113.9", False)}
    monkeypatch.setattr("trio_cogment.web.metrics_endpoint.address_of", lambda peer: found[peer.split(":")[1]])
    async with served(max_connections=3, max_peer_connections=1) as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as one:
            await one.send_all(b"GET")
            await trio.testing.wait_all_tasks_blocked()
            assert await attempt(port) is None
            found["127.0.0.1"] = ("ipv4:203.0.113.10", False)
            assert await attempt(port) == 404
        await wait_answered(port)


async def test_a_failing_collector_harms_one_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Collector):
        fails = False

        def collect(self) -> list[Metric]:
            if self.fails:
                raise ValueError("broken")
            return []

    registry, broken = CollectorRegistry(), Broken()
    registry.register(broken)
    broken.fails = True
    async with served(registry) as port:
        assert await attempt_metrics(port) == b""
        assert "a request for metrics failed" in caplog.text
        broken.fails = False
        assert (await exchange(port, get("/metrics")))[0] == 200


async def attempt_metrics(port: int) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(get("/metrics"))
        return b"".join([part async for part in stream])


async def test_who_may_read_is_asked() -> None:
    async with served(permits="Bearer good".__eq__) as port:
        for lines in ((), ("authorization: Bearer bad",), ("authorization: ",)):
            status, headers, body = await exchange(port, get("/metrics", "GET", *lines))
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert b"things" not in body
        status, _, body = await exchange(port, get("/metrics", "GET", "authorization: Bearer good"))
        assert status == 200
        assert b"things_total 3.0\n" in body


EVIL = "https://evil.example"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"host": "127.0.0.1:9100"}, 200),
        ({"host": "localhost:9100"}, 200),
        ({"host": "known.example:9100"}, 200),
        ({"host": "evil.example:9100"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "127.0.0.1:9100", "origin": EVIL}, 403),
        ({"host": "127.0.0.1:9100", "origin": "null"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"host": "127.0.0.1:9100", "origin": "https://friend.example"}, 200),
    ],
)
@pytest.mark.parametrize("token", ["", "good", "bad"])
async def test_pages_of_other_origins_get_nothing(fields: dict[str, str], expected: int, token: str) -> None:
    refuses = refuses_pages(WebSettings(hosts=("known.example",), origins=("https://friend.example",)))
    lines = [f"{name}: {value}" for name, value in fields.items()]
    if token:
        lines.append(f"authorization: Bearer {token}")
        expected = 401 if (expected, token) == (200, "bad") else expected
    permits = (lambda value: value == "Bearer good") if token else None
    async with served(permits=permits, refuses=refuses) as port:
        status, _, body = await exchange(port, "\r\n".join(["GET /metrics HTTP/1.1", *lines, "", ""]).encode())
        assert status == expected
        assert (b"things_total" in body) is (expected == 200)


async def test_scrapers_of_the_network_find_it_by_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page of another origin does, whose requests say so."""
    monkeypatch.setattr("trio_cogment.web.metrics_endpoint._is_loopback", lambda _stream: False)
    async with served(refuses=refuses_pages(None)) as port:
        for lines, expected in (("host: cogment:9100",), 200), (("host: cogment:9100", f"origin: {EVIL}"), 403):
            request = "\r\n".join(["GET /metrics HTTP/1.1", *lines, "", ""])
            assert (await exchange(port, request.encode()))[0] == expected
