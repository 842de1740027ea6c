"""Write the tables of `docs/reliability.md` that come from elsewhere: checkers, planted bugs, mutants, counts.

`--counts FILE ...` takes over what runs of the simulated suite printed (`nox -s sim -- --seeds 20000 | tee FILE`, or in
parts, with `--first`). With `--again FILE ...` seeds that failed in them may have been mended: what they print now, one
by one (`--first N --seeds 1`), counts instead.
`--check` writes nothing and fails if a table is stale; a test does the same.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from trio_cogment.testing import CHECKERS

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # which is not there for a script of this folder

from tests.sim.counting import missing  # noqa: E402  it is found there
from tools.tables import with_tables  # noqa: E402  likewise

TARGET = ROOT / "docs" / "reliability.md"
MUTATIONS = ROOT / "tests" / "sim" / "mutations.json"
MUTANTS = ROOT / "tests" / "mutants" / "recorded.json"
COUNTS = ROOT / "tests" / "sim" / "counts.json"


def checkers() -> Iterator[str]:
    """Yield a table of what each checker holds."""
    yield "| checker | what holds |"
    yield "|---|---|"
    for name, checker in CHECKERS.items():
        sentence = " ".join((checker.__doc__ or "").partition("\n\n")[0].split())
        yield f"| `{name}` | {sentence} |"


def mutations() -> Iterator[str]:
    """Yield a table of the planted bugs, with the seeds that found them."""
    yield "| bug | how it is planted | first seed | what was said |"
    yield "|---|---|---|---|"
    for name, found in json.loads(MUTATIONS.read_text()).items():
        yield f"| {name} | {found['how']} | {found['seed']} | {found['said'].replace('|', ' ')} |"


def mutants() -> Iterator[str]:
    """Yield a table of how many mutants of each package were noticed."""
    recorded = json.loads(MUTANTS.read_text())
    yield f"| {' | '.join(recorded['headings'])} |"
    yield "|---" * len(recorded["headings"]) + "|"
    for package, row in recorded["packages"].items():
        yield f"| {' | '.join([f'`{package}`', *row])} |"


def counts() -> Iterator[str]:
    """Yield a table of what was reached in how many runs."""
    run = json.loads(COUNTS.read_text())
    yield f"| reached | in how many of {run['runs']:,} runs, of {run['seeds']:,} seeds ({run['date']}) |"
    yield "|---|---|"
    for name, count in run["reached"].items():
        yield f"| {name} | {count:,} |"


def read_counts(texts: list[str], again: Sequence[str] = ()) -> dict[str, object]:
    """Return what runs of the suite printed, added up: seeds, runs, and in how many of them what was reached.

    Args:
        texts: what was printed.
        again: what those that failed there have printed since they were mended.
    """
    seeds, runs, failed, reached = _added_up(texts)
    mended, _, failed_again, reached_again = _added_up(again)
    if failed != mended or failed_again:
        sys.exit(f"{failed} seeds failed, {mended - failed_again} of them are mended: mend the others first")
    reached += reached_again
    if never := missing(reached, seeds):
        sys.exit(f"never reached: {', '.join(never)}: mend that first")
    return {"seeds": seeds, "runs": runs, "reached": dict(sorted(reached.items()))}


def _added_up(texts: Sequence[str]) -> tuple[int, int, int, Counter[str]]:
    """Return seeds, runs, those that failed, and in how many runs what was reached."""
    totals: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    for text in texts:
        total = re.search(r"^(\d+) seeds in (\d+) runs, (\d+) failed", text, re.MULTILINE)
        if total is None:
            sys.exit("this is not what the simulated suite prints at its end: no line 'N seeds in M runs, K failed'")
        totals.update(dict(zip(("seeds", "runs", "failed"), map(int, total.groups()), strict=True)))
        # The report of a run that failed has lines with numbers, too; a count stands in seven columns.
        for count, name in re.findall(r"^(?=[ \d]{7} ) *(\d+) (\S.*)$", text, re.MULTILINE):
            reached[name] += int(count)
    return totals["seeds"], totals["runs"], totals["failed"], reached


TABLES = {"checkers": checkers, "mutations": mutations, "mutants": mutants, "counts": counts}


def page(text: str) -> str:
    """Return the page with its tables made again."""
    return with_tables(text, TABLES, "tools/reliability_tables.py")


def main() -> None:
    """Write the page, or compare it with the one that is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail instead of writing when a table is stale")
    parser.add_argument("--counts", type=Path, nargs="+", metavar="FILE", help="what runs of the suite have printed")
    parser.add_argument("--again", type=Path, nargs="+", default=[], metavar="FILE", help="mended seeds of those runs")
    options = parser.parse_args()
    if options.counts is not None:
        counted = read_counts(*([path.read_text() for path in paths] for paths in (options.counts, options.again)))
        if not options.check:
            COUNTS.write_text(json.dumps({"date": f"{datetime.now(UTC):%Y-%m-%d}", **counted}, indent=2) + "\n")
    text = TARGET.read_text()
    made = page(text)
    if options.check:
        if made != text:
            sys.exit(f"{TARGET.name} is stale: run tools/reliability_tables.py")
        return
    TARGET.write_text(made)


if __name__ == "__main__":
    main()
