"""Trials as text: a table, rates, and how they ended."""

from __future__ import annotations

import pytest

from trio_cogment.api.common_pb2 import EndCause, TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.cli.trials_view import Trials, duration_text, line_of, state_text, table


def info(
    name: str, tick: int = 0, seconds: float = 0, state: TrialState = TrialState.RUNNING, by: str = ""
) -> TrialInfo:
    found = TrialInfo(trial_id=name, state=state, tick_id=tick, trial_duration=round(seconds * 1e9))
    if state == TrialState.ENDED:
        found.end.cause = EndCause.END_CAUSE_STEP_LIMIT
        found.end.participant = by
        found.end.ticks = tick + 1
    return found


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (59.94, "59.9 s"), (60, "1:00"), (185, "3:05"), (3723, "1:02:03")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_states() -> None:
    assert state_text(TrialState.PENDING) == "PENDING"
    assert state_text(99) == "99"


def test_a_table_is_of_whole_lives() -> None:
    lines = table([info("a", 30, 2), info("b\n", state=TrialState.ENDED, by="ann")]).splitlines()
    assert [line.split() for line in lines] == [
        ["TRIAL", "STATE", "TICK", "TICKS/S", "TIME", "END"],
        ["a", "RUNNING", "30", "15.0", "2.0", "s"],
        ["b\\n", "ENDED", "0", "0.0", "0.0", "s", "step_limit", "(ann)"],
    ]


def test_a_line_tells_a_change() -> None:
    assert line_of(info("a\x1b")) == "RUNNING  a\\x1b"
    assert line_of(info("a", 7, state=TrialState.ENDED)) == "ENDED  a  after 8 ticks  step_limit"
    assert line_of(info("a", 0, state=TrialState.ENDED)) == "ENDED  a  after 1 tick  step_limit"


def test_what_is_wrong_with_samples_is_told_beside_the_end() -> None:
    one = info("a", 7, state=TrialState.ENDED)
    one.samples_lost = one.end.samples_lost = 259
    assert line_of(one).endswith("step_limit; 259 samples lost")
    assert table([one]).endswith("step_limit; 259 samples lost")
    two = info("b", 7)
    two.samples_lost, two.datalog_trouble = 1, "no room left"
    assert table([two]).endswith("the data log takes no samples; 1 sample lost")
    two.waits_for_datalog = True
    assert table([two]).endswith("waits for the data log, which takes no samples; 1 sample lost")
    two.ClearField("datalog_trouble")
    assert table([two]).endswith("waits for the data log; 1 sample lost")
    three = info("c", 7, state=TrialState.ENDED)
    three.datalog_trouble = "no room left"
    assert line_of(three).endswith("step_limit; the data log takes no samples")


def test_ended_trials_are_looked_at_until_their_samples_are_stored() -> None:
    trials = Trials()
    one = info("a", 7, state=TrialState.ENDED)
    one.end.samples_pending = True
    trials.changed(one)
    trials.changed(info("b"))
    assert trials.to_measure(10) == ["a", "b"]
    settled = info("a", 7, state=TrialState.ENDED)
    settled.samples_lost = settled.end.samples_lost = 3
    trials.measured([settled], 1)
    assert trials.to_measure(10) == ["b"]
    assert trials.lines(10)[-1].endswith("3 samples lost")


def test_the_rate_is_that_of_the_last_measurements() -> None:
    trials = Trials()
    trials.changed(info("a"))
    for second in range(20):
        trials.measured([info("a", 10 * second if second < 10 else 100 + 50 * (second - 10))], second)
    assert trials.lines(10)[-1].split()[3] == "50.0"
    trials.measured([info("a", 550), info("never heard of", 3)], 19)
    assert len(trials.lines(10)) == 3


def test_ended_trials_follow_those_that_run_if_there_is_room() -> None:
    trials = Trials()
    for number in range(6):
        trials.changed(info(f"t{number}"))
    for number in range(3):
        trials.changed(info(f"t{number}", state=TrialState.ENDED))
        trials.changed(info(f"t{number}", 9, state=TrialState.ENDED))  # what is told again is not another trial
    assert trials.ended == 3
    names = [line.split()[0] for line in trials.lines(9)[2:]]
    assert names == ["t5", "t4", "t3", "t2", "t1", "t0"]
    assert trials.lines(9)[0] == "3 running, 3 ended"
    assert [line.split()[0] for line in trials.lines(4)] == ["3", "TRIAL", "t5", "t4"]
    assert trials.lines(4)[0] == "3 running, 3 ended; 1 not shown"
    assert trials.to_measure(2) == ["t4", "t5"]
    assert trials.to_measure(0) == trials.lines(0) == []
    for height in range(12):
        assert len(trials.lines(height)) <= height


def test_trials_that_wait_for_participants_do_not_run_yet() -> None:
    trials = Trials()
    for state in (TrialState.INITIALIZING, TrialState.PENDING, TrialState.RUNNING, TrialState.TERMINATING):
        trials.changed(info(f"t{state}", state=state))
    assert trials.lines(9)[0] == "2 running, 2 starting, 0 ended"


def test_only_so_many_ended_trials_are_kept() -> None:
    trials = Trials()
    for number in range(250):
        trials.changed(info(f"t{number}", state=TrialState.ENDED))
    assert trials.ended == 250
    assert len(trials.lines(1000)) == 102
