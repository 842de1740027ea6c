"""CPU per tick of a trial whose agent and environment are of the legacy API, beside the same trial with today's.

`python benchmarks/legacy.py` runs `trio-cogment services orchestrator` in a process of its own, with the gateway for
the legacy API in it, and both kinds of peers in another, on grpc.aio. In alternated rounds one trial of one actor runs:
with two streams, or with two calls in each tick. CPU is user and system time of all threads of the orchestrator's
process during a window, divided by the ticks done in that window. `legacy_ratio` is the median over the rounds of the
time with old peers over that with peers of today. Linux only: the time comes from /proc.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import _legacy_peers
from _children import Child
from _report import number, print_json, print_table
from wire import Ours, Round, measure

from trio_cogment.api import common_pb2, orchestrator_pb2

PROFILE = "legacy: {classes: [player]}\n"
BAR = "<= 2.0"
SIDES = {"today": "grpc", "legacy": "legacy"}


class Side(Ours):
    """An orchestrator whose trials have peers of one kind; several may share its process."""

    def __init__(self, of: Ours, scheme: str) -> None:
        self.__dict__.update(of.__dict__)
        self._scheme = scheme

    def start(self, trials: int) -> None:
        endpoint = f"{self._scheme}://127.0.0.1:{self._peers_port}"
        params = common_pb2.TrialParams(
            environment=common_pb2.EnvironmentParams(name="env", endpoint=endpoint),
            actors=[common_pb2.ActorParams(name="actor", actor_class="player", endpoint=endpoint)],
        )
        request = orchestrator_pb2.TrialStartRequest(user_id="benchmark", params=params)
        self._trials = [self._start(request, timeout=30).trial_id for _ in range(trials)]


def benchmark(rounds: int, warm_s: float, window_s: float) -> dict[str, float | None]:
    found: dict[str, list[Round]] = {name: [] for name in SIDES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        profile = folder / "legacy.yaml"
        profile.write_text(PROFILE)
        peers = Child([sys.executable, _legacy_peers.__file__])
        stack.callback(peers.stop)
        ours = Ours(int(peers.read()), folder, f"--legacy={profile}")
        stack.callback(ours.close)
        sides = {name: Side(ours, scheme) for name, scheme in SIDES.items()}
        for number_of_round in range(rounds):
            for name in list(sides)[:: -1 if number_of_round % 2 else 1]:
                found[name].append(measure(sides[name], peers, 1, warm_s, window_s))
    values: dict[str, float | None] = {}
    for name, its_rounds in found.items():
        values[f"{name}_ticks_per_s"] = statistics.median(one.ticks_per_s for one in its_rounds)
        values[f"{name}_cpu_us_per_tick"] = statistics.median(one.cpu_us_per_tick for one in its_rounds)
    pairs = zip(found["legacy"], found["today"], strict=True)
    values["legacy_ratio"] = statistics.median(one.cpu_us_per_tick / other.cpu_us_per_tick for one, other in pairs)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--warm", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--window", type=float, default=2.0, metavar="SECONDS")
    arguments = parser.parse_args()
    values = benchmark(arguments.rounds, arguments.warm, arguments.window)
    bars = {"legacy_ratio": BAR}
    print_table(
        ("figure", "value", "bar"), [(name, number(found), bars.get(name, "")) for name, found in values.items()]
    )
    if arguments.json:
        print_json(values)


if __name__ == "__main__":
    main()
