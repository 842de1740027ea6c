"""What `serve` and `services orchestrator` run."""

from __future__ import annotations

from functools import partial

from trio_cogment.cli._orchestrator import orchestrator_program
from trio_cogment.cli._serving import run_server
from trio_cogment.cli._settings import OrchestratorSettings


def run_orchestrator(settings: OrchestratorSettings) -> None:
    """Serve until SIGTERM or SIGINT, then end the trials, tell everybody, and return.

    Raises:
        Failure: it cannot start.
    """
    run_server(settings, partial(orchestrator_program, settings))
