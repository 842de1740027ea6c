"""The command line, `trio-cogment`.

Only this package calls `trio.run` or listens for signals. What is heavy (Trio, gRPC, protobuf) is imported by the
commands that need it, when they run: `--help` and `version` answer at once.
"""

from trio_cogment.cli._main import main as main
