"""Spaces of Gymnasium as ours, and back."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces import strategies as some
from trio_cogment.base.errors import MissingExtraError
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphValue,
    Space,
    SpaceError,
    Text,
    decode_value,
    encode_value,
    from_gymnasium,
    to_gymnasium,
)
from trio_cogment.spaces.elementary import any_text
from trio_cogment.spaces.errors import MAX_DEPTH

#: Untyped, because it need not be installed where types are checked.
gym: Any = importlib.import_module("gymnasium.spaces")


def their(space: Space) -> Any:
    """Return Gymnasium's space, or None if it has none."""
    try:
        return to_gymnasium(space)
    except SpaceError:
        return None


@given(some.spaces)
def test_spaces_there_and_back(space: Space) -> None:
    found = their(space)
    if found is not None:
        assert from_gymnasium(found) == space


#: Batches of nothing, and of arrays without dimensions, are beyond Gymnasium.
leaf_spaces = some.leaf_spaces.filter(lambda space: getattr(space, "shape", None) != () or isinstance(space, Discrete))
some_spaces = st.recursive(leaf_spaces, some.all_composites, max_leaves=6)


@given(some_spaces, some.generators)
def test_gymnasium_contains_our_samples(space: Space, generator: np.random.Generator) -> None:
    found = their(space)
    if found is None or "Dict({})" in repr(space) or "Tuple()" in repr(space):
        return
    assert theirs(space.sample(generator)) in found


def theirs(value: Any) -> Any:
    """Return a value with Gymnasium's own class of graphs, which `contains` asks for."""
    if isinstance(value, GraphValue):
        return gym.GraphInstance(*map(theirs, value))
    if isinstance(value, tuple):
        return tuple(map(theirs, value))
    return {key: theirs(part) for key, part in value.items()} if isinstance(value, dict) else value


SPACES = [
    gym.Box(-1, 1, (3,)),
    gym.Box(0, 255, (4, 4, 3), np.uint8),
    gym.Box(-np.inf, np.inf, (2,), np.float64),
    gym.Box(np.array([0, -5]), np.array([9, 5]), dtype=np.int16),
    gym.Discrete(3, start=-1),
    gym.MultiDiscrete([2, 3], start=[1, -1]),
    gym.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32),
    gym.MultiBinary(3),
    gym.MultiBinary([2, 2]),
    gym.Text(5, charset="ab"),
    gym.Dict(b=gym.Discrete(2), a=gym.Tuple([gym.Text(2), gym.Box(0, 1)])),
    gym.Sequence(gym.Discrete(4)),
    gym.Sequence(gym.Box(0, 1, (2,)), stack=True),
    gym.Sequence(gym.Dict(a=gym.Discrete(2), b=gym.Box(0, 1)), stack=True),
    gym.Graph(gym.Box(0, 1, (2,)), gym.Discrete(3)),
    gym.Graph(gym.Discrete(3), None),
    gym.OneOf([gym.Discrete(2), gym.Box(0, 1)]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_their_samples_are_in_our_spaces_and_survive(space: Any) -> None:
    ours = from_gymnasium(space)
    assert to_gymnasium(ours) == space
    space.seed(1)
    for _ in range(20):
        value = space.sample()
        found = decode_value(encode_value(value, ours), ours)
        assert some.same(ours.check(value), found)
        assert theirs(found) in space


#: Gymnasium makes arrays of what is none, or fails, where it is asked whether something of another shape is in these.
UNSAFE = (gym.Graph, gym.Sequence, gym.Box, gym.MultiDiscrete, gym.MultiBinary)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_both_agree_on_what_is_in_a_space(space: Any) -> None:
    ours = from_gymnasium(space)
    compared = 0
    for other in SPACES:
        other.seed(1)
        value = other.sample()
        if not isinstance(space, UNSAFE) or (isinstance(value, np.ndarray) and not isinstance(space, UNSAFE[:2])):
            assert ours.contains(value) == (value in space), other
            compared += 1
        elif other is not space:
            assert not ours.contains(value) or value in space
    assert compared >= 6 or isinstance(space, UNSAFE[:2])


def test_the_order_of_keys_survives() -> None:
    space = Dict({"b": Discrete(2), "a": Text(2)})
    assert list(to_gymnasium(space).spaces) == ["b", "a"]
    assert list(from_gymnasium(to_gymnasium(space)).spaces) == ["b", "a"]  # type: ignore[attr-defined]  # a Dict


def test_subclasses_count_as_what_they_are() -> None:
    class Grid(gym.Box):  # type: ignore[misc]  # untyped, see above
        pass

    assert from_gymnasium(Grid(0, 1, (2,))) == Box(0, 1, (2,))


def test_a_space_of_strings_of_somebodys_own_is_text() -> None:
    """As MiniGrid's missions: it is none of Gymnasium's texts, and has no bounds."""

    class Mission(gym.Space[str]):  # type: ignore[misc]  # untyped, see above
        def __init__(self) -> None:
            super().__init__(dtype=str)

    found = from_gymnasium(gym.Dict(mission=Mission(), direction=gym.Discrete(4)))
    assert found == Dict({"direction": Discrete(4), "mission": any_text()})
    assert isinstance(found, Dict)
    assert found.spaces["mission"].check("get the green key") == "get the green key"


def test_what_is_no_space_of_gymnasium() -> None:
    class Own(gym.Space):  # type: ignore[misc]  # untyped, see above
        pass

    with pytest.raises(SpaceError, match=r"space\[0\]: expected one of gymnasium.spaces.Box, .*; got Own"):
        from_gymnasium(gym.Tuple([Own()]))
    with pytest.raises(SpaceError, match="got int"):
        from_gymnasium(3)
    with pytest.raises(SpaceError, match=r"space: expected strings as keys, got int"):
        from_gymnasium(gym.Dict({1: gym.Discrete(2)}))
    with pytest.raises(SpaceError, match=r"space: expected a space, got int"):
        to_gymnasium(3)  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(SpaceError, match=r'space\["node_space"\]: Gymnasium has no such Discrete'):
        to_gymnasium(Graph(Discrete(256, dtype="uint8"), None))


def test_depth_is_bounded() -> None:
    space: Any = gym.Discrete(2)
    for _ in range(MAX_DEPTH):
        space = gym.Tuple([space])
    with pytest.raises(SpaceError, match="expected at most 24 levels"):
        from_gymnasium(space)


@pytest.mark.parametrize(
    ("missing", "code", "extra"),
    [("gymnasium", "spaces.to_gymnasium(spaces.Discrete(2))", "gym"), ("numpy", "", "arrays")],
)
def test_without_the_extra(missing: str, code: str, extra: str) -> None:
    finder = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(name, name=name.partition('.')[0])\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    program = f"{finder}from trio_cogment import spaces\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(f"MissingExtraError: {MissingExtraError.of(missing, extra)}")


def test_a_missing_extra_is_an_import_error() -> None:
    with pytest.raises(ImportError) as caught:
        raise MissingExtraError.of("gymnasium", "gym")
    assert str(caught.value) == (
        "gymnasium is not installed; the extra 'gym' brings it: pip install 'trio-cogment[gym]', "
        "or in a copy of the repository pip install -e '.[gym]'"
    )
