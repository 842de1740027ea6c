"""Credits: how many steps and episodes a worker may send. Pure: no Trio, no clock of its own.

A `Ledger` has the account of one worker in one run. A credit is granted by the server and consumed when it accepts a
message; the worker takes one off its own copy when it sends. When few are left (`low`), they are filled up (to `high`),
so that control messages stay rare.

Always: 0 <= outstanding <= high, and outstanding = granted - consumed - voided. What is consumed is what was accepted.

`GrantTurns` decides whose turn it is to get a grant where not everybody can have one at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditRules:
    """What holds for the credits of all workers.

    Attributes:
        low: below this many credits they are filled up.
        high: to this many.
        enforced: without a credit nothing is accepted from a worker that has a control stream. Else credits are
            counted and granted, and everything is accepted.
        fail_open: a worker whose control stream is lost may send without credits; else with those that are left.
    """

    low: int = 100
    high: int = 500
    enforced: bool = True
    fail_open: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ValueError(f"low: expected 1 to {self.high} (high), got {self.low}")


class Ledger:
    """The account of one worker in one run.

    Args:
        rules: what holds for all.

    Attributes:
        granted: credits that were ever given, those that were given by accepting without one included.
        consumed: messages accepted.
        voided: credits that were given, and are known to be gone.
        connected: whether the worker has a control stream.
    """

    __slots__ = ("_fill", "_known", "_rules", "connected", "consumed", "granted", "voided")

    def __init__(self, rules: CreditRules) -> None:
        self._rules = rules
        self._known = False  # it has had a control stream
        self._fill = False  # a new control stream begins with a grant, however many credits are left
        self.granted = 0
        self.consumed = 0
        self.voided = 0
        self.connected = False

    @property
    def outstanding(self) -> int:
        """How many credits are left."""
        return self.granted - self.consumed - self.voided

    @property
    def enforcing(self) -> bool:
        """Whether nothing is accepted without a credit."""
        return self._rules.enforced and (self.connected or (self._known and not self._rules.fail_open))

    @property
    def can_accept(self) -> bool:
        """Whether `accept` would."""
        return self.outstanding > 0 or not self.enforcing

    @property
    def wanted(self) -> int:
        """How many credits should be granted now: 0, or what fills them up."""
        if not self.connected:
            return 0
        outstanding = self.granted - self.consumed - self.voided  # as `outstanding`: this is once per message
        return self._rules.high - outstanding if self._fill or outstanding < self._rules.low else 0

    def connect(self) -> None:
        """Take note of a new control stream. What is left of the credits stays, and is filled up."""
        self.connected = self._known = True
        self._fill = self.outstanding < self._rules.high

    def disconnect(self) -> None:
        """Take note that there is no control stream any more."""
        self.connected = False

    def grant(self, amount: int) -> None:
        """Give credits.

        Raises:
            ValueError: less than one, or more than there is room for.
        """
        if not 1 <= amount <= self._rules.high - self.outstanding:
            raise ValueError(f"amount: expected 1 to {self._rules.high - self.outstanding}, got {amount}")
        self.granted += amount
        self._fill = False

    def accept(self) -> bool:
        """Consume a credit for a message; False: there is none, so it is not accepted.

        Where credits are not enforced one is given first.
        """
        if self.granted - self.consumed - self.voided <= 0:
            if self.enforcing:
                return False
            self.granted += 1
        self.consumed += 1
        return True

    def take_back(self, count: int) -> None:
        """Undo the acceptance of messages that could not be stored. Their credits are gone: they were sent.

        Raises:
            ValueError: this many were not accepted.
        """
        if not 0 <= count <= self.consumed:
            raise ValueError(f"count: expected 0 to {self.consumed}, got {count}")
        self.consumed -= count
        self.voided += count

    def spend(self) -> None:
        """Take note that a credit was used for a message that did not need to be accepted: it had come before."""
        if self.outstanding > 0:
            self.voided += 1

    def report(self, balance: int) -> None:
        """Take a worker's word for how many credits it has. Those that it does not have are gone; it cannot make any.

        Raises:
            ValueError: the balance is negative.
        """
        if balance < 0:
            raise ValueError(f"balance: expected 0 or more, got {balance}")
        self.voided += max(0, self.outstanding - balance)


#: A part of a token that rounding may have taken.
_ROUNDING = 1e-6


class _Bucket:
    """A token bucket.

    Args:
        rate: tokens a second; 0: there is always enough.
        capacity: the most tokens it holds; it begins full.
    """

    def __init__(self, rate: float, capacity: float) -> None:
        self._rate = rate
        self._capacity = capacity
        self._tokens = capacity
        self._since = -math.inf

    def tokens(self, now: float) -> float:
        if not self._rate:
            return math.inf
        if now > self._since:
            gained = self._rate * (now - self._since)
            self._tokens = min(self._capacity, self._tokens + gained)
            self._since = now
        return self._tokens

    def take(self, amount: int) -> None:
        if self._rate:
            self._tokens -= amount

    def ready_at(self, amount: int, now: float) -> float:
        """Return when there will be this many, which are not more than the capacity."""
        missing = amount - self.tokens(now)
        return now if missing <= 0 else now + missing / self._rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassShare:
    """What the runs of a class get.

    Attributes:
        weight: turns, compared with the other classes, while several wait.
        rate_hz: the most credits a second, of all its runs; 0: no limit.
    """

    weight: int = 1
    rate_hz: float = 0.0


class GrantTurns:
    """Who gets a grant next: within a class in turns, the classes by their weights and by their own limits.

    Args:
        shares: of each class.
        chunk: grants are not smaller, unless less is wanted.
        capacity: what a limited class may use at once after a pause; not less than `chunk`.
    """

    def __init__(self, shares: Mapping[str, ClassShare], *, chunk: int, capacity: int) -> None:
        self._weights = {name: share.weight for name, share in shares.items()}
        self._buckets = {name: _Bucket(share.rate_hz, max(capacity, chunk)) for name, share in shares.items()}
        self._waiting: dict[str, deque[Ledger]] = {name: deque() for name in shares}
        self._standing = dict.fromkeys(shares, 0)
        self._chunk = chunk

    def wait(self, ledger: Ledger, run_class: str) -> None:
        """Queue a ledger, if it is not queued."""
        if ledger not in self._waiting[run_class]:
            self._waiting[run_class].append(ledger)

    def next(self, now: float) -> tuple[Ledger, int] | None:
        """Return who gets how many credits now, and take it from the queue; None: nobody.

        A ledger that gets less than it wants has to be queued again.
        """
        ready = [name for name in self._waiting if self._is_ready(name, now)]
        if not ready:
            return None
        for name in ready:
            self._standing[name] += self._weights[name]
        chosen = max(ready, key=lambda name: self._standing[name])
        self._standing[chosen] -= sum(self._weights[name] for name in ready)
        ledger = self._waiting[chosen].popleft()
        amount = int(min(ledger.wanted, self._buckets[chosen].tokens(now) + _ROUNDING))
        self._buckets[chosen].take(amount)
        return ledger, amount

    def next_time(self, now: float) -> float:
        """Return when somebody can get a grant; infinity: nobody waits."""
        return min((self._ready_at(name, now) for name in self._waiting), default=math.inf)

    def _is_ready(self, name: str, now: float) -> bool:
        first = self._first(name)
        return first is not None and self._buckets[name].tokens(now) > self._enough(first) - _ROUNDING

    def _ready_at(self, name: str, now: float) -> float:
        first = self._first(name)
        return math.inf if first is None else self._buckets[name].ready_at(self._enough(first), now)

    def _enough(self, ledger: Ledger) -> int:
        return min(ledger.wanted, self._chunk)

    def _first(self, name: str) -> Ledger | None:
        waiting = self._waiting[name]
        while waiting and not waiting[0].wanted:
            waiting.popleft()
        return waiting[0] if waiting else None
