"""Episodes that are stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_cogment.rl as tc
from tests.rl.views.environments import Counter
from trio_cogment import open_platform
from trio_cogment.rl.spec import RL_SPEC


async def stored(path: Path) -> Mapping[str, list[float | None]]:
    """Return the rewards in the observations of each stored trial."""
    found: dict[str, list[float | None]] = {}
    async with open_platform(RL_SPEC, store=f"sqlite:{path}") as platform:
        client = platform.datastore_client()
        async for trial in client.all_trials():
            rewards = found[trial.trial_id] = []
            async for sample in client.samples([trial.trial_id]):
                for actor in sample.actors.values():
                    message = actor.observation
                    if message is not None:
                        rewards.append(message.reward if message.HasField("reward") else None)
    return found


@pytest.mark.parametrize("thread", [False, True])
async def test_every_episode_and_nothing_else_is_stored(tmp_path: Path, thread: bool) -> None:
    path = tmp_path / "trials.db"
    ids: list[str] = []

    def play() -> None:
        env = tc.make(Counter, store=f"sqlite:{path}", thread=thread)
        for length in (5, 5, 4):
            env.reset()
            ids.append(env.trial_id)
            for _ in range(length):
                env.step(1)
        env.close()

    await trio.to_thread.run_sync(play)
    found = await stored(path)
    whole: list[Any] = [None, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5]
    assert sorted(found) == sorted(ids)
    assert [found[trial_id] for trial_id in ids[:2]] == [whole, whole]
    assert found[ids[2]][:5] == whole[:5]


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("steps", [0, 2])
async def test_closing_right_after_a_reset_does_not_wait_for_the_trial_started_ahead(steps: int, thread: bool) -> None:
    def play() -> None:
        env = tc.make(Counter, store="memory:", thread=thread)
        for _ in range(2):  # the second ends the first in its middle
            env.reset()
            for _ in range(steps):
                env.step(1)
        env.reset()
        env.close()

    with trio.move_on_after(10) as patience:
        await trio.to_thread.run_sync(play, abandon_on_cancel=True)
    assert not patience.cancelled_caught
