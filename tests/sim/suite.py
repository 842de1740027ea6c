"""All suites over many seeds, on several cores: `python -m tests.sim --seeds 20000`.

A seed is a run of safety if it is even, of liveness if it is odd; every tenth also one of a service's suite, in turn.
Those that once failed (`seeds.txt`), and those that reach what no other does (`corpus.txt`), are run with seed 0.
Prints in how many runs each `sometimes` was reached, and for each run that failed what it said and did, the smallest
plan that still fails in the same way, and the command that shows it again. What is declared in `tests.sim.counting` and
was never reached is a failure, too. One seed in twenty is run again in another process, where sets have another order;
schedules and histories are compared.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from tests.account.beside import DiffersError
from tests.sim.counting import missing
from tests.sim.scenario import SUITES, draw_plan
from tests.sim.services import SERVICE_SUITES
from trio_cogment.testing import (
    FaultPlan,
    InvariantError,
    NotLinearizableError,
    Outcome,
    UndecidedError,
    World,
    check_determinism,
    simulate,
)
from trio_cogment.testing.sim.failures import OnFailure

SERVICE_ONCE_IN = 10
#: Steps of a run; the longest take some ten thousand.
BUDGET = 300_000
CHECKED_ONCE_IN = 20
#: `PYTHONHASHSEED` of the processes that run all seeds, and of those that run some of them again.
HASH_SEEDS = ("1", "2")
KEPT = Path(__file__).with_name("seeds.txt")
CORPUS = Path(__file__).with_name("corpus.txt")
#: Runs that a process is given at a time; so few that none has much to do when the others are done.
CHUNK = 5
#: What says by itself what was expected, what was seen, and what led there, on one screen.
TELLING = (DiffersError, NotLinearizableError, UndecidedError)


class Unit(NamedTuple):
    """One run; its plan is the seed's own, or one that was kept."""

    seed: int
    suite: str
    kept: str = ""


class Failure(NamedTuple):
    """A run that failed, and what is told about it."""

    unit: Unit
    text: str


def kept_units() -> list[Unit]:
    """Return what once failed, and what reaches most (the corpus of `tests.sim.reach`).

    Each has the plan with which it did, or that which its seed makes today.
    """
    return [*read_units(KEPT), *read_units(CORPUS)]


def read_units(path: Path) -> list[Unit]:
    """Return the runs that a file has: a seed a line, and its suite and its plan unless they are the seed's own.

    The names of some suites are of several words, so a plan is known by its first.
    """
    units = []
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    for line in filter(None, lines):
        seed, _, rest = line.partition(" ")
        suite, plan, faults = rest.partition("FaultPlan(")
        units.append(Unit(int(seed), suite.strip(), plan + faults) if suite else units_of(int(seed))[0])
    return units


def units_of(seed: int) -> list[Unit]:
    """Return what is run for a seed."""
    units = [Unit(seed, ("safety", "liveness")[seed % 2])]
    if seed % SERVICE_ONCE_IN == 0:
        services = list(SERVICE_SUITES)
        turn, place = divmod(seed // SERVICE_ONCE_IN, len(services))
        # Each turn begins one later, so that every suite comes to be checked, however many there are.
        units.append(Unit(seed, services[(place + turn) % len(services)]))
    return units


def is_checked(seed: int) -> bool:
    """Tell whether a seed is run twice: of even and odd ones alike one in `CHECKED_ONCE_IN`.

    Of many seeds it is run again in another process; alone, in the same one.
    """
    return seed // 2 % CHECKED_ONCE_IN == 0


def scenario_of(suite: str) -> Callable[[World], Awaitable[Any]]:
    return SUITES[suite] if suite in SUITES else SERVICE_SUITES[suite]


def plan_of(unit: Unit) -> FaultPlan:
    """Return the plan that the seed makes; the services' suites draw their faults as they go along."""
    if unit.kept:
        return FaultPlan.parse(unit.kept)
    return draw_plan(unit.seed, unit.suite) if unit.suite in SUITES else FaultPlan()


def run_unit(unit: Unit, plan: FaultPlan | None = None) -> Counter[str]:
    """Do one run, with its own plan or another; return what was reached."""
    run = check_determinism if is_checked(unit.seed) else simulate
    return reached_in(
        unit,
        run(unit.seed, scenario_of(unit.suite), plan=plan_of(unit) if plan is None else plan, budget=BUDGET),
    )


def reached_in(unit: Unit, outcome: Outcome[Any]) -> Counter[str]:
    """Return what a run has reached."""
    if unit.suite in SUITES:
        return outcome.counters
    return Counter({unit.suite: 1, **{f"{unit.suite}: {name}": n for name, n in outcome.counters.items()}})


def run_seed(seed: int) -> Counter[str]:
    """Do all that is run for a seed."""
    reached: Counter[str] = Counter()
    for unit in units_of(seed):
        reached.update(run_unit(unit))
    return reached


class Chunk(NamedTuple):
    """What came of some runs: what was reached, what failed, and what those to be compared were like."""

    reached: Counter[str]
    failures: list[Failure]
    seen: dict[Unit, str]


def run_chunk(units: list[Unit]) -> Chunk:
    logging.disable(logging.CRITICAL)  # what fakes do on purpose is logged as what it would be
    chunk = Chunk(Counter(), [], {})
    for unit in units:
        errors: list[BaseException] = []
        with gathered(errors):
            outcome = simulate(unit.seed, scenario_of(unit.suite), plan=plan_of(unit), budget=BUDGET)
            chunk.reached.update(dict.fromkeys(+reached_in(unit, outcome), 1))
            if is_checked(unit.seed):
                chunk.seen[unit] = f"{outcome.history.text()}schedule {outcome.fingerprint}"
        chunk.failures.extend(Failure(unit, describe(unit, error)) for error in errors)
    return chunk


def gathered(errors: list[BaseException]) -> OnFailure:
    """Return a block whose failure ends there, in a list."""

    def gather(error: BaseException) -> bool:
        errors.append(error)
        return True

    return OnFailure(gather)


def difference(unit: Unit, first: str, second: str) -> Failure:
    """Say where two runs that should be alike part."""
    lines = zip_longest(first.splitlines(), second.splitlines(), fillvalue="")
    number, (one, other) = next((number, pair) for number, pair in enumerate(lines) if pair[0] != pair[1])
    text = [
        f"seed {unit.seed} failed at {commit()}: {unit.suite}: it runs differently in another process",
        *(
            f"event {number} with PYTHONHASHSEED={seed}: {line}"
            for seed, line in zip(HASH_SEEDS, (one, other), strict=True)
        ),
        *(f"again: PYTHONHASHSEED={seed} {again(unit)}" for seed in HASH_SEEDS),
    ]
    return Failure(unit, "\n".join(text))


def again(unit: Unit, plan: FaultPlan | str = "") -> str:
    """Return the command that shows a run again, with its own plan or another."""
    chosen = str(plan) or unit.kept
    given = f' --plan "{chosen}"' if chosen and unit.suite in SUITES else ""
    return f'nox -s sim -- --seed {unit.seed} --suite "{unit.suite}"{given}'


def describe(unit: Unit, error: BaseException) -> str:
    """Return what failed and how it came to that, the smallest plan with which it does, and how to see it again."""
    kind, first = kind_of(error), first_of(error)
    smallest = plan_of(unit).shrink(lambda smaller: kind_of_failure(unit, smaller) == kind, attempts=40)
    return "\n".join(
        [
            f"seed {unit.seed} failed at {commit()}: {unit.suite}: {kind}",
            *(line.rstrip() for line in traceback.format_tb(first.__traceback__)[-2:]),
            f"{type(first).__name__}: {first}",
            # With the events it would be many screens.
            *(() if isinstance(first, TELLING) else getattr(error, "__notes__", ())),
            f"smallest plan: {smallest}",
            f"again: {again(unit)}",
            *([f"with the smallest plan: {again(unit, smallest)}"] if unit.suite in SUITES else ()),
        ]
    )


def kind_of_failure(unit: Unit, plan: FaultPlan) -> str | None:
    """Return in what way a run with another plan fails; None when it does not."""
    errors: list[BaseException] = []
    with gathered(errors):
        simulate(unit.seed, scenario_of(unit.suite), plan=plan, budget=BUDGET)
    return kind_of(errors[0]) if errors else None


def kind_of(error: BaseException) -> str:
    """Return what distinguishes a failure: what was raised, and by which checker if it was one, or else where."""
    first = first_of(error)
    name = type(first).__name__
    if isinstance(first, InvariantError):
        return f"{name} {str(first).partition(':')[0]}"
    frames = traceback.extract_tb(first.__traceback__)
    return f"{name} in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else name


def first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def commit() -> str:
    """Return which source this is, as git says, or that it does not."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=KEPT.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "a commit that git does not know"
    return done.stdout.strip()


def chunks(units: Iterator[Unit]) -> Iterator[list[Unit]]:
    while chunk := list(islice(units, CHUNK)):
        yield chunk


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s sim --", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, with its whole report")
    parser.add_argument("--suite", choices=[*SUITES, *SERVICE_SUITES], help="only this one; with --seed")
    parser.add_argument("--plan", help="faults instead of the seed's own; with --seed and --suite")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    options = parser.parse_args()
    if options.seed is None and (options.suite or options.plan):
        parser.error("--suite and --plan: expected --seed beside them")
    if options.plan and options.suite not in SUITES:
        parser.error(f"--plan: expected --suite beside it, one of {', '.join(SUITES)}")
    if options.seed is not None:
        plan = FaultPlan.parse(options.plan) if options.plan else None
        units = units_of(options.seed) if options.suite is None else [Unit(options.seed, options.suite)]
        return show(units, plan)
    return report(units_from(options.first, options.seeds), options.jobs)


def show(units: list[Unit], plan: FaultPlan | None) -> int:
    """Do runs and print of each what was reached, or how it failed; with a plan that was given, that alone."""
    logging.disable(logging.CRITICAL)  # as in `run_chunk`: the report is to fit on a screen
    failed = 0
    for unit in units:
        errors: list[BaseException] = []
        with gathered(errors):
            print(f"{unit.suite}: {dict(run_unit(unit, plan))}")
        for error in errors:
            if plan is not None:
                raise error
            print(describe(unit, error))
            failed = 1
    return failed


def units_from(first: int, seeds: int) -> list[Unit]:
    """Return what is run for this many seeds; those that once failed come with the first of all."""
    kept = [] if first else kept_units()
    return [*kept, *(unit for seed in range(first, first + seeds) for unit in units_of(seed))]


def run_all(units: list[Unit], jobs: int, hash_seed: str) -> Iterator[Chunk]:
    """Do runs in processes of their own."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = hash_seed  # which a process reads when it begins
    try:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            yield from pool.imap_unordered(run_chunk, chunks(iter(units)))
    finally:
        os.environ.pop("PYTHONHASHSEED")
        if before is not None:
            os.environ["PYTHONHASHSEED"] = before


def report(units: list[Unit], jobs: int) -> int:
    """Do runs and print what came of them; return 0 when all is well."""
    began = time.perf_counter()
    reached: Counter[str] = Counter()
    failed: set[int] = set()
    seen: dict[Unit, str] = {}

    def tell(failure: Failure) -> None:
        failed.add(failure.unit.seed)
        print(f"{failure.text}\n", flush=True)

    for chunk in run_all(units, jobs, HASH_SEEDS[0]):
        reached.update(chunk.reached)
        seen.update(chunk.seen)
        for failure in chunk.failures:
            tell(failure)
    for chunk in run_all(list(seen), jobs, HASH_SEEDS[1]):
        for failure in chunk.failures:
            tell(failure)
        for unit, text in chunk.seen.items():
            if text != seen[unit]:
                tell(difference(unit, seen[unit], text))
    for name, count in sorted(reached.items()):
        print(f"{count:7} {name}")
    seeds = {unit.seed for unit in units}
    never = missing(reached, len(seeds))
    for name in never:
        print(f"never reached: {name}")
    seconds = time.perf_counter() - began
    print(
        f"{len(seeds)} seeds in {len(units)} runs, {len(failed)} failed; {len(seen)} runs done twice; {seconds:.0f} s"
    )
    return 1 if failed or never else 0
