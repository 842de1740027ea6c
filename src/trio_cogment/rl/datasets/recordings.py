"""Recorded episodes, read back from a data set: what they are, and those of Parquet files of `export`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.rl.datasets.plain import restored
from trio_cogment.spaces import Observation, Space, from_jsonable

if TYPE_CHECKING:
    from trio_cogment.rl.datasets.bucket import BucketFolder


@dataclass(slots=True)
class Recording:
    """One recorded episode.

    Attributes:
        name: the trial's id, or the number of the episode.
        told: what each agent was told, by tick; the first tick of the episode is 0. There is nothing from before an
            agent came, and nothing from after its last observation.
        actions: what each agent did, by tick; None where it did nothing.
        length: how many ticks there are.
    """

    name: str
    told: dict[str, dict[int, Observation]] = field(default_factory=dict)
    actions: dict[str, dict[int, Any]] = field(default_factory=dict)
    length: int = 0


class Recordings(Protocol):
    """The episodes of a data set, from 0 on.

    Attributes:
        name: of the environment.
        observation_spaces: by agent.
        action_spaces: by agent.
    """

    name: str
    observation_spaces: Mapping[str, Space]
    action_spaces: Mapping[str, Space]

    def __len__(self) -> int:
        """Return how many episodes there are; at least one."""

    def find(self, name: str) -> int | None:
        """Return the number of the episode with a name; None if there is none."""

    def episode(self, index: int) -> Recording:
        """Read an episode. Blocks."""


class _Folder:
    """The folder of a data set; `BucketFolder` is the same in a bucket."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name

    def __str__(self) -> str:
        return str(self._path)

    def info(self) -> dict[str, Any] | None:
        from trio_cogment.rl.datasets.parquet import is_dataset

        if not is_dataset(self._path):
            return None
        found: dict[str, Any] = json.loads((self._path / "meta" / "info.json").read_text(encoding="utf-8"))
        return found

    def open(self, name: str) -> Any:
        return self._path / name


class ParquetRecordings:
    """The episodes of Parquet files; see `Recordings`. The row groups that an episode is in are read."""

    def __init__(self, place: Path | str, trials: Sequence[str] | None = None) -> None:
        from trio_cogment.rl.datasets.arrow import pq
        from trio_cogment.rl.datasets.bucket import BucketFolder

        folder = BucketFolder(place) if isinstance(place, str) else _Folder(place)
        info = folder.info()
        if info is None:
            raise NotFoundError(f"{folder}: expected a data set that export has written, with meta/info.json")
        columns = ["trial_id", "episode_index", "environment", "actors"]
        rows = pq.read_table(folder.open("meta/trials.parquet"), columns=columns).to_pylist()
        self._folder = folder
        self._groups = info["groups"]
        self._trials = _chosen(rows, trials, folder)
        self.name: str = self._trials[0]["environment"] or folder.name
        self._group_of = self._common_groups()
        self.observation_spaces: Mapping[str, Space]
        self.action_spaces: Mapping[str, Space]
        self.observation_spaces = {name: self._space(name, "observation_space") for name in self._group_of}
        self.action_spaces = {name: self._space(name, "action_space") for name in self._group_of}
        self._files = [[_File(folder, path) for path in group["files"]] for group in self._groups]

    def __len__(self) -> int:
        return len(self._trials)

    def find(self, name: str) -> int | None:
        """See `Recordings.find`; the names are the trials' ids."""
        return next((index for index, trial in enumerate(self._trials) if trial["trial_id"] == name), None)

    def _common_groups(self) -> dict[str, int]:
        """Return by actor, in the order of the trials' parameters, which group its steps are in."""
        first = {actor["name"]: actor["group"] for actor in self._trials[0]["actors"]}
        for trial in self._trials:
            actors = {actor["name"]: actor["group"] for actor in trial["actors"]}
            where = f"{self._folder}: trial {trial['trial_id']!r}"
            hint = "name the trials of one kind of environment (trials=...)"
            if actors.keys() != first.keys():
                expected, got = (", ".join(sorted(names)) for names in (first, actors))
                raise InvalidArgumentError(
                    f"{where}: expected the actors {expected}, got {got}: {hint}; {_kinds(self._trials)}"
                )
            for name, group in actors.items():
                if first[name] is None:
                    first[name] = group  # in the trials before, it never came
                elif group not in (None, first[name]):
                    kinds = _kinds(self._trials)
                    raise InvalidArgumentError(
                        f"{where}, actor {name!r}: expected the spaces of the trials before: {hint}; {kinds}"
                    )
        missing = [name for name, group in first.items() if group is None]
        if missing:
            raise InvalidArgumentError(f"{self._folder}: nothing was observed by {', '.join(missing)}")
        return first

    def _space(self, name: str, which: str) -> Space:
        group = self._groups[self._group_of[name]]
        if group[which] is None:
            raise InvalidArgumentError(
                f"{self._folder}: actor {name!r}: expected values of spaces, but its payloads are {group['payloads']}"
            )
        return from_jsonable(group[which])

    def episode(self, index: int) -> Recording:
        """See `Recordings.episode`."""
        trial = self._trials[index]
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in self._group_of}
        for group in sorted(set(self._group_of.values())):
            for file in self._files[group]:
                for table in file.rows_of(trial["episode_index"]):
                    self._read(table, rows)
        return _recording(trial["trial_id"], rows)

    def _read(self, table: Any, rows: dict[str, list[dict[str, Any]]]) -> None:
        from trio_cogment.rl.datasets.column_values import masks_of, values_of

        plain = table.select(_PLAIN).to_pylist()
        if not plain:
            return
        # The actors of a group have the same spaces.
        observations, actions = (of[plain[0]["actor"]] for of in (self.observation_spaces, self.action_spaces))
        read = (
            values_of(observations, "observation", table),
            values_of(actions, "action", table),
            masks_of(actions, "action_mask", table),
        )
        for row, value, action, mask in zip(plain, *read, strict=True):
            row.update(value=value, action=None if row["is_last"] else action, mask=mask)
            rows[row["actor"]].append(row)


#: Errors name so many trials of each kind at most.
_NAMED = 3
#: The columns that are read as they are.
_PLAIN = [
    "actor",
    "tick",
    "reward",
    "terminated",
    "truncated",
    "is_first",
    "is_last",
    "active",
    "alive",
    "info",
    "info_types",
]


def _recording(name: str, rows: Mapping[str, list[dict[str, Any]]]) -> Recording:
    """Put the rows of one trial together, up to the first tick of which nothing is stored."""
    ticks = {row["tick"] for ways in rows.values() for row in ways}
    begin = end = min(ticks, default=0)
    while end in ticks:
        end += 1
    found = Recording(name, length=end - begin)
    for actor, ways in rows.items():
        told = found.told[actor] = {}
        actions = found.actions[actor] = {}
        before: dict[str, Any] | None = None
        for row in ways:
            if row["tick"] >= end:
                break
            if row["is_first"]:
                before = None
            told[row["tick"] - begin] = Observation(
                row["value"],
                # What a step led to is told with the next observation.
                reward=None if before is None else before["reward"],
                terminated=row["is_last"] and before is not None and before["terminated"],
                truncated=row["is_last"] and before is not None and before["truncated"],
                action_mask=row["mask"],
                info=_info(row["info"], row["info_types"]),
                active=row["active"],
                alive=row["alive"],
            )
            actions[row["tick"] - begin] = row["action"]
            before = row
    return found


def _info(text: str | None, types: str | None) -> dict[str, Any]:
    found: dict[str, Any] = restored(json.loads(text or "{}"), json.loads(types or "null"))
    return found


def _chosen(rows: list[dict[str, Any]], trials: Sequence[str] | None, folder: object) -> list[dict[str, Any]]:
    # Of trials without steps there is nothing to replay.
    rows = [row for row in rows if any(actor["group"] is not None for actor in row["actors"])]
    if trials is not None:
        known = {row["trial_id"]: row for row in rows}
        missing = [trial for trial in trials if trial not in known]
        if missing:
            raise NotFoundError(f"{folder}: trials: {', '.join(map(repr, missing))}: not in the data set")
        rows = [known[trial] for trial in trials]
    if not rows:
        raise NotFoundError(f"{folder}: expected episodes, and there are none")
    return rows


def _kinds(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return which trials have the same actors and spaces, as an error says it."""
    kinds: dict[tuple[tuple[str, int | None], ...], list[str]] = {}
    for trial in trials:
        of = tuple(sorted((actor["name"], actor["group"]) for actor in trial["actors"]))
        kinds.setdefault(of, []).append(trial["trial_id"])
    found = []
    for of, ids in kinds.items():
        named = ", ".join(map(repr, ids[:_NAMED])) + (", ..." if len(ids) > _NAMED else "")
        found.append(f"{len(ids)} of {', '.join(name for name, _ in of)} ({named})")
    return f"there are {'; '.join(found)}"


class _File:
    """A Parquet file; the row group that was read last is kept, because the next episode is likely to be in it."""

    def __init__(self, folder: _Folder | BucketFolder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._ranges: list[tuple[int, int]] | None = None
        self._file: Any = None
        self._kept: tuple[int, Any] = (-1, None)

    def rows_of(self, episode_index: int) -> Iterable[Any]:
        """Yield tables with the rows of an episode."""
        for number, (lowest, highest) in enumerate(self._row_groups()):
            if not lowest <= episode_index <= highest:
                continue
            if self._kept[0] != number:
                self._kept = (number, self._file.read_row_group(number))
            table = self._kept[1]
            indexes = table.column("episode_index").to_numpy()
            # They are sorted.
            begin, end = (int(np.searchsorted(indexes, episode_index, side)) for side in ("left", "right"))
            yield table.slice(begin, end - begin)

    def _row_groups(self) -> list[tuple[int, int]]:
        if self._ranges is None:
            from trio_cogment.rl.datasets.arrow import pq

            self._file = pq.ParquetFile(self._folder.open(self._name))
            metadata = self._file.metadata
            column = self._file.schema_arrow.get_field_index("episode_index")
            groups = [metadata.row_group(number).column(column).statistics for number in range(metadata.num_row_groups)]
            self._ranges = [(group.min, group.max) for group in groups]
        return self._ranges
