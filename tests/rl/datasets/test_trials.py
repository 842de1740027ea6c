"""Rows of a data set about the actors of a trial."""

from __future__ import annotations

from typing import Any

import pytest

from tests.environments._games import Rps
from trio_cogment import open_platform, rl
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.endpoints import CLIENT, DISCOVER
from trio_cogment.environments.spec import PLAYER
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.sdk import ActorSession, StoredTrial, actor_params, trial_params


@pytest.mark.parametrize(
    ("endpoint", "implementation", "is_human"),
    [
        (CLIENT, "", True),
        (CLIENT, "human", True),
        (CLIENT, "human:ann", True),
        (CLIENT, "random", False),
        (CLIENT, "humanoid", False),
        (DISCOVER, "", False),
        (DISCOVER, "human", False),
    ],
)
def test_who_is_a_person(endpoint: str, implementation: str, is_human: bool) -> None:
    params = trial_params([actor_params("ann", PLAYER, implementation=implementation, endpoint=endpoint)])
    stored = StoredTrial("t", "ann", TrialState.ENDED, 1, params)
    assert TrialRecord.of(stored, 0).actors["ann"].is_human is is_human


async def test_programs_of_a_run_are_none() -> None:
    async def mover(session: ActorSession[Any, Any, Any]) -> None:
        await rl.policy(lambda _: 1).actor(rl.SeatContext("rps", "player_0"))(session)

    async with open_platform(rl.RL_SPEC, store="memory:") as platform:
        await rl.run_trials_async(
            1, environment=Rps, seats={"player_0": mover, "player_1": rl.random(1)}, on=platform, check=True
        )
        (stored,) = [trial async for trial in platform.datastore_client().all_trials()]
    actors = TrialRecord.of(stored, 0).actors.values()
    assert [(actor.implementation, actor.is_human) for actor in actors] == [("mover", False), ("random", False)]
