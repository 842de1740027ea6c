"""A seat of a view that a client on the published SDK takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.environments._games import Countdown, Rps
from tests.interop.processes import Process, Stage, check_errors
from trio_cogment import rl

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

JOIN_SECONDS = 30.0


@pytest.fixture
def player(rl_project: Path) -> Path:
    return rl_project / "player.py"


class Table:
    """A seat for a client, and the client at it."""

    def __init__(self, stage: Stage, python: str, program: Path, agent: str) -> None:
        self.seat = rl.human("ann", port=0, join_timeout_seconds=JOIN_SECONDS)
        self._stage = stage
        self._record = stage.folder / "record"
        self._record.touch()
        self._command = [python, str(program)]
        self._agent = agent

    def sit(self) -> Process:
        return self._stage.start("player", *self._command, self.seat.endpoint, self._agent, str(self._record))

    def seen(self, trial_id: str) -> list[Any]:
        """What the client has seen in a trial, to its end."""

        def found() -> list[Any]:
            lines = [json.loads(line) for line in self._record.read_text().splitlines()]
            of_trial = [rest for trial, *rest in lines if trial == trial_id]
            return of_trial if of_trial and of_trial[-1][-1] == "ENDING" else []

        result: list[Any] = self._stage.until("the client has seen the end", found)
        return result


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as stage:
        yield stage


def test_one_episode_after_the_other(stage: Stage, foreign_python: str, player: Path) -> None:
    table = Table(stage, foreign_python, player, "player_1")
    view = rl.make_parallel(Rps(), seats={"player_1": table.seat})
    try:
        client = table.sit()
        for moves in ([0, 1, 2], [2, 2, 0]):
            view.reset()
            seen, rewards = [], []
            for move in moves:
                found = view.step({"player_0": move})
                seen.append(int(found[0]["player_0"]))
                rewards.append(found[1]["player_0"])
            # It sees 3 at first, which is not a move.
            assert seen == [1, (moves[0] + 1) % 3, (moves[1] + 1) % 3]
            assert view.agents == []
            told = table.seen(view.trial_id)
            assert [value for value, *_ in told] == [3, *moves]
            assert [reward for _, reward, *_ in told] == [0, *(-reward for reward in rewards)]
            assert [rest for _, _, *rest in told] == [*[[True, True, "ACTIVE"]] * 3, [False, False, "ENDING"]]
        check_errors(stage, client)
    finally:
        view.close()


def test_it_answers_empty_while_it_is_not_its_turn(stage: Stage, foreign_python: str, player: Path) -> None:
    table = Table(stage, foreign_python, player, "p_1")
    view = rl.make_aec(Countdown(mask=""), seats={"p_1": table.seat})
    try:
        client = table.sit()
        view.reset()
        while view.agents:
            *_, terminated, truncated, _ = view.last()
            view.step(None if terminated or truncated else 0)
        told = table.seen(view.trial_id)
        assert {(active, alive, kind) for _, _, active, alive, kind in told} == {
            *((True, True, "ACTIVE"), (False, True, "ACTIVE"), (False, False, "ENDING"))
        }
        check_errors(stage, client)
    finally:
        view.close()
