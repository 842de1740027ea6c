"""Trials as text for people: a table, with how fast each of them runs, and how they ended. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trio_cogment.cli.text import columns, printable

if TYPE_CHECKING:
    from trio_cogment.api.common_pb2 import EndOfTrial
    from trio_cogment.api.orchestrator_pb2 import TrialInfo

HEADINGS = ("TRIAL", "STATE", "TICK", "TICKS/S", "TIME", "END")
#: Rates are those of about this many measurements.
_MEASUREMENTS = 5
#: Ended trials that are shown, if there is room.
_MOST_ENDED = 100
#: States of trials that participants have not all joined yet.
_STARTING = ("INITIALIZING", "PENDING")
_NANOSECONDS = 1e9
_MINUTE = 60
_HOUR = 3600


def state_text(state: int) -> str:
    """Return the name of a trial's state; the number of one that this version does not know."""
    from trio_cogment.api.common_pb2 import TrialState

    return TrialState.Name(state) if state in TrialState.values() else str(state)


def end_text(trial_id: str, end: EndOfTrial) -> str:
    """Return how a trial ended, and because of whom; empty if nobody knows."""
    from trio_cogment.base.outcome import EndCause, TrialOutcome

    outcome = TrialOutcome.of(trial_id, end)
    if outcome.cause is EndCause.UNKNOWN:
        return ""
    by = outcome.participant or outcome.failed_participant
    text = outcome.cause.label + (f" ({by})" if by else "")
    return f"{text}; {_lost(outcome.samples_lost)}" if outcome.samples_lost else text


def trouble_text(info: TrialInfo) -> str:
    """Return what is wrong with the samples of a trial that is not over: some are lost, or the data log takes none."""
    parts = ["the data log takes no samples"] if info.datalog_trouble else []
    if info.waits_for_datalog:
        parts = [f"waits for the data log{', which takes no samples' if info.datalog_trouble else ''}"]
    if info.samples_lost and not info.end.samples_lost:
        parts.append(_lost(info.samples_lost))
    return "; ".join(parts)


def _lost(samples: int) -> str:
    from trio_cogment.base.outcome import counted

    return f"{counted(samples, 'sample')} lost"


def duration_text(seconds: float) -> str:
    """Return a duration as people read it: 4.2 s, 3:05 or 1:02:03."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), _MINUTE)
    hours, minutes = divmod(minutes, _MINUTE)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def row_of(info: TrialInfo, rate: float | None = None) -> tuple[str, ...]:
    """Return a trial as a row below `HEADINGS`; without a rate, that over its whole life."""
    seconds = info.trial_duration / _NANOSECONDS
    if rate is None:
        rate = info.tick_id / seconds if seconds else 0.0
    end = end_text(info.trial_id, info.end) if info.HasField("end") else ""
    end = "; ".join(filter(None, (end, trouble_text(info))))
    return (info.trial_id, state_text(info.state), str(info.tick_id), f"{rate:.1f}", duration_text(seconds), end)


def table(infos: Iterable[TrialInfo]) -> str:
    """Return trials as a table, one on each line."""
    return columns([HEADINGS, *map(row_of, infos)])


def line_of(info: TrialInfo) -> str:
    """Return a trial's new state as a line."""
    parts = [state_text(info.state), info.trial_id]
    if info.HasField("end"):
        from trio_cogment.base.outcome import ticks_text

        end = "; ".join(filter(None, (end_text(info.trial_id, info.end), trouble_text(info))))
        parts += [f"after {ticks_text(info.end.ticks)}", end]
    return printable("  ".join(filter(None, parts)))


class Trials:
    """The trials of an orchestrator as they are followed: those that run, and those that ended last.

    Attributes:
        ended: how many have ended, as far as they were seen.
    """

    def __init__(self) -> None:
        self.ended = 0
        self._running: dict[str, TrialInfo] = {}
        self._ended: OrderedDict[str, TrialInfo] = OrderedDict()
        self._ticks: dict[str, deque[tuple[float, int]]] = {}

    def changed(self, info: TrialInfo) -> None:
        """Take note of a trial's state, as a watch tells it."""
        from trio_cogment.api.common_pb2 import TrialState

        if info.state != TrialState.ENDED:
            self._running[info.trial_id] = info
            return
        self._running.pop(info.trial_id, None)
        self._ticks.pop(info.trial_id, None)
        self.ended += info.trial_id not in self._ended
        self._ended[info.trial_id] = info
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)

    def measured(self, infos: Iterable[TrialInfo], now: float) -> None:
        """Take note of how far trials are, at a time in seconds."""
        for info in infos:
            if info.trial_id in self._ended:
                self._ended[info.trial_id] = info
            if info.trial_id in self._running:
                self._running[info.trial_id] = info
                ticks = self._ticks.setdefault(info.trial_id, deque(maxlen=_MEASUREMENTS))
                ticks.append((now, info.tick_id))

    def to_measure(self, most: int) -> list[str]:
        """Return the ids of the trials that are worth a measurement: those that are shown, `most` of them.

        Of those that ended it is these whose samples are not stored yet.
        """
        pending = [trial_id for trial_id, info in self._ended.items() if info.end.samples_pending]
        return [*pending, *self._running][-most:] if most > 0 else []

    def lines(self, height: int) -> list[str]:
        """Return at most this many lines: the numbers of trials, those that run, and those that ended last."""
        room = height - 2
        running = list(self._running.values())
        shown = running[-room:] if room > 0 else []
        ended = list(reversed(self._ended.values()))[: max(0, room - len(shown))]
        rows = [row_of(info, self._rate(info.trial_id)) for info in reversed(shown)]
        rows += [row_of(info) for info in ended]
        starting = sum(state_text(info.state) in _STARTING for info in running)
        counts = f"{len(running) - starting} running, " + (f"{starting} starting, " if starting else "")
        counts += f"{self.ended} ended"
        hidden = len(running) - len(shown)
        counts += f"; {hidden} not shown" if hidden and shown else ""
        return [counts, *(columns([HEADINGS, *rows]).splitlines() if rows else [])][: max(0, height)]

    def _rate(self, trial_id: str) -> float:
        ticks: Sequence[tuple[float, int]] = self._ticks.get(trial_id, ())
        if len(ticks) <= 1:
            return 0.0
        (began, first), (now, last) = ticks[0], ticks[-1]
        return max(0, last - first) / (now - began) if now > began else 0.0
