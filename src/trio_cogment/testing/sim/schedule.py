"""Trio's order of running tasks, from a seed. This is the only file of the package that touches Trio's internals.

Trio runs the tasks that are ready in batches, in an order that it draws from a generator of its own. Two names of
`trio._core._run` decide about it, and both are needed: `_r` is that generator; with `_ALLOW_DETERMINISTIC_SCHEDULING`
each batch is sorted by the age of its tasks before it is shuffled (without, it comes from the order of a set). What a
seed then does not decide is the order in which the *abort functions* of tasks with equal deadlines are called: the
code under test must not depend on it.

The generator put there does not draw one number after the other: where a task stands in a batch follows from the seed,
from who the task is (its name, its parents' names, which of several alike), and from how often it has run. So what one
part of a program does changes nothing in the order of another part's tasks: a run with a fault can be compared with the
same run without it, and leaving a fault out of a plan takes away its consequences and nothing else. The module and the
class of a task's function are left out of its name: code that moves changes no schedule.

An autojump of Trio's clock comes at the end of a turn of its loop in which nothing has happened, and what it was for
only in the next turn: every second turn of a simulation would be an idle one. `jump_at_once` needs to know whether
somebody waits for just that (`wait_all_tasks_blocked`, which goes before a jump): the runner's `waiting_for_idle`; and
whether something is to be done now (`run_sync_soon`, with which generators are closed, too): its `entry_queue`.

Trio does not tell either in which cancel scopes a task is. Each task knows its innermost one (`_cancel_status`), and
that the one around it (`_parent`, `_scope`): this is read to find tasks whose shields nothing ends.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, TypeAlias
from weakref import ref

import trio
from trio._core import _run as _trio_run

_FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"
_GENERATOR = "_r"
_IN_USE = threading.Lock()
#: What `repr` says of a callable object, or of a mock, that has no name.
_ADDRESS = re.compile(r" (?:at 0x[0-9a-fA-F]+|id='\d+')")
OnBatch: TypeAlias = Callable[[Sequence[trio.lowlevel.Task]], None]


def check_trio(module: ModuleType = _trio_run) -> None:
    """Make sure that this version of Trio can be seeded.

    Raises:
        RuntimeError: it cannot; the text says what is missing.
    """
    missing = _missing_in(module)
    if missing:
        raise RuntimeError(
            f"trio {trio.__version__} cannot be simulated: {module.__name__} has {missing}. Use a version of trio that "
            "this version of trio-cogment was tested with."
        )


def _missing_in(module: ModuleType) -> str:
    flag, generator = getattr(module, _FLAG, None), getattr(module, _GENERATOR, None)
    if not isinstance(flag, bool) or not isinstance(generator, random.Random):
        return f"no {_FLAG} (a bool) or no {_GENERATOR} (a random.Random)"
    status, task, runner = (dir(getattr(module, name, None)) for name in ("CancelStatus", "Task", "Runner"))
    if not ({"_scope", "_parent"} <= set(status) and "_cancel_status" in task):
        return "no Task._cancel_status, or no CancelStatus with _scope and _parent"
    if not (hasattr(module, "GLOBAL_RUN_CONTEXT") and {"waiting_for_idle", "entry_queue"} <= set(runner)):
        return "no GLOBAL_RUN_CONTEXT, or no Runner with waiting_for_idle and entry_queue"
    return ""


class _TaskState:
    """What decides about the turns of one task."""

    __slots__ = ("children", "key", "turns", "watch")

    def __init__(self, key: int, watch: ref[trio.lowlevel.Task] | None = None) -> None:
        self.key = key
        self.watch = watch  # held, or nobody would be told when the task is gone
        self.turns = 0
        self.children: dict[str, int] = {}  # how many of each name


class _Order(random.Random):
    """Trio's generator; of it, a run uses `shuffle` alone."""

    def __init__(self, seed: int, on_batch: OnBatch) -> None:
        super().__init__(seed)
        self._root = _TaskState(_hashed(f"{seed}"))
        self._tasks: dict[int, _TaskState] = {}  # by the ids of tasks that live: cheaper than a WeakKeyDictionary
        self._on_batch = on_batch
        self._thread = threading.get_ident()

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Order a batch of tasks, which comes sorted by their ages; Trio takes them from its end."""
        if threading.get_ident() != self._thread:  # somebody runs Trio in another thread, which is not simulated
            super().shuffle(x)
            return
        if len(x) == 1:
            self._state_of(x[0]).turns += 1  # as below, of which most batches have no need
        elif x:
            x[:] = sorted(x, key=self._rank)
        self._on_batch(x)

    def _rank(self, task: trio.lowlevel.Task) -> int:
        state = self._state_of(task)
        state.turns += 1
        return _mixed(state.key + state.turns)

    def _state_of(self, task: trio.lowlevel.Task) -> _TaskState:
        state = self._tasks.get(id(task))
        if state is None:
            nursery = task.parent_nursery
            parent = self._root if nursery is None else self._state_of(nursery.parent_task)
            name = short_name(name_of(task))
            number = parent.children.get(name, 0)
            parent.children[name] = number + 1
            forget = partial(self._forget, id(task))
            state = _TaskState(_hashed(f"{parent.key} {name} {number}"), ref(task, forget))
            self._tasks[id(task)] = state
        return state

    def _forget(self, task_id: int, _: ref[trio.lowlevel.Task]) -> None:
        self._tasks.pop(task_id, None)

    def close(self) -> None:
        """Let go of everything; no run comes any more."""
        self._tasks.clear()
        self._root.children.clear()
        self._on_batch = _nothing


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=8).digest(), "big")


def name_of(task: trio.lowlevel.Task) -> str:
    """Return a task's name without what no seed decides: where in memory something is that has no name of its own."""
    return _lasting(str(task.name))


@lru_cache(maxsize=4096)
def _lasting(name: str) -> str:
    return _ADDRESS.sub("", name)


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """Return a function's name without its module and class; a name with a space in it was given, and is kept."""
    return name if " " in name else name.rpartition(".")[2]


def _mixed(number: int) -> int:
    """Scatter a number over 64 bits (the finalizer of SplitMix64)."""
    number &= 0xFFFFFFFFFFFFFFFF
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return number ^ (number >> 31)


def _nothing(_: Sequence[trio.lowlevel.Task]) -> None:
    pass


@contextmanager
def seeded_schedule(seed: int, on_batch: OnBatch = _nothing) -> Iterator[None]:
    """Make the runs of Trio within the block depend on the seed; put everything back afterwards.

    Args:
        seed: any number.
        on_batch: called with each batch before it runs, the last task of it first; with an empty one if there is none
            to run. An instrument of Trio's would cost several times as much.

    Raises:
        RuntimeError: this version of Trio cannot be seeded; or another block is open, in whichever thread.
    """
    check_trio()
    order = _Order(seed, on_batch)
    if not _IN_USE.acquire(blocking=False):
        raise RuntimeError("another simulation runs in this process, and Trio's order is the same for all threads")
    before = getattr(_trio_run, _GENERATOR), getattr(_trio_run, _FLAG)
    setattr(_trio_run, _GENERATOR, order)
    setattr(_trio_run, _FLAG, True)
    try:
        yield
    finally:
        setattr(_trio_run, _GENERATOR, before[0])
        setattr(_trio_run, _FLAG, before[1])
        order.close()
        _IN_USE.release()


def jump_at_once(clock: trio.testing.MockClock) -> None:
    """Let an autojump take place when Trio asks how long to wait, a turn of its loop earlier than it would.

    The same tasks run in the same order at the same times, for a tenth less in all. A clock that was told to wait for a
    while before it jumps, or not to jump, does as it was told.
    """
    ask = clock.deadline_to_sleep_time

    def deadline_to_sleep_time(deadline: float) -> float:
        seconds = deadline - clock.current_time()
        if clock.autojump_threshold == 0 < seconds < math.inf:
            runner = _trio_run.GLOBAL_RUN_CONTEXT.runner
            if not runner.waiting_for_idle and not runner.entry_queue.size():
                clock.jump(seconds)
        return ask(deadline)

    clock.deadline_to_sleep_time = deadline_to_sleep_time  # type: ignore[method-assign]  # MockClock is final


def tasks_below(task: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    """Return a task and all that run in nurseries below it."""
    found = [task]
    for one in found:  # grows while it is gone through
        for nursery in one.child_nurseries:
            found.extend(nursery.child_tasks)
    return found


def scopes_around(task: trio.lowlevel.Task) -> Iterator[trio.CancelScope]:
    """Yield the cancel scopes that a task is in, those of its nurseries included, from the innermost on."""
    status: Any = task._cancel_status
    while status is not None:
        yield status._scope
        status = status._parent


def waits_until(task: trio.lowlevel.Task) -> float:
    """Return when a task goes on at the latest: at the nearest deadline that it feels and that has not passed."""
    deadline = math.inf
    for scope in scopes_around(task):
        if not scope.cancel_called:
            deadline = min(deadline, scope.deadline)
        if scope.shield:
            break
    return deadline


def shielded_until(task: trio.lowlevel.Task, cancelled: trio.CancelScope) -> float | None:
    """Return when a task will feel something that is shielded from a cancelled scope around it; None when it is not."""
    shielded, deadline = False, math.inf
    for scope in scopes_around(task):
        if scope is cancelled:
            return deadline if shielded else None
        if not shielded:
            deadline = min(deadline, -math.inf if scope.cancel_called else scope.deadline)
            shielded = scope.shield
    return None


def is_cancelled(task: trio.lowlevel.Task) -> bool:
    """Whether the next checkpoint of a task raises `Cancelled`."""
    status: Any = task._cancel_status
    return bool(status.effectively_cancelled)


def break_shields(tasks: Iterable[trio.lowlevel.Task]) -> None:
    """Let cancellation through to these tasks, whatever they shield themselves with: the run has failed already."""
    for task in tasks:
        for scope in scopes_around(task):
            scope.shield = False


def shields_in_use(tasks: Iterable[trio.lowlevel.Task]) -> list[tuple[str, trio.CancelScope]]:
    """Return the shields that hold a cancellation off now, each with the name of a task that it protects."""
    found: list[tuple[str, trio.CancelScope]] = []
    seen = set()
    for task in tasks:
        status: Any = task._cancel_status
        while status is not None and id(status) not in seen:
            seen.add(id(status))
            parent = status._parent
            if parent is not None and parent.effectively_cancelled and status._scope.shield:
                found.append((task.name, status._scope))
            status = parent
    return found
