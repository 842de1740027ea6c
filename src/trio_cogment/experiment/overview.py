"""The researchers' view of an experiment: who is where, the groups and the conditions, as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from trio_cogment.experiment.participant_table import Step
from trio_cogment.experiment.server import ExperimentServer

#: So many of those who are out are listed, the newest; the numbers are of all.
_LISTED = 200


def overview(server: ExperimentServer) -> dict[str, Any]:
    """Return what the researchers' page shows now."""
    machine, now = server.machine, server.now()
    people = list(machine.people.values())
    out = [each for each in people if each.step is Step.OUT]
    listed = [*(each for each in people if each.step is not Step.OUT), *reversed(out[-_LISTED:])]
    rows = []
    for person in listed:
        page = machine.page_of(person)
        rows.append(
            {
                "id": person.id,
                "number": person.number,
                "step": person.step.value,
                "end": person.end if person.step is Step.OUT else "",
                "here": person.here,
                "condition": machine.condition_of(person),
                "group": person.group,
                "place": None if person.place is None else person.place + 1,
                "page": "" if page is None else page.name,
                "seconds": max(now - person.since, 0.0),
            }
        )
    groups = [
        {
            "number": group.number,
            "condition": group.condition,
            "trial": min(group.trial + 1, len(server.experiment.trials)),
            "trials": len(server.experiment.trials),
            "playing": group.playing,
            "interrupted": group.interrupted,
            "members": [member for member in group.members if member is not None],
            "wizards": [
                {"agent": agent, "state": state.value} for agent, state in server.wizard_seats(group.number).items()
            ],
        }
        for group in machine.groups.values()
        if not group.over
    ]
    return {
        "title": server.experiment.title,
        "closed": machine.closed,
        "full": machine.is_full,
        "waiting": len(machine.waiting()),
        "size": server.experiment.waiting.size,
        "conditions": machine.counts(),
        "steps": dict(Counter(each.step.value for each in people if each.step is not Step.OUT)),
        "ends": dict(Counter(each.end for each in out)),
        "people": rows,
        "groups": groups,
    }
