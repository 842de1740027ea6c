"""Trials as episodes of the real verifiers, whose model is scripted."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trio_cogment.rl as tc
from tests.rl_peers.verifiers_episode import PLUGINS, play, scripted_model

pytestmark = [
    pytest.mark.rl_peers,
    pytest.mark.timeout(600),  # half of the field is imported
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rl-language-models.md"
GAME = "textarena/KuhnPoker-v0"
CHECKS = dict.fromkeys(("player_0", "player_1"), ["[check]"] * 3)


def traces_of(episode: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(episode["traces"], key=lambda trace: str(trace["agent"]["name"]))


def test_episodes_at_the_same_time(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'trials.db'}"
    episodes = play(GAME, store, CHECKS, range(4))
    assert [episode["ok"] for episode in episodes] == [True] * 4
    assert [episode["task"]["data"]["seed"] for episode in episodes] == [0, 1, 2, 3]
    assert len({json.dumps(traces_of(episode)[0]["nodes"][1]["message"]) for episode in episodes}) > 1
    for episode in episodes:
        one, two = traces_of(episode)
        assert (one["stop_condition"], one["errors"]) == ("user_closed", [])
        assert one["rewards"]["game"]["score"] == -two["rewards"]["game"]["score"] != 0
        assert one["info"]["trial"]["trial_id"] == two["info"]["trial"]["trial_id"]
    assert tc.export(store, chat=tmp_path / "chats").trials == 4


def test_a_limit_of_turns_ends_the_trial(tmp_path: Path) -> None:
    (episode,) = play(GAME, "memory:", CHECKS, [1], max_turns=2)
    one, two = traces_of(episode)
    left = [trace["info"]["trial"]["left"] for trace in (one, two)]
    assert sorted(left) == ["", "the agent's run ended before the game"]
    assert {trace["rewards"]["game"]["score"] for trace in (one, two)} == {0.0}
    assert episode["ok"]
    assert not one["info"]["trial"]["terminated"]


def test_a_model_that_fails_is_its_trace_s_error() -> None:
    (episode,) = play(GAME, "memory:", {"player_0": ["[check]"] * 3, "player_1": ["[check]"]}, [1])
    assert not episode["ok"]
    assert any(trace["errors"] for trace in episode["traces"])


def test_what_the_documentation_shows(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(r"```python\n(# duel\.py\n.*?)```", page, re.DOTALL)
    command = re.search(r"^\$ PYTHONPATH=\. (vf-eval .*)$", page, re.MULTILINE)
    assert found is not None
    assert command is not None
    (tmp_path / "duel.py").write_text(found[1], encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(PLUGINS)])
    with scripted_model(CHECKS) as url:
        shown = shlex.split(command[1])
        shown[shown.index("--client.base-url") + 1] = url
        program = Path(sys.executable).with_name(shown[0])
        # So that nothing is downloaded, and no account is asked for.
        harness = [word for agent in CHECKS for word in (f"--env.{agent}.harness.id", "scripted_harness")]
        done = subprocess.run(
            [str(program), *shown[1:], *harness, "--client.api-key-var", "SCRIPTED_KEY", "--no-rich", "-o", "runs"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "SCRIPTED_KEY": "none"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "runs").rglob("traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(episodes) == 2, done.stdout + done.stderr
    assert tc.export(f"sqlite:{tmp_path / 'duel.db'}", chat=tmp_path / "chats").trials == 2
