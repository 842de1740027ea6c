"""Services, a registration by hand and a program on the published SDK, all started at the same moment, in every order.

The shape is that of the published SDK's own test-suite: it starts each service by the command line without waiting for
any, registers the model registry with `client directory register`, and reads the orchestrator's status file.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.conftest import BUSY_SLOWNESS
from tests.interop.processes import Process, Stage, check_errors, our_command
from tests.ports import free_port

#: Every order of those that need each other; the datastore takes each place among them in turn.
ORDERS = [
    (*order[: number % 5], "datastore", *order[number % 5 :])
    for number, order in enumerate(itertools.permutations(("directory", "registry", "register", "orchestrator")))
]
#: As it is, the other way round, and the registration before anything else.
FEW = [ORDERS[0], ORDERS[-1], next(order for order in ORDERS if order[0] == "register")]

PARAMS = """
trial_params:
  max_inactivity: 60
  datalog: {{endpoint: "{datastore}"}}
  environment: {{name: field, endpoint: "{served}"}}
  actors:
    - {{name: ann, actor_class: player, implementation: player, endpoint: "{served}"}}
    - {{name: bob, actor_class: player, implementation: player, endpoint: "{served}"}}
"""


def named(order: Sequence[str]) -> str:
    return "-".join(order)


def run(python: str, project: Path, folder: Path, order: Sequence[str], slowness: float = 1) -> None:
    """Start everything in this order, let the program use it, and stop everything at the same moment."""
    ports = {name: free_port() for name in ("directory", "registry", "orchestrator", "datastore", "served")}
    at = {name: f"grpc://localhost:{port}" for name, port in ports.items()}
    (folder / "params.yaml").write_text(PARAMS.format(**at))
    status = folder / "status"
    os.mkfifo(status)
    here = f"--directory_endpoint={at['directory']}"
    commands: dict[str, list[str]] = {
        "directory": ["services", "directory", f"--port={ports['directory']}", "--persistence_file=registrations"],
        "registry": ["services", "model_registry", f"--port={ports['registry']}", "--archive_dir=archive"],
        "register": [
            *("client", "directory", "register", here, "--host=localhost"),
            *(f"--port={ports['registry']}", "--type=modelregistry"),
        ],
        "orchestrator": [
            *("services", "orchestrator", f"--lifecycle_port={ports['orchestrator']}", f"--status_file={status}"),
            *(f"--actor_port={ports['orchestrator']}", "--params=params.yaml", f"--pre_trial_hooks={at['served']}"),
        ],
        "datastore": ["services", "trial_datastore", f"--port={ports['datastore']}"],
    }
    with Stage(folder, slowness) as stage:
        started = {name: stage.start(name, *our_command(), *commands[name]) for name in order}
        started["register"].may_end = True
        where = [f"--{name}={at[name]}" for name in ("orchestrator", "datastore", "directory")]
        files = [f"--records={folder}", f"--status={status}"]
        program = stage.start("suite", python, str(project / "suite.py"), *files, *where, f"--port={ports['served']}")
        program.may_end = True
        stage.until("the program is through", lambda: program.returncode is not None, 60)
        stage.until("the registration is made", lambda: started["register"].returncode is not None)
        if started["register"].returncode:
            stage.fail("the registration failed")
        if not (folder / "suite.json").exists():
            stage.fail("the program did not come through")
        assert json.loads((folder / "suite.json").read_text()) == {
            "letters": "IR",
            "properties": [{"made_by": "hook"}],
            "ticks": [0, 1, 2, 3],
            "model": "a model",
        }
        check_errors(stage, program)
        stop_together(stage, [started[name] for name in order if name != "register"])


def stop_together(stage: Stage, servers: Sequence[Process]) -> None:
    for process in servers:
        process.send(signal.SIGTERM)
    for process in servers:
        if process.wait(30 * stage.slowness) or "Traceback" in process.output:
            stage.fail(f"{process.name} ended with {process.returncode} on SIGTERM, or has written a traceback")


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", FEW, ids=named)
def test_started_at_the_same_moment(foreign_python: str, project: Path, tmp_path: Path, order: Sequence[str]) -> None:
    run(foreign_python, project, tmp_path, order)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("busy_loops")
class TestOnABusyMachine:
    """Every order once: more than the 20 times that count as proof."""

    @pytest.mark.parametrize("order", ORDERS, ids=named)
    def test_started_at_the_same_moment(
        self, foreign_python: str, project: Path, tmp_path: Path, order: Sequence[str]
    ) -> None:
        run(foreign_python, project, tmp_path, order, slowness=BUSY_SLOWNESS)
