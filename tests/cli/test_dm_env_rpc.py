"""`trio-cogment dm_env_rpc probe`: a server's world is created, joined, shown and destroyed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.cli.process import run_here
from tests.gateways.dm_env_rpc.servers import GAMES, Catch, Server, served
from trio_cogment.spaces.tensor_specs import TensorSpec

CATCH = """\
actions:
  1  paddle  int8  min -1, max 1
observations:
  7  board        float32[6, 5]
  8  ball.column  int32          min 0, max 4
  9  reward       float64
"""


async def test_the_world_of_a_server_is_shown_and_destroyed() -> None:
    async with served() as (url, server, _):
        output = await run_here("dm_env_rpc", "probe", url.removeprefix("grpc://"))
        assert (output.code, output.err) == (0, "")
        assert output.out == CATCH
        assert server.log == ["create_world", "join_world", "leave_world", "destroy_world"]
        assert server.worlds == {}
        output = await run_here("dm_env_rpc", "probe", url, "--console_output=json", "--setting=options.length=3")
        found = json.loads(output.out)
        assert found["actions"] == [{"uid": 1, "name": "paddle", "dtype": "int8", "shape": [], "min": -1, "max": 1}]
        assert [entry["name"] for entry in found["observations"]] == ["board", "ball.column", "reward"]


#: Of numbers of 32 bits.
BOUNDS = np.array([[-4.8, -np.inf], [4.8, np.inf]], np.float32)


class Narrow(Catch):
    """Its numbers have 32 bits."""

    actions = (TensorSpec.of("push", "float32", (), -0.1, 0.1),)
    observations = (TensorSpec.of("seen", "float32", (2,), *BOUNDS),)


async def test_bounds_of_32_bits_have_the_digits_that_tell_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GAMES, "narrow", Narrow)
    async with served() as (url, _, _):
        output = await run_here("dm_env_rpc", "probe", url, "--setting=game=narrow")
        assert output.out == (
            "actions:\n  1  push  float32  min -0.1, max 0.1\n"
            "observations:\n  7  seen  float32[2]  min [-4.8, -Infinity], max [4.8, Infinity]\n"
        )


async def test_a_world_that_is_there_is_left_as_it_is() -> None:
    async with served() as (url, server, _):
        output = await run_here("dm_env_rpc", "probe", url, "--world=there")
        assert (output.code, output.err) == (
            1,
            f"trio-cogment: {url}: join_world: NOT_FOUND: there is no world 'there'\n",
        )
        assert server.log == ["join_world"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--setting=gam=catch"], "setting 'gam': expected one of game, seed, options.length"),
        (["--setting=game"], "--setting: expected NAME=VALUE, got 'game'"),
        (["--world=a", "--setting=game=catch"], "--setting: expected none with --world, which is created already"),
        (["--join_setting=slo=0"], "setting 'slo': expected one of slot"),
    ],
)
async def test_refusals(arguments: list[str], expected: str) -> None:
    async with served(Server()) as (url, server, _):
        output = await run_here("dm_env_rpc", "probe", url, *arguments)
        assert (output.code, output.err.count("\n")) == (1, 1)
        assert expected in output.err
        assert server.worlds == {}


async def test_an_address_that_is_none() -> None:
    output = await run_here("dm_env_rpc", "probe", "nowhere")
    assert (output.code, output.err.count("\n")) == (1, 1)
    assert "grpc://nowhere" in output.err
