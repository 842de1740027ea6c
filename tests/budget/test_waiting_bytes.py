"""Bytes that wait in one place of a connection, and the loan for them."""

from __future__ import annotations

from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.waiting_bytes import WaitingBytes

KIB = 1024
FREE_BYTES = 64 * KIB


def empty_pool() -> BytePool:
    """A pool of which everything is lent."""
    pool = BytePool(900 * KIB)
    pool.loan().set(900 * KIB)
    return pool


def test_a_free_part_is_not_borrowed_even_where_nothing_is_left() -> None:
    waiting = WaitingBytes(empty_pool().loan())
    assert waiting.admits(FREE_BYTES, lambda: None)
    waiting.queue(FREE_BYTES)
    assert not waiting.admits(1, lambda: None)
    assert waiting.loan.size == 0


def test_what_is_more_is_borrowed_and_given_back() -> None:
    pool = BytePool(9_000 * KIB)
    waiting = WaitingBytes(pool.loan())
    assert waiting.admits(FREE_BYTES + 500 * KIB, lambda: None)
    assert pool.used == 500 * KIB
    waiting.queue(FREE_BYTES + 500 * KIB)
    assert pool.used == 500 * KIB
    waiting.queue(-300 * KIB)
    assert pool.used == 200 * KIB
    waiting.queue(-FREE_BYTES - 200 * KIB)
    assert pool.used == 0


def test_what_was_not_asked_for_is_borrowed_all_the_same() -> None:
    pool = BytePool(900 * KIB)
    waiting = WaitingBytes(pool.loan())
    waiting.queue(FREE_BYTES + 2_000 * KIB)
    assert pool.used == 2_000 * KIB


def test_who_is_refused_asks_again_when_there_is_room() -> None:
    pool = BytePool(900 * KIB)
    other, waiting = pool.loan(), WaitingBytes(pool.loan())
    other.set(900 * KIB)
    told: list[int] = []
    assert not waiting.admits(FREE_BYTES + 50 * KIB, lambda: told.append(1))
    assert pool.short
    other.set(0)
    assert told == [1]
    assert waiting.admits(FREE_BYTES + 50 * KIB, lambda: told.append(2))
    assert told == [1]


def test_who_is_refused_asks_again_when_its_own_bytes_are_gone() -> None:
    pool = empty_pool()
    waiting = WaitingBytes(pool.loan())
    waiting.queue(FREE_BYTES)
    told: list[int] = []
    assert not waiting.admits(KIB, lambda: told.append(1))
    waiting.queue(-FREE_BYTES)
    assert told == [1]


def test_there_is_plenty_until_others_have_most_of_it() -> None:
    pool = BytePool(64 * KIB * KIB)
    other, waiting = pool.loan(), WaitingBytes(pool.loan())
    assert waiting.is_plentiful()
    other.set(60 * KIB * KIB)
    assert not waiting.is_plentiful()


def test_nothing_is_borrowed_after_the_end_and_nobody_waits() -> None:
    pool = BytePool(900 * KIB)
    waiting = WaitingBytes(pool.loan())
    waiting.queue(FREE_BYTES + 100 * KIB)
    told: list[int] = []
    assert not waiting.admits(900 * KIB, lambda: told.append(1))
    waiting.discard()
    assert told == [1]
    assert (pool.used, pool.short) == (0, False)


def test_an_empty_message_that_leaves_gives_back_what_nobody_needs() -> None:
    pool = BytePool(9_000 * KIB)
    waiting = WaitingBytes(pool.loan())
    assert waiting.admits(FREE_BYTES + 500 * KIB, lambda: None)
    assert pool.used == 500 * KIB
    waiting.queue(0)
    assert pool.used == 0


def test_there_is_plenty_while_a_mebibyte_can_be_had_beside_what_waits() -> None:
    """One borrower may have a ninth of the pool; what is free counts as well."""
    waiting = WaitingBytes(BytePool(9 * 1024 * KIB).loan())
    seen = []
    for change in (0, FREE_BYTES, 1, -1, 2, -2):
        waiting.queue(change)
        seen.append(waiting.is_plentiful())
    assert seen == [True, True, False, True, False, True]


def test_where_nobody_waits_nobody_is_told() -> None:
    waiting = WaitingBytes(BytePool(900 * KIB).loan())
    waiting.wake()
    waiting.queue(-0)
    waiting.discard()
    assert waiting.loan.size == 0


def test_who_has_asked_again_is_not_told_when_memory_comes_back_too() -> None:
    """Its own bytes were gone before the pool, for which it waits as well, had anything for it."""
    pool = BytePool(900 * KIB)
    other, waiting = pool.loan(), WaitingBytes(pool.loan())
    other.set(900 * KIB)
    waiting.queue(FREE_BYTES)
    told: list[int] = []
    assert not waiting.admits(KIB, lambda: told.append(1))
    waiting.queue(-FREE_BYTES)
    assert told == [1]
    other.set(0)
    assert told == [1]


def test_what_comes_after_the_end_of_a_connection_is_not_borrowed_for() -> None:
    pool = BytePool(900 * KIB)
    waiting = WaitingBytes(pool.loan())
    waiting.discard()
    waiting.queue(FREE_BYTES + 500 * KIB)
    assert (pool.used, pool.short) == (0, False)
