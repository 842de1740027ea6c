"""Experiments for tests."""

from __future__ import annotations

from typing import Any

from trio_cogment.experiment.definition import Condition, Dropout, Experiment, PagePlan, Question, TrialPlan, Waiting

CHECK = PagePlan(
    name="check",
    kind="questions",
    questions=[Question(name="rule", ask="Which one?", kind="choice", options=["a", "b"], correct="a")],
    attempts=2,
    seconds=60,
)


def plan(*, size: int = 2, trials: int = 1, conditions: int = 1, then: str = "end", **more: Any) -> Experiment:
    """Return an experiment: consent, instructions with a check, a waiting room, trials, one question."""
    waiting, meanwhile = more.pop("waiting", {}), more.pop("meanwhile", "again")
    ready = PagePlan(name="ready-1", text="Ready?", seconds=30)
    rounds = [
        TrialPlan(
            name=f"trial-{k}",
            environment="game",
            pages=[ready] if k == 1 else [],
            roles="swap",
            agents_argument="agents" if then == "fewer" else "",
        )
        for k in range(trials)
    ]
    return Experiment(
        name="test",
        title="Test",
        before=[PagePlan(name="consent", kind="consent", text="Do you agree?"), CHECK],
        waiting=Waiting(size=size, **{"seconds": 100.0, "way_out_seconds": 20.0, **waiting}),
        conditions=[Condition(name=f"condition-{k}") for k in range(conditions)],
        dropout=Dropout(then=then, default=0 if "default" in (then, meanwhile) else None, meanwhile=meanwhile),
        trials=rounds,
        after=[PagePlan(name="end", kind="questions", questions=[Question(name="age", ask="Age?", kind="number")])],
        **more,
    )
