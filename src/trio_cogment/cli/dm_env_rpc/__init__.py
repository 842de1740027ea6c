"""`trio-cogment dm_env_rpc`: commands for servers of dm_env_rpc, whoever made them."""

from __future__ import annotations

import click

from trio_cogment.cli.options import Group

_COMMANDS = {"probe": ("trio_cogment.cli.dm_env_rpc.probe", "Show the specifications of a server's world.")}


@click.group("dm_env_rpc", cls=Group, lazy=_COMMANDS)
def dm_env_rpc() -> None:
    """Look at servers of dm_env_rpc."""
