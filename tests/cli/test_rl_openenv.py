"""`trio-cogment rl openenv` as a process, and what it says of what cannot be served."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, run_main, server

MODULE = """
import gymnasium


def make(size=4):
    return gymnasium.make("FrozenLake-v1", map_name=f"{size}x{size}")


def choose(observation):
    return 1
"""


async def test_a_seat_is_served(tmp_path: Path) -> None:
    (tmp_path / "lake_of_mine.py").write_text(MODULE)
    arguments = ["lake_of_mine:make", "--argument", "size=8", "--port", "0", "--max-sockets", "1"]
    with trio.fail_after(PATIENCE_SECONDS):
        async with server("rl", "openenv", *arguments, folder=tmp_path) as process:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{process.port}") as client:
                assert (await client.post("/reset", json={"seed": 1})).json()["observation"]["value"] == 0
                assert (await client.get("/schema")).json()["observation"]["properties"]["value"]["maximum"] == 63
            process.process.terminate()
            assert await process.process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["CartPole-v99"], "rl openenv: environment 'CartPole-v99': Environment version"),
        (["no_such_module:make"], "rl openenv: there is no module 'no_such_module' in"),
        (["CartPole-v1", "--seat", "player_0"], "--seat: expected NAME=WHO, got 'player_0'"),
        (["CartPole-v1", "--seat", "player_0=ann"], "expected random, MODULE:FUNCTION or grpc://host:port, got 'ann'"),
        (["CartPole-v1", "--seat", "player_1=random"], "seats: expected agents of 'player_0'; got 'player_1'"),
        (["CartPole-v1", "--store", "moon:"], "rl openenv: "),
    ],
)
def test_what_cannot_be_served(arguments: list[str], text: str) -> None:
    done = run_main("rl", "openenv", "--port", "0", *arguments)
    assert done.code == 1
    assert text in done.err
