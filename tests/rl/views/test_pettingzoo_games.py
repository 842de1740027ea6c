"""Games that come with PettingZoo, as trials: PettingZoo's own tests of its interfaces, and the bare games beside."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from tests.rl.views.test_aec import assert_same_episodes, said
from trio_cogment import rl

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

GAMES = ["rps_v2", "tictactoe_v3", "connect_four_v3"]


def bare(name: str) -> Any:
    from importlib import import_module

    return import_module(f"pettingzoo.classic.{name}").env()


@pytest.mark.parametrize("name", GAMES)
def test_one_after_the_other(name: str) -> None:
    """Nothing is said of the view that is not said of the game."""
    view = rl.make_aec(name)
    assert said(lambda: api_test(view, num_cycles=200)) <= said(lambda: api_test(bare(name), num_cycles=200))
    view.close()
    assert said(lambda: seed_test(lambda: rl.make_aec(name), num_cycles=50)) == set()


@pytest.mark.parametrize("name", GAMES)
def test_episodes_are_those_of_the_game(name: str) -> None:
    view = rl.make_aec(bare(name))
    assert_same_episodes(bare(name), view, seeds=(1, None, 2, None, None, None))
    view.close()


@pytest.mark.parametrize("target", ["rps_v2", bare("rps_v2")], ids=["name", "turns"])
def test_all_at_once(target: Any) -> None:
    view = rl.make_parallel(target)
    assert said(lambda: parallel_api_test(view, num_cycles=200)) == set()
    view.close()
    assert said(lambda: parallel_seed_test(lambda: rl.make_parallel("rps_v2"), num_cycles=50)) == set()


def test_pictures() -> None:
    view = rl.make_parallel("rps_v2", render_mode="rgb_array")
    view.reset()
    view.step({"player_0": 0, "player_1": 1})
    assert view.render().shape[2] == 3
    assert "rgb_array" in view.metadata["render_modes"]
    view.close()
