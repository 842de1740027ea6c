"""The published JavaScript SDK and the official client of gRPC-Web, in Node.js, against the web side of a port."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.browser.programs import HERE, NODE, check_played, installed, lines, running

pytestmark = pytest.mark.javascript

PATIENCE_SECONDS = 60


def command(folder: Path, address: str, what: str, argument: int) -> list[str]:
    shutil.copy(installed() / "package" / "dist" / "cogment.js", folder / "cogment.cjs")
    (folder / "program.mjs").write_text(NODE)
    program = [str(folder / "program.mjs"), str(HERE / "scenario.js"), what, address, str(argument)]
    return ["node", "--experimental-websocket", *program]


def scenario(folder: Path, address: str, what: str, argument: int) -> dict[str, object]:
    [seen] = lines(*command(folder, address, what, argument), seconds=PATIENCE_SECONDS)
    return seen


def test_the_sdk_plays_a_trial(tmp_path: Path) -> None:
    with running("server") as server:
        check_played(scenario(tmp_path, server.port, "play", 20), 20)


def test_the_sdk_brings_a_token_in_the_path(tmp_path: Path) -> None:
    with running("server", "--tokens") as server:
        token = server.line().strip()
        check_played(scenario(tmp_path, f"{server.port}/~{token}", "play", 3), 3)
        refused = subprocess.run(command(tmp_path, server.port, "play", 3), capture_output=True, text=True, check=False)
    assert "Bearer TOKEN" in refused.stderr


def test_a_refused_join_throws(tmp_path: Path) -> None:
    with running("server") as server:
        seen = scenario(tmp_path, server.port, "refused", 5)
    assert seen["error"] == "initialData not received"
    assert isinstance(seen["seconds"], float)
    assert seen["seconds"] < 1


def test_the_sdk_watches_trials(tmp_path: Path) -> None:
    with running("server") as server:
        seen = scenario(tmp_path, server.port, "watch", 2)
    assert seen["early"] is False
    assert seen["seen"]


def test_the_official_client() -> None:
    with running("check_server") as server:
        [seen] = lines("node", str(HERE / "grpc_web.mjs"), str(installed()), server.port, seconds=PATIENCE_SECONDS)
    for form in ("text", "binary"):
        found = seen[form]
        assert found["unary"] == {"reply": [8, 5]}
        assert found["missing"]["code"] == 12
        assert "not implemented" in found["missing"]["message"]
        assert found["stream"] == {"messages": 300, "status": 0}
        assert found["cut"] == {"messages": 3, "code": 10, "message": "cut off"}
