"""The command line, `trio-cogment`.

A command is a thin client of the rest of the package: it reads flags, makes settings of them, and runs something that a
program could run as well. Apart from this package only the bridges (`sdk.bridges`), data sets and simulated runs start
Trio, and signals are handled here and in `sdk.run_participants` alone.

People and scripts ask for help far more often than for a server, so a command is imported when it is run, and heavy
modules (Trio, gRPC, protobuf) when it needs them: `--help` and `version` answer at once. For the same reason a mistake
in the flags, or a port that is in use, is told before anything heavy is imported (`services.start`).

A flag that is a setting is declared where the setting is (`base.config`); a command only names it. So a flag, its
variable, the key of the file of `--config` and the documents cannot say different things.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as type checkers know it; importing `typing` takes longer than the help
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave the process: 0 for success, 1 for every kind of error, 130 for Control-C."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        from trio_cogment.cli.commands import answered

        if answered(given):
            sys.exit(0)
        from trio_cogment.cli.root import run

        sys.exit(run(given))
    except KeyboardInterrupt:  # while modules are imported; later `root.run` sees to it
        sys.exit(130)
