"""One trial with a seat of each kind: the caller's, drawn, a function, and a client over a real socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from gymnasium import spaces
from pettingzoo import ParallelEnv

from trio_cogment import connect, rl
from trio_cogment.base.errors import RpcError
from trio_cogment.sdk import ActorSession, EventType
from trio_cogment.spaces import encode_action

AGENTS = ["p_0", "p_1", "p_2", "p_3"]
CLIENTS_MOVE = 3
PATIENCE_SECONDS = 30


class Table(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Everybody sees what all have said; `p_1` is out after two of five steps."""

    def __init__(self) -> None:
        self.metadata = {"name": "table_v0"}
        self.render_mode = None
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.said: list[dict[str, int]] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1, 9, (4,), np.int64)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents, self.said = list(AGENTS), []
        return dict.fromkeys(AGENTS, np.full(4, -1)), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, Any]) -> Any:
        self.said.append({agent: int(action) for agent, action in actions.items()})
        seen, taking_part = np.array([actions.get(agent, -1) for agent in AGENTS]), list(self.agents)
        ended = {agent: agent == "p_1" and len(self.said) == 2 for agent in taking_part}
        cut = dict.fromkeys(taking_part, len(self.said) == 5)
        self.agents = [agent for agent in taking_part if not (ended[agent] or cut[agent])]
        rewards = {agent: float(actions[agent]) for agent in taking_part}
        return dict.fromkeys(taking_part, seen), rewards, ended, cut, {agent: {} for agent in taking_part}


@contextmanager
def client_at(seat: Any, player: Any = None, *, may_lose: bool = False) -> Iterator[list[str]]:
    """Run a client in another thread that takes the seat in each trial; gives the ids of those trials."""
    trials: list[str] = []
    actor = player or rl.policy(lambda _value: CLIENTS_MOVE).actor(rl.SeatContext("table_v0", "p_3"))
    scope = trio.CancelScope()

    async def sit(session: ActorSession[Any, Any, Any]) -> None:
        trials.append(session.trial_id)
        await actor(session)

    async def run() -> None:
        with scope, trio.fail_after(PATIENCE_SECONDS):
            async with connect(seat.endpoint, spec=rl.RL_SPEC) as client:
                started.append(trio.lowlevel.current_trio_token())
                try:
                    await rl.join_trials(client, "p_3", sit)
                except RpcError:
                    if not may_lose:
                        raise

    started: list[trio.lowlevel.TrioToken] = []
    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    try:
        yield trials
    finally:
        if started:
            try:
                started[0].run_sync_soon(scope.cancel)
            except trio.RunFinishedError:
                pass  # the platform has gone before it
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def play(view: Any) -> list[dict[str, float]]:
    view.reset(seed=1)
    rewards = []
    while view.agents:
        found = view.step({"p_0": 1})
        rewards.append(found[1])
    return rewards


def test_everybody_at_one_table(tmp_path: Path) -> None:
    table = Table()
    human = rl.human("ann", port=0)
    seats = {"p_1": rl.random(1), "p_2": rl.policy(lambda seen: (seen.max() + 1) % 4), "p_3": human}
    store = f"sqlite:{tmp_path / 'trials.db'}"
    view = rl.make_parallel(table, seats=seats, store=store)
    said = []
    try:
        with client_at(human) as trials:
            for _ in range(2):
                assert play(view) == [{"p_0": 1.0}] * 5
                said.append(table.said)
                assert view.trial_id in trials
    finally:
        view.close()
    assert human.endpoint == ""
    assert len(set(trials)) == 2
    assert said[0] == said[1]
    for step, each in enumerate(said[0]):
        assert (each["p_0"], each["p_3"]) == (1, CLIENTS_MOVE)
        assert ("p_1" in each) == (step < 2)
        assert each["p_2"] == (0 if step == 0 else (max(said[0][step - 1].values()) + 1) % 4)


def test_a_client_hears_of_the_end_of_the_last_trial(caplog: pytest.LogCaptureFixture) -> None:
    """Though the view is closed at once, and the client is slow."""
    human = rl.human(port=0)
    heard: list[str] = []

    async def listen(session: ActorSession[Any, Any, Any]) -> None:
        await session.start()
        async for event in session.all_events():
            if event.type is EventType.ENDING:
                heard.append(session.trial_id)
                time.sleep(0.1)  # noqa: ASYNC251  as a client that computes, and cannot even acknowledge meanwhile
            elif event.observation is not None:
                await session.do_action(encode_action(np.int64(0)))

    view = rl.make_parallel(Table(), seats={"p_1": rl.random(), "p_2": rl.random(), "p_3": human})
    try:
        with client_at(human, listen, may_lose=True):
            play(view)
            view.close()
    finally:
        view.close()
    assert heard == [view.trial_id]
    assert not [record.getMessage() for record in caplog.records if "acknowledge" in record.getMessage()]


def test_nobody_comes_to_the_table(quiet: None) -> None:
    """The reset says who was waited for."""
    seats = {"p_1": rl.random(), "p_2": rl.random(), "p_3": rl.human(port=0, join_timeout_seconds=0.05)}
    view = rl.make_aec(Table(), seats=seats)
    with pytest.raises(rl.EpisodeFailedError, match="'p_3'"):
        view.reset()
    view.close()
