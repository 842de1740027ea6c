"""The commands of `trio-cogment`, and what its help says of each.

This is a table of its own, without imports, so that the help needs nothing else.
"""

from __future__ import annotations

#: The variable with which a shell asks how a line might go on, as click names it.
COMPLETION = "_TRIO_COGMENT_COMPLETE"
#: What the program is. It fits on a line of 80 columns, as the help of each command does.
ABOUT = "The Cogment platform on Trio: humans, agents and an environment in trials."

#: Name of a command -> the module that has it, by the same name, and its line in the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "client": ("trio_cogment.cli.client", "Call running services."),
    "completion": ("trio_cogment.cli.completion", "Print what lets a shell complete commands and flags."),
    "copy": ("trio_cogment.cli.copy", "Copy files into folders."),
    "demo": ("trio_cogment.cli.demo", "Run a small trial: two actors invent a code for colours."),
    "dm_env_rpc": ("trio_cogment.cli.dm_env_rpc", "Look at servers of dm_env_rpc."),
    "doctor": ("trio_cogment.cli.doctor", "Check what a server needs, and say what to do."),
    "generate": ("trio_cogment.cli.generate", "Write a project's modules for the SDKs."),
    "health": ("trio_cogment.cli.health", "Ask whether a server serves."),
    "init": ("trio_cogment.cli.init", "Write a small project that runs and has a test."),
    "launch": ("trio_cogment.cli.launch", "Run the scripts of a launch file together, until one ends."),
    "participants": ("trio_cogment.cli.participants", "Serve the participants that a Python module registers."),
    "play": ("trio_cogment.cli.play", "Let people take part in trials, in a browser."),
    "replay": ("trio_cogment.cli.replay", "Play a recorded trial through this version's rules."),
    "rl": ("trio_cogment.cli.rl", "Use trials for reinforcement learning."),
    "run": ("trio_cogment.cli.run", "Run a project file's command, or training runs at a trainer."),
    "serve": ("trio_cogment.cli.serve", "Serve everything on one port."),
    "services": ("trio_cogment.cli.services", "Serve one service, with the flags of the reference."),
    "status": ("trio_cogment.cli.status", "Ask services for their statuses."),
    "token": ("trio_cogment.cli.token", "Make, show and revoke tokens, for servers with --auth=token."),
    "version": ("trio_cogment.cli.root", "Print the version."),
}
