"""A worker: a platform in an actor of Ray, open in one thread of Trio for as long as its process lives."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from signal import SIGKILL

import trio

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.base.log_context import TrialFilter
from trio_cogment.rl.runner.orchestrators import open_sites
from trio_cogment.rl.runner.sites import Attempt, Casting, OpenSites, Site, Task
from trio_cogment.sdk.bridges.thread import TrioThread
from trio_cogment.seats.base import Seat

#: How often a worker looks for its parent, where the system does not end it.
_LOOK_SECONDS = 0.5
#: Linux's prctl(2): the signal that a process gets when its parent dies.
_PR_SET_PDEATHSIG = 1

_log = logging.getLogger(__name__)


class Worker:
    """The class of the actors. Ray calls its methods in a loop of asyncio, many at a time.

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
        self._opening = asyncio.Lock()
        self._begun: list[str] = []
        self._news = asyncio.Event()

    async def open(self) -> tuple[str, ...] | CogmentError:
        """Open the platform, unless it is open; return the names of the trials' actors, or why there are none."""
        try:
            return (await self._opened()).value.actors
        except InvalidArgumentError as error:
            return InvalidArgumentError(str(error))
        except CogmentError as error:
            return FailedPreconditionError(str(error))
        except Exception as error:  # noqa: BLE001  the user's environment, or a module that is not there
            _log.exception("%s cannot start", self._name)
            return FailedPreconditionError(f"{self._name} cannot start: {type(error).__name__}: {error}")

    async def _opened(self) -> TrioThread[OpenSites]:
        async with self._opening:
            if self._thread is None or self._thread.closed:
                self._thread = await asyncio.to_thread(lambda: TrioThread(self._sites(), "trio-cogment worker"))
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

    async def play(self, task: Task) -> Attempt:
        """Run a trial."""
        thread = await self._opened()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Attempt] = loop.create_future()
        site: Site = thread.value.sites[0]

        async def started() -> None:
            await trio.lowlevel.checkpoint()
            loop.call_soon_threadsafe(self._note, task.trial_id)

        async def play() -> None:
            found: Attempt | None = None
            why: BaseException = FailedPreconditionError("the worker was stopped")
            try:
                found = await site.attempt(task, started)
            except Exception as error:  # noqa: BLE001  the run's side tells
                why = error
            finally:
                loop.call_soon_threadsafe(_settle, done, found, why)

        thread.start(play)
        return await done

    def _note(self, trial_id: str) -> None:
        self._begun.append(trial_id)
        self._news.set()

    async def news(self) -> list[str]:
        """Wait for trials to begin; return the ids of those that have begun since the last time."""
        await self._news.wait()
        self._news.clear()
        begun, self._begun = self._begun, []
        return begun

    async def end_trials(self, hard: bool) -> None:
        """End the trials that run."""
        if self._thread is not None and not self._thread.closed:
            site = self._thread.value.sites[0]
            await asyncio.to_thread(self._thread.call, partial(site.end_trials, hard=hard))

    async def stop(self) -> None:
        """Close the platform: what still runs is cancelled, and has the time that it needs for that."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.close)


def _settle(done: asyncio.Future[Attempt], found: Attempt | None, why: BaseException) -> None:
    if done.cancelled():
        return
    if found is None:
        done.set_exception(why)
    else:
        done.set_result(found)


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
