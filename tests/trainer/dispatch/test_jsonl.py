"""Lines of workers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStep
from trio_cogment.trainer.dispatch.jsonl import Event, LogLine, Origin, parse_line

ORIGIN = Origin("r", agent_id="a")


def parsed(origin: Origin = ORIGIN, **found: Any) -> Any:
    return parse_line(json.dumps(found).encode(), origin)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"metadata": {"episode_index": 3}, "episode": 4}, {"episode_index": 3}),
        ({"metadata_json": '{"episode_index": 3}', "episode": 4}, {"episode_index": 3}),
        ({"metadata_json": "{", "episode": 4}, {"episode_index": 4}),
        ({"episode": 4, "episode_index": 5}, {"episode_index": 4}),
        ({"episode_index": 5}, {"episode_index": 5}),
        ({"step_index": 7, "step": 8}, {"step_index": 7}),
        ({"step": 8}, {"step_index": 8}),
        ({"action": [1, 2]}, {"action_json": "[1,2]"}),
        ({"action": 0}, {"action_json": "0"}),
        ({"action_json": "[3]", "action": 0}, {"action_json": "[3]"}),
        ({"action": "left"}, {"action_json": "left"}),
        ({"observation": {"x": 1}}, {"observation_json": '{"x":1}'}),
        ({"reward": 1.5, "terminated": True, "truncated": 1}, {"reward": 1.5, "terminated": True, "truncated": True}),
        ({"policy_label": "p", "backend": "b"}, {"policy_label": "p", "backend": "b"}),
        ({"frame_ref": "f"}, {"frame_ref": "f"}),
        ({"payload_version": 2, "episode_seed": 9}, {"payload_version": 2, "episode_seed": 9}),
        ({"agent_id": "z"}, {"agent_id": "z"}),
        ({"render": {"w": 1}}, {"render_hint_json": '{"w":1}'}),
        ({"render_payload": [1]}, {"render_payload_json": "[1]"}),
        ({"worker_id": "w1"}, {"worker_id": "w1"}),
        ({"type": "STEP"}, {}),
    ],
)  # fmt: skip
def test_step(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert parsed(**{"type": "step", **given}) == RunStep(run_id="r", **{"agent_id": "a", **expected})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"total_reward": 2, "reward": 3}, {"total_reward": 2}),
        ({"reward": 3}, {"total_reward": 3}),
        ({"type": "episode_end", "episode_return": 4, "episode_steps": 5}, {"total_reward": 4, "steps": 5}),
        ({"steps": 6, "terminated": True}, {"steps": 6, "terminated": True}),
        ({"metadata": {"episode_index": 2}}, {"metadata_json": '{"episode_index":2}', "episode_index": 2}),
        ({"metadata_json": "{}", "truncated": True}, {"metadata_json": "{}", "truncated": True}),
        ({"worker_id": "w1", "agent_id": "z"}, {"worker_id": "w1", "agent_id": "z"}),
    ],
)
def test_episode(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert parsed(**{"type": "episode", **given}) == RunEpisode(run_id="r", **{"agent_id": "a", **expected})


def test_the_workers_own_name_comes_before_that_of_the_line() -> None:
    assert parsed(Origin("r", worker_id="w"), type="step", worker_id="x").worker_id == "w"


def test_the_time_of_a_line() -> None:
    assert parsed(type="step", ts_unix_ns=1_500_000_000).timestamp.ToNanoseconds() == 1_500_000_000


def test_events_and_log_lines() -> None:
    assert parsed(event="run_failed", payload={"error": "no memory"}) == Event("run_failed", {"error": "no memory"})
    assert Event("run_failed", {"error": "no memory"}).error == "no memory"
    assert Event("run_failed", {"reason": {"a": 1}}).error == '{"a": 1}'
    assert Event("run_failed", {}).error == ""
    assert parsed(event="heartbeat") == Event("heartbeat", {})
    assert parse_line(b'LOG123 | hello | extra={"a": 1}\n', ORIGIN) == LogLine("hello")


@pytest.mark.parametrize(
    ("payload", "checkpoint"),
    [
        ({"model": "walker", "version": 3}, "walker@3"),
        ({"model_id": "walker", "version_number": 1, "path": "a.npz"}, "walker@1"),
        ({"path": "a.npz"}, ""),
        ({"model": "walker"}, ""),
        ({"model": "walker", "version": 0}, ""),
        ({"model": "walker", "version": True}, ""),
        ({"model": "walker", "version": "3"}, ""),
        ({"model": "walker", "version": 2**32}, ""),
        ({"model": "", "version": 3}, ""),
        ({"model": ["walker"], "version": 3}, ""),
        ({"model": "w" * 257, "version": 3}, ""),
        ({"model": "\ud800", "version": 3}, ""),
    ],
)
def test_a_checkpoint_is_a_version_of_a_model(payload: dict[str, Any], checkpoint: str) -> None:
    event = parsed(event="checkpoint_saved", payload=payload)
    assert isinstance(event, Event)
    assert event.checkpoint == checkpoint


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"LOGIN | now",
        b"[1]",
        b"{",
        b"{}",
        b'{"type": "other"}',
        b'{"type": 3}',
        b'{"event": 3}',
        b'{"type": "step", "step": -1}',
        b'{"type": "step", "step": 1.5}',
        b'{"type": "step", "step": NaN}',
        b'{"type": "step", "step": 1e400}',
        b'{"type": "step", "step": "one"}',
        b'{"type": "step", "reward": []}',
        b'{"type": "step", "step": 18446744073709551616}',
        b'{"type": "step", "payload_version": 4294967296}',
        b'{"type": "step", "agent_id": "\\ud800"}',
        b'{"type": "step", "ts_unix_ns": 1e30}',
        b'{"type": "step\xff"}',
        b'{"a":' * 5000,
    ],
)
def test_what_says_nothing(line: bytes) -> None:
    assert parse_line(line, ORIGIN) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(["episode", "metadata", "step", "action", "reward", "agent_id", "ts_unix_ns", "worker_id"])


@given(st.sampled_from(["step", "episode", "x"]), st.dictionaries(_KEYS, _JSON))
def test_no_line_is_an_error(kind: str, found: dict[str, Any]) -> None:
    line = parse_line(json.dumps({"type": kind, **found}).encode(), ORIGIN)
    assert line is None or (isinstance(line, RunStep | RunEpisode) and line.run_id == "r")
