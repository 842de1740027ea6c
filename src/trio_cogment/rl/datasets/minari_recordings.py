"""Recorded episodes, read back from a data set of Minari: one of `export`, or any other."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trio_cogment.base.errors import DataLossError, MissingExtraError, NotFoundError
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.rl.datasets.arrow import pa, whole_column
from trio_cogment.rl.datasets.episodes import INFO, OWN, Episode
from trio_cogment.rl.datasets.info_columns import MASK, infos_in, masks_in
from trio_cogment.rl.datasets.recordings import Recording
from trio_cogment.spaces import ArraySpace, Dict, Discrete, Observation, Space, Text, Tuple, from_gymnasium
from trio_cogment.spaces.masks import may_be_mask

# Episodes of data sets that Minari has stored in Arrow's formats (`parquet`, `arrow`), read whole.
#
# Minari's own reader pairs episodes with batches of 32,768 rows: of a longer one it gives the beginning, and then the
# rest of it as the next one.


def read_episode(storage: Any, index: int, observations: Space, actions: Space) -> Episode:
    """Return an episode of a data set.

    Args:
        storage: of the data set, `parquet` or `arrow`.
        index: the number of the episode.
        observations: the space of its observations.
        actions: the space of its actions.
    """
    import pyarrow.dataset as pads

    folder = storage.data_path / str(index)
    parts = pads.dataset(str(folder), format=storage.FORMAT, ignore_prefixes=["_", ".", "metadata.json"])
    table = parts.to_table()
    columns = {name: whole_column(table, name) for name in table.column_names}
    # All have a row for the last observation; what came of an action is not in it.
    acted = len(table) - 1
    rewards, terminations, truncations = (
        columns[name].to_pylist()[:acted] for name in ("rewards", "terminations", "truncations")
    )
    return Episode(
        _stacked(observations, columns["observations"]),
        _stacked(actions, columns["actions"].slice(0, acted)),
        rewards,
        terminations,
        truncations,
        _infos(columns["infos"]) if "infos" in columns else {},
    )


def _stacked(space: Space, column: Any) -> Any:
    """Return the values of a space by part; see `episodes.stacked`."""
    if isinstance(space, Dict):
        return {key: _stacked(part, column.field(key)) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_stacked(part, column.field(str(place))) for place, part in enumerate(space.spaces))
    if not isinstance(space, ArraySpace):
        return column.to_pylist()
    if pa.types.is_binary(column.type):
        return np.stack([_picture(data) for data in column.to_pylist()])
    if isinstance(space, Discrete):
        return column.to_numpy(zero_copy_only=False)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, *space.shape)


def _picture(data: bytes) -> Any:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as picture:
        return np.array(picture)


def _infos(column: Any) -> dict[str, Any]:
    return {field.name: _info(field, column.field(place)) for place, field in enumerate(column.type)}


def _info(field: Any, column: Any) -> Any:
    if pa.types.is_struct(column.type):
        return _infos(column)
    if not pa.types.is_fixed_size_list(column.type):
        return column.to_pylist()
    shape = [column.type.list_size]
    if field.metadata is not None and b"shape" in field.metadata:
        shape = [int(length) for length in field.metadata[b"shape"].split(b",") if length]
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, *shape)


class MinariRecordings:
    """The episodes of a data set of Minari; see `Recordings`.

    One of all actors together, which `export` has written, has these as agents; any other has one agent.
    """

    def __init__(self, dataset_id: str) -> None:
        from trio_cogment.rl.datasets.minari import minari_module
        from trio_cogment.rl.datasets.minari_files import METADATA, put_right_dataset

        minari = minari_module()
        try:
            put_right_dataset(dataset_id)
            self._dataset = minari.load_dataset(dataset_id)
        except (ValueError, FileNotFoundError, TypeError) as error:
            raise NotFoundError(
                f"{dataset_id!r}: expected a folder of Parquet files, or the id of a data set of Minari that is "
                f"here: {error}"
            ) from error
        except ImportError as error:
            # Minari raises one of its own, without the package's name.
            package = str(error.name or getattr(error.__context__, "name", "")).partition(".")[0]
            if package not in ("pyarrow", "PIL"):
                raise
            raise MissingExtraError.of(package, "minari", needed_for=f"the data set {dataset_id!r}") from error
        self.name = dataset_id
        about = self._dataset.storage.metadata.get(METADATA, {})
        observations, actions = (
            from_gymnasium(space) for space in (self._dataset.observation_space, self._dataset.action_space)
        )
        self._is_arrow = self._dataset.storage.FORMAT in ("parquet", "arrow")
        self._spaces = observations, actions
        self._is_ours = bool(about)
        self._joint = bool(about.get("joint"))
        self.observation_spaces: Mapping[str, Space]
        self.action_spaces: Mapping[str, Space]
        if self._joint and isinstance(observations, Dict) and isinstance(actions, Dict):
            self.observation_spaces, self.action_spaces = observations.spaces, actions.spaces
        else:
            name = (about.get("actors") or [SINGLE_AGENT])[0]
            self.observation_spaces, self.action_spaces = {name: observations}, {name: actions}
        if not len(self):
            raise NotFoundError(f"{dataset_id!r}: expected episodes, and there are none")

    def __len__(self) -> int:
        return int(self._dataset.total_episodes)

    def find(self, name: str) -> int | None:
        """See `Recordings.find`; the names are the trials' ids, or numbers."""
        return next((index for index, found in enumerate(self._names(range(len(self)))) if found == name), None)

    def episode(self, index: int) -> Recording:
        """See `Recordings.episode`."""
        episode = self._read(index)
        length = len(episode.rewards) + 1
        found = Recording(self._names([index])[0], length=length)
        for agent in self.observation_spaces:
            one = (lambda whole: whole[agent]) if self._joint else (lambda whole: whole)  # noqa: B023  used at once
            self._take(found, agent, episode, one)
        return found

    def _names(self, indices: Sequence[int]) -> list[str]:
        """Return the ids of the trials of episodes, or the numbers of those that were no trials."""
        metadata = self._dataset.storage.get_episode_metadata(indices)
        return [str(found.get("trial_id", index)) for index, found in zip(indices, metadata, strict=True)]

    def _read(self, index: int) -> Any:
        """Return an episode as Minari has it.

        Raises:
            DataLossError: it has not as many steps as its metadata say.
        """
        storage = self._dataset.storage
        if self._is_arrow:
            from trio_cogment.rl.datasets.minari_recordings import read_episode

            episode: Any = read_episode(storage, index, *self._spaces)
        else:
            episode = self._dataset[index]
        expected = int(next(iter(storage.get_episode_metadata([index])))["total_steps"])
        if len(episode.rewards) != expected:
            raise DataLossError(
                f"{self.name!r}: episode {index}: expected {expected} steps, as its metadata say, got "
                f"{len(episode.rewards)}"
            )
        return episode

    def _take(self, found: Recording, agent: str, episode: Any, one: Callable[[Any], Any]) -> None:
        last = found.length - 1
        infos = episode.infos or {}
        kinds = ("reward", "terminated", "truncated", "active", "alive", "acted")
        if self._joint:
            given = {kind: infos[kind][agent] for kind in kinds}
        else:
            before = (episode.rewards, episode.terminations, episode.truncations)
            given = {kind: [False, *values] for kind, values in zip(kinds, before, strict=False)}
            given.update(active=[True] * last + [False], alive=[True] * (last + 1), acted=[True] * last)
        further, masks = self._further(agent, infos, found.length)
        told = found.told[agent] = {}
        actions = found.actions[agent] = {}
        for tick in range(last + 1):
            alive = bool(given["alive"][tick])
            if not (alive or given["terminated"][tick] or given["truncated"][tick]):
                continue
            told[tick] = Observation(
                _part(self.observation_spaces[agent], one(episode.observations), tick),
                reward=float(given["reward"][tick]) if tick and given["alive"][tick - 1] else None,
                terminated=bool(given["terminated"][tick]),
                truncated=bool(given["truncated"][tick]),
                action_mask=masks[tick],
                info=further[tick],
                active=bool(given["active"][tick]),
                alive=alive,
            )
            acted = tick < last and given["acted"][tick]
            actions[tick] = _part(self.action_spaces[agent], one(episode.actions), tick) if acted else None

    def _further(self, agent: str, infos: Mapping[str, Any], length: int) -> tuple[list[dict[str, Any]], list[Any]]:
        """Return the information and the mask that an agent was told with each step."""
        space = self.action_spaces[agent]
        if self._joint:
            of_agent = {key: infos[key][agent] for key in (MASK, f"_{MASK}") if agent in infos.get(key, {})}
            return infos_in(infos.get(INFO, {}).get(agent, {}), length), masks_in(space, of_agent, length)
        if self._is_ours:
            return infos_in(infos, length, OWN), masks_in(space, infos, length)
        found = infos_in(infos, length)
        masks = [info.get(MASK) for info in found]
        # Nobody has said what it is.
        return found, [mask if may_be_mask(space, mask) else None for mask in masks]


def _part(space: Space, values: Any, place: int) -> Any:
    """Return one of values that are stacked by part."""
    if isinstance(space, Dict):
        return {key: _part(part, values[key], place) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_part(part, value, place) for part, value in zip(space.spaces, values, strict=True))
    if isinstance(space, Text):
        return str(values[place])
    assert isinstance(space, ArraySpace)
    return space.check(np.asarray(values[place])) if space.shape == () else np.array(values[place], space.dtype)
