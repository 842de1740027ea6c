"""Look for plans that reach what no run has reached: `python -m tests.sim.reach --seconds 600`.

What a run reaches is each step from one line to another in the packages of trials, stores, transport and directory;
each kind of event of its history, with statuses and states; and whatever is counted. A plan that reaches something new
is made smaller as long as it does, and then changed in its turn: faults are added, taken away and redrawn, also
those of `tests.sim.rare`, which no seed draws. What is left at the end, and reaches most with fewest runs, is written
to `corpus.txt`, which every run of the suites begins with. A plan that fails is told as the suite tells it, with the
command that shows it again.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import coverage

import trio_cogment
from tests.sim.faults import makers
from tests.sim.rare import RARE
from tests.sim.scenario import SUITES
from tests.sim.suite import BUDGET, CORPUS, Unit, describe, gathered, plan_of, read_units, scenario_of, units_of
from trio_cogment.testing import Fault, FaultPlan, HistoryEvent, simulate

#: Where each step from line to line counts.
PACKAGES = ("trial", "orchestrator", "datastore", "model_registry", "directory", "rpc")
#: Details of events that tell one kind of it from another.
TELLING = ("state", "code", "outcome", "name", "cause")
MOST_FAULTS = 6
#: Until when faults happen; calm comes later.
UNTIL_SECONDS = 15.0
#: How many runs the corpus may have: every run of the suites does them.
MOST_KEPT = 20
#: How often a plan that reaches something new is tried without one of its faults.
SHRINKING = 8

Reached: TypeAlias = frozenset[Any]


class Find(NamedTuple):
    """A run that reached something new, or that failed."""

    unit: Unit
    reached: Reached
    failure: str = ""


class Looking:
    """Does runs in this process, and tells what each reaches."""

    def __init__(self) -> None:
        root = Path(str(trio_cogment.__file__)).parent
        self._coverage = coverage.Coverage(
            data_file=None, branch=True, config_file=False, include=[f"{root / package}/*" for package in PACKAGES]
        )

    def look(self, unit: Unit) -> Find:
        """Do a run."""
        errors: list[BaseException] = []
        reached: set[Any] = set()
        self._coverage.start()
        try:
            with gathered(errors):
                outcome = simulate(unit.seed, scenario_of(unit.suite), plan=plan_of(unit), budget=BUDGET)
                reached.update(("counted", name) for name in +outcome.counters)
                reached.update(kind_of_event(event) for event in outcome.history)
        finally:
            self._coverage.stop()
        data = self._coverage.get_data()
        for path in data.measured_files():
            module = "/".join(Path(path).parts[-2:])
            reached.update((module, *arc) for arc in data.arcs(path) or ())
        self._coverage.erase()
        return Find(unit, frozenset(reached), describe(unit, errors[0]) if errors else "")


def kind_of_event(event: HistoryEvent) -> tuple[str, ...]:
    """Return what an event tells of its run, whichever trial and participant it was."""
    who = event.who.partition(" ")[0].partition("-")[0]
    return ("event", who, event.what, *(f"{key}={event.details[key]}" for key in TELLING if key in event.details))


def changed(rng: random.Random, plan: FaultPlan) -> FaultPlan:
    """Return a plan with a fault more, or less, or another one; usually a rare one."""
    faults = list(plan.faults)
    for _ in range(rng.choice([1, 1, 2, 3])):
        what = rng.random()
        if faults and what < 0.3:
            faults.pop(rng.randrange(len(faults)))
        elif faults and what < 0.5:
            faults[rng.randrange(len(faults))] = drawn(rng)
        if len(faults) < MOST_FAULTS and what >= 0.2:
            faults.append(drawn(rng))
    return FaultPlan(tuple(one_each(faults)))


def drawn(rng: random.Random) -> Fault:
    return rng.choice(RARE)(rng) if rng.random() < 0.6 else rng.choice(makers(UNTIL_SECONDS))(rng)


def one_each(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Leave out what there can be only once: a participant's misbehaviour, and each limit."""
    seen = set()
    for fault in faults:
        once = fault.name in ("misbehaves", "tight")
        if not once or (fault.name, fault.target) not in seen:
            yield fault
        seen.add((fault.name, fault.target))


def search(first: int, seconds: float, known: Reached, plans: list[Unit]) -> list[Find]:
    """Look for new plans for some time, beginning with some."""
    logging.disable(logging.CRITICAL)
    rng, looking = random.Random(first), Looking()
    reached, finds = set(known), list[Find]()
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        parent = rng.choice([*plans, *(find.unit for find in finds)])
        seed = rng.choice([parent.seed, first + number])
        find = looking.look(Unit(seed, parent.suite, str(changed(rng, plan_of(parent)))))
        if find.failure:
            finds.append(find)
            continue
        new = find.reached - reached
        if new:
            find = smaller(looking, find, new)
            reached |= find.reached
            finds.append(find)
    return finds


def smaller(looking: Looking, find: Find, new: Reached) -> Find:
    """Return a find with the fewest faults that reach the same new things."""
    best = find

    def still_does(plan: FaultPlan) -> bool:
        nonlocal best
        smaller_find = looking.look(find.unit._replace(kept=str(plan)))
        if smaller_find.failure or not new <= smaller_find.reached:
            return False
        best = smaller_find
        return True

    plan_of(find.unit).shrink(still_does, attempts=SHRINKING)
    return best


def fewest(finds: Iterable[Find], known: Reached, most: int) -> list[tuple[Find, Reached]]:
    """Choose finds that together reach most that is new, those that reach most of it first; with what each adds."""
    left, reached, chosen = list(finds), set(known), list[tuple[Find, Reached]]()
    while left and len(chosen) < most:
        best = max(left, key=lambda find: len(find.reached - reached))
        added = frozenset(best.reached - reached)
        if not added:
            break
        chosen.append((best, added))
        reached |= best.reached
        left.remove(best)
    return chosen


def told(added: Reached) -> str:
    """Say in a line what a find adds: where most of it is, and what was counted."""
    places = Counter(str(one[0]).removesuffix(".py") for one in added if one[0] not in ("counted", "event"))
    names = [one[1] for one in sorted(added, key=str) if one[0] == "counted"]
    events = [" ".join(one[1:]) for one in sorted(added, key=str) if one[0] == "event"]
    steps = [f"{place} ({count})" for place, count in places.most_common(3)]
    return "; ".join([*names[:3], *events[:3], *steps])


def work(given: tuple[int, float, Reached, list[Unit]]) -> list[Find]:
    return search(*given)


def known_of(units: list[Unit]) -> list[Find]:
    logging.disable(logging.CRITICAL)
    looking = Looking()
    return [looking.look(unit) for unit in units]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.reach", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to look")
    parser.add_argument("--first", type=int, default=1_000_000, help="seeds of what is tried begin here")
    parser.add_argument("--known", type=int, default=100, help="seeds whose runs reach nothing new")
    parser.add_argument("--most", type=int, default=MOST_KEPT, help="runs that the corpus may have")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    options = parser.parse_args()
    plain = [unit for seed in range(options.known) for unit in units_of(seed)]
    corpus = read_units(CORPUS)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        shares = [plain[number :: 4 * options.jobs] for number in range(4 * options.jobs)]
        known = frozenset().union(*(find.reached for finds in pool.map(known_of, shares, 1) for find in finds))
        kept = [find for finds in pool.map(known_of, [[unit] for unit in corpus], 1) for find in finds]
        print(f"known from {len(plain)} runs: {len(known)}", flush=True)
        starts = [*corpus, *(unit for unit in plain if unit.suite in SUITES)]
        so_far = known.union(*(find.reached for find in kept))
        given = [(options.first * (job + 1), options.seconds, so_far, starts) for job in range(options.jobs)]
        finds = [find for finds in pool.map(work, given, 1) for find in finds]
    failures = [find for find in [*kept, *finds] if find.failure]
    for find in failures:
        print(f"{find.failure}\n", flush=True)
    sound = [find for find in [*kept, *finds] if not find.failure]
    chosen = fewest(sound, known, options.most)
    head = [line for line in CORPUS.read_text().splitlines() if line.startswith("#")]
    lines = [f"{find.unit.seed} {find.unit.suite} {find.unit.kept}  # {told(added)}" for find, added in chosen]
    CORPUS.write_text("\n".join([*head, *lines]) + "\n")
    total = sum(len(added) for _, added in chosen)
    print(f"{len(finds)} finds, {len(failures)} failures; {len(chosen)} runs are kept, which reach {total} more")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
