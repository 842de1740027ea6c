"""The trials of an orchestrator as rows: for everybody who looks, one look."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from trio_cogment.access import Identity
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.base.errors import NotFoundError
from trio_cogment.dashboard._rows import Row
from trio_cogment.servers.orchestrator import Glance, Orchestrator, ParticipantGlance, Trial

# The pace of trials and whom they wait for, seen from outside: by looking now and then.
#
# Nothing is measured within a tick. Each look says which tick a trial is at, and who has not answered yet. Over many
# looks, the share of those in which somebody was waited for is the share of the time that the trial has waited for
# them: of a trial that is slow, it says who is.

#: Looks that count: at ten a second, those of the last ten seconds.
_LOOKS = 100
#: Fewer say nothing about shares.
_ENOUGH = 5


@dataclass(frozen=True, slots=True)
class Look:
    """A trial at one moment.

    Attributes:
        now: in seconds, on any scale.
        tick: that it is at.
        awaited: the names of those who are waited for.
    """

    now: float
    tick: int
    awaited: frozenset[str]


class Pace:
    """The last looks at one trial."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=_LOOKS)

    def look(self, now: float, tick: int, awaited: Collection[str]) -> None:
        """Take a look."""
        self._looks.append(Look(now, tick, frozenset(awaited)))

    @property
    def ticks_per_second(self) -> float | None:
        """How fast it is; None: nobody knows yet."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0], self._looks[-1]
        seconds = last.now - first.now
        return max(0, last.tick - first.tick) / seconds if seconds > 0 else None

    def waited(self) -> dict[str, float]:
        """Return for whom the trial has waited, and for which share of the time; nothing before enough is known."""
        if len(self._looks) < _ENOUGH:
            return {}
        counts: dict[str, int] = {}
        for look in self._looks:
            for name in look.awaited:
                counts[name] = counts.get(name, 0) + 1
        return {name: count / len(self._looks) for name, count in counts.items()}


#: Trials that a page lists: first those that have not ended, the newest of each first.
MAX_ROWS = 300
#: Looks are not closer together, however many pages there are.
LOOK_SECONDS = 0.1
#: After so long without a look, the old ones say nothing about now.
_STALE_SECONDS = 3.0
_GET_INFO = "/cogmentAPI.TrialLifecycleSP/GetTrialInfo"
_ENDED = TrialState.ENDED
#: What takes the place of participants' names while a trial waits for its data log.
_DATALOG = "the data log"
_NAMES = {number: name for name, number in TrialState.items()}


class Board:
    """See the module.

    Args:
        orchestrator: whose trials they are.
        clock: returns the time, in seconds on any scale.
    """

    def __init__(self, orchestrator: Orchestrator, clock: Callable[[], float]) -> None:
        self._orchestrator = orchestrator
        self._clock = clock
        self._looked_at = float("-inf")
        self._paces: dict[str, Pace] = {}
        #: Of the trials that somebody has seen since the last look: all tabs share them.
        self._rows: dict[str, Row] = {}

    def _look(self) -> None:
        """Look at the trials that run, unless that was just done."""
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS * 0.9:
            return
        paces = self._paces if now - self._looked_at < _STALE_SECONDS else {}
        self._paces = {}
        self._rows.clear()
        self._looked_at = now
        for trial in self._orchestrator.trials:
            if trial.state != _ENDED:
                glance = trial.glance()
                pace = self._paces[trial.trial_id] = paces.get(trial.trial_id) or Pace()
                pace.look(now, glance.tick, (_DATALOG,) if glance.waits_for_datalog else glance.awaited)

    def rows(self, identity: Identity, search: str = "") -> dict[str, Row]:
        """Return the trials that somebody may see, as rows by their ids.

        Args:
            identity: who looks.
            search: a part of their ids, users or environments.
        """
        self._look()
        trials = [one for one in self._orchestrator.trials if identity.reaches(_GET_INFO, one.owner)]
        if search:
            trials = [
                one for one in trials if search in f"{one.trial_id}\n{one.user_id}\n{one.machine.environment_name}"
            ]
        trials.reverse()
        trials.sort(key=lambda one: one.state == _ENDED)
        return {one.trial_id: self._shared_row(one.trial_id, one.glance) for one in trials[:MAX_ROWS]}

    def counts(self, identity: Identity) -> dict[str, int]:
        """Return how many trials somebody may see, by their states."""
        found: dict[str, int] = {}
        for trial in self._orchestrator.trials:
            if identity.reaches(_GET_INFO, trial.owner):
                name = _NAMES[trial.state]
                found[name] = found.get(name, 0) + 1
        return found

    def _shared_row(self, trial_id: str, glance: Callable[[], Glance]) -> Row:
        row = self._rows.get(trial_id)
        if row is None:
            row = self._rows[trial_id] = self._row(glance())
        return row

    def _row(self, glance: Glance) -> Row:
        pace = self._paces.get(glance.trial_id)
        row: dict[str, Any] = {
            "id": glance.trial_id,
            "user": glance.user_id,
            "state": _NAMES[glance.state],
            "tick": glance.tick,
            "seconds": int(glance.seconds),
            "environment": glance.environment,
            "actors": glance.actors,
        }
        if glance.queued_messages or glance.queued_samples:
            row |= {"messages": glance.queued_messages, "samples": glance.queued_samples}
        if glance.lost_samples:
            row["lost"] = glance.lost_samples
        if glance.datalog_trouble:
            row["trouble"] = glance.datalog_trouble
        if glance.waits_for_datalog:
            row["held"] = True
        if pace is not None:
            rate = pace.ticks_per_second
            if rate is not None:
                row["rate"] = _rounded(rate)
            waited = pace.waited()
            if waited:
                name, share = max(waited.items(), key=lambda item: item[1])
                row |= {"slow": name, "share": round(share, 2)}
        return row

    def one(self, identity: Identity, trial_id: str) -> dict[str, Row]:
        """Return a trial and its participants, as rows: `trial`, and each of them by its number.

        Raises:
            NotFoundError: there is none, or somebody else's.
        """
        self._look()
        trial = self._known(identity, trial_id)
        glance = trial.glance(participants=True)
        row = dict(self._row(glance))
        outcome = trial.outcome
        if outcome is not None:
            row["end"] = {
                "cause": outcome.cause.name,
                "participant": outcome.participant,
                "reason": outcome.reason,
                "losses": [{"participant": one.participant, "reason": one.reason} for one in outcome.losses],
                "lost": outcome.samples_lost,
            }
        pace = self._paces.get(trial_id)
        waited = {} if pace is None else pace.waited()
        rows: dict[str, Row] = {"trial": row}
        for number, one in enumerate(glance.participants):
            rows[str(number)] = _participant(one, waited.get(one.name, 0.0))
        return rows

    def params(self, identity: Identity, trial_id: str) -> TrialParams | None:
        """Return the parameters of a trial; None: it has none yet.

        Raises:
            NotFoundError: there is none, or somebody else's.
        """
        return self._known(identity, trial_id).machine.params

    def _known(self, identity: Identity, trial_id: str) -> Trial:
        trial = self._orchestrator.trials.get(trial_id)
        if trial is None or not identity.reaches(_GET_INFO, trial.owner):
            raise NotFoundError(f"trial {trial_id!r}: it is not known here")
        return trial


def _participant(one: ParticipantGlance, share: float) -> Row:
    health = "gone" if one.gone else "there" if one.present else "not there"
    if one.unanswered_heartbeats:
        health = "does not answer"
    return {
        "name": one.name,
        "class": one.actor_class,
        "endpoint": one.endpoint,
        "implementation": one.implementation,
        "health": health,
        "stream": one.stream,
        "silent": int(one.silent_seconds),
        "queued": one.queued_messages,
        "awaited": one.awaited,
        "share": round(share, 2),
    }


def _rounded(rate: float) -> float:
    return round(rate) if rate >= 100 else round(rate, 1)
