"""Gymnasium's spec of an environment, read from a trial's parameters."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np

from trio_cogment.environments.env_specs import recovered_spec


def test_the_parameters_of_a_trial_name_no_code() -> None:
    spec = gymnasium.spec("CartPole-v1")
    told = json.loads(spec.to_json())
    assert recovered_spec(json.dumps(told), "", {}) == spec
    assert recovered_spec("", "CartPole-v1", {"render_mode": "human", "max_episode_steps": 9}).max_episode_steps == 9
    wrong: list[Any] = [
        {**told, "entry_point": "os:system"},
        {**told, "id": "Unknown-v1"},
        {**told, "additional_wrappers": [{"name": "x", "entry_point": "os:system", "kwargs": {}}]},
        {"id": "CartPole-v1"},
        [],
    ]
    for each in wrong:
        assert recovered_spec(json.dumps(each), "CartPole-v1", {}) is None
    assert recovered_spec("{", "CartPole-v1", {}) is None
    assert recovered_spec("null", "CartPole-v1", {}) is None
    assert recovered_spec("", "Unknown-v1", {}) is None
    assert recovered_spec("", "CartPole-v1", {"far": np.ones(2)}) is None
    assert recovered_spec(json.dumps({**told, "vector_entry_point": "os:system"}), "", {}) == spec
