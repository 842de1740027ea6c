"""The arithmetic of credits, and whose turn it is to get some."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trio_cogment.trainer.credits import ClassShare, CreditRules, GrantTurns, Ledger

RULES = CreditRules()


def connected(rules: CreditRules = RULES) -> Ledger:
    ledger = Ledger(rules)
    ledger.connect()
    ledger.grant(ledger.wanted)
    return ledger


def test_a_new_stream_begins_with_a_full_grant() -> None:
    ledger = Ledger(RULES)
    assert ledger.wanted == 0
    ledger.connect()
    assert ledger.wanted == 500
    ledger.grant(500)
    assert (ledger.outstanding, ledger.wanted) == (500, 0)


def test_below_the_low_mark_credits_are_filled_up() -> None:
    ledger = connected()
    for _ in range(400):
        assert ledger.accept()
    assert (ledger.outstanding, ledger.wanted) == (100, 0)
    assert ledger.accept()
    assert ledger.wanted == 401
    ledger.grant(401)
    assert (ledger.granted, ledger.consumed, ledger.outstanding) == (901, 401, 500)


def test_without_a_credit_nothing_is_accepted_where_they_are_enforced() -> None:
    ledger = connected(CreditRules(low=1, high=2))
    assert [ledger.accept() for _ in range(3)] == [True, True, False]
    assert (ledger.consumed, ledger.outstanding, ledger.wanted) == (2, 0, 2)


def test_where_they_are_advisory_everything_is_accepted_and_counted() -> None:
    ledger = connected(CreditRules(low=1, high=2, enforced=False))
    assert all(ledger.accept() for _ in range(5))
    assert (ledger.granted, ledger.consumed, ledger.outstanding) == (5, 5, 0)


def test_who_never_had_a_control_stream_is_not_held_back() -> None:
    ledger = Ledger(RULES)
    assert all(ledger.accept() for _ in range(1000))
    assert (ledger.consumed, ledger.outstanding) == (1000, 0)
    ledger.connect()
    assert ledger.wanted == 500


@pytest.mark.parametrize(("fail_open", "accepted"), [(True, 9), (False, 2)])
def test_a_lost_stream(fail_open: bool, accepted: int) -> None:
    ledger = connected(CreditRules(low=1, high=2, fail_open=fail_open))
    ledger.disconnect()
    assert sum(ledger.accept() for _ in range(9)) == accepted
    assert ledger.wanted == 0


def test_a_stream_that_comes_again_gets_what_is_missing() -> None:
    ledger = connected()
    for _ in range(50):
        ledger.accept()
    ledger.disconnect()
    ledger.connect()
    assert ledger.wanted == 50
    ledger.grant(50)
    ledger.disconnect()
    ledger.connect()
    assert ledger.wanted == 0


def test_a_worker_can_say_what_it_does_not_have() -> None:
    ledger = connected()
    ledger.report(30)
    assert (ledger.outstanding, ledger.voided, ledger.wanted) == (30, 470, 470)
    ledger.report(1000)
    assert ledger.outstanding == 30
    with pytest.raises(ValueError, match="expected 0 or more"):
        ledger.report(-1)


def test_what_could_not_be_stored_was_not_accepted() -> None:
    ledger = connected()
    ledger.accept()
    ledger.take_back(1)
    assert (ledger.consumed, ledger.outstanding) == (0, 499)
    with pytest.raises(ValueError, match="expected 0 to 0"):
        ledger.take_back(1)


@pytest.mark.parametrize("amount", [0, 501])
def test_no_grant_goes_over_the_high_mark(amount: int) -> None:
    ledger = Ledger(RULES)
    ledger.connect()
    with pytest.raises(ValueError, match="expected 1 to 500"):
        ledger.grant(amount)


def test_marks_are_checked() -> None:
    with pytest.raises(ValueError, match="expected 1 to 5"):
        CreditRules(low=6, high=5)


class Account(RuleBasedStateMachine):
    """A worker and a ledger that do anything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = CreditRules(low=3, high=8)
        self.ledger = Ledger(self.marks)
        self.accepted = 0

    @rule(enforced=st.booleans(), fail_open=st.booleans())
    @precondition(lambda self: not self.accepted and not self.ledger.granted)
    def begin(self, enforced: bool, fail_open: bool) -> None:
        self.marks = CreditRules(low=3, high=8, enforced=enforced, fail_open=fail_open)
        self.ledger = Ledger(self.marks)

    @rule()
    def connect(self) -> None:
        self.ledger.connect()

    @rule()
    def disconnect(self) -> None:
        self.ledger.disconnect()

    @rule(part=st.integers(1, 8))
    def grant(self, part: int) -> None:
        if self.ledger.wanted:
            self.ledger.grant(min(part, self.ledger.wanted))

    @rule()
    def accept(self) -> None:
        before, enforcing = self.ledger.outstanding, self.ledger.enforcing
        taken = self.ledger.accept()
        assert taken is (before > 0 or not enforcing)
        self.accepted += taken

    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, self.accepted))
        self.ledger.take_back(count)
        self.accepted -= count

    @rule()
    def spend(self) -> None:
        before = self.ledger.outstanding
        self.ledger.spend()
        assert self.ledger.outstanding == max(0, before - 1)

    @rule(balance=st.integers(0, 20))
    def report(self, balance: int) -> None:
        self.ledger.report(balance)

    @invariant()
    def holds(self) -> None:
        ledger = self.ledger
        assert 0 <= ledger.outstanding <= self.marks.high
        assert ledger.consumed == self.accepted
        assert ledger.outstanding == ledger.granted - ledger.consumed - ledger.voided
        assert 0 <= ledger.wanted <= self.marks.high - ledger.outstanding
        assert not ledger.wanted or ledger.connected


TestAccount = Account.TestCase


def turns(**shares: ClassShare) -> GrantTurns:
    return GrantTurns(shares, chunk=100, capacity=1000)


def test_classes_get_turns_by_their_weights() -> None:
    order = turns(interactive=ClassShare(weight=3), batch=ClassShare(weight=1))
    names = {}
    for number in range(8):
        for name in ("interactive", "batch"):
            ledger = Ledger(RULES)
            ledger.connect()
            names[ledger] = f"{name} {number}"
            order.wait(ledger, name)
    got = []
    while (turn := order.next(0.0)) is not None:
        assert turn[1] == 500
        got.append(names[turn[0]])
    assert Counter(name.split()[0] for name in got[:8]) == {"interactive": 6, "batch": 2}
    assert sorted(got) == sorted(names.values())
    assert [name for name in got if "batch" in name] == [f"batch {number}" for number in range(8)]


def test_a_class_with_a_limit_waits_for_it() -> None:
    order = turns(batch=ClassShare(rate_hz=50))
    first, second, third = connected_three()
    for ledger in (first, second, third):
        order.wait(ledger, "batch")
        order.wait(ledger, "batch")
    assert order.next(0.0) == (first, 500)
    assert order.next(0.0) == (second, 500)
    assert order.next(0.0) is None
    assert order.next_time(0.0) == pytest.approx(2.0)
    assert order.next(1.9) is None
    assert order.next(2.0) == (third, 100)
    assert order.next_time(2.0) == math.inf


def connected_three() -> tuple[Ledger, Ledger, Ledger]:
    ledgers = Ledger(RULES), Ledger(RULES), Ledger(RULES)
    for ledger in ledgers:
        ledger.connect()
    return ledgers


def test_who_wants_nothing_any_more_is_passed_over() -> None:
    order = turns(batch=ClassShare())
    first, second, _ = connected_three()
    order.wait(first, "batch")
    order.wait(second, "batch")
    first.disconnect()
    assert order.next(0.0) == (second, 500)
    assert order.next_time(0.0) == math.inf


@given(
    st.lists(st.sampled_from(["interactive", "batch"]), min_size=1, max_size=12),
    st.just(0.0) | st.floats(0.1, 1000),
    st.floats(0.1, 1000),
)
def test_everybody_gets_a_turn(classes: list[str], rate: float, other: float) -> None:
    order = turns(interactive=ClassShare(weight=5, rate_hz=rate), batch=ClassShare(rate_hz=other))
    served = set()
    for run_class in classes:
        ledger = Ledger(RULES)
        ledger.connect()
        order.wait(ledger, run_class)
    now = 0.0
    for _ in range(3 * len(classes)):
        now = order.next_time(now)
        if now == math.inf:
            break
        turn = order.next(now)
        assert turn is not None
        assert turn[1] >= 100
        turn[0].grant(turn[1])
        served.add(turn[0])
    assert len(served) == len(classes)
