"""The safety suite over many seeds, on several cores: `python -m tests.sim --seeds 20000`.

Prints in how many runs each `sometimes` was reached, and for each seed that failed the smallest plan that still fails,
with the command that shows it again. Once in twenty seeds, the seed is run twice and the schedules are compared.
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

from tests.sim.scenario import draw_plan, scenario
from trio_cogment.testing import FaultPlan, check_determinism, simulate

CHECKED_ONCE_IN = 20
KEPT = Path(__file__).with_name("seeds.txt")
CHUNK = 25


def kept_seeds() -> list[int]:
    """Return the seeds that once failed."""
    lines = (line.partition("#")[0].strip() for line in KEPT.read_text().splitlines())
    return [int(line) for line in lines if line]


def run_seed(seed: int, plan: FaultPlan | None = None) -> Counter[str]:
    run = check_determinism if seed % CHECKED_ONCE_IN == 0 else simulate
    return run(seed, scenario, plan=draw_plan(seed) if plan is None else plan).counters


def fails(seed: int, plan: FaultPlan) -> bool:
    try:
        simulate(seed, scenario, plan=plan)
    except Exception:  # noqa: BLE001  whatever a run raises is its failure
        return True
    return False


def run_chunk(seeds: list[int]) -> tuple[Counter[str], list[tuple[int, str]]]:
    logging.disable(logging.CRITICAL)  # what fakes do on purpose is logged as what it would be
    reached: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        try:
            reached.update(dict.fromkeys(run_seed(seed), 1))
        except Exception as error:  # noqa: BLE001  as above
            plan = draw_plan(seed).shrink(lambda smaller, seed=seed: fails(seed, smaller), attempts=40)  # type: ignore[misc]
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            failures.append((seed, f"{type(cause).__name__}: {cause}\nsmallest plan: {plan}"))
    return reached, failures


def chunks(seeds: Iterator[int]) -> Iterator[list[int]]:
    while chunk := list(islice(seeds, CHUNK)):
        yield chunk


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s sim --", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, with its whole report")
    parser.add_argument("--plan", help="faults instead of the seed's own; with --seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    options = parser.parse_args()
    if options.seed is not None:
        print(run_seed(options.seed, FaultPlan.parse(options.plan) if options.plan else None))
        return 0
    seeds = [*kept_seeds(), *range(options.first, options.first + options.seeds)]
    reached: Counter[str] = Counter()
    failed = 0
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for counters, failures in pool.imap_unordered(run_chunk, chunks(iter(seeds))):
            reached.update(counters)
            for seed, text in failures:
                failed += 1
                print(f"seed {seed} failed: {text}\nagain: nox -s sim -- --seed {seed}\n", flush=True)
    for name, count in sorted(reached.items()):
        print(f"{count:7} {name}")
    print(f"{len(seeds)} seeds, {failed} failed")
    return 1 if failed else 0
