"""Reports on the mutants of a package: a table, the survivors, and all of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.mutants.equivalents import Equivalent
from tests.mutants.forks import NOTICED
from tests.mutants.judging import Judged

RECORDED = Path(__file__).with_name("recorded.json")
#: Of what is drawn, so much may be listed as equivalent.
MOST_EQUIVALENT = 0.05
HEADINGS = ("package", "mutants", "equivalent", "by tests", "by simulation", "by either", "timeouts", "survivors")


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of one package; equivalent ones are drawn, but count for nothing else."""

    package: str
    drawn: int
    equivalent: int
    by_tests: int
    by_runs: int
    by_either: int
    timeouts: int

    @property
    def counted(self) -> int:
        return self.drawn - self.equivalent

    @property
    def survivors(self) -> int:
        return self.counted - self.by_either

    def row(self) -> tuple[str, ...]:
        shares = (self.by_tests, self.by_runs, self.by_either)
        return (
            self.package,
            str(self.drawn),
            str(self.equivalent),
            *(f"{100 * share / self.counted:.1f} %" if self.counted else "-" for share in shares),
            str(self.timeouts),
            str(self.survivors),
        )


def is_noticed(judged: Judged) -> bool:
    return judged.tests.outcome in NOTICED or judged.runs.outcome in NOTICED


def score(package: str, all_judged: Iterable[Judged], known: Mapping[str, Equivalent]) -> Score:
    """Count. One that is listed as equivalent, and was noticed, is not an equivalent."""
    every = list(all_judged)
    equivalent = sum(one.mutant.name in known and not is_noticed(one) for one in every)
    return Score(
        package,
        len(every),
        equivalent,
        sum(one.tests.outcome in NOTICED for one in every),
        sum(one.runs.outcome in NOTICED for one in every),
        sum(is_noticed(one) for one in every),
        sum("timeout" in (one.tests.outcome, one.runs.outcome) for one in every),
    )


def record(seed: str, scores: Iterable[Score], path: Path = RECORDED) -> None:
    """Keep the numbers of packages, from which `docs/reliability.md` has its table."""
    recorded = json.loads(path.read_text())["packages"] if path.exists() else {}
    recorded |= {one.package: [seed, *one.row()[1:]] for one in scores}
    headings = [HEADINGS[0], "seed", *HEADINGS[1:]]
    path.write_text(json.dumps({"headings": headings, "packages": recorded}, indent=1, ensure_ascii=False) + "\n")


def table(scores: Iterable[Score]) -> list[str]:
    """Return lines of a table in Markdown."""
    rows = [HEADINGS, *(one.row() for one in scores)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def survivor(judged: Judged) -> str:
    """Return how a survivor differs from the source, and what was tried on it."""
    tried = f"tests: {judged.tests.outcome}, simulation: {judged.runs.outcome}"
    return f"{judged.mutant.diff()}\n({tried})"


def entry(judged: Judged) -> str:
    """Return a mutant as `equivalents.toml` lists it, for somebody to write the reason."""
    mutant = judged.mutant

    def lines(texts: Sequence[str]) -> str:
        return "\n".join(["'''", *texts, "'''"])

    return (
        f"[[equivalent]]\nfile = {json.dumps(mutant.file)}\nscope = {json.dumps(mutant.scope)}\n"
        f"operator = {json.dumps(mutant.operator)}\nremoved = {lines(mutant.removed)}\nadded = {lines(mutant.added)}\n"
        'reason = ""\n'
    )


def as_data(judged: Judged) -> dict[str, Any]:
    mutant = judged.mutant
    return {
        "name": mutant.name,
        "file": mutant.file,
        "scope": mutant.scope,
        "line": mutant.lines.start,
        "operator": mutant.operator,
        "removed": "\n".join(mutant.removed),
        "added": "\n".join(mutant.added),
        "tests": asdict(judged.tests),
        "runs": asdict(judged.runs),
    }


def as_json(seed: str, packages: Mapping[str, Sequence[Judged]], scores: Iterable[Score]) -> str:
    content = {
        "seed": seed,
        "scores": [asdict(one) for one in scores],
        "mutants": {package: [as_data(one) for one in every] for package, every in packages.items()},
    }
    return json.dumps(content, indent=1) + "\n"
