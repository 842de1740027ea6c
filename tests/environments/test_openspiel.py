"""Games of OpenSpiel, beside OpenSpiel's own states."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyspiel
import pytest

import trio_cogment.rl as tc
from tests.spaces.strategies import same
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.environments.making import make_environment
from trio_cogment.environments.openspiel import OpenSpielEnvironment
from trio_cogment.spaces import Box, Observation

#: Twelve games: of chance and without, hidden and open, in turns and all at once, with rewards on the way.
GAMES: dict[str, dict[str, Any]] = {
    "kuhn_poker": {"players": 3},
    "leduc_poker": {},
    "tic_tac_toe": {},
    "connect_four": {},
    "goofspiel": {"num_cards": 5, "imp_info": True, "points_order": "random"},
    "matrix_rps": {},
    "backgammon": {},
    "liars_dice": {},
    "oshi_zumo": {"coins": 10, "size": 2},
    "blackjack": {},
    "pig": {"winscore": 20},
    "laser_tag": {"horizon": 30},
}


def drawn(generator: np.random.Generator, told: dict[str, Observation]) -> dict[str, int]:
    """Draw a legal move for each whose turn it is."""
    moves = {}
    for agent, observation in told.items():
        if observation.active:
            assert observation.action_mask is not None
            moves[agent] = int(generator.choice(np.flatnonzero(observation.action_mask)))
    return moves


def played(game: OpenSpielEnvironment, seed: int) -> list[dict[str, Observation]]:
    """Play a game at random; return all that was told."""
    generator = np.random.default_rng(seed)
    told = [game.reset(seed, None)]
    while not game.over:
        told.append(game.step(drawn(generator, told[-1])))
    return told


def made(name: str) -> OpenSpielEnvironment:
    found = make_environment(f"openspiel/{name}", **GAMES[name])
    assert isinstance(found, OpenSpielEnvironment)
    return found


def check_game(name: str, seeds: range) -> None:
    """Play games, and replay each on a state of OpenSpiel's own, with the moves that its history has."""
    game = made(name)
    own = pyspiel.load_game(name, GAMES[name])
    for seed in seeds:
        told = played(game, seed)
        state = own.new_initial_state()
        shown = iter(told)
        history = iter(game.state.history())
        seen = 0
        while True:
            if not state.is_chance_node():
                now = next(shown)
                seen += 1
                for player, agent in enumerate(game.agents):
                    tensor = getattr(state, f"{game._seen}_tensor")(player)
                    assert np.array_equal(np.ravel(now[agent].value), np.array(tensor, np.float32))
                    legal = state.legal_actions(player)
                    turn = state.is_simultaneous_node() or state.current_player() == player
                    assert now[agent].active == (turn and bool(legal))
                    if now[agent].active:
                        assert np.flatnonzero(now[agent].action_mask).tolist() == legal
            if state.is_terminal():
                break
            if state.is_simultaneous_node():
                state.apply_actions([next(history) for _ in game.agents])
            else:
                state.apply_action(next(history))
        assert seen == len(told)
        totals = [sum(one[agent].reward or 0.0 for one in told) for agent in game.agents]
        assert totals == pytest.approx(state.returns(), abs=1e-9)
        assert all(one.terminated and not one.truncated for one in told[-1].values())
        assert not any(one.terminated for now in told[:-1] for one in now.values())


@pytest.mark.parametrize("name", GAMES)
def test_games_are_openspiels_own(name: str) -> None:
    check_game(name, range(3 if name in ("backgammon", "laser_tag") else 12))


@pytest.mark.soak
@pytest.mark.timeout(3600)  # of backgammon, some minutes
@pytest.mark.parametrize("name", GAMES)
def test_a_thousand_games_are_openspiels_own(name: str) -> None:
    check_game(name, range(1000))


@pytest.mark.parametrize("name", GAMES)
def test_a_seed_is_a_game_whatever_is_played_beside_it(name: str) -> None:
    alone = played(made(name), 7)
    one, other = made(name), made(name)
    generator = np.random.default_rng(7)
    told, beside = [one.reset(7, None)], other.reset(8, None)
    while not one.over:
        told.append(one.step(drawn(generator, told[-1])))
        if not other.over:
            beside = other.step(drawn(np.random.default_rng(len(told)), beside))
    assert len(told) == len(alone)
    for now, then in zip(told, alone, strict=True):
        for agent in one.agents:
            assert same(now[agent].value, then[agent].value)
            assert now[agent].reward == then[agent].reward


def test_chance_is_drawn_as_the_game_says() -> None:
    """Each of the six deals of two of three cards comes about as often; the seeds are always the same."""
    game = make_environment("openspiel/kuhn_poker")
    assert isinstance(game, OpenSpielEnvironment)
    deals = Counter[tuple[int, ...]]()
    for seed in range(600):
        game.reset(seed, None)
        deals[tuple(game.state.history())] += 1
    assert len(deals) == 6
    assert min(deals.values()) > 75


def test_without_a_seed_the_generator_goes_on() -> None:
    game = made("leduc_poker")
    game.reset(3, None)
    deals = []
    for _ in range(12):
        game.reset(None, None)
        deals.append(tuple(game.state.history()))
    assert len(set(deals)) > 3


def test_games_that_draw_within_themselves_have_the_episodes_seed() -> None:
    game = make_environment("openspiel/negotiation")
    begun = [game.reset(seed, None)["player_0"].value for seed in (1, 1, 2, 3, 4)]
    assert same(begun[0], begun[1])
    assert not all(same(begun[0], one) for one in begun[2:])


def test_the_last_move_is_shown() -> None:
    game = made("tic_tac_toe")
    told = game.reset(1, None)
    for move in (0, 3, 1, 4):
        (mover,) = [agent for agent in game.agents if told[agent].active]
        told = game.step({mover: move})
    last = game.step({"player_0": 2})
    assert [last[agent].reward for agent in game.agents] == [1.0, -1.0]
    assert not same(last["player_0"].value, told["player_0"].value)
    assert int(np.asarray(last["player_0"].value).sum()) == 9


def test_parameters_and_what_is_shown() -> None:
    game = make_environment("openspiel/breakthrough", rows=6, columns=6)
    assert game.observation_spaces["player_0"] == Box(-np.inf, np.inf, (3, 6, 6), np.float32)
    hidden = make_environment("openspiel/kuhn_poker", observation="information_state")
    assert hidden.observation_spaces["player_0"] == Box(-np.inf, np.inf, (11,), np.float32)
    text = make_environment("openspiel/kuhn_poker", observation="text", render_mode="ansi")
    first = text.reset(1, None)["player_0"]
    assert isinstance(first.value, str)
    frame = text.frame()
    assert frame is not None
    assert frame.media_type.startswith("text/plain")
    within = make_environment("openspiel/repeated_game", stage_game="matrix_pd()", num_repetitions=4)
    assert within.agents == ("player_0", "player_1")


@pytest.mark.parametrize(
    ("name", "arguments", "error", "text"),
    [
        ("kuhn_pokr", {}, NotFoundError, "did you mean 'kuhn_poker'"),
        ("kuhn_poker", {"colour": 3}, InvalidArgumentError, "Unknown parameter 'colour'.*parameters .* takes: players"),
        ("nfg_game", {}, InvalidArgumentError, "parameters that it takes: filename"),
        ("efg_game", {}, InvalidArgumentError, "parameters that it takes: filename"),
        ("tic_tac_toe", {"observation": "information_state"}, InvalidArgumentError, "expected 'observation', 'text'"),
        ("mfg_crowd_modelling", {}, InvalidArgumentError, "a game of a mean field"),
    ],
)
def test_what_cannot_be_played(name: str, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make_environment(f"openspiel/{name}", **arguments)


def test_an_illegal_move_and_options() -> None:
    game = made("tic_tac_toe")
    told = game.reset(1, None)
    game.step({"player_0": 4})
    with pytest.raises(InvalidActionError, match=r"actor 'player_1': action: expected a legal one, of 0, 1, 2, 3, 5"):
        game.step({"player_1": 4})
    told = game.step({"player_1": 0})
    assert told["player_0"].active, "no move was made, and the game goes on"
    with pytest.raises(InvalidArgumentError, match="options: expected none"):
        game.reset(1, {"deal": 3})


@pytest.mark.parametrize("name", GAMES)
def test_as_a_trial_stored_exported_and_replayed(name: str, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'games.db'}"
    game = made(name)
    told = played(game, 5)
    make = tc.make_parallel if game.metadata["is_parallelizable"] else tc.make_aec
    view: Any = make(f"openspiel/{name}", store=store, **GAMES[name])
    generator = np.random.default_rng(5)
    view.reset(seed=5)
    totals = dict.fromkeys(game.agents, 0.0)
    if make is tc.make_parallel:
        _, infos = view.reset(seed=5)
        while view.agents:
            moves = {one: int(generator.choice(np.flatnonzero(infos[one]["action_mask"]))) for one in view.agents}
            _, rewards, _, _, infos = view.step(moves)
            for one, reward in rewards.items():
                totals[one] += reward
    else:
        for agent in view.agent_iter():
            _, reward, terminated, truncated, info = view.last()
            totals[agent] += reward
            move = None if terminated or truncated else int(generator.choice(np.flatnonzero(info["action_mask"])))
            view.step(move)
    view.close()
    assert totals == {agent: sum(one[agent].reward or 0.0 for one in told) for agent in game.agents}
    tc.export(store, parquet=tmp_path / "data")
    replay: Any = tc.replay_environment(tmp_path / "data")
    again = [replay.reset(replay.episodes - 1, None)]
    while not replay.over:
        again.append(replay.step({}))
    assert len(again) == len(told)
    for now, then in zip(again, told, strict=True):
        for agent in game.agents:
            assert same(now[agent].value, then[agent].value)
            assert now[agent].reward == then[agent].reward
            assert now[agent].terminated == then[agent].terminated
