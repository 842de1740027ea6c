"""`trio-cogment rl serve` as a process, and what it says of what cannot be served."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, run_main, server
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.platform import open_platform
from trio_cogment.rl import RL_SPEC
from trio_cogment.sdk import ActorSession, actor_params, trial_params
from trio_cogment.spaces import decode_observation, encode_action

MODULE = """
import gymnasium


def make(size=4):
    return gymnasium.make("FrozenLake-v1", map_name=f"{size}x{size}")
"""


@pytest.mark.parametrize(
    ("arguments", "config", "space"),
    [
        (["CartPole-v1"], EnvironmentConfig(seed=1), "Discrete(2)"),
        (["lake_of_mine:make", "--argument", "size=8", "--hosting", "process"], EnvironmentConfig(), "Discrete(4)"),
        (["--hosting", "thread"], EnvironmentConfig(id="CartPole-v1"), "Discrete(2)"),
    ],
)
async def test_an_environment_is_served(
    arguments: list[str], config: EnvironmentConfig, space: str, tmp_path: Path
) -> None:
    (tmp_path / "lake_of_mine.py").write_text(MODULE)
    spaces: list[str] = []
    ends: list[bool] = []

    async def player(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                observation = decode_observation(event.observation.payload)
                if observation.action_space is not None:
                    spaces.append(repr(observation.action_space))
                ends.append(observation.terminated or observation.truncated)
                if observation.active:
                    await session.do_action(encode_action(1))

    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server("rl", "serve", *arguments, "--host", "127.0.0.1", "--port", "0", folder=tmp_path) as process,
            open_platform(RL_SPEC) as platform,
        ):
            platform.participants.register_actor(player, "player")
            params = trial_params(
                [actor_params("player_0", "player", implementation="player")],
                environment_endpoint=f"grpc://127.0.0.1:{process.port}",
                environment_config=config,
            )
            await platform.controller.wait_trial(await platform.controller.start_trial(params))
    assert spaces == [space]
    assert ends[-1]
    assert not any(ends[:-1])


@pytest.mark.parametrize("hosting", ["inline", "thread", "process"])
@pytest.mark.parametrize("command", ["serve", "openenv"])
def test_an_environment_that_cannot_be_made(
    command: str, hosting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_lake_{command}_{hosting}"
    (tmp_path / f"{name}.py").write_text("def make(size=4):\n    raise RuntimeError(f'no lake of {size}')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    done = run_main("rl", command, f"{name}:make", "--argument=size=3", f"--hosting={hosting}", "--port=0")
    assert done.code == 1
    *printed, last = done.err.splitlines()
    assert last == f"trio-cogment: rl {command}: environment 'make': RuntimeError: no lake of 3"
    assert printed[0 if hosting != "process" else 1] == "Traceback (most recent call last):"
    assert printed[-1] == "RuntimeError: no lake of 3"
    if hosting != "process":
        assert f'File "{tmp_path}' in printed[1], "from the user's first frame on"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["CartPole-v99"], "rl serve: environment 'CartPole-v99': Environment version"),
        (["os:sep"], "rl serve: environment '/': Malformed environment ID: /."),
        (["json:JSONDecoder"], "expected an id, an environment of Gymnasium, PettingZoo or dm_env, or a function that"),
        (["no_such_module:make"], "rl serve: there is no module 'no_such_module' in"),
        (["CartPole-v1", "--argument", "size"], "--argument: expected NAME=VALUE, got 'size'"),
        (["CartPole-v1", "--hosting", "moon"], "--hosting: 'moon' is not one of 'inline', 'thread', 'process'."),
    ],
)
def test_what_cannot_be_served(arguments: list[str], text: str) -> None:
    done = run_main("rl", "serve", "--port", "0", *arguments)
    assert done.code == 1
    assert text in done.err
    assert len(done.err.splitlines()) == 1
