"""Lines of workers on standard output: one JSON object each, as steps, episodes and events. Pure.

Which keys are read is what the published proxy reads, and what its workers write. Whatever is no such line is skipped
by whoever calls `parse_line`: workers print other things, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStep

#: What is longer is not a name of a model; what is larger is not a version of a registry.
_MOST_CHARACTERS, _MOST_VERSIONS = 256, 2**32
#: As `json.dumps` with separators, which makes an encoder each time.
_compact = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Event:
    """Something in a worker's life: `run_started`, `run_completed`, `run_failed`, `heartbeat`, `checkpoint_saved`, ...

    Attributes:
        name: which.
        payload: what else is said.
    """

    name: str
    payload: Mapping[str, Any]

    @property
    def error(self) -> str:
        """What went wrong, where the payload says so."""
        found = next((self.payload[name] for name in ("error", "reason", "message") if name in self.payload), "")
        return found if isinstance(found, str) else json.dumps(found)

    @property
    def checkpoint(self) -> str:
        """The version of a model that was saved, as `model@version`; empty: it does not say.

        It is told by `model` and `version`, or by `model_id` and `version_number`, the names that a registry has.
        """
        model = self.payload.get("model", self.payload.get("model_id"))
        version = self.payload.get("version", self.payload.get("version_number"))
        if not isinstance(model, str) or not 0 < len(model) <= _MOST_CHARACTERS or not model.isprintable():
            return ""
        if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < _MOST_VERSIONS:
            return ""
        return f"{model}@{version}"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A record of the worker's own log (`LOG123 | text | extra={...}`)."""

    text: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose output it is.

    Attributes:
        run_id: of which run.
        worker_id: of which worker; empty: its lines say so.
        agent_id: for lines without one.
    """

    run_id: str
    worker_id: str = ""
    agent_id: str = ""


Line: TypeAlias = RunStep | RunEpisode | Event | LogLine


def parse_line(line: bytes, origin: Origin) -> Line | None:
    """Return what a line says; None: nothing that is known."""
    text = line.strip()
    if not text.startswith(b"{"):
        return _log_line(text)
    try:
        found = json.loads(text)
        kind = found.get("type")
        if isinstance(kind, str):
            if kind.lower() == "step":
                return _step(found, origin)
            if kind.lower() in ("episode", "episode_end"):
                return _episode(found, origin)
        elif isinstance(found.get("event"), str):
            payload = found.get("payload")
            return Event(found["event"], payload if isinstance(payload, dict) else {})
    except (ValueError, TypeError, OverflowError, RecursionError):
        pass  # no JSON, or a value that has no place in the message
    return None


def _log_line(text: bytes) -> LogLine | None:
    name, bar, rest = text.partition(b" | ")
    if bar and name.startswith(b"LOG") and name[3:].isdigit():
        return LogLine(rest.partition(b" | extra=")[0].decode(errors="replace"))
    return None


def _step(found: Mapping[str, Any], origin: Origin) -> RunStep:
    step = RunStep(
        run_id=origin.run_id,
        episode_index=_episode_index(found),
        step_index=_integer(_first(found, "step_index", "step")),
        action_json=_json(_first(found, "action_json", "action")),
        observation_json=_json(_first(found, "observation_json", "observation")),
        reward=_number(found.get("reward")),
        terminated=bool(found.get("terminated")),
        truncated=bool(found.get("truncated")),
        policy_label=_text(found.get("policy_label")),
        backend=_text(found.get("backend")),
        frame_ref=_text(found.get("frame_ref")),
        payload_version=_integer(found.get("payload_version")),
        episode_seed=_integer(found.get("episode_seed")),
        agent_id=_text(found.get("agent_id")) or origin.agent_id,
        render_hint_json=_json(_first(found, "render_hint_json", "render")),
        render_payload_json=_json(_first(found, "render_payload_json", "render_payload")),
        worker_id=origin.worker_id or _text(found.get("worker_id")),
    )
    _stamp(step, found)
    return step


def _episode(found: Mapping[str, Any], origin: Origin) -> RunEpisode:
    episode = RunEpisode(
        run_id=origin.run_id,
        episode_index=_episode_index(found),
        total_reward=_number(_first(found, "total_reward", "reward", "episode_return")),
        steps=_integer(_first(found, "steps", "episode_steps")),
        terminated=bool(found.get("terminated")),
        truncated=bool(found.get("truncated")),
        metadata_json=_json(_first(found, "metadata_json", "metadata")),
        agent_id=_text(found.get("agent_id")) or origin.agent_id,
        worker_id=origin.worker_id or _text(found.get("worker_id")),
    )
    _stamp(episode, found)
    return episode


def _first(found: Mapping[str, Any], name: str, *others: str) -> Any:
    value = found.get(name)
    for other in others:  # a loop, and no `next`: this is several times per line
        if value is not None:
            break
        value = found.get(other)
    return value


def _episode_index(found: Mapping[str, Any]) -> int:
    for name in ("metadata", "metadata_json"):
        metadata = found.get(name)
        if metadata is None:
            continue
        if isinstance(metadata, str):
            metadata = _loaded(metadata)
        if isinstance(metadata, dict) and metadata.get("episode_index") is not None:
            return _integer(metadata["episode_index"])
    return _integer(_first(found, "episode", "episode_index"))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"expected an integer, got {value}")
    return 0 if value is None else int(value)


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _json(value: Any) -> str:
    """Return JSON: a text is some already."""
    if isinstance(value, str):
        return value
    return "" if value is None else _compact(value)


def _stamp(message: RunStep | RunEpisode, found: Mapping[str, Any]) -> None:
    if found.get("ts_unix_ns") is not None:
        message.timestamp.FromNanoseconds(_integer(found["ts_unix_ns"]))
