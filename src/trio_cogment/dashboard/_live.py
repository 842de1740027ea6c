"""The WebSocket of a tab: it says what it looks at, and is told what is new, ten times a second at most.

A tab that does not read is not told anything, and nothing is kept for it: when it reads again, it gets the difference
to what it was told last. So however many tabs there are, and whatever they do, no trial waits for one.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trio_cogment.access import PAGES
from trio_cogment.base.errors import CogmentError, InvalidArgumentError, StatusCode, status_of
from trio_cogment.dashboard._views import SAMPLE_FIELDS, LogView, Samples, ServerView, TrialsView, TrialView, View
from trio_cogment.sdk import DatastoreClient
from trio_cogment.web.json_text import json_text
from trio_cogment.web.page_access import check_right
from trio_cogment.web.routing import Socket, Visit

_log = logging.getLogger(__name__)

#: The least time between two messages to a tab.
UPDATE_SECONDS = 0.1
#: Figures of the server change less often.
_FIGURES_SECONDS = 1.0
#: This many samples are read in a second for all tabs together: a trial may be faster than anybody can look.
_SAMPLES_PER_SECOND = 2000.0
_SAMPLES_AT_ONCE = 20
_RETRY_SECONDS = 1.0
_MAX_SEARCH_CHARACTERS = 200
#: What a tab is told that cannot be shown samples.
_NOTES = {
    StatusCode.UNIMPLEMENTED: "This server keeps no samples: there are no rewards and actions to show.",
    StatusCode.NOT_FOUND: "No samples of this trial have been stored yet.",
    StatusCode.PERMISSION_DENIED: "You may not read the samples of this trial.",
}


class Budget:
    """How many samples are read for all tabs."""

    def __init__(self) -> None:
        self.readers = 0

    async def pause(self, samples: int) -> None:
        """Wait for as long as this many samples of one reader may take."""
        await trio.sleep(samples * max(1, self.readers) / _SAMPLES_PER_SECOND)


class Tab:
    """One tab.

    Args:
        visit: whose it is.
        socket: to it.
        view_of: makes the views of the server that need nothing but their names.
        datastore: returns it, for the visitor's calls.
        trial_view: makes the view of a trial.
        budget: for samples.
    """

    def __init__(
        self,
        visit: Visit,
        socket: Socket,
        *,
        trials: Callable[[str], TrialsView],
        trial: Callable[[str, Samples], TrialView],
        log: Callable[[], LogView],
        figures: Callable[[], ServerView],
        datastore: Callable[[], Awaitable[DatastoreClient]],
        budget: Budget,
    ) -> None:
        self._visit = visit
        self._socket = socket
        self._trials = trials
        self._trial = trial
        self._log_view = log
        self._figures = figures
        self._datastore = datastore
        self._budget = budget

    async def run(self) -> None:
        """Serve it until it leaves."""
        asked = await self._asked()
        while True:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._show, asked, nursery)
                asked = await self._asked()
                nursery.cancel_scope.cancel()

    async def _asked(self) -> dict[str, Any]:
        """Return what the tab wants to see next.

        Raises:
            InvalidArgumentError: that is no such thing.
        """
        data = await self._socket.receive()
        try:
            asked = json.loads(data)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict) or not all(isinstance(value, str | int) for value in asked.values()):
            raise InvalidArgumentError("expected a JSON object that says what is to be shown")
        return asked

    async def _show(self, asked: dict[str, Any], nursery: trio.Nursery) -> None:
        view, seconds = self._view(asked, nursery)
        name, number = asked.get("view"), asked.get("number", 0)
        first = True
        while True:
            news = view.news()
            if news is not None or first:  # the first one tells that there is nothing
                data = json_text({"view": name, "number": number, **(news or {})})
                await self._socket.send(data.encode())
                first = False
            await trio.sleep(seconds)

    def _view(self, asked: dict[str, Any], nursery: trio.Nursery) -> tuple[View, float]:
        match asked.get("view"):
            case "trials":
                return self._trials(str(asked.get("search", ""))[:_MAX_SEARCH_CHARACTERS]), UPDATE_SECONDS
            case "trial":
                trial_id, samples = str(asked.get("id", "")), Samples()
                nursery.start_soon(self._follow, trial_id, samples)
                return self._trial(trial_id, samples), UPDATE_SECONDS
            case "log":
                check_right(self._visit.who, PAGES + "logs")
                return self._log_view(), UPDATE_SECONDS
            case "server":
                return self._figures(), _FIGURES_SECONDS
        raise InvalidArgumentError("view: expected trials, trial, log or server")

    async def _follow(self, trial_id: str, samples: Samples) -> None:
        """Read the samples of a trial, as they are stored."""
        self._budget.readers += 1
        try:
            while True:
                try:
                    await self._read(trial_id, samples)
                    return
                except CogmentError as error:
                    code, text = status_of(error)
                    samples.note = _NOTES.get(code, f"The samples cannot be read: {text}")
                    if code is StatusCode.PERMISSION_DENIED:
                        return
                await trio.sleep(_RETRY_SECONDS)
        finally:
            self._budget.readers -= 1

    async def _read(self, trial_id: str, samples: Samples) -> None:
        count, last = 0, -math.inf
        datastore = await self._datastore()
        async with datastore.samples(trial_id, follow=True, fields=SAMPLE_FIELDS) as found:
            async for sample in found:
                samples.note = ""
                if samples.last is None or sample.tick_id > samples.last.tick_id:
                    samples.add(sample)
                count += 1
                if count % _SAMPLES_AT_ONCE == 0:
                    now = trio.current_time()
                    if now - last < 1.0:
                        await self._budget.pause(_SAMPLES_AT_ONCE)
                    last = now
