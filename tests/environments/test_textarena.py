"""Games of TextArena: a small package stands for it here, which draws from Python's one generator as its games do."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.environments.making import make_environment


class Dice:
    """Each of two says anything and is told a roll; the sum of the rolls decides after four."""

    def __init__(self, sides: int = 1000) -> None:
        self.sides = sides
        self.deck = list(range(52))

    def reset(self, num_players: int, seed: int | None = None) -> None:
        if num_players != 2:
            raise AssertionError(f"expected 2 players, got {num_players}")
        if seed is not None:
            random.seed(seed)
        random.shuffle(self.deck)  # as some games do: what the next reset begins with is another deck
        told = {player: [(-1, f"You are {player}, card {self.deck[player]}", None)] for player in (0, 1)}
        self.state: Any = SimpleNamespace(
            observations=told, current_player_id=0, role_mapping={0: "Player 0", 1: "Player 1", -1: "GAME"}, rolls=[]
        )

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        state = self.state
        state.rolls.append(random.randrange(self.sides))
        for player in (0, 1):
            state.observations[player] += [(state.current_player_id, action, None), (-1, str(state.rolls[-1]), None)]
        state.current_player_id = 1 - state.current_player_id
        return len(state.rolls) == 4, {}

    def close(self) -> Any:
        first, second = sum(self.state.rolls[::2]), sum(self.state.rolls[1::2])
        won = 1 if first > second else -1
        return {0: won, 1: -won}, {0: {"role": "Player 0"}, 1: {"role": "Player 1"}}


class Wrapper:
    """Shows the text of all games that it has seen."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


class Letters(Dice):
    """Its cards are drawn from NumPy's one generator, which no reset of it seeds."""

    def reset(self, num_players: int, seed: int | None = None) -> None:
        super().reset(num_players, seed)
        self.deck = np.random.permutation(10**6)[:2].tolist()
        for player, card in enumerate(self.deck):
            self.state.observations[player] += [(-1, f"letter {card}", None)]

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        over, about = super().step(action)
        self.state.observations[0] += [(-1, str(np.random.randint(10**6)), None)]
        return over, about


def lacking(**_: Any) -> Any:
    raise LookupError("Resource 'words' not found")


def newer(**_: Any) -> Any:
    compile("match = = 1", "newer.py", "exec")


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("textarena")
    registration = ModuleType("textarena.envs.registration")
    registry: dict[str, Callable[..., Any]] = {
        "Dice-v0": lambda **arguments: Wrapper(Dice(**arguments)),
        "Letters-v0": Letters,
        "Words-v0": lacking,
        "Newer-v0": newer,
    }
    vars(registration)["ENV_REGISTRY"] = registry
    envs = ModuleType("textarena.envs")
    vars(envs)["registration"] = registration
    vars(package).update(GAME_ID=-1, envs=envs, make=lambda name, **arguments: registry[name](**arguments))
    for module in (package, envs, registration):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def played(game: Any, seed: int | None, between: Any = None) -> list[Any]:
    told = [game.reset(seed, None)]
    while not game.over:
        if between is not None:
            between()
        (speaker,) = [agent for agent in game.agents if told[-1][agent].active]
        told.append(game.step({speaker: "go"}))
    return told


def said(told: list[Any]) -> list[Any]:
    return [{agent: (one.value, one.reward, one.terminated) for agent, one in now.items()} for now in told]


def test_a_game_is_told_as_text() -> None:
    game = make_environment("textarena/Dice-v0", sides=6)
    told = played(game, 1)
    assert game.agents == ("player_0", "player_1")
    assert told[0]["player_0"].value.startswith("\n[GAME] You are 0, card ")
    assert told[1]["player_1"].value.count("\n[") == 3, "all that it was told since the game began"
    assert "\n[Player 0] go\n[GAME] " in told[1]["player_1"].value
    last = told[-1]
    assert sorted(last[agent].reward for agent in game.agents) == [-1.0, 1.0]
    assert all(last[agent].terminated for agent in game.agents)
    assert last["player_1"].info == {"role": "Player 1"}


@pytest.mark.parametrize("name", ["textarena/Dice-v0", "textarena/Letters-v0"])
def test_a_game_draws_what_it_would_draw_alone(name: str) -> None:
    """Whatever draws and seeds beside it: another game, or anybody else; and others draw as without it."""
    game, other = (make_environment(name) for _ in range(2))
    alone = said(played(game, 3))
    other.reset(4, None)
    random.seed(9)
    np.random.seed(9)
    expected = [(random.random(), np.random.random()) for _ in range(5)]
    random.seed(9)
    np.random.seed(9)
    found = [(random.random(), np.random.random())]

    def disturb() -> None:
        found.append((random.random(), np.random.random()))
        if not other.over:
            other.step({"player_0": "go"})

    assert said(played(game, 3, disturb)) == alone
    assert found == expected
    assert said(played(game, None)) != alone, "without a seed the generator goes on"


@pytest.mark.parametrize(
    ("name", "arguments", "error", "text"),
    [
        ("Dce-v0", {}, NotFoundError, "did you mean 'Dice-v0'"),
        ("Words-v0", {}, MissingExtraError, "Resource 'words' not found"),
        ("Newer-v0", {}, FailedPreconditionError, r"cannot read this game of TextArena.*newer\.py, line 1"),
        ("Dice-v0", {"players": 3}, InvalidArgumentError, "players: 3: AssertionError: expected 2 players"),
    ],
)
def test_what_cannot_be_played(name: str, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make_environment(f"textarena/{name}", **arguments)


def test_options_and_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="options: expected none"):
        make_environment("textarena/Dice-v0").reset(1, {"deck": 2})
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(MissingExtraError, match="textarena is not installed: pip install textarena"):
        make_environment("textarena/Dice-v0")
