"""Writes data sets of Minari: one for each actor and, if there are several, one of all of them together.

Images are stored as they are. Minari's own default is JPEG, which changes them.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trio_cogment.errors import AlreadyExistsError, InvalidArgumentError, MissingExtraError
from trio_cogment.rl.datasets.episodes import Episode, check_minari, episodes_of_actor, episodes_of_all
from trio_cogment.rl.datasets.payloads import Form
from trio_cogment.rl.datasets.placing import Placement
from trio_cogment.rl.datasets.plain import as_json
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.spaces import Dict, Space, SpaceError, to_gymnasium

#: Episodes are written together: so many steps, or about so many bytes.
_BATCH_STEPS = 4096
_BATCH_BYTES = 16 * 1024 * 1024
#: What is inserted into the name of a data set until it is whole.
_INCOMPLETE = "-incomplete"
#: What a data set's metadata say of it, beside what Minari writes.
METADATA = "trio_cogment"
_METADATA_KEYS = {"author", "author_email", "algorithm_name", "code_permalink", "description", "requirements"}
_NAME = re.compile(r"[-_\w]+")


def minari_module() -> Any:
    """Return the module `minari`.

    Raises:
        MissingExtraError: Minari is not installed, or what it needs for HDF5.
    """
    try:
        import h5py  # noqa: F401  Minari says so only when it is used
        import minari
    except ModuleNotFoundError as error:
        if error.name not in ("minari", "h5py", "PIL"):
            raise
        raise MissingExtraError.of(error.name, "minari") from error
    return minari


class MinariWriter:
    """Writes steps to data sets of Minari; see `trials.Writer`. One trial is held in memory.

    Args:
        dataset_id: of the data set: of the only actor, or of all together. That of an actor has its name before the
            version: `rps/duel-player_0-v0`.
        overwrite: data sets that are there are replaced, in the end.
        metadata: what else `minari.create_dataset_from_buffers` is told.

    Attributes:
        ids: of the data sets, that of the argument first.

    Raises:
        MissingExtraError: Minari is not installed.
        InvalidArgumentError: it is no id, or there are other metadata.
        AlreadyExistsError: there is such a data set, and `overwrite` is not set.
    """

    def __init__(self, dataset_id: str, *, overwrite: bool = False, metadata: Mapping[str, Any] | None = None) -> None:
        self._minari = minari_module()
        self._metadata = dict(metadata or {})
        for key in self._metadata.keys() - _METADATA_KEYS:
            raise InvalidArgumentError(
                f"minari_metadata: expected some of {', '.join(sorted(_METADATA_KEYS))}; got {key!r}"
            )
        self._id = dataset_id
        self._overwrite = overwrite
        self._named(dataset_id)
        self.ids: list[str] = [dataset_id]
        #: By actor; None has all of them together.
        self._files: dict[str | None, _Dataset] = {}
        self._forms: dict[str, Form] = {}
        self._trial: TrialRecord | None = None
        self._steps: list[Step] = []

    def _named(self, dataset_id: str) -> None:
        from minari.dataset.minari_dataset import parse_dataset_id

        try:
            parse_dataset_id(dataset_id)
        except (ValueError, TypeError) as error:  # a TypeError if there is no version
            raise InvalidArgumentError(f"minari: expected an id such as 'rps/duel-v0', got {dataset_id!r}") from error
        if not self._overwrite and _path(dataset_id).exists():
            raise AlreadyExistsError(f"minari: {dataset_id} exists already; overwrite=True replaces it")

    def begin(self, trial: TrialRecord) -> None:
        """See `Writer.begin`."""
        self._trial, self._steps = trial, []
        forms = self._forms
        if forms and set(forms) != set(trial.actors):
            raise InvalidArgumentError(
                f"minari: trial {trial.stored.trial_id!r}: expected the actors {', '.join(forms)} of the trials before "
                f"it, got {', '.join(trial.actors)}: export the trials of one kind of environment"
            )

    def add(self, steps: list[Step]) -> None:
        """See `Writer.add`."""
        self._steps += steps

    def end(self) -> None:
        """See `Writer.end`."""
        trial = self._trial
        assert trial is not None
        by_actor: dict[str, list[Step]] = {name: [] for name in trial.actors}
        for step in self._steps:
            by_actor[step.actor].append(step)
        for name, steps in by_actor.items():
            if steps:
                self._check_form(trial, name, steps[0].payloads.form)
        # Before the spaces of all actors are known, nothing can be written.
        if by_actor.keys() <= self._forms.keys():
            self._write(trial, by_actor)
        elif any(step.action is not None for step in self._steps):
            missing = ", ".join(name for name in by_actor if name not in self._forms)
            raise InvalidArgumentError(
                f"minari: trial {trial.stored.trial_id!r}: expected observations of {missing}, which never came"
            )
        self._steps = []

    def _check_form(self, trial: TrialRecord, name: str, form: Form) -> None:
        where = f"minari: trial {trial.stored.trial_id!r}, actor {name!r}"
        if form.observation_space is None or form.action_space is None:
            raise InvalidArgumentError(
                f"{where}: expected spaces with its first observation; Parquet takes observations without them, too"
            )
        known = self._forms.get(name)
        if known is None:
            check_minari(form.observation_space, name, "observation")
            check_minari(form.action_space, name, "action")
            if len(trial.actors) > 1 and not _NAME.fullmatch(name):
                raise InvalidArgumentError(f"{where}: expected a name of letters, digits, '-' and '_'")
            self._forms[name] = form
        elif known != form:
            raise InvalidArgumentError(
                f"{where}: expected the spaces of the trials before it, got {form.observation_space!r} and "
                f"{form.action_space!r}: export the trials of one kind of environment"
            )

    def _write(self, trial: TrialRecord, by_actor: Mapping[str, list[Step]]) -> None:
        try:
            for name, steps in by_actor.items():
                observations, actions = _spaces(self._forms[name])
                key = name if len(by_actor) > 1 else None
                self._add(trial, key, [name], observations, actions, episodes_of_actor(steps, observations, actions))
            if len(by_actor) > 1:
                seen, done = ({name: _spaces(self._forms[name])[place] for name in by_actor} for place in (0, 1))
                episodes = episodes_of_all(self._steps, seen, done)
                self._add(trial, None, list(by_actor), Dict(seen), Dict(done), episodes)
        except SpaceError as error:
            raise error.of(f"minari: trial {trial.stored.trial_id!r}: {error.root}") from None

    def _add(
        self,
        trial: TrialRecord,
        key: str | None,
        actors: list[str],
        observations: Space,
        actions: Space,
        episodes: Iterable[Episode],
    ) -> None:
        for episode in episodes:
            dataset = self._files.get(key)
            if dataset is None:
                dataset = self._files[key] = self._begun(key, actors, observations, actions)
            dataset.add(trial, episode)

    def _begun(self, key: str | None, actors: list[str], observations: Space, actions: Space) -> _Dataset:
        base, dash, version = self._id.rpartition("-v")
        dataset_id = self._id if key is None else f"{base}-{key}{dash}{version}"
        if key is not None:
            self._named(dataset_id)
            self.ids.append(dataset_id)
        spaces = to_gymnasium(observations), to_gymnasium(actions)
        about = {"actors": actors, "joint": len(actors) > 1}
        return _Dataset(self._minari, dataset_id, spaces, self._metadata, about)

    def finish(self) -> list[Placement]:
        """See `Writer.finish`."""
        if None not in self._files:
            raise InvalidArgumentError("minari: expected episodes with actions, and there are none")
        for dataset in self._files.values():
            dataset.flush()
        return [Placement(dataset.complete(), dataset.target, self._overwrite) for dataset in self._files.values()]

    def abort(self) -> None:
        """See `Writer.abort`."""
        for dataset in self._files.values():
            shutil.rmtree(dataset.temporary, ignore_errors=True)


def _spaces(form: Form) -> tuple[Space, Space]:
    assert form.observation_space is not None
    assert form.action_space is not None
    return form.observation_space, form.action_space


def _path(dataset_id: str) -> Path:
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(dataset_id))


class _Dataset:
    """One data set that is being written, under a name that says so."""

    def __init__(
        self,
        minari: Any,
        dataset_id: str,
        spaces: tuple[Any, Any],
        metadata: Mapping[str, Any],
        about: Mapping[str, Any],
    ) -> None:
        base, dash, version = dataset_id.rpartition("-v")
        self._minari = minari
        self._id = dataset_id
        self._incomplete = f"{base}{_INCOMPLETE}{dash}{version}"
        self._spaces = spaces
        self._metadata = metadata
        self._about = about
        self.temporary = _path(self._incomplete)
        self.target = _path(dataset_id)
        self._storage: Any = None
        self._buffers: list[Any] = []
        self._notes: list[dict[str, Any]] = []
        self._steps = self._bytes = 0
        shutil.rmtree(self.temporary, ignore_errors=True)  # of an export that was killed

    def add(self, trial: TrialRecord, episode: Episode) -> None:
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
        self._notes.append({"trial_id": trial.stored.trial_id, "trial_index": trial.episode_index})
        self._steps += len(episode.rewards)
        self._bytes += _bytes_of(episode.observations) + _bytes_of(episode.actions)
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

    def complete(self) -> Path:
        """Write what the data set says of itself; return its folder, which has to be moved to `target`."""
        file = self.temporary / "data" / "metadata.json"
        metadata = json.loads(file.read_text(encoding="utf-8"))
        metadata.update({"dataset_id": self._id, METADATA: self._about})
        file.write_text(json.dumps(metadata), encoding="utf-8")
        return self.temporary


def _attributes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as HDF5 can store them beside an episode: what is no number, text or array becomes JSON."""
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
