"""The dashboard in Chromium: many tabs, what people do, what the policy forbids, and who cannot see or use a mouse."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.browser.programs import ROOT, foreign, installed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize

pytestmark = pytest.mark.browser

TABS = 8
PHONE: ViewportSize = {"width": 390, "height": 844}
DESK: ViewportSize = {"width": 1200, "height": 800}
PARTS = ["trials", "trial/run-a", "stored", "replay/short-1", "compare/short-1,short-2", "models", "model/pilot"]
PARTS += ["server", "log"]
#: Tells what the policy of the page has forbidden.
_WATCH = "addEventListener('securitypolicyviolation', (event) => console.error('CSP', event.violatedDirective));"
#: Where pictures for the documents go; none are made without it.
_SCREENSHOTS = os.environ.get("TRIO_COGMENT_SCREENSHOTS")
_SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.interop.browser.chromium import launched

    with sync_playwright() as playwright:
        opened = launched(playwright)
        yield opened
        opened.close()


@dataclass
class Shown:
    """A server with trials to look at."""

    process: subprocess.Popen[str]
    entrance: str

    @property
    def address(self) -> str:
        return self.entrance.partition("/enter/")[0]

    @property
    def memory_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found
        return int(found[1])

    def stop(self) -> float:
        """Stop it; return how long that took by its own account."""
        rest, _ = self.process.communicate(timeout=30)
        return float(rest)


@contextmanager
def shown() -> Iterator[Shown]:
    command = [sys.executable, "-m", "tests.dashboard.shown"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield Shown(process, process.stdout.readline().strip())
    finally:
        if process.poll() is None:
            process.communicate(timeout=30)
    assert process.returncode == 0


class Person:
    """Somebody with a browser of their own, who has come in."""

    def __init__(self, browser: Browser, server: Shown, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**{"viewport": DESK, **options})
        self.server = server
        self.complaints: list[str] = []
        self.page = self.tab(server.entrance)
        self.page.wait_for_url("**/dashboard")
        self.page.get_by_text("live", exact=True).wait_for()

    def tab(self, address: str) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.add_init_script(_WATCH)
        page.on("console", self._told)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.complaints.extend(foreign(request.url)))
        page.goto(address)
        return page

    def _told(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def look(self, part: str, page: Page | None = None) -> Page:
        page = page or self.page
        page.goto(f"{self.server.address}/dashboard#/{part}")
        page.locator("main h2").first.wait_for()
        return page

    def picture(self, name: str) -> None:
        if _SCREENSHOTS:
            self.page.screenshot(path=Path(_SCREENSHOTS) / f"dashboard-{name}.png")


def tick(page: Page) -> int:
    return int(page.locator("dl.facts dd").first.inner_text())


def rate(page: Page, seconds: float = 4.0) -> float:
    """Return the ticks a second of the trial that a page shows."""
    began, first = time.monotonic(), tick(page)
    page.wait_for_timeout(seconds * 1000)
    return (tick(page) - first) / (time.monotonic() - began)


def that_never_reads(person: Person) -> socket.socket:
    """Return a tab that looks at a trial, and does not read what it is told."""
    [cookie] = [f"{one['name']}={one['value']}" for one in person.context.cookies()]
    host, port = person.server.address.removeprefix("http://").split(":")
    silent = socket.create_connection((host, int(port)))
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    key = base64.b64encode(os.urandom(16)).decode()
    head = f"GET /dashboard/live HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {person.server.address}\r\n"
    head += f"Cookie: {cookie}\r\n"
    head += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    silent.sendall(f"{head}Sec-WebSocket-Key: {key}\r\n\r\n".encode())
    assert silent.recv(12) == b"HTTP/1.1 101"
    question = b'{"view":"trial","id":"run-a"}'
    silent.sendall(bytes([0x82, 0x80 | len(question), 0, 0, 0, 0]) + question)  # masked with zeros
    return silent


@pytest.mark.alone
def test_eight_tabs_stay_live_and_none_harms_a_trial(browser: Browser) -> None:
    with shown() as server:
        person = Person(browser, server)
        pages = [
            person.look("trial/run-a"),
            *(person.look("trial/run-a", person.tab("about:blank")) for _ in range(TABS - 1)),
        ]
        for page in pages:
            page.locator(".u-over").first.wait_for(state="attached")
        alone = rate(pages[0])
        memory = server.memory_kib
        with that_never_reads(person):
            # A page that hangs reads nothing either.
            pages[-1].evaluate(
                "() => { setTimeout(() => { const end = Date.now() + 8000; while (Date.now() < end); }, 0); }"
            )
            # Whoever held the trial up would do so all the time; what else the machine does comes and goes.
            assert max(rate(pages[0], 2.5) for _ in range(4)) > 0.7 * alone
            assert server.memory_kib - memory < 30_000
            seen = [tick(page) for page in pages]
            pages[0].wait_for_timeout(1500)
            for page, before in zip(pages, seen, strict=True):
                assert tick(page) > before
            assert person.complaints == []
            # With all of them open.
            assert server.stop() < 5
        person.context.close()


def test_what_people_do(browser: Browser) -> None:
    with shown() as server:
        person = Person(browser, server)
        page = person.look("trials")
        page.get_by_role("button", name="Start a trial…").click()
        page.get_by_label("Id (empty: a new one)").fill("mine <b>")
        page.get_by_role("button", name="Start", exact=True).click()
        page.get_by_role("heading", name="mine <b>").wait_for()
        page.get_by_text("running", exact=True).wait_for()
        page.get_by_role("button", name="End at once…").click()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_text("running", exact=True).wait_for()
        page.get_by_role("button", name="End at once…").click()
        page.get_by_role("button", name="End at once", exact=True).click()
        page.get_by_text("Ended: hard termination").wait_for()
        person.look("stored")
        page.get_by_label("Search").fill("short")
        page.get_by_role("button", name="Find").click()
        page.get_by_text("2 found").wait_for()
        page.get_by_label("compare short-1").check()
        page.get_by_label("compare short-2").check()
        page.get_by_role("link", name="Compare 2").click()
        page.get_by_role("heading", name="Rewards of 2 trials").wait_for()
        person.look("replay/short-1")
        page.get_by_text("tick 0 of 60").wait_for()
        page.get_by_label("Position").fill("30")
        page.get_by_text("tick 30 of 60").wait_for()
        page.get_by_label("Speed").select_option("64")
        page.get_by_role("button", name="Play").click()
        page.get_by_text("tick 60 of 60").wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").first.click()
        assert download.value.suggested_filename == "short-1.samples"
        page.get_by_label("Position").fill("30")
        page.get_by_role("button", name="Branch from tick 30").click()
        page.wait_for_url("**/dashboard#/trial/*")
        page.get_by_text("cannot be taken up at a tick").first.wait_for()  # its environment says nothing of it
        person.look("model/pilot")
        page.get_by_text("3 versions").wait_for()
        page.get_by_role("button", name="Leave").click()
        page.get_by_role("heading", name="Who are you?").wait_for()
        # That is what the server says to who has left, and the only complaint.
        assert all("401" in text for text in person.complaints), person.complaints
        person.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(browser: Browser, scheme: str) -> None:
    """No serious finding of axe-core, on a desk and on a phone; and nothing is wider than a phone."""
    axe = (installed() / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    with shown() as server:
        person = Person(browser, server, color_scheme=scheme)
        page = person.page
        for size in (DESK, PHONE):
            page.set_viewport_size({"width": size["width"], "height": size["height"]})
            for part in PARTS:
                person.look(part)
                page.wait_for_timeout(500)
                if size is PHONE:
                    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], part
                page.evaluate(axe)
                found = page.evaluate(
                    "async () => { const { passes, violations } = await axe.run(); "
                    "return { passes: passes.length, violations }; }"
                )
                assert found["passes"] > 10
                serious = [
                    (one["id"], one["nodes"][0]["html"]) for one in found["violations"] if one["impact"] in _SERIOUS
                ]
                assert serious == [], part
        assert person.complaints == []
        person.context.close()


def test_by_the_keyboard_alone(browser: Browser) -> None:
    with shown() as server:
        person = Person(browser, server)
        page = person.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.get_by_role("link", name="run-a").focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="run-a").wait_for()
        page.get_by_role("button", name="End…").focus()
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        assert person.complaints == []
        person.context.close()


def test_an_address_that_was_used(browser: Browser) -> None:
    with shown() as server:
        Person(browser, server).context.close()
        page = browser.new_page()
        page.goto(server.entrance)
        page.get_by_text("it works once").wait_for()
        page.goto(f"{server.address}/dashboard")
        page.get_by_label("Token").wait_for()
        page.close()


def test_pictures(browser: Browser) -> None:
    """Those of the documents: small enough to be in them."""
    with shown() as server:
        person = Person(browser, server)
        page = person.look("trial/run-a")
        page.locator(".u-over").first.wait_for(state="attached")
        page.wait_for_timeout(6000)
        person.picture("trial")
        assert len(page.screenshot()) < 150_000
        person.look("replay/short-1")
        page.get_by_label("Position").fill("20")
        page.wait_for_timeout(500)
        person.picture("replay")
        assert len(page.screenshot()) < 150_000
        page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
        page.emulate_media(color_scheme="dark")
        person.look("trial/run-a")
        page.reload()  # the colours of curves are those of when they are drawn first
        page.locator(".u-over").first.wait_for(state="attached")
        person.picture("phone")
        assert len(page.screenshot()) < 150_000
        person.context.close()
