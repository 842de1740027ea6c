"""`cancel_at_every_step`: cancel a program at each of its steps, and see that it leaves nothing behind."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import trio
from typing_extensions import override

from trio_cogment.testing.sim.failures import noting
from trio_cogment.testing.sim.fault_plan import FaultPlan
from trio_cogment.testing.sim.schedule import shielded_until, tasks_below
from trio_cogment.testing.sim.simulate import DEFAULT_BUDGET, NondeterminismError, Outcome, check_scenario, run_seeded
from trio_cogment.testing.sim.world import World

#: The farewells of an orchestrator and, after it, of its connections, with their default settings.
DEFAULT_WITHIN_SECONDS = 3.0
#: Where the descriptors of this process can be seen: Linux, other systems.
_DESCRIPTORS = ("/proc/self/fd", "/dev/fd")


class CancellationError(AssertionError):
    """Something was left behind, or took too long, after a cancellation; the text says what, a note when."""


class CancelledBlock(trio.abc.Instrument):
    """The part of a scenario that is cancelled: all that happens in its ``with`` block; see `cancel_at_every_step`.

    Attributes:
        cancelled: whether it has been cancelled. False throughout the first run, which only counts the steps.
        steps: how many steps were taken since the block was entered, until it was left.
        seconds: how much virtual time passed between the cancellation and the end of the block.
    """

    def __init__(self, step: int | None, within_seconds: float) -> None:
        self.cancelled = False
        self.steps = 0
        self.seconds = 0.0
        self.entered = False
        self._step = step
        self._within = within_seconds
        self._scope = trio.CancelScope()
        self._task: trio.lowlevel.Task | None = None
        self._own: set[trio.lowlevel.Task] = set()
        self._ready: set[trio.lowlevel.Task] = set()
        self._since = 0.0
        self._descriptors: dict[str, str] = {}
        self._found: dict[str, None] = {}

    def __enter__(self) -> CancelledBlock:
        """Begin to count steps.

        Raises:
            RuntimeError: it was entered before.
        """
        if self.entered:
            raise RuntimeError("a scenario has one block that is cancelled, and enters it once")
        self.entered = True
        self._descriptors = _descriptors()
        self._task = trio.lowlevel.current_task()
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Look at what is left; any exception but `Cancelled` is raised on."""
        self._task = None
        opened = _descriptors().items() - self._descriptors.items()
        if opened:
            self._find("descriptors are still open: " + ", ".join(f"{n} ({what})" for n, what in sorted(opened)))
        if self.cancelled:
            self.seconds = trio.current_time() - self._since
            if self.seconds > self._within:
                self._find(f"it took {self.seconds:g} s to end, more than {self._within:g} s")
        return self._scope.__exit__(kind, error, traceback)

    def _find(self, text: str) -> None:
        self._found[text] = None

    def _find_tasks(self) -> None:
        if self._own:
            self._find(f"tasks that were started in it still run: {', '.join(sorted(task.name for task in self._own))}")
        self._own.clear()

    def verify(self, world: World) -> None:
        """Raise what was found.

        Raises:
            CancellationError: something was.
        """
        self._find_tasks()
        left = world.network.left_open()
        if left:
            self._find(f"left open in the simulated network: {', '.join(left)}")
        if self._found:
            raise CancellationError("; ".join(self._found))

    # As an instrument

    @override
    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if self._task is None:
            return
        try:
            by = trio.lowlevel.current_task()
        except RuntimeError:  # Trio itself started it
            return
        if by is self._task or by in self._own:
            self._own.add(task)

    @override
    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self._own.discard(task)
        self._ready.discard(task)

    @override
    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._ready.add(task)

    @override
    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._ready.discard(task)
        if self._task is None:
            if self.cancelled and self._own and trio.current_time() > self._since + self._within:
                self._find_tasks()
            return
        if task.name.startswith("<"):
            return  # one of Trio's own
        if self.steps == self._step:
            self.cancelled = True
            self._since = trio.current_time()
            self._scope.cancel()
        self.steps += 1

    @override
    def before_io_wait(self, timeout: float) -> None:
        del timeout
        if not self.cancelled or self._task is None or self._ready:
            return
        # Everybody waits, so whatever is left of what was cancelled is shielded; and some deadline must end it, its own
        # or that of another who ends it then.
        deadlines = {task: shielded_until(task, self._scope) for task in tasks_below(self._task)}
        endless = sorted(task.name for task, deadline in deadlines.items() if deadline == math.inf)
        if endless and not any(deadline is not None and deadline < math.inf for deadline in deadlines.values()):
            self._find(f"left in shields without any deadline: {', '.join(endless)}")


def _descriptors() -> dict[str, str]:
    """Return the descriptors that this process has open, and what each stands for."""
    for folder in _DESCRIPTORS:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found = {}
        for name in names:
            try:
                found[name] = os.readlink(os.path.join(folder, name))
            except OSError:
                pass  # that of the listing itself, or of something that is not a link here
        return found
    return {}


@dataclass(frozen=True, slots=True)
class Cancellations:
    """What `cancel_at_every_step` did.

    Attributes:
        steps: how many steps the block has when nobody cancels it.
        tried: the steps before which it was cancelled, one in each run.
        slowest_seconds: the longest time, in virtual seconds, from a cancellation to the end of the block.
        slowest_step: the step before which that was.
    """

    steps: int
    tried: list[int]
    slowest_seconds: float
    slowest_step: int


def cancel_at_every_step(
    seed: int,
    async_fn: Callable[..., Awaitable[object]],
    *args: Any,
    steps: Iterable[int] | None = None,
    within_seconds: float = DEFAULT_WITHIN_SECONDS,
    budget: int = DEFAULT_BUDGET,
    plan: FaultPlan | None = None,
) -> Cancellations:
    """Simulate ``async_fn(world, block, *args)`` again and again, cancelling ``with block:`` a step later each time.

    A step is one turn of one task, from one checkpoint to the next; nothing can be cancelled more finely. A first run
    counts the steps of the block; then there is one run for each of them. Whatever the block holds must each time

    - raise nothing but `trio.Cancelled`;
    - leave no descriptor behind; after `within_seconds`, or by the end of the scenario, no task that was started in it
      (handlers of an in-process channel that was opened outside of it may need a turn); and by the end of the scenario
      no connection and no port of the world's network;
    - be over within `within_seconds` of virtual time, by its own deadlines: tasks that are shielded, and wait for
      somebody outside with no deadline among them, are wrong even where that somebody answers in time.

    What the scenario does outside of the block is not cancelled: peers that must be told belong there, and, after the
    block, your own assertions. Otherwise it is as with `simulate`.

    Args:
        seed: of all runs.
        async_fn: the scenario; it enters ``with block:`` once.
        args: its further arguments.
        steps: the numbers of the steps to cancel before, in rising order, from 0 on; beyond the last step there is,
            they are not used any more, so ``itertools.count(0, 7)`` is every seventh. All of them unless given.
        within_seconds: how long the block may take to end.
        budget: of each run.
        plan: of each run.

    Raises:
        CancellationError: something was left, or took too long.
        NondeterminismError: a run ended before the step that an earlier one had.
        ValueError: the block was never entered, or `steps` has none that exists.
        TypeError: `async_fn` is not a function.

    Whatever else a run raises comes out as it is. A note says before which step the block was cancelled.
    """
    check_scenario(async_fn)

    async def scenario(world: World, block: CancelledBlock) -> None:
        await async_fn(world, block, *args)
        block.verify(world)

    def run(step: int | None) -> CancelledBlock:
        block = CancelledBlock(step, within_seconds)
        outcome: Outcome[None]
        outcome, _ = run_seeded(seed, scenario, (block,), budget, plan, instruments=[block])
        del outcome
        return block

    first = run(None)
    if not first.entered:
        raise ValueError("the scenario never entered its `with block:` block")
    total = first.steps
    tried: list[int] = []
    slowest = (0.0, 0)
    name = getattr(async_fn, "__name__", "the scenario")
    for step in range(total) if steps is None else steps:
        if step >= total:
            break
        note = (
            f"--- {name} was cancelled before step {step} of {total}; that alone: "
            f"cancel_at_every_step({seed}, {name}, ..., steps=[{step}]) ---"
        )
        with noting(note):
            block = run(step)
            if not block.cancelled:
                raise NondeterminismError(f"this time the block had only {block.steps} steps")
        tried.append(step)
        slowest = max(slowest, (block.seconds, step))
    if not tried:
        raise ValueError(f"steps: expected some from 0 to {total - 1}")
    return Cancellations(total, tried, *slowest)
