"""One data set of Minari that is being written."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trio_cogment.base.host.beside import left_behind, make_folder_beside, names_left_beside, remove
from trio_cogment.base.taking_up import branch_of
from trio_cogment.rl.datasets.episodes import Episode
from trio_cogment.rl.datasets.placing import put_right
from trio_cogment.rl.datasets.plain import as_json
from trio_cogment.rl.datasets.trials import TrialRecord

#: Episodes are written together: this many steps, or about this many bytes.
_BATCH_STEPS = 4096
_BATCH_BYTES = 16 * 1024 * 1024
#: What is inserted into the name of a data set until it is whole, before the numbers of an export.
_INCOMPLETE = "-incomplete"
#: What a data set's metadata say of it, beside what Minari writes.
METADATA = "trio_cogment"


def path_of(dataset_id: str) -> Path:
    """Return the folder of a data set."""
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(dataset_id))


def put_right_dataset(dataset_id: str) -> None:
    """Put right what killed exports have left of a data set, and log it; see `put_right`. Never raises."""
    target = path_of(dataset_id)
    base, dash, version = target.name.rpartition("-v")
    # Earlier releases had one name for all exports.
    claims = [(claim, _folder_of(target, claim)) for claim in names_left_beside(str(target))]
    claims.append(("", target.with_name(f"{base}{_INCOMPLETE}{dash}{version}")))
    for claim, folder in claims:
        with left_behind(claim or str(folder)) as nobodys:
            if nobodys and folder.exists():
                remove(str(folder))
    put_right(target)


def _folder_of(target: Path, claim: str) -> Path:
    """Return the folder that Minari writes for an export that has made a folder beside the data set."""
    base, dash, version = target.name.rpartition("-v")
    process, number = claim.split(".")[-3:-1]
    return target.with_name(f"{base}{_INCOMPLETE}-{process}-{number}{dash}{version}")


class DatasetFiles:
    """One data set that is being written, under a name that says so until it is in its place.

    Minari has its folder to itself until there is something in it. So what shows others that somebody writes it is an
    empty folder beside it, `.duel-v0.4711.0.tmp` for `duel-incomplete-4711-0-v0`.

    Args:
        minari: the module.
        dataset_id: its name in the end.
        spaces: of observations and of actions, as Gymnasium has them.
        metadata: what else `minari.create_dataset_from_buffers` is told.
        about: what its metadata say under `METADATA`.

    Attributes:
        temporary: its folder until then.
        target: its place.
    """

    def __init__(
        self,
        minari: Any,
        dataset_id: str,
        spaces: tuple[Any, Any],
        metadata: Mapping[str, Any],
        about: Mapping[str, Any],
    ) -> None:
        self._minari = minari
        self._id = dataset_id
        self._spaces = spaces
        self._metadata = metadata
        self._about = about
        self.target = path_of(dataset_id)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._claim, self._hold = make_folder_beside(str(self.target))
        self.temporary = _folder_of(self.target, self._claim)
        self._incomplete = f"{dataset_id.rpartition('/')[0]}/{self.temporary.name}".lstrip("/")
        self._storage: Any = None
        self._buffers: list[Any] = []
        self._notes: list[dict[str, Any]] = []
        self._steps = self._bytes = 0

    def add(self, trial: TrialRecord, episode: Episode) -> None:
        """Add an episode; it is written later, together with others."""
        from minari.data_collector import EpisodeBuffer

        self._buffers.append(
            EpisodeBuffer(
                seed=trial.seed,
                options=_attributes(trial.options) or None,
                observations=episode.observations,
                actions=episode.actions,
                rewards=episode.rewards,
                terminations=episode.terminations,
                truncations=episode.truncations,
                infos=episode.infos,
            )
        )
        note: dict[str, Any] = {"trial_id": trial.stored.trial_id, "trial_index": trial.episode_index}
        lineage = branch_of(trial.stored.params.properties)
        if lineage is not None:
            note["branch_trial"], note["branch_tick"] = lineage
        self._notes.append(note)
        self._steps += len(episode.rewards)
        self._bytes += sum(map(_bytes_of, (episode.observations, episode.actions, episode.infos)))
        if self._steps >= _BATCH_STEPS or self._bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the episodes in hand."""
        buffers, notes = self._buffers, self._notes
        self._buffers, self._notes, self._steps, self._bytes = [], [], 0, 0
        if buffers:
            if self._storage is None:
                self._storage = self._created(buffers).storage
                first = 0
            else:
                first = self._storage.total_episodes
                self._storage.update_episodes(buffers)
            self._storage.update_episode_metadata(notes, range(first, first + len(buffers)))

    def _created(self, buffers: list[Any]) -> Any:
        with warnings.catch_warnings():
            # It warns of everything that it was not told about the author.
            warnings.simplefilter("ignore", UserWarning)
            return self._minari.create_dataset_from_buffers(
                self._incomplete,
                buffers,
                observation_space=self._spaces[0],
                action_space=self._spaces[1],
                data_format="hdf5",
                jpeg_encoding=False,
                **self._metadata,
            )

    def complete(self, env_spec: str | None = None) -> Path:
        """Write what the data set says of itself; return its folder, which has to be moved to `target`.

        Args:
            env_spec: how Gymnasium makes the environment, as JSON.
        """
        file = self.temporary / "data" / "metadata.json"
        metadata = json.loads(file.read_text(encoding="utf-8"))
        metadata.update({"dataset_id": self._id, METADATA: self._about})
        if env_spec is not None:
            metadata["env_spec"] = env_spec
        file.write_text(json.dumps(metadata), encoding="utf-8")
        return self.temporary

    def close(self) -> None:
        """Remove what is not in its place. Never raises."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        shutil.rmtree(self._claim, ignore_errors=True)
        self._hold.release()


def _attributes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as HDF5 can store them beside an episode: anything but numbers, texts and arrays becomes JSON."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, dict) and value and "/" not in key:
            found[key] = _attributes(value)
        else:
            plain = isinstance(value, bool | int | float | str | np.ndarray | np.generic)
            found[key.replace("/", "_")] = value if plain else as_json(value)
    return found


def _bytes_of(values: Any) -> int:
    if isinstance(values, dict):
        return sum(map(_bytes_of, values.values()))
    if isinstance(values, tuple):
        return sum(map(_bytes_of, values))
    return int(getattr(values, "nbytes", 0)) or sum(map(len, values))
