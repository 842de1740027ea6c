"""Linearizability: whether calls of several clients that overlap could have happened one at a time.

A service is linearizable if each of its calls seems to happen at one moment between its beginning and its end. A
`SequentialModel` says what one call does after another; `check_linearizable` looks for an order of the recorded calls
in which the model gives every answer that was given. The search is that of Wing and Gong, with the memory of Lowe: it
goes on from each set of calls and state only once.

Whose answer was lost may have happened at any time after it began, or never.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

State = TypeVar("State")

#: Sets of calls with a state that are looked at before a search is given up.
DEFAULT_BUDGET = 20_000
#: Calls that a report shows before those that do not fit.
_SHOWN = 12
_MOST_OF_A_LINE = 200
#: How many answers a call whose answer is LOST has to explain, for the search to prefer an order with it.
_COST_OF_LOST = 2


class _Lost(enum.Enum):
    LOST = "no answer"

    def __repr__(self) -> str:
        return self.value


#: The answer of a call whose answer nobody knows: it may have happened, at any time since, or not.
LOST = _Lost.LOST


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """A call of a client.

    Attributes:
        client: who made it.
        request: what was asked.
        answer: what was answered; LOST if nobody knows.
        began: when, as a place in the order of all beginnings and ends.
        ended: the same of its end; None for one that is LOST.
    """

    client: str
    request: Any
    answer: Any
    began: int
    ended: int | None = None

    def __str__(self) -> str:
        until = "" if self.ended is None else self.ended
        return f"[{self.began}..{until}] {self.client}: {_short(self.request)} -> {_short(self.answer)}"


class CallLog:
    """The calls of all clients of a run, in the order in which they began and ended.

    The order is that of the calls of these methods, which is finer than any clock: on a virtual one many things happen
    at the same time.
    """

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self._open: dict[int, LoggedCall] = {}
        self._over: list[LoggedCall] = []

    def begin(self, client: str, request: Any) -> int:
        """Note that a call is about to be made; return its number. If it never ends it is LOST."""
        began = next(self._ticks)
        self._open[began] = LoggedCall(client, request, LOST, began)
        return began

    def end(self, number: int, answer: Any) -> None:
        """Note what a call was answered."""
        self._over.append(replace(self._open.pop(number), answer=answer, ended=next(self._ticks)))

    def forget(self, number: int) -> None:
        """Take a call back: it is certain that it had no effect, and it was answered nothing that could be judged."""
        del self._open[number]

    def now(self) -> int:
        """Return the place of this moment in the order, for `seen`."""
        return next(self._ticks)

    def seen(self, client: str, request: Any, answer: Any, *, since: int) -> None:
        """Note an answer that came now to what was asked before, such as a message of a stream."""
        self._over.append(LoggedCall(client, request, answer, since, next(self._ticks)))

    def __iter__(self) -> Iterator[LoggedCall]:
        return iter([*self._over, *self._open.values()])

    def __len__(self) -> int:
        return len(self._over) + len(self._open)


class SequentialModel(Generic[State]):
    """What a service does, one call at a time. Derive from it; `start` and `after` have to be defined.

    A state may be of dicts, lists, sets, tuples and dataclasses around hashable values. It must not be changed: what
    follows is a new one.
    """

    def start(self, key: Hashable) -> State:
        """Return the state at the beginning, of the part with this key."""
        raise NotImplementedError

    def after(self, state: State, request: Any, answer: Any) -> Iterable[State]:
        """Return the states that may follow if this is asked and answered now; none: this cannot be answered now.

        If the answer is LOST, the states that follow if it happens now, whatever it is answered.
        """
        raise NotImplementedError

    def parts(self, request: Any, answer: Any) -> Iterable[tuple[Hashable, Any, Any]]:
        """Divide a call into parts that may happen at different moments: the key, the request and the answer of each.

        Parts with different keys must have nothing to do with each other: they are judged apart, each key with a state
        of its own, which makes the search much shorter. By default nothing is divided.
        """
        return [(None, request, answer)]

    def only_reads(self, request: Any) -> bool:
        """Tell whether a request never changes anything for others, whatever the state. It makes the search shorter."""
        return False

    def expected(self, state: State, request: Any) -> object:
        """Return what would be answered now, for reports; None: nothing is told."""
        return None


class NotLinearizableError(AssertionError):
    """Calls have no order in which the model answers as was answered; the text tells how far one goes."""


class UndecidedError(Exception):
    """The search for an order was given up, because there are too many of them."""


def check_linearizable(
    calls: Iterable[LoggedCall], model: SequentialModel[Any], *, budget: int = DEFAULT_BUDGET
) -> dict[Hashable, list[LoggedCall]]:
    """Find an order of calls that a model agrees with.

    Args:
        calls: a `CallLog`, or what one had recorded.
        model: says what is right.
        budget: how many sets of calls with a state are looked at, for each key.

    Returns:
        Such an order, by key. Calls that are LOST are in it only where others show that they have happened.

    Raises:
        NotLinearizableError: there is none.
        UndecidedError: it was not found within the budget. Fewer calls, fewer that are LOST, or
            `SequentialModel.parts` help.
    """
    by_key: dict[Hashable, list[LoggedCall]] = defaultdict(list)
    for call in calls:
        for key, request, answer in model.parts(call.request, call.answer):
            by_key[key].append(replace(call, request=request, answer=answer))
    return {key: _Search(model, key, of_key, budget).order() for key, of_key in by_key.items()}


class _Search(Generic[State]):
    """The search for an order of the calls of one key.

    Sets of calls are numbers with a bit for each. A call may be next if it began before every other one that is left
    has ended. What only reads is taken as soon as it fits: that never stands in the way of the others.
    """

    def __init__(self, model: SequentialModel[State], key: Hashable, calls: Sequence[LoggedCall], budget: int) -> None:
        # By their ends: those that ended early are tried first, and come first in most orders.
        last = 2 * max((op.ended or op.began for op in calls), default=0) + 2
        self._all = sorted(calls, key=lambda op: (last if op.ended is None else op.ended, op.began))
        self._model, self._key, self._budget = model, key, budget
        self._answered = sum(1 << number for number, op in enumerate(self._all) if op.ended is not None)
        self._seen: set[tuple[int, Hashable]] = set()
        self._furthest: tuple[list[int], int, State] = ([], 0, model.start(key))

    def order(self) -> list[LoggedCall]:
        """Return an order, or raise."""
        start = self._model.start(self._key)
        # What is still to be tried: the calls so far, in order, the same as a set, and the state after them. First
        # those with the most answers and the fewest calls whose answer is LOST, then the newest.
        left: list[tuple[int, int, list[int], int, State]] = [(0, 0, [], 0, start)]
        pushed = furthest = 0
        while left:
            *_, order, done, state = heapq.heappop(left)
            if done & self._answered == self._answered:
                return [self._all[number] for number in order]
            frozen = _frozen(state)
            if (done, frozen) in self._seen:
                continue
            if len(self._seen) >= self._budget:
                raise UndecidedError(self._report(f"not found within {self._budget} steps"))
            self._seen.add((done, frozen))
            if (reached := (done & self._answered).bit_count()) > furthest:
                furthest, self._furthest = reached, (order, done, state)
            for number, after in self._next(done, state, frozen):
                pushed += 1
                followed = done | 1 << number
                answered = (followed & self._answered).bit_count()
                lost = followed.bit_count() - answered
                heapq.heappush(left, (_COST_OF_LOST * lost - answered, -pushed, [*order, number], followed, after))
        raise NotLinearizableError(self._report("there is none"))

    def _next(self, done: int, state: State, frozen: Hashable) -> list[tuple[int, State]]:
        """Return the calls that may come next, each with a state that it leads to."""
        found: list[tuple[int, State]] = []
        for number in self._candidates(done):
            call = self._all[number]
            after = list(self._model.after(state, call.request, call.answer))
            same = any(_frozen(one) == frozen for one in after)
            if same and call.ended is not None:
                if self._model.only_reads(call.request):
                    return [(number, state)]
                found.append((number, state))
            found.extend((number, one) for one in after if _frozen(one) != frozen)
        found.reverse()  # the newest is tried first, and of these that is to be the first
        return found

    def _candidates(self, done: int) -> Iterator[int]:
        left = [(number, op) for number, op in enumerate(self._all) if not done >> number & 1]
        first_end = min(op.ended for _, op in left if op.ended is not None)
        return (number for number, op in left if op.began < first_end)

    def _where(self) -> str:
        whose = "" if self._key is None else f" of {self._key!r}"
        return f"{len(self._all)} calls{whose}"

    def _report(self, found: str) -> str:
        order, done, state = self._furthest
        fitting = [f"  {self._all[number]}" for number in order]
        cut = [f"  ({len(fitting) - _SHOWN} more)"] if len(fitting) > _SHOWN else []
        stuck = []
        for number in self._candidates(done):
            call = self._all[number]
            if call.ended is not None:
                stuck.append(f"  {call}")
                expected = self._model.expected(state, call.request)
                if expected is not None:
                    stuck.append(f"    expected: {_short(expected)}\n    seen:     {_short(call.answer)}")
        return "\n".join(
            [
                f"{self._where()}: an order in which every answer is right: {found}",
                "the longest one that was found:",
                *cut,
                *(fitting[-_SHOWN:] or ["  (none)"]),
                f"after it: {_short(state)}",
                "of those that may come next none has been answered like this:",
                *stuck,
            ]
        )


def _frozen(value: Any) -> Hashable:
    """Return something hashable that is the same for the same state."""
    kind = type(value)
    if kind is tuple or kind is list:
        return tuple(map(_frozen, value))
    if kind is dict:
        return tuple((key, _frozen(item)) for key, item in value.items())
    if kind is set or kind is frozenset:
        return frozenset(map(_frozen, value))
    if isinstance(value, tuple):  # a named one
        return (kind, *map(_frozen, value))
    fields: Callable[[], Iterable[str]] | None = getattr(kind, "__dataclass_fields__", None)
    if fields is not None and not getattr(kind, "__hash__", None):
        return (kind, *(_frozen(getattr(value, name)) for name in kind.__dataclass_fields__))
    return value  # type: ignore[no-any-return]  # whatever is none of these has to be hashable


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _MOST_OF_A_LINE else f"{text[:_MOST_OF_A_LINE]}..."
