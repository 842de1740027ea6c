"""Recorded episodes, read back from a data set of Minari: one of `export`, or any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trio_cogment.base.errors import DataLossError, MissingExtraError, NotFoundError
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.rl.datasets.episodes import INFO, OWN
from trio_cogment.rl.datasets.info_columns import MASK, infos_in, masks_in
from trio_cogment.rl.datasets.recordings import Recording
from trio_cogment.spaces import ArraySpace, Dict, Observation, Space, Text, Tuple, from_gymnasium, from_jsonable
from trio_cogment.spaces.masks import may_be_mask


class MinariRecordings:
    """The episodes of a data set of Minari; see `Recordings`.

    One of all actors together, which `export` has written, has these as agents; any other has one agent.

    Attributes:
        dataset: Minari's own object.
        about: what `export` has written into the metadata; empty if somebody else has made it.
        is_arrow: the files are of one of Arrow's formats.
    """

    def __init__(self, dataset_id: str) -> None:
        from trio_cogment.rl.datasets.minari import minari_module
        from trio_cogment.rl.datasets.minari_files import METADATA, put_right_dataset

        minari = minari_module()
        try:
            put_right_dataset(dataset_id)
            self.dataset = minari.load_dataset(dataset_id)
        except (ValueError, FileNotFoundError, TypeError) as error:
            raise NotFoundError(
                f"{dataset_id!r}: there is no data set of Minari of this id here, and no folder of this name: {error}"
            ) from error
        except ImportError as error:
            # Minari raises one of its own, without the package's name.
            package = str(error.name or getattr(error.__context__, "name", "")).partition(".")[0]
            if package not in ("pyarrow", "PIL"):
                raise
            raise MissingExtraError.of(package, "minari", needed_for=f"the data set {dataset_id!r}") from error
        self.name = dataset_id
        about: Mapping[str, Any] = self.dataset.storage.metadata.get(METADATA, {})
        self.about = about
        observations, actions = (
            from_jsonable(about[name]) if name in about else from_gymnasium(getattr(self.dataset, name))
            for name in ("observation_space", "action_space")
        )
        self.is_arrow = self.dataset.storage.FORMAT in ("parquet", "arrow")
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
        return int(self.dataset.total_episodes)

    def find(self, name: str) -> int | None:
        """See `Recordings.find`; the names are the trials' ids, or numbers."""
        return next((index for index, found in enumerate(self._names(range(len(self)))) if found == name), None)

    def episode(self, index: int) -> Recording:
        """See `Recordings.episode`."""
        episode = self.read(index)
        length = len(episode.rewards) + 1
        found = Recording(self._names([index])[0], length=length)
        for agent in self.observation_spaces:
            one = (lambda whole: whole[agent]) if self._joint else (lambda whole: whole)  # noqa: B023  used at once
            self._take(found, agent, episode, one)
        return found

    def _names(self, indices: Sequence[int]) -> list[str]:
        """Return the ids of the trials of episodes, or the numbers of those that were not trials."""
        metadata = self.dataset.storage.get_episode_metadata(indices)
        return [str(found.get("trial_id", index)) for index, found in zip(indices, metadata, strict=True)]

    def read(self, index: int) -> Any:
        """Return an episode as Minari has it.

        Raises:
            DataLossError: it has not as many steps as its metadata say.
        """
        storage = self.dataset.storage
        if self.is_arrow:
            from trio_cogment.rl.datasets.minari_arrow import read_episode

            episode: Any = read_episode(storage, index, *self._spaces)
        else:
            episode = self.dataset[index]
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
