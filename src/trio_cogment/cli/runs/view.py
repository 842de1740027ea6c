"""Runs, steps and episodes as text for people: tables, lines, and a curve. Pure."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trio_cogment.base.outcome import counted
from trio_cogment.cli.text import columns, printable, shortened
from trio_cogment.trainer.runs import RunOutcome

if TYPE_CHECKING:
    from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunRecord, RunStep

_HEADINGS = ("RUN", "NAME", "STATUS", "OUTCOME", "UPDATED", "GPUS", "REASON")
#: Columns that are left out of a table that is too wide, in this order.
_LESS_IMPORTANT = ("GPUS", "UPDATED")
_REASON_CHARACTERS = 60
_NAME_CHARACTERS = 30
#: Sums of smaller values are numbers.
_TOO_LARGE = 1e300
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def status_of(record: RunRecord) -> str:
    """Return the status of a run, without the prefix of all statuses."""
    from trio_cogment.api.trainer.trainer_pb2 import RunStatus

    return RunStatus.Name(record.status).removeprefix("RUN_STATUS_")


def table(records: Iterable[RunRecord], *, width: int | None = None) -> str:
    """Return runs as a table, one on each line.

    Args:
        records: the runs.
        width: how many characters a line has at most: less important columns are left out, and reasons are cut.
    """
    rows = [_HEADINGS, *map(_row, records)]
    lines = columns(rows).splitlines()
    if width is None:
        return "\n".join(lines)
    for name in _LESS_IMPORTANT:
        if max(map(len, lines)) <= width:
            break
        place = rows[0].index(name)
        rows = [(*row[:place], *row[place + 1 :]) for row in rows]
        lines = columns(rows).splitlines()
    return "\n".join(line[:width] for line in lines)


def _row(record: RunRecord) -> tuple[str, ...]:
    return (
        record.run_id,
        shortened(record.run_name, _NAME_CHARACTERS) or "-",
        status_of(record),
        record.outcome or "-",
        _time(record.updated_at.ToJsonString()),
        ",".join(map(str, record.gpu_slots)) or "-",
        shortened(record.failure_reason, _REASON_CHARACTERS) or "-",
    )


def _time(text: str) -> str:
    return text.partition(".")[0].rstrip("Z").replace("T", " ")


def record_line(record: RunRecord) -> str:
    """Return a change of a run as a line."""
    outcome = f"  {record.outcome}" if record.outcome else ""
    reason = f"  {shortened(record.failure_reason, _REASON_CHARACTERS)}" if record.failure_reason else ""
    saved = f"  {shortened(record.checkpoints[-1], _REASON_CHARACTERS)}" if record.checkpoints else ""
    return printable(f"{record.seq_id or '-':>6}  {record.run_id}  {status_of(record)}{outcome}{saved}{reason}")


def step_line(step: RunStep) -> str:
    """Return a step as a line."""
    end = " terminated" if step.terminated else " truncated" if step.truncated else ""
    return printable(
        f"{step.seq_id:>8}  episode {step.episode_index} step {step.step_index} {step.agent_id or '-'}: "
        f"action {shortened(step.action_json, 60) or '-'} reward {step.reward:g}{end}"
    )


def episode_line(episode: RunEpisode) -> str:
    """Return an episode as a line."""
    end = " terminated" if episode.terminated else " truncated" if episode.truncated else ""
    return printable(
        f"{episode.seq_id:>8}  episode {episode.episode_index} {episode.agent_id or '-'}: "
        f"return {episode.total_reward:g} in {counted(episode.steps, 'step')}{end}"
    )


def curve(values: Sequence[float], *, width: int, height: int) -> list[str]:
    """Return a curve of values as lines, with what its highest and its lowest point stand for on the left.

    Several values share a column, as their mean, if there are more than columns. What is not a number, or is too
    large to be added up, is left out.

    Args:
        values: in order.
        width: how many characters a line has at most.
        height: how many lines.
    """
    finite = _drawable(values)
    if not finite:
        return []
    margin = needed = 0
    while margin <= needed:  # what is drawn depends on how wide its labels are
        margin = needed + 1
        means = _means(finite, max(1, width - margin))
        low, high = min(means), max(means)
        labels = [f"{high:.4g}", f"{low:.4g}"]
        needed = max(map(len, labels))
    span = (high - low) or 1.0
    levels = [1 + round((value - low) / span * (height * 8 - 1)) for value in means]
    lines = []
    for row in reversed(range(height)):
        cells = "".join(_EIGHTHS[min(8, max(0, level - row * 8))] for level in levels)
        label = labels[0] if row == height - 1 else labels[1] if row == 0 else ""
        lines.append(f"{label:>{margin - 1}} {cells}".rstrip())
    return lines


def _means(values: Sequence[float], count: int) -> list[float]:
    if len(values) <= count:
        return list(values)
    bounds = [round(index * len(values) / count) for index in range(count + 1)]
    return [_mean(values[start:end]) for start, end in itertools.pairwise(bounds)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _drawable(values: Sequence[float]) -> list[float]:
    return [value for value in values if abs(value) < _TOO_LARGE]  # NaN is not less than anything


class Overview:
    """All runs as they were seen last while they are watched."""

    def __init__(self) -> None:
        self._records: dict[str, RunRecord] = {}
        self._changed: dict[str, int] = {}
        self._changes = 0

    def add(self, record: RunRecord) -> None:
        """Take note of a run, or of its change."""
        self._records[record.run_id] = record
        self._changes += 1
        self._changed[record.run_id] = self._changes

    def screen(self, *, width: int, height: int) -> str:
        """Return a table for a terminal, in the order in which the runs were seen first.

        If there are too many, those that have changed last are shown, and how many others there are.
        """
        room = max(1, height - 1)
        if len(self._records) > room:
            room = max(1, room - 1)
        recent = frozenset(heapq.nlargest(room, self._changed, key=self._changed.__getitem__))
        text = table((record for run_id, record in self._records.items() if run_id in recent), width=width)
        others = len(self._records) - len(recent)
        return f"{text}\n{f'and {others} that changed earlier'[:width]}" if others else text


_LATEST = 100
#: A screen with a curve has no more lines.
_CURVE_LINES = 12


class Progress:
    """What is known of one run while it is watched."""

    def __init__(self) -> None:
        self.record: RunRecord | None = None
        self._returns: list[float] = []
        self._steps = 0

    def add(self, episode: RunEpisode) -> None:
        """Take note of an episode."""
        self._returns.append(episode.total_reward)
        self._steps += episode.steps

    def _figures(self) -> dict[str, str]:
        latest = _drawable(self._returns[-_LATEST:])
        return {
            "run": self.record.run_id if self.record is not None else "-",
            "status": status_of(self.record) if self.record is not None else "-",
            "episodes": str(len(self._returns)),
            "steps": str(self._steps),
            "return": f"{self._returns[-1]:g}" if self._returns else "-",
            f"mean of {len(latest)}": f"{_mean(latest):g}" if latest else "-",
        }

    @property
    def summary(self) -> str:
        """One line about the run."""
        run, status, *figures = self._figures().items()
        texts = [run[1], status[1], *(f"{name} {value}" for name, value in figures), self.end]
        return printable("  ".join(filter(None, texts)))

    @property
    def end(self) -> str:
        """How the run has ended, and why; empty: it goes on."""
        record = self.record
        return "" if record is None else ": ".join(filter(None, (record.outcome, record.failure_reason)))

    @property
    def succeeded(self) -> bool:
        """Whether the run has ended well."""
        return self.record is not None and self.record.outcome == RunOutcome.SUCCEEDED.value

    @property
    def detail(self) -> list[str]:
        """What else is known of its failure, as lines."""
        return [] if self.record is None else [printable(line) for line in self.record.detail.splitlines()]

    def screen(self, *, width: int, height: int) -> str:
        """Return all of it, as lines for a terminal: a table, how the run has ended, and the curve of its returns."""
        height = min(_CURVE_LINES, height)
        figures = self._figures()
        head = columns([[name.upper() for name in figures], list(figures.values())]).splitlines()
        if self.end:
            head.append(printable(self.end))
        drawn = curve(self._returns, width=width, height=max(1, height - 1 - len(head)))
        return "\n".join([*(line[: max(1, width)] for line in head), *drawn])
