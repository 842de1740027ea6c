"""Checkers over how trials ended, as their orchestrator tells it: cause, participant and ticks fit what was seen.

`record_states(..., full_info=True)` notes outcomes. A trial id with several of them is not judged: a start that failed
leaves its id free, and nothing tells which session belonged to which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from trio_cogment.base.outcome import EndCause
from trio_cogment.testing.history import History, HistoryEvent

_ORDERLY = {EndCause.ENVIRONMENT, EndCause.STEP_LIMIT, EndCause.SOFT_TERMINATION}
#: Causes that name a participant, all of which it was lost for, but for the last.
_SOMEBODY = {
    EndCause.PARTICIPANT_FAILED,
    EndCause.PARTICIPANT_LEFT,
    EndCause.PARTICIPANT_LOST,
    EndCause.PARTICIPANT_REFUSED,
    EndCause.PARTICIPANT_MISSING,
    EndCause.ACKNOWLEDGEMENT_MISSING,
    EndCause.ACTION_MISSING,
}
#: How the session of a participant closes that did not raise: it left, or the stream was taken from it.
_DID_NOT_RAISE = {"left", "cancelled", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}


class _Ended(NamedTuple):
    """A trial's outcome, and all that was noted about it; `stopping`: its orchestrator had been asked to stop."""

    trial_id: str
    cause: EndCause
    told: dict[str, Any]
    events: list[HistoryEvent]
    stopping: bool

    def params(self) -> dict[str, Any]:
        """What was noted of its parameters; nothing where a scenario does not note them."""
        return next((event.details for event in self.events if event.what == "params"), {})


def _ended(history: History) -> Iterator[_Ended]:
    by_trial: dict[str, list[HistoryEvent]] = {}
    stopping: set[str] = set()
    stopped = False
    for event in history:
        by_trial.setdefault(event.trial_id, []).append(event)
        stopped = stopped or event.what == "stopping"
        if event.what == "outcome" and stopped:
            stopping.add(event.trial_id)
    for trial_id, events in by_trial.items():
        told = [event for event in events if event.what == "outcome"]
        if len(told) == 1:
            cause = EndCause[told[0].details["cause"].upper()]
            yield _Ended(trial_id, cause, told[0].details, events, trial_id in stopping)


def causes_have_happened(history: History) -> Iterator[str]:
    """The cause that a trial's outcome names has happened: it was asked for, reached, or somebody did it."""
    for it in _ended(history):
        text = _unfounded(it)
        if text:
            yield f"{it.trial_id}: it ended for {it.cause.label}, and {text}"


def _unfounded(it: _Ended) -> str:
    cause = it.cause
    most = it.params().get("max_steps", 0)
    asked = {event.details["hard"] for event in it.events if event.what == "asked to end"}
    if cause in (EndCause.UNKNOWN, EndCause.INTERNAL):
        return "that is never so"
    if cause is EndCause.ENVIRONMENT and not any(event.what == "ends by itself" for event in it.events):
        return "its environment did not end it"
    if cause is EndCause.STEP_LIMIT and it.params() and it.told["ticks"] != most + 2:
        return f"there were {it.told['ticks']} ticks, where the most steps are {most}"
    if cause is EndCause.SOFT_TERMINATION and False not in asked:
        return "nobody asked for it"
    if cause is EndCause.HARD_TERMINATION and True not in asked:
        return "nobody asked for it"
    if cause is EndCause.NOT_STARTED and any(event.what == "started" for event in it.events):
        return "it was started"
    if cause is EndCause.SERVER_STOPPED and not it.stopping:
        return "its orchestrator had not been asked to stop"
    # An orderly end is told to the environment without details, and no other is.
    ends = {not event.details["details"] for event in it.events if _is_end_of_environment(event)}
    if len(ends) == 1 and ends != {cause in _ORDERLY}:
        return f"its environment got END {'without' if True in ends else 'with'} details"
    return ""


def blame_is_right(history: History) -> Iterator[str]:
    """An outcome blames whom its cause is about, and no optional actor; who is said to have raised or left did so."""
    for it in _ended(history):
        name, losses = it.told["participant"], it.told["losses"]
        required = {actor["name"] for actor in it.params().get("actors", ()) if not actor["optional"]}
        actors = {actor["name"] for actor in it.params().get("actors", ())}
        if bool(name) != (it.cause in _SOMEBODY or it.cause is EndCause.ENVIRONMENT):
            yield f"{it.trial_id}: {it.cause.label} blames {name!r}"
        elif it.cause in _SOMEBODY:
            if name in actors - required:
                yield f"{it.trial_id}: {it.cause.label} blames {name!r}, without which it would have gone on"
            if it.cause is not EndCause.ACTION_MISSING and [name, it.cause.label] not in losses:
                yield f"{it.trial_id}: {it.cause.label} blames {name!r}, and it has lost {losses}"
        for lost, why in losses:
            who = f"{'actor' if lost in actors else 'environment'} {lost}"
            outcomes = [one.details["outcome"] for one in it.events if one.what == "closed" and one.who == who]
            if why == EndCause.PARTICIPANT_FAILED.label and set(outcomes) <= _DID_NOT_RAISE:
                yield f"{it.trial_id}: {who} is said to have raised, and its sessions ended with {outcomes}"
            if why == EndCause.PARTICIPANT_LEFT.label and "left" not in outcomes:
                yield f"{it.trial_id}: {who} is said to have left, and its sessions ended with {outcomes}"


def ticks_are_counted(history: History) -> Iterator[str]:
    """An outcome counts the ticks that were seen: none beyond them, and after an orderly end exactly those shown."""
    for it in _ended(history):
        ticks = it.told["ticks"]
        # (Samples say nothing here: a trial without any tick has one, too.)
        seen = [one.details["tick"] for one in it.events if one.what in ("observation", "actions")]
        if max(seen, default=-1) >= ticks:
            yield f"{it.trial_id}: it had {ticks} ticks, and tick {max(seen)} was seen"
        shown = [one.details["tick"] for one in it.events if one.what == "showed"]
        told = any(_is_end_of_environment(event) for event in it.events)
        if told and it.cause in _ORDERLY and max(shown, default=-1) + 1 != ticks:
            yield f"{it.trial_id}: it had {ticks} ticks, and its environment showed those up to {max(shown)}"


def _is_end_of_environment(event: HistoryEvent) -> bool:
    return event.what == "end" and event.who.startswith("environment")


OUTCOME_CHECKERS = (causes_have_happened, blame_is_right, ticks_are_counted)
