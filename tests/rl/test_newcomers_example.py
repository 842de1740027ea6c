"""The first program that somebody writes, as it stands: a learner, a game with a person, and the data set of both.

The learner is Stable-Baselines3's in `tests.rl_peers`, where that is installed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pygame")  # rock, paper, scissors is drawn with it
minari = pytest.importorskip("minari")
parquet = pytest.importorskip("pyarrow.parquet")

PATIENCE_SECONDS = 60

LEARNER = """\
from stable_baselines3 import PPO
import trio_cogment.rl as tc

env = tc.make("CartPole-v1", store="sqlite:trials.db")            # a gymnasium.Env; every episode is a stored trial
PPO("MlpPolicy", env).learn(20_000)                               # anybody's loop, unchanged
env.close()
"""

GAME = """
game = tc.make_parallel("rps_v2", store="sqlite:trials.db",
                        seats={"player_1": tc.human(port=8080)})  # or tc.random()
observations, infos = game.reset(seed=1)                          # a pettingzoo.ParallelEnv with my agent
while game.agents:
    observations, rewards, ended, cut, infos = game.step({"player_0": game.action_space("player_0").sample()})
game.close()
"""

EXPORT = """
tc.export("sqlite:trials.db", parquet="data/", minari="rps/duel-v0")
"""

#: Instead of the learner: random actions.
PLAIN = """
import trio_cogment.rl as tc

env = tc.make("CartPole-v1", store="sqlite:trials.db")
env.reset()
for _ in range(100):
    *_, terminated, truncated, _ = env.step(env.action_space.sample())
    if terminated or truncated:
        env.reset()
env.close()
"""

PERSON = """
import sys, trio
from trio_cogment import connect
from trio_cogment.base.errors import RpcError
import trio_cogment.rl as tc

async def main():
    rock = tc.policy(lambda value: 0).actor(tc.SeatContext("rps_v2", "player_1"))
    while True:
        try:
            async with connect(sys.argv[1], spec=tc.RL_SPEC) as client:
                await tc.join_trials(client, "player_1", rock)
        except RpcError:
            await trio.sleep(0.05)  # the game has not been opened yet

trio.run(main)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def run(program: str, folder: Path, *options: str) -> str:
    """Run a program in a folder, with a person who plays rock; return what it wrote to its standard error."""
    port = free_port()
    program = program.replace("8080", str(port))
    environment = os.environ | {"MINARI_DATASETS_PATH": str(folder / "minari")}
    person = subprocess.Popen([sys.executable, "-c", PERSON, f"grpc://127.0.0.1:{port}"])
    try:
        command = [sys.executable, *options, "-c", program]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
    finally:
        person.send_signal(signal.SIGKILL)
        person.wait(PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stderr


def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """See that both actors of the game are in the data sets; return the episodes of the other environment."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
    trials = parquet.read_table(folder / "data" / "meta" / "trials.parquet").to_pylist()
    assert {trial["environment"] for trial in trials} == {"CartPole-v1", "rps_v2"}
    together, one, other = (
        minari.load_dataset(f"rps/rps_v2/{name}-v0") for name in ("duel", "duel-player_0", "duel-player_1")
    )
    (joint,), (mine,), (persons,) = together, one, other
    assert (joint.actions["player_1"] == 0).all()
    assert (persons.actions == 0).all()
    assert (joint.actions["player_0"] == mine.actions).all()
    assert len(mine.actions) == 15
    return int(minari.load_dataset("rps/CartPole-v1/duel-v0").total_episodes)


def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(PLAIN + GAME + EXPORT, tmp_path, "-W", "error") == ""
    assert check(tmp_path, monkeypatch) > 1
