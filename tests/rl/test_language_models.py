"""One game in text, for two, played in all ways that language models are trained in: what is stored is the same.

The packages that these are for are stood in by small ones here; `tests/rl_peers/test_four_ways.py` has the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

import trio_cogment.rl as tc
from tests.gateways.openenv.games import PLAYERS, Table
from tests.gateways.openenv.test_server import client
from tests.rl.views.test_verifiers import Agents, episode, plugin, saying
from trio_cogment.spaces import Observation, Space
from trio_cogment.spaces.elementary import any_text

__all__ = ["plugin"]  # a fixture

SEED = 3
#: What the players say, one with words that the game passes over.
REPLIES: Mapping[str, Sequence[str]] = {"player_0": ("[4]", "[low]\nI hope.", "[9]"), "player_1": ("[high]", "[2]")}


class HighCard(Table):
    """Players speak in turns; each is told all that was said since the beginning, and rolls that the seed decides."""

    name = "HighCard-v0"
    observation_spaces: Mapping[str, Space] = dict.fromkeys(PLAYERS, any_text())
    action_spaces: Mapping[str, Space] = dict.fromkeys(PLAYERS, any_text())

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self._generator = np.random.default_rng(seed)
        self._turn, self.over = 0, False
        self._sums = dict.fromkeys(PLAYERS, 0)
        self._story = "Whose sum is higher?"
        return self._told(None)

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        ((player, said),) = actions.items()
        rolled = int(self._generator.integers(1000))
        self._sums[player] += rolled
        self._story += f"\n[{player}] {said}\n[GAME] {rolled}"
        self._turn += 1
        self.over = self._turn == sum(map(len, REPLIES.values()))
        won = 1.0 if self._sums["player_0"] > self._sums["player_1"] else -1.0
        return self._told({"player_0": won, "player_1": -won} if self.over else dict.fromkeys(PLAYERS, -0.125))

    def _told(self, rewards: Mapping[str, float] | None) -> Mapping[str, Observation]:
        turn = PLAYERS[self._turn % 2]
        return {
            player: Observation(
                self._story,
                None if rewards is None else rewards[player],
                terminated=self.over,
                active=player == turn and not self.over,
                alive=not self.over,
            )
            for player in PLAYERS
        }


def scripted(replies: Sequence[str]) -> tc.Seat:
    class Player:
        """An object for each trial, which says one thing after the other."""

        def __init__(self) -> None:
            self._left = iter(replies)

        def __call__(self, _told: Any) -> str:
            return next(self._left)

    return tc.policy(Player)


def in_a_plain_trial(store: str) -> None:
    seats = {agent: scripted(replies) for agent, replies in REPLIES.items()}
    assert not tc.run_trials(1, environment=HighCard, seats=seats, seeds=[SEED], store=store).failures


def by_a_tool(store: str) -> None:
    seats = {"player_1": scripted(REPLIES["player_1"])}
    tools = tc.environment_factory(HighCard, seats=seats, store=store)()
    tools.reset(seed=SEED)
    for said in REPLIES["player_0"]:
        told = tools.act(said)
    assert told.endswith(f"The episode is over. Your return is {tools.get_reward():g}.")
    tools.env.close()


def by_clients_of_openenv(store: str) -> None:
    async def sit(server: tc.OpenEnvServer, agent: str) -> None:
        async with client(server) as seat:
            told = await seat.reset(trial="duel", seat=agent, seed=SEED)
            for said in REPLIES[agent]:
                assert not told["done"]
                told = await seat.step(said)
            assert told["done"]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(tc.serve_openenv, HighCard, store=store))
            async with trio.open_nursery() as players:
                for agent in PLAYERS:
                    players.start_soon(sit, server, agent)
            nursery.cancel_scope.cancel()

    trio.run(main)


def by_agents_of_verifiers(plugin: Any, store: str) -> None:
    runs = episode(plugin(HighCard, store=store), Agents(**{a: saying(*said) for a, said in REPLIES.items()}), SEED)
    assert runs["player_0"].trace.info["trial"]["terminated"]


def test_the_transcript_and_the_rewards_are_the_same(plugin: Any, tmp_path: Path) -> None:
    ways: Mapping[str, Callable[[str], None]] = {
        "plain": in_a_plain_trial,
        "tool": by_a_tool,
        "openenv": by_clients_of_openenv,
        "verifiers": partial(by_agents_of_verifiers, plugin),
    }
    found = {}
    for name, play in ways.items():
        store = f"sqlite:{tmp_path / name}.db"
        play(store)
        tc.export(store, chat=tmp_path / name)
        lines = (tmp_path / name / "chats.jsonl").read_text(encoding="utf-8").splitlines()
        found[name] = [
            {key: value for key, value in json.loads(line).items() if key not in ("trial_id", "implementation")}
            for line in lines
        ]
    rows = found["plain"]
    assert [row["actor"] for row in rows] == list(PLAYERS)
    for row in rows:
        answers = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        assert tuple(answers) == REPLIES[row["actor"]]
        assert row["return"] == pytest.approx(sum(row["rewards"]))
    for name in ways:
        assert found[name] == rows, name
