"""Experiment files: what they may say, and what is said about what they may not."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.errors import EnvironmentFailedError
from trio_cogment.experiment.definition import (
    ENDS,
    PARTICIPANT_COLUMNS,
    Changes,
    Condition,
    Dropout,
    Experiment,
    PagePlan,
    People,
    Question,
    TrialPlan,
    Waiting,
)
from trio_cogment.experiment.experiment_file import load_experiment
from trio_cogment.experiment.texts import Texts
from trio_cogment.experiment.trials import ExperimentTrials

EXAMPLE = Path(__file__).parents[2] / "examples" / "experiment" / "experiment.yaml"
TRIALS = "trials:\n  - environment: CartPole-v1\n"


def read(tmp_path: Path, text: str) -> Experiment:
    path = tmp_path / "My study.yaml"
    path.write_text(text)
    return load_experiment(path)


def test_the_example() -> None:
    found = load_experiment(EXAMPLE)
    assert found.name == "meeting"
    assert [page.kind for page in found.before] == ["consent", "text", "questions"]
    assert found.before[2].attempts == 2
    assert found.before[2].questions[0].correct == "If all three choose the same place"
    assert [condition.bots for condition in found.conditions] == [
        {"robot": "coordination:follower"},
        {"robot": "coordination:stubborn"},
    ]
    assert found.trials[1].roles == "swap"
    assert found.trials[0].arguments == {"rounds": 5, "render_mode": "ansi"}
    assert [page.name for page in found.pages_of(1, "follows")] == ["again"]
    assert [page.name for page in found.pages_of(2, "follows")] == ["questionnaire"]
    assert found.end("complete").code == "MEET-OK"
    assert found.end("left").text == ENDS["left"]


def test_what_a_short_file_means(tmp_path: Path) -> None:
    found = read(tmp_path, TRIALS)
    assert (found.name, found.title) == ("my-study", "my-study")
    assert [condition.name for condition in found.conditions] == ["all"]
    assert found.trials[0].name == "trial-1"
    assert found.trials[0].action_seconds == math.inf
    assert found.participants == People()


_OF_TRIALS = ("action_seconds", "end_seconds", "roles")


def test_the_page_says_what_is_so_by_default(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    table = page.partition("| key | by default |\n")[2].partition("\n\n")[0]
    told = {
        re.split("[ ,]", row[2:])[0].strip("`"): re.split("[:;]", row.split(" | ")[1].removesuffix(" |"))[0].strip("`")
        for row in table.splitlines()[1:]
        if "name` of" not in row and "the condition" not in row
    }
    records = {
        **{f"waiting.{each.name}": each.default for each in fields(Waiting)},
        **{f"dropout.{each.name}": each.default for each in fields(Dropout) if each.name != "default"},
        **{each.name: each.default for each in fields(PagePlan) if each.name in ("attempts", "failed")},
        **{each.name: each.default for each in fields(Question) if each.name == "required"},
        **{each.name: each.default for each in fields(TrialPlan) if each.name in _OF_TRIALS},
        **{each.name: each.default for each in fields(Experiment) if each.name in ("page_seconds", "after_restart")},
    }

    def shown(value: Any) -> str:
        if value in (None, math.inf):
            return "no limit"
        return str(value).lower() if isinstance(value, bool | str) else f"{value:g}"

    assert told == {name: shown(value) for name, value in records.items()}
    pages = "before: [{text: a}, {text: b}]\nafter: [{text: c}]\n"
    found = read(tmp_path, f"{TRIALS}    pages: [{{text: d}}]\n{pages}")
    names = [each.name for each in (*found.before, *found.after, *found.trials[0].pages)]
    names += [found.trials[0].name, found.conditions[0].name]
    assert names == ["before-1", "before-2", "after-1", "trials-0-pages-1", "trial-1", "all"]
    assert all(f"`{name}`" in table for name in names)


def test_games_that_do_not_wait(tmp_path: Path) -> None:
    found = read(tmp_path, TRIALS + "    tick_hz: 15\n    observe_every: 30\n    hold_action: true\n")
    trial = found.trials[0]
    assert (trial.tick_hz, trial.observe_every, trial.hold_action) == (15.0, 30, True)
    for wrong in ("tick_hz: 2000", "tick_hz: -1", "observe_every: -1"):
        with pytest.raises(InvalidArgumentError, match=wrong.partition(":")[0]):
            read(tmp_path, f"{TRIALS}    {wrong}\n")


def test_all_that_a_file_may_say(tmp_path: Path) -> None:
    (tmp_path / "hello.md").write_text("# Hello")
    (tmp_path / "view.html").write_text("<canvas></canvas>")
    (tmp_path / "ids.txt").write_text("ann\n\nbob\n")
    found = read(
        tmp_path,
        """
name: all-of-it
participants: {id: "query:PROLIFIC_PID", allow: ids.txt, keep_out: [mallory], parameters: [PROLIFIC_PID]}
before:
  - file: hello.md
  - title: About you
    seconds: 20
    failed: on
    questions:
      - {name: age, ask: "Age?", kind: number, low: 18, integer: yes}
      - {name: tired, ask: "Tired?", kind: yes_no, correct: no}
      - {name: two, ask: "Which?", kind: choices, options: ["1", "2"], correct: ["2"], required: false}
waiting: {size: 1, seconds: 10, way_out_seconds: 0, shortage: bots, groups: 4}
conditions: {a: {arguments: {goal: 1.5, text: "7", none: , list: [1, x], on: true}}, b: {}}
assignment: seeded
seed: 7
page_seconds: 90
dropout: {then: default, default: 1, grace_seconds: 5, tell: false, bot: "m:f"}
trials:
  - {environment: "m:f", page: view.html, show: [], talk: yes, action_seconds: 2, labels: [l, r], agents_argument: who}
after:
  - {text: Only for a., conditions: [a]}
ends: {complete: {redirect: "https://example.com/?pid={PROLIFIC_PID}"}}
""",
    )
    assert found.participants.allow == {"ann", "bob"}
    assert found.participants.keep_out == {"mallory"}
    assert found.before[0].text == "# Hello"
    assert [each.correct for each in found.before[1].questions] == [None, False, ["2"]]
    assert found.conditions[0].arguments == {"goal": 1.5, "text": "7", "none": None, "list": [1, "x"], "on": True}
    assert found.trials[0].renderer == b"<canvas></canvas>"
    assert (found.trials[0].talk, found.trials[0].agents_argument, found.trials[0].show) == (True, "who", [])
    assert found.dropout.default == 1
    assert [len(found.pages_of(1, name)) for name in ("a", "b")] == [1, 0]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "trials: expected one or more"),
        ("trails: []", "line 1: the file: unknown key 'trails'; did you mean 'trials'?"),
        (TRIALS + "waiting: {sise: 2}", "line 3: waiting: unknown key 'sise'; did you mean 'size'?"),
        (TRIALS + "waiting: {size: two}", "line 3: waiting.size: expected a whole number; got 'two'"),
        (TRIALS + "waiting: {seconds: -1}", "line 3: waiting: seconds: expected seconds, more than 0; got -1"),
        (
            TRIALS + "conditions:\n  one:\n    trials:\n      trial-2: {}\n",
            "line 6: conditions.one.trials: unknown 'trial-2'; did you mean 'trial-1'?",
        ),
        (TRIALS + "waiting: {shortage: bot}", "waiting: shortage: unknown 'bot'; did you mean 'bots'?"),
        (TRIALS + "before: [{texts: x}]", "before[0]: unknown key 'texts'; did you mean 'text'?"),
        (TRIALS + "before: [{title: x}]", "before[0]: page 'before-1': expected a text"),
        (TRIALS + "before: [{consent: a, text: b}]", "before[0]: expected one of text, consent and questions"),
        (TRIALS + "before: [{file: nothing.md}]", "before[0].file: "),
        (TRIALS + "before: [{text: a, conditions: [b]}]", "groups have none before the waiting room"),
        (TRIALS + "after: [{text: a, conditions: [b]}]", "conditions: unknown 'b'; expected one of all"),
        (TRIALS + "after: [{questions: [{name: a}]}]", "after[0].questions[0].ask: expected a text"),
        (TRIALS + "after: [{questions: [{name: a, ask: b, kind: chioce}]}]", "did you mean 'choice'?"),
        (TRIALS + "after: [{questions: [{name: a, ask: b, kind: choice}]}]", "options: expected two or more"),
        (TRIALS + "after: [{questions: [{name: a, ask: b, kind: scale}]}]", "low, high: expected whole numbers"),
        (
            TRIALS + "after: [{questions: [{name: a, ask: b, kind: choice, options: [x, y], correct: z}]}]",
            "question 'a': correct: expected one of the options",
        ),
        (TRIALS + "after: [{text: a, name: x}, {text: b, name: x}]", "pages: 'x' is there twice"),
        (TRIALS + "dropout: {then: default}", "dropout: default: expected an action if, and only if"),
        (
            TRIALS + "dropout: {then: fewer}",
            "trial 'trial-1': agents_argument: expected the argument of the environment",
        ),
        (TRIALS + "dropout: {least: 0}", "dropout: least: expected 1 or more; got 0"),
        (TRIALS + "    agents_argument: a\ndropout: {then: fewer, least: 2}", "least: expected 1 at most"),
        (TRIALS + "    show: [form]", "show: unknown 'form'; expected one of members, roles, observation, actions,"),
        (TRIALS + "    end_seconds: -1", "trial 'trial-1': end_seconds: expected seconds, 0 or more; got -1"),
        (TRIALS + "dropout: {meanwhile: bot}", "dropout: meanwhile: expected it only where then is 'fewer'"),
        (TRIALS + "dropout: {then: fewer, meanwhile: default}", "dropout: default: expected an action if, and only if"),
        (TRIALS + "dropout: {then: fewer, meanwhile: bots}", "meanwhile: unknown 'bots'; did you mean 'bot'?"),
        (
            "title: a: b",
            "line 1: not YAML: mapping values are not allowed here (a text with a colon and a space in it needs",
        ),
        ("ends: {complete: {text: ok?}}", "but got '?' (a text with such a sign within { } or [ ] needs quotes)"),
        ("trials:\n\t- x", "cannot start any token (lines are indented by spaces)"),
        (TRIALS + "ends: {completed: {}}", "ends: unknown 'completed'; did you mean 'complete'?"),
        (TRIALS + "ends: {complete: {redirect: 'javascript:x'}}", "redirect: expected an address"),
        (TRIALS + "ends: {complete: {redirect: 'https://x/?{A'}}", "redirect: expected {NAME} for a parameter"),
        (
            TRIALS + "participants: {parameters: []}\nends: {full: {redirect: 'https://x/?{PID}'}}",
            "ends: full: redirect: {PID} is not known of anybody; expected it in participants: parameters",
        ),
        (
            TRIALS
            + "participants: {id: 'query:PID', parameters: [a]}\nends: {full: {redirect: 'https://x/{PDI}{PID}'}}",
            "redirect: {PDI} is not known",
        ),
        (
            TRIALS + "participants: {id: link, allow: [a]}\nends: {full: {redirect: 'https://x/{signature}'}}",
            "redirect: {signature} is not known",
        ),
        *(
            (
                f"{TRIALS}after:\n  - questions:\n    - {{name: {name}, ask: b}}",
                f"line 5: after[0].questions[0]: question '{name}': name: {error}",
            )
            for name, error in {
                **dict.fromkeys(PARTICIPANT_COLUMNS, "expected another one; participants.csv has a column of"),
                "link_pid": "columns that begin with link_ are of the links",
            }.items()
        ),
        (
            TRIALS + "\n\nends:\n  completed:\n    code: X",
            "line 6: ends: unknown 'completed'; did you mean 'complete'?",
        ),
        (
            TRIALS + "conditions: {a: {}, b: {}}\nafter:\n  - text: ho\n  - {text: hi, conditions: [c]}",
            "line 6: page 'after-2': conditions: unknown 'c'",
        ),
        (
            TRIALS + "before:\n  - {text: a}\n  - {text: b, conditions: [all]}",
            "line 5: page 'before-2': conditions: groups",
        ),
        (TRIALS + "  - {environment: a, name: x}\n  - {environment: b, name: x}", "line 4: trials: 'x' is there twice"),
        (
            TRIALS + "after:\n  - questions:\n    - {name: a, ask: b}\n  - questions:\n    - {name: a, ask: b}",
            "line 7: questions: 'a' is there twice",
        ),
        (TRIALS + "\ndropout: {then: fewer, least: 2}", "line 4: dropout: least: expected 1 at most"),
        (TRIALS + "dropout: {then: fewer}", "line 2: trial 'trial-1': agents_argument: expected"),
        (TRIALS + "participants: {id: name}", "participants: id: expected drawn, code, link or query:NAME"),
        (TRIALS + "participants: {id: code}", "participants: allow: expected the ids"),
        (TRIALS + "participants: {allow: [a]}", "with id: drawn nobody has an id before"),
        (TRIALS + "    roles: swop", "roles: unknown 'swop'; did you mean 'swap'?"),
        (TRIALS + "    people: [a, b]", "trials[0].people: expected 1, as many as a group has"),
        (TRIALS + "    arguments: [a]", "trials[0].arguments: expected a mapping, got a list"),
        ("trials: [{name: x}]", "trials[0].environment: expected an id, or MODULE:FUNCTION"),
        (TRIALS + "name: My Study", "name: expected letters a to z, digits, - and _; got 'My Study'"),
        (TRIALS + "conditions: {}", "conditions: expected one or more"),
        (TRIALS + "after: [{text: '![](no.png)'}]", "line 3: after[0].text: picture 'no.png': "),
        (TRIALS + "after: [{consent: '![](no.png)'}]", "line 3: after[0].consent: picture 'no.png': "),
        (TRIALS + "    text: '![](no%20such.png)'", "line 3: trials[0].text: picture 'no such.png': "),
        (
            TRIALS + "ends: {full: {text: '![](a.tiff)'}}",
            "expected one of the kinds avif, gif, jpeg, jpg, png, svg, webp",
        ),
        *(
            (f"{TRIALS}after: [{{text: '![]({address})'}}]", "pages load nothing from other servers; expected a file")
            for address in ("https://else.example/a.png", "//else.example/a.png")
        ),
    ],
)
def test_what_is_wrong_with_a_file(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path))
    assert error in str(caught.value)


PIXEL = b"GIF89a\1\0\1\0\0\0\0;"


def test_texts_that_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As some editors of Windows write them."""
    mark = b"\xef\xbb\xbf"
    (tmp_path / "intro.md").write_bytes(mark + b"# Hello\r\n")
    (tmp_path / "ids.txt").write_bytes(mark + b"ann\r\nbob\r\n")
    path = tmp_path / "study.yaml"
    path.write_bytes(mark + f"before:\n- file: intro.md\nparticipants: {{id: code, allow: ids.txt}}\n{TRIALS}".encode())
    found = load_experiment(path)
    assert found.before[0].text == "# Hello\r\n"
    assert found.participants.allow == {"ann", "bob"}


def test_pictures(tmp_path: Path) -> None:
    (tmp_path / "a map.gif").write_bytes(PIXEL)
    (tmp_path / "hello.md").write_text(
        "# Hello\n\n![Map](<a map.gif>) ![](data:image/gif;base64,AA==) ![](/logo.png)\n"
    )
    text = TRIALS + "before:\n  - file: hello.md\n  - consent: 'as `![](none.png)` says'\n"
    found = read(tmp_path, text)
    assert {address: each.content for address, each in found.pictures.items()} == {"a%20map.gif": PIXEL}
    shown = Texts(found.pictures).html(found.before[0].text)
    assert f'<img src="pictures/{found.pictures["a%20map.gif"].name}" alt="Map" />' in shown
    assert '<img src="data:image/gif;base64,AA==" alt="" /> <img src="/logo.png" alt="" />' in shown
    (tmp_path / "a map.gif").unlink()
    with pytest.raises(
        InvalidArgumentError, match=r"line 4: before\[0\].file: hello.md, line 3: picture 'a map.gif': .*No such"
    ):
        read(tmp_path, text)


def test_pictures_have_a_size(tmp_path: Path) -> None:
    for number in range(9):
        with (tmp_path / f"{number}.png").open("wb") as file:
            file.truncate(4 * 2**20 + (number == 8))
    pages = [f"after: [{{text: '{''.join(f'![]({each}.png)' for each in which)}'}}]" for which in (range(8), [8])]
    assert len(read(tmp_path, TRIALS + pages[0]).pictures) == 8
    with pytest.raises(InvalidArgumentError, match=r"8\.png: larger than 4 MiB"):
        read(tmp_path, TRIALS + pages[1])
    (tmp_path / "8.png").write_bytes(b"x")
    with pytest.raises(InvalidArgumentError, match=r"picture '8\.png': expected 32 MiB of pictures at most in all"):
        read(tmp_path, TRIALS + pages[0].replace("(7.png)", "(7.png)![](8.png)"))


@pytest.mark.parametrize(
    ("question", "answer", "kept"),
    [
        ({"kind": "text"}, "x", "x"),
        ({"kind": "text", "required": False}, "", None),
        ({"kind": "number", "low": 0, "high": 9}, 2.5, 2.5),
        ({"kind": "number", "integer": True}, 3.0, 3),
        ({"kind": "scale", "low": 1, "high": 7}, 7, 7),
        ({"kind": "yes_no"}, False, False),
        ({"kind": "choice", "options": ["a", "b"]}, "b", "b"),
        ({"kind": "choices", "options": ["a", "b"]}, ["b", "a"], ["a", "b"]),
    ],
)
def test_answers_as_they_are_kept(question: dict[str, Any], answer: object, kept: object) -> None:
    found = Question(name="q", ask="?", **question).checked(answer)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ({"kind": "text"}, ""),
        ({"kind": "text"}, None),
        ({"kind": "text"}, "x" * 501),
        ({"kind": "long"}, "x" * 10_001),
        ({"kind": "text"}, "\0"),
        ({"kind": "text"}, "\ud800"),
        ({"kind": "text"}, 7),
        ({"kind": "number"}, "7"),
        ({"kind": "number"}, True),
        ({"kind": "number"}, float("nan")),
        ({"kind": "number"}, float("inf")),
        ({"kind": "number", "low": 3}, 2),
        ({"kind": "number", "integer": True}, 2.5),
        ({"kind": "scale", "low": 1, "high": 7}, 8),
        ({"kind": "scale", "low": 1, "high": 7}, 1.5),
        ({"kind": "yes_no"}, 1),
        ({"kind": "choice", "options": ["a", "b"]}, "c"),
        ({"kind": "choice", "options": ["a", "b"]}, ["a"]),
        ({"kind": "choices", "options": ["a", "b"]}, "a"),
        ({"kind": "choices", "options": ["a", "b"]}, ["c"]),
        ({"kind": "choices", "options": ["a", "b"]}, []),
    ],
)
def test_what_is_no_answer(question: dict[str, Any], answer: object) -> None:
    with pytest.raises(InvalidArgumentError, match="expected"):
        Question(name="q", ask="?", **question).checked(answer)


def test_capital_letters_and_blanks_of_what_is_typed_do_not_count() -> None:
    for kind in ("text", "long"):
        check = Question(name="q", ask="?", kind=kind, correct="Dark blue")
        assert all(check.is_right(typed) for typed in ("Dark blue", "dark blue ", " DARK  BLUE"))
        assert not any(check.is_right(typed) for typed in ("blue", "dark-blue", None))
    assert not Question(name="q", ask="?", kind="choice", options=["a", "A"], correct="a").is_right("A")
    people = People(id="code", allow=frozenset(["ann-7", "bob", "Bob"]))
    assert [people.id_of_code(typed) for typed in ("ann-7", "Ann-7 ", "bob", "Bob", "BOB", "x", "")] == [
        *("ann-7", "ann-7", "bob", "Bob"),
        *(None, None, None),
    ]


async def test_trials_at_a_rate(tmp_path: Path) -> None:
    """Their parameters say so; and people need a default action."""
    rest = "    tick_hz: 15\n    observe_every: 30\n    hold_action: true\nwaiting: {size: 1}\n"
    found = read(tmp_path, f"{TRIALS}{rest}dropout: {{then: default, default: 0}}\n")
    trials = ExperimentTrials(found, str)
    params = trials.params
    assert params.environment.tick_hz == 15
    assert [(actor.observe_every, actor.hold_action) for actor in params.actors] == [(30, True)]
    await trials.aclose()
    with pytest.raises(InvalidArgumentError, match=r"expected a default action, because ticks end by the clock"):
        ExperimentTrials(read(tmp_path, TRIALS + rest), str)


MAPS = (EXAMPLE.parents[2] / "docs" / "experiments.md").read_text().split("# maps.yaml\n")[1].split("```")[0]


async def test_conditions_of_one_of_several_environments(tmp_path: Path) -> None:
    """As the documents have it; what holds for all of them is refused with the names of the trial and the condition."""
    found = read(tmp_path, MAPS)
    trials = ExperimentTrials(found, str)
    sizes = {}
    for trial, plan in enumerate(found.trials):
        for condition in found.conditions:
            made = trials._made[trial, condition.name]
            sizes[plan.name, condition.name] = dict(made.arguments)
    assert sizes == {
        **{("practice", name): {} for name in ("small", "large")},
        ("lake", "small"): {"map_name": "4x4"},
        ("lake", "large"): {"map_name": "8x8"},
    }
    await trials.aclose()
    for_all = MAPS.replace("trials: {lake: {arguments: {map_name: 4x4}}}", "arguments: {map_name: 4x4}")
    with pytest.raises(
        EnvironmentFailedError,
        match=r": line 5: trial 'practice' in condition 'small': .*map_name.*; .*small\.trials\.TRIAL\.arg",
    ):
        ExperimentTrials(read(tmp_path, for_all), str)
    bots = MAPS.replace("{trials: {lake: {arguments: {map_name: 4x4}}}}", "{bots: {robot: random}}")
    with pytest.raises(InvalidArgumentError, match=r": line 5: trial 'practice' in condition .small.: bots: .*L\.bots"):
        ExperimentTrials(read(tmp_path, bots), str)


def test_what_is_for_all_trials_is_below_what_is_for_one() -> None:
    condition = Condition(
        name="c",
        arguments={"a": 1, "b": 1},
        bots={"x": "random"},
        trials={"t": Changes(arguments={"b": 2}, bots={"x": "m:f"})},
    )
    assert condition.changes("t") == Changes(arguments={"a": 1, "b": 2}, bots={"x": "m:f"})
    assert condition.changes("u") == Changes(arguments={"a": 1, "b": 1}, bots={"x": "random"})
