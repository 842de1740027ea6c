"""The command line, `trio-cogment`.

Only this package and `sync` call `trio.run`; signals are handled here and in `sdk.run_participants`. A command is
imported when it is run, and heavy modules (Trio, gRPC, protobuf) when it needs them: `--help` and `version` answer at
once.
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
