"""Checkers over a trial's parameters: steps, defaults, required actors, timeouts.

A scenario notes them with `record_params`; a trial without such a note is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.testing.checkers._grouping import sessions
from trio_cogment.testing.fakes.contents import action_content, as_text
from trio_cogment.testing.history import History


def record_params(history: History, trial_id: str, params: TrialParams) -> None:
    """Note the parameters with which a trial is started, for the checkers; call it before the start."""
    actors = [
        {
            "name": actor.name,
            "optional": actor.optional,
            "default": as_text(actor.default_action.content) if actor.HasField("default_action") else None,
        }
        for actor in params.actors
    ]
    excluded = list(params.datalog.exclude_fields)
    history.record("world", "params", trial_id, actors=actors, max_steps=params.max_steps, excluded=excluded)


def _params(history: History) -> dict[str, dict[str, Any]]:
    return {event.trial_id: event.details for event in history if event.what == "params"}


def absences_follow_the_params(history: History) -> Iterator[str]:
    """An absent actor has its default action, or none and is listed as unavailable; no required actor is absent.

    (Where a required actor has no action, the trial ends.)
    """
    params = _params(history)
    for event in history:
        if event.what == "actions" and event.trial_id in params:
            tick, contents, unavailable = (event.details[name] for name in ("tick", "contents", "unavailable"))
            for index, actor in enumerate(params[event.trial_id]["actors"]):
                name, content, default = actor["name"], contents.get(actor["name"]), actor["default"]
                if content == action_content(name, tick).decode() and index not in unavailable:
                    continue
                absent = content == default and index not in unavailable
                if default is None:
                    absent = content == "" and index in unavailable
                if not absent or not actor["optional"]:
                    said = "unavailable" if index in unavailable else "available"
                    yield f"{event.trial_id}: at tick {tick} {name} was {said}, with {content!r}"


def steps_are_limited(history: History) -> Iterator[str]:
    """After `max_steps` ticks the next actions are the last: LAST comes before them, and none after them."""
    params = _params(history)
    for session in sessions(history):
        most = params.get(session[0].trial_id, {}).get("max_steps", 0)
        announced = False
        for event in session if most else ():
            announced = announced or event.what in ("last", "ends by itself")
            tick = event.details["tick"] if event.what == "actions" else -1
            if tick > most or (tick == most and not announced):
                yield f"{event.trial_id}: {event.who} got actions of tick {tick}; the most steps are {most}"


def excluded_fields_are_left_out(history: History) -> Iterator[str]:
    """A data log is not sent the fields that it excludes."""
    params = _params(history)
    for event in history:
        if event.what in ("sample", "late sample"):
            for field in params.get(event.trial_id, {}).get("excluded", ()):
                if event.details.get(field):
                    yield f"{event.trial_id}: the sample of tick {event.details['tick']} has {field}"


def nobody_waits_for_ever(history: History) -> Iterator[str]:
    """Actions, the end and acknowledgements are awaited no longer than allowed; an inactive trial ends.

    (`Probe` notes what has been waited for longer.)
    """
    for event in history:
        if event.what == "overdue":
            waits_for, seconds, patience = (event.details[name] for name in ("waits_for", "seconds", "patience"))
            yield f"{event.trial_id}: {seconds:.3f} s of waiting for {waits_for}, where {patience:g} s are allowed"


PARAM_CHECKERS = (
    absences_follow_the_params,
    steps_are_limited,
    excluded_fields_are_left_out,
    nobody_waits_for_ever,
)
