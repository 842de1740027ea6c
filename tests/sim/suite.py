"""Both suites over many seeds, on several cores: `python -m tests.sim --seeds 20000`.

Each seed is one run of safety and one of liveness. Prints over how many seeds each `sometimes` was reached, and for
each run that failed the smallest plan that still fails, with the command that shows it again. What is declared in
`tests.sim.counting` and was never reached is a failure, too. Once in twenty seeds, the seed is run twice and the
schedules are compared.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tests.sim.counting import missing
from tests.sim.scenario import SUITES, draw_plan
from trio_cogment.testing import FaultPlan, check_determinism, simulate

CHECKED_ONCE_IN = 20
KEPT = Path(__file__).with_name("seeds.txt")
CHUNK = 25


def kept_seeds() -> list[int]:
    """Return the seeds that once failed."""
    lines = (line.partition("#")[0].strip() for line in KEPT.read_text().splitlines())
    return [int(line) for line in lines if line]


def run_suite(seed: int, suite: str, plan: FaultPlan | None = None) -> Counter[str]:
    """Run a seed of one suite, with its own plan or another; return what was reached."""
    run = check_determinism if seed % CHECKED_ONCE_IN == 0 else simulate
    return run(seed, SUITES[suite], plan=draw_plan(seed, suite) if plan is None else plan).counters


def run_seed(seed: int) -> Counter[str]:
    """Run a seed of every suite."""
    reached: Counter[str] = Counter()
    for suite in SUITES:
        reached.update(run_suite(seed, suite))
    return reached


def fails(seed: int, suite: str, plan: FaultPlan) -> bool:
    try:
        simulate(seed, SUITES[suite], plan=plan)
    except Exception:  # noqa: BLE001  whatever a run raises is its failure
        return True
    return False


def run_chunk(seeds: list[int]) -> tuple[Counter[str], list[tuple[int, str, str]]]:
    logging.disable(logging.CRITICAL)  # what fakes do on purpose is logged as what it would be
    reached: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        names: set[str] = set()
        for suite in SUITES:
            try:
                names.update(+run_suite(seed, suite))
            except Exception as error:  # noqa: BLE001  as above
                failures.append((seed, suite, describe(seed, suite, error)))
        reached.update(dict.fromkeys(names, 1))
    return reached, failures


def describe(seed: int, suite: str, error: BaseException) -> str:
    """Return what failed, and the smallest plan with which it does."""
    plan = draw_plan(seed, suite).shrink(lambda smaller: fails(seed, suite, smaller), attempts=40)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}\nsmallest plan: {plan}"


def chunks(seeds: Iterator[int]) -> Iterator[list[int]]:
    while chunk := list(islice(seeds, CHUNK)):
        yield chunk


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s sim --", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, with its whole report")
    parser.add_argument("--suite", choices=list(SUITES), help="only this one; with --seed")
    parser.add_argument("--plan", help="faults instead of the seed's own; with --seed and --suite")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    options = parser.parse_args()
    if options.seed is not None:
        plan = FaultPlan.parse(options.plan) if options.plan else None
        for suite in SUITES if options.suite is None else [options.suite]:
            print(suite, run_suite(options.seed, suite, plan))
        return 0
    return report([*kept_seeds(), *range(options.first, options.first + options.seeds)], options.jobs)


def report(seeds: list[int], jobs: int) -> int:
    """Run seeds and print what came of them; return 0 when all is well."""
    reached: Counter[str] = Counter()
    failed: set[int] = set()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for counters, failures in pool.imap_unordered(run_chunk, chunks(iter(seeds))):
            reached.update(counters)
            for seed, suite, text in failures:
                failed.add(seed)
                again = f"nox -s sim -- --seed {seed} --suite {suite}"
                print(f"seed {seed} failed: {suite}: {text}\nagain: {again}\n", flush=True)
    for name, count in sorted(reached.items()):
        print(f"{count:7} {name}")
    never = missing(reached, len(seeds))
    for name in never:
        print(f"never reached: {name}")
    print(f"{len(seeds)} seeds, {len(failed)} failed")
    return 1 if failed or never else 0
