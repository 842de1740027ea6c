"""The guide's code runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.gateways.dm_env_rpc.servers import served, serving
from trio_cogment.gateways.dm_env_rpc import State, open_connection

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "dm-env-rpc.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == GUIDE.count("```") // 2 == 4
    for block in blocks:
        exec(block, found)
    return found


async def test_the_client(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    async with served() as (url, server, _):
        assert abs(await names["play"](url)) == 0.1
        assert capsys.readouterr().out == "['paddle'] ['board', 'ball.column', 'reward']\n"
        assert server.worlds == {}
        async with open_connection(url) as connection:
            await connection.join_world(await connection.create_world())
            steps = await names["open_loop"](connection, [{"paddle": 0}] * 3)
            assert [step.state for step in steps] == [State.RUNNING] * 3


def test_the_environment_of_dm_env(names: dict[str, Any]) -> None:
    with serving() as (url, _):
        assert abs(names["score"](url)) == 0.1


def test_the_bridge(names: dict[str, Any]) -> None:
    assert names["participants_of"]("grpc://localhost:1").offers
