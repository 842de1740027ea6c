"""`trio-cogment rl openenv` as a process, and what it says of what cannot be served."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import httpx
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, run, run_main, server
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.cli.rl.openenv import openenv
from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.services.start import Application

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
            assert await process.trials() == "not stored (--store=sqlite:FILE stores them)"
            process.process.terminate()
            assert await process.process.wait() == 0


async def test_the_start_says_where_trials_are(tmp_path: Path) -> None:
    (tmp_path / "lake_of_mine.py").write_text(MODULE)
    arguments = ["lake_of_mine:make", "--port=0", "--store=sqlite:own.db"]
    async with server("rl", "openenv", *arguments, folder=tmp_path) as process:
        assert await process.trials() == f"{tmp_path}/own.db"


def test_the_file_has_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[ServerSettings, Application]] = []
    monkeypatch.setattr("trio_cogment.cli.rl.openenv.run_server", lambda *given: found.append(given))
    path = tmp_path / "config.yaml"
    path.write_text(
        "port: 0\nseat: [player_0=random]\nargument: size=8\nstore: 'memory:'\n"
        "openenv: {max_sockets: 3, idle_seconds: 5, send_seconds: 7}\norchestrator: {max_ended_trials: 7}\n"
    )
    for flags, sockets in (((), 3), (("--max_sockets=2",), 2)):
        openenv.main(["CartPole-v1", f"--config={path}", *flags], standalone_mode=False)
        settings, application = found.pop()
        configuration = settings.configuration
        assert configuration.openenv == OpenEnvConfig(max_sockets=sockets, idle_seconds=5, send_seconds=7)
        assert (list(application.ports), list(settings.hosts)) == ([0], ["127.0.0.1"])
        assert configuration.orchestrator.max_ended_trials == 7
        assert configuration.web.body_timeout_seconds == configuration.web.write_stall_timeout_seconds == 7
        assert application.open.args[0].seats == (("player_0", "random"),)  # type: ignore[attr-defined]  # a partial


def commands_with_tokens() -> list[list[str]]:
    """Return the commands of docs/rl-openenv.md that start a server with tokens, without the name of the program."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "rl-openenv.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```console\n(\$ trio-cogment token .*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ trio-cogment ") for line in block.splitlines()]
    return [shlex.split(line) for line in lines]


async def test_tokens_and_origins(tmp_path: Path) -> None:
    """The commands of the guide, with the same flags as at every other server of the project."""
    init, make, (*serve, host) = commands_with_tokens()
    assert host == "--host=0.0.0.0"
    assert (await run(*init, folder=tmp_path)).code == 0
    token = (await run(*make, folder=tmp_path)).out.split()[-1]
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*serve, "--port=0", "--web_allow_origin=https://lab.example", folder=tmp_path) as process,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{process.port}") as client,
        ):
            assert (await client.post("/reset", json={})).status_code == 401
            assert (await client.get("/health")).status_code == 200
            for origin, status in (("https://lab.example", 200), ("https://evil.example", 403)):
                fields = {"authorization": f"Bearer {token}", "origin": origin}
                assert (await client.post("/reset", json={}, headers=fields)).status_code == status
            assert (await client.post(f"/~{token}/reset", json={})).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["CartPole-v99"], "rl openenv: environment 'CartPole-v99': Environment version"),
        (["no_such_module:make"], "rl openenv: there is no module 'no_such_module' in"),
        (["CartPole-v1", "--seat", "player_0"], "--seat: expected NAME=WHO, got 'player_0'"),
        (["CartPole-v1", "--seat", "player_0=ann"], "expected random, MODULE:FUNCTION or grpc://host:port, got 'ann'"),
        (["CartPole-v1", "--seat", "player_1=random"], "seats: expected agents of 'player_0'; got 'player_1'"),
        (
            ["CartPole-v1", "--store", "moon:"],
            "rl openenv: storage: expected 'memory:', 'sqlite:PATH', 'postgresql://...', got",
        ),
        (["CartPole-v1", "--host", "192.0.2.1"], "cannot listen on ipv4:192.0.2.1:0: Cannot assign"),
    ],
)
def test_what_cannot_be_served(arguments: list[str], text: str) -> None:
    done = run_main("rl", "openenv", "--port", "0", *arguments)
    assert done.code == 1
    assert text in done.err
    assert len(done.err.splitlines()) == 1
