"""`parse_config`: the check of a run's configuration, which tells all that is wrong with it at once. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.trainer.run_config import (
    BUILTIN_TRIALS,
    RUN_CLASSES,
    Artifacts,
    Resources,
    RunConfig,
    Schedule,
    Trials,
    is_run_id,
)

# Checks of a JSON document that find all that is wrong with it, not only the first. Pure.

#: The largest integer that all readers of JSON understand; where there is no other limit.
LARGE = 2**53 - 1
#: Of a value that is shown in an error.
_SHOWN_CHARACTERS = 60


class Missing:
    """Stands for a key that is not there."""


MISSING = Missing()


class Findings:
    """What is wrong with a document, in the order in which it was found."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, path: str, expected: str, value: object) -> None:
        """Note that a value is not what was expected."""
        self.texts.append(f"{path}: expected {expected}, got {shown(value)}")

    def text(self, path: str, value: object, least: int = 0, most: int | None = None) -> str:
        """Return a text; the empty one after noting that it is none, or of the wrong length."""
        if isinstance(value, str) and least <= len(value) and (most is None or len(value) <= most):
            return value
        length = f" of {least} to {most} characters" if most is not None else " that is not empty" if least else ""
        self.add(path, f"a text{length}", value)
        return ""

    def choice(self, path: str, value: object, *choices: str) -> str:
        """Return one of some texts; the first after noting that it is none of them."""
        if isinstance(value, str) and value in choices:
            return value
        self.add(path, f"one of {', '.join(choices)}", value)
        return choices[0]

    def integer(self, path: str, value: object, least: int, most: int) -> int:
        """Return an integer within a range; the least after noting that it is none."""
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        expected = f"an integer from {least} to {most}"
        if most == LARGE and not (isinstance(value, int) and value > most):
            expected = f"an integer, {least} or more"
        self.add(path, expected, value)
        return least

    def flag(self, path: str, value: object) -> bool:
        """Return a boolean; False after noting that it is none."""
        if isinstance(value, bool):
            return value
        self.add(path, "true or false", value)
        return False

    def texts_of(self, path: str, value: object) -> tuple[str, ...]:
        """Return a list of texts, without anything but texts, which is noted."""
        if not isinstance(value, list):
            self.add(path, "a list of texts", value)
            return ()
        return tuple(self.text(f"{path}[{number}]", item) for number, item in enumerate(value))

    def table(self, path: str, value: object) -> dict[str, Any]:
        """Return an object; an empty one after noting that it is none."""
        if isinstance(value, dict):
            return value
        self.add(path, "an object", value)
        return {}

    def record(
        self, path: str, value: object, required: tuple[str, ...], defaults: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Return the values of an object with known keys: `MISSING` for a required one that is not there."""
        found = self.table(path, value)
        known = (*required, *(defaults or {}))
        prefix = f"{path}." if path else ""
        for name in sorted(found.keys() - set(known)):
            self.texts.append(f"{prefix}{name}: expected one of {', '.join(known)}; there is no such key")
        if isinstance(value, dict):
            for name in required:
                if name not in found:
                    self.texts.append(f"{prefix}{name}: expected a value, got none")
        values = {name: found.get(name, MISSING) for name in required}
        return values | {name: found.get(name, default) for name, default in (defaults or {}).items()}


def shown(value: object) -> str:
    """Return a value as JSON, shortened; for the text of an error."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def parse_json(name: str, text: str) -> Any:
    """Return what a JSON text says.

    Raises:
        InvalidArgumentError: it is none; it has a key twice; or it has a number that is not finite.
    """
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_not_finite)
        # What could not be written again: a number too large for a float, half of a surrogate pair.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name}: expected JSON: {error}") from error
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shown(name)} is there twice")
        found[name] = value
    return found


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


#: Where workers reach the trainer, unless their configuration says something else.
DEFAULT_TARGET = "127.0.0.1:50055"
_MAX_GPUS = 8
_MAX_NAME = 120
_MAX_PARALLEL = 4096
_MAX_ERRORS = 50
_SAMPLED = re.compile(r"sample:[1-9][0-9]{0,8}")


def parse_config(text: str, *, max_characters: int = 1024 * 1024) -> RunConfig:
    """Return the configuration that a JSON text has.

    Args:
        text: `SubmitRunRequest.config_json`.
        max_characters: a longer one is refused.

    Raises:
        InvalidArgumentError: it is too long, no JSON, or not valid; the text names all that is wrong with it, one
            finding a line.
    """
    if len(text) > max_characters:
        raise InvalidArgumentError(f"config_json: expected at most {max_characters} characters, got {len(text)}")
    document = parse_json("config_json", text)
    findings = Findings()
    config = _checked(findings, document)
    if findings.texts:
        left = len(findings.texts) - _MAX_ERRORS
        more = [f"and {left} more"] if left > 0 else []
        raise InvalidArgumentError("config_json: " + "\n".join([*findings.texts[:_MAX_ERRORS], *more]))
    return config


_REQUIRED = ("run_name", "entry_point", "arguments", "environment", "resources", "artifacts")
_OPTIONAL: Mapping[str, object] = {"metadata": {}, "schedule": {}, "trials": None}


def _checked(findings: Findings, document: object) -> RunConfig:
    if not isinstance(document, dict):
        findings.add("(the whole)", "an object", document)
    found = findings.record("", document if isinstance(document, dict) else {}, _REQUIRED, _OPTIONAL)
    run_name = _text(findings, "run_name", found["run_name"], _MAX_NAME)
    entry_point = _text(findings, "entry_point", found["entry_point"])
    if entry_point.startswith("builtin:") and entry_point != BUILTIN_TRIALS:
        findings.add("entry_point", f"a program, 'external' or {BUILTIN_TRIALS!r}", entry_point)
    arguments = () if found["arguments"] is MISSING else findings.texts_of("arguments", found["arguments"])
    environment = _environment(findings, found["environment"])
    resources = _resources(findings, found["resources"])
    artifacts = _artifacts(findings, found["artifacts"])
    metadata = findings.table("metadata", found["metadata"])
    if "worker" in metadata:
        metadata = {**metadata, "worker": _worker(findings, metadata["worker"])}
    schedule = _schedule(findings, found["schedule"])
    trials = None if found["trials"] is None else _trials(findings, found["trials"])
    if (trials is not None) != (entry_point == BUILTIN_TRIALS):
        wanted = "an object" if trials is None else f"none: the entry point is not {BUILTIN_TRIALS!r}"
        findings.add("trials", wanted, found["trials"])
    return RunConfig(
        run_name=run_name,
        entry_point=entry_point,
        arguments=arguments,
        environment=environment,
        resources=resources,
        artifacts=artifacts,
        metadata=metadata,
        schedule=schedule,
        trials=trials,
        document=_document(
            run_name, entry_point, arguments, environment, resources, artifacts, metadata, schedule, trials
        ),
    )


def _text(findings: Findings, path: str, value: object, most: int | None = None) -> str:
    return "" if value is MISSING else findings.text(path, value, 1, most)


def _environment(findings: Findings, value: object) -> dict[str, str]:
    if value is MISSING:
        return {}
    found = findings.table("environment", value)
    for name, text in found.items():
        if not name or "=" in name or "\0" in name:
            findings.texts.append(f"environment: expected names without '=' that are not empty, got {name!r}")
        elif "\0" in findings.text(f"environment.{name}", text):
            findings.texts.append(f"environment.{name}: expected a text without the character 0")
    return found


def _resources(findings: Findings, value: object) -> Resources:
    if value is MISSING:
        return Resources(cpus=1, memory_mb=256, gpus=0, gpus_mandatory=False)
    found = findings.record("resources", value, ("cpus", "memory_mb", "gpus"))
    gpus = {"requested": 0, "mandatory": False}
    if found["gpus"] is not MISSING:
        gpus = findings.record("resources.gpus", found["gpus"], ("requested",), {"mandatory": False})
    return Resources(
        cpus=_integer(findings, "resources.cpus", found["cpus"], 1),
        memory_mb=_integer(findings, "resources.memory_mb", found["memory_mb"], 256),
        gpus=_integer(findings, "resources.gpus.requested", gpus["requested"], 0, _MAX_GPUS),
        gpus_mandatory=findings.flag("resources.gpus.mandatory", gpus["mandatory"]),
    )


def _artifacts(findings: Findings, value: object) -> Artifacts:
    if value is MISSING:
        return Artifacts(output_prefix="", persist_logs=True, keep_checkpoints=True)
    defaults = {"persist_logs": True, "keep_checkpoints": True}
    found = findings.record("artifacts", value, ("output_prefix",), defaults)
    return Artifacts(
        output_prefix=_text(findings, "artifacts.output_prefix", found["output_prefix"]),
        persist_logs=findings.flag("artifacts.persist_logs", found["persist_logs"]),
        keep_checkpoints=findings.flag("artifacts.keep_checkpoints", found["keep_checkpoints"]),
    )


def _worker(findings: Findings, value: object) -> dict[str, Any]:
    """Return `metadata.worker` with its defaults; further keys are kept."""
    path = "metadata.worker"
    defaults = {"arguments": [], "config": {}, "grpc_target": DEFAULT_TARGET, "use_grpc": True}
    found = defaults | findings.table(path, value)
    if isinstance(value, dict) and ("module" in value) == ("script" in value):
        findings.add(path, "a `module` or a `script`", sorted(value))
    for name in ("module", "script", "worker_id", "agent_id", "grpc_target"):
        if name in found:
            findings.text(f"{path}.{name}", found[name], 1)
    findings.texts_of(f"{path}.arguments", found["arguments"])
    findings.flag(f"{path}.use_grpc", found["use_grpc"])
    config = findings.table(f"{path}.config", found["config"])
    if config.get("run_id"):
        run_id = findings.text(f"{path}.config.run_id", config["run_id"])
        if run_id and not is_run_id(run_id):
            findings.add(f"{path}.config.run_id", "the id of a run", run_id)
    return found


def _schedule(findings: Findings, value: object) -> Schedule:
    defaults = {"max_duration_seconds": None, "max_steps": None, "class": "batch", "when_full": "refuse"}
    found = findings.record("schedule", value, (), defaults)
    limits = [
        None if found[name] is None else _integer(findings, f"schedule.{name}", found[name], 1)
        for name in ("max_duration_seconds", "max_steps")
    ]
    return Schedule(
        max_duration_seconds=limits[0],
        max_steps=limits[1],
        run_class=findings.choice("schedule.class", found["class"], *RUN_CLASSES),
        queue=findings.choice("schedule.when_full", found["when_full"], "refuse", "queue") == "queue",
    )


def _trials(findings: Findings, value: object) -> Trials:
    defaults: dict[str, object] = {
        "parallel": 1,
        "params": None,
        "params_file": "",
        "seeds": [],
        "actors": {},
        "stop_after_failures": None,
        "telemetry": "all",
    }
    found = findings.record("trials", value, ("count",), defaults)
    if isinstance(value, dict) and (found["params"] is None) != bool(found["params_file"]):
        findings.add("trials", "either `params` or `params_file`", sorted(value))
    params = None if found["params"] is None else findings.table("trials.params", found["params"])
    seeds = found["seeds"] if isinstance(found["seeds"], list) else []
    if seeds is not found["seeds"]:
        findings.add("trials.seeds", "a list of integers", found["seeds"])
    actors = findings.table("trials.actors", found["actors"])
    failures, telemetry = found["stop_after_failures"], found["telemetry"]
    if telemetry not in ("all", "episodes") and not (isinstance(telemetry, str) and _SAMPLED.fullmatch(telemetry)):
        findings.add("trials.telemetry", "'all', 'episodes' or 'sample:N'", telemetry)
    return Trials(
        count=_integer(findings, "trials.count", found["count"], 1),
        parallel=findings.integer("trials.parallel", found["parallel"], 1, _MAX_PARALLEL),
        params=params,
        params_file=findings.text("trials.params_file", found["params_file"]),
        seeds=tuple(_integer(findings, f"trials.seeds[{n}]", seed, 0) for n, seed in enumerate(seeds)),
        actors={name: findings.table(f"trials.actors.{name}", changes) for name, changes in actors.items()},
        stop_after_failures=(
            None if failures is None else _integer(findings, "trials.stop_after_failures", failures, 1)
        ),
        telemetry=telemetry if isinstance(telemetry, str) else "all",
    )


def _integer(findings: Findings, path: str, value: object, least: int, most: int = LARGE) -> int:
    return least if value is MISSING else findings.integer(path, value, least, most)


def _document(
    run_name: str,
    entry_point: str,
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    resources: Resources,
    artifacts: Artifacts,
    metadata: Mapping[str, Any],
    schedule: Schedule,
    trials: Trials | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "run_name": run_name,
        "entry_point": entry_point,
        "arguments": list(arguments),
        "environment": dict(environment),
        "resources": {
            "cpus": resources.cpus,
            "memory_mb": resources.memory_mb,
            "gpus": {"requested": resources.gpus, "mandatory": resources.gpus_mandatory},
        },
        "artifacts": {
            "output_prefix": artifacts.output_prefix,
            "persist_logs": artifacts.persist_logs,
            "keep_checkpoints": artifacts.keep_checkpoints,
        },
        "metadata": dict(metadata),
        "schedule": {
            "max_duration_seconds": schedule.max_duration_seconds,
            "max_steps": schedule.max_steps,
            "class": schedule.run_class,
            "when_full": "queue" if schedule.queue else "refuse",
        },
    }
    if trials is not None:
        document["trials"] = {
            "count": trials.count,
            "parallel": trials.parallel,
            "params": trials.params,
            "params_file": trials.params_file,
            "seeds": list(trials.seeds),
            "actors": {name: dict(changes) for name, changes in trials.actors.items()},
            "stop_after_failures": trials.stop_after_failures,
            "telemetry": trials.telemetry,
        }
    return document
