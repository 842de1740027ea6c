"""The published JavaScript SDK in Chromium, on a page of another port."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.interop.browser.programs import check_played, installed, lines, running

pytestmark = pytest.mark.browser

PATIENCE_SECONDS = 100


def scenario(port: str, what: str, argument: int, runs: int = 1, seconds: float = PATIENCE_SECONDS) -> list[Any]:
    command = [sys.executable, "-m", "tests.interop.browser.chromium", str(installed())]
    found = lines(*command, port, what, str(argument), str(runs), seconds=seconds)
    assert len(found) == runs
    for seen in found:
        assert seen["complaints"] == []
    return found


@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(1500)])])
def test_a_page_plays_trials(runs: int) -> None:
    with running("server") as server:
        for seen in scenario(server.port, "play", 20, runs, seconds=100 + 5 * runs):
            check_played(seen, 20)
    trials = json.loads(server.output)
    assert len(trials) == runs
    assert [trial["details"] for trial in trials] == [None] * runs


def test_a_refused_join_throws() -> None:
    with running("server") as server:
        [seen] = scenario(server.port, "refused", 0)
    assert seen["error"] == "initialData not received"
    assert seen["seconds"] < 1


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.soak)])
def test_a_page_watches_trials(seconds: int) -> None:
    with running("server") as server:
        [seen] = scenario(server.port, "watch", seconds, seconds=PATIENCE_SECONDS + seconds)
    assert seen["early"] is False
    assert seen["seen"]
