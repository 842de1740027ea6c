"""A run of 200 trials of CartPole, from one configuration."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_cogment.rl as rl
from tests.trainer.dispatch.programs import until
from tests.trainer.trials.worlds import training, trials
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.cli.runs.streams import watch_run
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.sdk import Participants
from trio_cogment.seats.base import SeatContext
from trio_cogment.trainer import TrainerClient

pytest.importorskip("gymnasium")

COUNT = 200
PARAMS: dict[str, Any] = {
    "environment": {"implementation": "cartpole", "endpoint": "cogment://discover"},
    "actors": [
        {"name": "player_0", "actor_class": PLAYER, "endpoint": "cogment://discover", "implementation": "random"}
    ],
}


def people() -> Participants:
    found = Participants(RL_SPEC)
    found.register_environment(rl.environment("CartPole-v1", hosting="inline"), "cartpole")
    actor: Any = rl.random(seed=1).actor(SeatContext("CartPole-v1", "player_0", None))
    found.register_actor(actor, "random", [PLAYER])
    return found


async def test_returns_pauses_and_rates(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    starts: list[float] = []
    shown: list[dict[str, Any]] = []

    def look() -> list[dict[str, Any]]:
        """Return what `run watch --json` has printed since the last look."""
        new = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        shown.extend(new)
        return new

    async with training(people(), tmp_path) as (client, platform):

        async def watch(*, task_status: trio.TaskStatus[None]) -> None:
            async with platform.controller.watch_trials([TrialState.INITIALIZING]) as watching:
                task_status.started()
                async for _ in watching:
                    starts.append(trio.current_time())

        async with trio.open_nursery() as screens, trio.open_nursery() as nursery:
            await nursery.start(watch)
            await client.submit("r", **trials(COUNT, parallel=8, params=PARAMS, seeds=list(range(COUNT))))
            screens.start_soon(watch_run, TrainerClient(platform.channel), "r", 0, True)
            await client.command("r", max_rate_hz=20)
            await until(client, "r", "EXEC")
            await client.command("r", pause=True)
            await trio.sleep(0.001)
            before = len(starts)
            look()
            await trio.sleep(5)
            assert len(starts) == before, "paused, no trial starts"
            assert not look(), "paused, nothing is published"
            await client.command("r", max_rate_hz=2)
            await client.command("r", resume=True)
            resumed = trio.current_time()
            await trio.sleep(10)
            throttled = [start for start in starts[before:] if start >= resumed]
            assert 19 <= len(throttled) <= 21
            gaps = [later - earlier for earlier, later in itertools.pairwise(throttled)]
            assert min(gaps) >= 0.499
            assert 15 <= len(look()) <= 30, "seen while the run goes on"
            await client.command("r", max_rate_hz=0)
            await until(client, "r", "TERM")
            nursery.cancel_scope.cancel()
        assert len(starts) == COUNT
        look()
        *episodes, ended = shown
        assert (ended["run_id"], ended["status"]) == ("r", "RUN_STATUS_TERM")
        async with client.stream("r", kind="Episodes") as call:
            returns = {episode.episode_index: episode.total_reward async for episode in call}
        of_steps: dict[int, float] = defaultdict(float)
        async with client.stream("r") as call:
            async for step in call:
                of_steps[step.episode_index] += step.reward
        stored: dict[int, float] = {}
        store = platform.datastore_client()
        for trial in await store.trials():
            async with store.samples(trial) as samples:
                rewards = [actor.reward async for sample in samples for actor in sample.actors.values()]
            stored[int(trial.trial_id[-6:])] = math.fsum(reward for reward in rewards if reward is not None)
    seen = {episode["episode_index"]: episode["total_reward"] for episode in episodes}
    assert len(seen) == len(episodes)
    assert returns == of_steps == stored == seen
    assert sorted(returns) == list(range(COUNT))
    assert all(total >= 8 for total in returns.values()), "no pole falls sooner"
