"""Views of samples: numbers as people read them."""

from __future__ import annotations

import json
import math

import pytest

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.dashboard._views import Samples, sample_row
from trio_cogment.sdk import StoredSample, StoredTrial
from trio_cogment.sdk.spec import Spec
from trio_cogment.web.json_text import json_text


def sample_of(*rewards: tuple[float, float]) -> StoredSample:
    """Return a sample in which one actor got these rewards, each with its confidence."""
    params = TrialParams()
    params.actors.add(name="ann", actor_class="player")
    message = StoredTrialSample(trial_id="t", tick_id=3)
    actor = message.actor_samples.add(actor=0)
    for value, confidence in rewards:
        actor.received_rewards.add(sender=-1, receiver=0, reward=value, confidence=confidence)
    weights = sum(confidence for _, confidence in rewards)
    actor.reward = sum(value * confidence for value, confidence in rewards) / weights
    return StoredSample(message, StoredTrial("t", "", 0, 1, params), Spec.of())


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([(0.3, 1.0)], 0.3),
        ([(0.3, 1.0), (-0.1, 1.0)], 0.1),  # 0.10000001 in 32 bits
        ([(0.3, 1.0), (-0.1, 3.0)], 0.0),
        ([(1.0, 0.5), (2.0, 0.5)], 1.5),
    ],
)
def test_a_mean_of_rewards_is_shown_as_people_compute_it(rewards: list[tuple[float, float]], expected: float) -> None:
    sample = sample_of(*rewards)
    assert sample_row(sample)["actors"]["ann"]["reward"] == expected
    found = Samples()
    found.add(sample)
    assert found.curves.news()["reward|ann"]["values"] == [expected]


@pytest.mark.parametrize(("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_a_reward_that_is_no_number_is_shown_as_text(value: float, text: str) -> None:
    sample = sample_of((value, 1.0))
    assert json.loads(json_text(sample_row(sample)))["actors"]["ann"]["reward"] == text
    found = Samples()
    found.add(sample)
    assert found.curves.news()["reward|ann"]["values"] == []
