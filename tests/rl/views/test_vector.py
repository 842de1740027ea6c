"""Several trials at once, step by step beside `gymnasium.vector.SyncVectorEnv`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import trio_cogment.rl as tc
from tests.rl.views.environments import Counter
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.environments.errors import InvalidActionError

NUM_ENVS = 3


def same(ours: Any, theirs: Any) -> bool:
    return data_equivalence(ours, theirs, exact=True)


def compare(name: str, mode: AutoresetMode, steps: int) -> int:
    """Step both with the same actions; return how many episodes ended."""
    ours = tc.make_vec(name, NUM_ENVS, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: gymnasium.make(name)] * NUM_ENVS, autoreset_mode=mode)
    try:
        assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
        assert ours.single_observation_space == theirs.single_observation_space
        assert ours.single_action_space == theirs.single_action_space
        assert ours.metadata == theirs.metadata
        assert same(ours.reset(seed=5), theirs.reset(seed=5))
        theirs.action_space.seed(2)
        ends = 0
        for _ in range(steps):
            actions = theirs.action_space.sample()
            found, expected = ours.step(actions), theirs.step(actions)
            assert same(found, expected)
            ended = np.logical_or(found[2], found[3])
            ends += int(ended.sum())
            if mode is AutoresetMode.DISABLED and ended.any():
                options = {"reset_mask": ended}
                assert same(ours.reset(options=dict(options)), theirs.reset(options=options))
        return ends
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_equals_the_bare_environments(name: str, mode: AutoresetMode) -> None:
    assert compare(name, mode, 120) > 5


@pytest.mark.soak
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_equals_the_bare_environments_for_long(name: str, mode: AutoresetMode) -> None:
    assert compare(name, mode, 2000) > 5


@pytest.fixture
def vector() -> Iterator[tc.TrialVectorEnv]:
    found = tc.make_vec(Counter, 2)
    yield found
    found.close()


def test_is_what_gymnasium_makes() -> None:
    made = gymnasium.make_vec(tc.register("CartPole-v1"), num_envs=2)
    try:
        assert isinstance(made.unwrapped, tc.TrialVectorEnv)
        assert made.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        made.reset(seed=1)
    finally:
        made.close()


def test_a_masked_reset_is_of_those_in_the_mask_only() -> None:
    """One whose episode is over, and which is not reset, begins its next one by itself; the one that is does not."""
    env = tc.make_vec(Counter, 3)
    try:
        env.reset()
        zeros = np.zeros(3, np.int64)
        for _ in range(5):
            _, _, ended, _, _ = env.step(zeros)
        assert ended.all()
        env.reset(options={"reset_mask": np.array([True, False, False])})
        found, rewards, *_ = env.step(zeros)
        assert found[:, 0].tolist() == [1, 0, 0]
        assert rewards.tolist() == [0.1, 0.0, 0.0]
        found, *_ = env.step(zeros)
        assert found[:, 0].tolist() == [2, 1, 1]
    finally:
        env.close()


def test_its_spec_makes_it_again(vector: tc.TrialVectorEnv) -> None:
    assert vector.spec is not None
    again = gymnasium.make_vec(vector.spec)
    assert again.num_envs == 2
    again.close()


def test_each_environment_has_its_trials(vector: tc.TrialVectorEnv) -> None:
    assert vector.trial_ids == ["", ""]
    vector.reset()
    first = vector.trial_ids
    for _ in range(6):
        vector.step(np.array([0, 1]))
    assert len({*first, *vector.trial_ids}) == 4


def test_seeds_by_environment(vector: tc.TrialVectorEnv) -> None:
    one, _ = vector.reset(seed=[4, 4])
    assert np.array_equal(one[0], one[1])
    two, _ = vector.reset(seed=4)
    assert np.array_equal(one[0], two[0])
    assert not np.array_equal(two[0], two[1])


def test_seats_draw_by_the_seed_of_their_environment_only() -> None:
    """In each of several environments as in one that is alone; and without a seed, in each otherwise."""

    def played(env: Any, first: Any) -> list[list[int]]:
        rows = [first[0]] + [env.step(np.zeros_like(first[0]))[0] for _ in range(8)]
        return [[int(row[number]) for row in rows] for number in range(len(first[0]))]

    def make(number: int) -> Any:
        return tc.make_vec("rps_v2", number, seats={"player_1": tc.random(seed=3)})

    alone = []
    for seed in (5, 6, 7):
        with contextlib.closing(make(1)) as env:
            alone += played(env, env.reset(seed=seed))
    with contextlib.closing(make(3)) as envs:
        assert played(envs, envs.reset(seed=[5, 6, 7])) == alone
        assert played(envs, envs.reset(seed=[7, None, 6]))[::2] == [alone[2], alone[1]]
    with contextlib.closing(make(3)) as envs:
        first, second, third = played(envs, envs.reset())
        assert first != second != third != first


def test_observations_belong_to_the_caller(vector: tc.TrialVectorEnv) -> None:
    first, _ = vector.reset()
    vector.step(np.array([0, 0]))
    assert first[0][0] == 0


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda env: env.step(np.array([0, 7])), InvalidActionError, "'Counter', actor 'player_0': action: expected"),
        (lambda env: env.reset(seed=[1]), InvalidArgumentError, "seed: expected 2"),
        (lambda env: env.reset(options={"reset_mask": [True, False]}), InvalidArgumentError, "reset_mask"),
        (lambda env: env.reset(options={"reset_mask": np.zeros(2, bool)}), InvalidArgumentError, "reset_mask"),
        (lambda env: env.set_attr("x", [1]), InvalidArgumentError, "values: expected 2"),
    ],
)
def test_wrong_use_changes_nothing(vector: tc.TrialVectorEnv, use: Any, error: type[Exception], text: str) -> None:
    vector.reset()
    with pytest.raises(error) as raised:
        use(vector)
    assert text in str(raised.value)
    found, *_ = vector.step(np.array([0, 0]))
    assert found[:, 0].tolist() == [1, 1]


def test_a_step_without_a_reset(vector: tc.TrialVectorEnv) -> None:
    with pytest.raises(FailedPreconditionError, match="reset first"):
        vector.step(np.array([0, 0]))
    with pytest.raises(InvalidArgumentError, match="num_envs"):
        tc.make_vec("CartPole-v1", 0)


def test_one_that_fails_leaves_the_others() -> None:
    made: list[Counter] = []

    def make() -> Counter:
        made.append(Counter())
        return made[-1]

    def fail(step: int) -> None:
        raise ValueError("broken")

    env = tc.make_vec(make, 3)
    try:
        env.reset()
        made[1].on_step = fail
        with pytest.raises(CogmentError, match="ValueError: broken"):
            env.step(np.zeros(3, np.int64))
        made[1].on_step = lambda _: None
        env.reset()
        found, *_ = env.step(np.zeros(3, np.int64))
        assert found[:, 0].tolist() == [1, 1, 1]
    finally:
        env.close()
    assert [each.closed for each in made] == [1, 1, 1]


def test_attributes_of_the_environments(vector: tc.TrialVectorEnv) -> None:
    vector.set_attr("colour", ["red", "blue"])
    assert vector.get_attr("colour") == ("red", "blue")
    vector.reset(seed=3)
    assert vector.np_random_seed == (3, 4)
    assert len(vector.np_random) == 2


class Keyed(Counter):
    """Its observations have keys that are not sorted."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.observation_space = gymnasium.spaces.Dict(
            [("z", gymnasium.spaces.Box(0, 9)), ("a", self.observation_space)]
        )

    def reset(self, **arguments: Any) -> Any:
        found, info = super().reset(**arguments)
        return {"z": np.ones(1, np.float32), "a": found}, info

    def step(self, action: Any) -> Any:
        found, *others = super().step(action)
        return {"z": np.ones(1, np.float32), "a": found}, *others


def test_batched_spaces_have_the_order_of_the_single_ones() -> None:
    """Gymnasium sorts the keys of a batch, and flattens its columns in another order than those of each row."""
    env = tc.make_vec(Keyed, 2)
    try:
        found, _ = env.reset()
        batch, single = env.observation_space, env.single_observation_space
        assert isinstance(batch, gymnasium.spaces.Dict)
        assert isinstance(single, gymnasium.spaces.Dict)
        assert [*batch.spaces, *single.spaces] == ["z", "a", "z", "a"]
        flat: Any = gymnasium.spaces.flatten(batch, found)
        row: Any = gymnasium.spaces.flatten(single, {key: found[key][0] for key in found})
        assert flat[:2].tolist() == [1.0, 1.0]
        assert row[0] == 1.0
        bare = SyncVectorEnv([Keyed] * 2)
        assert batch == bare.observation_space
        bare.close()
    finally:
        env.close()


def test_a_partial_reset_leaves_the_statistics_of_the_others() -> None:
    """Gymnasium's own takes the mask out of the caller's options, and the wrapper takes it for a reset of all."""
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(tc.make_vec(Counter, 2, autoreset_mode="Disabled"))
    try:
        env.reset()
        for _ in range(2):
            env.step(np.zeros(2, np.int64))
        env.reset(options={"reset_mask": np.array([True, False])})
        assert env.episode_lengths.tolist() == [0, 2]
    finally:
        env.close()


def test_all_are_closed_where_one_cannot_be_made() -> None:
    made: list[Counter] = []

    def make() -> Counter:
        if len(made) == 2:
            raise ValueError("the third is one too many")
        made.append(Counter())
        return made[-1]

    with pytest.raises(ValueError, match="the third"):
        tc.make_vec(make, 3)
    assert [env.closed for env in made] == [1, 1]
