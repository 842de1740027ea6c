"""What a store held after each of its transactions, and which of that may be there after a loss of power."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.power.disk import Record


@dataclass
class History:
    """A store's contents, in the order of its transactions.

    Attributes:
        record: of the disk that the store writes to.
        states: texts for all that was in the store, the first before anything was written.
        acknowledged: how many operations of the disk had been done when each state was acknowledged.
    """

    record: Record
    states: list[str] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)

    def note(self, state: str, acknowledged: int | None = None) -> None:
        """Note what a transaction has led to.

        Args:
            state: what is in the store.
            acknowledged: the number of operations when the transaction was acknowledged; None: now.
        """
        self.states.append(state)
        self.acknowledged.append(len(self.record.operations) if acknowledged is None else acknowledged)

    def check(self, found: str, before: int, *, all_of_it: bool = True) -> str:
        """Return what is wrong with a state that was found after a loss of power; empty: nothing.

        Args:
            found: what is in the store.
            before: the first operation that was not done.
            all_of_it: nothing that was acknowledged may be missing; else the last transactions may be.
        """
        last = sum(done <= before for done in self.acknowledged) - 1
        # A transaction that changes nothing writes nothing, so several may have been acknowledged at one operation.
        begun = last + (self.acknowledged[last] < before)
        first = last if all_of_it else 0
        if found in self.states[first : begun + 1]:
            return ""
        if found not in self.states:
            return f"before operation {before}: what is there never was"
        there = max(number for number, state in enumerate(self.states) if state == found)
        return f"before operation {before}: transaction {there} is the last one, not one of {first} to {begun}"
