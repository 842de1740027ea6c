"""The models are independent of what they judge, and an edit of any of their rules is noticed by the runs."""

from __future__ import annotations

import ast
import functools
import types
from pathlib import Path
from typing import Any

import pytest

from tests.models.runs import RUNS
from trio_cogment.testing import CallLog, NotLinearizableError, UndecidedError, simulate

pytestmark = pytest.mark.usefixtures("quiet")

FOLDER = Path(__file__).parent
MODELS = ("trial_store", "registry", "directory")
#: Within how many seeds of each of its runs an edit must be noticed.
SEEDS = 12

#: Steps of the search; without an edit most searches take some hundreds.
BUDGET = 3000

#: Edits of the rules, not of what they judge.
EDITS = [
    ("trial_store", 'end = "ended" if sample.state == ENDED', 'end = "ended" if False'),
    ("trial_store", "max(self.samples).state", "self.samples[-1].state"),
    ("trial_store", "len(self.samples), self.last_state", "len(self.arrived), self.last_state"),
    ("trial_store", "if trial.trial_id not in gone}", "if trial.trial_id != min(gone)}"),
    ("trial_store", 'trial._replace(end="ended") if sample.state == ENDED else trial', "trial"),
    ("trial_store", "old is not None and old.stamp == sample.stamp", "False"),
    ("trial_store", "kept = tuple(one for one in trial.samples if one.tick < sample.tick)", "pass"),
    ("trial_store", "if one.tick != sample.tick)", ")"),
    ("trial_store", "opens = all(sample.tick >= one.tick for one in trial.samples)", "opens = True"),
    ("trial_store", 'end="open" if opened else trial.end', "end=trial.end"),
    ("trial_store", "trial._replace(user=request.user, ", "trial._replace("),
    ("trial_store", "number > last and", "number >= last and"),
    ("trial_store", "found[: request.most or None]", "found"),
    ("trial_store", "not request.trial_ids or", "True or"),
    ("trial_store", "return state.created + 1, Trial(", "return min(state.trials, default=1) - 1, Trial("),
    ("trial_store", "if text in there]", "]"),
    ("trial_store", "(*kept, sample), arrived=", "(*trial.samples, sample), arrived="),
    ("trial_store", "        return NOT_FOUND, [state]\n        trial", "        return OK, [state]\n        trial"),
    ("registry", "yield state._replace(data=request.data)", "yield state._replace(data=state.data or request.data)"),
    ("registry", "yield One(spare=state.spare)", "yield state._replace(data=None)"),
    ("registry", "dict(sorted({**self.versions,", "dict(({**self.versions,"),
    ("registry", "0 < answer - state.last <= 1 + state.spare", "answer > state.last + 1"),
    ("registry", "if not version.archived)\n    for", "if version.archived)\n    for"),
    ("registry", "found = tuple(version for number, version in state.versions.items() if number >= request.first)",
     "found = tuple(state.versions.values())"),
    ("registry", "found[: request.most or None]", "found"),
    ("registry", "if number >= request.first", "if number > request.first"),
    ("registry", "if version.number > request.after] if request.after else newest", "]"),
    ("registry", "numbers[wanted] if -wanted <= len(numbers) else 0", "numbers[-1] if numbers else 0"),
    ("registry", "if -wanted <= len(numbers) else 0", "if -wanted <= len(numbers) else min(numbers, default=0)"),
    ("registry", "return version.text if isinstance(request, Read) else version", "return version"),
    ("registry", "version.number > request.after] if", "version.number >= request.after] if"),
    ("registry", "newest = list(state.versions.values())[-1:]", "newest = list(state.versions.values())[:1]"),
    ("directory", "entry.call.owner == request.owner", "entry.call.owner != request.owner"),
    ("directory", "and entry.call.kind == request.kind\n", ""),
    ("directory", "and set(request.properties) <= set(entry.call.properties)\n    ]\n\n\ndef dereg",
     "and set(request.properties) == set(entry.call.properties)\n    ]\n\n\ndef dereg"),
    ("directory", "        if request.permanent\n        and", "        if"),
    ("directory", "and state[host].call.token == request.token", ""),
    ("directory", "host == request.host and", "request.host and"),
    ("directory", "if host not in old[1:]", ""),
    ("directory", "in reversed(state.items())", "in state.items()"),
    ("directory", "found = [entry for entry in found if entry.call.token == request.token]\n", "pass\n"),
    ("directory", "for entry in reversed(found) if", "for entry in found if"),
    ("directory", "owners = list(dict.fromkeys([(\"\", request.token) if request.token else (request.account, \"\")]))",
     "owners = []"),
    ("directory", "request.kind in (0, entry.call.kind)", "request.kind == entry.call.kind"),
    ("directory", "if not allowed or other != host}", "}"),
    ("directory", "(request.host if host == old[0] else host): (entry", "host: (entry"),
]  # fmt: skip


@functools.cache
def log_of(name: str, seed: int) -> CallLog:
    """Return what clients were answered with a seed; it does not depend on the model."""
    return simulate(seed, RUNS[name].play).value


def edited(module: str, before: str, after: str) -> Any:
    """Return a model's module with an edit; what is asked stays the same."""
    text = (FOLDER / f"{module}.py").read_text(encoding="utf-8")
    assert text.count(before) == 1, before
    made = types.ModuleType(f"edited.{module}")
    exec(compile(text.replace(before, after), f"{module}.py, edited", "exec"), made.__dict__)
    return made


def same_classes(rules: Any, log: CallLog) -> None:
    """Let an edited module have the classes of what was asked and answered: they are compared."""
    for call in log:
        answer = call.answer if type(call.answer) is tuple else (call.answer,)
        vars(rules).update({type(one).__name__: type(one) for one in (call.request, *answer)})


def runs_of(module: str) -> list[str]:
    return [name for name, run in RUNS.items() if run.rules.__name__.endswith(f".{module}")]


@pytest.mark.parametrize(("module", "before", "after"), EDITS[::3], ids=range(0, len(EDITS), 3))
def test_an_edit_of_a_model_is_noticed(module: str, before: str, after: str) -> None:
    notice(module, before, after)


@pytest.mark.soak
@pytest.mark.parametrize(("module", "before", "after"), EDITS, ids=range(len(EDITS)))
def test_every_edit_of_a_model_is_noticed(module: str, before: str, after: str) -> None:
    notice(module, before, after)


def notice(module: str, before: str, after: str) -> None:
    """Judge what clients were answered, with an edit of the model, until something is not right."""
    rules = edited(module, before, after)
    for seed in range(SEEDS):
        for name in runs_of(module):
            log = log_of(name, seed)
            same_classes(rules, log)
            try:
                RUNS[name].judge(log, rules, budget=BUDGET)
            except (NotLinearizableError, UndecidedError):
                return
    pytest.fail("nothing was noticed")


@pytest.mark.parametrize("name", RUNS)
def test_without_an_edit_there_is_nothing_to_notice(name: str) -> None:
    for seed in range(3):
        RUNS[name].judge(log_of(name, seed), budget=BUDGET)


@pytest.mark.parametrize("name", MODELS)
def test_they_import_nothing_of_what_they_judge(name: str) -> None:
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        for imported in names:
            assert imported.partition(".")[0] not in ("tests", "trio_cogment") or imported == "trio_cogment.testing"
