"""From the command to the first answer of a server, beside the start of Python itself.

`python benchmarks/startup.py` runs, alternated, each in a new process of this Python:

* the floor: `python -c pass`;
* `trio-cogment --help`, until it has ended;
* `trio-cogment services directory`, `services orchestrator` and `serve`, until the line "... listening on ..." has come
  out and a connection made then has the answer to a call of `Version`.

`--other=FOLDER` measures another build beside it, by turns in the same rounds: the folder has a source tree, such as a
worktree of an earlier commit. Then `<server>_of_other` is the time of this build in those of the other one.

Everything is measured twice: as time, and as processor time of the process until it answers, which other work on the
machine changes little. The ratios are medians over the rounds, divided by the floor's median.

`.pth` files, such as those of an editable installation or of coverage, make every start of Python slower, and so the
ratios smaller than a user's. So all processes run in an empty environment made for this run, which finds the packages
of this one by PYTHONPATH. The commands are started as the installed script starts them.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import socket
import statistics
import struct
import subprocess
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

from _report import number, print_json, print_table

SOURCES = Path(__file__).resolve().parent.parent
#: Name -> what is started, and the service that is asked.
SERVERS = {
    "directory": (("services", "directory", "--host=127.0.0.1", "--port=0"), "DirectorySP"),
    "orchestrator": (
        ("services", "orchestrator", "--host=127.0.0.1", "--lifecycle_port=0", "--actor_port=0"),
        "TrialLifecycleSP",
    ),
    "serve": (("serve", "--host=127.0.0.1", "--port=0"), "TrialLifecycleSP"),
}
SCRIPT = ("-c", "import sys; from trio_cogment.cli import main; sys.exit(main())")
LISTENING = re.compile(rb" listening on 127\.0\.0\.1:(\d+)\b")

# Enough of HTTP/2 for one call without metadata: a client on a library would take longer than the answer.
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_POST_HTTP = b"\x83\x86"  # of HPACK's static table, as are 1, :authority, and 4, :path
_FRAME_HEAD_BYTES, _MESSAGE_HEAD_BYTES = 9, 5


class Spent(NamedTuple):
    """Seconds."""

    time: float
    processor: float


class Starts:
    """Starts processes of this Python in a folder of their own, without the variables that the command line reads.

    Args:
        folder: of the processes.
        sources: the source tree of the build.
    """

    def __init__(self, folder: Path, sources: Path) -> None:
        ours = ("COGMENT_", "TRIO_COGMENT_", "TRIAL_", "PROMETHEUS_")
        venv.create(folder / "environment", symlinks=True)
        self._python = str(folder / "environment" / "bin" / "python")
        self._folder = folder
        paths = [str(sources / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self._env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))

    def to_the_end(self, *arguments: str) -> Spent:
        """Return what a process takes from exec to its end."""
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [self._python, *arguments], cwd=self._folder, env=self._env, stdout=subprocess.DEVNULL, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Spent(time.perf_counter() - began, spent)

    def to_the_answer(self, arguments: tuple[str, ...], service: str) -> Spent:
        """Return what a server takes from exec until it has answered `Version`."""
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
                ask_version(connection, service)
                return Spent(time.perf_counter() - began, _processor_seconds(process.pid))
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def ask_version(connection: socket.socket, service: str) -> None:
    """Call `Version`, and return when the answer has come."""
    fields = _POST_HTTP + b"\x04" + _text(f"/cogmentAPI.{service}/Version") + b"\x01" + _text("localhost")
    fields += b"".join(b"\0" + _text(name) + _text(value) for name, value in _FIELDS.items())
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, fields)
        + _frame(_DATA, _END_STREAM, 1, bytes(_MESSAGE_HEAD_BYTES))
    )
    answered = False
    while True:
        head = _read(connection, _FRAME_HEAD_BYTES)
        kind, flags = head[3], head[4]
        content = _read(connection, int.from_bytes(head[:3], "big"))
        answered = answered or (kind == _DATA and len(content) > _MESSAGE_HEAD_BYTES)
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            break
    if not answered:
        raise SystemExit(f"{service} does not answer Version")


_FIELDS = {"content-type": "application/grpc", "te": "trailers"}


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise SystemExit("a server has closed the connection")
        data += more
    return data


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a process that runs; NaN where Linux does not tell it."""
    try:
        tasks = [(task / "schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return float("nan")
    return sum(int(text.split()[0]) for text in tasks) / 1e9


def measure(rounds: int, builds: dict[str, Path]) -> dict[str, list[Spent]]:
    """Start everything by turns; return what each took, without the first round, which fills the caches.

    Args:
        rounds: how often.
        builds: what comes behind the names of the servers -> a source tree.
    """
    found: dict[str, list[Spent]] = {}
    with tempfile.TemporaryDirectory() as folder:
        starts = {}
        for build, sources in builds.items():
            place = Path(folder, f"build{build}")
            place.mkdir()
            starts[build] = Starts(place, sources)
        for round_number in range(rounds + 1):
            taken = {
                "floor": starts[""].to_the_end("-c", "pass"),
                "help": starts[""].to_the_end(*SCRIPT, "--help"),
            }
            for name, (arguments, service) in SERVERS.items():
                for build in sorted(builds, reverse=bool(round_number % 2)):
                    taken[name + build] = starts[build].to_the_answer(arguments, service)
            if round_number:
                for name, spent in taken.items():
                    found.setdefault(name, []).append(spent)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--other", type=Path, metavar="FOLDER", help="a source tree of another build")
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    options = parser.parse_args()
    builds = {"": SOURCES} | ({} if options.other is None else {" of the other": options.other.resolve()})
    spent = measure(options.rounds, builds)
    times = {name: statistics.median(one.time for one in values) for name, values in spent.items()}
    processor = {name: statistics.median(one.processor for one in values) for name, values in spent.items()}
    rows = [
        [
            name,
            number(times[name] * 1000),
            number(times[name] / times["floor"]),
            number(processor[name] * 1000),
            number(processor[name] / processor["floor"]),
        ]
        for name in times
    ]
    print_table(["until the end, or the first answer", "ms", "ratio", "processor ms", "ratio"], rows)
    ratios = {f"{name}_ratio": times[name] / times["floor"] for name in times if name != "floor"}
    if options.other is not None:
        for name in SERVERS:
            ratios[f"{name}_of_other"] = times[name] / times[f"{name} of the other"]
            ratios[f"{name}_processor_of_other"] = processor[name] / processor[f"{name} of the other"]
            print(f"{name}: {ratios[f'{name}_of_other']:.2f} of the other's time, ", end="")
            print(f"{ratios[f'{name}_processor_of_other']:.2f} of its processor time")
    if options.json:
        milliseconds = {f"{name}_ms": value * 1000 for name, value in times.items()}
        print_json({name.replace(" ", "_"): value for name, value in {**ratios, **milliseconds}.items()})


if __name__ == "__main__":
    main()
