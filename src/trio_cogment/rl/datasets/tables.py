"""The tables of a Parquet data set: one row for each step, one row for each trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from typing_extensions import override

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.taking_up import branch_of
from trio_cogment.rl.datasets.arrow import keeps_missing_lists, pa
from trio_cogment.rl.datasets.payloads import Form
from trio_cogment.rl.datasets.plain import array_in, as_json, stored_mask, types_of
from trio_cogment.rl.datasets.step_columns import StepColumns
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.rl.datasets.trials import ActorRecord, TrialRecord
from trio_cogment.spaces import (
    ArraySpace,
    Dict,
    Discrete,
    MultiBinary,
    Space,
    SpaceError,
    Text,
    Tuple,
    column_names,
    encode_value,
)
from trio_cogment.spaces.base import described

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Columns of a table for the values of spaces: collected row by row, and given to Arrow.
#
# | values | column |
# |---|---|
# | of `Discrete`; arrays without dimensions | a number |
# | arrays | nested lists of fixed size, as large as the shape says; the outermost not, where some can be missing |
# | arrays without elements | an empty list |
# | of `Text` | a string |
# | of `Sequence`, `Graph`, `OneOf` | the bytes of the message `trio_cogment.spaces.Value` |
# | action masks of `Discrete` and `MultiBinary` | a list of `int8` |
# | other action masks | the bytes of the message `trio_cogment.spaces.Value` |
#
# `Dict` and `Tuple` have a column for each part: `observation.arm.0`. What is not there is null.

#: How many rows a column has room for at first.
_FIRST_ROWS = 256


class Column(Protocol):
    """Collects the values of one column.

    Attributes:
        feature: what `meta/info.json` says of the column: `dtype`, `shape`, and `encoding` if it has one.
    """

    feature: dict[str, Any]

    @property
    def type(self) -> Any:
        """Arrow's type of the column."""

    def append(self, value: Any) -> int:
        """Add a value, or None; return about how many bytes it takes. Raises SpaceError."""

    def take(self) -> Any:
        """Return the values as an array of Arrow, and forget them."""


class PlainColumn:
    """Values that Arrow takes as they are.

    Args:
        kind: Arrow's type.
        name: of the type, for `feature`.
        size: about how many bytes a value takes.

    Attributes:
        values: those that were added; always the same list.
    """

    def __init__(self, kind: Any, name: str, size: int = 8) -> None:
        self.type = kind
        self.feature: dict[str, Any] = {"dtype": name, "shape": []}
        self._size = size
        self.values: list[Any] = []
        #: How often some of `values` are there, by place; all others once.
        self._counts: dict[int, int] = {}
        #: Arrays that were added, and how many of `values` are before each of them.
        self._arrays: list[tuple[int, Any]] = []

    @property
    def missing_bytes(self) -> int:
        """About how many bytes a value takes that is not there."""
        return self._size

    def append(self, value: Any) -> int:
        """See `Column.append`."""
        self.values.append(value)
        return self._size

    def extend(self, array: Any) -> None:
        """Add the values of an array of Arrow, of the column's type."""
        self._arrays.append((len(self.values), array))

    def repeat(self, value: Any, count: int) -> None:
        """Add a value several times."""
        self._counts[len(self.values)] = count
        self.values.append(value)

    def _are_same(self) -> bool:
        first = self.values[0]
        if isinstance(first, str):
            return self.values.count(first) == len(self.values)
        # Not those that are equal: these may be arrays, or floats that can be told apart.
        return all(value is first for value in self.values)

    def take(self) -> Any:
        """See `Column.take`."""
        ends = np.ones(len(self.values) + 1, np.int64)
        ends[0] = 0
        if self._counts and not self._arrays and self._are_same():
            count = len(self.values) + sum(self._counts.values()) - len(self._counts)
            found = pa.repeat(pa.scalar(self.values[0], self.type), count)
            self._counts.clear()
        else:
            found = pa.array(self.values, self.type)
        if self._counts:
            ends[np.fromiter(self._counts, np.int64) + 1] = list(self._counts.values())
            found = found.take(pa.array(np.repeat(np.arange(len(found)), ends[1:])))
            self._counts.clear()
        self.values.clear()
        if self._arrays:
            ends = np.cumsum(ends)
            pieces: list[Any] = []
            at = 0
            for before, array in self._arrays:
                end = int(ends[before])
                pieces += found.slice(at, end - at), array
                at = end
            found = pa.concat_arrays([*pieces, found.slice(at)])
            self._arrays.clear()
        return found


class TextColumn(PlainColumn):
    """Strings."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "str")

    @override
    def append(self, value: Any) -> int:
        if value is None:
            return super().append(None)
        if not isinstance(value, str):
            raise SpaceError(f"expected a string, got {described(value)}")
        return super().append(value) + len(value)


class MessageColumn(PlainColumn):
    """Values of any space, or of none, as bytes of the message `Value`."""

    def __init__(self, space: Space | None) -> None:
        super().__init__(pa.binary(), "bytes")
        self.feature["encoding"] = "trio_cogment.spaces.Value"
        self._space = space

    @override
    def append(self, value: Any) -> int:
        if value is None:
            return super().append(None)
        data = encode_value(value).SerializeToString()
        return super().append(data) + len(data)


class MaskColumn(PlainColumn):
    """The masks of a `Discrete` or `MultiBinary`, as lists."""

    def __init__(self) -> None:
        super().__init__(pa.list_(pa.int8()), "int8")
        self.feature["shape"] = [None]

    @override
    def append(self, value: Any) -> int:
        if value is None:
            return super().append(None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iub":
            raise SpaceError(f"expected an array of int8, got {described(value)}")
        return super().append(value.reshape(-1).astype(np.int8)) + value.size


class ArrayColumn:
    """Arrays of one shape and type, or numbers, in one array.

    Args:
        space: of the arrays.
        optional: some can be missing. Then the outermost lists are not of fixed size, because many versions of PyArrow
            can write no such lists that are null.
        tensors: arrays are Arrow's own tensors, with their shape in the type, and no lists.

    Raises:
        InvalidArgumentError: tensors that can be missing, which this version of PyArrow does not keep.
    """

    def __init__(self, space: ArraySpace, *, optional: bool, tensors: bool = False) -> None:
        self._space = space
        # Of no type without numbers there are tensors, and NumPy's bools are no numbers to Arrow.
        self._tensor = tensors and bool(space.shape) and 0 not in space.shape and space.dtype.kind != "b"
        if self._tensor and optional and not keeps_missing_lists():
            raise InvalidArgumentError(
                f"tensors: an action can be missing, and PyArrow {pa.__version__} cannot keep tensors that are; "
                "expected PyArrow 26 or newer, or tensors='fixed_size_list'"
            )
        self._optional = optional
        self._shape = space.shape
        self._bytes = space.dtype.itemsize * int(np.prod(space.shape, dtype=np.int64))
        self._rows: NDArray[Any] = np.empty((0, *space.shape), space.dtype)
        self._missing: list[int] = []
        self._count = 0
        self.feature: dict[str, Any] = {"dtype": space.row.name, "shape": list(space.shape)}

    @property
    def type(self) -> Any:
        """See `Column.type`."""
        kind = pa.from_numpy_dtype(self._space.dtype)
        if self._tensor:
            return pa.fixed_shape_tensor(kind, self._shape)
        if 0 in self._shape:
            return pa.list_(kind)  # Parquet has no lists of the fixed size 0
        for place in range(len(self._shape) - 1, -1, -1):
            kind = pa.list_(kind) if self._optional and not place else pa.list_(kind, self._shape[place])
        return kind

    @property
    def bytes(self) -> int:
        """The size of a value."""
        return self._bytes

    def extend(self, array: NDArray[Any]) -> None:
        """Add values, of the space's type and shape, none of which is missing."""
        end = self._count + len(array)
        if end > len(self._rows):
            self._grow(max(end, 2 * self._count))
        self._rows[self._count : end] = array
        self._count = end

    def _grow(self, more: int) -> None:
        # Not `resize`, which would fill what is new.
        larger: NDArray[Any] = np.empty((more, *self._shape), self._space.dtype)
        larger[: self._count] = self._rows[: self._count]
        self._rows = larger

    def append(self, value: Any) -> int:
        """See `Column.append`."""
        if self._count == len(self._rows):
            self._grow(max(_FIRST_ROWS, 2 * self._count) if self._bytes < 2**16 else self._count + 16)
        if value is None:
            if not self._optional:
                raise SpaceError("expected a value, got none")
            self._rows[self._count] = np.zeros((), self._space.dtype)
            self._missing.append(self._count)
        else:
            self._rows[self._count] = array_in(self._space, value)
        self._count += 1
        return self._bytes

    def take(self) -> Any:
        """See `Column.take`."""
        count, missing, rows = self._count, self._missing, self._rows
        self._count, self._missing = 0, []
        self._rows = np.empty((0, *self._shape), self._space.dtype)
        there = np.ones(count, bool)
        there[missing] = False
        if not self._shape:
            return pa.array(rows[:count], mask=~there)
        if 0 in self._shape:
            return pa.array([[] if one else None for one in there], self.type)
        if self._tensor:
            size = int(np.prod(self._shape))
            values = pa.array(rows[:count].reshape(-1))
            stored = pa.FixedSizeListArray.from_arrays(values, size, mask=pa.array(~there) if missing else None)
            return pa.ExtensionArray.from_storage(self.type, stored)
        if self._optional:
            rows = rows[:count][there]
        found = pa.array(rows[: len(rows) if self._optional else count].reshape(-1))
        for length in reversed(self._shape[1:]):
            found = pa.FixedSizeListArray.from_arrays(found, length)
        if not self._optional:
            return pa.FixedSizeListArray.from_arrays(found, self._shape[0])
        ends = np.concatenate([[0], np.cumsum(there, dtype=np.int32) * self._shape[0]]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), found, mask=pa.array(~there))


def column_of(leaf: Space, *, optional: bool, tensors: bool = False) -> Column:
    """Return the column for the values of a space that is neither `Dict` nor `Tuple`."""
    if isinstance(leaf, ArraySpace):
        return ArrayColumn(leaf, optional=optional, tensors=tensors)
    return TextColumn() if isinstance(leaf, Text) else MessageColumn(leaf)


class SpaceColumns:
    """The columns of a space's values.

    Args:
        space: whose values they are.
        prefix: what the columns' names begin with.
        optional: some values can be missing.
        tensors: arrays are Arrow's own tensors; see `ArrayColumn`.

    Attributes:
        columns: by name, in order.

    Raises:
        SpaceError: two parts of the space would have one name.
        InvalidArgumentError: see `ArrayColumn`.
    """

    def __init__(self, space: Space, prefix: str, *, optional: bool, tensors: bool = False) -> None:
        self._space = space
        self._prefix = prefix
        self._paths = [path for path, _ in space.leaves()]
        leaves = column_names(space, prefix)
        self.columns = {name: column_of(leaf, optional=optional, tensors=tensors) for name, leaf in leaves.items()}
        self._columns = list(self.columns.values())

    def append(self, value: Any) -> int:
        """Add a value, or None for one that is not there; return about how many bytes it takes.

        Raises:
            SpaceError: a part of it has another type or shape than those of the space; the text says which.
        """
        size, position = 0, 0
        try:
            values = iter([None] * len(self._columns)) if value is None else self._leaf_values(value)
            for column in self._columns:
                size += column.append(next(values))
                position += 1
        except SpaceError as error:
            raise error.inside(*self._paths[position]).of(self._prefix) from None
        return size

    def _leaf_values(self, value: Any) -> Iterator[Any]:
        try:
            return iter(list(self._space.leaf_values(value)))
        except (KeyError, TypeError, ValueError, IndexError):
            try:
                self._space.check(value)  # says what is wrong
            except SpaceError as error:
                raise error.of(self._prefix) from None
            raise


class MaskColumns:
    """The columns of the masks of an action space, in the form that its `sample` takes in Gymnasium.

    Attributes:
        columns: by name, in order; none for parts that have no masks.
    """

    def __init__(self, space: Space, prefix: str) -> None:
        self._space = space
        self._prefix = prefix
        self.columns: dict[str, Column] = {}
        for name, leaf in column_names(space, prefix).items():
            self.columns[name] = MaskColumn() if isinstance(leaf, Discrete | MultiBinary) else MessageColumn(None)
        self._columns = list(self.columns.values())

    def append(self, mask: Any) -> int:
        """Add a mask, or None; return about how many bytes it takes.

        Raises:
            SpaceError: it has not the form of the action space's masks.
        """
        size = 0
        try:
            leaves = mask_leaves(self._space, stored_mask(self._space, mask))
            for column, value in zip(self._columns, leaves, strict=True):
                size += column.append(value)
        except SpaceError as error:
            raise error.of(self._prefix) from None
        return size


def mask_leaves(space: Space, mask: Any) -> Iterator[Any]:
    """Yield the masks of the parts of a space, in the order of its leaves; it has the form that `mask_in` gives."""
    if isinstance(space, Dict):
        for key, part in space.spaces.items():
            yield from mask_leaves(part, None if mask is None else mask[key])
    elif isinstance(space, Tuple):
        for position, part in enumerate(space.spaces):
            yield from mask_leaves(part, None if mask is None else mask[position])
    else:
        yield mask


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
    "held_action": "flag",
    "info": "text",
    "info_types": "text",
}


#: Columns of steps in which nothing happens: those that have the same in all of them, and those that an actor has.
_USUAL = {
    **dict.fromkeys(("terminated", "truncated", "is_first", "is_last", "is_terminal"), False),
    **dict.fromkeys(("active", "alive"), True),
    **dict.fromkeys(("default_action", "held_action"), False),
    "discount": 1.0,
}
_OF_ACTORS = {
    "actor": "name",
    "actor_class": "actor_class",
    "implementation": "implementation",
    "is_human": "is_human",
    "policy": "policy",
}


def _plain(kinds: Mapping[str, str]) -> dict[str, PlainColumn]:
    return {name: PlainColumn(*_TYPES[kind]) for name, kind in kinds.items()}


class StepRows(NamedTuple):
    """Rows of steps, as columns.

    Attributes:
        rows: how many.
        row_bytes: about how many bytes each takes.
        leaves: the values of the columns that have arrays.
        plain: the other columns, as arrays of Arrow where their values differ.
        same: those columns whose rows have all the same value, and this value.
    """

    rows: int
    row_bytes: int
    leaves: Mapping[str, Any]
    plain: Mapping[str, Any]
    same: Mapping[str, Any]


class StepTable:
    """Rows of steps whose observations and actions have one form.

    Args:
        form: what observations and actions are.
        tensors: arrays are Arrow's own tensors; see `ArrayColumn`.

    Attributes:
        form: what observations and actions are.
        columns: by name, in order.
        rows: how many rows there are since the last `take`.
        size_bytes: about how many bytes they take.
    """

    def __init__(self, form: Form, *, tensors: bool = False) -> None:
        self.form = form
        self.rows = 0
        self.size_bytes = 0
        mask: dict[str, Column] = {}
        if form.observation_space is not None and form.action_space is not None:
            self._observation: SpaceColumns | PlainColumn = SpaceColumns(
                form.observation_space, "observation", optional=False, tensors=tensors
            )
            self._action: SpaceColumns | PlainColumn = SpaceColumns(
                form.action_space, "action", optional=True, tensors=tensors
            )
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
        #: About how many bytes a row takes whose masks are missing.
        self._row_bytes = _ROW_BYTES
        for column in values.values():
            self._row_bytes += column.bytes if isinstance(column, ArrayColumn) else 0
        self._row_bytes += sum(column.missing_bytes for column in mask.values() if isinstance(column, PlainColumn))
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
            actor.is_human and not (step.stand_in or step.default_action or step.held_action),
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
            step.held_action,
            info,
            None if types is None else as_json(types),
        )
        for append, value in zip(self._appends, values, strict=True):
            append(value)
        self._rewards.append([reward._asdict() for reward in step.other_rewards] or None)
        self.rows += 1
        self.size_bytes += size + _ROW_BYTES + len(info or "")

    def rows_of(self, trial: TrialRecord, parts: Sequence[tuple[StepColumns, ActorRecord]]) -> StepRows:
        """Return steps as rows: by tick, and then by actor."""
        assert isinstance(self._observation, SpaceColumns)
        assert isinstance(self._action, SpaceColumns)
        count, actors = len(parts[0][0]), len(parts)

        def woven(arrays: Sequence[Any]) -> Any:
            return arrays[0] if actors == 1 else np.stack(arrays, axis=1).reshape(-1, *arrays[0].shape[1:])

        same: dict[str, Any] = {"trial_id": trial.stored.trial_id, "episode_index": trial.episode_index, **_USUAL}
        plain: dict[str, Any] = {}
        for name, given in _OF_ACTORS.items():
            values = [getattr(actor, given) for _, actor in parts]
            if all(value == values[0] for value in values):
                same[name] = values[0]
            else:
                kind = self.columns[name].type
                plain[name] = pa.array(values, kind).take(pa.array(np.tile(np.arange(actors), count)))
        numbers = {
            "tick": woven([one.ticks for one, _ in parts]),
            "reward": woven([one.rewards for one, _ in parts]),
            "timestamp_ns": woven([one.timestamps_ns for one, _ in parts]),
        }
        leaves = {}
        for names, which in ((self._observation.columns, "observations"), (self._action.columns, "actions")):
            for place, name in enumerate(names):
                leaves[name] = woven([getattr(one, which)[place] for one, _ in parts])
        for name, array in numbers.items():
            # As they are: `pa.array` takes several times as long to find out what they are.
            buffers = [None, pa.py_buffer(np.ascontiguousarray(array))]
            plain[name] = pa.Array.from_buffers(self.columns[name].type, len(array), buffers)
        return StepRows(count * actors, self._row_bytes, leaves, plain, same)

    def room(self, most_rows: int, most_bytes: int, row_bytes: int) -> int:
        """Return how many rows of a size may be added until there are so many rows or bytes: one at least."""
        return max(1, min(most_rows - self.rows, -(-(most_bytes - self.size_bytes) // row_bytes)))

    def extend(self, rows: StepRows, begin: int, end: int) -> None:
        """Add some of the rows that `rows_of` returned."""
        for name, column in self.columns.items():
            if isinstance(column, ArrayColumn):
                column.extend(rows.leaves[name][begin:end])
            else:
                assert isinstance(column, PlainColumn)
                if name in rows.plain:
                    column.extend(rows.plain[name][begin:end])
                else:
                    column.repeat(rows.same.get(name), end - begin)
        self.rows += end - begin
        self.size_bytes += (end - begin) * rows.row_bytes

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

    def add_columns(self, columns: StepColumns) -> None:
        """Count steps that are columns."""
        self.steps += len(columns)
        # One after the other, as `add` does: other sums are rounded otherwise.
        self.total_reward = float(np.add.accumulate(np.concatenate([[self.total_reward], columns.rewards]))[-1])

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
        ("branch_trial", pa.string()),
        ("branch_tick", pa.int64()),
    ]
)


def trial_row(
    trial: TrialRecord, sums: Mapping[str, ActorSums], *, ticks: int, started_ns: int | None, ended_ns: int | None
) -> dict[str, Any]:
    """Return the row of a trial."""
    stored = trial.stored
    state = stored.state
    branch_trial, branch_tick = branch_of(stored.params.properties) or (None, None)
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
        "branch_trial": branch_trial,
        "branch_tick": branch_tick,
    }


def _actor_row(actor: ActorRecord, sums: ActorSums | None) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(actor, name) for name in ActorRecord.__slots__}
    names = ActorSums.__slots__
    # One who never came has none.
    row.update({name: None if sums is None else getattr(sums, name) for name in names})
    return row
