"""`trio-cogment experiment`: the data of experiments with people.

Each module has a command with its flags; the heavy modules that it needs it imports when it runs, so that `--help` and
errors in the usage are quick.
"""

from __future__ import annotations

import click

from trio_cogment.cli.options import Group

_COMMANDS = {
    "export": ("trio_cogment.cli.experiment.export", "Write the data of an experiment as tables."),
    "forget": ("trio_cogment.cli.experiment.forget", "Delete everything that is kept of a participant."),
}


@click.group(cls=Group, lazy=_COMMANDS)
def experiment() -> None:
    """Work with experiments and their data; `trio-cogment play experiment.yaml` runs one."""
