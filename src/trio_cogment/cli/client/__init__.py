"""`trio-cogment client`: questions and commands to running services.

Each module of a group has the commands with their flags and what they do; the heavy modules that they need (Trio, gRPC,
protobuf) they import when they run, so that `--help` and errors in the usage are quick.
"""

from __future__ import annotations

from typing import Any

import click

from trio_cogment.cli.client.common import client_options
from trio_cogment.cli.options import Group

_COMMANDS = {
    "directory": ("trio_cogment.cli.client.directory", "Call a directory."),
    "model_registry": ("trio_cogment.cli.client.model_registry", "Call a model registry."),
    "trial": ("trio_cogment.cli.client.trial", "Start, watch and end trials."),
    "trial_datastore": ("trio_cogment.cli.client.trial_datastore", "Call a trial datastore."),
}
_ALIASES = {"datastore": "trial_datastore", "registry": "model_registry"}


@click.group(cls=Group, lazy=_COMMANDS, aliases=_ALIASES)
@client_options
def client(**_options: Any) -> None:
    """Call running services."""
