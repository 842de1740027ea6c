"""Samples of a trial as steps and episodes: what each field has, and what the last tick says."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSample, StoredTrialSample
from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.sdk import StoredSample, actor_params, trial_params
from trio_cogment.sdk._stored import StoredTrial
from trio_cogment.sdk.spec import Spec
from trio_cogment.spaces import Observation, encode_action, encode_observation
from trio_cogment.trainer.trials.following import EpisodeMaker
from trio_cogment.trainer.trials.naming import Place

SECOND = 10**9
NAMES = ("ann", "ben")
PLACE = Place(3, "w7")


def params(seed: int = 0, environment: str = "game") -> TrialParams:
    actors = [actor_params(name, PLAYER, implementation=f"{name}_code", spec=RL_SPEC) for name in NAMES]
    config = rl_pb2.EnvironmentConfig()
    if seed:
        config.seed = seed
    return trial_params(actors, environment=environment, environment_config=config, spec=RL_SPEC)


def sample(
    tick: int,
    of: TrialParams | None = None,
    *,
    spec: Spec = RL_SPEC,
    flags: dict[str, dict[str, bool]] | None = None,
    rewards: tuple[float | None, float | None] = (0.5, None),
    actions: bool = True,
    observations: bytes | None = None,
) -> StoredSample:
    """Return the sample of a tick at so many seconds, in which both actors see its number."""
    message = StoredTrialSample(trial_id="t", tick_id=tick, timestamp=tick * SECOND)
    for number, name in enumerate(NAMES):
        given: dict[str, Any] = (flags or {}).get(name, {})
        seen = observations
        if seen is None:
            seen = encode_observation(Observation(tick, **given)).SerializeToString()
        message.payloads.append(seen)
        actor = StoredTrialActorSample(actor=number, observation=len(message.payloads) - 1)
        if actions:
            message.payloads.append(encode_action(number).SerializeToString())
            actor.action = len(message.payloads) - 1
        if rewards[number] is not None:
            actor.reward = rewards[number] or 0.0
        message.actor_samples.append(actor)
    trial = StoredTrial("t", "u", 0, tick + 1, of or params())
    return StoredSample(message, trial, spec)


def flags_of(messages: list[Any]) -> list[tuple[str, bool, bool]]:
    return [(one.agent_id, one.terminated, one.truncated) for one in messages]


ENDED = TrialOutcome("t", EndCause.ENVIRONMENT, reason="goal")


def test_a_tick_is_a_step_of_each_actor_once_the_next_one_is_there() -> None:
    maker = EpisodeMaker("r", "t", PLACE)
    assert maker.feed(sample(4, params(seed=11))) == []
    first, second = maker.feed(sample(5))
    assert (first.run_id, first.episode_index, first.step_index, first.worker_id) == ("r", 3, 4, "w7")
    assert (first.agent_id, first.policy_label, first.reward) == ("ann", "ann_code", 0.5)
    assert (second.agent_id, second.policy_label, second.reward) == ("ben", "ben_code", 0.0)
    assert (first.backend, first.frame_ref, first.payload_version) == ("game", "trial://t/4", 1)
    assert first.episode_seed == second.episode_seed == 11
    assert first.timestamp.ToNanoseconds() == 4 * SECOND
    assert (first.terminated, first.truncated) == (False, False)
    seen, done = json.loads(first.observation_json), json.loads(second.action_json)
    assert seen["active"] is True
    assert "nested" in seen
    assert "nested" in done
    assert "\n" not in first.observation_json
    steps, _ = maker.end(ENDED)
    assert [step.step_index for step in steps] == [5, 5]


def test_an_episode_of_each_actor() -> None:
    maker = EpisodeMaker("r", "t", PLACE)
    for tick in (2, 3, 6):
        maker.feed(sample(tick, params(seed=11), rewards=(0.5, -1.0)))
    _, episodes = maker.end(ENDED)
    assert [(one.agent_id, one.total_reward) for one in episodes] == [("ann", 1.5), ("ben", -3.0)]
    for episode in episodes:
        assert (episode.run_id, episode.episode_index, episode.worker_id, episode.steps) == ("r", 3, "w7", 2)
        assert (episode.terminated, episode.truncated) == (True, False)
        assert episode.timestamp.ToNanoseconds() == 6 * SECOND
        assert json.loads(episode.metadata_json) == {
            "trial_id": "t",
            "environment": "game",
            "actors": {"ann": "ann_code", "ben": "ben_code"},
            "duration_ns": 4 * SECOND,
            "seed": 11,
            "cause": EndCause.ENVIRONMENT.label,
            "reason": "goal",
        }


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (ENDED, (True, False)),
        (TrialOutcome("t", EndCause.HARD_TERMINATION), (False, True)),
        (TrialOutcome("t", EndCause.UNKNOWN), (False, False)),
        (None, (False, False)),
    ],
)
def test_an_end_of_which_no_observation_tells(outcome: TrialOutcome | None, expected: tuple[bool, bool]) -> None:
    """The last step says it as the episode does, and no earlier one."""
    maker = EpisodeMaker("r", "t", PLACE)
    maker.feed(sample(0))
    assert flags_of(maker.feed(sample(1))) == [("ann", False, False), ("ben", False, False)]
    steps, episodes = maker.end(outcome)
    assert flags_of(steps) == flags_of(episodes) == [("ann", *expected), ("ben", *expected)]
    label = EndCause.UNKNOWN.label if outcome is None else outcome.cause.label
    assert json.loads(episodes[0].metadata_json)["cause"] == label


def test_what_observations_say_of_an_end_stays_said() -> None:
    """One that has ended sees on while others play: its episode has ended as its own observation said."""
    maker = EpisodeMaker("r", "t", PLACE)
    maker.feed(sample(0))
    maker.feed(sample(1, flags={"ann": {"terminated": True}}))
    assert flags_of(maker.feed(sample(2, flags={"ben": {"truncated": True}})))[0] == ("ann", True, False)
    steps, episodes = maker.end(ENDED)
    assert flags_of(episodes) == flags_of(steps) == [("ann", True, False), ("ben", False, True)]


def test_a_trial_without_steps_has_its_episodes() -> None:
    maker = EpisodeMaker("r", "t", PLACE, steps=False)
    assert maker.feed(sample(0)) == maker.feed(sample(1)) == []
    steps, episodes = maker.end(None)
    assert steps == []
    assert len(episodes) == 2


def test_a_trial_of_which_nothing_is_stored() -> None:
    assert EpisodeMaker("r", "t", PLACE).end(None) == ([], [])


def test_payloads_of_unknown_types_are_base64() -> None:
    maker = EpisodeMaker("r", "t", PLACE)
    maker.feed(sample(0, spec=Spec(), observations=b"\x00\xff"))
    steps, episodes = maker.end(None)
    assert base64.b64decode(json.loads(steps[0].observation_json)) == b"\x00\xff"
    assert steps[0].episode_seed == 0
    assert json.loads(episodes[0].metadata_json)["seed"] is None


def test_a_payload_that_is_not_of_its_type_is_shown_as_bytes() -> None:
    maker = EpisodeMaker("r", "t", PLACE)
    maker.feed(sample(0, observations=b"\xff\xff"))
    steps, _ = maker.end(None)
    assert base64.b64decode(json.loads(steps[0].observation_json)) == b"\xff\xff"


def test_who_does_nothing_has_no_action() -> None:
    maker = EpisodeMaker("r", "t", PLACE)
    maker.feed(sample(0, actions=False))
    steps, _ = maker.end(None)
    assert [step.action_json for step in steps] == ["", ""]


@pytest.mark.parametrize("content", [b"\xff\xff", b""])
def test_a_seed_that_nobody_knows(content: bytes) -> None:
    of = params()
    of.environment.config.content = content
    maker = EpisodeMaker("r", "t", PLACE)
    maker.feed(sample(0, of))
    steps, episodes = maker.end(None)
    assert steps[0].episode_seed == 0
    assert json.loads(episodes[0].metadata_json)["seed"] is None


def test_an_environment_is_known_by_its_implementation_its_name_or_where_it_is() -> None:
    for fields, expected in (
        ({"implementation": "code", "name": "env", "endpoint": "grpc://h:1"}, "code"),
        ({"name": "env", "endpoint": "grpc://h:1"}, "env"),
        ({"endpoint": "grpc://h:1"}, "grpc://h:1"),
    ):
        of = TrialParams(actors=params().actors)
        for name, value in fields.items():
            setattr(of.environment, name, value)
        maker = EpisodeMaker("r", "t", PLACE)
        maker.feed(sample(0, of))
        steps, _ = maker.end(None)
        assert steps[0].backend == expected
