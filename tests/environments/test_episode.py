"""Episodes: bytes in, bytes out; spaces, frames, and actions that are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.environments._samples import Inventory, Scripted
from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.shared_message import Content
from trio_cogment.environments.base import Environment
from trio_cogment.environments.encoding import ActionDecoder, ActionPayload, ObservationEncoder
from trio_cogment.environments.episode import Episode
from trio_cogment.environments.errors import InvalidActionError, InvalidEnvironmentError
from trio_cogment.environments.gymnasium import GymnasiumEnvironment
from trio_cogment.environments.making import make_environment
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Frame,
    MultiBinary,
    MultiDiscrete,
    Observation,
    Space,
    Text,
    decode_observation,
    encode_action,
    encode_observation,
)


def action(value: Any) -> bytes:
    return encode_action(value).SerializeToString()


def decoded(content: Content) -> Observation:
    return decode_observation(pb.Observation.FromString(bytes(content)))


class Duel:
    """Two agents; the second one may act at odd steps only, and is out after the third."""

    name = "duel"
    agents: Sequence[str] = ("left", "right")
    observation_spaces: Mapping[str, Space] = {"left": Discrete(9), "right": Discrete(9)}
    action_spaces: Mapping[str, Space] = {"left": Discrete(2), "right": Box(-1, 1, (2,))}
    metadata: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.steps = 0
        self.over = True
        self.got: list[dict[str, Any]] = []
        self.frames = 0

    def _all(self) -> dict[str, Observation]:
        value, out = np.int64(self.steps), self.steps >= 3
        return {
            "right": Observation(value, 2.0, active=not out and bool(self.steps % 2), alive=not out),
            "left": Observation(value, None if not self.steps else 0.1),
        }

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        self.steps, self.over = 0, False
        return self._all()

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        self.got.append(dict(actions))
        self.steps += 1
        self.over = self.steps == 5
        return self._all()

    def frame(self) -> Frame | None:
        self.frames += 1
        return Frame(b"%d" % self.steps)

    def close(self) -> None:
        pass


def test_an_episode_of_one_agent() -> None:
    episode = Episode(make_environment("CartPole-v1"), ["player_0"])
    turn = episode.begin(5)
    bare = make_environment("CartPole-v1")
    first = decoded(turn.observations[0])
    assert np.array_equal(first.value, bare.reset(5, None)["player_0"].value)
    assert first.observation_space == bare.observation_spaces["player_0"]
    assert first.action_space == bare.action_spaces["player_0"]
    assert turn.rewards == [None]
    assert first.active
    assert first.alive
    while not bare.over:
        assert not turn.over
        turn = episode.advance([action(np.int64(1))])
        expected = bare.step({"player_0": 1})["player_0"]
        found = decoded(turn.observations[0])
        assert np.array_equal(found.value, expected.value)
        assert (found.terminated, found.active, turn.rewards) == (expected.terminated, expected.active, [1.0])
        assert found.observation_space is None is found.action_space
    assert turn.over


def test_the_actors_order_and_whose_actions_count() -> None:
    duel = Duel()
    episode = Episode(duel, ["right", "left"])
    turn = episode.begin()
    assert [decoded(content).reward for content in turn.observations] == [2.0, None] == turn.rewards
    assert episode.active == [False, True]
    with pytest.raises(InvalidActionError, match=r"environment 'duel', actor 'left': action: expected 0 to 1, got 7"):
        episode.advance([b"", action(7)])
    assert duel.got == [], "no step was made"
    episode.advance([b"rubbish", action(1)])
    assert duel.got == [{"left": 1}]
    episode.advance([action(np.ones(2, np.float32)), action(0)])
    assert duel.got[1].keys() == {"right", "left"}
    assert duel.got[1]["right"].tolist() == [1, 1]
    episode.advance([None, action(0)])
    turn = episode.advance([None, action(0)])
    assert not decoded(turn.observations[0]).alive
    turn = episode.advance([None, action(0)])
    assert turn.over
    assert len(duel.got) == 5


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "expected one, because it is the actor's turn; got none"),
        (b"", "expected a value of Discrete(2), got none"),
        (b"\xff", "expected an Action, got bytes that are none"),
        (action(np.zeros(2)), "expected an integer, got an array of float64 (2,)"),
        (action("up"), "expected an integer, got str 'up'"),
        (action(2), "expected 0 to 1, got 2"),
    ],
)
def test_wrong_actions(given: bytes | None, text: str) -> None:
    episode = Episode(Duel(), ["left", "right"])
    episode.begin()
    with pytest.raises(InvalidActionError) as caught:
        episode.advance([given, None])
    assert str(caught.value) == f"environment 'duel', actor 'left': action: {text}"
    assert not episode.over


def test_wrong_shapes_and_bounds_of_arrays() -> None:
    episode = Episode(Duel(), ["left", "right"])
    episode.begin()
    episode.advance([action(0), None])
    for value, text in [
        (np.zeros(3, np.float32), r"action: expected the shape \(2,\), got \(3,\)"),
        (np.array([0, 2], np.float32), r"action\[1\]: expected -1.0 to 1.0, got 2.0"),
        (np.zeros(2, "U1"), "action: expected float32, got <U1"),
    ]:
        with pytest.raises(InvalidActionError, match=f"actor 'right': {text}"):
            episode.advance([action(0), action(value)])
    with pytest.raises(InvalidArgumentError, match=r"environment 'duel': actions: expected 2, got 1"):
        episode.advance([action(0)])


def test_steps_before_reset_and_after_the_end() -> None:
    episode = Episode(Duel(), ["left", "right"])
    with pytest.raises(FailedPreconditionError, match=r"environment 'duel': step: expected a reset first"):
        episode.advance([action(0), None])
    turn = episode.begin()
    while not turn.over:
        turn = episode.advance([action(0), action(np.zeros(2, np.float32))])
    with pytest.raises(FailedPreconditionError, match=r"expected a reset first"):
        episode.advance([action(0), None])
    assert not episode.begin().over


def test_after_a_failure_comes_a_reset() -> None:
    def fail() -> Any:
        raise ZeroDivisionError

    episode = Episode(GymnasiumEnvironment(Scripted(fail)), ["player_0"])
    episode.begin()
    with pytest.raises(ZeroDivisionError):
        episode.advance([action(0)])
    with pytest.raises(FailedPreconditionError):
        episode.advance([action(0)])


@pytest.mark.parametrize("actors", [["left"], ["left", "right", "other"], ["left", "left"], []])
def test_actors_that_are_not_the_agents(actors: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"environment 'duel': actors: expected 'left', 'right', which are"):
        Episode(Duel(), actors)


def test_frames_are_rendered_for_whom_they_are_wanted() -> None:
    duel = Duel()
    episode = Episode(duel, ["left", "right"], frames_for={"right"})
    turn = episode.begin()
    assert [decoded(content).frame for content in turn.observations] == [None, Frame(b"0")]
    assert decoded(turn.observations[1]).observation_space == Discrete(9)
    Episode(duel, ["left", "right"]).begin()
    assert duel.frames == 1, "nobody looked at the second"
    turn = Episode(duel, ["left", "right"], frames_for={"*"}).begin()
    assert [decoded(content).frame for content in turn.observations] == [Frame(b"0")] * 2
    with pytest.raises(InvalidArgumentError, match=r"frames_for: expected actors, or '\*' for all of them; got 'me'"):
        Episode(duel, ["left", "right"], frames_for={"me"})


def test_nested_actions_can_be_changed() -> None:
    env = Inventory()
    episode = Episode(GymnasiumEnvironment(env), ["player_0"])
    episode.begin()
    episode.advance([action({"move": 1, "push": np.ones(2)})])
    assert env.actions[0]["move"] == 1
    assert env.actions[0]["push"].tolist() == [0, 0]
    with pytest.raises(InvalidActionError, match=r"action\[\"move\"\]: expected 0 to 1, got 2"):
        episode.advance([action({"move": 2, "push": np.ones(2)})])


def test_information_that_cannot_be_encoded_names_its_key() -> None:
    value = np.zeros(2, np.float32)
    env = Scripted(lambda: (value, 0.0, False, False, {"seen": {1, 2}}))
    episode = Episode(GymnasiumEnvironment(env), ["player_0"])
    episode.begin()
    with pytest.raises(InvalidEnvironmentError, match=r"'Scripted', actor 'player_0': info\[\"seen\"\]: expected"):
        episode.advance([action(0)])


SPACES: list[tuple[Space, Any]] = [
    (Box(-1, 1, (4,)), np.linspace(-1, 1, 4, dtype=np.float32)),
    (Box(0, 255, (5, 4, 3), "uint8"), np.arange(60, dtype=np.uint8).reshape(5, 4, 3)),
    (Box(0, 255, (5, 4), "uint8"), np.asfortranarray(np.arange(20, dtype=np.uint8).reshape(5, 4))),
    (Box(-1, 1, (), "float64"), np.array(0.5)),
    (Box(-1, 1, (0,)), np.zeros(0, np.float32)),
    (Box(-1, 1, (2,)), np.zeros(2, np.dtype(">f4"))),
    (Discrete(5, 1), np.int64(3)),
    (Discrete(5, 1), 3),
    (Discrete(5, dtype="uint8"), np.uint8(0)),
    (MultiDiscrete([2, 3]), np.array([1, 2])),
    (MultiBinary(3), np.array([1, 0, 1], np.int8)),
    (Text(4), "abc"),
    (Dict({"a": Discrete(2)}), {"a": np.int64(1)}),
]


@pytest.mark.parametrize(("space", "value"), SPACES, ids=lambda case: repr(case)[:30])
@pytest.mark.parametrize(
    "rest",
    [
        {},
        {"reward": 0.1, "terminated": True, "active": False, "alive": False},
        {"reward": -3.0, "truncated": True, "info": {"lives": 3}, "action_mask": np.array([1, 0], np.int8)},
        {"info": {"a": [1, None]}, "active": False},
    ],
)
def test_the_bytes_are_those_of_the_usual_way(space: Space, value: Any, rest: dict[str, Any]) -> None:
    observation = Observation(value, **rest)
    expected = encode_observation(observation).SerializeToString()
    assert bytes(ObservationEncoder(space).encode(observation)) == expected


def stepped(mask: Any, *, over: bool = False) -> Observation:
    """Return the observation of an environment with two actions that has given a mask with a step."""
    env = Scripted(lambda: (np.zeros(2, np.float32), 0.0, over, False, {"action_mask": mask}))
    episode = Episode(GymnasiumEnvironment(env, name="Game-v0"), ["player_0"])
    episode.begin()
    found: Observation = episode.advance([action(np.int64(0))]).observations[0].value
    return found


@pytest.mark.parametrize("mask", [[1, 0], (True, False), np.array([1.0, 0.0]), np.array([True, False])])
def test_what_means_a_mask_is_told_as_one(mask: Any) -> None:
    found = stepped(mask)
    assert found.action_mask.dtype == np.int8
    assert found.action_mask.tolist() == [1, 0]
    assert found.info["action_mask"] is mask, "information is as it was"


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        ("10", "expected an array as mask, got"),
        ([1, 0, 1], r"expected a mask of the shape \(2,\), got \(3,\)"),
        ([0.5, 0], "expected a mask of 0, 1, 2 alone"),
        ({"a": 1}, "expected an array as mask, got dict"),
    ],
)
def test_what_means_no_mask_is_refused_at_the_step(mask: Any, text: str) -> None:
    with pytest.raises(InvalidEnvironmentError, match=f"environment 'Game-v0', actor 'player_0': action_mask: {text}"):
        stepped(mask)
    assert stepped(mask, over=True).action_mask is None, "nobody acts any more"


def test_actions_that_are_numbers_are_decoded_once() -> None:
    decoder = ActionDecoder(Discrete(3))
    decode = decoder.decode
    one = decode(action(np.int64(2)))
    assert one == 2
    assert type(one) is np.int64
    assert decode(action(np.int64(2))) is one
    for number in range(5000):
        # Other bytes for the same action: fields that a newer version may have are not looked at.
        assert decode(action(2) + b"\xf8\x07" + bytes([128 | number % 128, number // 128])) == 2
    assert len(decoder._known or ()) <= 1024, "whoever sends other bytes each time fills no memory"


def _is_environment(environment: Environment) -> Environment:
    return environment


def test_the_adapters_have_the_interface() -> None:
    assert _is_environment(Duel()).name == "duel"


def test_actions_of_this_process_are_not_decoded() -> None:
    game = Duel()
    episode = Episode(game, game.agents)
    episode.begin()
    mine = ActionPayload(1, game.action_spaces["left"], action(1))
    episode.advance([mine, None])
    assert game.got == [{"left": 1}]
    assert type(game.got[0]["left"]) is int
    own = ActionPayload(np.zeros(2, np.float32), game.action_spaces["right"])
    episode.advance([ActionPayload(1, Discrete(2)), own])
    # It was checked for a space that is another one, though equal: so it is decoded.
    assert type(game.got[1]["left"]) is np.int64
    game.got[1]["right"] += 1  # environments may change what they get
    assert bytes(own) == action(np.zeros(2, np.float32))


def test_what_a_payload_is_made_of() -> None:
    game = Duel()
    episode = Episode(game, ("right", "left"))
    for step in range(3):
        turn = episode.advance([action(np.zeros(2, np.float32)), action(1)]) if step else episode.begin()
        assert len(turn.observations) == 2
        for payload in turn.observations:
            told, found = payload.value, decoded(payload)
            assert (told.value, told.reward, told.active) == (found.value, found.reward, found.active)


@pytest.mark.parametrize("space", [Box(-1, 1, (2,)), Dict({"one": Box(-1, 1, (2,))})])
def test_a_later_change_of_an_observation_is_seen_by_nobody(space: Space) -> None:
    value = np.zeros(2, np.float32)
    whole: Any = value if isinstance(space, Box) else {"one": value}
    info = {"near": np.zeros(2)}
    before = encode_observation(Observation(whole, info=info)).SerializeToString()
    payload = ObservationEncoder(space).encode(Observation(whole, info=info))
    value += 1
    info["near"] += 1
    info["far"] = np.ones(2)
    assert bytes(payload) == before


def test_large_spaces_come_with_each_first_observation_and_are_not_kept() -> None:
    """Each environment that waits for its next trial would have them."""

    class Gallery(Duel):
        name = "gallery"
        observation_spaces: Mapping[str, Space] = {"left": Box(0, 255, (200, 200), "uint8"), "right": Discrete(9)}

        def _all(self) -> dict[str, Observation]:
            found = super()._all()
            found["left"].value = np.zeros((200, 200), np.uint8)
            return found

    episode = Episode(Gallery(), ["left", "right"])
    for _ in range(2):
        for content, agent in zip(episode.begin().observations, Gallery.agents, strict=True):
            seen = decoded(content)
            assert seen.observation_space == Gallery.observation_spaces[agent]
            assert seen.action_space == Gallery.action_spaces[agent]
    assert [None if each is None else len(each) < 200 for each in episode._spaces] == [None, True]
