"""Spaces and keys that Minari can store."""

from __future__ import annotations

import re

import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.rl.datasets.episodes import check_minari
from trio_cogment.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Space, Text, Tuple

HERE = "minari: actor 'ann': observation"


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 1, (2, 3)),
        Discrete(3),
        MultiDiscrete([2, 3]),
        MultiBinary(4),
        Text(5),
        Tuple([Discrete(2), Box(0, 1, ())]),
        Dict({"a": Discrete(2), "...": Dict({"a.b": Text(3)})}),
        Dict({}),
    ],
)
def test_spaces_that_it_has(space: Space) -> None:
    check_minari(space, "ann", "observation")


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "/", "a\0b"])
def test_keys_that_hdf5_has_not(key: str) -> None:
    text = f"{HERE}: expected keys that HDF5 has, without '/', got {key!r}"
    for space in (Dict({key: Discrete(2)}), Tuple([Dict({"a": Dict({key: Discrete(2)})})]), Dict({key: Dict({})})):
        with pytest.raises(InvalidArgumentError, match=f"^{re.escape(text)}$"):
            check_minari(space, "ann", "observation")


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (Box(0, 1, (2, 0)), f"{HERE}: expected arrays with elements, got the shape (2, 0)"),
        (Dict({"a": Box(0, 1, (0,))}), f"{HERE}['a']: expected arrays with elements, got the shape (0,)"),
        (Tuple([Sequence(Discrete(2))]), f"{HERE}[0]: Minari has no Sequence: expected Box,"),
        (Graph(Discrete(2), None), f"{HERE}: Minari has no Graph: expected Box,"),
    ],
)
def test_spaces_that_it_has_not(space: Space, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape(text)}"):
        check_minari(space, "ann", "observation")
