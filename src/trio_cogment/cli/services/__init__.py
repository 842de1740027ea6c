"""`trio-cogment services`: one service in a process, with the flags and environment variables of the reference.

Each module of a command has its flags, its settings and what it serves; what heavy modules it needs (Trio, gRPC,
SQLite) it imports when it runs, so that `--help` and errors in the usage are quick.
"""

from __future__ import annotations

from typing import Any

import click

from trio_cogment.cli.logs import log_options
from trio_cogment.cli.options import Group, not_built
from trio_cogment.cli.services import directory, model_registry, orchestrator, trial_datastore

#: Commands of the reference that are not built yet.
_NOT_BUILT = ("web_proxy", "proxy")


@click.group(cls=Group)
@log_options
def services(**_options: Any) -> None:
    """Serve one service, with the flags and environment variables of the reference."""


services.add_command(orchestrator.orchestrator)
services.add_command(directory.directory)
services.add_command(trial_datastore.trial_datastore, aliases=("datastore",))
services.add_command(model_registry.model_registry, aliases=("registry",))
for _name in _NOT_BUILT:
    services.add_command(not_built(f"services {_name}"))
