"""People come in, play, watch, replay and leave, in Chromium: over HTTP and HTTPS, and behind proxies."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.access.keys import grant
from tests.interop.browser.front import Front, standing
from trio_cogment.access import Keys, Role, Token
from trio_cogment.access.tokens import KEY_BYTES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.browser

PREFIX = "/lab/cogment"
_WATCH = "addEventListener('securitypolicyviolation', (event) => console.error('CSP', event.violatedDirective));"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.interop.browser.chromium import launched

    with sync_playwright() as playwright:
        opened = launched(playwright)
        yield opened
        opened.close()


@dataclass(frozen=True)
class Door:
    """How browsers reach a server.

    Attributes:
        tls: with TLS.
        front: by a reverse proxy.
        keeps: it passes the prefix and the Host on as they are.
        told: the server knows its public address (`--web_url`).
    """

    tls: bool = False
    front: bool = False
    keeps: bool = False
    told: bool = False


DOORS = {
    "http": Door(),
    "https": Door(tls=True),
    "http behind a prefix that is taken away": Door(front=True),
    "https behind a prefix": Door(tls=True, front=True, keeps=True, told=True),
    "https behind a prefix that is taken away": Door(tls=True, front=True, told=True),
}


class Opened:
    """A server that browsers reach.

    Attributes:
        address: of its pages.
        lines: what it has printed, by labels.
    """

    def __init__(self, door: Door, folder: Path) -> None:
        self._door = door
        self._folder = folder
        self._stack = ExitStack()
        self.keys = Keys((bytes(range(KEY_BYTES)),))
        self.address = ""
        self.lines: dict[str, str] = {}
        self.port = 0

    def token(self, *roles: Role, seconds: float = 3600) -> str:
        return self.keys.sign(Token(token_id="t", grant=grant(*roles), expires_at=int(time.time() + seconds)))

    def start(self, command: list[str], *labels: str, tokens: bool = True, port: str = "--port=0") -> None:
        """Run a command, and wait until it has printed lines that begin with these words."""
        (self._folder / "secret").write_text(f"{bytes(range(KEY_BYTES)).hex()}\n")
        (self._folder / "secret").chmod(0o600)
        flags = ["--auth=token", f"--auth_secret_file={self._folder}/secret"] if tokens else []
        context = None
        if self._door.tls:
            context = self._certified()
            if not self._door.front:
                flags += [f"--private_key={self._folder}/key.pem", f"--trust_chain={self._folder}/chain.pem"]
        scheme = "https" if self._door.tls else "http"
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        public = f"{scheme}://localhost:{listener.getsockname()[1]}{PREFIX}"
        if self._door.told:
            flags.append(f"--web_url={public}")
        process = subprocess.Popen(
            [sys.executable, "-m", "trio_cogment", *command, port, *flags],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            env={**os.environ, "SSL_CERT_FILE": str(self._folder / "root.pem")} if self._door.tls else None,
        )
        self._stack.callback(_stopped, process)
        assert process.stdout is not None
        while not {"listening", *labels} <= self.lines.keys():
            line = process.stdout.readline()
            assert line, "it has ended"
            found = re.search(r"(listening) on \S+?:(\d+)|^(\S+)  (\S+)", line)
            if found:
                self.lines |= {found[1] or found[3]: found[2] or found[4]}
        self.port = int(self.lines["listening"])
        self.address = f"{scheme}://localhost:{self.port}"
        if self._door.front:
            self.address = public
            front = Front(self.port, PREFIX, keeps_prefix=self._door.keeps, keeps_host=self._door.keeps)
            if not self._door.told:
                front = Front(self.port, PREFIX, keeps_prefix=False, keeps_host=True)
            self._stack.enter_context(standing(front, listener, context))

    def _certified(self) -> ssl.SSLContext:
        authority = _authority()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        (self._folder / "chain.pem").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(str(self._folder / "key.pem"))
        authority.cert_pem.write_to_path(str(self._folder / "root.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        return context

    def link(self, label: str) -> str:
        """Return an address that it has printed, as somebody reaches it who knows the proxy."""
        path = re.sub(r"^https?://[^/]+", "", self.lines[label]).removeprefix(PREFIX)
        return self.address + path

    def close(self) -> None:
        self._stack.close()


@functools.cache
def _authority() -> trustme.CA:
    return trustme.CA()


def _stopped(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def opened(
    name: str, folder: Path, command: list[str], *labels: str, tokens: bool = True, port: str = "--port=0"
) -> Iterator[Opened]:
    with contextlib.closing(Opened(DOORS[name], folder)) as server:
        server.start(command, *labels, tokens=tokens, port=port)
        yield server


class Person:
    """Somebody with a browser of their own."""

    def __init__(self, browser: Browser) -> None:
        self.context: BrowserContext = browser.new_context(ignore_https_errors=True)
        self.complaints: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.add_init_script(_WATCH)
        self.page.on("console", lambda message: self._told(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _told(self, text: str) -> None:
        # The browser says so of each page that is refused, and of each socket that is lost.
        if text.startswith("CSP") or "404" in text or "MIME" in text:
            self.complaints.append(text)

    def gives(self, token: str, label: str = "Token") -> None:
        self.page.get_by_label(label).fill(token)
        self.page.get_by_role("button", name="Enter").click()

    def is_in(self) -> None:
        self.page.get_by_text("live", exact=True).wait_for()

    def asked(self) -> None:
        self.page.get_by_label("Token").wait_for()

    def close(self) -> None:
        assert self.complaints == []
        self.context.close()


@contextmanager
def people(browser: Browser, count: int) -> Iterator[list[Person]]:
    persons = [Person(browser) for _ in range(count)]
    yield persons
    for one in persons:
        one.close()


@pytest.mark.parametrize("door", DOORS)
def test_two_play_while_somebody_watches(browser: Browser, door: str, tmp_path: Path) -> None:
    game = ["play", "rps_v2", "--person=player_0", "--person=player_1", "--labels=rock,paper,scissors"]
    with opened(door, tmp_path, game, "play", "dashboard") as server, people(browser, 3) as [admin, ann, bob]:
        if DOORS[door].told:
            assert server.lines["play"].startswith(f"{server.address}/~")
            assert server.lines["dashboard"] == f"{server.address}/dashboard"
        # Tokens that do not count, and one for something else; and each time there is a way on.
        page = admin.page
        page.goto(server.link("dashboard"))
        admin.gives("nonsense")
        page.get_by_role("heading", name="Not possible").wait_for()
        admin.gives(server.token(Role.ADMIN, seconds=-10))
        page.get_by_text("expired").wait_for()
        admin.gives(server.token(Role.SEAT))
        admin.gives(server.token(Role.ADMIN), "Another token")
        page.wait_for_url(f"{server.address}/dashboard")
        admin.is_in()
        [cookie] = admin.context.cookies()
        knows = DOORS[door].keeps or not DOORS[door].front  # by which address it was reached
        assert cookie["secure"] is (DOORS[door].tls and knows)
        assert cookie["path"] == (f"{PREFIX}/" if DOORS[door].keeps else "/")
        # Two people play by one link.
        for one in (ann, bob):
            one.page.goto(server.link("play"))
            one.page.get_by_role("button", name="I am ready").click()
        for one in (ann, bob):
            one.page.get_by_text("It is your turn.").wait_for()
            assert one.page.url.startswith(f"{server.address}/~")
        page.locator("tbody th a").click()
        page.get_by_role("heading", name="Participants").or_(page.get_by_text("Participants;")).wait_for()
        for number in range(15):
            for one, choice in ((ann, "rock"), (bob, "paper")):
                one.page.get_by_role("button", name=choice).click()
            if number < 14:
                ann.page.locator(".tag", has_text=f"tick {number + 1}").wait_for()
        ann.page.get_by_role("heading", name="The game is over").wait_for()
        page.get_by_text("Ended:").wait_for()
        # It was recorded.
        page.goto(f"{server.address}/dashboard#/stored")
        page.locator("tbody th a").first.click()
        page.get_by_label("Position").wait_for()
        page.get_by_role("heading", name="player_0").wait_for()
        # As a download it is refused for its certificate if it needs a new connection, whatever the browser was told.
        link = page.get_by_role("link", name="Download")
        size = link.evaluate("(link) => fetch(link.href).then(async (it) => it.ok && (await it.bytes()).length)")
        assert size > 100
        # The end.
        page.get_by_role("button", name="Leave").click()
        admin.asked()
        assert admin.context.cookies() == []
        page.goto(f"{server.address}/dashboard")
        admin.asked()


@pytest.mark.parametrize("door", DOORS)
def test_an_address_works_once(browser: Browser, door: str, tmp_path: Path) -> None:
    command = ["serve", "--storage=none", "--archive_dir=none"]
    with opened(door, tmp_path, command, "dashboard", tokens=False) as server, people(browser, 2) as [ann, bob]:
        ann.page.goto(server.link("dashboard"))
        ann.page.wait_for_url(f"{server.address}/dashboard")
        ann.is_in()
        ann.page.goto(server.link("dashboard"))  # the browser that has used it
        ann.page.wait_for_url(f"{server.address}/dashboard")
        ann.is_in()
        bob.page.goto(server.link("dashboard"))
        bob.page.get_by_text("it works once").wait_for()
        bob.gives("nonsense")
        bob.page.get_by_role("heading", name="Not possible").wait_for()
        # Leaving by the form, for pages without a button.
        ann.page.goto(f"{server.address}/leave")
        ann.page.get_by_role("button", name="Leave").click()
        ann.page.get_by_role("heading", name="You have left").wait_for()
        assert ann.context.cookies() == []
        ann.page.get_by_role("link", name="Come in again").click()
        ann.asked()


@pytest.mark.parametrize("door", ["http", "https behind a prefix"])
def test_a_token_that_expires_meanwhile(browser: Browser, door: str, tmp_path: Path) -> None:
    command = ["serve", "--storage=none", "--archive_dir=none"]
    with opened(door, tmp_path, command, "dashboard") as server, people(browser, 1) as [ann]:
        ann.page.goto(f"{server.address}/dashboard")
        ann.gives(server.token(Role.OBSERVER, seconds=6))
        ann.is_in()
        again = ann.page.get_by_role("button", name="Come in again")
        again.wait_for()
        again.click()
        ann.page.get_by_text("expired").wait_for()
        ann.gives(server.token(Role.OBSERVER))
        ann.is_in()
        # A token in the path, which counts before the one that is given.
        old, new = server.token(Role.OBSERVER, seconds=-10), server.token(Role.OBSERVER)
        ann.page.goto(f"{server.address}/~{new}")
        ann.is_in()
        assert f"/~{new}/dashboard" in ann.page.url
        ann.page.get_by_role("button", name="Leave").click()
        ann.asked()
        ann.page.goto(f"{server.address}/~{old}/dashboard")
        ann.page.get_by_text("expired").wait_for()
        ann.gives(new)
        ann.page.wait_for_url(f"{server.address}/dashboard")
        ann.is_in()
        # Who sees a part of the trials is told so, and why a part of the page is empty.
        own = ann.page.get_by_text("the trials that you have started")
        assert own.count() == 0
        ann.page.get_by_role("button", name="Leave").click()
        ann.gives(server.token(Role.OPERATOR))
        ann.is_in()
        own.wait_for()
        ann.page.get_by_role("link", name="Stored").click()
        ann.page.get_by_text("this server has no datastore").wait_for()
        own.wait_for()


@pytest.mark.parametrize("door", ["http", "https", "https behind a prefix"])
def test_a_web_proxy(browser: Browser, door: str, tmp_path: Path) -> None:
    behind = Door(tls=DOORS[door].tls and not DOORS[door].front)  # what has a certificate calls others by TLS
    with contextlib.closing(Opened(behind, tmp_path)) as platform, people(browser, 1) as [ann]:
        platform.start(["serve", "--storage=none", "--archive_dir=none"])
        (tmp_path / "cogment.yaml").write_text("import: {}\nactor_classes: []\n")
        command = ["services", "web_proxy", f"--spec_file={tmp_path}/cogment.yaml"]
        command += [f"--orchestrator_endpoint=grpc://127.0.0.1:{platform.port}", "--web_port=0"]
        with opened(door, tmp_path, command) as server:
            page = ann.page
            trials = f"{server.address}/controller/trials?all=1"
            page.goto(trials)
            ann.gives("nonsense")
            ann.gives(server.token(Role.OPERATOR))
            page.wait_for_url(trials)
            assert page.locator("body").inner_text() == "[]"
            started = page.evaluate(_START, "controller/trials")
            assert started["status"] == 400, started  # it has come as far as the fields of the body
            page.goto(f"{server.address}/openapi.json")
            document = page.evaluate("fetch(location.href).then((answer) => answer.json())")
            assert document["openapi"].startswith("3.")
            page.goto(f"{server.address}/leave")
            page.get_by_role("button", name="Leave").click()
            page.goto(trials)
            ann.asked()


_START = """async (path) => {
  const root = location.href.replace(/controller.*/, "");
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
  const answer = await fetch(root + path, options);
  return { status: answer.status, text: await answer.text() };
}"""
