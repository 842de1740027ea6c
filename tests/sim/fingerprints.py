"""Fingerprints of the suites' runs, so that processes can be compared.

`python -m tests.sim.fingerprints 2 3 10-20` prints those of the seeds 2, 3 and 10 to 19, in the order of their numbers.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Iterable

from tests.sim.suite import Unit, plan_of, scenario_of, units_of
from trio_cogment.testing import simulate


def fingerprint(unit: Unit) -> str:
    """Return what stands for a run's schedule, and for all that was seen in it."""
    outcome = simulate(unit.seed, scenario_of(unit.suite), plan=plan_of(unit))
    history = "\n".join(map(str, outcome.history))
    return outcome.fingerprint + hashlib.blake2b(history.encode(), digest_size=8).hexdigest()


def seeds_of(texts: Iterable[str]) -> list[int]:
    """Return the seeds that are asked for: numbers, and ranges without their ends."""
    seeds: set[int] = set()
    for text in texts:
        first, _, end = text.partition("-")
        seeds.update(range(int(first), int(end)) if end else [int(first)])
    return sorted(seeds)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # what fakes do on purpose is logged as what it would be
    for seed in seeds_of(sys.argv[1:]):
        for unit in units_of(seed):
            print(f"{unit.seed}/{unit.suite.replace(' ', '-')}", fingerprint(unit))
