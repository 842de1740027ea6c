"""From exec to "listening", beside the start of Python itself.

`python benchmarks/startup.py` runs, alternated, each in a new process of this Python:

* the floor: `python -c pass`;
* `trio-cogment --help`, until it has ended;
* `trio-cogment services directory` and `trio-cogment serve`, until the line "... listening on ..." has come out and the
  port it names has accepted a connection; and, on that connection, until the server has answered: it opens its port
  before it imports Trio, and what comes meanwhile waits in the backlog.

The ratios are medians over the rounds, divided by the floor's median. `directory_ratio` and `serve_ratio` are those of
listening, `directory_answer_ratio` and `serve_answer_ratio` those of the answer.

`.pth` files, such as those of an editable installation or of coverage, make every start of Python slower, and so the
ratios smaller than a user's. So all processes run in an empty environment made for this run, which finds the packages
of this one by PYTHONPATH. The commands are started as the installed script starts them.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

from _report import number, print_json, print_table

SOURCES = Path(__file__).resolve().parent.parent / "src"
COMMANDS = {
    "directory": ("services", "directory", "--host=127.0.0.1", "--port=0"),
    "serve": ("serve", "--host=127.0.0.1", "--port=0"),
}
SCRIPT = ("-c", "import sys; from trio_cogment.cli import main; sys.exit(main())")
LISTENING = re.compile(rb" listening on 127\.0\.0\.1:(\d+)\b")
#: The client's part of the beginning of HTTP/2: its preface, and empty settings, which the server answers.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


class Starts:
    """Starts processes of this Python in a folder of their own, without the variables that the command line reads."""

    def __init__(self, folder: Path) -> None:
        ours = ("COGMENT_", "TRIO_COGMENT_", "TRIAL_", "PROMETHEUS_")
        venv.create(folder / "environment", symlinks=True)
        self._python = str(folder / "environment" / "bin" / "python")
        self._folder = folder
        paths = [str(SOURCES), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self._env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))

    def to_the_end(self, *arguments: str) -> float:
        """Return the seconds that a process takes from exec to its end."""
        began = time.perf_counter()
        subprocess.run(
            [self._python, *arguments], cwd=self._folder, env=self._env, stdout=subprocess.DEVNULL, check=True
        )
        return time.perf_counter() - began

    def to_listening(self, *arguments: str) -> tuple[float, float]:
        """Return the seconds that a server takes from exec until it listens, and until it answers."""
        began = time.perf_counter()
        process = subprocess.Popen(
            [self._python, *SCRIPT, *arguments],
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            found = LISTENING.search(process.stdout.readline())
            if found is None:
                raise SystemExit(f"trio-cogment {' '.join(arguments)} does not say where it listens")
            with socket.create_connection(("127.0.0.1", int(found[1]))) as connection:
                listening = time.perf_counter() - began
                connection.sendall(HELLO)
                if not connection.recv(1):
                    raise SystemExit(f"trio-cogment {' '.join(arguments)} closed the connection")
                answered = time.perf_counter() - began
            return listening, answered
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in ("floor", "help")}
    with tempfile.TemporaryDirectory() as folder:
        starts = Starts(Path(folder))
        for round_number in range(options.rounds + 1):
            measured = {"floor": starts.to_the_end("-c", "pass")}
            measured["help"] = starts.to_the_end(*SCRIPT, "--help")
            for name, arguments in COMMANDS.items():
                measured[name], measured[f"{name}_answer"] = starts.to_listening(*arguments)
            if round_number:  # the first one fills the caches
                for name, value in measured.items():
                    seconds.setdefault(name, []).append(value)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {name: value / medians["floor"] for name, value in medians.items() if name != "floor"}
    rows = [[name, number(value * 1000), number(ratios.get(name))] for name, value in medians.items()]
    print_table(["until", "ms", "ratio"], rows)
    if options.json:
        milliseconds = {f"{name}_ms": value * 1000 for name, value in medians.items()}
        print_json({**{f"{name}_ratio": value for name, value in ratios.items()}, **milliseconds})


if __name__ == "__main__":
    main()
