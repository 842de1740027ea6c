"""An agent's part in a trial, message by message."""

from __future__ import annotations

import numpy as np
import pytest

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.rl import SeatError
from trio_cogment.seats.local import Player
from trio_cogment.spaces import Discrete, Observation, encode_observation


def test_only_who_is_asked_acts() -> None:
    player = Player("duel", "player_1")
    first = Observation(np.int64(1), active=False, observation_space=Discrete(5), action_space=Discrete(2))
    assert player.observe(encode_observation(first)) is None
    assert player.observe(encode_observation(Observation(np.int64(1), alive=False))) is None
    asked = player.observe(encode_observation(Observation(np.int64(2), reward=0.1)))
    assert asked is not None
    assert (asked.value, asked.reward, asked.action_space) == (2, 0.1, Discrete(2))
    assert asked.observation_space == Discrete(5)
    assert player.act(1).HasField("value")


def test_bad_messages() -> None:
    player = Player("duel", "player_1")
    expected = "environment 'duel', actor 'player_1': action_space: expected it with the first observation"
    with pytest.raises(SeatError, match=expected):
        player.observe(encode_observation(Observation(np.int64(1))))
    with pytest.raises(SeatError, match="environment 'duel', actor 'player_1': observation: expected it in the field"):
        player.observe(pb.Observation())
