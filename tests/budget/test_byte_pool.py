"""Memory that many borrow from: nobody gets it all, and what is given back goes to those who wait."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st

from trio_cogment.budget.byte_pool import BytePool


def test_one_that_is_alone_gets_a_ninth() -> None:
    pool = BytePool(900)
    loan = pool.loan()
    assert loan.most() == pool.most == 100
    assert not loan.resize(101)
    assert loan.resize(100)
    assert not loan.resize(101)
    assert pool.used == 100


def test_a_crowd_leaves_something_for_the_next() -> None:
    pool = BytePool(1_000_000)
    for _ in range(100):
        loan = pool.loan()
        assert loan.resize(int(loan.most()))
    # Those who came first may ask again: nobody gets any more than a share, and there is always a next one's.
    assert pool.used < 1_000_000
    assert pool.loan().most() > 0


def test_what_is_in_use_counts_though_it_is_too_much() -> None:
    pool = BytePool(900)
    large, other = pool.loan(), pool.loan()
    large.set(890)
    assert other.most() == 10 / 9
    assert large.resize(500)
    assert other.resize(40)


def test_without_a_limit_everybody_gets_everything() -> None:
    pool = BytePool()
    loan = pool.loan()
    assert not pool.limited
    assert not loan.limited
    assert loan.resize(2**60)


def test_those_who_wait_are_asked_when_something_is_given_back() -> None:
    pool = BytePool(900)
    first, second, third = pool.loan(), pool.loan(), pool.loan()
    first.set(880)
    asked = []
    short = []
    pool.on_short = lambda: short.append(pool.used)

    def again() -> None:
        asked.append(second.resize(20))
        if not asked[-1]:
            second.wait(again)

    second.wait(again)
    third.wait(lambda: asked.append(third.resize(1)))
    assert short == [880]
    first.resize(800)
    assert asked == [False, True]
    first.close()
    assert asked == [False, True, True]
    assert second.size == 20


def test_one_that_gives_back_while_it_is_asked_asks_nobody_within() -> None:
    pool = BytePool(900)
    loans = [pool.loan() for _ in range(2000)]
    for loan in loans[1:]:
        loan.set(1)
        loan.wait(loan.close)
    loans[0].set(10)
    loans[0].close()
    while pool.short:
        pool.ask()
    assert pool.used == 0


def test_who_has_gone_is_not_asked() -> None:
    pool = BytePool(900)
    first, second = pool.loan(), pool.loan()
    first.set(900)
    second.wait(lambda: second.set(5))
    second.close()
    first.close()
    assert pool.used == 0


def test_after_the_end_a_loan_takes_nothing_from_anybody() -> None:
    pool = BytePool(900)
    loan, other = pool.loan(), pool.loan()
    other.set(600)
    loan.set(300)
    loan.wait(lambda: loan.set(5))
    loan.end()
    assert (loan.size, pool.used, pool.short) == (0, 600, False)
    loan.set(300)
    assert loan.resize(10_000)
    assert loan.hold(0, 20_000)
    assert loan.exceed(1000)
    loan.wait(lambda: loan.set(5))
    assert (pool.used, pool.short) == (600, False)
    loan.end()
    assert (loan.size, pool.used) == (0, 600)


@hypothesis.given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 500), st.sampled_from("rsc")), max_size=60))
def test_the_books_are_right(steps: list[tuple[int, int, str]]) -> None:
    pool = BytePool(1000)
    loans = [pool.loan() for _ in range(10)]
    for number, size, kind in steps:
        loan = loans[number]
        before, most = loan.size, loan.most()
        if kind == "r":
            granted = loan.resize(size)
            assert granted == (size <= most)
            assert loan.size == (size if granted else before)
        elif kind == "s":
            loan.set(size)
            assert loan.size == size
        else:
            loan.close()
            assert loan.size == 0
        assert pool.used == sum(one.size for one in loans)
