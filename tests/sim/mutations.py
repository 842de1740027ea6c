"""Twenty bugs, each put into a copy of the source, to see that the simulated suite finds it.

`python -m tests.sim.mutations` (`nox -s mutations`) tries the seeds of `python -m tests.sim` one after the other until
one fails, bug by bug, and the same seeds on an unchanged copy, which must all pass. It fails when a bug is not found,
or cannot be planted any more. `--record` writes what it found to `mutations.json`, from which `docs/reliability.md` has
its table.

A bug is a change of one text in one file. It has to be what its name says and nothing more: a change after which
nothing works would be found by anything.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "trio_cogment"
FOUND = Path(__file__).with_name("mutations.json")
SEEDS = 300
#: Of what a checker says; it may go on for pages.
MAX_SAID = 160


class PlantingError(Exception):
    """A bug cannot be planted: the source has changed."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug.

    Attributes:
        name: what is wrong.
        how: how it comes about.
        file: where, below the package.
        before: a text that is there once.
        after: what stands there instead.
    """

    name: str
    how: str
    file: str
    before: str
    after: str

    def apply(self, package: Path) -> None:
        """Plant the bug into a copy of the package.

        Raises:
            PlantingError: the text is not there once, or what comes out of it is no Python.
        """
        path = package / self.file
        text = path.read_text()
        if text.count(self.before) != 1:
            raise PlantingError(f"{self.name}: {self.file} has {text.count(self.before)} times:\n{self.before}")
        changed = text.replace(self.before, self.after)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise PlantingError(f"{self.name}: {self.file} would be no Python: {error}") from error
        path.write_text(changed)


MUTATIONS = (
    Mutation(
        "END before all LAST_ACKs",
        "END goes out when one LAST_ACK is still missing",
        "trial/_closing.py",
        "        trial.owing.discard(participant.index)\n        if not trial.owing:",
        "        trial.owing.discard(participant.index)\n        if len(trial.owing) <= 1:",
    ),
    Mutation(
        "a reward delivered twice",
        "what comes with the final observation comes with END once more",
        "trial/_closing.py",
        "            send_rewards(trial, actor)\n        actor.step(StreamInput.SEND_LAST)",
        "            sources = list(actor.reward_sources)\n"
        "            send_rewards(trial, actor)\n"
        "            actor.reward_sources = sources\n"
        "        actor.step(StreamInput.SEND_LAST)",
    ),
    Mutation(
        "a sample lost at the flush",
        "the last tick's sample is left out of the flush",
        "trial/_samples.py",
        "        leaving, self._buffer = self._buffer, []",
        "        leaving, self._buffer = self._buffer[:-1], []",
    ),
    Mutation(
        "a timed-out actor counted twice",
        "it is absent once for its time being over and once for having no action",
        "trial/_ticks.py",
        "            (defaults if content is not None else unavailable).append(actor.index)",
        "            absent = defaults if content is not None else unavailable\n"
        "            absent.extend([actor.index] if actor.gone else [actor.index] * 2)",
    ),
    Mutation(
        "a duplicate id answered",
        "the second start of an id gets the id, not an empty reply",
        "orchestrator/orchestrator.py",
        '            if trial_id in self.trials:\n                return ""',
        "            if trial_id in self.trials:\n                return trial_id",
    ),
    Mutation(
        "a watcher missing one transition",
        "where one input changes the state twice, the first change is no news any more",
        "orchestrator/_watch.py",
        "        if self._end is not None or (self._states and state not in self._states):",
        "        if self._end is not None or (self._states and state not in self._states) or state != info().state:",
    ),
    Mutation(
        "a late action given to the next tick",
        "an action of the tick before is taken for this one's",
        "trial/_ticks.py",
        "    if tick_id != CURRENT_TICK and tick_id != trial.tick_id:\n        trial.ignore(actor",
        "    if tick_id != CURRENT_TICK and not trial.tick_id - 1 <= tick_id <= trial.tick_id:\n"
        "        trial.ignore(actor",
    ),
    Mutation(
        "an optional actor's loss ending the trial",
        "in the table, it breaks a running trial off",
        "trial/_trial_table.py",
        "    (_P.RUNNING, _I.OPTIONAL_ACTOR_LOST): (_P.RUNNING, _A.GO_ON_WITHOUT),",
        "    (_P.RUNNING, _I.OPTIONAL_ACTOR_LOST): (_P.ENDED, _A.BREAK_OFF),",
    ),
    Mutation(
        "the environment's LAST ignored",
        "in the table, it has no effect",
        "trial/_stream_table.py",
        "    (_S.ACTIVE, _I.LAST): (_S.ENDING, _V.DELIVER),",
        "    (_S.ACTIVE, _I.LAST): (_S.ACTIVE, _V.IGNORE),",
    ),
    Mutation(
        "a hook's failure leaving its trial",
        "a start through hooks that fails leaves its trial known, its id taken",
        "orchestrator/orchestrator.py",
        "                trial.hard_end(details)\n                self.trials.remove(trial)",
        # Hooks are asked when the starter gave no parameters.
        "                trial.hard_end(details)\n"
        "                if params is not None:\n"
        "                    self.trials.remove(trial)",
    ),
    Mutation(
        "an ack timer never armed",
        "actors may take for ever to acknowledge",
        "trial/_closing.py",
        "        trial.arm(Timer(TimerKind.ACK, actor.index), trial.rules.actor_ack_timeout_seconds)\n",
        "",
    ),
    Mutation(
        "a cancelled trial leaving a task",
        "when the trial is broken off, the stream of one who is not ready yet is not closed, and its task waits on",
        "trial/_stream_table.py",
        "    (_S.CONNECTING, _I.SEND_END): (_S.ENDED, _V.PROCEED),",
        "    (_S.CONNECTING, _I.SEND_END): (_S.ENDED, _V.DROP),",
    ),
    Mutation(
        "every actor shown the same observation",
        "the map of who sees what is not looked at",
        "trial/_ticks.py",
        "        observation.content = contents[indexes[index]]",
        "        observation.content = contents[0]",
    ),
    Mutation(
        "final rewards lost",
        "what was given for the last tick does not come with the final observation",
        "trial/_closing.py",
        "            send_rewards(trial, actor)\n        actor.step(StreamInput.SEND_LAST)",
        "            actor.reward_sources = []\n        actor.step(StreamInput.SEND_LAST)",
    ),
    Mutation(
        "a reward to the wrong actor",
        "it goes to the actor after the one that it names",
        "trial/_exchange.py",
        "    receivers = resolve(reward.receiver_name, trial.actors)\n",
        "    receivers = resolve(reward.receiver_name, trial.actors)\n"
        "    receivers = [trial.actors[(actor.index + 1) % len(trial.actors)] for actor in receivers]\n",
    ),
    Mutation(
        "a default action ignored",
        "an absent actor is unavailable, though it has a default",
        "trial/_ticks.py",
        "            content = actor.default_action\n",
        "            content = None\n",
    ),
    Mutation(
        "one step beyond the last",
        "the limit of steps is compared with the wrong sign",
        "trial/_ticks.py",
        "0 < trial.max_steps <= trial.tick_id",
        "0 < trial.max_steps < trial.tick_id",
    ),
    Mutation(
        "an idle trial never ended",
        "the timer of inactivity is not armed",
        "trial/_opening.py",
        "    trial.arm(INACTIVITY, params.max_inactivity)\n",
        "",
    ),
    Mutation(
        "no patience with a soft end",
        "its timer is not armed: an environment may take for ever to come to its end",
        "trial/_core.py",
        "            self.arm(PATIENCE, self.rules.soft_end_patience_seconds)\n",
        "            return\n",
    ),
    Mutation(
        "a response timeout forgotten",
        "required actors may take for ever to act",
        "trial/_ticks.py",
        "        trial.arm(Timer(_RESPONSE, actor.index), actor.response_timeout)\n",
        "        if not actor.required:\n"
        "            trial.arm(Timer(_RESPONSE, actor.index), actor.response_timeout)\n",
    ),
)


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
    from tests.sim.suite import run_seed

    home = trio_cogment.__file__
    assert home is not None
    assert path in Path(home).parents, f"{home} is not the copy in {path}"
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + seeds):
        try:
            run_seed(seed)
        except Exception as error:  # noqa: BLE001  whatever a run raises is its failure
            return Finding(seed, first_words(error))
    return None


def first_words(error: BaseException) -> str:
    """Return the beginning of what an error, or the first of a group, has to say."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split("\n")[0].split())
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
