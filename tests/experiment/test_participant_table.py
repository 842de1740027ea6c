"""The table of one participant: every step with every input."""

from __future__ import annotations

import pytest

from trio_cogment.experiment.definition import ENDS
from trio_cogment.experiment.participant_table import TABLE, Action, Input, Step


def test_every_step_has_every_input() -> None:
    assert set(TABLE) == {(step, happened) for step in Step for happened in Input}


def test_who_is_out_stays_out() -> None:
    assert {TABLE[Step.OUT, each][0] for each in Input} == {Action.DROP, Action.RETURN, Action.NOTE_AWAY}


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.OUT])
def test_everybody_can_leave_and_be_taken_out(step: Step) -> None:
    assert TABLE[step, Input.LEAVE] == (Action.OUT, "left")
    assert TABLE[step, Input.TAKE_OUT] == (Action.OUT, "removed")


def test_each_way_out_has_an_end_that_people_can_read() -> None:
    ends = {end for action, end in TABLE.values() if action is Action.OUT}
    assert ends <= set(ENDS)
    assert all(not end for action, end in TABLE.values() if action is not Action.OUT)
    # Two come from the machine: behind the last page, and before anybody is a participant.
    assert set(ENDS) - ends == {"complete", "partial", "refused"}


@pytest.mark.parametrize("step", [Step.READING, Step.WAITING, Step.PREPARING, Step.FINISHING])
def test_nobody_can_hold_up_others_for_ever(step: Step) -> None:
    """Each step in which a person has something to do has an end by time, whether the page is open or not."""
    assert TABLE[step, Input.TIME_OVER][0] is Action.OUT
    assert TABLE[step, Input.AWAY_OVER] == (Action.OUT, "gone")
