"""The data of an experiment as tables: participants, answers, events, actions and trials as CSV, and a codebook.

Each row of `answers` is one answer, and each of `actions` one action, so both can be filtered and pivoted as one likes.
`participants` has a column for each question and each parameter of the links as well. Files are UTF-8 with a header,
as RFC 4180 has them; what is not there is an empty cell, truth values are `true` and `false`, times are nanoseconds
since the epoch.

A text that a person has typed may begin with `=`, which spreadsheets take for a formula. It is data here, and written
as it is: open these files with pandas or R, or import them into a spreadsheet as text.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trio_cogment.experiment.definition import PARAMETER_COLUMN, PARTICIPANT_COLUMNS, Experiment, PagePlan, Question
from trio_cogment.experiment.store import Event, ExperimentStore

_ANSWERS = {
    "participant": "id of the participant",
    "time_ns": "when the server got it; nanoseconds since the epoch, as in samples of trials",
    "page": "name of the page",
    "question": "name of the question",
    "answer": "a text, a number, true or false; several choices as JSON",
    "right": "for checks: whether it is the right answer",
    "attempt": "for pages with checks: which attempt was taken, from 1; events `check failed` have those before it",
}
_EVENTS = {
    "time_ns": "when the server saw it; nanoseconds since the epoch, as in samples of trials",
    "participant": "id of the participant; empty: it is about a group or the server",
    "group": "number of the group",
    "event": "kind of the event",
    "page": "name of the page, for events about one",
    "trial": "number of the trial in the file, from 1",
    "trial_id": "id of the trial, as in the trials' tables",
    "detail": "everything that is known of it, as JSON",
}
_ACTIONS = {
    "participant": "id of the participant",
    "group": "number of the group",
    "condition": "of the group",
    "trial": "number of the trial in the file, from 1",
    "trial_id": "id of the trial, as in the trials' tables",
    "actor": "the agent whom the participant plays",
    "tick": "of the observation that was answered",
    "action": "as JSON",
    "time_ns": "when the server got it; nanoseconds since the epoch, as in samples of trials",
    "page_ms": "the same by the clock of the page; milliseconds since the epoch",
    "latency_ms": "how long an answer of the server took, as the page has measured it last",
    "late": "true: it came too late, and did not count",
}
_TRIALS = {
    "trial_id": "id of the trial",
    "trial": "number of the trial in the file, from 1",
    "name": "of the trial in the file",
    "environment": "as the file names it",
    "arguments": "with which the environment is made in this condition, as JSON",
    "bots": "the agents that are named in the file, and who plays them in this condition, as JSON",
    "condition": "of the group",
    "group": "number of the group",
    "started_ns": "when the server has started it; nanoseconds since the epoch",
}
#: Calls that read a table as it is, in pandas and in R.
READING = (
    'pd.read_csv("participants.csv", dtype={"participant": str}, keep_default_na=False, na_values=[""])',
    'read.csv("participants.csv", colClasses=c(participant="character"), na.strings="", check.names=FALSE)',
)
#: Columns of the steps of trials, as `rl export` writes them.
_STEPS = {
    "trial_id": "id of the trial",
    "episode_index": "number of the trial in the data set, from 0",
    "tick": "number of the tick",
    "actor": "the agent",
    "actor_class": "as the API has it",
    "implementation": "the program that has played the agent",
    "is_human": "true: a person played, and no bot or default action was in the person's place",
    "observation": "what the agent was shown; of an environment with several parts `observation.PART`",
    "action": "what it did; `action.PART` likewise; empty: nothing",
    "reward": "for the action, told in the next tick; empty in the last step",
    "terminated": "with the action the task has ended for the agent",
    "truncated": "with the action the agent, or the trial, was cut off",
    "action_mask": "which actions were allowed, if the environment says so; `action_mask.PART` likewise",
    "timestamp_ns": "when the tick began; nanoseconds since the epoch",
    "policy": "the model and its version, if a stored model has played",
    "is_first": "the first step of the agent",
    "is_last": "its last one, which has an observation alone",
    "is_terminal": "the last one, and the task has ended",
    "discount": "0: the task has ended; else 1",
    "active": "it was the agent's turn",
    "alive": "the agent took part still",
    "default_action": "the default action was taken, because none came in time",
    "held_action": "the action of before was taken again",
    "other_rewards": "those of others than the environment, people for example",
    "info": "of the environment, as JSON",
    "info_types": "types of arrays in it, as JSON",
}
#: What each kind of event says.
EVENT_KINDS = {
    "came": "somebody has come for the first time",
    "page opened": "a page was opened, or loaded again; width and height are those of the page in CSS pixels; "
    "parameters_left_out: those of the first link that were too long or too many to be kept",
    "tab changed": "a page was opened in another tab or window while one was open, and has taken over; as before",
    "reconnected": "a page whose connection was lost, or whose server was stopped, is there again; as before",
    "page closed": "the page is gone: closed, or its connection was lost",
    "page": "a page of the file is shown; after a trial it is seen once the person has gone on",
    "went on": "the person has seen how a trial has ended, or the time for it was over; page_ms as with sent",
    "sent": "the person is done with a page; page_ms is the time by the page's clock",
    "answered": "the answers of a page were taken",
    "check failed": "checks of a page were answered wrongly; `attempt` counts from 1, `answers` has all of the page",
    "waiting": "the participant waits for a group",
    "grouped": "the participant is in a group now",
    "preparing": "the participant is before a trial",
    "ready": "the participant is ready for the trial",
    "playing": "the trial has begun for the participant",
    "finishing": "the trials are over for the participant",
    "out": "the participant has come to an end",
    "seat": "the participant plays this actor in this trial",
    "presence": "where the person is in a trial: held (here), away, absent, left, over",
    "action": "an action in a trial; where that went on after a restart, some ticks are here twice: the last counts",
    "late": "an action that came too late",
    "stand-in": "a bot, or the default action, has acted for the person",
    "told": "a researcher's message was shown",
    "group": "a group was made",
    "group ended early": "somebody has left, a trial could not go on, or a researcher has ended it",
    "trial": "all members are ready, and the trial is started",
    "trial started": "the trial has this id; policies: the versions of stored models that play, by agent",
    "wizard": "a researcher who plays the agent `actor` did this: an action, presence, and so on",
    "trial over": "the trial has ended",
    "trial interrupted": "the server was stopped during the trial, which goes on as soon as everybody is back",
    "trial goes on": "it does: with this tick, as this attempt; ticks_lost: so many that were answered are asked again",
    "trial lost": "the server was stopped during the trial, which is played again from its beginning; reason: why",
    "waiting room closed": "by a researcher",
    "waiting room opened": "by a researcher",
    "server started": "stopped_seconds: for how long it was not there; nobody's time has run meanwhile",
    "server stopped": "in order",
}


def tables_of(experiment: Experiment, store: ExperimentStore) -> dict[str, bytes]:
    """Return the files of an export by their names: CSV, and `codebook.md`. It blocks.

    Args:
        experiment: the file: what was asked.
        store: what has happened; it is open.

    Raises:
        CogmentError: the file cannot be read.
    """
    return {
        "participants.csv": _csv(_participants(experiment, store)),
        "answers.csv": _csv(_answers(experiment, store)),
        "events.csv": _csv(_events(store)),
        "actions.csv": _csv(_actions(store)),
        "trials.csv": _csv(_trials(experiment, store)),
        "codebook.md": codebook(experiment, store).encode(),
    }


def zipped(files: dict[str, bytes]) -> bytes:
    """Return files as one ZIP file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def played_trials(store: ExperimentStore) -> list[str]:
    """Return the ids of all trials that have been started."""
    return list(dict.fromkeys(each.detail["trial_id"] for each in store.events("trial started")))


def _pages(experiment: Experiment) -> list[PagePlan]:
    return [*experiment.before, *(page for trial in experiment.trials for page in trial.pages), *experiment.after]


def _questions(experiment: Experiment) -> dict[str, Question]:
    return {question.name: question for page in _pages(experiment) for question in page.questions}


def _questions_of_before(experiment: Experiment, store: ExperimentStore) -> list[str]:
    questions = _questions(experiment)
    answered = (name for event in store.events("answered") for name in event.detail["answers"])
    return [name for name in dict.fromkeys(answered) if name not in questions]


def _parameters(store: ExperimentStore) -> list[str]:
    return list(dict.fromkeys(name for each in store.participants() for name in each.parameters))


def _participants(experiment: Experiment, store: ExperimentStore) -> Iterator[Sequence[Any]]:
    questions, parameters = list(_questions(experiment)), _parameters(store)
    yield [*PARTICIPANT_COLUMNS, *questions, *(f"{PARAMETER_COLUMN}{name}" for name in parameters)]
    conditions = {int(each["number"]): each["condition"] for each in store.groups()}
    seen: dict[str, dict[str, Any]] = {}
    for event in _counting(store):
        if event.participant:
            _count(seen.setdefault(event.participant, {}), event)
    for each in store.participants():
        data, found = each.data, seen.get(each.id, {})
        group = data["group"]
        yield [
            *(each.id, data["number"], data["step"], data["end"], conditions.get(group, ""), group),
            *(None if data["place"] is None else data["place"] + 1, data["trial"]),
            *(found.get("came"), found.get("out"), found.get("page opened", 0) + found.get("tab changed", 0)),
            *(found.get("tab changed", 0), found.get("reconnected", 0), found.get("action", 0)),
            *(_plain(found.get("answers", {}).get(name)) for name in questions),
            *(each.parameters.get(name) for name in parameters),
        ]


def _counting(store: ExperimentStore, *what: str) -> Iterator[Event]:
    """Yield events without the actions in ticks that were asked again when their trial went on.

    The server may write meanwhile.
    """
    again: dict[str, list[int]] = {}
    for event in store.events("trial goes on"):
        again.setdefault(event.detail["trial_id"], []).append(event.detail["tick"])
    for event in store.events(*what, "trial goes on") if what else store.events():
        ticks = again.get(event.detail.get("trial_id", ""), [])
        if event.what == "trial goes on":
            if not ticks:
                return  # it has gone on since those were read: this is of the time before, in which no action was again
            ticks.pop(0)
        if event.what in ("action", "late") and any(event.detail["tick"] >= tick_id for tick_id in ticks):
            continue
        if not what or event.what in what:
            yield event


def _count(found: dict[str, Any], event: Event) -> None:
    if event.what in ("came", "out"):
        found[event.what] = event.time_ns
    elif event.what in ("page opened", "tab changed", "reconnected", "action"):
        found[event.what] = found.get(event.what, 0) + 1
    elif event.what == "answered":
        found.setdefault("answers", {}).update(event.detail["answers"])


def _answers(experiment: Experiment, store: ExperimentStore) -> Iterator[Sequence[Any]]:
    questions = _questions(experiment)
    yield [*_ANSWERS]
    for event in store.events("answered"):
        checks = any(name in questions and questions[name].correct is not None for name in event.detail["answers"])
        for name, answer in event.detail["answers"].items():
            question = questions.get(name)
            is_check = question is not None and question.correct is not None
            right = question.is_right(answer) if question is not None and is_check else None
            attempt = event.detail["attempts"] if checks else None
            yield [
                *(event.participant, event.time_ns, event.detail["page"], name, _plain(answer)),
                *(_plain(right), attempt),
            ]


def _events(store: ExperimentStore) -> Iterator[Sequence[Any]]:
    yield [*_EVENTS]
    for event in store.events():
        detail = event.detail
        trial = detail.get("trial")
        yield [
            *(event.time_ns, event.participant, event.group, event.what, detail.get("page")),
            *(None if trial is None else trial + 1, detail.get("trial_id"), _json(detail)),
        ]


def _actions(store: ExperimentStore) -> Iterator[Sequence[Any]]:
    yield [*_ACTIONS]
    seats: dict[tuple[str, str], Mapping[str, Any]] = {}
    for event in _counting(store, "seat", "action", "late"):
        detail = event.detail
        key = event.participant, detail["trial_id"]
        if event.what == "seat":
            seats[key] = detail
            continue
        seat = seats.get(key, {})
        yield [
            *(event.participant, event.group, seat.get("condition"), detail["trial"] + 1, detail["trial_id"]),
            *(seat.get("actor"), detail["tick"], _json(detail["action"]), event.time_ns, detail["page_ms"]),
            *(detail["latency_ms"], _plain(event.what == "late")),
        ]


def _trials(experiment: Experiment, store: ExperimentStore) -> Iterator[Sequence[Any]]:
    yield [*_TRIALS]
    conditions = {int(each["number"]): each["condition"] for each in store.groups()}
    changes = {condition.name: condition.changes for condition in experiment.conditions}
    for event in store.events("trial started"):
        number, name = event.detail["trial"], conditions.get(event.group or 0, "")
        plan: list[Any] = [None] * 4
        # The file may have become another one.
        if number < len(experiment.trials) and name in changes:
            trial = experiment.trials[number]
            of = changes[name](trial.name)
            arguments, bots = {**trial.arguments, **of.arguments}, {**trial.bots, **of.bots}
            plan = [trial.name, trial.environment, _json(arguments), _json(bots)]
        yield [event.detail["trial_id"], number + 1, *plan, name, event.group, event.time_ns]


def _plain(value: Any) -> Any:
    """Return a value as a cell has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _json(value) if isinstance(value, list | dict) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def codebook(experiment: Experiment, store: ExperimentStore) -> str:
    """Return what each column is, as Markdown."""
    lines = [f"# {experiment.title}: codebook", ""]
    lines += [
        f"Experiment `{experiment.name}`. CSV files are UTF-8, with commas; an empty cell is what is not there.",
        "Ids and answers are texts, also where they look like numbers (`007`) or like nothing (`NA`):",
        "",
        *(f"    {call}" for call in READING),
        "",
    ]
    for name, columns in (
        ("participants", PARTICIPANT_COLUMNS),
        ("answers", _ANSWERS),
        ("events", _EVENTS),
        ("actions", _ACTIONS),
        ("trials", _TRIALS),
    ):
        lines += [f"## {name}.csv", "", "| column | meaning |", "|---|---|"]
        lines += [f"| `{column}` | {meaning} |" for column, meaning in columns.items()]
        if name == "participants":
            lines += [
                f"| `{each.name}` | {_cell(each.ask)} ({_values(each)}) |" for each in _questions(experiment).values()
            ]
            lines += [
                f"| `{PARAMETER_COLUMN}{_cell(each)}` | the parameter `{_cell(each)}` of the link |"
                for each in _parameters(store)
            ]
            gone = _questions_of_before(experiment, store)
            if gone:
                names = ", ".join(f"`{_cell(each)}`" for each in gone)
                lines += ["", f"Not in the file any more, so only in `answers.csv`: {names}."]
        if name == "events":
            lines += ["", "| event | meaning |", "|---|---|"]
            lines += [f"| {kind} | {meaning} |" for kind, meaning in EVENT_KINDS.items()]
        lines.append("")
    lines += [
        "## trials/data",
        "",
        "Parquet files with a row for each tick and actor, if the trials were exported. If agents or environments have",
        "observations or actions of several forms, those of each form are in a folder of its own: `data/group-0`, or a",
        "name that the actors have in common. `meta/trials.parquet` has a row for each trial.",
        "",
        "| column | meaning |",
        "|---|---|",
        *(f"| `{column}` | {meaning} |" for column, meaning in _STEPS.items()),
        "",
    ]
    lines += ["## Conditions", "", "| condition | trial | arguments | bots |", "|---|---|---|---|"]
    for condition in experiment.conditions:
        for trial in experiment.trials:
            of = condition.changes(trial.name)
            values = (_cell(_json(dict(each))) for each in (of.arguments, of.bots))
            lines.append(f"| {condition.name} | {trial.name} | {' | '.join(f'`{each}`' for each in values)} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _values(question: Question) -> str:
    if question.options:
        several = "JSON list of " if question.kind == "choices" else ""
        return f"{several}{', '.join(map(_cell, question.options))}"
    if question.kind == "scale":
        ends = f": {' to '.join(map(_cell, question.labels))}" if question.labels else ""
        return f"{question.low:g} to {question.high:g}{ends}"
    return {"yes_no": "true, false", "number": "a number"}.get(question.kind, "text")
