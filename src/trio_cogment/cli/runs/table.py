"""The commands about runs, and what the help says of each: a table without imports."""

from __future__ import annotations

_COMMANDS = "trio_cogment.cli.runs.commands"
_STREAMS = "trio_cogment.cli.runs.streams"

#: Name of a command -> the module that has it, and its line in the help.
VERBS: dict[str, tuple[str, str]] = {
    "submit": (_COMMANDS, "Submit a run to a trainer."),
    "list": (_COMMANDS, "List the runs of a trainer."),
    "watch": (_STREAMS, "Watch runs, or one run with its returns."),
    "cancel": (_COMMANDS, "Cancel runs, and wait for their end."),
    "pause": (_COMMANDS, "Pause runs."),
    "resume": (_COMMANDS, "Let paused runs go on."),
    "rate": (_COMMANDS, "Limit the rate of a run."),
    "steps": (_STREAMS, "Follow the steps of a run."),
    "episodes": (_STREAMS, "Follow the episodes of a run."),
    "export": (_STREAMS, "Write the steps and episodes of a run as Parquet files."),
}
