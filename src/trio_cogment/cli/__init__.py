"""The command line, `trio-cogment`.

Only this package and `sync` call `trio.run`; signals are handled here and in `sdk.run_participants`. A command is
imported when it is run, and heavy modules (Trio, gRPC, protobuf) when it needs them: `--help` and `version` answer at
once, and a server opens its ports before click is imported, if its command line is plain.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_cogment.cli.opening import Early


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave the process: 0 for success, 1 for every kind of error, 130 for Control-C."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        from trio_cogment.cli.quick import answered

        if answered(given):
            sys.exit(0)
        sys.exit(_run(given))
    except KeyboardInterrupt:  # while modules are imported; later `root.run` sees to it
        sys.exit(130)


def _run(given: Sequence[str]) -> int:
    early = _opened(given)
    if early is None:
        from trio_cogment.cli.root import run

        return run(given)
    with early:
        from trio_cogment.cli.root import run

        return run(given, early)


def _opened(given: Sequence[str]) -> Early | None:
    """Open the ports of a server whose command line is plain."""
    from trio_cogment.cli.plain import planned

    plan = planned(given, os.environ)
    if plan is None:
        return None
    from trio_cogment.cli.opening import opened

    return opened(plan)
