"""A seat as the tool of a language model."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path

import pytest

import trio_cogment.rl as tc
from tests.rl.riddle import Riddle
from tests.rl.views.environments import Masked
from trio_cogment.base.errors import FailedPreconditionError


def test_an_episode_by_the_tool(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'trials.db'}"
    tools = tc.environment_factory(Riddle, store=store)()
    told = tools.reset(seed=3, prompt="a row's other fields are passed over")
    assert told.startswith("You are ")
    assert told.endswith("\n\nIt has 3 letters.")
    assert tools.act("pie") == "pie? No."
    assert tools.act("x" * 30).startswith("That was refused: action: expected")
    assert tools.get_reward() == pytest.approx(-0.1)
    assert tools.act('"tea"') == "tea? Yes!\n\nThe episode is over. Your return is 0.9."
    assert tools.get_reward() == pytest.approx(0.9)
    with pytest.raises(FailedPreconditionError, match="the episode is over"):
        tools.act("tea")
    assert tools.reset().endswith("It has 3 letters.")
    assert tools.get_reward() == 0.0
    tools.env.close()
    assert tc.export(store, chat=tmp_path / "chats").trials == 2


def test_seats_that_are_made_share_a_platform(tmp_path: Path) -> None:
    factory = tc.environment_factory("CartPole-v1", store=f"sqlite:{tmp_path / 'trials.db'}")
    one, two = factory(), factory()
    assert one.reset(seed=1) == two.reset(seed=1)
    assert one.act("1") == two.act("1")
    assert one.act("1") != two.act("0")
    assert one.act("2").startswith("That was refused: action: expected 0 to 1, got 2")
    two.env.close()
    one.env.close()


def test_the_masks_are_told() -> None:
    pytest.importorskip("pettingzoo.classic")
    tools = tc.environment_factory("tictactoe_v3", seats={"player_2": tc.random(seed=1)})()
    assert "Allowed now: 0, 1, 2, 3, 4, 5, 6, 7, 8." in tools.reset(seed=1)
    told = tools.act("4")
    assert "Allowed now: " in told
    assert "4" not in told.rpartition("Allowed now: ")[2]
    assert tools.act("4").startswith("That was refused: action: ")
    tools.env.close()


def test_there_is_one_tool_with_types_and_documentation() -> None:
    """As TRL looks for them: public functions of the class, but for `reset` and `get_reward`."""
    functions = dict(inspect.getmembers(tc.TrialTools, predicate=inspect.isfunction))
    names = {name for name in functions if not name.startswith("_")}
    assert names == {"reset", "act", "get_reward"}
    assert "Args:\n" in str(inspect.getdoc(tc.TrialTools.act))


def test_a_mask_in_the_information_is_told() -> None:
    tools = tc.environment_factory(partial(Masked, "Discrete"))()
    assert "Allowed now: 1, 3." in tools.reset(seed=1)
    assert "Allowed now: 1, 3." in tools.act("3")
    tools.env.close()
