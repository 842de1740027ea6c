"""`trio-cogment datastore`: commands for storages of trials, without a server."""

from __future__ import annotations

import click

from trio_cogment.cli.options import Group

_COMMANDS = {
    "compact": ("trio_cogment.cli.datastore.compact", "Put stored samples together, and make FILE smaller."),
    "copy": ("trio_cogment.cli.datastore.copy", "Copy trials from one storage into another."),
}


@click.group(cls=Group, lazy=_COMMANDS)
def datastore() -> None:
    """Look after storages of trials."""
