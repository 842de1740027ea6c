"""`trio-cogment rl openenv` as a process, and what it says of what cannot be served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, run_main, server
from trio_cogment.cli.configuration import Configuration
from trio_cogment.cli.rl.openenv import openenv
from trio_cogment.config import OpenEnvConfig

MODULE = """
import gymnasium


def make(size=4):
    return gymnasium.make("FrozenLake-v1", map_name=f"{size}x{size}")


def choose(observation):
    return 1
"""


async def test_a_seat_is_served(tmp_path: Path) -> None:
    (tmp_path / "lake_of_mine.py").write_text(MODULE)
    arguments = ["lake_of_mine:make", "--argument", "size=8", "--port", "0", "--max_sockets", "1"]
    with trio.fail_after(PATIENCE_SECONDS):
        async with server("rl", "openenv", *arguments, folder=tmp_path) as process:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{process.port}") as client:
                assert (await client.post("/reset", json={"seed": 1})).json()["observation"]["value"] == 0
                assert (await client.get("/schema")).json()["observation"]["properties"]["value"]["maximum"] == 63
            process.process.terminate()
            assert await process.process.wait() == 0


def test_the_file_has_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[Any, Configuration, str | None]] = []
    monkeypatch.setattr(trio, "run", lambda _serve, run, *others: found.append((run, *others[:2])))
    monkeypatch.setattr("trio_cogment.cli.rl.openenv.set_up_logging", lambda _settings: None)
    path = tmp_path / "config.yaml"
    path.write_text(
        "port: 0\nseat: [player_0=random]\nargument: size=8\nstore: 'memory:'\n"
        "openenv: {max_sockets: 3, idle_seconds: 5}\norchestrator: {max_ended_trials: 7}\n"
    )
    for flags, sockets in (((), 3), (("--max_sockets=2",), 2)):
        openenv.main(["CartPole-v1", f"--config={path}", *flags], standalone_mode=False)
        run, configuration, store = found.pop()
        assert run.keywords["config"] == OpenEnvConfig(max_sockets=sockets, idle_seconds=5)
        assert (run.keywords["port"], run.keywords["arguments"]) == (0, {"size": 8})
        assert list(run.keywords["seats"]) == ["player_0"]
        assert (store, configuration.orchestrator.max_ended_trials) == ("memory:", 7)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["CartPole-v99"], "rl openenv: environment 'CartPole-v99': Environment version"),
        (["no_such_module:make"], "rl openenv: there is no module 'no_such_module' in"),
        (["CartPole-v1", "--seat", "player_0"], "--seat: expected NAME=WHO, got 'player_0'"),
        (["CartPole-v1", "--seat", "player_0=ann"], "expected random, MODULE:FUNCTION or grpc://host:port, got 'ann'"),
        (["CartPole-v1", "--seat", "player_1=random"], "seats: expected agents of 'player_0'; got 'player_1'"),
        (["CartPole-v1", "--store", "moon:"], "rl openenv: storage: expected 'memory:', 'sqlite:PATH', got"),
        (["CartPole-v1", "--host", "192.0.2.1"], "rl openenv: cannot listen on 192.0.2.1:0: Cannot assign"),
    ],
)
def test_what_cannot_be_served(arguments: list[str], text: str) -> None:
    done = run_main("rl", "openenv", "--port", "0", *arguments)
    assert done.code == 1
    assert text in done.err
    assert len(done.err.splitlines()) == 1
