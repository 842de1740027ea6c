"""The tables of an experiment, read back with the standard library; `tests/rl_peers` has pandas."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiment.plans import plan
from tests.experiment.test_experiment_file import EXAMPLE
from trio_cogment.base.errors import NotFoundError
from trio_cogment.experiment.experiment_file import load_experiment
from trio_cogment.experiment.machine import ExperimentMachine, Happened
from trio_cogment.experiment.store import Batch, Event, ExperimentStore, StoredParticipant, opened_store, trials_of
from trio_cogment.experiment.tables import _counting, played_trials, tables_of

PERSON = {"number": 1, "step": "out", "end": "complete", "group": 1, "place": 0, "trial": 2, "page": 0}
NASTY = 'a "quoted" text,\nwith lines, é and =SUM(A1)'


@pytest.fixture
def store(tmp_path: Path) -> ExperimentStore:
    with opened_store(tmp_path / "x.db", "meeting") as opened:
        seat = {"trial": 0, "trial_id": "t1", "actor": "ann", "condition": "follows"}
        action = {"trial": 0, "trial_id": "t1", "tick": 3, "action": {"a": 1}, "page_ms": 5.5, "latency_ms": None}
        opened.write(
            Batch(
                meta={"name": "meeting"},
                participants={"ann": StoredParticipant("ann", "ticket", {"PID": "7"}, PERSON)},
                groups={1: {"number": 1, "condition": "follows", "members": ["ann", None]}},
                events=[
                    Event(1, "ann", "came"),
                    Event(2, "ann", "page opened", None, {"width": 390}),
                    Event(3, "ann", "answered", None, {"page": "check", "answers": {"rule": "Always"}, "attempts": 2}),
                    Event(4, "ann", "tab changed"),
                    Event(5, "", "trial started", 1, {"trial": 0, "trial_id": "t1"}),
                    Event(6, "ann", "seat", 1, seat),
                    Event(7, "ann", "action", 1, action),
                    Event(8, "ann", "late", 1, action),
                    Event(
                        9,
                        "ann",
                        "answered",
                        1,
                        {"page": "questionnaire", "answers": {"human": 5, "remarks": NASTY}, "attempts": 1},
                    ),
                    Event(10, "ann", "out", 1, {"end": "complete"}),
                ],
            )
        )
    return ExperimentStore(tmp_path / "x.db")


def read(store: ExperimentStore) -> tuple[dict[str, list[dict[str, str]]], str]:
    with opened_store(store.path, "meeting") as opened:
        files = tables_of(load_experiment(EXAMPLE), opened)
    found = {
        name.removesuffix(".csv"): list(csv.DictReader(io.StringIO(content.decode(), newline="")))
        for name, content in files.items()
        if name.endswith(".csv")
    }
    return found, files["codebook.md"].decode()


def test_each_table(store: ExperimentStore) -> None:
    found, codebook = read(store)
    [person] = found["participants"]
    assert (person["participant"], person["condition"], person["place"], person["link_PID"]) == (
        "ann",
        "follows",
        "1",
        "7",
    )
    assert (person["came_ns"], person["out_ns"], person["pages_opened"], person["tab_changes"]) == ("1", "10", "2", "1")
    assert (person["rule"], person["human"], person["remarks"], person["actions"]) == ("Always", "5", NASTY, "1")
    assert [(row["question"], row["right"], row["attempt"]) for row in found["answers"]] == [
        ("rule", "false", "2"),
        ("human", "", ""),
        ("remarks", "", ""),
    ]
    first, late = found["actions"]
    assert (first["actor"], first["tick"], json.loads(first["action"]), first["late"]) == (
        "ann",
        "3",
        {"a": 1},
        "false",
    )
    assert (late["late"], late["latency_ms"], late["trial"]) == ("true", "", "1")
    assert len(found["events"]) == 10
    assert json.loads(found["events"][1]["detail"]) == {"width": 390}
    for name, rows in found.items():
        section = codebook.partition(f"## {name}.csv")[2].partition("\n## ")[0]
        for column in rows[0]:
            assert f"| `{column}` |" in section


@pytest.mark.parametrize(
    ("attempts", "failed", "given", "attempt", "end"),
    [
        (2, "out", ["b", "a"], "2", "waiting"),
        (2, "out", ["b", "b"], "2", "screened"),
        (1, "on", ["b"], "1", "waiting"),
        (2, "on", ["b", "b"], "2", "waiting"),
        (1, "out", ["a"], "1", "waiting"),
    ],
)
def test_attempts_at_a_check(
    attempts: int, failed: str, given: list[str], attempt: str, end: str, tmp_path: Path
) -> None:
    """From the machine to the table: the one that was taken, and the answers of each wrong one in the events."""
    experiment = plan()
    experiment = replace(experiment, before=[replace(experiment.before[1], attempts=attempts, failed=failed)])
    machine = ExperimentMachine(experiment)
    effects = machine.come("ann", 0)
    for answer in given:
        effects += machine.answer("ann", "check", {"rule": answer}, True, 1)
    assert (machine.people["ann"].end or machine.people["ann"].step.value) == end
    happened = [each for each in effects if isinstance(each, Happened)]
    kept = StoredParticipant("ann", "ticket", {}, machine.people["ann"].to_data())
    batch = Batch(
        participants={"ann": kept}, events=[Event(1, e.id, e.what, e.group, dict(e.detail)) for e in happened]
    )
    with opened_store(tmp_path / "x.db", "test") as opened:
        opened.write(batch)
        files = tables_of(experiment, opened)
    found = {
        name: list(csv.DictReader(io.StringIO(files[f"{name}.csv"].decode(), newline="")))
        for name in ("answers", "events")
    }
    [row] = found["answers"]
    right = given[-1] == "a"
    assert (row["answer"], row["right"], row["attempt"]) == (given[-1], str(right).lower(), attempt)
    wrong = [json.loads(row["detail"]) for row in found["events"] if row["event"] == "check failed"]
    assert [(each["attempt"], each["answers"]) for each in wrong] == [
        (number, {"rule": answer}) for number, answer in enumerate(given, 1) if answer == "b"
    ]


def test_actions_that_are_asked_again_count_once_also_if_that_happens_meanwhile(store: ExperimentStore) -> None:
    """Researchers load the tables down while the server writes."""

    def of(time_ns: int, what: str, tick: int) -> Event:
        return Event(time_ns, "ann" if what == "action" else "", what, 1, {"trial": 0, "trial_id": "t1", "tick": tick})

    goes_on = of(11, "trial goes on", 3), of(12, "action", 3)
    seen: list[list[int]] = []

    class Written(ExperimentStore):
        def events(self, *what: str) -> Iterator[Event]:
            yield from list(super().events(*what))
            if what == ("trial goes on",) and not seen:
                self.write(Batch(events=list(goes_on)))

    with closing(Written(store.path)) as opened:
        opened.open()
        for _ in range(2):
            seen.append([event.time_ns for event in _counting(opened, "action")])
    assert seen == [[7], [12]]


def test_the_codebook_says_which_questions_are_gone_and_takes_any_parameter(store: ExperimentStore) -> None:
    experiment = load_experiment(EXAMPLE)
    with opened_store(store.path, "meeting") as opened:
        odd = StoredParticipant("bob", "other", {"a|b\nc": "1"}, PERSON | {"number": 2})
        opened.write(Batch(participants={"bob": odd}))
        text = tables_of(replace(experiment, after=[]), opened)["codebook.md"].decode()
    assert "only in `answers.csv`: `human`, `remarks`." in text
    assert "| `link_a\\|b c` | the parameter `a\\|b c` of the link |\n" in text


def test_trials(store: ExperimentStore) -> None:
    with opened_store(store.path, "meeting") as opened:
        assert played_trials(opened) == trials_of(opened, "ann") == ["t1"]
        with pytest.raises(NotFoundError, match="no participant 'bob'"):
            trials_of(opened, "bob")
