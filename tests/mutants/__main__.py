"""Try mutants: `python -m tests.mutants --package trial --count 20 --seed 1` (`nox -s mutants`).

Control-C ends it early: what has been judged until then is reported.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.mutants import report
from tests.mutants.covering import KEPT, Covering, covering_runs, covering_tests
from tests.mutants.drawing import draw
from tests.mutants.equivalents import equivalents
from tests.mutants.judging import Chooser, Judged, judge_all

#: After this many mutants it is told how far it has come.
TOLD_ONCE_IN = 25
#: Servers first, then what participants and people meet.
PACKAGES = (
    *("trial", "servers/orchestrator", "servers/datastore", "servers/model_registry", "servers/directory", "rpc"),
    *("sdk", "rl", "gateways", "play", "web", "access", "trainer"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="nox -s mutants --", description=__doc__)
    parser.add_argument("--package", action="append", choices=PACKAGES, help="only this one; may be repeated")
    parser.add_argument("--count", type=int, default=300, help="mutants of each")
    parser.add_argument("--seed", default=f"{datetime.now(UTC):%Y-%m-%d}", help="of the draw; the day, unless given")
    parser.add_argument("--within", default="", help="only modules with this in their path, such as _datalog")
    parser.add_argument("--only", action="append", help="the mutants of the draw with this name; may be repeated")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--test-seconds", type=float, default=12.0, help="of tests, for each mutant")
    parser.add_argument("--run-seconds", type=float, default=8.0, help="of simulated runs, for each mutant")
    parser.add_argument("--out", type=Path, default=KEPT / "report.json", help="where the whole report goes")
    parser.add_argument("--record", action="store_true", help="write the numbers to recorded.json, for the page")
    options = parser.parse_args(arguments)
    known = equivalents()
    runs = Chooser(_sound("runs", covering_runs(PACKAGES, options.jobs)), options.run_seconds)
    scores: list[report.Score] = []
    judged: dict[str, list[Judged]] = {}
    for package in options.package or PACKAGES:
        began = time.perf_counter()
        tests = Chooser(_sound("tests", covering_tests(package, options.jobs)), options.test_seconds)
        mutants = draw(package, options.count, options.seed, options.within)
        if options.only:
            mutants = [mutant for mutant in mutants if mutant.name in options.only]
        judged[package] = every = []
        try:
            for one in judge_all(package, mutants, {"tests": tests, "runs": runs}, options.jobs):
                every.append(one)
                tell(one, is_known=one.mutant.name in known, always=bool(options.only))
                if not len(every) % TOLD_ONCE_IN:
                    print(f"({len(every)} of {len(mutants)})", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pass  # what there is, is told
        scores.append(report.score(package, every, known))
        seconds = time.perf_counter() - began
        print(f"{package}: {len(every)} of {len(mutants)} mutants, seed {options.seed}, {seconds:.0f} s\n", flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(report.as_json(options.seed, judged, scores))
        if len(every) < len(mutants):
            break
    print("\n".join(report.table(scores)))
    if options.record:
        report.record(options.seed, scores)
    too_many = [one.package for one in scores if one.equivalent > report.MOST_EQUIVALENT * one.drawn]
    for package in too_many:
        print(f"{package}: more than {report.MOST_EQUIVALENT:.0%} are listed as equivalent")
    return 1 if too_many else 0


def tell(judged: Judged, *, is_known: bool, always: bool) -> None:
    """Print what came of a mutant, if anybody has to read it."""
    if not report.is_noticed(judged):
        print(f"{'equivalent' if is_known else 'SURVIVED'}: {report.survivor(judged)}\n", flush=True)
    elif always:
        print(f"{judged.mutant.diff()}\ntests: {judged.tests}\nsimulation: {judged.runs}\n", flush=True)


def _sound(kind: str, covering: Covering) -> Covering:
    for name in covering.failed:
        print(f"not used, for it fails unchanged while coverage watches it: {name}", file=sys.stderr)
    if not covering.costs:
        sys.exit(f"there are no {kind}")
    return covering


if __name__ == "__main__":
    sys.exit(main())
