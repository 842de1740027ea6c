"""Runs as text for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunRecord, RunStatus, RunStep
from trio_cogment.cli.runs.view import Overview, Progress, curve, episode_line, record_line, step_line, table


def record(**fields: object) -> RunRecord:
    found = RunRecord(run_id="r", status=RunStatus.RUN_STATUS_TERM, **fields)  # type: ignore[arg-type]  # any field
    found.created_at.FromSeconds(0)
    found.updated_at.FromMilliseconds(90_500)
    return found


def test_a_table() -> None:
    text = table(
        [record(gpu_slots=[0, 2], failure_reason="out of\x1b memory", outcome="failed"), record(run_name="one")]
    )
    assert text.splitlines() == [
        "RUN  NAME  STATUS  OUTCOME  UPDATED              GPUS  REASON",
        "r    -     TERM    failed   1970-01-01 00:01:30  0,2   out of\\x1b memory",
        "r    one   TERM    -        1970-01-01 00:01:30  -     -",
    ]


def test_a_table_that_is_too_wide() -> None:
    records = [record(gpu_slots=[0], run_name="n" * 31, failure_reason="why " * 16, outcome="failed"), record()]
    whole = table(records).splitlines()
    assert whole[1].startswith(f"r    {'n' * 30}... (31 characters)  TERM ")
    assert whole[1].endswith("why ... (64 characters)")
    widest = max(map(len, whole))
    assert table(records, width=widest).splitlines() == whole
    assert table(records, width=widest - 1).splitlines()[0].split() == [
        "RUN", "NAME", "STATUS", "OUTCOME", "UPDATED", "REASON",
    ]  # fmt: skip
    for width in (80, 40, 1):
        narrow = table(records, width=width).splitlines()
        assert len(narrow) == 3
        assert max(map(len, narrow)) == width
    assert table(records, width=80).splitlines()[0].split() == ["RUN", "NAME", "STATUS", "OUTCOME", "REASON"]
    assert "  failed   why " in table(records, width=80).splitlines()[1]
    assert table([], width=5) == "RUN  "


def test_lines() -> None:
    assert record_line(record(seq_id=7, failure_reason="why")) == "     7  r  TERM  why"
    assert record_line(record()) == "     -  r  TERM"
    assert record_line(record(outcome="failed", failure_reason="why")) == "     -  r  TERM  failed  why"
    assert record_line(record(seq_id=7, checkpoints=["m@1", "m@2"])) == "     7  r  TERM  m@2"
    step = RunStep(seq_id=3, episode_index=1, step_index=2, agent_id="a", action_json="[1]", reward=0.5, truncated=True)
    assert step_line(step) == "       3  episode 1 step 2 a: action [1] reward 0.5 truncated"
    assert step_line(RunStep()) == "       0  episode 0 step 0 -: action - reward 0"
    episode = RunEpisode(seq_id=3, episode_index=1, total_reward=9.25, steps=4, terminated=True)
    assert episode_line(episode) == "       3  episode 1 -: return 9.25 in 4 steps terminated"


def test_a_curve() -> None:
    assert curve([0, 1, 2, 3], width=10, height=2) == ["3   ▃█", "0 ▁▆██"]
    assert curve([1, 1], width=10, height=1) == ["1 ▁▁"]
    assert curve([0, 0, 9, 9], width=4, height=1) == ["9 ▁█"], "two values share a column"
    assert curve([0, 9, 0, 9], width=4, height=1) == ["4.5 ▁"], "the labels are of what is drawn"
    assert curve([math.nan, math.inf], width=4, height=1) == []
    assert curve([], width=4, height=1) == []
    assert curve([1.7e308, 1, 1.7e308], width=4, height=1) == ["1 ▁"]


@given(st.lists(st.floats()), st.integers(1, 100), st.integers(1, 20))
def test_a_curve_fits(values: list[float], width: int, height: int) -> None:
    lines = curve(values, width=width, height=height)
    assert len(lines) in (0, height)
    widest = len("-1.234e+299")
    assert all(len(line) <= max(width, widest + 2) for line in lines)


def named(run_id: str, status: RunStatus = RunStatus.RUN_STATUS_INIT) -> RunRecord:
    found = record()
    found.run_id, found.status = run_id, status
    return found


def test_an_overview_has_the_runs_as_they_were_seen_last() -> None:
    overview = Overview()
    assert overview.screen(width=80, height=5) == table([], width=80)
    for run_id in "abc":
        overview.add(named(run_id))
    overview.add(named("a", RunStatus.RUN_STATUS_TERM))
    whole = table([named("a", RunStatus.RUN_STATUS_TERM), named("b"), named("c")], width=79)
    assert overview.screen(width=79, height=4) == whole
    few = overview.screen(width=15, height=3).splitlines()
    assert [line.split()[0] for line in few] == ["RUN", "a", "and"], "the one that has changed last"
    overview.add(named("b"))
    assert [line.split()[0] for line in overview.screen(width=15, height=3).splitlines()] == ["RUN", "b", "and"]
    assert overview.screen(width=80, height=3).splitlines()[-1] == "and 2 that changed earlier"
    overview.add(named("d"))
    assert [line.split()[0] for line in overview.screen(width=15, height=4).splitlines()] == ["RUN", "b", "d", "and"]


@given(st.lists(st.sampled_from("abcdefgh")), st.integers(1, 90), st.integers(3, 12))
def test_an_overview_fits(changes: list[str], width: int, height: int) -> None:
    overview = Overview()
    for run_id in changes:
        overview.add(named(run_id))
    lines = overview.screen(width=width, height=height).splitlines()
    assert len(lines) == min(height, 1 + len(set(changes)))
    assert all(len(line) <= width for line in lines)


def test_progress() -> None:
    progress = Progress()
    assert progress.summary == "-  -  episodes 0  steps 0  return -  mean of 0 -"
    progress.record = record(failure_reason="why", outcome="failed", detail="one\n\x1btwo")
    for total in (1.0, 3.0, math.nan):
        progress.add(RunEpisode(total_reward=total, steps=2))
    assert progress.summary == "r  TERM  episodes 3  steps 6  return nan  mean of 2 2  failed: why"
    assert progress.detail == ["one", "\\x1btwo"]
    assert not progress.succeeded
    assert progress.screen(width=60, height=6).splitlines() == [
        "RUN  STATUS  EPISODES  STEPS  RETURN  MEAN OF 2",
        "r    TERM    3         6      nan     2",
        "failed: why",
        "3  █",
        "1 ▁█",
    ]
    assert progress.screen(width=10, height=3).splitlines()[:2] == ["RUN  STATU", "r    TERM "]


@pytest.mark.parametrize("height", [1, 2, 5])
def test_a_screen_has_room(height: int) -> None:
    progress = Progress()
    progress.add(RunEpisode(total_reward=1))
    progress.add(RunEpisode(total_reward=2))
    assert len(progress.screen(width=80, height=height).splitlines()) == max(3, height - 1)
