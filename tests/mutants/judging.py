"""Judging a mutant: the tests that reach it, likely ones first, as many as there is time for."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from queue import SimpleQueue

from tests.mutants.covering import Cost, Covering, is_named_after
from tests.mutants.drawing import Mutant
from tests.mutants.forks import NOTICED, Job, Verdict
from tests.mutants.running import KEPT
from tests.mutants.server import Server


@dataclass(frozen=True, slots=True)
class Judged:
    """A mutant, and what tests and simulated runs made of it."""

    mutant: Mutant
    tests: Verdict
    runs: Verdict


class Chooser:
    """Chooses from what reaches a mutant.

    Args:
        covering: of tests, or of runs.
        most_seconds: of the processor, for one mutant.
    """

    def __init__(self, covering: Covering, most_seconds: float) -> None:
        self.covering = covering
        self._most_seconds = most_seconds
        self._noticed: dict[str, Counter[str]] = defaultdict(Counter)
        self._lock = threading.Lock()

    def choose(self, mutant: Mutant) -> dict[str, Cost]:
        """Return what is tried, in order.

        Which it is depends on the mutant alone: what reaches its own lines, or uses a constant, before what only
        imports it; of that tests named after the module, then cheap ones, while there is time. Of runs one of each
        suite in turn, in the order of their seeds: each suite looks at other things. Those that are kept, most of them
        because of what they reach, are like a suite of their own, and the first. What has noticed other mutants of the
        function, or of the module, comes first.
        """
        costs = self.covering.costs
        closest = self.covering.closest(mutant)
        turns = _turns(self.covering.of(mutant))

        def unlikely(name: str) -> tuple[bool, float, bool | float, str]:
            is_far = name not in closest
            if name in turns:
                suite = name.rpartition("/")[0]
                return is_far, turns[name], suite != KEPT, suite
            return is_far, not is_named_after(name, mutant.file), costs[name].processor_seconds, name

        chosen: list[str] = []
        left = self._most_seconds
        for name in sorted(self.covering.of(mutant) | closest, key=unlikely):
            left -= costs[name].processor_seconds
            if left < 0 and chosen:
                break
            chosen.append(name)
        with self._lock:
            near, far = self._noticed[f"{mutant.file}/{mutant.scope}"], self._noticed[mutant.file]
            chosen.sort(key=lambda name: (-near[name], -far[name]))  # which keeps the order of equals
        return {name: costs[name] for name in chosen}

    def learn(self, mutant: Mutant, verdict: Verdict) -> None:
        if verdict.by:
            with self._lock:
                for place in (f"{mutant.file}/{mutant.scope}", mutant.file):
                    self._noticed[place][verdict.by] += 1


def _turns(names: Iterable[str]) -> dict[str, int]:
    """Return when the turn of each run comes: its place among those of its suite."""
    by_suite: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        suite, _, seed = name.rpartition("/")
        if seed.isdecimal():
            by_suite[suite].append((int(seed), name))
    return {name: turn for runs in by_suite.values() for turn, (_, name) in enumerate(sorted(runs))}


class Bench:
    """Servers of a package, and what they are given."""

    def __init__(self, package: str, choosers: dict[str, Chooser]) -> None:
        self._package = package
        self._choosers = choosers
        self._warm = Server(package)
        self._cold: Server | None = None

    def judge(self, mutant: Mutant) -> Judged:
        """Try tests, and simulated runs, each whatever the others find.

        What notices a mutant has to do so twice, and to pass unchanged at that hour: neither a test that fails now and
        then, nor what a busy machine is too slow for, is told of as noticing.
        """
        return Judged(mutant, self._try(mutant, "tests"), self._try(mutant, "runs"))

    def _try(self, mutant: Mutant, kind: str) -> Verdict:
        chooser = self._choosers[kind]
        costs = chooser.choose(mutant)
        if not costs:
            return Verdict("unreached")
        job = Job(mutant, kind, costs, frozenset(chooser.covering.imported[mutant.file]))
        verdict = self._attempt(job)
        while verdict.outcome in NOTICED and verdict.by and not self._confirmed(job, verdict.by):
            # It was not the mutant: the others are tried without it, from where it stood.
            names = list(job.costs)
            others = names[names.index(verdict.by) + 1 :]
            if not others:
                return Verdict("survived", seconds=verdict.seconds)
            job = replace(job, costs={name: costs[name] for name in others})
            verdict = self._attempt(job)
        chooser.learn(mutant, verdict)
        return verdict

    def _confirmed(self, job: Job, name: str) -> bool:
        """Tell whether a test or run fails with the mutant once more, and passes without it: it is no busy machine."""
        alone = replace(job, costs={name: job.costs[name]})
        unchanged = replace(alone, mutant=None)
        return self._attempt(alone).outcome in NOTICED and self._warm.attempt(unchanged).outcome == "survived"

    def _attempt(self, job: Job) -> Verdict:
        verdict = self._warm.attempt(job)
        if verdict.outcome == "cold":
            if self._cold is None:
                self._cold = Server(self._package, self._warm.modules)
            verdict = self._cold.attempt(job)
        return verdict

    def close(self) -> None:
        self._warm.close()
        if self._cold is not None:
            self._cold.close()


def judge_all(package: str, mutants: list[Mutant], choosers: dict[str, Chooser], jobs: int) -> Iterator[Judged]:
    """Judge mutants, several at a time; yield each when it is done."""
    waiting: SimpleQueue[Mutant | None] = SimpleQueue()
    for mutant in [*mutants, *[None] * jobs]:
        waiting.put(mutant)
    done: SimpleQueue[Judged | BaseException | None] = SimpleQueue()

    def work() -> None:
        try:
            bench = Bench(package, choosers)
            try:
                while (mutant := waiting.get()) is not None:
                    done.put(bench.judge(mutant))
            finally:
                bench.close()
        except BaseException as error:  # noqa: BLE001  it is raised where the others are waited for
            done.put(error)
        else:
            done.put(None)

    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    working = jobs
    while working:
        one = done.get()
        if isinstance(one, BaseException):
            raise one
        if one is None:
            working -= 1
        else:
            yield one
