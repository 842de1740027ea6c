"""Processor time of a server of dm_env_rpc per step: trials as worlds, beside the published library's own server.

`python benchmarks/dm_env_rpc.py` plays catch, whose sequences are ten steps long, with the published library's client,
in alternated rounds, on

* the library's own server, on grpcio, in a process of its own;
* the gateway, whose environment is the same game in its process: each sequence is a trial;
* the gateway over the bridge to the library's own server: the time of both processes counts.

`gateway_ratio` and `bridge_ratio` are the medians over the rounds of their time over the library's. The Python that has
the published library is named by TRIO_COGMENT_DM_ENV_RPC_PYTHON; `nox -s interop` makes one. Linux only: the time comes
from /proc.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from _children import Child, cpu_ns
from _report import number, print_json, print_table

HERE = Path(__file__).parent
#: With -P this folder is not a place to import from: this module has the name of the library.
LIBRARY = ("-P", str(HERE / "_dm_env_rpc_library.py"))
GATEWAY = str(HERE / "_dm_env_rpc_gateway.py")
VARIABLE = "TRIO_COGMENT_DM_ENV_RPC_PYTHON"
BARS = {"gateway_ratio": "<= 1.0", "bridge_ratio": "<= 2.0"}


class Side:
    """A server, or several behind each other, and a client that plays on the first.

    Args:
        python: that has the published library.
        servers: the processes; what they print first is their port.
    """

    def __init__(self, python: str, *servers: Child) -> None:
        self._servers = servers
        self._client = Child([python, *LIBRARY, "client", self.port])
        self._client.read()

    @property
    def port(self) -> str:
        return self._servers[0].greeting

    def play(self, steps: int) -> float:
        """Return microseconds of processor time per step."""
        before = [cpu_ns(server.pid) for server in self._servers]
        self._client.ask(str(steps))
        after = [cpu_ns(server.pid) for server in self._servers]
        spent = sum(
            ns - earlier.get(thread, 0)
            for earlier, later in zip(before, after, strict=True)
            for thread, ns in later.items()
        )
        return spent / 1000 / steps


def measure(python: str, rounds: int, steps: int, sides: Sequence[str]) -> dict[str, list[float]]:
    with ExitStack() as stack:

        def child(*command: str) -> Child:
            started = stack.enter_context(Child(command))
            started.greeting = started.read()
            return started

        library = Side(python, child(python, *LIBRARY, "server"))
        all_sides = {"library": library}
        if "gateway" in sides:
            all_sides["gateway"] = Side(python, child(sys.executable, GATEWAY))
        if "bridge" in sides:
            behind = child(python, *LIBRARY, "server")
            all_sides["bridge"] = Side(python, child(sys.executable, GATEWAY, behind.greeting), behind)
        for side in all_sides.values():
            side.play(steps)
        found: dict[str, list[float]] = {name: [] for name in all_sides}
        for _ in range(rounds):
            for name, side in all_sides.items():
                found[name].append(side.play(steps))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    parser.add_argument("--steps", type=int, default=2000, metavar="N", help="of each side in a round")
    parser.add_argument("--sides", default="gateway,bridge", help="which to compare with the library's server")
    arguments = parser.parse_args()
    python = os.environ.get(VARIABLE)
    if python is None:
        raise SystemExit(f"{VARIABLE} is not set: expected the path of a Python that has dm-env-rpc and grpcio")
    found = measure(python, arguments.rounds, arguments.steps, arguments.sides.split(","))
    values: dict[str, float | None] = {}
    for name, times in found.items():
        values[f"{name}_cpu_us_per_step"] = statistics.median(times)
    for name in found:
        if name != "library":
            pairs = zip(found[name], found["library"], strict=True)
            values[f"{name}_ratio"] = statistics.median(one / other for one, other in pairs)
    print_table(
        ("figure", "value", "bar"),
        [(name, number(value), BARS.get(name, "")) for name, value in values.items()],
    )
    if arguments.json:
        print_json(values)


if __name__ == "__main__":
    main()
