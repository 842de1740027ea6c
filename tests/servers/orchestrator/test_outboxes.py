"""Outboxes of participants that do not read are borrowed, and who has borrowed most goes first."""

from __future__ import annotations

from trio_cogment.api.common_pb2 import ActorRunTrialInput
from trio_cogment.base.shared_message import SharedObservation
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.rpc import SharedMessage
from trio_cogment.servers.orchestrator._outboxes import FREE_BYTES, Outboxes, OutboxMemory, outbox_memory

TOTAL = 9 * 2**20
STEP = 64 * 1024


def boxes(memory: OutboxMemory) -> Outboxes:
    return Outboxes(100, 2**24, memory)


def said(size: int) -> ActorRunTrialInput:
    return ActorRunTrialInput(details="x" * size)


def test_a_little_is_free_and_the_rest_is_borrowed() -> None:
    memory = OutboxMemory(BytePool(TOTAL))
    outboxes = boxes(memory)
    small, large = said(FREE_BYTES // 2), said(500_000)
    assert outboxes.add("ann", small)
    assert memory.pool.used == 0
    assert outboxes.add("ann", large)
    assert outboxes.size - FREE_BYTES <= memory.pool.used < outboxes.size - FREE_BYTES + STEP
    outboxes.remove("ann", large)
    assert memory.pool.used == 0
    assert not memory.borrowers
    outboxes.remove("ann", small)
    assert outboxes.size == 0


def test_what_several_wait_for_counts_once() -> None:
    memory = OutboxMemory(BytePool(TOTAL))
    outboxes = boxes(memory)
    tail = bytes(FREE_BYTES - 1000)
    messages = [SharedMessage(ActorRunTrialInput, b"%d" % number, tail) for number in range(9)]
    for number, message in enumerate(messages):
        assert outboxes.add(number, message)
    assert outboxes.size == FREE_BYTES - 1000 + 9
    assert outboxes.hog() is None  # nothing is borrowed
    for number, message in enumerate(messages):
        outboxes.remove(number, message)
    assert outboxes.size == 0


def test_an_observation_that_all_see_counts_once_however_large() -> None:
    memory = OutboxMemory(BytePool(TOTAL))
    outboxes = boxes(memory)
    for size in (10, 4 * 2**20):
        shared = SharedObservation(3, 4, bytes(size))
        for number in range(300):
            assert outboxes.add(number, shared)
        assert size <= outboxes.size <= size + 300 * 32
        for number in range(300):
            outboxes.remove(number, shared)
        assert outboxes.size == 0


def test_the_largest_goes_first_and_who_waits_for_little_stays() -> None:
    memory = OutboxMemory(BytePool(TOTAL))
    hogs = [boxes(memory) for _ in range(3)]
    honest = boxes(memory)
    kept: dict[tuple[int, int], list[ActorRunTrialInput]] = {}
    full = False
    while not full:
        for number, hog in enumerate(hogs):
            message = said(100_000 * (number + 1))
            kept.setdefault((number, number % 2), [])
            if not hog.add((number, number % 2), message):
                full = True
                break
            kept[number, number % 2].append(message)
    assert memory.pool.used <= TOTAL
    # The honest one always has a little.
    assert honest.add("honest", said(FREE_BYTES - 100))
    # Of the others, the one for whom most waits, in the trial that has borrowed most, is given up.
    participant = honest.hog()
    assert participant[0] == 2
    for message in kept[participant]:
        hogs[2].remove(participant, message)
    assert honest.add("honest", said(1_000_000))
    assert memory.pool.used <= TOTAL


def test_outboxes_have_something_though_others_have_borrowed_everything() -> None:
    memory = OutboxMemory(BytePool(TOTAL))
    memory.pool.loan().set(TOTAL)
    outboxes = boxes(memory)
    assert outboxes.add("ann", said(1_000_000))
    assert not boxes(memory).add("ben", said(1_000_000))
    assert outboxes.hog() == "ann"


def test_what_waits_for_each_is_the_sum_of_its_messages() -> None:
    memory = OutboxMemory(BytePool(TOTAL))
    outboxes = boxes(memory)
    first, second, other = said(500_000), said(400_000), said(450_000)
    assert outboxes.add("ann", first)
    assert outboxes.add("ann", second)
    assert outboxes.add("bob", other)
    assert outboxes.hog() == "ann"
    outboxes.remove("ann", first)
    assert outboxes.hog() == "bob"
    outboxes.remove("bob", other)
    assert outboxes.hog() == "ann"
    outboxes.remove("ann", second)
    assert (outboxes.hog(), outboxes.size, memory.pool.used) == (None, 0, 0)
    assert [(count.kept, count.counted) for count in outboxes.recount()] == [(0, 0)] * 3


def test_what_is_borrowed_is_given_back_in_steps_and_not_for_each_message() -> None:
    memory = OutboxMemory(BytePool(TOTAL))
    outboxes = boxes(memory)
    first = said(FREE_BYTES)
    many = [said(STEP // 2) for _ in range(12)]
    for message in (first, *many):
        assert outboxes.add("ann", message)
    before = outboxes.borrowed
    assert before % STEP == 0
    changes = 0
    for message in many:
        outboxes.remove("ann", message)
        least = outboxes.size - FREE_BYTES
        assert least <= outboxes.borrowed < least + 2 * STEP
        changes += outboxes.borrowed != before
        if outboxes.borrowed != before:
            assert outboxes.borrowed < least + STEP
        before = outboxes.borrowed
    assert 2 <= changes <= 5
    outboxes.remove("ann", first)
    assert (outboxes.borrowed, memory.pool.used) == (0, 0)


async def test_all_trials_of_a_run_share_one_memory() -> None:
    memory = outbox_memory()
    assert outbox_memory() is memory
    assert memory.pool is memory_of_run().messages
