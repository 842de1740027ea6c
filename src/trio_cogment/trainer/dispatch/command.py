"""Commands of workers: the program that is started for a run, with its environment and its files. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trio_cogment.sdk.access_token import ACCESS_TOKEN_FILE_VARIABLE, ACCESS_TOKEN_VARIABLE
from trio_cogment.trainer.config_check import DEFAULT_TARGET
from trio_cogment.trainer.run_config import RunConfig, canonical_json

#: What marks all processes of a run: nobody else has this value in their environment.
TOKEN_VARIABLE = "TRIO_COGMENT_RUN_TOKEN"
#: The file with a worker's own configuration, in the folder of its run.
WORKER_CONFIG = "worker-config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What workers are told about the platform.

    Attributes:
        target: where the trainer is reached, as `host:port`; empty: it has no address.
        variables: further environment variables, for example `COGMENT_ORCHESTRATOR`.
    """

    target: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is started.

    Attributes:
        arguments: the program first.
        variables: environment variables besides those of the server.
        worker_config: what is in its `WORKER_CONFIG`; None: there is no such file.
        worker_id: its name within the run; it may be empty.
        agent_id: for lines of its output that name none.
        registers: it calls `RegisterWorker`, or writes lines, soon after its start.
    """

    arguments: Sequence[str]
    variables: Mapping[str, str]
    worker_config: str | None
    worker_id: str
    agent_id: str
    registers: bool


def command_of(
    run_id: str,
    config: RunConfig,
    *,
    folder: str,
    gpus: Sequence[int],
    python: str,
    surroundings: Surroundings,
    access_token: str = "",
) -> Command:
    """Return the command of a run.

    Args:
        run_id: which run.
        config: its configuration.
        folder: the folder of the run.
        gpus: the ids of the GPUs that it has got.
        python: the program that runs Python code.
        surroundings: what it is told about the platform.
        access_token: by which the platform's servers know it; empty: they ask for none.
    """
    worker: dict[str, Any] = config.metadata.get("worker") or {}
    own: dict[str, Any] = worker.get("config") or {}
    worker_id = worker.get("worker_id") or _text(own.get("worker_id"))
    target = _target(worker, surroundings)
    file = os.path.join(folder, WORKER_CONFIG)
    if worker:
        arguments = _worker_arguments(worker, python, file, target, worker_id)
    else:
        arguments = [_program(config.entry_point, python), *config.arguments]
    variables = {
        **surroundings.variables,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "RUN_ID": run_id,
        "WORKER_ID": worker_id,
        "MOSAIC_RUN_DIR": folder,
        **({"TRAINER_TARGET": target} if target else {}),
        **({"TRAINER_WORKER_CONFIG_PATH": file} if worker else {}),
        **_access(access_token, config.environment),
        **config.environment,
    }
    return Command(
        arguments=arguments,
        variables=variables,
        worker_config=canonical_json({**own, "run_id": run_id}) if worker else None,
        worker_id=worker_id,
        agent_id=worker.get("agent_id") or "",
        # A script is whatever somebody has: often it reports nothing for hours, or nothing at all.
        registers=bool(worker) and worker["use_grpc"] and "module" in worker,
    )


def _access(token: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with a worker's token, unless the run's configuration says where its token is."""
    if not token or ACCESS_TOKEN_FILE_VARIABLE in environment:
        return {}
    return {ACCESS_TOKEN_VARIABLE: token}


def _target(worker: Mapping[str, Any], surroundings: Surroundings) -> str:
    """Return where a worker reaches the trainer: the default of the configuration stands for the real address."""
    named = str(worker.get("grpc_target", DEFAULT_TARGET))
    return surroundings.target if named == DEFAULT_TARGET else named


def _worker_arguments(worker: Mapping[str, Any], python: str, file: str, target: str, worker_id: str) -> list[str]:
    given = list(worker["arguments"])
    program = [python, "-m", worker["module"]] if "module" in worker else [_program(worker["script"], python)]
    added = {"--config": file}
    if worker["use_grpc"] and target:
        added["--grpc-target"] = target
    if worker_id:
        added["--worker-id"] = worker_id
    arguments = [*program, *given]
    if worker["use_grpc"] and target and "--grpc" not in given:
        arguments.append("--grpc")
    for name, value in added.items():
        if not any(argument == name or argument.startswith(f"{name}=") for argument in given):
            arguments += [name, value]
    return arguments


def _program(name: str, python: str) -> str:
    """Return the program of a name: `python` is the server's interpreter, and every other program is run itself."""
    return python if name == "python" else name


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
