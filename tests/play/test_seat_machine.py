"""The seat as a machine: every state and input, and any order of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.seat_machine import (
    LEFT,
    OVER,
    TAKEN_OVER,
    Arm,
    AskStandIn,
    Changed,
    Disarm,
    Dismiss,
    DropStandIn,
    Greet,
    Leave,
    Outcome,
    SeatMachine,
    SeatRules,
    Send,
    Show,
    Timer,
    TooLate,
)
from trio_cogment.play.seat_table import SEAT_TABLE, SeatAction, SeatInput, SeatState

RULES = {outcome: SeatRules(action_seconds=5, outcome=outcome) for outcome in Outcome}


def held(outcome: Outcome = Outcome.BOT, *, asked: int | None = None) -> SeatMachine:
    machine = SeatMachine(RULES[outcome])
    machine.begin()
    machine.attach("a")
    if asked is not None:
        machine.ask(asked)
    return machine


def absent(outcome: Outcome = Outcome.BOT, *, asked: int | None = None) -> SeatMachine:
    machine = held(outcome, asked=asked)
    [arm, _] = machine.detach("a")
    assert isinstance(arm, Arm)
    machine.fire(Timer.GRACE, arm.number)
    assert machine.state is SeatState.ABSENT
    return machine


def test_the_table_has_every_pair() -> None:
    assert SEAT_TABLE.keys() == set(itertools.product(SeatState, SeatInput))


def test_what_is_final_stays() -> None:
    for happened in SeatInput:
        assert SEAT_TABLE[SeatState.OVER, happened][0] is SeatState.OVER
        assert SEAT_TABLE[SeatState.LEFT, happened][0] in (SeatState.LEFT, SeatState.OVER)


def test_every_action_is_used() -> None:
    assert {action for _, action in SEAT_TABLE.values()} == set(SeatAction)


def test_the_first_page_gets_the_seat() -> None:
    machine = SeatMachine(RULES[Outcome.LOSS])
    assert machine.begin() == [Arm(Timer.GRACE, 600.0, 1)]
    assert machine.ask(0) == []  # the trial waits
    assert machine.attach("a") == [
        Disarm(Timer.GRACE),
        Greet("a"),
        Arm(Timer.ACTION, 5, 1),
        Changed(SeatState.HELD),
    ]


def test_nobody_comes() -> None:
    machine = SeatMachine(RULES[Outcome.DEFAULT])
    machine.begin()
    machine.ask(0)
    assert machine.fire(Timer.GRACE, 1) == [AskStandIn(0), Changed(SeatState.ABSENT)]
    machine = SeatMachine(RULES[Outcome.LOSS])
    machine.begin()
    assert machine.fire(Timer.GRACE, 1) == [DropStandIn(), Leave(), Changed(SeatState.LEFT)]


def test_an_action_is_sent_once() -> None:
    machine = held(asked=3)
    assert machine.act("a", 3, "x") == [Disarm(Timer.ACTION), Send("x")]
    assert machine.act("a", 3, "y") == [TooLate("a", 3)]
    assert machine.ask(4) == [Arm(Timer.ACTION, 5, 2), Show("a")]
    assert machine.act("a", 3, "y") == [TooLate("a", 3)]
    assert machine.act("b", 4, "z") == []


def test_a_page_that_is_loaded_again_keeps_the_seat() -> None:
    machine = held(asked=3)
    assert machine.detach("a") == [Arm(Timer.GRACE, 30.0, 2), Changed(SeatState.AWAY)]
    assert machine.attach("b") == [Disarm(Timer.GRACE), Greet("b"), Changed(SeatState.HELD)]
    assert machine.fire(Timer.GRACE, 2) == []  # it was on its way
    assert machine.act("b", 3, "x") == [Disarm(Timer.ACTION), Send("x")]


def test_a_second_page_takes_over() -> None:
    machine = held(asked=3)
    assert machine.attach("b") == [Dismiss("a", TAKEN_OVER), Greet("b")]
    assert machine.detach("a") == []
    assert machine.state is SeatState.HELD
    assert machine.act("a", 3, "x") == []
    assert machine.act("b", 3, "x") == [Disarm(Timer.ACTION), Send("x")]


@pytest.mark.parametrize("outcome", [Outcome.BOT, Outcome.DEFAULT])
def test_after_the_grace_something_else_acts(outcome: Outcome) -> None:
    machine = held(outcome, asked=3)
    machine.detach("a")
    assert machine.fire(Timer.GRACE, 2) == [Disarm(Timer.ACTION), AskStandIn(3), Changed(SeatState.ABSENT)]
    assert machine.stand_in_acts(3, "x") == [Send("x")]
    assert machine.ask(4) == [AskStandIn(4)]
    assert machine.stand_in_acts(3, "late") == []
    assert machine.attach("b") == [DropStandIn(), Greet("b"), Arm(Timer.ACTION, 5, 2), Changed(SeatState.HELD)]
    assert machine.act("b", 4, "y") == [Disarm(Timer.ACTION), Send("y")]


def test_after_the_grace_the_seat_is_lost() -> None:
    machine = held(Outcome.LOSS, asked=3)
    machine.detach("a")
    assert machine.fire(Timer.GRACE, 2) == [
        Disarm(Timer.ACTION),
        DropStandIn(),
        Leave(),
        Changed(SeatState.LEFT),
    ]
    assert machine.attach("b") == [Dismiss("b", LEFT)]
    assert machine.ask(4) == []
    machine.end()
    assert machine.attach("b") == [Greet("b"), Dismiss("b", OVER)]


def test_an_action_that_takes_too_long() -> None:
    machine = held(Outcome.BOT, asked=3)
    assert machine.fire(Timer.ACTION, 1) == [AskStandIn(3)]
    assert machine.stand_in_acts(3, "x") == [Send("x")]
    assert machine.state is SeatState.HELD
    machine = held(Outcome.LOSS, asked=3)
    assert machine.fire(Timer.ACTION, 1) == [Dismiss("a", LEFT), DropStandIn(), Leave(), Changed(SeatState.LEFT)]


def test_giving_up() -> None:
    assert held(Outcome.BOT, asked=3).resign("b") == []
    assert held(Outcome.BOT, asked=3).resign("a") == [
        Dismiss("a", LEFT),
        Disarm(Timer.ACTION),
        AskStandIn(3),
        Changed(SeatState.ABSENT),
    ]
    assert Leave() in held(Outcome.LOSS).resign("a")


def test_a_bot_that_fails_loses_the_seat_of_who_is_absent() -> None:
    assert absent(asked=3).stand_in_fails() == [DropStandIn(), Leave(), Changed(SeatState.LEFT)]
    machine = held(asked=3)
    machine.fire(Timer.ACTION, 1)
    assert machine.stand_in_fails() == []
    assert machine.state is SeatState.HELD


def test_the_end_is_told() -> None:
    machine = held(asked=3)
    assert machine.end() == [
        Disarm(Timer.ACTION),
        DropStandIn(),
        Greet("a"),
        Dismiss("a", OVER),
        Changed(SeatState.OVER),
    ]
    assert machine.attach("b") == [Greet("b"), Dismiss("b", OVER)]


def test_what_needs_no_answer_is_shown() -> None:
    machine = held(asked=3)
    assert machine.show() == [Disarm(Timer.ACTION), Show("a")]
    assert machine.act("a", 3, "x") == [TooLate("a", 3)]
    machine.detach("a")
    assert machine.show() == []


@pytest.mark.parametrize("name", ["come_seconds", "grace_seconds", "action_seconds"])
def test_times_are_positive(name: str) -> None:
    for seconds in (0, -1, float("nan")):
        with pytest.raises(InvalidArgumentError, match=name):
            SeatRules(**{name: seconds})  # type: ignore[arg-type]  # any of the names


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("attach"), st.sampled_from("abc")),
        st.tuples(st.just("detach"), st.sampled_from("abc")),
        st.tuples(st.just("ask")),
        st.tuples(st.just("show")),
        st.tuples(st.just("act"), st.sampled_from("abc"), st.integers(-1, 0)),
        st.tuples(st.just("stand_in_acts"), st.integers(-1, 0)),
        st.tuples(st.just("stand_in_fails")),
        st.tuples(st.just("resign"), st.sampled_from("abc")),
        st.tuples(st.just("fire"), st.sampled_from(Timer)),
        st.tuples(st.just("end")),
    ),
    max_size=60,
)


class _Watch:
    """What must hold in any order of inputs."""

    def __init__(self, rules: SeatRules) -> None:
        self.machine = SeatMachine(rules)
        self.armed: dict[Timer, int] = {}
        self.here: set[str] = set()
        self.tick = -1
        self.sent: list[int] = []
        self.left = 0
        self.take(self.machine.begin())

    def take(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Arm):
                self.armed[effect.timer] = effect.number
            elif isinstance(effect, Disarm):
                del self.armed[effect.timer]
            elif isinstance(effect, Dismiss):
                self.here.discard(str(effect.page))
            elif isinstance(effect, Greet | Show):
                assert effect.page in self.here
            elif isinstance(effect, Send):
                self.sent.append(self.tick)
                assert self.machine.state not in (SeatState.LEFT, SeatState.OVER, SeatState.OPEN)
            elif isinstance(effect, Leave):
                self.left += 1

    def step(self, what: str, *arguments: Any) -> None:
        machine = self.machine
        if what == "attach":
            if arguments[0] in self.here:
                return
            self.here.add(arguments[0])
        elif what == "detach":
            if arguments[0] not in self.here:
                return
            self.here.discard(arguments[0])
        elif what == "ask":
            if machine.asked is not None and machine.state not in (SeatState.LEFT, SeatState.OVER):
                return  # a trial asks again once it has been answered
            self.tick += 1
            arguments = (self.tick,)
        elif what == "act":
            arguments = (arguments[0], self.tick + arguments[1], "action")
        elif what == "stand_in_acts":
            arguments = (self.tick + arguments[0], "action")
        elif what == "fire":
            if arguments[0] not in self.armed:
                return
            arguments = (arguments[0], self.armed.pop(arguments[0]))
        self.take(getattr(machine, what)(*arguments))

    def check(self) -> None:
        machine = self.machine
        assert len(self.sent) == len(set(self.sent))
        assert self.left <= 1
        assert (machine.page is not None) == (machine.state is SeatState.HELD)
        if machine.page is not None:
            assert machine.page in self.here
        if machine.state in (SeatState.OPEN, SeatState.AWAY):
            assert Timer.GRACE in self.armed  # nobody waits indefinitely
        if machine.state in (SeatState.LEFT, SeatState.OVER, SeatState.ABSENT):
            assert Timer.GRACE not in self.armed


@given(steps=_STEPS, outcome=st.sampled_from(Outcome))
def test_any_order_of_inputs(steps: list[tuple[Any, ...]], outcome: Outcome) -> None:
    watch = _Watch(RULES[outcome])
    for step in steps:
        watch.step(*step)
        watch.check()


def test_states_as_pages_are_told() -> None:
    assert [state.value for state in SeatState] == ["open", "held", "away", "absent", "left", "over"]
