"""Launch files: the processes of a project, started and stopped together.

`load_plan` reads a file and fills it in; a `Launcher` runs what came of it. The template language is in
`trio_cogment.cli.launching.template`. Source: the reference's documentation of `cogment launch`.
"""

from trio_cogment.cli.launching._format import Format, Level, Source, State, Stream
from trio_cogment.cli.launching._launcher import DEFAULT_GRACE_SECONDS, Display, Launcher, Programs
from trio_cogment.cli.launching._plan import Plan, Script, load_plan
from trio_cogment.cli.launching.strays import Strays

__all__ = [
    "DEFAULT_GRACE_SECONDS",
    "Display",
    "Format",
    "Launcher",
    "Level",
    "Plan",
    "Programs",
    "Script",
    "Source",
    "State",
    "Strays",
    "Stream",
    "load_plan",
]
