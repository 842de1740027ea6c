"""`check_dataset`: what is damaged in a data set of Minari, or is read otherwise than it was played.

Minari's formats lose some things without a word, in writing or in reading (docs/peers.md). Most of them can be told
from the files. What `replay_environment` reads right nevertheless is said, too: other readers do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trio_cogment.base.errors import NotFoundError
from trio_cogment.base.outcome import counted
from trio_cogment.spaces import ArraySpace, Box, Dict, Space, Tuple, from_gymnasium, from_jsonable

#: Of longer episodes in Arrow's formats Minari's reader gives the beginning, and then the rest as the next one.
LONGEST_READ = 32_767
#: Pixels of each side of what Minari takes for a picture.
_SMALLEST_PICTURE = 32
#: So many episodes a finding names at most.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class DatasetFinding:
    """Something about a data set that whoever trains on it should know.

    Attributes:
        kind: `long_episodes`, `lossy_pictures`, `unreadable_infos`, `unsorted_keys`, `types`, `no_seeds`, `no_steps` or
            `nan_rewards`.
        text: a sentence.
        replayed: `replay_environment` reads it as it was played all the same.
    """

    kind: str
    text: str
    replayed: bool = False


def check_dataset(dataset_id: str) -> list[DatasetFinding]:
    """Return what is damaged in a data set of Minari that is here; nothing if all is well.

    All episodes are read, one at a time. Blocks.

    Args:
        dataset_id: such as `mujoco/hopper/expert-v0`, whoever made it.

    Raises:
        NotFoundError: there is no such data set here.
        MissingExtraError: Minari is not installed, or what the data set's format needs.
    """
    from trio_cogment.rl.datasets.minari_recordings import MinariRecordings

    try:
        recordings = MinariRecordings(dataset_id)
    except NotFoundError as error:
        if "there are none" in str(error):
            return [DatasetFinding("no_steps", "there are no episodes")]
        if Path(dataset_id).is_dir():
            raise NotFoundError(
                f"{str(dataset_id)!r}: expected the id of a data set of Minari, got a folder; "
                "an export to Parquet loses nothing of what this looks for"
            ) from error
        raise
    return [*_of_spaces(recordings), *_of_metadata(recordings), *_of_episodes(recordings)]


def _of_spaces(recordings: Any) -> Iterator[DatasetFinding]:
    about, loaded = recordings.about, recordings.dataset
    for field in ("observation_space", "action_space"):
        seen = from_gymnasium(getattr(loaded, field))
        if field in about:
            played = from_jsonable(about[field])
            loaded_keys = dict(_keys(seen, field))
            moved = [
                f"{part}: the keys were {keys} when it was played, and are loaded as {loaded_keys.get(part, [])}"
                for part, keys in _keys(played, field)
                if keys != loaded_keys.get(part)
            ]
            if moved:
                text = f"{'; '.join(moved)}: flattened values have their columns in another order"
                yield DatasetFinding("unsorted_keys", text, replayed=True)
        pictures = [name for name, leaf in _leaves(seen) if _is_picture(leaf)]
        if pictures and loaded.storage.metadata.get("jpeg_encoding", True):
            text = f"{field}: pictures ({', '.join(pictures)}) are stored as JPEG, which changes them"
            yield DatasetFinding("lossy_pictures", text)


def _of_metadata(recordings: Any) -> Iterator[DatasetFinding]:
    metadata = list(recordings.dataset.storage.get_episode_metadata(range(len(recordings))))
    lengths = [int(one["total_steps"]) for one in metadata]
    if recordings.is_arrow and (long := [place for place, length in enumerate(lengths) if length > LONGEST_READ]):
        text = (
            f"{_named(long)}: more than {LONGEST_READ:,} steps in the format {recordings.dataset.storage.FORMAT!r}, of "
            "which Minari reads the first and takes the rest for the next episode; every later one is moved"
        )
        yield DatasetFinding("long_episodes", text, replayed=True)
    unseeded = [place for place, one in enumerate(metadata) if one.get("seed") is None]
    if unseeded:
        text = f"{_named(unseeded)}: no seed, so it cannot be played again from its beginning (combined sets lose them)"
        yield DatasetFinding("no_seeds", text)


def _of_episodes(recordings: Any) -> Iterator[DatasetFinding]:
    spaces = {
        field: from_gymnasium(getattr(recordings.dataset, field)) for field in ("observation_space", "action_space")
    }
    unreadable, nan = list[int](), list[int]()
    types: dict[str, dict[str, str]] = {field: {} for field in spaces}
    for place in range(len(recordings)):
        episode = recordings.read(place)
        if not np.isfinite(np.asarray(episode.rewards, float)).all():
            nan.append(place)
        for field, space in spaces.items():
            values = episode.observations if field == "observation_space" else episode.actions
            for name, told in _other_types(space, values, field.removesuffix("_space")):
                types[field].setdefault(name, told)
        if recordings.is_arrow and not unreadable:
            try:
                recordings.dataset[place]
            except ValueError:
                unreadable.append(place)  # all of one form are alike, and Minari reads slowly
    if unreadable:
        text = (
            f"{_named(unreadable)}: information of one number for each step, which Minari has written and cannot read"
        )
        yield DatasetFinding("unreadable_infos", text, replayed=True)
    for field, found in types.items():
        if found:
            # Replays have the spaces that were played, where the metadata have them.
            yield DatasetFinding("types", "; ".join(found.values()), replayed=field in recordings.about)
    if nan:
        yield DatasetFinding("nan_rewards", f"{_named(nan)}: rewards that are no finite numbers")


def _other_types(space: Space, values: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the parts whose arrays have another type than the space that is loaded."""
    if isinstance(space, Dict):
        for key, part in space.spaces.items():
            yield from _other_types(part, values[key], f"{name}.{key}")
    elif isinstance(space, Tuple):
        for place, part in enumerate(space.spaces):
            yield from _other_types(part, values[place], f"{name}.{place}")
    elif isinstance(space, ArraySpace):
        found = getattr(values, "dtype", space.dtype)
        if found != space.dtype:
            yield name, f"{name}: stored as {found}, and its space is loaded as one of {space.dtype}"


def _leaves(space: Space) -> Iterator[tuple[str, Space]]:
    for path, leaf in space.leaves():
        yield ".".join(map(str, path)) or "all", leaf


def _is_picture(space: Space) -> bool:
    """Whether Minari takes it for one: smaller ones, and those of other bounds, are stored as they are."""
    return (
        isinstance(space, Box)
        and space.dtype == np.uint8
        and len(space.shape) in (2, 3)
        and min(space.shape[:2]) >= _SMALLEST_PICTURE
        and bool((space.low == 0).all() and (space.high == 255).all())
    )


def _keys(space: Space, name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the keys of each Dict within a space, in order, and where it is."""
    if isinstance(space, Dict):
        yield name, list(space.spaces)
        for key, part in space.spaces.items():
            yield from _keys(part, f"{name}.{key}")
    elif isinstance(space, Tuple):
        for place, part in enumerate(space.spaces):
            yield from _keys(part, f"{name}.{place}")


def _named(places: list[int]) -> str:
    some = ", ".join(map(str, places[:_NAMED])) + (", ..." if len(places) > _NAMED else "")
    return f"{counted(len(places), 'episode')} ({some})"
