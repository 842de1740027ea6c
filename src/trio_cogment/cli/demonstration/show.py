"""Output of the demo: for people (a progress line, then a page) and for programs (JSON)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trio_cogment.cli.demonstration._game import COLOURS, SYMBOLS
from trio_cogment.cli.demonstration.run import DemoResult

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.-=+*#@"
_CHART_POINTS = 48
_UPDATES = 50
_PLAIN_UPDATES = 5
_BAR_WIDTH = 32


class Progress:
    """A context manager that shows the progress of a trial: one changing line on a terminal, a few lines elsewhere.

    Args:
        console: where to print.
        ticks: the length of the trial.
    """

    def __init__(self, console: Console, ticks: int) -> None:
        self._console = console
        self._ticks = ticks
        self._every = max(1, ticks // (_UPDATES if console.is_terminal else _PLAIN_UPDATES))
        # Refreshed explicitly: a refresh thread would slow the trial down.
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def on_tick(self, tick_id: int, rewards: Sequence[float]) -> None:
        """Update the progress after a tick."""
        if (tick_id + 1) % self._every or not rewards:
            return
        recent = rewards[-self._ticks // 10 :]
        mean = sum(recent) / len(recent)
        text = f"tick {tick_id + 1} of {self._ticks}, recent mean reward {mean:.2f}"
        if self._live is None:
            self._console.print(text)
            return
        line = Table.grid(padding=(0, 2))
        line.add_row(ProgressBar(self._ticks, tick_id + 1, width=_BAR_WIDTH), text)
        self._live.update(line, refresh=True)


def chart(values: Sequence[float], blocks: str = _BLOCKS) -> str:
    """Draw values between 0 and 1 as one line of blocks."""
    return "".join(blocks[min(len(blocks) - 1, int(value * len(blocks)))] for value in values)


def page(result: DemoResult, *, ascii_only: bool = False) -> RenderableType:
    """Return the result as a page for people."""
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    arrow = "->" if ascii_only else "→"
    where = "over gRPC" if result.grpc else "in process"
    speed = result.ticks / result.seconds
    facts = Table.grid(padding=(0, 3))
    facts.add_row("Mean reward", f"first tenth {result.first:.2f} {arrow} last tenth {result.last:.2f}")
    facts.add_row("Learning" if result.learning else "No learning", chart(result.curve(_CHART_POINTS), blocks))
    facts.add_row("Speed", f"{result.ticks} ticks in {result.seconds:.2f} s, {speed:,.0f} ticks/s, {where}")
    facts.add_row("Seed", str(result.seed))
    parts: list[RenderableType] = [facts]
    if result.learning:
        parts += [Text(), "The code they agreed on:", _code(result, arrow)]
    return Group(*parts)


def _code(result: DemoResult, arrow: str) -> Table:
    table = Table.grid(padding=(0, 1))
    for colour, symbol in enumerate(result.symbols):
        understood = result.meanings[symbol]
        style = COLOURS[colour]
        verdict = "" if understood == colour else "(misunderstood)"
        table.add_row(
            " ",
            Text(COLOURS[colour], style),
            arrow,
            Text(SYMBOLS[symbol], "bold"),
            arrow,
            Text(COLOURS[understood], COLOURS[understood]),
            verdict,
        )
    return table


def as_json(result: DemoResult) -> str:
    """Return the result as JSON on one line."""
    code = [
        {"colour": COLOURS[colour], "symbol": SYMBOLS[symbol], "understood_as": COLOURS[result.meanings[symbol]]}
        for colour, symbol in enumerate(result.symbols)
    ]
    document: dict[str, Any] = {
        "seed": result.seed,
        "ticks": result.ticks,
        "learning": result.learning,
        "transport": "grpc" if result.grpc else "in process",
        "mean_reward_first_tenth": result.first,
        "mean_reward_last_tenth": result.last,
        "curve": result.curve(_CHART_POINTS),
        "code": code,
        "seconds": result.seconds,
        "ticks_per_second": result.ticks / result.seconds,
    }
    return json.dumps(document)
