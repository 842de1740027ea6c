"""Numbers in the type that an environment gave them, within tuples and dicts, too."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
import pytest

from trio_cogment.rl.views.raw_types import TypeMemory, like


@pytest.mark.parametrize(
    ("value", "original", "expected"),
    [
        (np.float32(1.5), 2.0, 1.5),
        (np.int64(3), 2, 3),
        (3, np.int8(1), np.int8(3)),
        (1, True, True),
        (2.5, np.float32(0), np.float32(2.5)),
        (7, 5, 7),
        ((np.int64(1), np.float32(2)), (0, 0.0), (1, 2.0)),
        ({"a": np.int64(1), "b": (np.int64(2),)}, {"a": 0.0, "b": (0,)}, {"a": 1.0, "b": (2,)}),
        ("x", 1, "x"),
        (1, "x", 1),
        ((np.int64(1),), [0], (np.int64(1),)),
        (OrderedDict(a=np.int64(1)), {"a": 0}, OrderedDict(a=np.int64(1))),
        (None, 1, None),
    ],
)
def test_a_value_in_the_type_of_another(value: Any, original: Any, expected: Any) -> None:
    found = like(value, original)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(found, tuple):
        assert [type(part) for part in found] == [type(part) for part in expected]
    if type(found) is dict:
        assert [type(part) for part in found.values()] == [type(part) for part in expected.values()]


def test_arrays_stay_what_they_are() -> None:
    value = np.zeros(3)
    assert like(value, np.ones(3)) is value
    assert like(value, 1.0) is value


def test_parts_that_do_not_match_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        like((1, 2), (1,))


class Returning(gymnasium.Env[Any, Any]):
    """Returns from a step what it is given."""

    def step(self, action: Any) -> Any:
        return action


@pytest.mark.parametrize("result", [None, [1, 2.0, False, False, {}], (1, 2.0, False, {})])
def test_what_is_no_step_is_given_on_as_it_is(result: Any) -> None:
    memory = TypeMemory(Returning())
    assert memory.step(result) is result
    assert (memory.observation, memory.reward) == (None, 0.0)
    memory.step((1, 2.0, False, False, {}))
    assert (memory.observation, memory.reward) == (1, 2.0)
