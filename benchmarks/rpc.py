"""CPU of the gRPC transport beside grpc.aio, grpclib, stock purerpc and bare Trio TCP.

`python benchmarks/rpc.py` measures, in alternated rounds, the CPU (user and system time of all threads) that one
program spends per operation while the same peer, grpc.aio in another process, talks to it:

* `pingpong`: one bidirectional stream, one message of 100 bytes in flight; the server is measured;
* `streams16`: 16 such streams on one connection;
* `unary`: unary calls of 100 bytes, one after the other;
* `sstream_1k`: one call that answers with many messages of 1 KiB;
* `pingpong_16k`, `unary_16k`, `sstream_16k`: the same with messages of 16 KiB; and so with `100k`, `1m` and `16m`;
* `client_pingpong`: as `pingpong`, and the client is measured; the server is grpc.aio.

The ratio is the median over the rounds of a program's CPU divided by grpc.aio's of the same round; with --json the last
line holds ours by these names. "push" is ours with a consumer (`Call.set_consumer`) instead of a handler that pulls.
Bare TCP has its own peer (no gRPC client speaks to it), a connection for each stream, and no unary calls but echoes.

With --web, servers that serve browsers on their port are measured beside servers that do not; the last line has the
ratios by these names with `_web` and `_web_push`. With --tokens, servers that let in nobody without a token, which each
call brings in its metadata, are measured beside open ones: `_tokens` and `_tokens_push`.
Linux only: the time comes from /proc.
"""

from __future__ import annotations

import argparse
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from _report import number, print_json, print_table

#: Operations of a round: about a third of a second with grpc.aio.
OPERATIONS = {
    "pingpong": 2400,
    "streams16": 3200,
    "unary": 800,
    "sstream_1k": 6000,
    "client_pingpong": 2400,
    "pingpong_16k": 1600,
    "pingpong_100k": 600,
    "pingpong_1m": 100,
    "pingpong_16m": 8,
    "unary_16k": 700,
    "unary_100k": 400,
    "unary_1m": 100,
    "unary_16m": 8,
    "sstream_16k": 4000,
    "sstream_100k": 1000,
    "sstream_1m": 200,
    "sstream_16m": 16,
}
GATES = {
    "pingpong": 0.65,
    "streams16": 0.50,
    "unary": 1.0,
    "sstream_1k": 0.10,
    "client_pingpong": 1.0,
    "pingpong_100k": 0.7,
    "pingpong_1m": 0.9,
    "pingpong_16m": 0.9,
}
#: A server with something more and one without it, by what is added to the names of the results.
WEB = {"_web": ("web", "ours"), "_web_push": ("web-push", "push")}
TOKENS = {"_tokens": ("tokens", "ours"), "_tokens_push": ("tokens-push", "push")}
BASE = "grpc.aio"
ROWS = ("ours", "push", BASE, "grpclib", "purerpc", "raw")
ANSWER_SECONDS = 20.0


class DiedError(Exception):
    """A program that cannot do its work."""


class Child:
    """A process that answers each line with a line."""

    def __init__(self, role: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, f"--role={role}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def read(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise DiedError
        return line.strip()

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DiedError from None
        return self.read()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(10)


def cpu_ns(pid: int) -> int:
    """Time on a CPU of all threads of a process that are alive."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            spent += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # the thread has just ended
            pass
    return spent


class Bench:
    """All programs, started when they are first needed; what fails once is not tried again."""

    def __init__(self, stack: ExitStack, scale: float) -> None:
        self._stack = stack
        self._scale = scale
        self._children: dict[str, Child] = {}
        self._ports: dict[str, str] = {}
        self.failed: set[tuple[str, str]] = set()
        self.cpu_us: dict[tuple[str, str], list[float]] = {}

    def _child(self, role: str) -> Child:
        if role not in self._children:
            child = self._children[role] = Child(role)
            self._stack.callback(child.stop)
            if role.startswith("server"):
                self._ports[role] = child.read()
        return self._children[role]

    def measure(self, workload: str, row: str) -> None:
        """Do one round of one program."""
        if (workload, row) in self.failed:
            return
        peer = "raw" if row == "raw" else BASE
        client_side = workload.startswith("client_")
        roles = (f"server-{peer}", f"client-{row}") if client_side else (f"server-{row}", f"client-{peer}")
        try:
            server, client = self._child(roles[0]), self._child(roles[1])
            operations = max(int(OPERATIONS[workload] * self._scale), 4)
            work = f"{self._ports[roles[0]]} {workload.removeprefix('client_')}"
            if (workload, row) not in self.cpu_us:
                client.ask(f"{work} {max(operations // 4, 4)}")  # connect, fill caches
            measured = (client if client_side else server).pid
            before = cpu_ns(measured)
            client.ask(f"{work} {operations}")
            spent = cpu_ns(measured) - before
        except DiedError:
            self.failed.add((workload, row))
            for role in roles:  # neither is to be trusted with the next row
                child = self._children.pop(role, None)
                if child is not None:
                    child.stop()
            return
        self.cpu_us.setdefault((workload, row), []).append(spent / 1000 / operations)

    def ratio(self, workload: str, row: str, base: str = BASE) -> float | None:
        """Median of this program's CPU to another one's, round by round."""
        if (workload, row) in self.failed or (workload, base) in self.failed:
            return None
        pairs = zip(self.cpu_us[workload, row], self.cpu_us[workload, base], strict=True)
        return statistics.median(one / base for one, base in pairs)


def benchmark(rounds: int, workloads: Sequence[str], rows: Sequence[str], scale: float) -> dict[str, float | None]:
    started = time.monotonic()
    with ExitStack() as stack:
        bench = Bench(stack, scale)
        for number_of_round in range(rounds):
            for workload in workloads:
                # Whoever goes first has no lasting advantage.
                for row in rows[:: -1 if number_of_round % 2 else 1]:
                    bench.measure(workload, row)
    lines = []
    for workload in workloads:
        base = bench.cpu_us.get((workload, BASE))
        if not base or (workload, BASE) in bench.failed:
            raise SystemExit(f"{workload}: grpc.aio itself failed")
        ratios = [bench.ratio(workload, row) for row in rows]
        cells = ["fails" if ratio is None else number(ratio) for ratio in ratios]
        lines.append([workload, number(statistics.median(base)), *cells, number(GATES.get(workload))])
    seconds = time.monotonic() - started
    print(f"CPU per operation, ratio to grpc.aio; medians of {rounds} alternated rounds, {seconds:.0f} s in all")
    print_table(["workload", "grpc.aio us", *rows, "gate"], lines)
    return {workload: bench.ratio(workload, "ours") for workload in workloads} if "ours" in rows else {}


def compare(
    what: str, pairs: dict[str, tuple[str, str]], rounds: int, workloads: Sequence[str], scale: float
) -> dict[str, float | None]:
    """Return the CPU of servers with something to that of servers without it."""
    values: dict[str, float | None] = {}
    lines = []
    with ExitStack() as stack:
        bench = Bench(stack, scale)
        for workload in workloads:
            for name, rows in pairs.items():
                for number_of_round in range(rounds):
                    for row in rows[:: -1 if number_of_round % 2 else 1]:
                        bench.measure(workload, row)
                values[workload + name] = bench.ratio(workload, *rows)
            lines.append([workload, *(number(values[workload + name]) for name in pairs)])
    print(f"CPU per operation with {what}, ratio to without; medians of {rounds} alternated rounds")
    print_table(["workload", "pull", "push"], lines)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="times as many operations in each round")
    parser.add_argument("--workloads", default=",".join(OPERATIONS), help="comma-separated (default: all)")
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated (default: all)")
    comparison = parser.add_mutually_exclusive_group()
    comparison.add_argument("--web", action="store_true", help="compare servers with and without a web side")
    comparison.add_argument("--tokens", action="store_true", help="compare servers that ask for tokens with open ones")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        import _raw_tcp  # it adds its roles
        from _rpc_peers import ROLES

        assert _raw_tcp
        ROLES[args.role]()
        return
    workloads = args.workloads.split(",")
    if args.web or args.tokens:
        of_servers = [workload for workload in workloads if not workload.startswith("client_")]
        what, pairs = ("a web side", WEB) if args.web else ("tokens", TOKENS)
        values = compare(what, pairs, args.rounds, of_servers, args.scale)
        if args.json:
            print_json(values)
        return
    rows = args.rows.split(",")
    if BASE not in rows:
        rows.append(BASE)
    values = benchmark(args.rounds, workloads, rows, args.scale)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
