"""Old participants in simulated worlds: they vanish, hang and repeat; see `play`.

300 seeds take longer than `nox -s sim` may, so they are a proof of `nox -s soak`. They are run alone by
`pytest -m soak tests/gateways/legacy/test_simulated.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateways.legacy.play import LOCAL, NEIGHBOUR_TICKS, Play
from trio_cogment.testing import World, check_history, simulate
from trio_cogment.testing.history import History

pytestmark = pytest.mark.usefixtures("quiet")

#: Answers that say that the gateway itself is at fault.
_FAULTS = {"INTERNAL", "UNKNOWN", "UNIMPLEMENTED"}


def faulty_answers(history: History) -> Iterator[str]:
    """No refusal is the gateway's own failure, ticks do not go back, and no answer follows the final one."""
    ticks: dict[str, int] = {}
    over: set[str] = set()
    for event in history:
        if event.what == "refused" and (event.details["code"] in _FAULTS or not event.details["text"]):
            yield f"{event}"
        elif event.what == "answered":
            tick = event.details["tick"]
            if tick < ticks.get(event.who, 0) or (event.who in over and not event.details["over"]):
                yield f"{event}: after {ticks.get(event.who)}"
            ticks[event.who] = tick
            if event.details["over"]:
                over.add(event.who)


def repeated_actions(history: History) -> Iterator[str]:
    """An action counts once: what the environment gets for a tick was given for it.

    Over a network, an answer may be lost on its way after the server has sent it. Then the client knows one tick less
    than the server thinks, and only then may an action be one behind.
    """
    local: set[str] = set()
    ticks: dict[str, int] = {}
    asked: dict[tuple[str, int], int] = {}
    for event in history:
        if event.what == "acts" and event.details["actor"] == 0:
            key = event.details["trial"], event.details["knows"]
            asked[key] = asked.get(key, 0) + 1
            if event.who.startswith(LOCAL):
                local.add(event.details["trial"])
        elif event.what == "updated":
            trial = event.details["trial"]
            tick = ticks[trial] = ticks.get(trial, -1) + 1
            if not event.details["p"] or trial.startswith(("quiet", "afterwards")):
                continue
            given = int(event.details["p"])
            repeated = trial not in local and asked.get((trial, given), 0) > tick - given
            if given > tick or (given < tick and not repeated):
                yield f"{event}: at tick {tick}"


async def judged(world: World) -> None:
    await Play(world).run()
    found = [*faulty_answers(world.history), *repeated_actions(world.history)]
    assert not found, "\n".join(found)
    check_history(world.history)


@pytest.mark.sim(seeds=8)
def test_old_participants_that_vanish_hang_and_repeat(sim: Any) -> None:
    sim(judged)


@pytest.mark.soak
@pytest.mark.sim(seeds=300)
def test_many_that_vanish_hang_and_repeat(sim: Any) -> None:
    sim(judged)


async def undisturbed(world: World) -> None:
    await Play(world, disturbed=False).run()
    acted = [event.details["p"] for event in world.history if event.what == "updated"]
    assert acted == [str(tick) for tick in range(NEIGHBOUR_TICKS)] * 4
    check_history(world.history)


def test_the_neighbour_alone() -> None:
    simulate(1, undisturbed)


def test_the_checkers_find_what_they_should() -> None:
    def noted(*events: tuple[str, dict[str, Any]]) -> list[str]:
        async def note(world: World) -> list[str]:
            for what, details in events:
                world.history.record("c", what, **details)
            return [*faulty_answers(world.history), *repeated_actions(world.history)]

        return simulate(1, note).value

    def acts(knows: int) -> tuple[str, dict[str, Any]]:
        return "acts", {"trial": "t", "actor": 0, "knows": knows}

    def actions(p: str) -> tuple[str, dict[str, Any]]:
        return "updated", {"trial": "t", "p": p}

    def answered(tick: int, over: bool = False) -> tuple[str, dict[str, Any]]:
        return "answered", {"tick": tick, "over": over}

    assert noted(acts(0), actions("0"), answered(1), acts(1), actions("1"), answered(2, over=True)) == []
    assert noted(acts(0), acts(0), actions("0"), actions("0")) == []
    assert len(noted(acts(0), actions("0"), actions("0"))) == 1
    assert len(noted(acts(0), actions("1"))) == 1
    assert len(noted(answered(2), answered(1))) == 1
    assert len(noted(answered(2, over=True), answered(2))) == 1
    (failed,) = noted(("refused", {"asked": "action", "code": "INTERNAL", "text": "a failure"}))
    assert "INTERNAL" in failed
