"""The page that people play on, in Chromium: two people and an agent in one trial."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.interop.browser.play_server import WAIT_SECONDS
from tests.interop.browser.programs import ROOT, Server, foreign, installed, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Frame, Page

pytestmark = pytest.mark.browser

#: Widths and colours that people have.
PHONE = {"width": 390, "height": 780}
#: Tells what the policy of the page has forbidden.
_WATCH = "addEventListener('securitypolicyviolation', (event) => console.error('CSP', event.violatedDirective));"
#: Where pictures for the documents go; none are made without it.
_SCREENSHOTS = os.environ.get("TRIO_COGMENT_SCREENSHOTS")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.interop.browser.chromium import launched

    with sync_playwright() as playwright:
        opened = launched(playwright)
        yield opened
        opened.close()


class Games:
    """The server of the games, and what it tells in the end."""

    def __init__(self, server: Server, links: dict[str, str]) -> None:
        self._server = server
        self._links = links

    def link(self, name: str) -> str:
        return f"http://localhost:{self._server.port}{self._links[name]}"

    @property
    def actions(self) -> dict[str, list[list[int | None]]]:
        found: dict[str, list[list[int | None]]] = json.loads(self._server.output)
        return found


@contextmanager
def games() -> Iterator[Games]:
    with running("play_server") as server:
        yield Games(server, json.loads(server.line()))


class Person:
    """A person with a browser of their own."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**options)
        self.complaints: list[str] = []
        #: From which its pages have asked for something.
        self.origins: set[str] = set()
        self.page = self.new_page()

    def new_page(self) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(15_000)
        page.add_init_script(_WATCH)
        page.on("console", self._told)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))
        page.on("websocket", lambda socket: self._asked(socket.url))
        return page

    def _asked(self, url: str) -> None:
        self.complaints.extend(foreign(url))
        parts = urlsplit(url)
        if parts.netloc:  # others are made by the page itself
            self.origins.add(f"{parts.scheme.replace('ws', 'http')}://{parts.netloc}")

    def _told(self, message: ConsoleMessage) -> None:
        # A page that was about to come back when its server stopped says so, too; that is not a fault of the page.
        if message.type == "error" and not message.text.startswith("WebSocket connection to"):
            self.complaints.append(message.text)

    def ready(self, link: str) -> None:
        self.page.goto(link)
        self.page.get_by_role("button", name="I am ready").click()

    def act(self, number: int = 1) -> None:
        """Act for the next tick, and wait until it has come."""
        tick = self.tick()
        self.page.get_by_role("spinbutton", name="value").fill(str(number))
        self.page.get_by_role("button", name="Send").first.click()
        self.page.wait_for_function("(tick) => !document.body.innerText.includes(`tick ${tick}\\n`)", arg=tick)

    def tick(self) -> int:
        tag = self.page.locator(".tag", has_text=re.compile(r"^tick \d+$"))
        return int(tag.inner_text().split()[1])

    def turn(self) -> None:
        self.page.get_by_text("It is your turn.").wait_for()

    def close(self) -> None:
        self.context.close()


@contextmanager
def people(browser: Browser, count: int = 2, **options: Any) -> Iterator[list[Person]]:
    there = [Person(browser, **options) for _ in range(count)]
    yield there
    for person in there:
        person.close()
    for person in there:
        assert person.complaints == []


def act_together(persons: list[Person]) -> None:
    """Have everybody act for the same tick."""
    for person in persons:
        person.turn()
        tick = person.tick()
        person.page.get_by_role("spinbutton", name="value").fill("1")
        person.page.get_by_role("button", name="Send").first.click()
    for person in persons:
        person.page.locator(".tag", has_text=f"tick {tick + 1}").wait_for()


def seated(persons: list[Person], link: str) -> None:
    for person in persons:
        person.ready(link)
    for person in persons:
        person.turn()


def test_a_reload_in_the_middle_keeps_the_seat(browser: Browser) -> None:
    with games() as played, people(browser) as [ann, bob]:
        seated([ann, bob], played.link("patient"))
        assert ann.page.get_by_text("You are ann").is_visible()
        assert bob.page.get_by_text("You are bob").is_visible()
        act_together([ann, bob])
        ann.page.reload()
        ann.turn()
        assert ann.tick() == 1
        for _ in range(7):
            act_together([ann, bob]) if ann.tick() < 7 else None
        for person in (ann, bob):
            person.page.get_by_role("spinbutton", name="value").fill("1")
            person.page.get_by_role("button", name="Send").first.click()
        for person in (ann, bob):
            person.page.get_by_role("heading", name="The game is over").wait_for()
    assert played.actions["patient"] == [[1, 1, 7]] * 8


@pytest.mark.parametrize(("outcome", "number"), [("default", 9), ("bot", 7)])
def test_closing_beyond_the_grace(browser: Browser, outcome: str, number: int) -> None:
    with games() as played, people(browser) as [ann, bob]:
        seated([ann, bob], played.link(outcome))
        act_together([ann, bob])
        ann.page.close()
        while bob.page.get_by_role("heading", name="The game is over").count() == 0:
            bob.page.wait_for_timeout(100)
            if bob.page.get_by_text("It is your turn.").count():
                bob.page.get_by_role("spinbutton", name="value").fill("2")
                bob.page.get_by_role("button", name="Send").first.click()
    first, *rest = played.actions[outcome]
    assert first == [1, 1, 7]
    assert rest == [[number, 2, 7]] * 7


def test_closing_beyond_the_grace_loses_the_seat(browser: Browser) -> None:
    with games() as played, people(browser) as [ann, bob]:
        seated([ann, bob], played.link("loss"))
        act_together([ann, bob])
        link = ann.page.url
        ann.page.close()
        bob.page.get_by_role("heading", name="The game is over").wait_for()
        ann.page = ann.new_page()
        ann.page.goto(link)
        ann.page.get_by_text(re.compile("was given up|is over")).first.wait_for()
    assert played.actions["loss"] == [[1, 1, 7]]


def test_a_second_window_takes_over(browser: Browser) -> None:
    with games() as played, people(browser) as [ann, bob]:
        seated([ann, bob], played.link("bot"))
        second = ann.new_page()
        second.goto(ann.page.url)
        second.get_by_text("It is your turn.").wait_for()
        ann.page.get_by_text("You play in another window").wait_for()
        ann.page.get_by_role("button", name="Play here").click()
        ann.turn()
        second.get_by_text("You play in another window").wait_for()


def test_people_talk_and_reward(browser: Browser) -> None:
    with games() as played, people(browser) as [ann, bob]:
        seated([ann, bob], played.link("bot"))
        ann.page.get_by_text("Feedback").click()
        ann.page.get_by_label("Message", exact=True).fill("<img src=x onerror=alert(1)>")
        ann.page.get_by_role("button", name="Send").last.click()
        bob.page.get_by_text("ann: <img src=x onerror=alert(1)>").wait_for()
        ann.page.get_by_role("button", name="Thumbs up").click()
        ann.page.get_by_text("Sent: a reward for bob").wait_for()
        act_together([ann, bob])
        bob.page.get_by_text("Reward 1 from ann, 1 in all").wait_for()


def test_giving_up_a_seat(browser: Browser) -> None:
    with games() as played, people(browser) as [ann, bob]:
        seated([ann, bob], played.link("bot"))
        ann.page.get_by_role("button", name="Leave the game").click()
        ann.page.get_by_role("button", name="Leave", exact=True).click()
        ann.page.get_by_text("You have left the game").wait_for()
        bob.page.get_by_role("spinbutton", name="value").fill("1")
        bob.page.get_by_role("button", name="Send").first.click()
        bob.page.locator(".tag", has_text="tick 1").wait_for()
        ann.page.get_by_role("button", name="Come back").click()
        ann.page.locator(".tag", has_text="tick 1").wait_for()
        # The bot has answered what was asked; with the next tick it is the person's turn again.
        bob.page.get_by_role("spinbutton", name="value").fill("1")
        bob.page.get_by_role("button", name="Send").first.click()
        ann.turn()


def test_a_projects_own_renderer_is_shut_in(browser: Browser) -> None:
    with games() as played, people(browser, 1) as [ann]:
        seated([ann], played.link("alone"))
        frame = ann.page.frame_locator("iframe.renderer")
        frame.get_by_text("tick 0, reached no parent, no server").wait_for()
        frame.get_by_role("button", name="nine").click()
        frame.get_by_text("tick 1,").wait_for()
        # What the frame has tried is told on the console, and nothing else.
        assert all("connect-src" in text or "violates" in text for text in ann.complaints), ann.complaints
        ann.complaints.clear()
    assert played.actions["alone"] == [[9]]


# Lobbies: the cases that others have got wrong


def test_presence_is_live(browser: Browser) -> None:
    with games() as played, people(browser) as [ann, bob]:
        ann.ready(played.link("patient"))
        ann.page.get_by_text("1 more is needed.").wait_for()
        bob.page.goto(played.link("patient"))
        ann.page.get_by_text("1 still reading").wait_for()
        bob.page.close()
        ann.page.get_by_text("1 away").wait_for()


def test_an_idle_person_fills_no_seat(browser: Browser) -> None:
    with games() as played, people(browser, 3) as [idle, ann, bob]:
        idle.page.goto(played.link("bot"))
        idle.page.get_by_role("button", name="I am ready").wait_for()
        seated([ann, bob], played.link("bot"))
        assert idle.page.get_by_role("button", name="I am ready").is_visible()


def test_somebody_who_reads_is_not_stuck_when_the_time_is_over(browser: Browser) -> None:
    with games() as played, people(browser, 3) as [reader, ann, bob]:
        link = played.link("too-few-give-up")
        reader.page.goto(link)
        ann.ready(link)
        ann.page.get_by_text("Nobody came in time").wait_for()
        reader.page.get_by_role("button", name="I am ready").click()
        bob.ready(link)
        reader.turn()


def test_who_has_timed_out_is_not_assigned(browser: Browser) -> None:
    with games() as played, people(browser, 3) as [late, ann, bob]:
        link = played.link("too-few-give-up")
        late.ready(link)
        late.page.get_by_text("Nobody came in time").wait_for()
        seated([ann, bob], link)
        late.page.reload()
        late.page.get_by_text("Nobody came in time").wait_for()
        late.page.get_by_role("button", name="Come again").click()
        late.page.get_by_role("button", name="I am ready").wait_for()


def test_bots_begin_no_time(browser: Browser) -> None:
    with games() as played, people(browser) as [bot, ann]:
        link = played.link("too-few-give-up")
        bot.page.goto(f"{link}#automated")
        bot.page.get_by_text("You are ready.").wait_for()
        bot.page.wait_for_timeout(1000 * WAIT_SECONDS + 1000)
        assert bot.page.get_by_text("You are ready.").is_visible()
        ann.ready(link)
        ann.turn()


@pytest.mark.parametrize(("shortage", "number"), [("bots", 7), ("fewer", None)])
def test_too_few_people_go_on(browser: Browser, shortage: str, number: int | None) -> None:
    with games() as played, people(browser, 1) as [ann]:
        ann.ready(played.link(f"too-few-{shortage}"))
        act_together([ann])
    assert played.actions[f"too-few-{shortage}"] == [[1] if number is None else [1, number]]


def test_who_comes_back_is_not_stuck(browser: Browser) -> None:
    """A reload in the lobby keeps the place; the lobby's link leads back to the seat, and to the end."""
    with games() as played, people(browser) as [ann, bob]:
        link = played.link("patient")
        ann.ready(link)
        ann.page.get_by_text("You are ready.").wait_for()
        ann.page.reload()
        ann.page.get_by_text("You are ready.").wait_for()
        bob.ready(link)
        ann.turn()
        ann.page.goto(link)
        ann.turn()


def test_the_way_out(browser: Browser) -> None:
    with games() as played, people(browser) as [ann, bob]:
        link = played.link("loss")
        ann.ready(link)
        ann.page.get_by_role("button", name="Leave").click()
        ann.page.get_by_text("You have left").wait_for()
        bob.ready(link)
        bob.page.get_by_text("1 more is needed.").wait_for()


def test_a_link_that_does_not_count(browser: Browser) -> None:
    with games() as played, people(browser, 1) as [ann]:
        answer = ann.page.goto(played.link("loss").replace("/play/", "x/play/"))
        assert answer is not None
        assert answer.status == 401
        ann.complaints.clear()  # the console says 401, too


# For everybody


def serious(page: Page) -> list[str]:
    """Return what axe-core finds serious."""
    return violations(page, "serious", "critical")


def violations(page: Page | Frame, *impacts: str) -> list[str]:
    """Return what axe-core finds, of any impact if none is named."""
    page.evaluate((installed() / "node_modules" / "axe-core" / "axe.min.js").read_text())
    found = page.evaluate("async () => (await axe.run()).violations")
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found if not impacts or each["impact"] in impacts]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [None, PHONE], ids=["desk", "phone"])
def test_anybody_can_use_it(browser: Browser, scheme: str, size: Any) -> None:
    options = {"color_scheme": scheme, **({} if size is None else {"viewport": size, "has_touch": True})}
    with games() as played, people(browser, **options) as [ann, bob]:
        ann.page.goto(played.link("bot"))
        ann.page.get_by_role("button", name="I am ready").wait_for()
        assert ann.page.get_by_text("Count <b>together</b>.").is_visible()
        assert serious(ann.page) == []
        seated([ann, bob], played.link("bot"))
        ann.page.get_by_text("Feedback").click()
        assert serious(ann.page) == []
        wide = ann.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide  # nobody has to scroll sideways


def test_the_keyboard_is_enough(browser: Browser) -> None:
    with games() as played, people(browser, 1) as [ann]:
        ann.page.goto(played.link("too-few-bots"))
        ann.page.get_by_role("button", name="I am ready").wait_for()
        ann.page.keyboard.press("Tab")  # to the content
        ann.page.keyboard.press("Tab")
        ann.page.keyboard.press("Enter")
        ann.turn()
        for _ in range(20):
            ann.page.keyboard.press("Tab")
            if ann.page.evaluate("document.activeElement.type") == "number":
                break
        ann.page.keyboard.press("3")
        ann.page.keyboard.press("Enter")
        ann.page.locator(".tag", has_text="tick 1").wait_for()


# The command


@contextmanager
def played_by_command(*arguments: str) -> Iterator[str]:
    """Run `trio-cogment play`, and yield the link that it prints."""
    command = [sys.executable, "-m", "trio_cogment", "play", *arguments, "--port=0", "--storage=memory:"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield next(line.split()[1] for line in process.stdout if line.startswith("play "))
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_command_prints_a_link_for_people(browser: Browser) -> None:
    """One command, one link: keys act, and a page that is open does not keep the server from stopping."""
    with (
        played_by_command("CartPole-v1", "--labels=left,right") as link,
        people(browser, 1, viewport={"width": 1100, "height": 640}) as [ann],
    ):
        ann.page.goto(link)
        ann.page.get_by_text("This game is recorded").wait_for()
        ann.ready(link)
        ann.turn()
        for number, key in enumerate(["ArrowRight", "ArrowLeft", "ArrowRight", "2"], 1):
            ann.page.keyboard.press(key)
            ann.page.locator(".tag", has_text=f"tick {number}").wait_for()
        ann.page.get_by_role("button", name="left").click()
        ann.page.locator(".tag", has_text="tick 5").wait_for()
        size = ann.page.locator("img.picture").evaluate("(image) => [image.naturalWidth, image.naturalHeight]")
        assert size == [600, 400]
        assert serious(ann.page) == []
        if _SCREENSHOTS:
            ann.page.screenshot(path=Path(_SCREENSHOTS) / "play.png")


def test_everything_there_is_to_see_and_to_do(browser: Browser) -> None:
    """Pictures, tables, long tables, numbers, text and JSON; choices, sliders, switches and text."""
    with played_by_command("tests.interop.browser.gallery:make") as link, people(browser, 1) as [ann]:
        ann.ready(link)
        ann.turn()
        view = ann.page.get_by_role("region", name="What you see")
        size = view.locator("img.picture").evaluate("(image) => [image.naturalWidth, image.naturalHeight]")
        assert size == [8, 8]
        assert view.locator("table.cells td").all_inner_texts() == ["0", "1", "2", "3", "4", "5"]
        view.get_by_role("img", name="heat: 5 rows, 30 columns").wait_for()
        view.get_by_text("0.500 -0.250").wait_for()
        view.get_by_text("nothing", exact=True).wait_for()
        form = ann.page.get_by_role("region", name="Your action")
        form.get_by_label("go").select_option("2")
        form.get_by_role("spinbutton").fill("0.5")
        form.get_by_role("checkbox").nth(1).check()
        form.get_by_label("word").fill("<b>hi</b>")
        form.get_by_role("button", name="Send").click()
        view.get_by_text("2 0.5 010 <b>hi</b>", exact=True).wait_for()
        assert serious(ann.page) == []


def test_numbers_that_are_written_as_json_are_not_rounded(browser: Browser) -> None:
    """And what is shown as JSON has few lines."""
    with played_by_command("tests.interop.browser.gallery:make_exact") as link, people(browser, 1) as [ann]:
        ann.ready(link)
        ann.turn()
        form = ann.page.get_by_role("region", name="Your action")
        for number in (2**53 + 1, -(2**63)):
            form.get_by_role("textbox").fill(f"[{number}{', 0' * 64}]")
            form.get_by_role("button", name="Send").click()
            ann.page.get_by_text(f"it was {number}", exact=True).wait_for()
            ann.turn()
        form.get_by_role("textbox").fill("[1,")
        form.get_by_role("button", name="Send").click()
        form.get_by_text("This is not JSON.").wait_for()
        board = ann.page.get_by_role("region", name="observation.board")
        row = "[[0, 0], [0, 0], [0, 0]]"
        assert board.inner_text() == f"[\n {row},\n {row},\n {row}\n]"


def test_a_finger_is_enough(browser: Browser) -> None:
    with (
        played_by_command("CartPole-v1", "--labels=left,right") as link,
        people(browser, 1, viewport=PHONE, has_touch=True, is_mobile=True) as [ann],
    ):
        ann.page.goto(link)
        ann.page.get_by_role("button", name="I am ready").tap()
        for number, name in enumerate(["right", "left", "right"], 1):
            ann.turn()
            ann.page.get_by_role("button", name=name).tap()
            ann.page.locator(".tag", has_text=f"tick {number}").wait_for()


# A seat of a view


def test_a_human_seat_beside_an_agent_that_learns(browser: Browser) -> None:
    """One link leads the person through one episode after the other."""
    import trio_cogment.rl as tc

    links: queue.Queue[str] = queue.Queue()
    human = tc.human("Ann", port=0, page=links.put)
    done: list[Any] = []

    def learn() -> None:
        game = tc.make_parallel("rps_v2", seats={"player_1": human}, max_cycles=3)
        try:
            for _ in range(2):
                game.reset(seed=1)
                while game.agents:
                    _, rewards, *_ = game.step({"player_0": 0})
                    done.append(rewards["player_0"])
        finally:
            game.close()

    learner = threading.Thread(target=learn)
    learner.start()
    with people(browser, 1) as [ann]:
        ann.ready(links.get(timeout=20))
        for _ in range(2):
            for tick in range(3):
                ann.page.locator(".tag", has_text=f"tick {tick}").wait_for()
                ann.turn()
                ann.page.keyboard.press("2")
        learner.join(20)
        ann.complaints.clear()  # the server has gone with the view
    assert not learner.is_alive()
    assert done == [-1] * 6  # paper beats rock


def test_who_was_led_back_and_leaves_is_not_ready_by_itself(browser: Browser) -> None:
    """The address says that a person was in the game before; it says so once."""
    import trio_cogment.rl as tc

    links: queue.Queue[str] = queue.Queue()
    game = tc.make_parallel("rps_v2", seats={"player_1": tc.human("Ann", port=0, page=links.put)}, max_cycles=3)
    try:
        with people(browser, 1) as [ann]:
            ann.page.goto(links.get(timeout=20) + "#back")
            ann.page.get_by_text("The game begins").wait_for()
            ann.page.wait_for_function("() => !location.hash")
            ann.page.get_by_role("button", name="Leave").click()
            ann.page.get_by_text("You have left").wait_for()
            ann.page.get_by_role("button", name="Come again").click()
            ann.page.get_by_role("button", name="I am ready").wait_for()
    finally:
        game.close()
