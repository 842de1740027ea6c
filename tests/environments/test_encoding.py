"""Observations and actions as bytes: the short way and the general one are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces import strategies as some
from trio_cogment.environments.encoding import ActionDecoder, ObservationEncoder
from trio_cogment.spaces import Box, Dict, Discrete, Observation, Space, SpaceError
from trio_cogment.spaces.envelopes import encode_action, encode_observation


@given(some.minari_spaces, some.generators, st.tuples(*[st.booleans()] * 4), st.none() | st.floats(allow_nan=False))
def test_observations(
    space: Space, generator: np.random.Generator, flags: tuple[bool, ...], reward: float | None
) -> None:
    active, alive, terminated, truncated = flags
    for info in ({}, {"more": 1}):
        observation = Observation(
            space.sample(generator),
            reward,
            active=active,
            alive=alive,
            terminated=terminated,
            truncated=truncated,
            info=info,
        )
        payload = ObservationEncoder(space).encode(observation)
        expected = encode_observation(observation).SerializeToString()
        assert (bytes(payload), len(payload)) == (expected, len(expected))


@given(some.minari_spaces, some.generators)
def test_actions(space: Space, generator: np.random.Generator) -> None:
    action = space.check(space.sample(generator))
    content = encode_action(action).SerializeToString()
    assert some.same(space.check(ActionDecoder(space).decode(content)), action)


def test_a_refused_action_says_which_part() -> None:
    space = Dict({"hand": Box(0, 1, (2,)), "foot": Discrete(2)})
    wrong = {"hand": np.array([0, 2], np.float32), "foot": np.int64(1)}
    with pytest.raises(SpaceError, match=r'action\["hand"\]'):
        ActionDecoder(space).decode(encode_action(wrong).SerializeToString())
