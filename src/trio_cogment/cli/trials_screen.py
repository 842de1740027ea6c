"""A table of an orchestrator's trials, redrawn on a terminal, with lines above and below it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence

import trio

from trio_cogment.api.orchestrator_pb2 import TrialListEntry
from trio_cogment.base.errors import RpcError
from trio_cogment.cli.last_lines import LastLines
from trio_cogment.cli.text import printable
from trio_cogment.cli.trials_view import Trials
from trio_cogment.sdk import Controller

_OUT, _ERR = 1, 2
_DRAW_SECONDS = 0.5
#: For the last drawing, which a terminal may not take.
_FAREWELL_SECONDS = 0.2
#: With fewer lines for the trials, what is above them has to give way.
_LEAST_TRIALS = 4


def page(header: Sequence[str], trials: Trials, footer: Sequence[str], *, width: int, height: int) -> list[str]:
    """Return the lines of the screen: as many as there is room for, none wider than the terminal.

    Args:
        header: what stands above the trials; the first line is the most important one.
        trials: those that are followed.
        footer: what stands below them.
        width: of the terminal.
        height: of the terminal.
    """
    from rich.cells import set_cell_size

    last = ["", *footer] if footer else []
    room = height - 1 - len(last)
    if room - len(header) - 1 < _LEAST_TRIALS:
        header = header[:1]
    above = [*header, ""] if header else []
    lines = [*above, *trials.lines(room - len(above)), *last]
    return [set_cell_size(printable(line), width - 1).rstrip() for line in lines[: height - 1]]


class TrialsScreen:
    """Follows trials, and draws them until it is cancelled.

    Args:
        controller: of the trials.
        header: returns what stands above them.
        footer: returns what stands below them.
        written: returns what is to be written above all of it since it was called last; whole lines.

    Attributes:
        trials: what is known of them.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        header: Callable[[], Sequence[str]] = list,
        footer: Callable[[], Sequence[str]] = list,
        written: Callable[[], bytes] = bytes,
    ) -> None:
        self.trials = Trials()
        self._controller = controller
        self._header = header
        self._footer = footer
        self._written = written
        self._lines = LastLines(_OUT)

    async def follow(self) -> None:
        """Follow the states of all trials, until the orchestrator ends the watch."""
        try:
            async with self._controller.watch_trials(full_info=True) as watch:
                entry: TrialListEntry
                async for entry in watch:
                    self.trials.changed(entry.info)
        except RpcError as error:
            logging.getLogger(__name__).debug("the screen follows the trials no more: %s", error)

    async def draw_for_ever(self) -> None:
        """Measure how far the trials are, and draw them, again and again."""
        while True:
            await self._measure()
            await self._draw()
            await trio.sleep(_DRAW_SECONDS)

    async def leave(self) -> None:
        """Draw it for the last time, and go on below it; a terminal that takes nothing delays this only a little."""
        with trio.move_on_after(_FAREWELL_SECONDS, shield=True):
            await self._draw()
        self._lines.leave()

    async def _measure(self) -> None:
        shown = self.trials.to_measure(shutil.get_terminal_size().lines)
        if shown:
            try:
                infos = await self._controller.trial_infos(shown)
            except RpcError:
                return  # it is stopping
            self.trials.measured(infos, trio.current_time())

    async def _draw(self) -> None:
        size = shutil.get_terminal_size()
        lines = page(self._header(), self.trials, self._footer(), width=size.columns, height=size.lines)
        await self._lines.write(_ERR, self._written(), [line.encode(errors="backslashreplace") for line in lines])
