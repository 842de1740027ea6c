"""The tables of a Parquet data set: one row for each step, one row for each trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.rl.datasets.arrow import pa
from trio_cogment.rl.datasets.columns import Column, MaskColumns, PlainColumn, SpaceColumns
from trio_cogment.rl.datasets.payloads import Form
from trio_cogment.rl.datasets.plain import as_json, types_of
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.rl.datasets.trials import ActorRecord, TrialRecord
from trio_cogment.spaces import SpaceError

#: What is added to the size of a row for the columns that all tables have, in bytes.
_ROW_BYTES = 200

_REWARDS = pa.list_(pa.struct([("sender", pa.string()), ("value", pa.float32()), ("confidence", pa.float32())]))
_TYPES: Mapping[str, tuple[Any, str]] = {
    "text": (pa.string(), "str"),
    "whole": (pa.int64(), "int64"),
    "real": (pa.float64(), "float64"),
    "flag": (pa.bool_(), "bool"),
}
#: The columns before and after the values, and their types. Those from `discount` on, `rl-datasets.md` explains.
_BEFORE = {
    "trial_id": "text",
    "episode_index": "whole",
    "tick": "whole",
    "actor": "text",
    "actor_class": "text",
    "implementation": "text",
    "is_human": "flag",
}
_RESULT = {"reward": "real", "terminated": "flag", "truncated": "flag"}
_AFTER = {
    "timestamp_ns": "whole",
    "policy": "text",
    "is_first": "flag",
    "is_last": "flag",
    "is_terminal": "flag",
    "discount": "real",
    "active": "flag",
    "alive": "flag",
    "default_action": "flag",
    "info": "text",
    "info_types": "text",
}


def _plain(kinds: Mapping[str, str]) -> dict[str, PlainColumn]:
    return {name: PlainColumn(*_TYPES[kind]) for name, kind in kinds.items()}


class StepTable:
    """Rows of steps whose observations and actions have one form.

    Attributes:
        form: what observations and actions are.
        columns: by name, in order.
        rows: how many rows there are since the last `take`.
        size_bytes: about how many bytes they take.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.rows = 0
        self.size_bytes = 0
        mask: dict[str, Column] = {}
        if form.observation_space is not None and form.action_space is not None:
            self._observation: SpaceColumns | PlainColumn = SpaceColumns(
                form.observation_space, "observation", optional=False
            )
            self._action: SpaceColumns | PlainColumn = SpaceColumns(form.action_space, "action", optional=True)
            self._mask: MaskColumns | None = MaskColumns(form.action_space, "action_mask")
            values = {**self._observation.columns, **self._action.columns}
            mask = self._mask.columns
        else:
            kind = (pa.binary(), "bytes") if form.kind == "bytes" else (pa.string(), "str")
            self._observation, self._action, self._mask = PlainColumn(*kind), PlainColumn(*kind), None
            values = {"observation": self._observation, "action": self._action}
        before, result, after = _plain(_BEFORE), _plain(_RESULT), _plain(_AFTER)
        self._rewards = PlainColumn(_REWARDS, "list<struct<sender, value, confidence>>")
        self.columns: dict[str, Column] = {
            **before,
            **values,
            **result,
            **mask,
            **after,
            "other_rewards": self._rewards,
        }
        # Most columns are plain, and most of the time went into finding them.
        self._appends = [column.values.append for column in (*before.values(), *result.values(), *after.values())]
        self.schema = pa.schema([(name, column.type) for name, column in self.columns.items()])

    def append(self, trial: TrialRecord, actor: ActorRecord, step: Step) -> None:
        """Add a row.

        Raises:
            SpaceError: a part of the step does not fit into the columns; the text names trial, tick, actor and part.
        """
        told = step.observation
        try:
            size = self._observation.append(told.value) + self._action.append(step.action)
            if self._mask is not None:
                size += self._mask.append(told.action_mask)
        except SpaceError as error:
            where = f"trial {trial.stored.trial_id!r}, tick {step.tick}, actor {step.actor!r}"
            raise error.of(f"{where}: {error.root}") from None
        info = as_json(told.info) if told.info else None
        types = types_of(told.info) if told.info else None
        # In the order of `_BEFORE`, `_RESULT` and `_AFTER`.
        values = (
            trial.stored.trial_id,
            trial.episode_index,
            step.tick,
            actor.name,
            actor.actor_class,
            actor.implementation,
            actor.is_human and not (step.stand_in or step.default_action),
            step.reward,
            step.terminated,
            step.truncated,
            step.timestamp_ns,
            actor.policy,
            step.is_first,
            step.is_last,
            step.is_terminal,
            None if step.is_last else float(not step.terminated),
            told.active,
            told.alive,
            step.default_action,
            info,
            None if types is None else as_json(types),
        )
        for append, value in zip(self._appends, values, strict=True):
            append(value)
        self._rewards.append([reward._asdict() for reward in step.other_rewards] or None)
        self.rows += 1
        self.size_bytes += size + _ROW_BYTES + len(info or "")

    def take(self) -> Any:
        """Return the rows as a table of Arrow, and forget them."""
        self.rows = self.size_bytes = 0
        return pa.table([column.take() for column in self.columns.values()], schema=self.schema)


@dataclass(slots=True)
class ActorSums:
    """What an actor's steps of one trial amount to.

    Attributes:
        group: which table the steps are in.
        steps: those with a reward, that is all but the last.
        total_reward: the sum of their rewards.
        terminated: the task ended for the actor.
        truncated: it was cut off.
    """

    group: int = 0
    steps: int = 0
    total_reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    def add(self, step: Step) -> None:
        """Count a step."""
        if step.reward is not None:
            self.steps += 1
            self.total_reward += step.reward
        self.terminated |= step.terminated or step.is_terminal
        self.truncated |= step.truncated or (step.is_last and not step.is_terminal and not self.terminated)


_ACTORS = pa.list_(
    pa.struct(
        [
            ("name", pa.string()),
            ("actor_class", pa.string()),
            ("implementation", pa.string()),
            ("is_human", pa.bool_()),
            ("policy", pa.string()),
            ("group", pa.int64()),
            ("steps", pa.int64()),
            ("total_reward", pa.float64()),
            ("terminated", pa.bool_()),
            ("truncated", pa.bool_()),
        ]
    )
)
TRIALS = pa.schema(
    [
        ("trial_id", pa.string()),
        ("episode_index", pa.int64()),
        ("environment", pa.string()),
        ("seed", pa.int64()),
        ("options", pa.string()),
        ("user_id", pa.string()),
        ("state", pa.string()),
        ("end_cause", pa.string()),
        ("complete", pa.bool_()),
        ("ticks", pa.int64()),
        ("started_ns", pa.int64()),
        ("ended_ns", pa.int64()),
        ("properties", pa.string()),
        ("actors", _ACTORS),
    ]
)


def trial_row(
    trial: TrialRecord, sums: Mapping[str, ActorSums], *, ticks: int, started_ns: int | None, ended_ns: int | None
) -> dict[str, Any]:
    """Return the row of a trial."""
    stored = trial.stored
    state = stored.state
    return {
        "trial_id": stored.trial_id,
        "episode_index": trial.episode_index,
        "environment": trial.environment,
        "seed": trial.seed,
        "options": as_json(trial.options) if trial.options else None,
        "user_id": stored.user_id,
        "state": TrialState.Name(state) if state in TrialState.values() else str(state),
        "end_cause": None if stored.outcome is None else stored.outcome.cause.label,
        "complete": stored.is_complete,
        "ticks": ticks,
        "started_ns": started_ns,
        "ended_ns": ended_ns,
        "properties": as_json(dict(stored.params.properties)) if stored.params.properties else None,
        "actors": [_actor_row(actor, sums.get(name)) for name, actor in trial.actors.items()],
    }


def _actor_row(actor: ActorRecord, sums: ActorSums | None) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(actor, name) for name in ActorRecord.__slots__}
    names = ActorSums.__slots__
    # One who never came has none.
    row.update({name: None if sums is None else getattr(sums, name) for name in names})
    return row
