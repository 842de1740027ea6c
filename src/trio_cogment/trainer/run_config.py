"""The configuration of a run, as `parse_config` makes it from a JSON text, and its canonical form. Pure.

The canonical form has all defaults, its keys sorted and no blanks; the digest is made from it. Unknown keys are
refused, except within `metadata`, which is free, `environment` and the parameters of trials. The names of keys are
those of the published trainer; `trials`, `schedule.class` and `schedule.when_full` are this project's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError

#: The entry point of runs for which nobody starts a worker: one registers by itself.
EXTERNAL = "external"
#: The entry point of runs of trials that the trainer starts itself.
BUILTIN_TRIALS = "builtin:trials"
#: The classes of runs; those of the first one come first where there is not enough for all.
RUN_CLASSES = ("interactive", "batch")

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a run asks for.

    Attributes:
        cpus: processors.
        memory_mb: memory in MiB.
        gpus: how many GPUs.
        gpus_mandatory: fewer of them are not enough.
    """

    cpus: int
    memory_mb: int
    gpus: int
    gpus_mandatory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    """What a run leaves behind.

    Attributes:
        output_prefix: where, below the folder of the run.
        persist_logs: standard output and standard error are kept in files.
        keep_checkpoints: checkpoints are kept when the run has ended.
    """

    output_prefix: str
    persist_logs: bool
    keep_checkpoints: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a run starts and ends.

    Attributes:
        max_duration_seconds: it ends after so much time; None: never for that reason.
        max_steps: it ends after this many steps; None: never for that reason.
        run_class: one of `RUN_CLASSES`.
        queue: it waits if there is not what it asks for; else it is refused then.
    """

    max_duration_seconds: int | None
    max_steps: int | None
    run_class: str
    queue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The trials of a run with the entry point `builtin:trials`.

    Attributes:
        count: how many.
        parallel: how many at a time.
        params: their parameters, in the JSON form of `TrialParams`; None: see `params_file`.
        params_file: a file with their parameters; empty: see `params`.
        seeds: of the first trials; later ones have none.
        actors: what is changed of the actors' parameters, by the names of actors.
        stop_after_failures: the run fails after this many failed trials; None: it goes on.
        telemetry: "all", "sample:N" (the steps of every Nth episode) or "episodes" (no steps).
    """

    count: int
    parallel: int
    params: Mapping[str, Any] | None
    params_file: str
    seeds: tuple[int, ...]
    actors: Mapping[str, Mapping[str, Any]]
    stop_after_failures: int | None
    telemetry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A valid configuration; made by `parse_config`.

    Attributes:
        run_name: for people.
        entry_point: what is run; `EXTERNAL` and `BUILTIN_TRIALS` have a meaning of their own.
        arguments: of the entry point.
        environment: environment variables.
        resources: what it asks for.
        artifacts: what it leaves behind.
        metadata: free; `metadata["worker"]`, if it is there, has its defaults.
        schedule: when it starts and ends.
        trials: of a run of trials, else None.
        document: the whole, with all defaults, as JSON has it.
    """

    run_name: str
    entry_point: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    resources: Resources
    artifacts: Artifacts
    metadata: Mapping[str, Any]
    schedule: Schedule
    trials: Trials | None
    document: Mapping[str, Any]

    @property
    def external(self) -> bool:
        """Whether nobody starts a worker for it."""
        return self.entry_point == EXTERNAL

    @property
    def run_id(self) -> str:
        """The run's id, where the configuration names one (`metadata.worker.config.run_id`); else empty."""
        worker = self.metadata.get("worker")
        config = worker.get("config") if isinstance(worker, dict) else None
        run_id = config.get("run_id") if isinstance(config, dict) else None
        return run_id if isinstance(run_id, str) else ""

    @property
    def canonical(self) -> str:
        """The canonical form."""
        return canonical_json(self.document)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form, in hexadecimal digits."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def with_run_id(self, run_id: str) -> str:
        """Return the canonical form with the run's id where workers look for it, if it is about a worker."""
        document = json.loads(self.canonical)
        worker = document["metadata"].get("worker")
        if isinstance(worker, dict):
            worker["config"]["run_id"] = run_id
        return canonical_json(document)


def canonical_json(document: object) -> str:
    """Return JSON with its keys sorted and no blanks."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def is_run_id(text: str) -> bool:
    """Whether a text can be the id of a run."""
    return _RUN_ID.fullmatch(text) is not None


def check_run_id(name: str, run_id: str) -> str:
    """Return an id of a run; it can be part of the name of a file.

    Raises:
        InvalidArgumentError: it is none.
    """
    if not is_run_id(run_id):
        raise InvalidArgumentError(
            f"{name}: expected 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first, got {run_id[:80]!r}"
        )
    return run_id
