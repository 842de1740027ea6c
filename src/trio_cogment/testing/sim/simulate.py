"""`simulate`: run a scenario on a virtual clock, in an order of tasks that the seed decides."""

from __future__ import annotations

import gc
import inspect
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import trio
import trio.testing

from trio_cogment._version import __version__
from trio_cogment.budget.turns import measure_turns_by
from trio_cogment.testing.history import History
from trio_cogment.testing.sim._step_recorder import Step, StepRecorder
from trio_cogment.testing.sim._waiting import indented
from trio_cogment.testing.sim.failures import OnFailure
from trio_cogment.testing.sim.fault_plan import FaultPlan
from trio_cogment.testing.sim.schedule import jump_at_once, seeded_schedule
from trio_cogment.testing.sim.world import World

# Garbage collection that can be repeated: at fixed steps of a run, and only of objects that the run has made.
#
# Objects in reference cycles may have finalizers with effects; those of asynchronous generators give Trio work to do.
# When they run must not depend on what the process has done before.

#: What is left of a run is garbage as soon as its outcome is, and Python would hardly ever look for it: objects that
#: were frozen are old ones. So it is collected before a run when there are a quarter more objects than after the last
#: time, which is Python's own rule for old objects; to count them takes a while, too.
_GROWTH = 1.25
_COUNTED_EVERY = 20


class _Leftovers:
    """What earlier runs have left."""

    def __init__(self) -> None:
        self._runs = 0
        self._objects = 0  # after the last collection

    def collect(self) -> None:
        """Collect it, if there is much; everything is frozen before and after."""
        self._runs += 1
        if self._runs % _COUNTED_EVERY == 0 and gc.get_freeze_count() > _GROWTH * self._objects:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._objects = gc.get_freeze_count()


_leftovers = _Leftovers()


@contextmanager
def own_garbage() -> Iterator[None]:
    """Collect garbage within the block only by `gc.collect`, and then only objects made in it.

    At the end of the block the garbage it has left is collected.
    """
    enabled = gc.isenabled()
    gc.disable()
    others_froze = gc.get_freeze_count() > 0  # then theirs must stay frozen, and collecting takes longer
    if not others_froze:
        gc.freeze()
        _leftovers.collect()
    try:
        yield
    finally:
        gc.collect()
        if not others_froze:
            gc.unfreeze()
        if enabled:
            gc.enable()


T = TypeVar("T")

#: Far more than an honest scenario of some hundred thousand messages needs.
DEFAULT_BUDGET = 2_000_000
_SHOWN_EVENTS = 200
_SHOWN_MISTAKES = 5
#: Virtual time after which a budget was rather used up by timers than by a task that lets no time pass.
_LONG_SECONDS = 3600


class SimulationError(Exception):
    """A simulated run did not finish. It is not an assertion that failed."""


class LivelockError(SimulationError):
    """A run used up its budget of steps.

    Either a task loops without ever waiting for time to pass, or somebody waits indefinitely while timers go on.
    """


class DeadlockError(SimulationError):
    """No task could run any more, and no deadline was set that could wake one."""


class NondeterminismError(SimulationError):
    """Two runs of one seed differed: something depends on the world outside of the simulation."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The result of a simulated run.

    Attributes:
        value: what the scenario returned.
        fingerprint: a hash of the whole schedule; equal for equal seeds.
        steps: how many turns tasks took.
        seconds: how much virtual time passed.
        history: what was recorded.
        counters: how often each `World.sometimes` was reached.
    """

    value: T
    fingerprint: str
    steps: int
    seconds: float
    history: History
    counters: Counter[str]


def simulate(
    seed: int,
    async_fn: Callable[..., Awaitable[T]],
    *args: Any,
    budget: int = DEFAULT_BUDGET,
    plan: FaultPlan | None = None,
) -> Outcome[T]:
    """Run ``async_fn(world, *args)`` to its end, in virtual time; call this from a plain function.

    Whenever every task waits, the clock jumps to the next deadline. The order in which tasks take their turns, the
    world's randomness, ids and wall clock come from the seed: the same seed gives the same run. (So does Python's
    global `random`, for the time of the run.) Everything must happen in this thread: no sockets, files in threads,
    `trio.to_thread`, or subprocesses. Tasks that only pass things to each other never let time pass: the links
    between them need a latency, as those of `World.network` have.

    Args:
        seed: any number.
        async_fn: the scenario; its first argument is a `World`.
        args: its others.
        budget: the steps (turns of tasks) that the run may take. It is cancelled then, and soon afterwards its shields
            are removed.
        plan: the faults of the run, for the scenario to look into and the report to print.

    Raises:
        LivelockError: the budget was used up.
        DeadlockError: every task waited, and none for a deadline.
        SimulationError: virtual time has passed while one of Trio's worker threads was at work.
        RuntimeError: this version of Trio cannot be seeded; or a simulation, or Trio, runs here already.
        TypeError: `async_fn` is not an async function.
        ValueError: the budget is less than one step; or a fake was told to misbehave in a way that it cannot show; or
            the network was told of a host that was never made.

    Whatever else the scenario raises comes out as it is, with a note that says how to see it again.
    """
    outcome, _ = run_seeded(seed, async_fn, args, budget, plan)
    return outcome


def check_determinism(
    seed: int,
    async_fn: Callable[..., Awaitable[T]],
    *args: Any,
    budget: int = DEFAULT_BUDGET,
    plan: FaultPlan | None = None,
) -> Outcome[T]:
    """Simulate a seed twice, compare schedules and histories, and return the second outcome; see `simulate`.

    Raises:
        NondeterminismError: the runs differed; the text shows the first steps, or the first recorded events, that did.
    """
    before, first = run_seeded(seed, async_fn, args, budget, plan, keep=True)
    after, second = run_seeded(seed, async_fn, args, budget, plan, keep=True)
    if first.fingerprint() != second.fingerprint():
        difference = _difference(map(_show, first.trace), map(_show, second.trace))
        raise NondeterminismError(f"seed {seed} ran differently the second time:\n{difference}")
    if before.history.text() != after.history.text():
        difference = _difference(map(str, before.history), map(str, after.history))
        raise NondeterminismError(f"seed {seed} saw other things in the same schedule the second time:\n{difference}")
    return after


def _difference(first: Iterable[str], second: Iterable[str]) -> str:
    """Show two sequences side by side, around where they begin to differ."""
    pairs = list(itertools.zip_longest(first, second, fillvalue="-"))
    at = next((number for number, (one, other) in enumerate(pairs) if one != other), 0)
    shown = [f"  {number:6}  {one} | {other}" for number, (one, other) in enumerate(pairs)]
    return "\n".join(shown[max(0, at - 5) : at + 5])


def _show(step: Step) -> str:
    return f"{step.seconds:.9f} {step.task}"


@own_garbage()
def run_seeded(
    seed: int,
    async_fn: Callable[..., Awaitable[T]],
    args: tuple[Any, ...],
    budget: int,
    plan: FaultPlan | None,
    *,
    keep: bool = False,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> tuple[Outcome[T], StepRecorder]:
    """See `simulate`; further instruments see the run, too."""
    check_scenario(async_fn)
    _check_call(budget)
    recorder = StepRecorder(budget, keep=keep)
    world = World(seed, plan)
    values: list[T] = []

    async def main() -> None:  # its name is part of each task's, and so of every schedule
        measure_turns_by(trio.current_time)
        recorder.scenario = trio.lowlevel.current_task()
        with recorder.scope:
            awaitable: object = async_fn(world, *args)
            if not inspect.isawaitable(awaitable):
                raise TypeError(f"expected an async function, got {async_fn!r}, which returned {awaitable!r}")
            values.append(await awaitable)
        recorder.over = True

    def tell(error: BaseException) -> None:
        if recorder.aborted:
            raise _aborted_error(world, recorder) from error
        error.add_note(_report(world, recorder, recorder.left if _is_too_slow(error) else ()))

    clock = trio.testing.MockClock(autojump_threshold=0)
    jump_at_once(clock)
    global_state = random.getstate()
    random.seed(seed)
    try:
        with seeded_schedule(seed, recorder.note), OnFailure(tell):
            trio.run(main, clock=clock, instruments=instruments)
            if values and (mistakes := _mistakes(world)):
                raise ValueError(mistakes[0])
    finally:
        random.setstate(global_state)
    if recorder.aborted:  # though a value may have come back
        raise _aborted_error(world, recorder)
    outcome = Outcome(
        values[0], recorder.fingerprint(), recorder.steps, recorder.seconds, world.history, world.counters
    )
    return outcome, recorder


def _check_call(budget: object) -> None:
    if not isinstance(budget, int) or budget < 1:
        raise ValueError(f"budget: expected at least 1 step, got {budget!r}")
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("this is a run of Trio already; a simulation is one of its own: call it in a plain function")


def _mistakes(world: World) -> list[str]:
    """Return what was wrong with the scenario itself, once it is over."""
    network = world.network
    unknown = [
        f"network: no host ever had the name {name!r}; {network.advice_for(name)}" for name in network.unknown_hosts()
    ]
    return world.mistakes + unknown


def check_scenario(async_fn: object) -> None:
    """Check that this can be called.

    Raises:
        TypeError: it cannot; perhaps it is the coroutine that a call returned.
    """
    if callable(async_fn):
        return
    if inspect.iscoroutine(async_fn):
        async_fn.close()  # or Python complains that nobody awaited it
        name = async_fn.__name__
        raise TypeError(f"expected an async function, got a coroutine: give `{name}`, not `{name}(...)`")
    raise TypeError(f"expected an async function, got {async_fn!r}")


def _aborted_error(world: World, recorder: StepRecorder) -> SimulationError:
    error: SimulationError
    if recorder.exhausted:
        error = LivelockError(
            f"seed {world.seed}: {recorder.budget} steps were taken by {recorder.seconds:g} s of virtual time, the "
            f"last ones by {recorder.busiest()}; {_advice(world, recorder)}"
        )
    elif recorder.threaded:
        error = SimulationError(
            f"seed {world.seed}: virtual time has passed while a thread was at work; threads are not simulated, "
            f"nor what is done in them, as Trio's files and looking up names. Who waited:{indented(recorder.blocked)}"
        )
    else:
        error = DeadlockError(
            f"seed {world.seed}: at {recorder.seconds:g} s of virtual time everybody waits and no deadline is set. "
            "(Sockets, threads and subprocesses do not belong into a simulation.) Who waits:"
            f"{indented(recorder.blocked or ['nobody'])}"
        )
    # The others have it in their texts.
    error.add_note(_report(world, recorder, recorder.blocked if recorder.exhausted else ()))
    return error


def _is_too_slow(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_too_slow, error.exceptions))
    return isinstance(error, trio.TooSlowError)


def _advice(world: World, recorder: StepRecorder) -> str:
    """Say what may have used up a budget."""
    steps = recorder.recent
    if recorder.seconds < _LONG_SECONDS or steps[0].seconds == steps[-1].seconds:
        return "is there a task that never waits for time to pass?"
    last = world.history.recent(1)
    since = f" since {last[0].seconds:g} s, when the last event was recorded" if last else ""
    return (
        f"it seems that only timers have run{since}: somebody may wait endlessly. `with trio.fail_after(seconds):` "
        "around the scenario ends it at that virtual time"
    )


def _report(world: World, recorder: StepRecorder, waiting: Sequence[str] = ()) -> str:
    events = [str(event) for event in world.history.recent(_SHOWN_EVENTS)]
    steps = [_show(step) for step in recorder.recent]
    return "\n".join(
        [
            f"--- simulated with seed {world.seed}, trio-cogment {__version__}, trio {trio.__version__}: the same seed "
            "gives the same run ---",
            f"plan: {world.plan}",
            *(f"mistake in the scenario: {text}" for text in world.mistakes[:_SHOWN_MISTAKES]),
            *([f"who waited then:{indented(waiting)}"] if waiting else []),
            f"{recorder.steps} steps, {recorder.seconds:g} s of virtual time; the last steps:",
            *(f"  {step}" for step in steps),
            f"the last {len(events)} recorded events:" if events else "no events were recorded",
            *(f"  {event}" for event in events),
        ]
    )
