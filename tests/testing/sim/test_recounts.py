"""Whatever counts is found in a run, and what it counts wrongly is named."""

from __future__ import annotations

from trio_cogment.budget.quotas import Ledger
from trio_cogment.rpc._in_process_queue import MessageQueue
from trio_cogment.servers.orchestrator._fair_turns import FairTurns
from trio_cogment.testing import Counts, World, simulate


def queue() -> MessageQueue:
    return MessageQueue(10, 1000, size_of=len, on_consumer_failed=lambda _: None)


async def in_order(_world: World) -> None:
    counts, ledger, turns, full = Counts(), Ledger("things"), FairTurns(2, 1), queue()
    for item in (b"one", b"two", b"three"):
        full.put_nowait(item)
    ledger.take("ann", 3, None)
    assert turns.acquire_nowait("ann")
    assert counts.wrong() == []
    assert counts.wrong(at_rest=True) == [
        *("FairTurns: accounts with turns: 1 at rest, not 0", "FairTurns: turns: 1 at rest, not 0"),
        *("Ledger: accounts with things: 1 at rest, not 0", "Ledger: things: 3 at rest, not 0"),
    ]
    ledger.give_back("ann", 3)
    turns.release("ann")
    assert counts.wrong(at_rest=True) == []


def test_what_is_in_use_is_no_mistake_before_it_is_at_rest() -> None:
    simulate(1, in_order)


async def wrong(_world: World) -> None:
    counts, queues = Counts(), [queue(), queue()]
    for one in queues:
        one.put_nowait(b"first")
        one.put_nowait(b"second")
    assert counts.wrong() == []
    for one in queues:
        one._bytes += 1
    assert counts.wrong() == ["MessageQueue: bytes of a queue in process: 12 are counted, there are 11 (2 times)"]


def test_what_is_counted_wrongly_is_named_once() -> None:
    simulate(1, wrong)


async def gone(_world: World) -> None:
    counts, ledger = Counts(), Ledger("things")
    ledger.take("ann", 1, None)
    assert counts.wrong() == []
    del ledger
    assert counts.wrong(at_rest=True) != []


def test_what_nobody_refers_to_any_more_is_looked_at_if_it_was_seen() -> None:
    simulate(1, gone)


def test_what_was_there_before_the_run_is_not_its_affair() -> None:
    ledger = Ledger("things")
    ledger.take("ann", 1, None)

    async def run(_world: World) -> list[str]:
        return Counts().wrong(at_rest=True)

    assert simulate(1, run).value == []
