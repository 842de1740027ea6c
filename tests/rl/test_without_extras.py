"""The package without extras: the extra that is needed is named, and not the first of several."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trio_cogment.base.errors import MissingExtraError

#: Finds no package that an extra brings.
BARE = """
import sys
class Missing:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("numpy", "gymnasium", "pettingzoo", "pyarrow", "dm_env"):
            raise ModuleNotFoundError(name, name=name.partition(".")[0])
sys.meta_path.insert(0, Missing())
"""


def said(code: str) -> str:
    command = [sys.executable, "-c", BARE + code]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from trio_cogment import rl; rl.make", "gym"),
        ("from trio_cogment.rl import make_parallel", "pettingzoo"),
        ("from trio_cogment.rl import export", "export"),
        ("from trio_cogment.rl import replay_environment", "export"),
        ("from trio_cogment.rl import serve_openenv", "openenv"),
        ("from trio_cogment.rl import random", "arrays"),
        ("from trio_cogment.gateways.dm_env_rpc import open_connection", "arrays"),
        ("from trio_cogment.gateways.dm_env_rpc import DmEnvRpcEnvironment", "dm-env"),
    ],
)
def test_the_error_names_the_extra(code: str, extra: str) -> None:
    assert said(code).endswith(f"MissingExtraError: {MissingExtraError.of('numpy', extra)}")


def test_workers_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    from trio_cogment.ray import workers
    from trio_cogment.rl import random, run_trials

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="extra 'ray' brings it"):
        run_trials(1, on=workers(1), environment="CartPole-v1", seats={"player_0": random()})


@pytest.mark.parametrize(
    ("command", "who", "extra"),
    [
        (["play", "CartPole-v1", "--port=0"], "play: ", "gym"),
        (["rl", "serve", "CartPole-v1", "--host=127.0.0.1", "--port=0"], "rl serve: ", "gym"),
        (["rl", "openenv", "CartPole-v1", "--port=0"], "rl openenv: ", "openenv"),
    ],
)
def test_a_command_says_it_in_one_line(command: list[str], who: str, extra: str) -> None:
    text = said(f"from trio_cogment.cli.root import run; sys.exit(run({command!r}))")
    assert text == f"trio-cogment: {who}{MissingExtraError.of('numpy', extra)}"
