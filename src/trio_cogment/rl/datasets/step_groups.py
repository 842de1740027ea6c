"""Steps in groups, each with a table of its own: those whose observations and actions have one form.

`StepWriter` sorts steps into them. `parquet` writes their tables to files, `TableWriter` keeps them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from typing_extensions import override

from trio_cogment.rl.datasets.arrow import pa
from trio_cogment.rl.datasets.payloads import Form
from trio_cogment.rl.datasets.placing import Placement
from trio_cogment.rl.datasets.step_columns import StepColumns
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.rl.datasets.tables import ActorSums, StepTable, trial_row
from trio_cogment.rl.datasets.trials import ActorRecord, TrialRecord

#: A table ends after this many rows, or about this many bytes; of a file it is a row group.
ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 32 * 1024 * 1024


class StepGroup(ABC):
    """Steps of one form.

    Args:
        form: of their observations and actions.
        tensors: arrays are Arrow's own tensors; see `tables.ArrayColumn`.

    Attributes:
        table: collects them.
        actors: whose they are, by name.
        actor_classes: of these actors.
        rows: how many were written.
        steps: how many of all have a reward.
    """

    def __init__(self, form: Form, *, tensors: bool) -> None:
        self.table = StepTable(form, tensors=tensors)
        self.actors: dict[str, None] = {}
        self.actor_classes: dict[str, None] = {}
        self.rows = 0
        self.steps = 0

    @abstractmethod
    def write(self, table: Any) -> None:
        """Write some rows."""

    def flush(self) -> None:
        """Write the rows that were collected."""
        if self.table.rows:
            self.rows += self.table.rows
            self.write(self.table.take())


G = TypeVar("G", bound=StepGroup)


class StepWriter(ABC, Generic[G]):
    """Collects the steps of trials in groups; see `trials.Writer`.

    Attributes:
        groups: by form, in the order in which they came.
    """

    def __init__(self) -> None:
        self.groups: dict[Form, G] = {}
        self._trial: TrialRecord | None = None
        #: By actor of the trial.
        self._ways: dict[str, tuple[G, ActorSums, ActorRecord]] = {}
        self._ticks = 0
        self._last_tick = -1
        self._times: tuple[int, int] | None = None

    @abstractmethod
    def new_group(self, form: Form) -> G:
        """Return what writes steps of another form."""

    def begin(self, trial: TrialRecord) -> None:
        """See `Writer.begin`."""
        self._trial, self._ways, self._times = trial, {}, None
        self._ticks, self._last_tick = 0, -1

    def add(self, steps: list[Step]) -> None:
        """See `Writer.add`."""
        trial = self._trial
        assert trial is not None
        for step in steps:
            group, sums, actor = self._ways.get(step.actor) or self._begin_actor(step, trial)
            group.table.append(trial, actor, step)
            sums.add(step)
            if step.tick != self._last_tick:
                self._last_tick, self._ticks = step.tick, self._ticks + 1
            group.steps += step.reward is not None
            if group.table.rows >= ROW_GROUP_ROWS or group.table.size_bytes >= ROW_GROUP_BYTES:
                group.flush()
        if steps:
            first, last = steps[0], steps[-1]
            self._times = (first.timestamp_ns if self._times is None else self._times[0], last.timestamp_ns)

    def add_columns(self, columns: Sequence[StepColumns]) -> None:
        """See `Writer.add_columns`."""
        trial = self._trial
        assert trial is not None
        together: dict[G, list[tuple[StepColumns, ActorRecord]]] = {}
        for one in columns:
            group, sums, actor = self._ways[one.actor]
            together.setdefault(group, []).append((one, actor))
            sums.add_columns(one)
        for group, parts in together.items():
            rows = group.table.rows_of(trial, parts)
            group.steps += rows.rows
            begin = 0
            while begin < rows.rows:
                end = begin + group.table.room(ROW_GROUP_ROWS, ROW_GROUP_BYTES, rows.row_bytes)
                group.table.extend(rows, begin, min(end, rows.rows))
                begin = end
                if group.table.rows >= ROW_GROUP_ROWS or group.table.size_bytes >= ROW_GROUP_BYTES:
                    group.flush()
        ticks, times = columns[0].ticks, columns[0].timestamps_ns
        self._ticks += len(ticks)
        self._last_tick = int(ticks[-1])
        self._times = (int(times[0]) if self._times is None else self._times[0], int(times[-1]))

    def _begin_actor(self, step: Step, trial: TrialRecord) -> tuple[G, ActorSums, ActorRecord]:
        form = step.payloads.form
        group = self.groups.get(form)
        if group is None:
            group = self.groups[form] = self.new_group(form)
        actor = trial.actors[step.actor]
        group.actors.setdefault(actor.name)
        group.actor_classes.setdefault(actor.actor_class)
        found = self._ways[step.actor] = (group, ActorSums(list(self.groups).index(form)), actor)
        return found

    def row_of_trial(self) -> dict[str, Any]:
        """Return what there is to say of the trial, as a row of the table of trials."""
        assert self._trial is not None
        started, ended = self._times or (None, None)
        sums = {name: found for name, (_, found, _) in self._ways.items()}
        return trial_row(self._trial, sums, ticks=self._ticks, started_ns=started, ended_ns=ended)


def group_names(actors: list[list[str]]) -> list[str]:
    """Return a name for each group: that of its actors without their numbers, as `predator` for `predator_0`."""
    if len(actors) == 1:
        return ["default"]
    names = []
    for group in actors:
        common = {re.sub(r"_\d+$", "", name) for name in group}
        names.append(common.pop() if len(common) == 1 else "")
    good = len(set(names)) == len(names) and all(re.fullmatch(r"[A-Za-z][\w-]{0,60}", name, re.A) for name in names)
    return names if good and not {"default", "trials"} & set(names) else [f"group-{n}" for n in range(len(names))]


class _Kept(StepGroup):
    """Steps that stay in memory."""

    def __init__(self, form: Form, *, tensors: bool) -> None:
        super().__init__(form, tensors=tensors)
        self.tables: list[Any] = []

    @override
    def write(self, table: Any) -> None:
        self.tables.append(table)


class TableWriter(StepWriter[_Kept]):
    """Keeps steps as tables of Arrow; see `trials.Writer`.

    Args:
        tensors: arrays are Arrow's own tensors; see `tables.ArrayColumn`.
    """

    def __init__(self, *, tensors: bool = False) -> None:
        super().__init__()
        self._tensors = tensors

    @override
    def new_group(self, form: Form) -> _Kept:
        return _Kept(form, tensors=self._tensors)

    def end(self) -> None:
        """See `Writer.end`."""

    def tables(self) -> dict[str, Any]:
        """Return the table of each group, by the names that they have in a data set of Parquet files."""
        groups = list(self.groups.values())
        for group in groups:
            group.flush()
        names = group_names([list(group.actors) for group in groups])
        return {name: pa.concat_tables(group.tables) for name, group in zip(names, groups, strict=True)}

    def finish(self) -> list[Placement]:
        """See `Writer.finish`: there are no folders."""
        return []

    def close(self) -> None:
        """See `Writer.close`: there is nothing to remove."""
