"""The published JavaScript SDK in Chromium, on a page of another port."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.interop.browser.programs import check_played, installed, lines, running

pytestmark = pytest.mark.browser

PATIENCE_SECONDS = 100


def scenario(address: str, what: str, argument: int, runs: int = 1, seconds: float = PATIENCE_SECONDS) -> list[Any]:
    command = [sys.executable, "-m", "tests.interop.browser.chromium", str(installed())]
    found = lines(*command, address, what, str(argument), str(runs), seconds=seconds)
    assert len(found) == runs
    for seen in found:
        assert seen["complaints"] == []
    return found


def check_trials(output: str, runs: int) -> None:
    trials = json.loads(output)
    assert len(trials) == runs
    assert [trial["details"] for trial in trials] == [None] * runs


@pytest.mark.timeout(300)
def test_a_page_plays_trials_while_another_watches() -> None:
    """None of 20 runs is lost, and the watch of the other page lives for a minute."""
    runs, seconds = 20, 60
    with running("server") as server, ThreadPoolExecutor(1) as others:
        watching = others.submit(scenario, server.port, "watch", seconds, 1, PATIENCE_SECONDS + seconds)
        for seen in scenario(server.port, "play", 20, runs, seconds=100 + 5 * runs):
            check_played(seen, 20)
        [watched] = watching.result()
    assert watched["early"] is False
    assert watched["seen"]
    # The trial that was watched at the end had nobody in it, and so no environment.
    check_trials(server.output, runs)


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_a_page_plays_many_trials() -> None:
    runs = 200
    with running("server") as server:
        for seen in scenario(server.port, "play", 20, runs, seconds=100 + 5 * runs):
            check_played(seen, 20)
    check_trials(server.output, runs)


def test_a_page_brings_a_token_in_the_path() -> None:
    with running("server", "--tokens") as server:
        [seen] = scenario(f"{server.port}/~{server.line().strip()}", "play", 3)
    check_played(seen, 3)
    check_trials(server.output, 1)


def test_a_refused_join_throws() -> None:
    with running("server") as server:
        [seen] = scenario(server.port, "refused", 5)
    assert seen["error"] == "initialData not received"
    assert seen["seconds"] < 1
