"""CPU per tick of our orchestrator over gRPC, beside a relay on grpc.aio that has no logic.

`python benchmarks/wire.py` runs, for 1 and for 32 concurrent trials of 2 actors, alternated rounds of two programs
against the same environment and service actors (grpc.aio, in a third process):

* ours: `trio-cogment services orchestrator`;
* the relay: it parses and serialises the same messages with the same generated classes and passes them on; no more.

CPU is user and system time of all threads of the program during a window, divided by the ticks done in that window. The
ratio is the median over the rounds of ours divided by the relay's. Linux only: the time comes from /proc.

Then 8 concurrent clients start trials of 10 ticks, each when the one before has ended, and the time from the start
being asked to the first action set is compared in the same manner; the relay has a `StartTrial` of its own for this.

With --web, an orchestrator that serves browsers, as it does by default, is compared with one that does not
(`--web=false`), in the relay's place; the names of the results begin with `web_`. With --tokens, one that asks for
tokens (`--auth=token`), and sends some with its own calls, is compared with an open one; they begin with `tokens_`.

`--actors` and `--payload` say how many actors a trial has, and how many bytes its observation, which is the same for
all of them. `peak_mib_1` and `peak_mib_32` are the most resident memory that ours has had so far, in MiB.

With `--compiled PYTHON`, the interpreter of an installation of the compiled wheel, an orchestrator of that takes part
in the rounds, and `compiled_1` and `compiled_32` are its CPU per tick divided by ours.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import _wire_peers
import grpc
from _children import Child, cpu_ns
from _report import number, print_json, print_table
from _wire_peers import LIFECYCLE, trial_params

from trio_cogment.api import orchestrator_pb2

SIZES = (1, 32)
LANES = 8
TRIALS_IN_A_LANE = 5


def peers_command(role: str) -> list[str]:
    """Return how a process of `_wire_peers` is started."""
    options = [f"--actors={_wire_peers.ACTORS}", f"--payload={_wire_peers.OBSERVATION_BYTES}"]
    return [sys.executable, _wire_peers.__file__, role, *options]


def peak_mib(pid: int) -> float:
    """Return the most resident memory that a process has had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


class Relay:
    """The relay's process."""

    token = ""

    def __init__(self, peers_port: int) -> None:
        self._child = Child([*peers_command("relay"), f"--peers-port={peers_port}"])
        self.pid = self._child.pid
        self.port = int(self._child.read())

    def start(self, trials: int) -> None:
        self._child.ask(f"start {trials}")

    def stop(self) -> None:
        self._child.ask("stop")

    def close(self) -> None:
        self._child.stop()


class Driven:
    """An orchestrator, driven by its lifecycle service."""

    def __init__(self, port: int, peers_port: int, token: str = "") -> None:
        self.port = port
        self.token = token
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._peers_port = peers_port
        self._trials: list[str] = []
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._start = channel.unary_unary(
            LIFECYCLE + "StartTrial",
            orchestrator_pb2.TrialStartRequest.SerializeToString,
            orchestrator_pb2.TrialStartReply.FromString,
        )
        self._terminate = channel.unary_unary(
            LIFECYCLE + "TerminateTrial",
            orchestrator_pb2.TerminateTrialRequest.SerializeToString,
            orchestrator_pb2.TerminateTrialReply.FromString,
        )

    def start(self, trials: int) -> None:
        request = orchestrator_pb2.TrialStartRequest(user_id="benchmark", params=trial_params(self._peers_port))
        self._trials = [self._start(request, metadata=self._metadata, timeout=30).trial_id for _ in range(trials)]

    def stop(self) -> None:
        request = orchestrator_pb2.TerminateTrialRequest(hard_termination=True)
        trials = [("trial-id", trial) for trial in self._trials]
        self._terminate(request, metadata=[*trials, *self._metadata], timeout=30)


class Ours(Driven):
    """Our orchestrator's process."""

    def __init__(
        self, peers_port: int, folder: Path, *options: str, python: str = sys.executable, token: str = ""
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        status, self._log = folder / f"status-{port}", folder / f"log-{port}"
        script = Path(python).with_name("trio-cogment")
        command = [str(script)] if script.exists() else [python, "-m", "trio_cogment"]
        ports = [f"--lifecycle_port={port}", f"--actor_port={port}", f"--status_file={status}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "services", "orchestrator", *ports, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid
        deadline = time.monotonic() + 30
        while not (status.exists() and "R" in status.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise SystemExit(f"our orchestrator does not start:\n{self._log.read_text()}")
            time.sleep(0.02)
        super().__init__(port, peers_port, token)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)


@dataclass(frozen=True)
class Round:
    ticks_per_s: float
    cpu_us_per_tick: float


def measure(side: Relay | Ours, peers: Child, trials: int, warm_s: float, window_s: float) -> Round:
    """Run trials, let them warm up, and look at one window."""
    first = int(peers.ask("ticks"))
    side.start(trials)
    deadline = time.monotonic() + 30
    time.sleep(warm_s)
    while int(peers.ask("ticks")) < first + 20 * trials:
        if time.monotonic() > deadline:
            raise SystemExit(f"{type(side).__name__}: {trials} trials do not tick")
        time.sleep(0.02)
    ticks, cpu, started = int(peers.ask("ticks")), cpu_ns(side.pid), time.perf_counter()
    time.sleep(window_s)
    ticks, cpu_after, seconds = int(peers.ask("ticks")) - ticks, cpu_ns(side.pid), time.perf_counter() - started
    side.stop()
    spent = sum(ns - cpu.get(thread, 0) for thread, ns in cpu_after.items())
    if not ticks:
        raise SystemExit(f"{type(side).__name__}: {trials} trials stopped ticking")
    return Round(ticks / seconds, spent / 1000 / ticks)


def compare_ticks(
    ours: Ours | None,
    compiled: Ours | None,
    relay: Relay | Ours,
    peers: Child,
    trials: int,
    rounds: int,
    warm_s: float,
    window_s: float,
) -> dict[str, float | None]:
    """CPU per tick of this many trials."""
    relays: list[Round] = []
    our_rounds: list[Round] = []
    compiled_rounds: list[Round] = []
    for side in alternated([ours, compiled, relay], rounds):
        found_by = relays if side is relay else compiled_rounds if side is compiled else our_rounds
        found_by.append(measure(side, peers, trials, warm_s, window_s))
    found: dict[str, float | None] = {
        "relay_ticks_per_s": statistics.median(one.ticks_per_s for one in relays),
        "relay_cpu_us_per_tick": statistics.median(one.cpu_us_per_tick for one in relays),
    }
    if our_rounds:
        found["ticks_per_s"] = statistics.median(one.ticks_per_s for one in our_rounds)
        found["cpu_us_per_tick"] = statistics.median(one.cpu_us_per_tick for one in our_rounds)
        pairs = zip(our_rounds, relays, strict=True)
        found["cpu_ratio"] = statistics.median(one.cpu_us_per_tick / other.cpu_us_per_tick for one, other in pairs)
    if compiled_rounds:
        found["compiled_cpu_us_per_tick"] = statistics.median(one.cpu_us_per_tick for one in compiled_rounds)
        pairs = zip(compiled_rounds, our_rounds, strict=True)
        found["compiled"] = statistics.median(one.cpu_us_per_tick / other.cpu_us_per_tick for one, other in pairs)
    return found


def compare_starts(ours: Ours | None, relay: Relay | Ours, peers: Child, rounds: int) -> dict[str, float | None]:
    """How long a trial takes from its start being asked to its first action set, p50."""
    relays: list[float] = []
    our_rounds: list[float] = []
    for side in alternated([ours, relay], rounds):
        seconds = json.loads(peers.ask(f"short {side.port} {LANES} {TRIALS_IN_A_LANE} {side.token}"))
        (relays if side is relay else our_rounds).append(1000 * statistics.median(seconds))
    found: dict[str, float | None] = {"relay_first_tick_ms": statistics.median(relays)}
    if our_rounds:
        found["first_tick_ms"] = statistics.median(our_rounds)
        pairs = zip(our_rounds, relays, strict=True)
        found["first_tick_ratio"] = statistics.median(one / other for one, other in pairs)
    return found


def alternated(sides: Sequence[Ours | Relay | None], rounds: int) -> Iterator[Ours | Relay]:
    """Give those that are there in turns; whoever goes first has no lasting advantage."""
    present = [side for side in sides if side is not None]
    for number_of_round in range(rounds):
        yield from present[:: -1 if number_of_round % 2 else 1]


def benchmark(
    rounds: int, warm_s: float, window_s: float, relay_only: bool, compiled_python: str | None
) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peers = Child(peers_command("peers"))
        stack.callback(peers.stop)
        port = int(peers.read())
        relay = Relay(port)
        stack.callback(relay.close)
        ours = None if relay_only else Ours(port, folder)
        if ours is not None:
            stack.callback(ours.close)
        compiled = None if compiled_python is None else Ours(port, folder, python=compiled_python)
        if compiled is not None:
            stack.callback(compiled.close)
        for trials in SIZES:
            found = compare_ticks(ours, compiled, relay, peers, trials, rounds, warm_s, window_s)
            values |= {f"{name}_{trials}": value for name, value in found.items()}
            columns = (
                *("ticks_per_s", "cpu_us_per_tick", "relay_ticks_per_s", "relay_cpu_us_per_tick", "cpu_ratio"),
                *("compiled_cpu_us_per_tick", "compiled"),
            )
            rows.append([str(trials), *(number(found.get(name)) for name in columns)])
            if ours is not None:
                values |= {f"peak_mib_{trials}": peak_mib(ours.pid), f"relay_peak_mib_{trials}": peak_mib(relay.pid)}
        starts = compare_starts(ours, relay, peers, rounds)
        values |= {f"{name}_{LANES}": value for name, value in starts.items()}
    size = _wire_peers.OBSERVATION_BYTES
    print(f"{_wire_peers.ACTORS} actors a trial, observations of {size} bytes")
    print(f"medians of {rounds} alternated rounds of {window_s:g} s")
    heads = ["trials", "ours ticks/s", "ours CPU us/tick", "relay ticks/s", "relay CPU us/tick", "CPU ratio"]
    print_table([*heads, "compiled CPU us/tick", "compiled/ours"], rows)
    print(f"from a start to the first action set, p50 of {LANES} lanes of short trials one after the other")
    columns = ("first_tick_ms", "relay_first_tick_ms", "first_tick_ratio")
    print_table(["ours ms", "relay ms", "ratio"], [[number(starts.get(name)) for name in columns]])
    return values


def compare_options(tokens: bool, rounds: int, warm_s: float, window_s: float) -> dict[str, float | None]:
    """Compare an orchestrator that serves browsers, or that asks for tokens, with one that does not."""
    name, what = ("tokens", "tokens") if tokens else ("web", "a web side")
    values: dict[str, float | None] = {}
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        peers = Child(peers_command("peers"))
        stack.callback(peers.stop)
        port = int(peers.read())
        if tokens:
            options, token = ask_for_tokens(folders[0])
            with_it, without = Ours(port, folders[0], *options, token=token), Ours(port, folders[1])
        else:
            with_it, without = Ours(port, folders[0], "--web=true"), Ours(port, folders[1], "--web=false")
        stack.callback(with_it.close)
        stack.callback(without.close)
        for trials in SIZES:
            found = compare_ticks(with_it, None, without, peers, trials, rounds, warm_s, window_s)
            values[f"{name}_cpu_ratio_{trials}"] = found["cpu_ratio"]
        values[f"{name}_first_tick_ratio_{LANES}"] = compare_starts(with_it, without, peers, rounds)["first_tick_ratio"]
    print(f"with {what} to without, medians of {rounds} alternated rounds of {window_s:g} s")
    print_table(list(values), [[number(value) for value in values.values()]])
    return values


def ask_for_tokens(folder: Path) -> tuple[list[str], str]:
    """Return options of an orchestrator that lets in nobody without a token, and an operator's token."""
    secret = f"--auth_secret_file={folder / 'secret'}"
    subprocess.run([sys.executable, "-m", "trio_cogment", "token", "init", secret], check=True, capture_output=True)
    make = [sys.executable, "-m", "trio_cogment", "token", "make", "benchmark", "--role=operator", secret]
    made = subprocess.run(make, check=True, capture_output=True, text=True)
    return ["--auth=token", secret], made.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--warm", type=float, default=0.4, metavar="SECONDS")
    parser.add_argument("--window", type=float, default=1.5, metavar="SECONDS")
    comparison = parser.add_mutually_exclusive_group()
    comparison.add_argument("--web", action="store_true", help="compare ours with and without a web side")
    comparison.add_argument("--tokens", action="store_true", help="compare ours with and without tokens")
    parser.add_argument("--relay-only", action="store_true", help="leave our orchestrator out")
    parser.add_argument("--compiled", metavar="PYTHON", help="of an installation of the compiled wheel")
    parser.add_argument("--actors", type=int, default=_wire_peers.ACTORS, help="of each trial")
    parser.add_argument("--payload", type=int, default=_wire_peers.OBSERVATION_BYTES, metavar="BYTES")
    args = parser.parse_args()
    _wire_peers.ACTORS, _wire_peers.OBSERVATION_BYTES = args.actors, args.payload
    if (args.relay_only or args.web or args.tokens) and args.compiled:
        parser.error("--compiled: compared with a plain orchestrator beside the relay")
    if args.web or args.tokens:
        values = compare_options(args.tokens, args.rounds, args.warm, args.window)
    else:
        values = benchmark(args.rounds, args.warm, args.window, args.relay_only, args.compiled)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
