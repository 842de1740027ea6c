"""Writes data sets of Minari: one for each actor and, if there are several, one of all of them together.

Trials of several environments have data sets of their own, because their spaces differ.

Images are stored as they are. Minari's own default is JPEG, which changes them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError, MissingExtraError
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.environments.env_specs import recovered_spec
from trio_cogment.rl.datasets.episodes import Episode, check_minari, episodes_of_actor, episodes_of_all
from trio_cogment.rl.datasets.minari_files import DatasetFiles, path_of, put_right_dataset
from trio_cogment.rl.datasets.payloads import Form
from trio_cogment.rl.datasets.placing import Placement
from trio_cogment.rl.datasets.plain import as_json
from trio_cogment.rl.datasets.step_columns import StepColumns
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.spaces import Dict, Space, SpaceError, to_gymnasium, to_jsonable

_METADATA_KEYS = {"author", "author_email", "algorithm_name", "code_permalink", "description", "requirements"}
_NAME = re.compile(r"[-_\w]+")
#: What an id cannot have of an environment's name.
_NOT_IN_NAMES = re.compile(r"[^-\w/]+")


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
        environments: the names of the trials' environments. If there are several, each has data sets of its own, with
            its name before that of the data set: `rps/CartPole-v1/duel-v0`.
        overwrite: data sets that are there are replaced, in the end.
        metadata: what else `minari.create_dataset_from_buffers` is told.

    Attributes:
        ids: of the data sets. An environment's begin with that of its only actor, or of all together.

    Raises:
        MissingExtraError: Minari is not installed.
        InvalidArgumentError: it is not an id, or there are other metadata.
        AlreadyExistsError: there is such a data set, and `overwrite` is not set.
    """

    def __init__(
        self,
        dataset_id: str,
        *,
        environments: Collection[str] = (),
        overwrite: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._minari = minari_module()
        self._metadata = dict(metadata or {})
        for key in self._metadata.keys() - _METADATA_KEYS:
            raise InvalidArgumentError(
                f"minari_metadata: expected some of {', '.join(sorted(_METADATA_KEYS))}; got {key!r}"
            )
        self._id = dataset_id
        self._overwrite = overwrite
        _check_id(dataset_id, overwrite=True)
        self._alone = len(environments) <= 1
        self._by_environment: dict[str, _EnvironmentWriter] = {}
        self._by_id: dict[str, str] = {}
        self._writer: _EnvironmentWriter | None = None
        self.ids: list[str] = []
        for environment in environments:
            self._of(environment)

    def _of(self, environment: str) -> _EnvironmentWriter:
        found = self._by_environment.get(environment)
        if found is None:
            dataset_id = self._id
            if not self._alone:
                dataset_id = id_of_environment(dataset_id, environment)
            other = self._by_id.setdefault(dataset_id, environment)
            if other != environment:
                raise InvalidArgumentError(
                    f"minari: expected environments with names that differ in an id, got {other!r} and "
                    f"{environment!r}: export the trials of one of them"
                )
            _check_id(dataset_id, overwrite=self._overwrite)
            found = _EnvironmentWriter(self._minari, dataset_id, overwrite=self._overwrite, metadata=self._metadata)
            self._by_environment[environment] = found
            self.ids += found.ids
        return found

    def begin(self, trial: TrialRecord) -> None:
        """See `Writer.begin`."""
        self._writer = self._of(trial.environment)
        self._writer.begin(trial)

    def add(self, steps: list[Step]) -> None:
        """See `Writer.add`."""
        assert self._writer is not None
        self._writer.add(steps)

    def add_columns(self, columns: Sequence[StepColumns]) -> None:
        """See `Writer.add_columns`."""
        for together in zip(*(one.steps() for one in columns), strict=True):
            self.add(list(together))

    def end(self) -> None:
        """See `Writer.end`."""
        assert self._writer is not None
        self._writer.end()

    def finish(self) -> list[Placement]:
        """See `Writer.finish`."""
        writers = [writer for writer in self._by_environment.values() if writer.has_episodes]
        if not writers:
            raise InvalidArgumentError("minari: expected episodes with actions, and there are none")
        self.ids[:] = [dataset_id for writer in writers for dataset_id in writer.ids]
        return [placement for writer in writers for placement in writer.finish()]

    def close(self) -> None:
        """See `Writer.close`."""
        for writer in self._by_environment.values():
            writer.close()


def id_of_environment(dataset_id: str, environment: str) -> str:
    """Return a data set's id with the name of an environment in it, as an id can have it."""
    namespace, slash, name = dataset_id.rpartition("/")
    found = f"{namespace}{slash}{_NOT_IN_NAMES.sub('_', environment).strip('/')}"
    # Minari has no namespaces of one character, and none that end with `/`.
    return f"{found.ljust(2, '_') if not found.endswith('/') else f'{found}_'}/{name}"


def _check_id(dataset_id: str, *, overwrite: bool) -> None:
    from minari.dataset.minari_dataset import parse_dataset_id

    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError) as error:  # a TypeError if there is no version
        raise InvalidArgumentError(
            "minari: expected an id such as 'rps/duel-v0', a namespace (of two characters or more), a name and a "
            f"version, of letters, digits, '_' and '-'; got {dataset_id!r}"
        ) from error
    put_right_dataset(dataset_id)
    if not overwrite and path_of(dataset_id).exists():
        raise AlreadyExistsError(f"minari: {dataset_id} exists already; overwrite=True (--overwrite) replaces it")


class _EnvironmentWriter:
    """Writes the steps of one environment's trials; see `MinariWriter`."""

    def __init__(self, minari: Any, dataset_id: str, *, overwrite: bool, metadata: Mapping[str, Any]) -> None:
        self._minari = minari
        self._metadata = metadata
        self._id = dataset_id
        self._overwrite = overwrite
        self.ids: list[str] = [dataset_id]
        #: By actor; None has all of them together.
        self._files: dict[str | None, DatasetFiles] = {}
        self._forms: dict[str, Form] = {}
        self._trial: TrialRecord | None = None
        self._steps: list[Step] = []
        self._makings: dict[str, TrialRecord] = {}

    def begin(self, trial: TrialRecord) -> None:
        """See `Writer.begin`."""
        self._trial, self._steps = trial, []
        # One for each way in which the trials' environments were made.
        self._makings.setdefault(as_json([trial.environment, trial.arguments, trial.spec]), trial)
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

    def _begun(self, key: str | None, actors: list[str], observations: Space, actions: Space) -> DatasetFiles:
        base, dash, version = self._id.rpartition("-v")
        dataset_id = self._id if key is None else f"{base}-{key}{dash}{version}"
        if key is not None:
            _check_id(dataset_id, overwrite=self._overwrite)
            self.ids.append(dataset_id)
        spaces = to_gymnasium(observations), to_gymnasium(actions)
        # Minari loads the keys of a Dict sorted, and any Discrete as one of int64.
        played = {"observation_space": to_jsonable(observations), "action_space": to_jsonable(actions)}
        about = {"actors": actors, "joint": len(actors) > 1, **played}
        return DatasetFiles(self._minari, dataset_id, spaces, self._metadata, about)

    @property
    def has_episodes(self) -> bool:
        """Whether there is anything to write."""
        return None in self._files

    def finish(self) -> list[Placement]:
        """Write what is in hand; see `Writer.finish`."""
        for dataset in self._files.values():
            dataset.flush()
        spec = self._env_spec()
        return [Placement(dataset.complete(spec), dataset.target, self._overwrite) for dataset in self._files.values()]

    def _env_spec(self) -> str | None:
        """Return how Gymnasium makes the environment; None if that is not known, or was done in several ways."""
        if len(self._makings) != 1:
            return None
        (trial,) = self._makings.values()
        if trial.actors.keys() != {SINGLE_AGENT}:
            return None
        spec = recovered_spec(trial.spec, trial.environment, trial.arguments)
        return None if spec is None else str(spec.to_json())

    def close(self) -> None:
        """See `Writer.close`."""
        for dataset in self._files.values():
            dataset.close()


def _spaces(form: Form) -> tuple[Space, Space]:
    assert form.observation_space is not None
    assert form.action_space is not None
    return form.observation_space, form.action_space
