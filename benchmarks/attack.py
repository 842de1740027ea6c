"""Attacks of an anonymous neighbour on a server, each beside a trial that should tick 80 times a second.

`python benchmarks/attack.py` starts a default `trio-cogment serve` for each attack, lets the neighbour's trial tick
over gRPC on the loopback, and then lets another process attack, in a bounded number of requests and for a bounded time
(`_attacks.py` has the table; `--list` prints it). Four bars hold for each of them:

* `kept_ticks`: ticks a second during the attack, divided by those before it, are 0.5 at least;
* `gap_ms`: the longest time without a tick is 250 ms at most;
* `rss_mib`: the server's resident memory rises by 256 MiB at most, and 10 s after the attack it is at most `BACK_MIB`
  above what it was before (`rss_left_mib`), and what a cache keeps on purpose (`KEPT_MIB`);
* `stop_s`: in the middle of a second attack a SIGTERM ends the server within 5 s.

While transfers are attacked, honest ones must succeed besides (`honest`). What all callers have together (worlds,
seats, sockets, a lobby) is attacked from one address at a server with every door (`_attack_stage.py`), where somebody
at another address must find a place during the attack and after it. `cpu_s` is the server's time on a processor,
`attacker_cpu_s` that of the attacker, which stands back for the others where processors are few. A gap is noise, too,
where the machine is busy: `idle_gap_ms` is the longest one before the attack.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import _attack_neighbour
import _attack_stage
import _attacks
from _attacks import ATTACKS, DOORS, TRANSFERS
from _children import Child, cpu_ns
from _report import number, print_json, print_table

LEAST_KEPT_TICKS = 0.5
MOST_GAP_MS = 250.0
MOST_RSS_MIB = 256.0
#: What may be left of it: trials that were started and not ended stay, within the limits, and allocators do not give
#: back pages of which a part is in use.
BACK_MIB = 64.0
#: What is kept on purpose besides: versions of models in their cache, as many as `cache_max_bytes` allows.
KEPT_MIB = {"cached_uploads": 128.0}
BACK_SECONDS = 10.0
MOST_STOP_S = 5.0
#: A server that takes more is killed, for the sake of the machine.
_KILL_MIB = 6000.0
_STOP_PATIENCE_S = 30.0
_PATIENCE_S = 5.0
_MIB = 2**20


class Server:
    """A default server, or one with every door, in a folder of its own.

    Attributes:
        port: where it listens.
        link: of its lobby, if it has one.
    """

    def __init__(self, folder: Path, args: argparse.Namespace, *, doors: bool = False) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        status, log = folder / "status", folder / "log"
        profile = ["-m", "cProfile", "-o", os.path.abspath(args.profile)] if args.profile else []
        command = [sys.executable, *profile, "-m", "trio_cogment"]
        command += ["serve", "--host=127.0.0.1", *args.option]
        if doors:
            command = [sys.executable, *profile, _attack_stage.__file__, f"--link_file={folder / 'link'}"]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, f"--port={self.port}", f"--status_file={status}"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while not (status.exists() and "R" in status.read_text()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise SystemExit(f"the server does not start:\n{log.read_text()}")
            time.sleep(0.02)
        self.link = (folder / "link").read_text() if doors else ""

    def rss_mib(self) -> float:
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / _MIB

    def cpu_s(self) -> float:
        try:
            return sum(cpu_ns(self.process.pid).values()) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            return 0.0

    def stop(self) -> float:
        """Send SIGTERM and return the seconds until the process is gone."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.close()
        return time.monotonic() - began

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)


class Attacker:
    """The process that attacks, one attack after the other."""

    def __init__(self, names: list[str], server: Server, args: argparse.Namespace, *, patience_s: float = 0.0) -> None:
        options = [f"--port={server.port}", f"--seconds={args.seconds}", f"--scale={args.scale}"]
        options += [f"--patience={patience_s}", f"--link={server.link}"]
        # gRPC complains about calls that are cancelled, which is all that an attack ends with.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  `close` closes it
        self.process = subprocess.Popen(
            [sys.executable, _attacks.__file__, *names, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,
        )
        self.cpu_s = 0.0

    def look(self) -> bool:
        """Keep how much of a processor it has taken; False when it is over."""
        try:
            self.cpu_s = sum(cpu_ns(self.process.pid).values()) / 1e9 or self.cpu_s
        except (FileNotFoundError, ProcessLookupError):
            pass
        return self.process.poll() is None

    def outcomes(self) -> list[dict[str, int]]:
        """Return what the server answered to each attack, and how often; they must be over."""
        assert self.process.stdout is not None
        lines = self.process.stdout.read().splitlines()
        if self.process.wait(10):
            self._complaints.seek(0)
            raise SystemExit(f"an attacker failed:\n{self._complaints.read().decode()}")
        return [json.loads(line)["outcomes"] for line in lines]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._complaints.close()


@dataclass
class Result:
    """What one attack did."""

    name: str
    kept_ticks: float = 0.0
    gap_ms: float = 0.0
    idle_gap_ms: float = 0.0
    rss_mib: float = 0.0
    rss_left_mib: float = 0.0
    stop_s: float = 0.0
    cpu_s: float = 0.0
    attacker_cpu_s: float = 0.0
    #: What came of the neighbour's transfers, or of a newcomer's wishes; None: there were none.
    honest: bool | None = None
    survived: bool = True
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """Which bars it breaks."""
        bars = {
            "kept_ticks": self.kept_ticks >= LEAST_KEPT_TICKS,
            "gap_ms": self.gap_ms <= MOST_GAP_MS,
            "rss_mib": self.rss_mib <= MOST_RSS_MIB,
            "rss_left_mib": self.rss_left_mib <= BACK_MIB + KEPT_MIB.get(self.name, 0.0),
            "stop_s": self.stop_s <= MOST_STOP_S,
            "honest": self.honest is not False,
            "survived": self.survived,
        }
        return [name for name, holds in bars.items() if not holds]


class Bench:
    """One attack after the other, each on a server of its own."""

    def __init__(self, neighbour: Child, args: argparse.Namespace) -> None:
        self._neighbour = neighbour
        self._args = args

    def measure(self, name: str) -> Result:
        result = Result(name)
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            server = Server(Path(folder), self._args, doors=name in DOORS)
            try:
                self._neighbour.ask(f"start {server.port}")
                self._attack(server, result)
                if server.process.poll() is None:
                    self._wait_back(server, result)
                    self._stop_during(server, result)
                else:
                    result.survived = False
                if self._args.log:
                    print(Path(folder, "log").read_text()[-40000:], file=sys.stderr)
            finally:
                server.close()
        return result

    def _window(self, since: float, until: float) -> dict[str, float]:
        return dict(json.loads(self._neighbour.ask(f"window {since} {until}")))

    def _attack(self, server: Server, result: Result) -> None:
        began = time.monotonic()
        time.sleep(self._args.before)
        before = self._window(began, time.monotonic())
        self._idle_mib = server.rss_mib()
        cpu = server.cpu_s()
        began = time.monotonic()
        attacker = Attacker([result.name], server, self._args)
        honest = None
        if result.name in TRANSFERS | DOORS:
            honest = threading.Thread(target=self._wish, args=(result, server, self._args.seconds / 2))
        if honest is not None:
            honest.start()
        try:
            while attacker.look() and time.monotonic() < began + 3 * self._args.seconds + 30:
                rss = server.rss_mib()
                result.rss_mib = max(result.rss_mib, rss - self._idle_mib)
                if rss > _KILL_MIB:
                    server.close()
                time.sleep(0.02)
            result.outcomes = attacker.outcomes()[0]
        finally:
            attacker.close()
            if honest is not None:
                honest.join()
        if result.name in DOORS:  # what it has left behind must not be in the way
            self._wish(result, server, 0.0)
        # What the last of it brings about counts, too.
        time.sleep(self._args.after)
        during = self._window(began, time.monotonic())
        result.kept_ticks = during["ticks_per_s"] / before["ticks_per_s"]
        result.gap_ms, result.idle_gap_ms = during["gap_ms"], before["gap_ms"]
        result.cpu_s, result.attacker_cpu_s = server.cpu_s() - cpu, attacker.cpu_s

    def _wish(self, result: Result, server: Server, seconds: float) -> None:
        """After some time, upload and download as a neighbour would, or do what a newcomer wants."""
        time.sleep(seconds)
        wish = f"transfer {_PATIENCE_S}"
        if result.name in DOORS:
            wish = f"door {result.name} {server.port} {_PATIENCE_S} {server.link}"
        answer = self._neighbour.ask(wish)
        result.honest = answer == "yes" and result.honest is not False
        if answer != "yes":
            print(f"{result.name}: honest {wish.split()[0]}: {answer}", flush=True)

    def _wait_back(self, server: Server, result: Result) -> None:
        until = time.monotonic() + BACK_SECONDS
        while True:
            result.rss_left_mib = server.rss_mib() - self._idle_mib
            if result.rss_left_mib <= BACK_MIB / 4 or time.monotonic() > until:
                return
            time.sleep(0.1)

    def _stop_during(self, server: Server, result: Result) -> None:
        attacker = Attacker([result.name], server, self._args)
        try:
            time.sleep(min(3.0, self._args.seconds / 2))
            result.stop_s = server.stop()
        finally:
            attacker.close()


_COLUMNS = ("kept_ticks", "gap_ms", "idle_gap_ms", "rss_mib", "rss_left_mib", "stop_s", "cpu_s", "attacker_cpu_s")


def benchmark(names: list[str], args: argparse.Namespace) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    rows = []
    broken = 0
    with Child([sys.executable, _attack_neighbour.__file__]) as neighbour:
        neighbour.read()
        bench = Bench(neighbour, args)
        for name in names:
            result = bench.measure(name)
            broken += bool(result.broken)
            for column in _COLUMNS:
                values[f"{column}_{name}"] = getattr(result, column)
            if result.honest is not None:
                values[f"honest_{name}"] = float(result.honest)
            verdict = " ".join(result.broken) or "holds"
            rows.append([name, *(number(getattr(result, column)) for column in _COLUMNS), verdict])
            answers = "; ".join(f"{count} x {kind}" for kind, count in result.outcomes.items())
            print(f"{name}: {verdict}\n  {answers}", flush=True)
    values["attacks"] = len(names)
    values["attacks_that_break_a_bar"] = broken
    print_table(["attack", *_COLUMNS, "bars"], rows)
    return values


def smoke(names: list[str], args: argparse.Namespace) -> dict[str, dict[str, int]]:
    """Let all attacks go against one server, or one with every door; its trial ticks at the end."""
    parts = [[name for name in names if (name in DOORS) is doors] for doors in (False, True)]
    return {name: kinds for part in parts if part for name, kinds in _smoked(part, args).items()}


def _smoked(names: list[str], args: argparse.Namespace) -> dict[str, dict[str, int]]:
    with ExitStack() as stack:
        neighbour = stack.enter_context(Child([sys.executable, _attack_neighbour.__file__]))
        neighbour.read()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attack-")))
        server = Server(folder, args, doors=names[0] in DOORS)
        stack.callback(server.close)
        neighbour.ask(f"start {server.port}")
        # How fast the machine answers is not what this is about.
        attacker = Attacker(names, server, args, patience_s=60.0)
        stack.callback(attacker.close)
        outcomes = attacker.outcomes()
        since = time.monotonic()
        time.sleep(args.after)
        ticks = json.loads(neighbour.ask(f"window {since} {time.monotonic()}"))["ticks_per_s"]
        if not ticks or server.process.poll() is not None:
            raise SystemExit("the server does not live any more" if server.process.poll() else "no trial ticks")
    return dict(zip(names, outcomes, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--only", action="append", choices=sorted(ATTACKS), metavar="NAME", help="repeatable")
    parser.add_argument("--list", action="store_true", help="say what there is, and attack nobody")
    parser.add_argument("--scale", type=float, default=1.0, help="of all the numbers in an attack")
    parser.add_argument("--seconds", type=float, default=10.0, help="the longest time of an attack")
    parser.add_argument("--before", type=float, default=3.0, metavar="SECONDS", help="ticks are counted before it")
    parser.add_argument("--after", type=float, default=1.0, metavar="SECONDS", help="and go on being counted")
    parser.add_argument("--option", action="append", default=[], help="of the server; repeatable")
    parser.add_argument("--smoke", action="store_true", help="all on one server; say only what was answered, as JSON")
    parser.add_argument("--profile", default="", metavar="PATH", help="write a profile of the (last) server there")
    parser.add_argument("--log", action="store_true", help="print the end of each server's log")
    args = parser.parse_args()
    if args.list:
        for name, attack in ATTACKS.items():
            print(f"{name}: {attack.__doc__}")
        return
    if args.smoke:
        print(json.dumps(smoke(args.only or list(ATTACKS), args)))
        return
    values = benchmark(args.only or list(ATTACKS), args)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
