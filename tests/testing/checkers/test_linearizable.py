"""Calls that overlap are linearizable if, and only if, there is an order in which a model gives their answers."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.testing import (
    LOST,
    CallLog,
    LoggedCall,
    NotLinearizableError,
    SequentialModel,
    UndecidedError,
    check_linearizable,
)


class Register(SequentialModel[int]):
    """A register of a number: ("write", n) is answered None, ("read",) its number."""

    def start(self, key: Hashable) -> int:
        return 0

    def after(self, state: int, request: Any, answer: Any) -> Iterable[int]:
        if request[0] == "write":
            return [request[1]]
        return [state] if answer in (state, LOST) else []

    def only_reads(self, request: Any) -> bool:
        return bool(request[0] == "read")

    def expected(self, state: int, request: Any) -> object:
        return state if request[0] == "read" else None


class Registers(Register):
    """Many of them: (what, n, key)."""

    def parts(self, request: Any, answer: Any) -> Iterable[tuple[Hashable, Any, Any]]:
        return [(request[-1], request, answer)]


def call(began: int, ended: int | None, request: Any, answer: Any = None, client: str = "ann") -> LoggedCall:
    return LoggedCall(client, request, LOST if ended is None else answer, began, ended)


WRITE, READ = ("write", 1), ("read",)


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([], True),
        ([call(0, 1, READ, 0)], True),
        ([call(0, 1, READ, 1)], False),
        ([call(0, 1, WRITE), call(2, 3, READ, 1)], True),
        ([call(0, 1, WRITE), call(2, 3, READ, 0)], False),  # stale
        ([call(0, 3, WRITE), call(1, 2, READ, 0)], True),  # while it is written either is right
        ([call(0, 3, WRITE), call(1, 2, READ, 1)], True),
        ([call(0, 7, WRITE), call(1, 2, READ, 1), call(3, 4, READ, 0)], False),  # back in time
        ([call(0, 7, WRITE), call(1, 4, READ, 1), call(3, 6, READ, 0)], True),
        ([call(0, None, WRITE), call(1, 2, READ, 0), call(3, 4, READ, 1)], True),  # lost, and happens later
        ([call(0, None, WRITE), call(1, 2, READ, 1), call(3, 4, READ, 0)], False),
        ([call(2, None, WRITE), call(0, 1, READ, 1)], False),  # not before it began
        ([call(0, None, WRITE), call(1, 2, READ, 0)], True),  # or never
        ([call(0, 9, ("write", 0)), call(1, 2, WRITE), call(3, 4, READ, 1), call(5, 6, READ, 0)], True),
        # A write that changes nothing where it comes first may be needed later.
        ([call(0, 9, ("write", 0)), call(1, 3, WRITE), call(4, 5, READ, 0)], True),
    ],
)
def test_a_register(calls: list[LoggedCall], right: bool) -> None:
    if right:
        order = check_linearizable(calls, Register()).get(None, [])
        assert {one.began for one in calls if one.answer is not LOST} <= {one.began for one in order}
    else:
        with pytest.raises(NotLinearizableError):
            check_linearizable(calls, Register())


operations = st.lists(
    st.tuples(
        st.sampled_from([("write", 1), ("write", 2), ("read",)]), st.integers(0, 2), st.integers(1, 4), st.booleans()
    ),
    max_size=5,
)


@given(drawn=operations, shuffled=st.randoms(use_true_random=False))
def test_like_trying_every_order(drawn: list[Any], shuffled: Any) -> None:
    """The search finds an order if trying all of them does."""
    points = list(range(2 * len(drawn)))
    shuffled.shuffle(points)
    calls = []
    for number, (request, answer, _, lost) in enumerate(drawn):
        began, ended = sorted(points[2 * number : 2 * number + 2])
        calls.append(call(began, None if lost else ended, request, answer if request == READ else None, str(number)))

    def fits(order: tuple[LoggedCall, ...]) -> bool:
        state = 0
        for place, one in enumerate(order):
            if any(later.ended is not None and later.ended < one.began for later in order[place:]):
                return False
            if one.request[0] == "write":
                state = one.request[1]
            elif one.answer not in (state, LOST):
                return False
        return True

    answered = [one for one in calls if one.answer is not LOST]
    lost_ones = [one for one in calls if one.answer is LOST]
    right = any(
        fits(order)
        for count in range(len(lost_ones) + 1)
        for chosen in itertools.combinations(lost_ones, count)
        for order in itertools.permutations([*answered, *chosen])
    )
    try:
        check_linearizable(calls, Register())
    except NotLinearizableError:
        assert not right
    else:
        assert right


def test_keys_are_judged_apart() -> None:
    calls = [call(0, 1, ("write", 1, "a")), call(2, 3, ("read", 0, "b"), 0), call(4, 5, ("read", 0, "a"), 1)]
    assert {key: len(order) for key, order in check_linearizable(calls, Registers()).items()} == {"a": 2, "b": 1}
    with pytest.raises(NotLinearizableError, match=r"^2 calls of 'b': "):
        check_linearizable([*calls, call(6, 7, ("read", 0, "b"), 1)], Registers())


def test_the_report_says_how_far_it_goes_and_what_was_expected_and_seen() -> None:
    calls = [call(0, 1, WRITE), call(2, 3, READ, 0, "bob")]
    with pytest.raises(NotLinearizableError) as caught:
        check_linearizable(calls, Register())
    assert str(caught.value) == (
        "2 calls: an order in which every answer is right: there is none\n"
        "the longest one that was found:\n"
        "  [0..1] ann: ('write', 1) -> None\n"
        "after it: 1\n"
        "of those that may come next none has been answered like this:\n"
        "  [2..3] bob: ('read',) -> 0\n"
        "    expected: 1\n"
        "    seen:     0"
    )


def test_the_search_is_bounded() -> None:
    calls = [call(number, None, ("write", number)) for number in range(12)]
    impossible = [*calls, call(20, 21, READ, 99)]
    with pytest.raises(UndecidedError, match="not found within 50 steps"):
        check_linearizable(impossible, Register(), budget=50)


@dataclass
class Cell:
    """A state that cannot be hashed."""

    numbers: list[int]


class Cells(SequentialModel[Cell]):
    def start(self, key: Hashable) -> Cell:
        return Cell([])

    def after(self, state: Cell, request: Any, answer: Any) -> Iterable[Cell]:
        numbers = [*state.numbers, request]
        return [Cell(numbers)] if answer in (LOST, len(numbers)) else []


def test_a_state_need_not_be_hashable() -> None:
    assert len(check_linearizable([call(0, 3, "a", 2), call(1, 2, "b", 1)], Cells())[None]) == 2


def test_a_log() -> None:
    log = CallLog()
    since = log.now()
    first = log.begin("ann", WRITE)
    lost = log.begin("bob", ("write", 2))
    withdrawn = log.begin("cat", ("write", 3))
    log.seen("dan", READ, 0, since=since)
    log.end(first, None)
    log.forget(withdrawn)
    assert [str(one) for one in log] == [
        "[0..4] dan: ('read',) -> 0",
        "[1..5] ann: ('write', 1) -> None",
        "[2..] bob: ('write', 2) -> no answer",
    ]
    assert len(log) == 3
    assert lost == 2
    check_linearizable(log, Register())
