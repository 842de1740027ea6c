"""`trio-cogment rl`: commands for reinforcement learning.

Each module has a command with its flags; the heavy modules that it needs it imports when it runs, so that `--help` and
errors in the usage are quick.
"""

from __future__ import annotations

import click

from trio_cogment.cli.options import Group

_COMMANDS = {
    "export": ("trio_cogment.cli.rl.export", "Write stored trials as a data set."),
    "openenv": ("trio_cogment.cli.rl.openenv", "Serve seats of an environment's trials as OpenEnv environments."),
    "serve": ("trio_cogment.cli.rl.serve", "Serve an environment of Gymnasium, PettingZoo or dm_env."),
}


@click.group(cls=Group, lazy=_COMMANDS)
def rl() -> None:
    """Use trials for reinforcement learning."""
