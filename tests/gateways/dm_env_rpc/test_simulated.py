"""Gateways in simulated worlds, with clients that vanish at any step; see `play`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateways.dm_env_rpc.duels import BOTH
from tests.gateways.dm_env_rpc.play import Play
from trio_cogment.testing import World, check_history, simulate
from trio_cogment.testing.history import History

pytestmark = pytest.mark.usefixtures("quiet")

#: What may be answered, by what the client knew: the protocol's moves, written down a second time.
_LEGAL = {
    ("TERMINATED", "RUNNING"),
    ("INTERRUPTED", "RUNNING"),
    ("RUNNING", "RUNNING"),
    ("RUNNING", "TERMINATED"),
    ("RUNNING", "INTERRUPTED"),
}
#: Answers that say that the gateway itself is at fault.
_FAULTS = {"INTERNAL", "UNKNOWN", "UNIMPLEMENTED"}


def illegal_moves(history: History) -> Iterator[str]:
    """No client is told of a move that the protocol does not have, and no refusal is the gateway's own failure."""
    knows: dict[str, str] = {}
    for event in history:
        if event.what == "answered":
            before, state = knows.get(event.who, "NOT_JOINED"), event.details["state"]
            if state and (before, state) not in _LEGAL:
                yield f"{event.who}: {state} after {before}"
            if event.details["request"] == "join_world" and before != "NOT_JOINED":
                yield f"{event.who}: joined while {before}"
            knows[event.who] = event.details["knows"]
        elif event.what == "refused" and (event.details["code"] in _FAULTS or not event.details["text"]):
            yield f"{event}"


def lost_actions(history: History) -> Iterator[str]:
    """A step whose sequence goes on shows the action that was given in it."""
    given: dict[str, int] = {}
    parts: dict[str, str] = {}
    going_on: set[str] = set()
    for event in history:
        who, details = event.who, event.details
        if event.what == "asks":
            given[who] = details.get("number", 0)
            if details["request"] == "join_world":
                parts[who] = details.get("actor_name", "")
        elif event.what == "answered":
            if details["state"] == "RUNNING" and who in going_on and parts[who]:
                saw = details["saw"][BOTH.index(parts[who])]
                if saw != given[who]:
                    yield f"{who}: gave {given[who]}, and saw {saw}"
            if details["state"] == "RUNNING":
                going_on.add(who)
            elif details["knows"] != "RUNNING":
                going_on.discard(who)
        elif event.what == "refused" and details["code"] != "OUT_OF_RANGE":
            going_on.discard(who)  # the next step may begin a sequence


async def judged(world: World) -> None:
    await Play(world).run()
    found = [*illegal_moves(world.history), *lost_actions(world.history)]
    assert not found, "\n".join(found)
    check_history(world.history)


@pytest.mark.sim(seeds=8)
def test_clients_that_vanish(sim: Any) -> None:
    """`nox -s soak` runs 300 seeds."""
    sim(judged)


async def undisturbed(world: World) -> None:
    await Play(world, disturbed=False).run()
    assert not any(event.what == "asks" for event in world.history)
    check_history(world.history)


def test_the_neighbour_alone() -> None:
    simulate(1, undisturbed)


def test_the_checkers_find_what_they_should() -> None:
    def noted(*events: tuple[str, dict[str, Any]]) -> list[str]:
        async def note(world: World) -> list[str]:
            for what, details in events:
                world.history.record("c", what, **details)
            return [*illegal_moves(world.history), *lost_actions(world.history)]

        return simulate(1, note).value

    joined: list[tuple[str, dict[str, Any]]] = [
        ("asks", {"request": "join_world", "actor_name": "bob"}),
        ("answered", {"request": "join_world", "state": "", "knows": "TERMINATED"}),
        ("asks", {"request": "step", "number": 3}),
    ]

    def step(state: str, saw: int) -> tuple[str, dict[str, Any]]:
        return "answered", {"request": "step", "state": state, "knows": state, "saw": [0, saw]}

    assert noted(*joined, step("RUNNING", 0), step("RUNNING", 3), step("TERMINATED", 0), step("RUNNING", 0)) == []
    assert noted(*joined, step("INTERRUPTED", 0)) == ["c: INTERRUPTED after TERMINATED"]
    assert noted(*joined, step("RUNNING", 0), step("RUNNING", 0)) == ["c: gave 3, and saw 0"]
    assert noted(*joined, joined[1]) == ["c: joined while TERMINATED"]
    (failed,) = noted(("refused", {"request": "step", "code": "INTERNAL", "text": "a failure"}))
    assert "INTERNAL" in failed
