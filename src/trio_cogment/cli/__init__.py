"""The command line, `trio-cogment`.

Only this package calls `trio.run` or handles signals. Heavy modules (Trio, gRPC, protobuf) are imported by the commands
that need them, when they run: `--help` and `version` answer at once.
"""

from trio_cogment.cli.main import main as main
