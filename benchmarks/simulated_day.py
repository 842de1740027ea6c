"""Pace of virtual time: a day of a trial with a human who does nothing, over the simulated network.

`python benchmarks/simulated_day.py` plays the scenario of `tests/sim/test_long_trial.py`: 150 ticks, each of which
waits 10 minutes for the human, with heartbeats and keepalive on. The bar is 20 s of real time, the median of the
rounds; with other work on the same cores, `cpu_seconds` says more.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
from pathlib import Path

from _report import number, print_json, print_table

from trio_cogment.testing import simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the scenario, which is the test's

BAR_SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON on the last line, too")
    parser.add_argument("--rounds", type=int, default=3, help="how often it is played")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: expected at least 1")
    from tests.sim.test_long_trial import a_day

    logging.disable(logging.CRITICAL)  # that the human does not even acknowledge is logged
    took, used = [], []
    for seed in range(options.rounds):
        before, used_before = time.perf_counter(), time.process_time()
        outcome = simulate(seed, a_day)
        took.append(time.perf_counter() - before)
        used.append(time.process_time() - used_before)
    seconds = statistics.median(took)
    figures: dict[str, float | None] = {
        "seconds": seconds,
        "bar_seconds": BAR_SECONDS,
        "cpu_seconds": statistics.median(used),
        "virtual_seconds": outcome.seconds,
        "virtual_seconds_a_second": outcome.seconds / seconds,
        "steps_a_second": outcome.steps / seconds,
    }
    print_table(["figure", "value"], [[name, number(value)] for name, value in figures.items()])
    if options.json:
        print_json(figures)
    if seconds > BAR_SECONDS:
        sys.exit(f"it took {seconds:.1f} s, more than {BAR_SECONDS:g}")


if __name__ == "__main__":
    main()
