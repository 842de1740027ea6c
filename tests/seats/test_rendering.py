"""Prompts for language models, and actions from their answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

from tests.spaces.strategies import generators, same, spaces
from trio_cogment.seats.rendering import as_text, described_space, read_action, turn_prompt
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    Observation,
    OneOf,
    Sequence,
    Space,
    SpaceError,
    Text,
    Tuple,
)
from trio_cogment.spaces.elementary import any_text


def test_the_whole_prompt() -> None:
    observation = Observation(
        {"board": np.array([[0, 1]]), "heat": np.float32(0.1), "note": "go"},
        reward=-0.5,
        action_mask=np.array([1, 0, 1], np.int8),
        action_space=Discrete(3),
    )
    assert turn_prompt("duel", "player_1", observation, "paper!", "action: expected 0 to 2, got 7").splitlines() == [
        "You are player_1 in duel.",
        "",
        "Observation:",
        '{"board": [[0, 1]], "heat": 0.1, "note": "go"}',
        "",
        "Your reward for the last step: -0.5",
        "",
        "Your action is a whole number from 0 to 2.",
        "Allowed now: 0, 2.",
        "",
        "Your last answer was refused: action: expected 0 to 2, got 7",
        'It was: "paper!"',
        "",
        "Answer with the action alone, as JSON.",
    ]
    short = turn_prompt(
        "duel", "player_1", Observation("dark", action_space=Discrete(3)), describe=lambda it: it.value * 2
    )
    assert short.splitlines() == [
        *("You are player_1 in duel.", "", "Observation:", "darkdark", ""),
        *("Your action is a whole number from 0 to 2.", "", "Answer with the action alone, as JSON."),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a text", "a text"),
        (np.array([0.1, 1 / 3], np.float32), "[0.1, 0.33333334]"),
        (np.array([0.1]), "[0.1]"),
        (np.array(2, np.int8), "2"),
        (np.array(0.1, np.float32), "0.1"),
        ((np.int64(1), [True, None, 0.5, b"ab"]), '[1, [true, null, 0.5, "2 bytes"]]'),
        (np.zeros((40, 30), np.uint8), '"array of uint8, shape [40, 30]"'),
    ],
)
def test_values_as_text(value: Any, text: str) -> None:
    assert as_text(value) == text


SPACES: list[tuple[Space, str]] = [
    (Discrete(3, start=1), "a whole number from 1 to 3"),
    (Box(0, 1, ()), "a number from 0.0 to 1.0"),
    (Box(0.1, np.inf, ()), "a number from 0.1 to inf"),
    (Box(0, 1, (2000,)), "a list of 2000 numbers, each from 0.0 to 1.0"),
    (Box(0, 255, (2,), "uint8"), "a list of 2 whole numbers, each from 0 to 255"),
    (Box(0, 1, (2, 3)), "nested lists of numbers with the shape [2, 3], each from 0.0 to 1.0"),
    (Box(np.array([0, -1]), np.array([1, 1])), "a list of 2 numbers, from [0.0, -1.0] to [1.0, 1.0]"),
    (MultiDiscrete([2, 3]), "a list of 2 whole numbers: 0 to 1, 0 to 2"),
    (MultiBinary((2, 2)), "nested lists of zeros and ones with the shape [2, 2]"),
    (Text(8), "a text of 1 to 8 letters and digits"),
    (Text(2, 0, "ab"), 'a text of 0 to 2 characters of "ab"'),
    (Dict({"a": Discrete(2), "b": Text(3)}), 'an object with "a": a whole number from 0 to 1; "b": a text of 1 to 3'),
    (Tuple([Discrete(2), MultiBinary(2)]), "a list of: a whole number from 0 to 1; a list of 2 zeros and ones"),
    (Sequence(Discrete(2)), "a list of any length, each element of which is a whole number from 0 to 1"),
    (OneOf([Discrete(2), Text(3)]), "one of the lists [0, a whole number from 0 to 1]; [1, a text of 1 to 3"),
]


@pytest.mark.parametrize(("space", "text"), SPACES, ids=lambda given: type(given).__name__)
def test_spaces_in_words(space: Space, text: str) -> None:
    assert described_space(space).startswith(text)


def test_a_text_without_bounds_of_its_own_in_words() -> None:
    assert described_space(any_text()) == "a text of 0 to 65536 characters"


def test_masks_in_words() -> None:
    space = Dict({"a": Discrete(3), "b": Tuple([Discrete(2), MultiBinary(2)]), "c": Text(3)})
    mask = {"a": np.array([1, 0, 1], np.int8), "b": (None, np.array([2, 1], np.int8)), "c": None}
    prompt = turn_prompt("duel", "player_1", Observation(0, action_mask=mask, action_space=space))
    binary = "what this mask has 1 for, or 2 for either: [2, 1]"
    assert f'Allowed now: "a": 0, 2; "b": element 0: all; element 1: {binary}; "c": all.' in prompt.splitlines()


@given(spaces, generators)
def test_every_action_can_be_given(space: Space, generator: np.random.Generator) -> None:
    """Except those that JSON cannot hold: graphs, stacks of anything but arrays."""
    assume("Graph" not in repr(space) and "stack=True" not in repr(space))
    described_space(space)
    value = space.check(space.sample(generator))
    answer = value if isinstance(value, str) else as_text(value)
    assume("array of" not in answer)
    found = read_action(space, json.dumps(value) if isinstance(value, str) else answer)
    assert same(found, value) or np.allclose(found, value, equal_nan=True)


@pytest.mark.parametrize(
    ("space", "answer", "action"),
    [
        (Discrete(3), "2", 2),
        (Discrete(3), ' "2"\n', 2),
        (Discrete(3), "2.0", 2),
        (Discrete(3), "Between 0 and 1 I choose 2.", 2),
        (Discrete(3), "0 is bad.\n\n1", 1),
        (Discrete(3), "I think:\n```json\n1\n```\nbecause 2 is worse", 1),
        (Discrete(3, start=-1), "minus one: -1", -1),
        (Text(8), "hello", "hello"),
        (Text(8), ' "hello"\n', "hello"),
        # Moves of games of TextArena, which are JSON by chance.
        (Text(8, charset="[]0123456789 "), "[4]", "[4]"),
        (Text(8, charset="[]0123456789 "), " 42\n", "42"),
        (Text(8), "null", "null"),
        (MultiDiscrete([2, 3]), "Not [0, 0], I play [1, 2]!", np.array([1, 2])),
        (Dict({"a": Discrete(2)}), 'My move: {"a": 1}.', {"a": 1}),
        (Tuple([Discrete(2), Text(3)]), '[1, "ab"]', (1, "ab")),
        (OneOf([Discrete(2), Text(3)]), '[1, "ab"]', (1, "ab")),
        (Sequence(Discrete(3)), "[]", ()),
        (Sequence(Discrete(3), stack=True), "[1, 2]", np.array([1, 2])),
        (Box(0, 1, (2,)), "[0, 0.5]", np.array([0, 0.5], np.float32)),
    ],
)
def test_answers(space: Space, answer: str, action: Any) -> None:
    found = read_action(space, answer)
    assert space.contains(found)
    assert np.array_equal(found, action) if isinstance(action, np.ndarray) else found == action


@pytest.mark.parametrize(
    ("space", "answer", "text"),
    [
        (Discrete(3), "rock", "action: expected a whole number from 0 to 2; found none in the answer"),
        (Discrete(3), "", "action: expected a whole number from 0 to 2; found none in the answer"),
        (Discrete(3), "7", "action: expected 0 to 2, got 7"),
        (Discrete(3), "1.5", "action: expected whole numbers, got 1.5"),
        (Discrete(3), "true", "action: expected numbers, got True"),
        (Discrete(3), "null", "action: expected numbers"),
        (Discrete(3), "[1]", r"action: expected the shape \(\), got \(1,\)"),
        (Discrete(3), "NaN", "action: "),
        (Discrete(3), "99999999999999999999999", "action: "),
        (Box(0, 255, (2,), "uint8"), "[1, 256]", r"action\[1\]: expected 0 to 255, got 256"),
        (Box(0, 1, (2,)), "[0, 2]", r"action\[1\]: expected 0.0 to 1.0, got 2.0"),
        (Box(0, 1, (2,)), "[[0], [1, 2]]", "action: expected numbers, in lists of one length"),
        (Box(-np.inf, np.inf, (2,)), "[0, 1e300]", r"action\[1\]: expected a number of float32, got 1e\+300"),
        (Text(3), "hello", "action: expected 1 to 3 characters, got 5"),
        (Dict({"a": Discrete(2)}), '{"a": 5}', r'action\["a"\]: expected 0 to 1, got 5'),
        (Dict({"a": Discrete(2)}), '{"a": 1, "b": 2}', "action: expected the keys 'a'; got 'b', too"),
        (Dict({"a": Discrete(2)}), "[1]", "action: expected a dict, got list"),
        (Tuple([Discrete(2)]), "[1, 2]", "action: expected a tuple, got list"),
        (OneOf([Discrete(2)]), "[3, 1]", r"action\[0\]: position: expected 0 to 0, got 3"),
        (Sequence(Text(3), stack=True), '["a"]', "action: expected a stack of arrays, got a stack of Text"),
        (Graph(Discrete(2), None), "{}", "action: expected a graph"),
    ],
)
def test_answers_that_are_none(space: Space, answer: str, text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        read_action(space, answer)


def test_an_answer_that_is_not_allowed() -> None:
    with pytest.raises(SpaceError, match="action: expected one of 0, 2, which are allowed now; got 1"):
        read_action(Discrete(3), "1", np.array([1, 0, 1], np.int8))


def test_graphs_cannot_be_given_as_text() -> None:
    with pytest.raises(
        SpaceError, match=r'value\["a"\]: expected a space whose actions can be given as text, got Graph'
    ):
        described_space(Dict({"a": Graph(Discrete(2), None)}))
