"""Recorded trials are replayed; a file that is not a recorded trial is refused, with the number of the line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.histories import path_of
from trio_cogment.trial import Begin
from trio_cogment.trial._machine import _HANDLERS
from trio_cogment.trial.recording import TrialFileError, replay

RECORD = path_of("max-steps").read_text(encoding="utf-8")
LINES: list[dict[str, Any]] = [json.loads(line) for line in RECORD.splitlines()]


def with_line(number: int, **changes: Any) -> str:
    """Return the record with one line changed; a field set to None is left out."""
    lines = [dict(line) for line in LINES]
    lines[number] = {name: value for name, value in {**lines[number], **changes}.items() if value is not None}
    return "\n".join(map(json.dumps, lines))


RECEIVED = next(number for number, line in enumerate(LINES) if line.get("in") == "received")
PARAMETERS = next(number for number, line in enumerate(LINES) if line.get("in") == "parameters")
RULES = LINES[0]["rules"]
LATER = next(number for number, line in enumerate(LINES) if "at" in line and number > RECEIVED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a recorded trial, got nothing"),
        ("\n \n", "expected a recorded trial, got nothing"),
        ("hello", "line 1: expected a JSON object, got 'hello'"),
        ("[1]", "line 1: expected a JSON object, got '[1]'"),
        ("[" * 100_000, "line 1: expected a JSON object"),
        ("9" * 10_000, "line 1: expected a JSON object"),
        ("{}", "line 1: expected a recorded trial, whose first line has 'trio_cogment_trial'"),
        ('{"trio_cogment_trial": 2}', "line 1: trio_cogment_trial: this version of trio-cogment reads version 1 only"),
        (RECORD.splitlines()[0], "expected inputs, got none"),
        (with_line(0, trial=3), "line 1: trial: expected the trial's id, got 3"),
        (with_line(0, samples=1), "line 1: samples: expected true or false, got 1"),
        (with_line(0, rules=[]), "line 1: rules: expected an object, got []"),
        (with_line(0, rules={}), "line 1: soft_end_patience_seconds: expected a number, got None"),
        (
            with_line(0, rules=RULES | {"heartbeat_seconds": -1}),
            "line 1: heartbeat_seconds: expected 0 or more, got -1",
        ),
        (
            with_line(0, rules=RULES | {"max_held_bytes": 1.5}),
            "line 1: max_held_bytes: expected a whole number, got 1.5",
        ),
        (with_line(0, rules=RULES | {"x": 1}), "line 1: x: not known here"),
        (with_line(0, y=1), "line 1: y: not known here"),
        (with_line(1, at=None), "line 2: at: expected seconds, got None"),
        (with_line(1, at=float("nan")), "line 2: at: expected seconds, got nan"),
        (with_line(1, at=True), "line 2: at: expected seconds, got True"),
        (with_line(1, wall_ns="x"), "line 2: wall_ns: expected nanoseconds, got 'x'"),
        (with_line(1, z=1), "line 2: z: not known here"),
        (with_line(2, out=None), "line 3: expected an object with 'in', 'out' or 'phase'"),
        (with_line(LATER, at=0), f"line {LATER + 1}: at: expected "),
        (with_line(RECEIVED, **{"in": "seen"}), "in: expected one of begin, parameters, joined, received, "),
        (with_line(RECEIVED, **{"in": 1}), "in: expected a name, got 1"),
        (with_line(RECEIVED, participant="ann"), "participant: expected an index, got 'ann'"),
        (with_line(RECEIVED, message=None), "message: expected a text, got None"),
        (
            with_line(RECEIVED, message="state: NORMAL nothing { }"),
            "message: not a ActorRunTrialOutput in text form: 1:",
        ),
        (with_line(PARAMETERS, params="actors { }"), "params: "),
        (with_line(PARAMETERS, **{"in": "timer", "params": None, "timer": "TEA"}), "timer: expected one of INIT, "),
    ],
)
def test_what_is_no_record_is_refused(text: str, expected: str) -> None:
    with pytest.raises(TrialFileError) as caught:
        replay(text)
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_what_no_orchestrator_would_feed_is_refused_by_the_machine_and_recorded() -> None:
    text = replay(with_line(RECEIVED, participant=77))
    assert '{"out": "refused", "error": "there is no participant 77"}' in text


def test_a_machine_that_fails_is_told_by_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setitem(_HANDLERS, Begin, fail)
    with pytest.raises(TrialFileError, match="line 2: the machine cannot take this: KeyError: 'a bug'"):
        replay(RECORD)


@given(st.data())
def test_whatever_a_record_looks_like_it_is_played_or_refused(data: st.DataObject) -> None:
    values = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=5)
    lines = [dict(line) for line in LINES[:40]]
    for _ in range(data.draw(st.integers(1, 3))):
        line = data.draw(st.sampled_from(lines))
        name = data.draw(st.sampled_from(sorted(line)))
        line[name] = data.draw(values | st.sampled_from([other[name] for other in LINES if name in other]))
    text = "\n".join(map(json.dumps, lines))
    try:
        assert replay(text)
    except TrialFileError:
        pass
