"""An experiment in Chromium: people from consent to the code, who reload, open second tabs, and close them for good."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.browser.programs import ROOT
from tests.interop.test_play_page import PHONE, Person, people, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, FrameLocator, Page, WebSocketRoute

pytestmark = pytest.mark.browser

EXAMPLE = ROOT / "examples" / "experiment"
RULE = "If all three choose the same place"
PLACES = ("park", "museum", "station")
ROUNDS = 5


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.interop.browser.chromium import launched

    with sync_playwright() as playwright:
        opened = launched(playwright)
        yield opened
        opened.close()


class Study:
    """The example in a folder of its own, served by the command; it can be stopped and started again.

    Args:
        folder: for it.
        page: which page of one's own it has, as of `init --experiment --page`; None: as of `init --experiment`.
        flags: of the command.
        grace_seconds: for how long a trial waits for somebody.
    """

    def __init__(self, folder: Path, page: str | None = "", *flags: str, grace_seconds: int = 4) -> None:
        self.folder = folder
        self._flags = flags
        if page != "":
            pages = [] if page is None else [f"--page={page}"]
            command = [sys.executable, "-m", "trio_cogment", "init", "--experiment", *pages, str(folder)]
            subprocess.run(command, check=True, capture_output=True)
        else:
            shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        text = (folder / "experiment.yaml").read_text()
        text = text.replace("grace_seconds: 30", f"grace_seconds: {grace_seconds}")
        # People say themselves when they have seen how a trial has ended.
        (folder / "experiment.yaml").write_text(
            re.sub("(?m)^    environment:", "    end_seconds: 600\n    environment:", text)
        )
        self.link = self.entrance = ""
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "trio_cogment", "play", "experiment.yaml", f"--port={self._port}"]
        command += self._flags
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.folder)
        assert self._process.stdout is not None
        link = next(line.split()[1] for line in self._process.stdout if line.startswith("play  "))
        assert self.link in ("", link)  # it counts after a restart
        self.link = link
        # Behind it comes the address that counts once.
        self.entrance = next(line.split()[1] for line in self._process.stdout if line.startswith("dashboard "))
        self._port = int(re.findall(r":(\d+)/", link)[0])

    @property
    def origin(self) -> str:
        return self.link.partition("/experiment/")[0]

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(15) == 0
        finally:
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def tables(self) -> dict[str, list[dict[str, str]]]:
        """Return the exported tables by their names."""
        command = [sys.executable, "-m", "trio_cogment", "experiment", "export", "experiment.yaml", "--output=data"]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=60)
        found = {}
        for path in (self.folder / "data").glob("*.csv"):
            with path.open(newline="", encoding="utf-8") as file:
                found[path.stem] = list(csv.DictReader(file))
        return found


@contextmanager
def study(folder: Path, page: str = "") -> Iterator[Study]:
    made = Study(folder, page)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def heading(page: Page, name: str) -> Any:
    return page.get_by_role("heading", name=name)


def read(page: Page, link: str) -> None:
    """Go from the consent to the waiting room."""
    page.goto(link)
    page.get_by_role("button", name="I agree").click()
    page.get_by_text("In each round").wait_for()
    page.get_by_role("button", name="Continue").click()
    page.get_by_label(RULE).check()
    page.get_by_role("button", name="Continue").click()


def choose(page: Page, place: str) -> None:
    """Choose a place when it is the person's turn."""
    page.get_by_text("It is your turn.").wait_for()
    page.get_by_role("button", name=place).click()


def see_the_end(persons: list[Person]) -> None:
    """Have everybody see how a trial has ended, and go on."""
    for person in persons:
        person.page.get_by_text("The game is over").first.wait_for()
        person.page.get_by_role("button", name="Go on").click()


def play(persons: list[Person], record: list[str], rounds: range) -> None:
    """Have everybody choose in each of these rounds, and write down what they did."""
    for number in rounds:
        for person in persons:
            person.page.get_by_text(re.compile(rf"Round {number + 1} of 5\.")).wait_for()
            choose(person.page, PLACES[number % 3])
            record.append(str(number % 3))
    if rounds.stop == ROUNDS:
        for person in persons:
            person.page.get_by_text("That was the last round.").wait_for()
        see_the_end(persons)


def questionnaire(page: Page) -> None:
    heading(page, "Two questions").wait_for()
    page.get_by_label("5", exact=True).check()
    page.get_by_label("Is there anything else").fill("no <b>thanks</b>")
    page.get_by_role("button", name="Continue").click()


def test_six_people_go_all_the_way_on_a_way_with_stones(browser: Browser, tmp_path: Path) -> None:
    """Three groups; two reload, one opens a second tab, one closes it for good, and the server is started again."""
    with study(tmp_path) as served, people(browser, 6) as everybody:
        records: list[list[str]] = [[], [], []]
        groups = [everybody[:2], everybody[2:4], everybody[4:]]
        for group, record in zip(groups, records, strict=True):
            for person in group:
                read(person.page, served.link)
            for person in group:
                person.page.get_by_text("Your action").wait_for()
            play(group, record, range(2))
        (ann, bob), (cem, dan), (eve, fay) = groups
        # Two reload in the middle of a trial, and one goes on in a second tab.
        for person in (ann, dan):
            person.page.reload()
        second = cem.new_page()
        second.goto(served.link)
        cem.page.get_by_text("You go on in another window").wait_for()
        first, cem.page = cem.page, second
        # One closes the tab for good: the other one is told, and is paid.
        eve.page.close()
        fay.page.get_by_text("away, back within").wait_for()
        questionnaire(fay.page)
        fay.page.get_by_text("MEET-PART").wait_for()
        for group, record in zip(groups[:2], records, strict=False):
            play(group, record, range(2, 5))
        first.close()
        # Between the trials the server is stopped and started.
        for person in (ann, bob, cem, dan):
            heading(person.page, "Once more").wait_for()
        served.stop()
        served.start()
        for group, record in zip(groups[:2], records, strict=False):
            for person in group:
                person.page.get_by_text("connection lost").wait_for(state="detached")
                person.page.get_by_role("button", name="Continue").click()
            play(group, record, range(5))
            for person in group:
                questionnaire(person.page)
                person.page.get_by_text("MEET-OK").wait_for()
        ann.page.reload()
        ann.page.get_by_text("MEET-OK").wait_for()  # who comes again sees it again
        assert [person.origins for person in everybody] == [{served.origin}] * 6
        served.stop()
        # The exported tables say what the browsers did.
        tables = served.tables()
    participants = {row["number"]: row for row in tables["participants"]}
    assert [participants[str(k)]["end"] for k in range(1, 7)] == [*["complete"] * 4, "gone", "partial"]
    assert [participants[str(k)]["condition"] for k in range(1, 7)] == [
        *["follows"] * 2,
        *["stubborn"] * 2,
        *["follows"] * 2,
    ]
    assert [participants[str(k)]["tab_changes"] for k in range(1, 7)] == ["0", "0", "1", "0", "0", "0"]
    assert {row["human"] for row in tables["participants"] if row["end"] != "gone"} == {"5"}
    assert {row["remarks"] for row in tables["participants"] if row["end"] != "gone"} == {"no <b>thanks</b>"}
    for number, record in enumerate(records, 1):
        assert [row["action"] for row in tables["actions"] if row["group"] == str(number)] == record
    answered = Counter((row["participant"], row["question"]) for row in tables["answers"])
    assert set(answered.values()) == {1}
    seats = Counter((row["participant"], row["trial_id"]) for row in tables["events"] if row["event"] == "seat")
    assert set(seats.values()) == {1}
    assert sorted(path.name for path in (tmp_path / "data" / "trials").iterdir()) == ["README.md", "data", "meta"]


def test_a_game_of_two_goes_on_after_its_server_was_killed(browser: Browser, tmp_path: Path) -> None:
    """Both pages come back by themselves, to the same seats of the same trial, at the last tick that was stored."""
    with study(tmp_path) as served, people(browser) as both:
        for person in both:
            read(person.page, served.link)
        play(both, [], range(3))
        for person in both:
            person.page.get_by_text("Round 4 of 5.").wait_for()
        served.kill()
        for person in both:
            person.page.get_by_text("connection lost, trying again").first.wait_for()
        ann, bob = both
        bob.page.goto("about:blank")  # who is not there is waited for
        served.start()
        ann.page.get_by_text("The game will be back in a moment").wait_for()
        ann.page.get_by_text("away, back within").wait_for()
        bob.page.goto(served.link)
        for person in both:
            person.page.get_by_text("It is your turn.").wait_for()
        # The trial itself holds its last two samples back: these ticks are asked again.
        [at] = re.findall(r"Round (\d) of 5\.", ann.page.locator("main").inner_text())
        assert 2 <= int(at) <= 4
        play(both, [], range(int(at) - 1, 4))
        # A stop in order loses no tick.
        for person in both:
            person.page.get_by_text("Round 5 of 5.").wait_for()
        choose(ann.page, "museum")
        served.stop()
        served.start()
        for person in both:
            person.page.get_by_text("It is your turn.").wait_for()
            person.page.get_by_text("Round 5 of 5.").wait_for()
            person.page.get_by_text("connection lost").first.wait_for(state="detached")
        play(both, [], range(4, 5))
        for person in both:
            person.page.get_by_role("button", name="Continue").click()
        play(both, [], range(5))
        for person in both:
            questionnaire(person.page)
            person.page.get_by_text("MEET-OK").wait_for()
        served.stop()
        tables = served.tables()
    actions, events = tables["actions"], tables["events"]
    assert Counter((row["trial"], row["tick"]) for row in actions) == {
        (str(trial), str(tick)): 2 for trial in (1, 2) for tick in range(ROUNDS)
    }
    assert [row["action"] for row in actions if row["trial"] == "1"] == [str(k % 3) for k in range(5) for _ in both]
    assert len({row["trial_id"] for row in actions}) == 2
    on = [json.loads(row["detail"]) for row in events if row["event"] == "trial goes on"]
    assert [(each["attempt"], each["tick"]) for each in on] == [(2, int(at) - 1), (3, 4)]
    assert on[0]["ticks_lost"] == 3 - on[0]["tick"]
    assert {row["actions"] for row in tables["participants"]} == {"10"}
    assert "trial lost" not in {row["event"] for row in events}
    # And in the trials' own tables.
    from trio_cogment.rl import replay_environment

    replayed = replay_environment(tmp_path / "data" / "trials")
    assert sorted(replayed.agents) == ["ann", "bob", "robot"]


def test_a_new_experiment_that_its_owner_changes_goes_to_the_data(browser: Browser, tmp_path: Path) -> None:
    """The walk of the documents, from `init` on: another size of groups, a question more, a try, people, tables."""
    folder = tmp_path / "study"
    made = Study(folder, None)
    file = folder / "experiment.yaml"
    text = re.sub("(?s)conditions:.*?\n\n", "", file.read_text())  # without them, nobody plays an agent
    for before, after in {
        "size: 2": "size: 3",
        "people: [ann, bob]": "people: [ann, bob, robot]",
        "rounds: 5": "rounds: 1",
        "      - name: remarks": '      - {name: glad, ask: "Are you glad?", kind: yes_no}\n      - name: remarks',
    }.items():
        assert before in text
        text = text.replace(before, after)
    file.write_text(text)
    command = [sys.executable, "-m", "trio_cogment", "play", "experiment.yaml", "--demo"]
    tried = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    assert tried.startswith("complete: 6\n")
    made.start()
    try:
        with people(browser, 3) as everybody:
            for person in everybody:
                read(person.page, made.link)
            for trial in range(2):
                for person, place in zip(everybody, PLACES, strict=True):
                    choose(person.page, place)
                for person in everybody:
                    person.page.get_by_text("You have not met.").wait_for()  # also after the last round
                    assert "observation" not in person.page.locator("main").inner_text()
                see_the_end(everybody)
                for person in everybody if trial == 0 else []:
                    assert "(ann)" in person.page.get_by_label("Your group").inner_text()
                    person.page.get_by_role("button", name="Continue").click()
            for person in everybody:
                heading(person.page, "Two questions").wait_for()
                person.page.get_by_label("5", exact=True).check()
                person.page.get_by_label("Yes").check()
                person.page.get_by_role("button", name="Continue").click()
                person.page.get_by_text("MEET-OK").wait_for()
        made.stop()
        tables = made.tables()
    finally:
        made.kill()
    assert [(row["end"], row["glad"], row["actions"]) for row in tables["participants"]] == [
        ("complete", "true", "2")
    ] * 3
    assert sorted(row["action"] for row in tables["actions"]) == ["0", "0", "1", "1", "2", "2"]
    seats = {(row["participant"], row["actor"]) for row in tables["actions"]}
    assert len(seats) == 6  # they have changed places


def test_who_looks_at_the_end_of_a_trial_is_not_away_from_the_next_one(browser: Browser, tmp_path: Path) -> None:
    """It begins at once where no page comes before it; who looks for longer than the grace keeps the seat."""
    made = Study(tmp_path, grace_seconds=2)
    file = tmp_path / "experiment.yaml"
    text = re.sub("(?s)    pages:.*?\n\n", "\n", file.read_text()).replace("rounds: 5", "rounds: 1")
    file.write_text(text)
    made.start()
    try:
        with people(browser) as both:
            for person in both:
                read(person.page, made.link)
            for person in both:
                choose(person.page, "park")
            ann, bob = both
            see_the_end([bob])
            choose(bob.page, "museum")
            ann.page.get_by_role("button", name="Go on").wait_for()
            ann.page.keyboard.press("3")  # is for no game that cannot be seen
            ann.page.wait_for_timeout(4000)
            see_the_end([ann])
            choose(ann.page, "park")
            see_the_end(both)
            for person in both:
                questionnaire(person.page)
                person.page.get_by_text("MEET-OK").wait_for()
        made.stop()
        tables = made.tables()
    finally:
        made.kill()
    assert [row["end"] for row in tables["participants"]] == ["complete", "complete"]
    assert [row["action"] for row in tables["actions"]] == ["0", "0", "1", "0"]


BLOCKED = """
for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });
"""


def test_who_has_blocked_storage_takes_part(browser: Browser, tmp_path: Path) -> None:
    """By a link without its last slash; and who has a wrong one sees a page that says so."""
    with study(tmp_path) as served:
        people_here = []
        for number in range(2):
            page = browser.new_context().new_page()
            page.add_init_script(BLOCKED)
            read(page, f"{served.link.removesuffix('/')}?PID=a%20{number}")
            assert page.url == f"{served.link}?PID=a%20{number}"
            people_here.append(page)
        for page in people_here:
            page.get_by_text("Your action").wait_for()
        wrong = browser.new_context().new_page()
        wrong.goto(f"{served.origin}/experiment/nothing/")
        wrong.get_by_text("There is no such study").wait_for()
        for page in [*people_here, wrong]:
            page.context.close()


def test_a_network_that_is_lost_without_a_word_is_noticed(browser: Browser, tmp_path: Path) -> None:
    """Nothing closes: what either side says is lost. The page says so, and comes back by itself when it can."""
    passes = [True]

    def line(page: WebSocketRoute) -> None:
        server = page.connect_to_server()
        page.on_message(lambda message: server.send(message) if passes[0] else None)
        server.on_message(lambda message: page.send(message) if passes[0] else None)

    with study(tmp_path) as served, people(browser, 1) as [ann]:
        ann.page.set_default_timeout(60_000)
        ann.page.route_web_socket(re.compile("/socket$"), line)
        ann.page.goto(served.link)
        ann.page.get_by_role("button", name="I agree").wait_for()
        passes[0] = False
        ann.page.get_by_text("connection lost, trying again").wait_for()
        passes[0] = True
        ann.page.get_by_text("connection lost, trying again").wait_for(state="detached")
        ann.page.get_by_role("button", name="I agree").click()
        ann.page.get_by_text("In each round").wait_for()
        served.stop()
        tables = served.tables()
    kinds = [row["event"] for row in tables["events"]]
    assert (kinds.count("page opened"), kinds.count("tab changed")) == (1, 0)
    assert kinds.count("reconnected") >= 1


def check(page: Page | Frame) -> None:
    """See that axe finds nothing, and that the page is as wide as the screen."""
    found = violations(page)
    # A frame is asked by itself here: its heading is that of the page around it.
    in_a_frame = getattr(page, "parent_frame", None) is not None
    assert [each for each in found if not (in_a_frame and each.startswith("page-has-heading-one"))] == []
    assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


@pytest.mark.parametrize("size", [None, PHONE], ids=["desk", "phone"])
def test_anybody_can_take_part(browser: Browser, size: Any, tmp_path: Path) -> None:
    """Each kind of page: nothing for axe to complain of, and as wide as the screen."""
    options = {} if size is None else {"viewport": size, "has_touch": True, "color_scheme": "dark"}

    with study(tmp_path) as served, people(browser, **options) as [ann, bob]:
        ann.page.goto(served.link)
        ann.page.get_by_role("button", name="I agree").wait_for()
        assert ann.page.locator(".text strong").first.inner_text() == "another person"
        check(ann.page)
        ann.page.get_by_role("button", name="I agree").click()
        ann.page.get_by_role("button", name="Continue").click()
        ann.page.get_by_label("Always").check()
        ann.page.get_by_role("button", name="Continue").click()
        ann.page.get_by_text("That is not right.").wait_for()
        check(ann.page)
        ann.page.get_by_label(RULE).check()
        ann.page.get_by_role("button", name="Continue").click()
        ann.page.get_by_text("1 more person is needed.").wait_for()
        check(ann.page)
        read(bob.page, served.link)
        ann.page.get_by_text("Your action").wait_for()
        check(ann.page)
        second = bob.new_page()
        second.goto(served.link)
        bob.page.get_by_text("You go on in another window").wait_for()
        check(bob.page)
        bob.page = second
        bob.page.get_by_text("Your action").wait_for()
        bob.page.get_by_role("button", name="Leave the study").click()
        check(bob.page)
        bob.page.get_by_role("button", name="Leave", exact=True).click()
        bob.page.get_by_text("You have left the study.").wait_for()
        check(bob.page)
        heading(ann.page, "Two questions").wait_for()
        check(ann.page)
        questionnaire(ann.page)
        ann.page.get_by_text("MEET-PART").wait_for()
        check(ann.page)


ALL_KINDS = """
  - name: kinds
    text: "![A dot](<a dot.svg>)"
    questions:
      - {name: word, ask: "One word?", kind: text}
      - {name: age, ask: "How old are you?", kind: number, low: 18, integer: true}
      - {name: tea, ask: "Tea or coffee?", kind: choice, options: [tea, coffee]}
      - {name: days, ask: "On which days?", kind: choices, options: [Monday, Friday, Sunday]}
      - {name: glad, ask: "Are you glad?", kind: yes_no}
      - {name: sure, ask: "How sure are you?", kind: scale, low: 1, high: 3, labels: [not at all, very]}
      - {name: more, ask: "Anything else?", kind: long, required: false}

waiting:
  groups: 1
"""
CODES = "participants: {id: code, allow: [ann-7, bob-9]}\n"


def click_on(page: Page) -> None:
    page.get_by_role("button", name="Continue").click()


@pytest.mark.parametrize("size", [None, PHONE], ids=["desk", "phone"])
def test_every_kind_of_page_question_and_end(browser: Browser, size: Any, tmp_path: Path) -> None:
    """Those of links with parameters, to the end that leads back, and codes that are typed."""
    options = {} if size is None else {"viewport": size, "has_touch": True, "color_scheme": "dark"}
    made = Study(tmp_path)
    dot = '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"><circle cx="3" cy="3" r="3"/></svg>'
    (tmp_path / "a dot.svg").write_text(dot)
    file = tmp_path / "experiment.yaml"
    text = file.read_text().replace("rounds: 5", "rounds: 1").replace("\n\nwaiting:\n", ALL_KINDS)
    redirect = '    redirect: "https://example.com/done?pid={PID}&from={source}"\n'
    text = text.replace("    code: MEET-OK\n", redirect)
    people_of_links = 'participants: {id: "query:PID", keep_out: [before], parameters: [source]}\n'
    file.write_text(text + people_of_links)
    made.start()
    try:
        with people(browser, 3, **options) as [ann, bob, cem]:
            cem.page.goto(made.link)
            cem.page.get_by_text("expected PID=... in it").wait_for()
            check(cem.page)
            cem.page.goto(f"{made.link}?PID=before")
            cem.page.get_by_text("This study is not open to you").wait_for()
            check(cem.page)
            for person, name in ((ann, "a b"), (bob, "bob")):
                page = person.page
                page.goto(f"{made.link}?PID={name}&source=lab&other=kept-by-nobody")
                page.get_by_role("button", name="I agree").click()
                page.get_by_text("In each round").wait_for()
                check(page)
                click_on(page)
                page.get_by_label(RULE).check()
                click_on(page)
                page.wait_for_function("document.querySelector('.text img[alt=\"A dot\"]').naturalWidth === 7")
                page.get_by_label("One word?").fill("word")
                check(page)
                page.get_by_label("How old are you?").fill("30")
                page.get_by_label("coffee").check()
                for day in ("Monday", "Sunday"):
                    page.get_by_label(day).check()
                page.get_by_label("No", exact=True).check()
                page.get_by_label("3", exact=True).check()
                click_on(page)
            cem.page.goto(f"{made.link}?PID=cem")
            cem.page.get_by_text("All places of this study are taken.").wait_for()
            check(cem.page)
            for trial in range(2):
                for person in (ann, bob):
                    choose(person.page, "park")
                ann.page.get_by_role("button", name="Go on").wait_for()
                check(ann.page)
                see_the_end([ann, bob])
                if trial == 0:
                    heading(ann.page, "Once more").wait_for()
                    check(ann.page)
                    click_on(ann.page)
                    ann.page.get_by_text("Please wait until the others are ready.").wait_for()
                    check(ann.page)
                    click_on(bob.page)
            questionnaire(ann.page)
            back = ann.page.get_by_role("link", name="Back to where you came from")
            back.wait_for()
            check(ann.page)
            assert back.get_attribute("href") == "https://example.com/done?pid=a%20b&from=lab"
            made.stop()
            tables = made.tables()
            # Another study, for those who have codes.
            made.link = ""
            file.write_text(text.replace("name: meeting", "name: codes").replace(redirect, "") + CODES)
            made.start()
            page = bob.page
            page.goto(made.link)
            page.get_by_label("Your code").wait_for()
            check(page)
            for code, answer in (("ann-8", "There is no such code."), ("ann-7", "You will play a short game")):
                page.get_by_label("Your code").fill(code)
                click_on(page)
                page.get_by_text(answer).wait_for()
                check(page)
            page.get_by_role("button", name="I do not agree").click()
            page.get_by_text("You have not agreed").wait_for()
            check(page)
            made.stop()
            codes = made.tables()["participants"]
    finally:
        made.kill()
    assert [(row["participant"], row["end"], row["link_source"]) for row in tables["participants"]][:1] == [
        ("a b", "complete", "lab")
    ]
    assert not [row for rows in tables.values() for row in rows if "kept-by-nobody" in str(row)]
    answered = {
        name: tables["participants"][0][name] for name in ("word", "age", "tea", "days", "glad", "sure", "more")
    }
    assert answered == {
        "word": "word",
        "age": "30",
        "tea": "coffee",
        "days": '["Monday", "Sunday"]',
        "glad": "false",
        "sure": "3",
        "more": "",
    }
    assert [(row["participant"], row["end"]) for row in codes] == [("ann-7", "declined")]


@pytest.mark.parametrize("size", [None, PHONE], ids=["desk", "phone"])
def test_researchers_see_everybody_and_act(browser: Browser, size: Any, tmp_path: Path) -> None:
    options = {} if size is None else {"viewport": size, "has_touch": True, "color_scheme": "dark"}
    with study(tmp_path) as served, people(browser, 4, **options) as [researcher, ann, bob, cem]:
        page = researcher.page
        page.goto(served.entrance)
        page.wait_for_url("**/dashboard")
        page.get_by_role("link", name="Experiment").click()
        page.get_by_text("Nobody has come yet.").wait_for()
        check(page)
        for person in (ann, bob):
            read(person.page, served.link)
        cem.page.goto(served.link)
        cem.page.get_by_role("button", name="I agree").wait_for()
        page.get_by_text("1 of 2, playing").wait_for()
        page.get_by_text("reading: consent").wait_for()
        check(page)
        page.get_by_label("Text").fill("Please <b>wait</b>.")
        page.get_by_role("button", name="Send").click()
        for person in (ann, bob, cem):
            person.page.get_by_text("Please <b>wait</b>.").wait_for()
        page.get_by_role("row", name=re.compile("reading: consent")).get_by_role("button").click()
        cem.page.get_by_text("Those who run this study have ended it for you.").wait_for()
        page.get_by_role("button", name="End group 1").click()
        for person in (ann, bob):
            heading(person.page, "Two questions").wait_for()
        page.get_by_role("button", name="Close the waiting room").click()
        page.get_by_text("the waiting room is closed").wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="Export the data").click()
        assert download.value.suggested_filename == "meeting.zip"
        with zipfile.ZipFile(download.value.path()) as archive:
            assert {"participants.csv", "codebook.md"} < set(archive.namelist())


def test_a_researcher_plays_an_agent(browser: Browser, tmp_path: Path) -> None:
    """From a link on the researchers' page, which is for nobody else; people see nothing of it."""
    with study(tmp_path) as served, people(browser, 3) as [researcher, ann, bob]:
        served.stop()
        file = tmp_path / "experiment.yaml"
        file.write_text(re.sub(r"robot: coordination:\w+", "robot: wizard", file.read_text()))
        served.start()
        page = researcher.page
        page.goto(served.entrance)
        page.wait_for_url("**/dashboard")
        page.goto(f"{served.origin}/experiment/")
        for person in (ann, bob):
            read(person.page, served.link)
        link = page.get_by_role("link", name="Play robot of group 1")
        link.wait_for()
        check(page)
        assert ann.page.request.get(f"{served.origin}/experiment/wizard/1/robot").status == 401
        assert researcher.page.request.get(f"{served.origin}/experiment/wizard/1/ann").status == 404
        with researcher.context.expect_page() as opened:
            link.click()
        seat = opened.value
        choose(seat, "station")
        for person in (ann, bob):
            choose(person.page, "station")
        for person in (ann, bob):
            person.page.get_by_text("robot went to the station.").wait_for()
            assert person.page.get_by_label("Your group").inner_text().count("here") == 2
        page.get_by_text("(somebody plays)").wait_for()
        seat.close()
        page.get_by_text("(the page is gone; the trial waits)").wait_for()
        # After the grace a bot plays, and nobody waits any longer.
        page.get_by_text("(a bot plays)").wait_for()
        for person in (ann, bob):
            choose(person.page, "park")
        for person in (ann, bob):
            person.page.get_by_text("Round 3 of 5.").wait_for()


# Pages of one's own


def own(person: Person) -> FrameLocator:
    """Return the page of one's own that is in somebody's page."""
    return person.page.frame_locator("iframe.renderer")


def check_frame(person: Person) -> None:
    """See that a page of one's own is as wide as the screen, as high as what is in it, and for everybody."""
    page = person.page
    check(page)
    [frame] = [each for each in page.frames if each.parent_frame is not None]
    check(frame)
    page.wait_for_function("() => document.querySelector('iframe.renderer').style.height !== ''")


def at_the_canvas(person: Person, place: int) -> None:
    frame = own(person)
    frame.get_by_text("Where do you go?").wait_for()
    canvas = frame.locator("canvas")
    canvas.evaluate("each => { each.addEventListener('click', () => { each.dataset.hit = 'yes'; }, { once: true }); }")
    # The page around it may move at that moment, as its height follows the text: then people click again, too.
    for _ in range(3):
        box = canvas.bounding_box()
        assert box is not None
        canvas.click(position={"x": box["width"] * (place + 0.5) / 3, "y": box["height"] / 2})
        if canvas.evaluate("each => { const hit = each.dataset.hit; delete each.dataset.hit; return hit; }"):
            return
    raise AssertionError("the canvas is not where it can be clicked")


def at_the_drawing(person: Person, place: int) -> None:
    frame = own(person)
    frame.get_by_text("Your turn.").wait_for()
    frame.get_by_role("button", name=PLACES[place]).click()


@pytest.mark.parametrize("size", [None, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize(("page", "choose_there"), [("canvas", at_the_canvas), ("drawing", at_the_drawing)])
def test_a_game_on_a_page_of_ones_own(
    browser: Browser, page: str, choose_there: Callable[[Person, int], None], size: Any, tmp_path: Path
) -> None:
    """From the consent to the code, with nothing of the generated page around it."""
    options = {} if size is None else {"viewport": size, "has_touch": True}
    with study(tmp_path / "study", page) as served, people(browser, **options) as [ann, bob]:
        for person in (ann, bob):
            read(person.page, served.link)
        for trial in range(2):
            for number in range(5):
                for person in (ann, bob):
                    choose_there(person, number % 3)
                if (trial, number) == (0, 1):
                    own(ann).locator("main").wait_for()
                    check_frame(ann)
                    assert ann.page.get_by_text("Your action").count() == ann.page.get_by_text("Messages").count() == 0
                    ann.page.reload()  # the page of one's own shows what there is, as the generated one does
            ann.page.get_by_role("button", name="Go on").wait_for()
            check_frame(ann)
            see_the_end([ann, bob])
            if trial == 0:
                for person in (ann, bob):
                    heading(person.page, "Once more").wait_for()
                    person.page.get_by_role("button", name="Continue").click()
        for person in (ann, bob):
            questionnaire(person.page)
            person.page.get_by_text("MEET-OK").wait_for()
            assert person.origins == {served.origin}
        served.stop()
        tables = served.tables()
    for row in tables["participants"]:
        assert (row["end"], row["actions"]) == ("complete", "10")
    assert [row["action"] for row in tables["actions"]] == [str(k % 3) for k in range(5) for _ in range(2)] * 2


@pytest.mark.parametrize("size", [None, PHONE], ids=["desk", "phone"])
def test_a_chat_with_an_agent(browser: Browser, size: Any, tmp_path: Path) -> None:
    options = {} if size is None else {"viewport": size, "has_touch": True}
    with study(tmp_path / "study", "chat") as served, people(browser, 1, **options) as [ann]:
        ann.page.goto(served.link)
        ann.page.get_by_role("button", name="I agree").click()
        frame = own(ann)
        for number in range(4):
            frame.get_by_label("Your message").fill(f"I am fine, {number} times: <b>good</b>")
            frame.get_by_role("button", name="Send").click()
            if number < 3:
                frame.get_by_text(f"You said: I am fine, {number} times: <b>good</b> Why is that?").wait_for()
            if number == 0:
                check_frame(ann)
        see_the_end([ann])
        ann.page.get_by_label("7", exact=True).check()
        ann.page.get_by_role("button", name="Continue").click()
        ann.page.get_by_text("TALK-OK").wait_for()
        served.stop()
        tables = served.tables()
    assert [row["end"] for row in tables["participants"]] == ["complete"]
    said = [json.loads(row["action"]) for row in tables["actions"]]
    assert said == [f"I am fine, {number} times: <b>good</b>" for number in range(4)]


MODULE_PAGE = """<!doctype html><html lang="en"><title>all of it</title>
<main><p id="told"></p><button>go</button></main>
<script type="module">
import { connect } from "trio-cogment";
const told = [];
const note = (text) => { told.push(text); document.querySelector("#told").textContent = told.join("; "); };
const game = connect({
  seen({ tick, asked, observation }) {
    note(`${game.role} ${tick} ${asked} ${JSON.stringify(observation)} ${game.secondsLeft() > 50}`);
  },
  members(members) {
    note(members.map(({ role, you, state }) => `${role} ${you ? "me" : "other"} ${state}`).join(", "));
  },
  message: ({ from, text }) => note(`${from} says ${text}`),
  refused: (reason) => note(`refused: ${reason}`),
});
document.querySelector("button").onclick = () => {
  if (!game.act("nonsense")) note("not asked");
  game.say("hello", game.receivers[0]);
};
</script>"""


def test_all_that_the_module_offers(browser: Browser, tmp_path: Path) -> None:
    """Role, time, presence, messages, and what is refused."""
    folder = tmp_path / "study"
    with study(folder) as served, people(browser) as [ann, bob]:
        served.stop()
        (folder / "own.html").write_text(MODULE_PAGE)
        text = (folder / "experiment.yaml").read_text()
        own_page = "    page: own.html\n    show: []\n    talk: true\n    action_seconds: 60\n"
        (folder / "experiment.yaml").write_text(
            text.replace("    roles: swap\n", "").replace("    show: [members, roles, actions]\n", own_page)
        )
        served.start()
        for person in (ann, bob):
            read(person.page, served.link)
        told = own(ann).locator("#told")
        own(ann).get_by_text("ann 0 true [3,3,3] true").wait_for()
        own(ann).get_by_text("ann me here, bob other here").wait_for()
        own(ann).get_by_role("button", name="go").click()
        own(ann).get_by_text("refused: action: ").wait_for()
        own(bob).get_by_text("ann says hello").wait_for()
        bob.page.close()
        own(ann).get_by_text("ann me here, bob other away").wait_for()
        assert told.inner_text().count("ann 0 true") >= 1
