"""Write the tables of `docs/reliability.md` that come from elsewhere: checkers, planted bugs, what was reached.

`--counts FILE` takes over what a run of the simulated suite printed (`nox -s sim -- --seeds 20000 | tee FILE`).
`--check` writes nothing and fails if a table is stale; a test does the same.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from trio_cogment.testing import CHECKERS

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reliability.md"
MUTATIONS = ROOT / "tests" / "sim" / "mutations.json"
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


def counts() -> Iterator[str]:
    """Yield a table of what was reached in how many runs."""
    run = json.loads(COUNTS.read_text())
    yield f"| reached | in how many of {run['seeds']:,} runs |"
    yield "|---|---|"
    for name, count in run["reached"].items():
        yield f"| {name} | {count:,} |"


def read_counts(text: str) -> dict[str, object]:
    """Return what a run of the suite printed: how many seeds, and how often what was reached."""
    total = re.search(r"^(\d+) seeds, (\d+) failed", text, re.MULTILINE)
    if total is None:
        sys.exit("this is not what a run of the simulated suite prints at its end: no line 'N seeds, M failed'")
    if int(total[2]):
        sys.exit(f"{total[2]} seeds failed: mend that first")
    if never := re.findall(r"^never reached: (.+)$", text, re.MULTILINE):
        sys.exit(f"never reached: {', '.join(never)}: mend that first")
    reached = {name: int(count) for count, name in re.findall(r"^ *(\d+) (?!seeds,)(\S.*)$", text, re.MULTILINE)}
    return {"seeds": int(total[1]), "reached": dict(sorted(reached.items()))}


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    for name, lines in (("checkers", checkers), ("mutations", mutations), ("counts", counts)):
        begin = f"<!-- {name}: written by tools/reliability_tables.py -->\n"
        before, _, rest = text.partition(begin)
        after = rest[rest.index("<!-- end -->") :]
        text = before + begin + "".join(f"{line}\n" for line in lines()) + after
    return text


def main() -> None:
    """Write the page, or compare it with the one that is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail instead of writing when a table is stale")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="what a run of the suite has printed")
    options = parser.parse_args()
    if options.counts is not None:
        COUNTS.write_text(json.dumps(read_counts(options.counts.read_text()), indent=2) + "\n")
    text = TARGET.read_text()
    made = page(text)
    if options.check:
        if made != text:
            sys.exit(f"{TARGET.name} is stale: run tools/reliability_tables.py")
        return
    TARGET.write_text(made)


if __name__ == "__main__":
    main()
