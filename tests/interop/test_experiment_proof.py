"""The long proof of experiments: 24 participants in 8 groups of two people and an agent, in Chromium, over TLS.

Each browser keeps a record of its own of what the person has done. In the end the exported tables must agree with it.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.interop.test_experiment_page import (
    PLACES,
    ROUNDS,
    Study,
    browser,
    choose,
    heading,
    questionnaire,
    read,
    see_the_end,
)
from tests.interop.test_play_page import Person, people
from trio_cogment import rl as tc
from trio_cogment.access.tokens import KEY_BYTES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.soak, pytest.mark.timeout(900)]

__all__ = ["browser"]  # the fixture

GROUPS = 8
LOST_SECONDS = 20
GRACE_SECONDS = 60
#: Keeps what the page sends, and who it is told that it is, through reloads and in all tabs of a browser.
RECORD = """
const kept = () => JSON.parse(localStorage.getItem("record") ?? '{"said": [], "id": ""}');
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  const record = kept();
  const message = JSON.parse(new TextDecoder().decode(data));
  if (this.readyState === WebSocket.OPEN && message.type !== "ping") record.said.push(message);
  localStorage.setItem("record", JSON.stringify(record));
  if (!this.watched) {
    this.watched = true;
    this.addEventListener("message", (event) => {
      const size = new DataView(event.data).getUint32(0);
      const told = JSON.parse(new TextDecoder().decode(new Uint8Array(event.data, 4, size)));
      if (told.type === "experiment" && told.id) {
        const record = kept();
        record.id = told.id;
        localStorage.setItem("record", JSON.stringify(record));
      }
    });
  }
  return send.call(this, data);
};
"""


class Line:
    """A line to the server that can be lost: its connections are cut, and there are no new ones."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._works = True
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self) -> int:
        """Cut the line; return how many connections it had."""
        self._works = False
        cut = list(self._open)
        for each in cut:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(cut) // 2

    def restore(self) -> None:
        self._works = True

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                there, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(there,), daemon=True).start()

    def _serve(self, there: socket.socket) -> None:
        with suppress(OSError), closing(there):
            if not self._works:
                return
            with closing(socket.create_connection(("127.0.0.1", self._to_port))) as here:
                ends = {there, here}
                self._open |= ends
                back = threading.Thread(target=self._pass_on, args=(here, there), daemon=True)
                back.start()
                self._pass_on(there, here)
                back.join()
                self._open -= ends

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


@contextmanager
def encrypted_study(folder: Path) -> Iterator[Study]:
    """Have the example be served with TLS and tokens."""
    secrets = folder / "secrets"
    secrets.mkdir(parents=True)
    certificate = trustme.CA().issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(str(secrets / "key.pem"))
    (secrets / "chain.pem").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
    flags = ["--auth=token", f"--auth_secret_file={secrets / 'secret'}"]
    flags += [f"--private_key={secrets / 'key.pem'}", f"--trust_chain={secrets / 'chain.pem'}"]
    (secrets / "secret").write_text(f"{bytes(range(KEY_BYTES)).hex()}\n")
    (secrets / "secret").chmod(0o600)
    made = Study(folder / "study", "", *flags, grace_seconds=GRACE_SECONDS)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def play(persons: list[Person], rounds: range) -> None:
    for number in rounds:
        for person in persons:
            person.page.get_by_text(re.compile(rf"Round {number + 1} of {ROUNDS}\.")).wait_for()
            choose(person.page, PLACES[number % 3])
    if rounds.stop == ROUNDS:
        see_the_end(persons)


def record_of(person: Person) -> tuple[str, list[dict[str, Any]]]:
    """Return who a browser was told that it is, and what it has sent."""
    found = json.loads(person.page.evaluate("localStorage.getItem('record')"))
    return found["id"], found["said"]


def test_24_participants_come_and_go_and_nothing_is_lost(browser: Browser, tmp_path: Path) -> None:
    """Six reload, three close their tabs for good, two open second ones, one loses the network for 20 s, and the server
    is stopped and started between trials.
    """
    with (
        encrypted_study(tmp_path) as served,
        people(browser, 2 * GROUPS, ignore_https_errors=True) as everybody,
    ):
        assert served.link.startswith("https://")
        line = Line(int(re.findall(r":(\d+)/", served.link)[0]))
        for person in everybody:
            person.context.add_init_script(RECORD)
            person.context.set_default_timeout(90_000)
            person.page.set_default_timeout(90_000)
        groups = [everybody[2 * k : 2 * k + 2] for k in range(GROUPS)]
        lost = groups[4][0]
        for group in groups:
            for person in group:
                read(
                    person.page, served.link if person is not lost else re.sub(r":\d+/", f":{line.port}/", served.link)
                )
            for person in group:
                person.page.get_by_text("Your action").wait_for()
        for group in groups:
            play(group, range(2))
        for person in (*groups[0], *groups[1], *groups[2]):
            person.page.reload()
        for person in groups[3]:
            second = person.new_page()
            second.set_default_timeout(90_000)
            second.goto(served.link)
            person.page.get_by_text("You go on in another window").wait_for()
            person.page.close()
            person.page = second
        records = [record_of(group[0]) for group in groups[5:]]
        for group in groups[5:]:
            group[0].page.close()
        # Cut while the group plays: the other one acts, sees the time run down, and the trial waits.
        assert line.lose() >= 2  # the page's, and the seat's
        lost_at, beside = time.monotonic(), groups[4][1].page
        lost.page.get_by_text("connection lost").first.wait_for()
        beside.get_by_text("away, back within").wait_for()
        beside.get_by_text(re.compile(rf"Round 3 of {ROUNDS}\.")).wait_for()
        choose(beside, PLACES[2])
        for group in groups[:4]:
            play(group, range(2, ROUNDS))
        lost.page.wait_for_timeout(max(1000 * (LOST_SECONDS - (time.monotonic() - lost_at)), 0))
        beside.get_by_text("away, back within").wait_for()
        beside.get_by_text(re.compile(rf"Round 3 of {ROUNDS}\.")).wait_for()
        line.restore()
        lost.page.get_by_text("connection lost").first.wait_for(state="detached")
        beside.get_by_text("away, back within").wait_for(state="detached")
        choose(lost.page, PLACES[2])
        play(groups[4], range(3, ROUNDS))
        for group in groups[5:]:
            questionnaire(group[1].page)
            group[1].page.get_by_text("MEET-PART").wait_for()
        for group in groups[:5]:
            for person in group:
                heading(person.page, "Once more").wait_for()
        served.stop()
        served.start()
        for group in groups[:5]:
            for person in group:
                person.page.get_by_text("connection lost").wait_for(state="detached")
                person.page.get_by_role("button", name="Continue").click()
        for group in groups[:5]:
            play(group, range(ROUNDS))
        for group in groups[:5]:
            for person in group:
                questionnaire(person.page)
                person.page.get_by_text("MEET-OK").wait_for()
        gone, closed = [group[0] for group in groups[5:]], {who for who, _ in records}
        who_lost, changed = record_of(lost)[0], {record_of(person)[0] for person in groups[3]}
        records += [record_of(person) for person in everybody if person not in gone]
        served.stop()
        line.close()
        assert set.union(*(person.origins for person in everybody if person is not lost)) == {served.origin}
        assert lost.origins == {f"https://localhost:{line.port}"}
        tables = served.tables()
    agree(tables, dict(records))
    for who in closed:
        assert ways(tables, who) == ["page opened", "page closed"]
    assert {who for who in dict(records) if "tab changed" in ways(tables, who)} == changed
    # Its connections were cut once in the first trial, and the server was stopped once.
    first, *_ = [
        row["trial_id"] for row in tables["events"] if row["event"] == "seat" and row["participant"] == who_lost
    ]
    states = [
        json.loads(row["detail"])["state"]
        for row in tables["events"]
        if (row["event"], row["participant"], row["trial_id"]) == ("presence", who_lost, first)
    ]
    assert states[-4:] == ["held", "away", "held", "over"]
    assert ways(tables, who_lost)[:3] == ["page opened", "page closed", "reconnected"]
    assert ways(tables, who_lost).count("reconnected") == 2
    replayed = tc.replay_environment(tmp_path / "study" / "data" / "trials")
    assert sorted(replayed.agents) == ["ann", "bob", "robot"]


def ways(tables: dict[str, list[dict[str, str]]], who: str) -> list[str]:
    """Return how the pages of somebody came and went."""
    kinds = ("page opened", "tab changed", "reconnected", "page closed")
    return [row["event"] for row in tables["events"] if row["participant"] == who and row["event"] in kinds]


def agree(tables: dict[str, list[dict[str, str]]], records: dict[str, list[dict[str, Any]]]) -> None:
    """See that the tables say what the browsers have recorded, each thing once."""
    rows = tables["participants"]
    assert {row["participant"] for row in rows} == records.keys()
    assert len(rows) == len(records) == 2 * GROUPS
    assert Counter(row["end"] for row in rows) == {"complete": 10, "gone": 3, "partial": 3}
    # Nobody is in two places, and each place has somebody.
    places = Counter((row["group"], row["place"]) for row in rows)
    assert places == Counter((str(group), str(place)) for group in range(1, GROUPS + 1) for place in (1, 2))
    events = tables["events"]
    seats = [json.loads(row["detail"]) | row for row in events if row["event"] == "seat"]
    assert max(Counter((seat["participant"], seat["trial_id"]) for seat in seats).values()) == 1
    assert max(Counter((seat["actor"], seat["trial_id"]) for seat in seats).values()) == 1
    assert len(seats) == 10 * 2 + 6
    # What happens once to everybody is there once.
    ends = {row["participant"]: row["end"] for row in rows}
    for what in ("came", "out", "waiting", "grouped"):
        assert Counter(row["participant"] for row in events if row["event"] == what) == dict.fromkeys(records, 1), what
    trials = Counter(row["participant"] for row in events if row["event"] == "playing")
    assert trials == {who: 2 if end == "complete" else 1 for who, end in ends.items()}
    for who, said in records.items():
        of = [row for row in events if row["participant"] == who]
        # Each connection, as what it was: a page that came back, another tab, or a page that was loaded (again).
        entered = [message for message in said if message["type"] == "enter"]
        back, tabs = sum(message["again"] for message in entered), len({message["tab"] for message in entered})
        came = Counter(ways(tables, who))
        assert (came["reconnected"], came["tab changed"]) == (back, tabs - 1)
        assert came["page opened"] == len(entered) - back - (tabs - 1)
        # Each page that was done, with the time at the page.
        turns = [message for message in said if message["type"] == "turn"]
        sent = [json.loads(row["detail"]) for row in of if row["event"] == "sent"]
        assert [(each["page"], each["page_ms"]) for each in sent] == [(each["page"], each["at"]) for each in turns]
        answers = {
            (row["page"], row["question"]): row["answer"] for row in tables["answers"] if row["participant"] == who
        }
        assert answers == {
            (turn["page"], name): str(value) for turn in turns for name, value in turn["answers"].items()
        }
        # Each action, with its tick and its time at the page.
        actions = [
            (int(row["tick"]), json.loads(row["action"]), float(row["page_ms"]))
            for row in tables["actions"]
            if row["participant"] == who
        ]
        acted = [(each["tick"], each["action"], each["at"]) for each in said if each["type"] == "act"]
        assert actions == acted
        counted = [row for row in tables["actions"] if row["participant"] == who and row["late"] == "false"]
        assert len({(row["trial_id"], row["tick"]) for row in counted}) == len(counted)
        assert len(counted) == {"complete": 2 * ROUNDS, "gone": 2, "partial": 2}[ends[who]]
    answered = Counter((row["participant"], row["question"]) for row in tables["answers"])
    assert set(answered.values()) == {1}
