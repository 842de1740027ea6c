"""History of a store after each of its transactions, and which of that may be there after a loss of power."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.power.disk import Record, Synced


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

    def synced(self, before: int, log: str) -> int:
        """Return which state was the last one to be acknowledged before the last sync of a log.

        Args:
            before: the first operation that was not done.
            log: the name of a file that has all that is acknowledged before the database has it.
        """
        operations = self.record.operations[:before]
        last = max((number for number, done in enumerate(operations) if done == Synced(log)), default=-1)
        return max(sum(done <= last for done in self.acknowledged) - 1, 0)

    def check(self, found: str, before: int, *, first: int | None = None) -> str:
        """Return what is wrong with a state that was found after a loss of power; empty: nothing.

        Args:
            found: what is in the store.
            before: the first operation that was not done.
            first: the state that must be there at least; None: the last that was acknowledged.
        """
        last = sum(done <= before for done in self.acknowledged) - 1
        # A transaction that changes nothing writes nothing, so several may have been acknowledged at one operation.
        begun = last + (self.acknowledged[last] < before)
        if first is None:
            first = last
        if found in self.states[first : begun + 1]:
            return ""
        if found not in self.states:
            return f"before operation {before}: what is there never was"
        there = self.place_of(found)
        return f"before operation {before}: transaction {there} is the last one, not one of {first} to {begun}"

    def place_of(self, found: str) -> int:
        """Return after which transaction a state was there; if after several, the last of them."""
        return max(number for number, state in enumerate(self.states) if state == found)
