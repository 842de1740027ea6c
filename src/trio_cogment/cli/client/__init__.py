"""`trio-cogment client`: questions and commands to running services.

Each module of a group has the commands with their flags and what they do; the heavy modules that they need (Trio, gRPC,
protobuf) they import when they run, so that `--help` and errors in the usage are quick.
"""

from __future__ import annotations

from typing import Any

import click

from trio_cogment.cli.client import directory, model_registry, trial_datastore
from trio_cogment.cli.client.common import client_options
from trio_cogment.cli.options import Group


@click.group(cls=Group)
@client_options
def client(**_options: Any) -> None:
    """Call running services."""


client.add_command(trial_datastore.trial_datastore, aliases=("datastore",))
client.add_command(model_registry.model_registry, aliases=("registry",))
client.add_command(directory.directory)
