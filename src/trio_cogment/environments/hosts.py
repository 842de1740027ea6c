"""Hosts of the calls to environments: Trio's own thread, or a thread of each environment's own."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import outcome
import trio

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.shared_message import Content
from trio_cogment.environments.episode import Turn
from trio_cogment.environments.making import Recipe
from trio_cogment.environments.stage import Description, Opening, Stage

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

#: How long an environment may take to close; then it is left alone.
CLOSE_SECONDS = 5.0


class KeptHost(Protocol):
    """What runs the episodes of one environment, as far as those who keep it between trials know it."""

    @property
    def usable(self) -> bool:
        """Another episode may begin: no call is under way, and none has left the environment in an unknown state."""

    async def aclose(self) -> None:
        """Close the environment, within `CLOSE_SECONDS`; one with a call under way is not waited for."""


class Host(KeptHost, Protocol):
    """Runs the episodes of one environment, one call at a time."""

    async def begin(self, opening: Opening) -> Turn:
        """Begin an episode; see `Stage.begin`. After `Cancelled` it is not usable, unless nothing was done."""

    async def advance(self, actions: Sequence[Content | None], cut: bool, save: bool = False) -> Turn:
        """Make a step; see `Stage.advance`. After `Cancelled` it is not usable, unless nothing was done."""


class SteppedHost(KeptHost, Protocol):
    """Runs the episodes of one environment elsewhere; nobody waits for its steps, which are told where they arrive."""

    async def begin(self, opening: Opening) -> Turn:
        """Begin an episode; see `Stage.begin`. After `Cancelled` it is not usable, unless nothing was done."""

    def step(self, actions: Sequence[Content | None], cut: bool, on_turn: Callable[[Turn], None]) -> None:
        """Begin a step; see `Stage.advance`. What cannot be asked for at all is raised here.

        Args:
            actions: of the actors.
            cut: the trial ends with this step.
            on_turn: gets what came of it, in the task that brings it.
        """

    async def wait_over(self) -> None:
        """Wait until the episode is over, and raise what has gone wrong. After `Cancelled` no turn is told any more."""


class DescribedHost(Host, Protocol):
    """A host whose environment has said what it is like."""

    @property
    def description(self) -> Description:
        """Of the environment."""


class InlineHost:
    """Runs an environment on Trio's own thread; see `Host`. Each call is a checkpoint, before anything is done."""

    def __init__(self, recipe: Recipe) -> None:
        """Make the environment."""
        self._stage = Stage(recipe)
        self.description = Description.of(self._stage.environment)
        self.usable = True

    def begin_now(self, opening: Opening) -> Turn:
        """Begin an episode without a checkpoint."""
        return self._run(self._stage.begin, opening)

    def advance_now(self, actions: Sequence[Content | None], cut: bool, save: bool = False) -> Turn:
        """Make a step without a checkpoint of Trio's."""
        return self._run(self._stage.advance, actions, cut, save)

    def _run(self, call: Callable[..., Turn], *arguments: Any) -> Turn:
        self.usable = False
        try:
            turn = call(*arguments)
        except InvalidArgumentError:
            self.usable = True  # what it got was wrong, not the environment
            raise
        self.usable = True
        return turn

    async def begin(self, opening: Opening) -> Turn:
        """See `Host.begin`."""
        await trio.lowlevel.checkpoint()
        return self.begin_now(opening)

    async def advance(self, actions: Sequence[Content | None], cut: bool, save: bool = False) -> Turn:
        """See `Host.advance`."""
        await trio.lowlevel.checkpoint()
        return self.advance_now(actions, cut, save)

    async def aclose(self) -> None:
        """See `Host.aclose`."""
        self.usable = False
        close_quietly(self._stage)
        await trio.lowlevel.checkpoint()


class ThreadHost:
    """Runs an environment on a thread of its own, from its making to its end; see `Host`."""

    def __init__(self, stage: Stage, thread: _Thread) -> None:
        """Use an environment and its thread; `open` makes both."""
        self._stage = stage
        self.description = Description.of(stage.environment)
        self._thread = thread
        self.usable = True

    @classmethod
    async def open(cls, recipe: Recipe) -> ThreadHost:
        """Make an environment on a thread of its own.

        After `Cancelled` the environment is closed as soon as it is made, and the thread ends.
        """
        thread = _Thread()
        made: list[Stage] = []
        host = None
        try:
            await thread.run(lambda: made.append(Stage(recipe)))
            host = cls(made[0], thread)
        finally:
            if host is None:  # it has failed, or was cancelled
                thread.finish(lambda: _close_all(made))
        return host

    async def begin(self, opening: Opening) -> Turn:
        """See `Host.begin`."""
        return await self._run(lambda: self._stage.begin(opening))

    async def advance(self, actions: Sequence[Content | None], cut: bool, save: bool = False) -> Turn:
        """See `Host.advance`."""
        return await self._run(lambda: self._stage.advance(actions, cut, save))

    async def _run(self, call: Callable[[], Turn]) -> Turn:
        self.usable = False
        try:
            turn = await self._thread.run(call)
        except InvalidArgumentError:
            self.usable = True
            raise
        self.usable = True
        return turn

    async def aclose(self) -> None:
        """See `Host.aclose`."""
        was_usable, self.usable = self.usable, False
        if was_usable:
            with trio.move_on_after(CLOSE_SECONDS):
                await self._thread.run(lambda: close_quietly(self._stage))
            self._thread.finish(None)
        else:
            self._thread.finish(lambda: close_quietly(self._stage))
        await trio.lowlevel.checkpoint()


class _Thread:
    """A thread that runs what it is given, one after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        # A daemon: an environment that never returns must not keep the process.
        threading.Thread(target=self._work, name="trio-cogment environment", daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """Run a function; after `Cancelled` it may still run, and its result is lost."""
        token, task = trio.lowlevel.current_trio_token(), trio.lowlevel.current_task()
        waiting = True

        def deliver(result: outcome.Outcome[_Result]) -> None:
            if waiting:
                trio.lowlevel.reschedule(task, result)

        def work() -> None:
            result = outcome.capture(call)
            try:
                token.run_sync_soon(deliver, result)
            except trio.RunFinishedError:
                pass  # nobody waits any more

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            nonlocal waiting
            waiting = False
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.checkpoint_if_cancelled()
        self._calls.put(work)
        found: _Result = await trio.lowlevel.wait_task_rescheduled(abort)
        return found

    def finish(self, last: Callable[[], object] | None) -> None:
        """Have the thread end, after what it does now and a last function."""
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)


def _close_all(stages: list[Stage]) -> None:
    for stage in stages:
        close_quietly(stage)


def close_quietly(stage: Stage) -> None:
    """Close an environment; what it raises is logged, because the trials that used it have ended."""
    try:
        stage.close()
    except Exception:  # noqa: BLE001  the boundary of the user's environment
        _log.exception("environment %r: close failed", stage.environment.name)
