"""A worker: a platform in an actor of Ray, open in one thread of Trio for as long as its process lives."""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from signal import SIGKILL

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.base.log_context import TrialFilter
from trio_cogment.rl.runner.orchestrators import open_sites
from trio_cogment.rl.runner.sites import Casting, OpenSites, Task
from trio_cogment.sdk.bridges.thread import TrioThread
from trio_cogment.seats.base import Seat

#: How often a worker looks for its parent, where the system does not end it.
_LOOK_SECONDS = 0.5
#: Linux's prctl(2): the signal that a process gets when its parent dies.
_PR_SET_PDEATHSIG = 1

_log = logging.getLogger(__name__)


class Worker:
    """The class of the actors. Ray calls its methods in threads of a pool: that costs less than a loop of asyncio.

    Args:
        name: of the worker.
        number: of the worker, from 0.
        pickled: who takes part in the trials.
    """

    def __init__(self, name: str, number: int, pickled: bytes) -> None:
        _end_with_parent()
        _set_up_logs()
        self._name = name
        self._number = number
        self._pickled = pickled
        self._thread: TrioThread[OpenSites] | None = None
        self._opening = threading.Lock()
        self._begun: list[str] = []
        self._news = threading.Event()

    def open(self) -> tuple[str, ...] | CogmentError:
        """Open the platform, unless it is open; return the names of the trials' actors, or why there are none."""
        try:
            return self._opened().value.actors
        except InvalidArgumentError as error:
            return InvalidArgumentError(str(error))
        except CogmentError as error:
            return FailedPreconditionError(str(error))
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
        # Without seeds for the trials, workers with equal seats would all draw the same.
        seats = {
            name: seat.beside(self._number) if isinstance(seat, Seat) else seat for name, seat in casting.seats.items()
        }
        async with AsyncExitStack() as stack:
            opened = await open_sites(stack, None, replace(casting, seats=seats), Host())
            opened.sites[0].name = self._name
            yield opened

    def play(self, index: int, seed: int | None, trial_id: str, timeout_seconds: float) -> bytes:
        """Run a trial, see `Task`; return the `Attempt`, pickled: Ray would take much longer for that."""
        thread = self._opened()

        async def started() -> None:
            self._begun.append(trial_id)
            self._news.set()

        task = Task(index, seed, trial_id, timeout_seconds)
        return pickle.dumps(thread.call(thread.value.sites[0].attempt, task, started))

    def news(self) -> list[str]:
        """Wait for trials to begin; return the ids of those that have begun since the last time."""
        self._news.wait()
        self._news.clear()
        begun, self._begun = self._begun, []
        return begun

    def end_trials(self, hard: bool) -> None:
        """End the trials that run."""
        if self._thread is not None and not self._thread.closed:
            self._thread.call(partial(self._thread.value.sites[0].end_trials, hard=hard))

    def stop(self) -> None:
        """Close the platform: what still runs is cancelled, and has the time that it needs for that."""
        if self._thread is not None:
            self._thread.close()


def _end_with_parent() -> None:
    """See to it that this process does not outlive its raylet: Ray takes it for dead then, and repeats its trials."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, SIGKILL)

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="trio-cogment parent watch", daemon=True).start()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return a line; one that is about a trial begins with its id."""
        text = super().format(record)
        about = getattr(record, "trial_id", "")
        return text if not about or f"trial {about}" in text else f"trial {about}: {text}"


def _set_up_logs() -> None:
    """Write logs to stderr, which Ray shows where the run was started."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.addFilter(TrialFilter())
        handler.setFormatter(_Text("[%(levelname)s] [%(name)s] %(message)s"))
        root.addHandler(handler)
