"""Bugs, each put into a copy of the source, to see that the simulated suite finds it; `tests.sim.planted` has them.

`python -m tests.sim.mutations` (`nox -s mutations`) tries the seeds of `python -m tests.sim` one after the other until
one fails, bug by bug, and the same seeds on an unchanged copy, which must all pass. It fails when a bug is not found,
or cannot be planted any more. `--record` writes what it found to `mutations.json`, from which `docs/reliability.md` has
its table.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.sim.planted import MUTATIONS as MUTATIONS
from tests.sim.planted import Mutation as Mutation
from tests.sim.planted import PlantingError as PlantingError

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "trio_cogment"
FOUND = Path(__file__).with_name("mutations.json")
SEEDS = 300
#: Of what a checker says; it may go on for pages.
MAX_SAID = 160


def copy_package(folder: Path) -> Path:
    """Return a copy of the package in a folder that can stand on the path."""
    return Path(shutil.copytree(PACKAGE, folder / "trio_cogment", ignore=shutil.ignore_patterns("__pycache__")))


@dataclass(frozen=True, slots=True)
class Finding:
    """The first seed that failed, and what it said."""

    seed: int
    said: str


def search(path: Path, first: int, seeds: int) -> Finding | None:
    """Run seeds on the package below `path`, in a process of its own, until one fails."""
    command = [sys.executable, "-m", "tests.sim.mutations", "--first", str(first), "--seeds", str(seeds)]
    environment = os.environ | {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, "--copy", str(path)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout)
    return None if found is None else Finding(**found)


def search_here(path: Path, first: int, seeds: int) -> Finding | None:
    """Do what `search` promises; the package has to be the copy."""
    import trio_cogment
    from tests.sim.suite import gathered, run_seed

    home = trio_cogment.__file__
    assert home is not None
    assert path in Path(home).parents, f"{home} is not the copy in {path}"
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + seeds):
        errors: list[BaseException] = []
        with gathered(errors):
            run_seed(seed)
        if errors:
            return Finding(seed, first_words(errors[0]))
    return None


def first_words(error: BaseException) -> str:
    """Return the beginning of what an error, or the first of a group, has to say."""
    from tests.sim.suite import first_of  # not above: of the package only a copy may be imported

    error = first_of(error)
    text = " ".join(str(error).split("\n")[0].split())
    if not text:  # where it was said is all that there is
        text = traceback.extract_tb(error.__traceback__)[-1].line or ""
    return f"{type(error).__name__}: {text}"[:MAX_SAID]


def try_one(mutation: Mutation, first: int, seeds: int) -> Finding | None:
    """Plant a bug and look for it.

    Raises:
        PlantingError: it cannot be planted.
    """
    with tempfile.TemporaryDirectory() as folder:
        mutation.apply(copy_package(Path(folder)))
        return search(Path(folder), first, seeds)


def try_none(first: int, seeds: int) -> Finding | None:
    """Run the seeds on a copy without a bug."""
    with tempfile.TemporaryDirectory() as folder:
        copy_package(Path(folder))
        return search(Path(folder), first, seeds)


def try_all(chosen: list[Mutation], first: int, seeds: int, jobs: int) -> dict[str, Finding]:
    """Look for bugs, several at a time; return and print what was found, and print what was not."""

    def attempt(mutation: Mutation) -> Finding | str:
        try:
            return try_one(mutation, first, seeds) or f"NOT FOUND within {seeds} seeds"
        except PlantingError as error:
            return f"CANNOT BE PLANTED: {error}"

    findings: dict[str, Finding] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for mutation, outcome in zip(chosen, pool.map(attempt, chosen), strict=True):
            if isinstance(outcome, Finding):
                findings[mutation.name] = outcome
                print(f"{mutation.name}: seed {outcome.seed}: {outcome.said}", flush=True)
            else:
                print(f"{mutation.name}: {outcome}", flush=True)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s mutations --", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="within how many a bug must be found")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--only", default="", help="the bugs whose names match this pattern")
    parser.add_argument("--record", action="store_true", help="write what was found to mutations.json")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="bugs at a time")
    parser.add_argument("--copy", type=Path, help=argparse.SUPPRESS)  # what `search` starts
    options = parser.parse_args()
    if options.copy is not None:
        found = search_here(options.copy, options.first, options.seeds)
        print(json.dumps(None if found is None else asdict(found)))
        return 0
    chosen = [mutation for mutation in MUTATIONS if re.search(options.only, mutation.name)]
    findings = try_all(chosen, options.first, options.seeds, options.jobs)
    tried = max((found.seed for found in findings.values()), default=options.first) - options.first + 1
    plain = try_none(options.first, tried)
    if plain is not None:
        print(f"WITHOUT A BUG seed {plain.seed} fails, too: {plain.said}")
    print(
        f"{len(findings)} of {len(chosen)} found; without a bug {tried} seeds {'pass' if plain is None else 'do NOT'}"
    )
    if plain is not None or len(findings) < len(chosen):
        return 1
    if options.record:
        recorded = json.loads(FOUND.read_text()) if FOUND.exists() else {}
        recorded |= {m.name: {"how": m.how} | asdict(findings[m.name]) for m in chosen}
        FOUND.write_text(json.dumps({m.name: recorded.get(m.name) for m in MUTATIONS}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
