"""A worker: a platform in an actor of Ray, open in one thread of Trio for as long as its process lives."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import pickle
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from signal import SIGKILL
from typing import TypeAlias

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.base.host.processes import processes
from trio_cogment.base.log_context import TrialFilter, TrialFormatter
from trio_cogment.rl.runner.orchestrators import open_sites
from trio_cogment.rl.runner.sites import Attempt, Casting, OpenSites, Site, Task, Verdict
from trio_cogment.rpc import OwnNursery
from trio_cogment.sdk.bridges.thread import TrioThread

#: What a run is told of a trial: None, it has begun; how it ended; or why nobody knows that.
Told: TypeAlias = Attempt | str | None
#: So long after it has told news a worker gathers more: with short trials, one call of Ray does for several. It tells
#: them before when so many trials have ended for each one that runs: soon it would have nothing to do.
_GATHER_SECONDS = 0.05
_ENDS_FOR_ONE = 3
#: Linux's prctl(2): the signal that a process gets when its parent dies.
_PR_SET_PDEATHSIG = 1
#: The variable in which Ray tells a worker the id of its raylet's process.
_RAYLET = "RAY_RAYLET_PID"

_log = logging.getLogger(__name__)


class _Trials:
    """Trials of a worker, and news of them.

    Each news is kept until a later call says that it has been heard: a call may break off with the connection, while
    its thread here still waits, and would take what nobody hears then.
    """

    def __init__(self) -> None:
        self._running = 0
        self._ending = False
        self._untold: list[tuple[str, Told]] = []
        #: How many ends of trials there are among them.
        self._ends = 0
        #: How many news have been heard, and how often it was asked for some.
        self._heard = self._calls = 0
        self._told_at = -math.inf
        self._changed = threading.Condition()

    async def play(self, site: Site, tasks: Sequence[Task]) -> None:
        """Run trials."""
        with self._changed:
            self._running += len(tasks)
        async with OwnNursery() as nursery:
            for task in tasks:
                nursery.start_soon(self._play, site, task, name=f"trial {task.trial_id}")

    async def _play(self, site: Site, task: Task) -> None:
        async def started() -> None:
            self._tell(task, None)

        told: Told
        try:
            if self._ending:
                told = Attempt.failed(task, site.name, f"{site.name}: it was not begun", Verdict.NOT_STARTED)
            else:
                told = await site.attempt(task, started)
        except Exception as error:  # noqa: BLE001  a bug, of which the run has to know
            _log.exception("trial %s: it failed", task.trial_id)
            told = f"{type(error).__name__}: {error}"
        self._tell(task, told)

    async def end(self, site: Site, *, hard: bool) -> None:
        """End the trials that run; those that are on their way are not begun."""
        self._ending = True
        await site.end_trials(hard=hard)

    def _tell(self, task: Task, told: Told) -> None:
        with self._changed:
            self._untold.append((task.trial_id, told))
            if told is not None:
                self._running -= 1
                self._ends += 1
            if len(self._untold) == 1 or self._enough():
                self._changed.notify_all()

    def _enough(self) -> bool:
        return self._ends > 0 and self._ends >= _ENDS_FOR_ONE * self._running

    def news(self, heard: int) -> tuple[int, list[tuple[str, Told]]]:
        """Wait in another thread for news.

        They are gathered for a moment after the last ones, unless the run is to give the next trials already.

        Args:
            heard: how many news of this process have been heard; 0: that is not known.

        Returns the number of the first of the news, from 0, and the news: none if another call has come.
        """
        with self._changed:
            if heard > self._heard:
                del self._untold[: heard - self._heard]
                self._heard = heard
                self._ends = sum(told is not None for _, told in self._untold)
            call = self._calls = self._calls + 1
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._calls != call or self._enough(),
                self._told_at + _GATHER_SECONDS - time.monotonic(),
            )
            self._changed.wait_for(lambda: self._calls != call or self._untold)
            if self._calls != call:
                return self._heard, []
            self._told_at = time.monotonic()
            return self._heard, list(self._untold)


class Worker:
    """The class of the actors. Ray calls its methods in threads of a pool: that costs less than a loop of asyncio.

    No method is asynchronous, private ones included: with a single one Ray would call all of them in such a loop, one
    at a time.

    Args:
        name: of the worker.
        number: of the worker, from 0.
        pickled: who takes part in the trials.
    """

    def __init__(self, name: str, number: int, pickled: bytes) -> None:
        _end_with_parent()
        _set_up_logs()
        self._name, self._number, self._pickled = name, number, pickled
        self._thread: TrioThread[OpenSites] | None = None
        self._opening = threading.Lock()
        self._trials = _Trials()

    def open(self) -> tuple[str, ...] | CogmentError:
        """Open the platform, unless it is open; return the names of the trials' actors, or why there are none."""
        try:
            return self._opened().value.actors
        except CogmentError as error:
            kind = InvalidArgumentError if isinstance(error, InvalidArgumentError) else FailedPreconditionError
            return kind(str(error))
        except Exception as error:  # noqa: BLE001  the user's environment, or a module that is not there
            _log.exception("%s cannot start", self._name)
            return FailedPreconditionError(f"{self._name} cannot start: {type(error).__name__}: {error}")

    def _opened(self) -> TrioThread[OpenSites]:
        with self._opening:
            if self._thread is None or self._thread.closed:
                self._thread = TrioThread(self._sites(), "trio-cogment worker")
            return self._thread

    @asynccontextmanager
    async def _sites(self) -> AsyncIterator[OpenSites]:
        from ray import cloudpickle

        casting: Casting = cloudpickle.loads(self._pickled)
        async with AsyncExitStack() as stack:
            opened = await open_sites(stack, None, casting.beside(self._number), Host())
            opened.sites[0].name = self._name
            yield opened

    def exchange(self, heard: int, pickled: bytes) -> bytes:
        """Begin to run trials, and wait for news of any: one call does for both, because a call is what costs.

        Args:
            heard: how many news of this process have been heard; 0: that is not known.
            pickled: a list of tasks. Ray would take much longer to pickle them.

        Returns the number of the first of the news, and pairs of ids and `Told`, pickled; see `_Trials.news`.
        """
        if tasks := pickle.loads(pickled):
            thread = self._opened()
            thread.start(self._trials.play, thread.value.sites[0], tasks)
        return pickle.dumps(self._trials.news(heard))

    def end_trials(self, hard: bool) -> None:
        """End the trials that run; those that are on their way are not begun."""
        if self._thread is not None and not self._thread.closed:
            self._thread.call(partial(self._trials.end, self._thread.value.sites[0], hard=hard))

    def stop(self) -> None:
        """Close the platform: what still runs is cancelled, and has the time that it needs for that."""
        if self._thread is not None:
            try:
                self._thread.close()
            except Exception:  # noqa: BLE001  the run takes a call that fails for that of a worker that is gone
                _log.exception("%s: its end has failed", self._name)


def _end_with_parent() -> None:
    """See to it that this process does not outlive its raylet: Ray takes it for dead then, and repeats its trials.

    Linux ends it, whatever it computes; on other systems Ray has no clusters of several machines.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, SIGKILL):
        _log.warning("this worker may outlive its raylet: prctl: %s", os.strerror(ctypes.get_errno()))
    # Of a parent that died before the call nobody is told.
    raylet = os.environ.get(_RAYLET)
    if raylet and not any(one.pid == int(raylet) and not one.ended for one in processes() or ()):
        os.kill(os.getpid(), SIGKILL)


def _set_up_logs() -> None:
    """Write logs to stderr, which Ray shows where the run was started."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.addFilter(TrialFilter())
        handler.setFormatter(TrialFormatter("[%(levelname)s] [%(name)s] %(message)s"))
        root.addHandler(handler)
