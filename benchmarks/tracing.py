"""Processor time of a tick with tracing, without it, and with the source of another commit.

`python benchmarks/tracing.py --before PATH` compares three ways to run the same ticks, in alternated rounds, by the
processor time of a tick, all threads of the process together:

* before: with the package at PATH (the `src` of a checkout); left out without the option;
* off: this package, without tracing;
* on: this package, with a share of the ticks as spans (`--ratio`, 0.01), sent to a receiver in another process.

`embedded` is a trial of two actors in one process, each round in a process of its own; long enough that the connection
to the receiver, which a process makes once, does not count as a price of ticks. `wire` is an orchestrator in a process
of its own, as in `wire.py`, with its participants in another one. The ratios are medians over the rounds.

With `--check` the exit code is 1 if this package without tracing costs more than 1 % more than the one before, or with
it more than 2 % more than without. It needs a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from _children import Child
from _report import number, print_json, print_table

TRIALS_OVER_THE_WIRE = 32
ACTORS = 2
#: Before the clock runs: what is imported at first use is no price of ticks, and OpenTelemetry has imported part of it.
WARM_TICKS = 200
#: With `--check`: the most that a ratio may be.
LIMITS = {"off_to_before": 1.01, "on_to_off": 1.02}


def receive() -> None:
    """Be a receiver of spans that keeps nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


def embedded(ticks: int, endpoint: str, ratio: float) -> None:
    """Run a trial in this process, and print the processor time of a tick."""
    import trio
    from embedded import run_platform

    began = 0.0

    async def main() -> int:
        nonlocal began
        if not endpoint:
            await run_platform(1, ACTORS, WARM_TICKS)
            began = time.process_time()
            await run_platform(1, ACTORS, ticks)
            return
        from trio_cogment.base.config import TracingConfig
        from trio_cogment.base.tracing import open_tracing

        # What is left to be sent at the end is part of the price.
        async with open_tracing(TracingConfig(endpoint=endpoint, tick_ratio=ratio, flush_seconds=30.0)):
            await run_platform(1, ACTORS, WARM_TICKS)
            began = time.process_time()
            await run_platform(1, ACTORS, ticks)

    trio.run(main)
    print(1e6 * (time.process_time() - began) / ticks)


def compare_embedded(sides: dict[str, str], endpoint: str, ratio: float, rounds: int, ticks: int) -> dict[str, float]:
    def run(side: str) -> float:
        given = ["--embedded", str(ticks), *(["--endpoint", endpoint] if side == "on" else []), "--ratio", str(ratio)]
        command = [sys.executable, __file__, *given]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": sides[side]}, check=True, capture_output=True, text=True
        )
        return float(done.stdout.split()[-1])

    return ratios_of(sides, {number_of: {side: run(side) for side in sides} for number_of in range(rounds)})


def compare_wire(sides: dict[str, str], endpoint: str, ratio: float, rounds: int, window_s: float) -> dict[str, float]:
    from wire import Ours, measure, peers_command

    found: dict[int, dict[str, float]] = {number_of: {} for number_of in range(rounds)}
    with ExitStack() as stack:
        peers = Child(peers_command("peers"))
        stack.callback(peers.stop)
        port = int(peers.read())
        servers: dict[str, Ours] = {}
        for side, source in sides.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options = [f"--tracing_endpoint={endpoint}", f"--tracing_tick_ratio={ratio}"] if side == "on" else []
            os.environ["PYTHONPATH"] = source
            servers[side] = Ours(port, folder, *options)
            stack.callback(servers[side].close)
        for number_of, sample in found.items():
            for side in list(servers)[:: -1 if number_of % 2 else 1]:
                one = measure(servers[side], peers, TRIALS_OVER_THE_WIRE, 0.4, window_s)
                sample[side] = one.cpu_us_per_tick
    return ratios_of(sides, found)


def ratios_of(sides: dict[str, str], found: dict[int, dict[str, float]]) -> dict[str, float]:
    """Return the medians of the rounds: the time of a tick, and its ratio to that of the first side there is."""
    values = {f"{side}_us": statistics.median(one[side] for one in found.values()) for side in sides}
    if "before" in sides:
        values["off_to_before"] = statistics.median(one["off"] / one["before"] for one in found.values())
    values["on_to_off"] = statistics.median(one["on"] / one["off"] for one in found.values())
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="PATH", help="the `src` of a checkout to compare with")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ticks", type=int, default=60_000, help="of an embedded trial, in a round")
    parser.add_argument("--window", type=float, default=2.0, metavar="SECONDS", help="of a round over the wire")
    parser.add_argument("--ratio", type=float, default=0.01, help="which share of the ticks are spans")
    parser.add_argument("--only", choices=["embedded", "wire"])
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--check", action="store_true", help="fail if a tick costs more than it may")
    parser.add_argument("--embedded", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", default="", help=argparse.SUPPRESS)
    parser.add_argument("--receive", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.receive:
        receive()
        return 0
    if args.embedded:
        embedded(args.embedded, args.endpoint, args.ratio)
        return 0
    here = str(Path(__file__).resolve().parents[1] / "src")
    sides = {**({"before": str(Path(args.before).resolve())} if args.before else {}), "off": here, "on": here}
    with Child([sys.executable, __file__, "--receive"]) as receiver:
        endpoint = f"http://127.0.0.1:{receiver.read()}"
        values: dict[str, float | None] = {}
        if args.only != "wire":
            found = compare_embedded(sides, endpoint, args.ratio, args.rounds, args.ticks)
            values |= {f"embedded_{name}": value for name, value in found.items()}
        if args.only != "embedded":
            found = compare_wire(sides, endpoint, args.ratio, args.rounds, args.window)
            values |= {f"wire_{name}": value for name, value in found.items()}
    print(f"medians of {args.rounds} alternated rounds; {args.ratio:.0%} of the ticks are spans")
    print_table(list(values), [[number(value) for value in values.values()]])
    if args.json:
        print_json(values)
    if not args.check:
        return 0
    above = [
        f"{name} is {value:.3f}, and may be {limit}"
        for name, value in values.items()
        for ratio, limit in LIMITS.items()
        if name.endswith(ratio) and value is not None and value > limit
    ]
    print("\n".join(above), file=sys.stderr)
    return int(bool(above))


if __name__ == "__main__":
    sys.exit(main())
