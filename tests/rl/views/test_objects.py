"""Objects between a view and its environment: encoded where somebody needs bytes, which no later change is seen in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import trio

import trio_cogment.rl as tc
from trio_cogment import open_platform
from trio_cogment.base.shared_message import ObjectPayload
from trio_cogment.environments.encoding import ActionPayload, ObservationPayload
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.spaces import decode_action, decode_observation

STEPS = 6


class Hostile(gymnasium.Env[Any, Any]):
    """An environment that changes what it gets, and goes on using what it has returned."""

    observation_space = gymnasium.spaces.Box(-1000, 1000, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1000, 1000, (2,), np.float32)

    def __init__(self) -> None:
        self.steps = 0
        self.array = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.array[:] = 0
        return self.array, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        assert action.tolist() == [self.steps, -self.steps]
        action *= 100
        self.array[:] = self.steps
        return self.array, float(self.steps), self.steps == STEPS, False, {}


def play(view: Any) -> None:
    """Play an episode, and change all that was given and returned."""
    values, _ = view.reset()
    ended = False
    step = 0
    while not ended:
        step += 1
        values -= 7
        action = np.array([step, -step], np.float32)
        values, _, ended, _, _ = view.step(action)
        assert values.tolist() == [step] * 3
        action[:] = 55


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each payload was encoded, by its identity; all of them are kept."""
    found: Counter[int] = Counter()
    kept: list[ObjectPayload] = []
    for kind in (ActionPayload, ObservationPayload):

        def encode(payload: Any, was: Any = kind.encode) -> bytes:
            kept.append(payload)
            found[id(payload)] += 1
            content: bytes = was(payload)
            return content

        monkeypatch.setattr(kind, "encode", encode)
    return found


@pytest.mark.sources
def test_where_nobody_needs_bytes_the_steps_are_not_encoded(encoded: Counter[int]) -> None:
    view = tc.make(Hostile())
    play(view)
    view.close()
    assert len(encoded) == 1, "but for the first observation, with which come the spaces"


async def stored(path: Path) -> tuple[list[list[float]], list[list[float]]]:
    """Return the stored actions and observations."""
    actions: list[list[float]] = []
    observations: list[list[float]] = []
    async with open_platform(RL_SPEC, store=f"sqlite:{path}") as platform:
        client = platform.datastore_client()
        async for trial in client.all_trials():
            async for sample in client.samples([trial.trial_id]):
                for actor in sample.actors.values():
                    if actor.action is not None and actor.action.HasField("value"):
                        actions.append(decode_action(actor.action).tolist())
                    observations.append(decode_observation(actor.observation).value.tolist())
    return actions, observations


@pytest.mark.sources
async def test_what_is_stored_is_what_was_said_whoever_changes_it_later(encoded: Counter[int], tmp_path: Path) -> None:
    path = tmp_path / "trials.db"

    def record() -> None:
        view = tc.make(Hostile(), store=f"sqlite:{path}")
        play(view)
        view.close()

    await trio.to_thread.run_sync(record)
    assert set(encoded.values()) == {1}
    assert len(encoded) == 2 * STEPS + 1, "one for each action and each observation"
    actions, observations = await stored(path)
    assert actions == [[number, -number] for number in range(1, STEPS + 1)]
    assert observations == [[number] * 3 for number in range(STEPS + 1)]
