"""Faults in front of any storage interface, at random or by plan, recorded in the history."""

from __future__ import annotations

import enum
import inspect
import math
import random
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

import trio
from typing_extensions import override

from trio_cogment.base.errors import UnavailableError
from trio_cogment.testing.history import History
from trio_cogment.testing.sim.fault_plan import Fault, FaultPlan

S = TypeVar("S")

#: What has no operations of its own.
_PLAIN = (type(None), bool, int, float, str, bytes, tuple, list, dict)


class StoreFault(enum.Enum):
    """The faults of an operation; the values are the names of faults in a plan."""

    #: It fails without having done anything.
    BEFORE = "store error before"
    #: It is done, and then fails; the caller cannot tell.
    AFTER = "store error after"
    #: It is delayed.
    DELAY = "store delay"
    #: It does nothing and waits until it is cancelled.
    HANG = "store hang"


#: What takes time, so that what is called and not awaited cannot do it.
_WAITING = (StoreFault.DELAY, StoreFault.HANG)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFaults:
    """The probabilities of random faults, together at most 1.

    Attributes:
        before: that an operation fails without having done anything.
        after: that it fails after it was done.
        delay: that it is delayed, by up to `max_delay_seconds`.
        hang: that it waits until it is cancelled.
        max_delay_seconds: how long a delay may be.
        operations: the names of the operations that may be affected; None means all.
    """

    before: float = 0.0
    after: float = 0.0
    delay: float = 0.0
    hang: float = 0.0
    max_delay_seconds: float = 1.0
    operations: Collection[str] | None = None

    def __post_init__(self) -> None:
        shares = (self.before, self.after, self.delay, self.hang)
        if not all(share >= 0 for share in shares) or not sum(shares) <= 1:
            raise ValueError(f"expected shares of 0 or more that are at most 1 together, got {shares}")
        if not 0 <= self.max_delay_seconds < math.inf:
            raise ValueError(f"max_delay_seconds: expected 0 or more, got {self.max_delay_seconds}")
        if isinstance(self.operations, str):
            raise ValueError(f"operations: expected a collection of names, got {self.operations!r}")


class FaultyStore(Generic[S]):
    """Puts faults in front of a storage.

    `store` is what the code under test is given: it has all that the storage has. Hit may be whatever is awaited, the
    entering of an asynchronous context manager (and what is awaited of what that yields), and each step of an
    asynchronous iterator. Anything else goes through. An operation's name is that of the method; that of a method of
    what a context manager `watch` yields is, for example, `watch.changed`.

    An interface whose operations are called and not awaited, as those that belong into worker threads, needs `plain`:
    then every call of it, and of the objects that it returns, may fail before it is done or after. Of calls that return
    objects none is done and fails: a fault by plan waits for a call that can, and one by chance is none. There are no
    delays and nothing hangs, for time would stand still: faults that say so are refused.

    Faults by plan are those of `plan` with the values of `StoreFault` as their names and with `name` as their target.
    Each hits one operation, the first at or after its time; its details may say `operation`, and for a delay `seconds`.

    Args:
        inner: the storage.
        rng: decides about faults by chance; for example ``world.stream("store")``.
        history: where operations that go wrong are noted, with what has become of them.
        faults: how often, by chance.
        plan: faults by plan.
        name: who the storage is, in the history and in the plan.
        plain: for an interface that is called: makes what its operations raise, from a text.

    Raises:
        ValueError: with `plain`, the chance or the plan has delays, or operations that hang.

    Attributes:
        store: the storage with faults.
        faults: as above; may be changed at any time (ValueError as above).
        operations: how many there have been.
    """

    def __init__(
        self,
        inner: S,
        *,
        rng: random.Random,
        history: History,
        faults: StoreFaults | None = None,
        plan: FaultPlan | None = None,
        name: str = "store",
        plain: Callable[[str], Exception] | None = None,
    ) -> None:
        self.plain = plain
        self._rng = rng
        self._history = history
        self._name = name
        self.faults = faults or StoreFaults()  # by the property
        kinds = {kind.value for kind in StoreFault}
        self._planned = [fault for fault in plan or () if fault.name in kinds and fault.target == name]
        for fault in self._planned if plain is not None else ():
            if StoreFault(fault.name) in _WAITING:
                raise ValueError(f"plan: expected no delays and nothing that hangs, with `plain`, got {fault}")
        self.operations = 0
        self.store = cast(S, _Front(inner, self, ""))

    @property
    @override
    def faults(self) -> StoreFaults:
        return self._faults

    @faults.setter
    def faults(self, faults: StoreFaults) -> None:
        if self.plain is not None and (faults.delay or faults.hang):
            raise ValueError(f"faults: expected no delays and nothing that hangs, with `plain`, got {faults}")
        self._faults = faults

    def next_fault(self, operation: str) -> Fault | None:
        """Return what hits an operation that begins now."""
        self.operations += 1
        chance, length = self._rng.random(), self._rng.random()  # as many draws whatever they decide
        for fault in self._planned:
            wanted = fault.details.get("operation", operation)
            if fault.at <= trio.current_time() and wanted == operation:
                self._planned.remove(fault)
                return fault
        faults = self.faults
        if faults.operations is not None and operation not in faults.operations:
            return None
        for kind, share in (
            (StoreFault.BEFORE, faults.before),
            (StoreFault.AFTER, faults.after),
            (StoreFault.DELAY, faults.delay),
            (StoreFault.HANG, faults.hang),
        ):
            if chance < share:
                return Fault(kind.value, details={"seconds": length * faults.max_delay_seconds})
            chance -= share
        return None

    @asynccontextmanager
    async def around(self, operation: str) -> AsyncIterator[None]:
        """Run an operation within the block, and let happen to it what is to happen.

        Raises:
            UnavailableError: it was hit by a failure.
        """
        fault = self.next_fault(operation)
        if fault is None:
            yield
            return
        kind = StoreFault(fault.name)
        self._history.record(self._name, kind.value, operation=operation)
        if kind is StoreFault.BEFORE:
            await trio.lowlevel.checkpoint()
            raise UnavailableError(f"{self._name}: {operation} failed, as it was told to")
        if kind is StoreFault.HANG:
            await trio.sleep_forever()
        if kind is StoreFault.DELAY:
            await trio.sleep(float(fault.details.get("seconds") or 0.0))
        yield
        if kind is StoreFault.AFTER:
            raise UnavailableError(f"{self._name}: {operation} was done and failed, as it was told to")

    def called(self, operation: str, function: Callable[[], Any]) -> Any:
        """Call an operation, and let happen to it what is to happen; see `plain`."""
        assert self.plain is not None
        planned = list(self._planned)
        fault = self.next_fault(operation)
        kind = None if fault is None else StoreFault(fault.name)
        if kind is StoreFault.BEFORE:
            self._history.record(self._name, kind.value, operation=operation)
            raise self.plain(f"{operation} failed, as it was told to")
        result = function()
        if not isinstance(result, _PLAIN):
            self._planned = planned  # who got no object could not close it
            return _Front(result, self, f"{operation}.")
        if kind is StoreFault.AFTER:
            self._history.record(self._name, kind.value, operation=operation)
            raise self.plain(f"{operation} was done and failed, as it was told to")
        return result


class _Front:
    """Stands before an object: what is awaited of it goes through `FaultyStore.around`."""

    def __init__(self, inner: object, faulty: FaultyStore[Any], prefix: str) -> None:
        self._inner = inner
        self._faulty = faulty
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        operation = self._prefix + name

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._faulty.plain is not None:
                return self._faulty.called(operation, partial(value, *args, **kwargs))
            result = value(*args, **kwargs)
            if inspect.iscoroutine(result):
                return self._awaited(operation, result)
            if hasattr(result, "__aenter__"):
                return self._entered(operation, result)
            if hasattr(result, "__anext__"):
                return self._iterated(operation, result)
            return result

        return call

    async def _awaited(self, operation: str, coroutine: Any) -> Any:
        try:
            async with self._faulty.around(operation):
                return await coroutine
        finally:
            coroutine.close()  # if it never began it would complain

    @asynccontextmanager
    async def _entered(self, operation: str, manager: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            async with self._faulty.around(operation):
                value = await stack.enter_async_context(manager)
            yield value if isinstance(value, _PLAIN) else _Front(value, self._faulty, f"{operation}.")

    async def _iterated(self, operation: str, iterator: AsyncIterator[Any]) -> AsyncIterator[Any]:
        try:
            while True:
                async with self._faulty.around(operation):
                    try:
                        value = await anext(iterator)
                    except StopAsyncIteration:
                        return
                yield value
        finally:
            close: Callable[[], Any] | None = getattr(iterator, "aclose", None)
            if close is not None:
                await close()
