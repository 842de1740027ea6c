"""Turns of a match: who lives, who is asked, and what others' ticks add to the step before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.rl.views.turns import Turns, info_of
from trio_cogment.spaces import Discrete, Observation, Space

Seen = Mapping[str, Observation]


class Script:
    """A match whose ticks were written before."""

    name = "duel"

    def __init__(self, *ticks: Seen | BaseException, mine: Sequence[str] = ("a", "b"), ends: bool = True) -> None:
        self.mine = mine
        self.action_spaces: Mapping[str, Space] = {agent: Discrete(2) for agent in mine}
        self.given: list[Any] = []
        self._ticks = list(ticks)
        self._ends = ends

    @property
    def over(self) -> bool:
        return self._ends and not self._ticks

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Seen:
        self.given.append(("reset", seed, options))
        return self._next()

    def step(self, actions: Mapping[str, Any]) -> Seen:
        self.given.append(dict(actions))
        return self._next()

    def receive(self) -> Seen:
        self.given.append("receive")
        return self._next()

    def _next(self) -> Seen:
        tick = self._ticks.pop(0)
        if isinstance(tick, BaseException):
            raise tick
        return tick


def sees(value: int, reward: float | None = None, *, asked: bool = True, **flags: bool) -> Observation:
    return Observation(value, reward=reward, active=asked, **flags)  # type: ignore[arg-type]  # flags are booleans


def test_who_is_asked_and_what_was_got() -> None:
    match = Script(
        {"a": sees(0), "b": sees(0, asked=False)},
        {"a": sees(1, 0.5), "b": sees(1, -1.0, asked=False)},
        {"a": sees(2, 1.0), "b": sees(2, 1.0)},
        ends=False,
    )
    turns = Turns(match)
    turns.reset(7, {"x": 1})
    assert match.given == [("reset", 7, {"x": 1})]
    assert (turns.live, turns.asked, turns.ended) == (["a", "b"], ["a"], {})
    assert turns.rewards == {"a": 0.0, "b": 0.0}
    turns.step({"a": 1})
    assert (turns.rewards, turns.asked) == ({"a": 0.5, "b": -1.0}, ["a"])
    assert {agent: seen.value for agent, seen in turns.observations.items()} == {"a": 1, "b": 1}
    turns.receive()
    assert (turns.rewards, turns.asked) == ({"a": 1.0, "b": 1.0}, ["a", "b"])
    assert match.given[1:] == [{"a": 1}, "receive"]


def test_what_others_do_meanwhile_belongs_to_the_step_before() -> None:
    nobody = {"asked": False}
    match = Script(
        {"a": sees(0), "b": sees(0)},
        {"a": sees(1, 0.5, **nobody), "b": sees(1, None, **nobody)},
        {"a": sees(2, 0.25, **nobody), "b": sees(2, 1.0, **nobody)},
        {"a": sees(3, None), "b": sees(3, 2.0, **nobody)},
        ends=False,
    )
    turns = Turns(match)
    turns.reset(None, None)
    turns.step({"a": 0, "b": 1})
    assert match.given[1:] == [{"a": 0, "b": 1}, {}, {}]
    assert (turns.rewards, turns.asked, turns.observations["a"].value) == ({"a": 0.75, "b": 3.0}, ["a"], 3)


def test_who_ends_is_out_and_the_others_go_on() -> None:
    match = Script(
        {"a": sees(0), "b": sees(0)},
        {"a": sees(1, 1.0, terminated=True), "b": sees(1, 0.0)},
        {"a": sees(1, None, alive=False), "b": sees(2, 2.0, truncated=True)},
        ends=False,
    )
    turns = Turns(match)
    turns.reset(None, None)
    turns.step({"a": 0, "b": 0})
    assert (turns.live, turns.asked) == (["b"], ["b"])
    assert (turns.ended, turns.rewards) == ({"a": (True, False)}, {"a": 1.0, "b": 0.0})
    turns.step({"b": 0})
    assert (turns.live, turns.asked, turns.ended) == ([], [], {"b": (False, True)})
    assert turns.rewards == {"b": 2.0}


def test_an_episode_that_is_over_asks_nobody() -> None:
    match = Script({"a": sees(0), "b": sees(0)}, {"a": sees(1), "b": sees(1, asked=False)})
    turns = Turns(match)
    turns.reset(None, None)
    turns.step({"a": 0, "b": 0})
    assert (turns.live, turns.asked) == ([], [])
    assert len(match.given) == 2


@pytest.mark.parametrize("how", ["step", "receive", "others"])
@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt()])
def test_no_step_follows_what_has_failed(how: str, error: BaseException) -> None:
    nobody = {"a": sees(1, asked=False), "b": sees(1, asked=False)}
    ticks = [nobody, error] if how == "others" else [error]
    turns = Turns(Script({"a": sees(0), "b": sees(0)}, *ticks, ends=False))
    turns.reset(None, None)
    turns.check_running(True)
    go_on = turns.receive if how == "receive" else partial(turns.step, {"a": 0, "b": 0})
    with pytest.raises(type(error)):
        go_on()
    assert (turns.live, turns.asked) == ([], [])
    with pytest.raises(FailedPreconditionError):
        turns.check_running(True)


def test_an_action_that_is_refused_may_be_another_one() -> None:
    refusal = InvalidActionError("duel", "a", "no")
    turns = Turns(Script({"a": sees(0), "b": sees(0)}, refusal, {"a": sees(1), "b": sees(1)}, ends=False))
    turns.reset(None, None)
    with pytest.raises(InvalidActionError):
        turns.step({"a": 5})
    assert turns.live == ["a", "b"]
    turns.step({"a": 0, "b": 0})
    assert turns.observations["a"].value == 1


def test_nobody_takes_part_when_an_episode_cannot_begin() -> None:
    turns = Turns(Script({"a": sees(0), "b": sees(0)}, ZeroDivisionError(), ends=False))
    turns.reset(None, None)
    with pytest.raises(ZeroDivisionError):
        turns.reset(None, None)
    assert (turns.live, turns.asked) == ([], [])


def test_what_is_checked_before_a_step() -> None:
    turns = Turns(Script())
    turns.check_action("a", 1)
    with pytest.raises(InvalidActionError, match="duel"):
        turns.check_action("a", 2)
    with pytest.raises(FailedPreconditionError, match=r"^environment 'duel': step: expected a reset first$"):
        turns.check_running(False)
    text = r"^environment 'duel': step: expected a reset first, because the episode is over for all agents here$"
    with pytest.raises(FailedPreconditionError, match=text):
        turns.check_running(True)
    error = turns.unknown("c", "actions")
    assert str(error) == "environment 'duel': actions: expected agents out of 'a', 'b'; got 'c'"


def test_the_mask_is_in_the_information_unless_it_is_seen_elsewhere() -> None:
    mask = np.array([1, 0], "int8")
    found = info_of(Observation(1, info={"x": 2}, action_mask=mask))
    assert set(found) == {"x", "action_mask"}
    assert found["action_mask"] is mask
    info = {"action_mask": "own"}
    assert info_of(Observation(1, info=info, action_mask=mask)) is info
    seen = Observation({"action_mask": mask, "seen": 1}, info={"x": 2}, action_mask=mask)
    assert info_of(seen) == {"x": 2}
    assert info_of(Observation(1, info={"x": 2})) == {"x": 2}
