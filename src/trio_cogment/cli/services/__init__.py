"""`trio-cogment services`: one service in a process, with the flags and environment variables of the reference.

Each module of a command has its flags, its settings and what it serves; what heavy modules it needs (Trio, gRPC,
SQLite) it imports when it runs, so that `--help` and errors in the usage are quick.
"""

from __future__ import annotations

from typing import Any

import click

from trio_cogment.cli.logs import log_options
from trio_cogment.cli.options import Group

_COMMANDS = {
    "directory": ("trio_cogment.cli.services.directory", "Run a directory."),
    "dm_env_rpc": ("trio_cogment.cli.services.dm_env_rpc", "Run a gateway for clients of dm_env_rpc."),
    "legacy_gateway": (
        "trio_cogment.cli.services.legacy_gateway",
        "Run a gateway for participants of the legacy API.",
    ),
    "model_registry": ("trio_cogment.cli.services.model_registry", "Run a model registry."),
    "orchestrator": ("trio_cogment.cli.services.orchestrator", "Run an orchestrator."),
    "trainer": ("trio_cogment.cli.services.trainer", "Run a trainer: runs of training programs and of trials."),
    "trial_datastore": ("trio_cogment.cli.services.trial_datastore", "Run a trial datastore."),
    "web_proxy": ("trio_cogment.cli.services.web_proxy", "Run a web proxy: trials by HTTP and JSON."),
}
_ALIASES = {"datastore": "trial_datastore", "registry": "model_registry", "proxy": "web_proxy"}


@click.group(cls=Group, lazy=_COMMANDS, aliases=_ALIASES)
@log_options
def services(**_options: Any) -> None:
    """Serve one service, with the flags and environment variables of the reference."""
