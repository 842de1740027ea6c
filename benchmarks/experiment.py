"""Experiments with people: pages beside oTree, and the time from a click to the other person's screen.

`python benchmarks/experiment.py --otree=PYTHON` measures both; PYTHON is that of an environment of its own:
`python -m venv otree && otree/bin/pip install otree requests`. Without it only the clicks are measured.

* `pages`: 50 bots go through the same questionnaire of five pages. oTree runs it with its own bots (`otree test`),
  which ask for pages in its process, with a database in memory. Ours is the command `trio-cogment play` with its file
  on the disk, and bots in another process that load the page with its scripts and speak WebSocket; the processor time
  of both processes counts. Of each the time of a run with few bots is taken off, so starting is not measured.
  `ratio` is oTree's processor time for a page, divided by ours: 3 at least.
* `clicks`: 20 groups of two people and an agent play the game of `examples/experiment`. In one group the people sit at
  two pages in Chromium, the others are programs that act four times a second. Measured is the time from the click of
  who acts last to the frame in which the other person's page shows the next round: p99 50 ms at most (`screen_p99_ms`;
  it needs Playwright), and for all groups the time until the other one's WebSocket has it (`socket_p99_ms`).
"""

from __future__ import annotations

import argparse
import asyncio
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from _attacks_doors import HERE, Browser
from _children import cpu_ns
from _report import number, print_json, print_table

ROOT = Path(__file__).resolve().parent.parent
LEAST_RATIO, MOST_CLICK_MS = 3.0, 50.0
BOTS, FEW_BOTS = 50, 5
GROUPS, ROUNDS, PAUSE_S = 20, 120, 0.25
#: The same to both.
PAGES = ("consent", "about", "opinion", "details", "last")
SURVEY = """
name: survey
waiting: {size: 100, seconds: 100000}
before:
  - {name: consent, consent: "Do you agree?"}
  - name: about
    questions:
      - {name: age, ask: "How old are you?", kind: number, low: 18, high: 120, integer: true}
      - {name: work, ask: "What is your work?", kind: text}
  - name: opinion
    questions:
      - {name: fair, ask: "How fair is it?", kind: scale, low: 1, high: 7}
      - {name: trust, ask: "How much do you trust others?", kind: scale, low: 1, high: 7}
  - name: details
    questions:
      - {name: how, ask: "How did you hear of us?", kind: choice, options: [friends, a platform, else]}
      - {name: remarks, ask: "Is there anything else?", kind: long}
  - name: last
    questions:
      - {name: sure, ask: "Are you sure?", kind: yes_no}
trials:
  - {environment: "crowd:Crowd"}
"""
#: Nobody of its group of 100 plays: the questionnaire ends in the waiting room.
CROWD = """
from coordination import Meeting

class Crowd(Meeting):
    def __init__(self, render_mode=None):
        super().__init__()
        self.possible_agents = [f"a{k}" for k in range(100)]
"""
ANSWERS: dict[str, dict[str, Any]] = {
    "consent": {},
    "about": {"age": 30, "work": "baker"},
    "opinion": {"fair": 4, "trust": 5},
    "details": {"how": "friends", "remarks": "no"},
    "last": {"sure": True},
}
OTREE_APP = """
from otree.api import *

class C(BaseConstants):
    NAME_IN_URL = "survey"
    PLAYERS_PER_GROUP = None
    NUM_ROUNDS = 1

class Subsession(BaseSubsession):
    pass

class Group(BaseGroup):
    pass

class Player(BasePlayer):
    age = models.IntegerField(label="How old are you?", min=18, max=120)
    work = models.StringField(label="What is your work?")
    fair = models.IntegerField(label="How fair is it?", choices=range(1, 8), widget=widgets.RadioSelectHorizontal)
    trust = models.IntegerField(label="How much do you trust others?", choices=range(1, 8),
                                widget=widgets.RadioSelectHorizontal)
    how = models.StringField(label="How did you hear of us?", choices=["friends", "a platform", "else"],
                             widget=widgets.RadioSelect)
    remarks = models.LongStringField(label="Is there anything else?")
    sure = models.BooleanField(label="Are you sure?")

class Consent(Page):
    pass

class About(Page):
    form_model, form_fields = "player", ["age", "work"]

class Opinion(Page):
    form_model, form_fields = "player", ["fair", "trust"]

class Details(Page):
    form_model, form_fields = "player", ["how", "remarks"]

class Last(Page):
    form_model, form_fields = "player", ["sure"]

page_sequence = [Consent, About, Opinion, Details, Last]
"""
OTREE_BOT = """
from otree.api import Bot
from . import *

class PlayerBot(Bot):
    def play_round(self):
        yield Consent
"""
OTREE_PAGE = (
    "{{ block title }}Page{{ endblock }}\n{{ block content }}\n{{ formfields }}\n{{ next_button }}\n{{ endblock }}\n"
)
OTREE_SETTINGS = """
SESSION_CONFIGS = [dict(name="survey", app_sequence=["survey"], num_demo_participants=1)]
SESSION_CONFIG_DEFAULTS = dict(real_world_currency_per_point=1.0, participation_fee=0.0, doc="")
PARTICIPANT_FIELDS = SESSION_FIELDS = []
LANGUAGE_CODE, REAL_WORLD_CURRENCY_CODE, USE_POINTS = "en", "USD", False
ADMIN_USERNAME, ADMIN_PASSWORD, SECRET_KEY = "admin", "", "benchmark"
DEMO_PAGE_INTRO_HTML = ""
INSTALLED_APPS = ["otree"]
"""


# Pages


def otree_project(folder: Path) -> None:
    app = folder / "survey"
    for each in (app, folder / "_static", folder / "_templates"):
        each.mkdir()
    (folder / "settings.py").write_text(OTREE_SETTINGS)
    (app / "__init__.py").write_text(OTREE_APP)
    bot = OTREE_BOT
    for page in PAGES:
        if page != "consent":
            bot += f"        yield {page.title()}, dict({', '.join(f'{k}={v!r}' for k, v in ANSWERS[page].items())})\n"
        (app / f"{page.title()}.html").write_text(OTREE_PAGE)
    (app / "tests.py").write_text(bot)


def otree_cpu_s(python: Path, folder: Path, bots: int) -> float:
    """Return the processor time of oTree with so many of its bots."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(python.with_name("otree")), "test", "survey", str(bots)]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr
    assert said.count("Submit ") == bots * len(PAGES), said[-1000:]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Have the command serve an experiment; yields the process, its port and the path of the link."""
    command = [sys.executable, "-m", "trio_cogment", "play", "experiment.yaml", "--port=0", "--log_level=error"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        link = next(line.split()[1] for line in process.stdout if line.startswith("play  "))
        found = re.fullmatch(r"http://localhost:(\d+)(/.*)", link)
        assert found is not None
        yield process, int(found[1]), found[2]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


async def load(browser: Browser, path: str) -> None:
    """Load the page with all of its files, as a browser does that has none of them."""
    status, document = await browser.ask("GET", path)
    assert status == 200
    for name in re.findall(rb'(?:href|src)="(\.[^"]+)"', document):
        status, _ = await browser.ask("GET", urljoin(path, name.decode()))
        assert status == 200


async def answer_all(port: int, link: str) -> None:
    browser = await Browser.open(port, HERE)
    await load(browser, link)
    browser.close()
    socket = await Browser.open(port, HERE)
    assert await socket.socket(f"{link}socket")
    socket.say({"type": "enter", "parameters": {}})
    for page in PAGES:
        while (await socket.page_says("page"))["name"] != page:
            pass
        socket.say({"type": "turn", "page": page, "answers": ANSWERS[page], "agrees": True, "at": 1000 * time.time()})
    await socket.page_says("waiting")
    socket.close()


def our_cpu_s(bots: int) -> float:
    """Return the processor time of the server and of the bots."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / "experiment" / "coordination.py", folder)
        (Path(folder) / "crowd.py").write_text(CROWD)
        (Path(folder) / "experiment.yaml").write_text(SURVEY)
        with served(Path(folder)) as (process, port, link):

            async def all_of_them() -> None:
                await asyncio.gather(*(answer_all(port, link) for _ in range(bots)))

            before, own = sum(cpu_ns(process.pid).values()), time.process_time()
            asyncio.run(all_of_them())
            return (sum(cpu_ns(process.pid).values()) - before) / 1e9 + time.process_time() - own


def measured_pages(python: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        otree_project(Path(folder))
        otree = [otree_cpu_s(python, Path(folder), bots) for bots in (FEW_BOTS, BOTS)]
    ours = [our_cpu_s(bots) for bots in (FEW_BOTS, BOTS)]
    pages = (BOTS - FEW_BOTS) * len(PAGES)
    otree_ms, ours_ms = (1000 * (many - few) / pages for few, many in (otree, ours))
    return {
        "otree_cpu_ms_a_page": otree_ms,
        "cpu_ms_a_page": ours_ms,
        "otree_pages_a_cpu_s": 1000 / otree_ms,
        "pages_a_cpu_s": 1000 / ours_ms,
        "ratio": otree_ms / ours_ms,
    }


# Clicks


class Player:
    """A program in a game: its seat, over a WebSocket."""

    def __init__(self, socket: Browser) -> None:
        self._socket = socket
        self.asked = -1
        self.at = 0.0

    @classmethod
    async def seated(cls, port: int, link: str) -> tuple[Player, Browser]:
        """Come, and wait for a group; returns the connection of the experiment, too, which has to stay."""
        page = await Browser.open(port, HERE)
        assert await page.socket(f"{link}socket")
        page.say({"type": "enter", "parameters": {}})
        seat = (await page.page_says("seat"))["link"]
        socket = await Browser.open(port, HERE)
        assert await socket.socket(f"{seat}socket")
        socket.say({"type": "hello", "ticket": "", "automated": True})
        return cls(socket), page

    async def see(self, tick: int) -> None:
        """Wait until a tick is to be answered, and note when that came."""
        while self.asked < tick:
            self.asked = await self._socket.page_says("asked")
        self.at = time.perf_counter()

    def act(self, tick: int) -> None:
        self._socket.say({"type": "act", "tick": tick, "action": tick % 3, "at": 1000 * time.time()})


async def play_group(port: int, link: str, delays: list[float]) -> None:
    (one, first), (other, second) = await asyncio.gather(Player.seated(port, link), Player.seated(port, link))
    pages = [asyncio.create_task(unread(page)) for page in (first, second)]
    clicked = 0.0
    for tick in range(ROUNDS):
        await asyncio.gather(one.see(tick), other.see(tick))
        if tick:
            delays.append(max(one.at - clicked, 0.0))
        await asyncio.sleep(PAUSE_S)
        one.act(tick)
        await asyncio.sleep(PAUSE_S / 10)
        clicked = time.perf_counter()
        other.act(tick)
    for task in pages:
        task.cancel()


async def unread(page: Browser) -> None:
    while True:
        await page.hear()


#: Notes when the page shows each round: in the frame in which it is drawn.
WATCH = """
window.shown = {};
new MutationObserver(() => {
  const found = document.querySelector(".view")?.textContent.match(/Round (\\d+) of/);
  const drawn = (at) => (window.shown[found[1]] ??= performance.timeOrigin + at);
  if (found && !(found[1] in window.shown)) requestAnimationFrame(() => drawn(performance.now()));
}).observe(document, { childList: true, subtree: true, characterData: true });
"""
CLICK = "(button) => { const at = performance.timeOrigin + performance.now(); button.click(); return at; }"


async def click_in_chromium(port: int, link: str, delays: list[float]) -> None:
    from playwright.async_api import async_playwright

    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        pages = []
        for _ in range(2):
            page = await (await browser.new_context()).new_page()
            await page.add_init_script(WATCH)
            await page.goto(f"http://localhost:{port}{link}")
            pages.append(page)
        one, other = pages
        for number in range(1, ROUNDS):
            for page in pages:
                await page.wait_for_function("(round) => round in window.shown", arg=number, timeout=60_000)
            await one.get_by_role("button", name="park").click()
            button = await other.get_by_role("button", name="park").element_handle()
            clicked = await other.evaluate(CLICK, button)
            await one.wait_for_function("(round) => round in window.shown", arg=number + 1, timeout=60_000)
            delays.append((await one.evaluate(f"window.shown['{number + 1}']") - clicked) / 1000)
            await asyncio.sleep(PAUSE_S)
        await browser.close()


def percentile_ms(delays: list[float], percent: int) -> float:
    return 1000 * statistics.quantiles(delays, n=100)[percent - 1]


def measured_clicks(*, chromium: bool) -> dict[str, float]:
    screens: list[float] = []
    sockets: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples" / "experiment", folder, dirs_exist_ok=True)
        file = Path(folder) / "experiment.yaml"
        text = file.read_text().replace("rounds: 5", f"rounds: {ROUNDS}")
        before = text.index("before:")
        file.write_text(text[:before] + text[text.index("waiting:") :])  # the pages before it are measured above
        with served(Path(folder)) as (_, port, link):

            async def all_of_them() -> None:
                tasks = []
                if chromium:
                    tasks.append(asyncio.create_task(click_in_chromium(port, link, screens)))
                    await asyncio.sleep(5.0)  # its two people are a group before the others come
                for _ in range(GROUPS - len(tasks)):
                    tasks.append(asyncio.create_task(play_group(port, link, sockets)))
                    await asyncio.sleep(PAUSE_S / GROUPS)
                await asyncio.gather(*tasks)

            asyncio.run(all_of_them())
    found = {"socket_p50_ms": percentile_ms(sockets, 50), "socket_p99_ms": percentile_ms(sockets, 99)}
    if screens:
        found |= {"screen_p50_ms": percentile_ms(screens, 50), "screen_p99_ms": percentile_ms(screens, 99)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--otree", type=Path, metavar="PYTHON", help="the Python of an environment with oTree")
    parser.add_argument("--only", choices=["pages", "clicks"])
    parser.add_argument("--no-chromium", action="store_true", help="measure clicks at the WebSocket alone")
    args = parser.parse_args()
    values: dict[str, float | None] = {}
    if args.otree is not None and args.only != "clicks":
        values |= measured_pages(args.otree.absolute())
    if args.only != "pages":
        values |= measured_clicks(chromium=not args.no_chromium)
    bars = {"ratio": f"{LEAST_RATIO:g} at least", "screen_p99_ms": f"{MOST_CLICK_MS:g} at most"}
    print_table(
        ("figure", "value", "bar"), [(name, number(value), bars.get(name, "")) for name, value in values.items()]
    )
    print_json(values)


if __name__ == "__main__":
    main()
