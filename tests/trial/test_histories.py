"""Recorded trials, played again: a change of the rules shows as a diff.

When it is on purpose: `python -m tests.sim.histories` writes down what the machine does now (docs/simulation.md).
"""

from __future__ import annotations

import difflib

import pytest

from tests.sim.histories import CASES, FOLDER, path_of
from trio_cogment.trial import TrialMachine
from trio_cogment.trial._trial_table import Input, Phase
from trio_cogment.trial.recording import replay


def difference(recorded: str, replayed: str) -> str:
    lines = difflib.unified_diff(recorded.splitlines(), replayed.splitlines(), "recorded", "now", lineterm="", n=2)
    return "\n".join(lines)


@pytest.mark.parametrize("name", CASES)
def test_it_is_played_as_it_was(name: str) -> None:
    recorded = path_of(name).read_text(encoding="utf-8")
    replayed = replay(recorded)
    if replayed != recorded:
        pytest.fail(
            f"the machine does otherwise than recorded in {name}:\n{difference(recorded, replayed)}", pytrace=False
        )


def test_there_is_nothing_else() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {path_of(name).name for name in CASES}


def test_together_they_come_to_every_state_and_use_every_input() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.iterdir())
    phases = ["INITIALIZING", "PENDING", "RUNNING", "WAIT_FINAL", "WAIT_ACKS", "ENDED"]
    inputs = ["begin", "parameters", "joined", "received", "lost", "timer", "soft end", "hard end"]
    timers = ["INIT", "RESPONSE", "ACK", "PATIENCE", "INACTIVITY", "HEARTBEAT"]
    for phase in phases:
        assert f'{{"phase": "{phase}"' in text
    for name in inputs:
        assert f'"in": "{name}"' in text
    for timer in timers:
        assert f'"in": "timer", "timer": "{timer}"' in text


def test_a_change_of_behaviour_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = path_of("hard-end").read_text(encoding="utf-8")
    after, _, announced = TrialMachine.rows[Phase.RUNNING][Input.HARD_END]
    monkeypatch.setitem(TrialMachine.rows[Phase.RUNNING], Input.HARD_END, (after, lambda *_: None, announced))
    shown = difference(recorded, replay(recorded))
    assert '-{"out": "send", "participant": 0, "message": "state: END details:' in shown
    assert "+" not in {line[:1] for line in shown.splitlines()[2:]} - {" "} or '+{"phase": "ENDED"' in shown
