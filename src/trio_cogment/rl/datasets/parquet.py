"""Writes a data set of Parquet files: `data/file-00000.parquet`, `meta/trials.parquet`, `meta/info.json`, `README.md`.

Steps whose spaces differ do not fit into one table. So each form of observations and actions has files of its own:
`data/file-00000.parquet` if there is one form, `data/predator/file-00000.parquet` if there are several.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from typing_extensions import override

from trio_cogment._version import __version__
from trio_cogment.base.errors import AlreadyExistsError, FailedPreconditionError
from trio_cogment.base.host.beside import make_folder_beside
from trio_cogment.base.outcome import counted
from trio_cogment.rl.datasets.arrow import pa, parquet_file
from trio_cogment.rl.datasets.payloads import Form
from trio_cogment.rl.datasets.placing import Placement, is_empty, put_right
from trio_cogment.rl.datasets.step_groups import ROW_GROUP_ROWS, StepGroup, StepWriter, group_names
from trio_cogment.rl.datasets.tables import TRIALS
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.spaces import to_jsonable

#: What `meta/info.json` says that the data set is.
FORMAT = "trio-cogment-steps"
FORMAT_VERSION = 1

#: The next file begins when one has this many bytes.
FILE_BYTES = 512 * 1024 * 1024
#: This many trials are a row group.
_TRIAL_ROWS = 8192
#: To what depth `meta/info.json` has lines of their own. Below that are the bounds of spaces, two for each pixel.
_INFO_LEVELS = 4
#: How many strange files an error text names at most.
_NAMED = 5


class _Files(StepGroup):
    """The files of one form of steps."""

    def __init__(self, folder: Path, form: Form, *, tensors: bool) -> None:
        super().__init__(form, tensors=tensors)
        self.folder = folder
        self.names: list[str] = []
        self._writer: Any = None
        self._path = folder

    def write(self, table: Any) -> None:
        """Write a row group."""
        if self._writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.names.append(f"file-{len(self.names):05d}.parquet")
            self._path = self.folder / self.names[-1]
            self._writer = parquet_file(self._path, self.table.schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        if self._path.stat().st_size >= FILE_BYTES:
            self.close()

    def close(self) -> None:
        """Complete the file that is being written."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class ParquetWriter(StepWriter[_Files]):
    """Writes steps to Parquet files; see `trials.Writer`.

    What is held in memory does not depend on how many steps there are: one row group for each form of steps.

    Args:
        target: the folder of the data set.
        overwrite: a data set that is there is replaced, in the end; any other folder is left alone.
        tensors: arrays are Arrow's own tensors; see `tables.ArrayColumn`.

    Raises:
        AlreadyExistsError: there is something, and `overwrite` is not set.
        FailedPreconditionError: there is something that is not a data set, or has files of somebody else in it, or the
            folder cannot be made.
    """

    def __init__(self, target: str | os.PathLike[str], *, overwrite: bool = False, tensors: bool = False) -> None:
        super().__init__()
        # A link stays a link.
        self.path = Path(os.path.realpath(target) if os.path.islink(target) else target)
        self._overwrite = overwrite
        self._tensors = tensors
        put_right(self.path)
        check_target(self.path, overwrite=overwrite)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            folder, self._hold = make_folder_beside(str(self.path))
        except OSError as error:
            raise FailedPreconditionError(f"parquet: {self.path}: {error.strerror or error}") from error
        self._folder = Path(folder)
        self._environments: dict[str, None] = {}
        self._trial_rows: list[dict[str, Any]] = []
        self._trials_writer: Any = None
        self.trials = 0

    @override
    def new_group(self, form: Form) -> _Files:
        return _Files(self._folder / "data" / str(len(self.groups)), form, tensors=self._tensors)

    @override
    def begin(self, trial: TrialRecord) -> None:
        super().begin(trial)
        self._environments.setdefault(trial.environment)

    def end(self) -> None:
        """See `Writer.end`."""
        self._trial_rows.append(self.row_of_trial())
        self.trials += 1
        if len(self._trial_rows) >= _TRIAL_ROWS:
            self._flush_trials()

    def _flush_trials(self) -> None:
        if self._trials_writer is None:
            (self._folder / "meta").mkdir(exist_ok=True)
            path = self._folder / "meta" / "trials.parquet"
            self._trials_writer = parquet_file(path, TRIALS)
        rows, self._trial_rows = self._trial_rows, []
        self._trials_writer.write_table(pa.Table.from_pylist(rows, schema=TRIALS))

    def finish(self) -> list[Placement]:
        """See `Writer.finish`."""
        for files in self.groups.values():
            files.flush()
            files.close()
        self._flush_trials()
        self._trials_writer.close()
        groups = self._named_groups()
        info = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "written_by": f"trio-cogment {__version__}",
            "environments": list(self._environments),
            "total_trials": self.trials,
            "total_steps": sum(files.steps for files in self.groups.values()),
            "total_rows": sum(files.rows for files in self.groups.values()),
            "groups": groups,
        }
        (self._folder / "meta" / "info.json").write_text(_indented(info, _INFO_LEVELS) + "\n", encoding="utf-8")
        (self._folder / "README.md").write_text(_readme(info), encoding="utf-8")
        _sync(self._folder)
        if self.path.exists():
            _check_own(self.path)  # again: an export takes its time, and what is there goes with the folder
        return [Placement(self._folder, self.path, self._overwrite, self._hold)]

    def _named_groups(self) -> list[dict[str, Any]]:
        all_files = list(self.groups.values())
        names = group_names([list(files.actors) for files in all_files])
        found = []
        for name, files in zip(names, all_files, strict=True):
            if len(all_files) == 1:
                for file in files.names:
                    os.rename(files.folder / file, self._folder / "data" / file)
                files.folder.rmdir()
                folder = "data"
            else:
                os.rename(files.folder, self._folder / "data" / name)
                folder = f"data/{name}"
            found.append(_group(name, folder, files))
        return found

    def close(self) -> None:
        """See `Writer.close`."""
        for files in self.groups.values():
            _quietly_close(files)
        if self._trials_writer is not None:
            _quietly_close(self._trials_writer)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._hold.release()


def _quietly_close(writer: Any) -> None:
    try:
        writer.close()
    except (OSError, pa.ArrowException):
        pass  # the file goes anyway


def _indented(value: Any, levels: int, indent: str = "") -> str:
    """Return JSON with a line for each part down to some level; deeper parts are within these lines."""
    if not levels or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    deeper = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_indented(part, levels - 1, deeper)}" for key, part in value.items()]
    else:
        parts = [_indented(part, levels - 1, deeper) for part in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{end}"


def _group(name: str, folder: str, files: _Files) -> dict[str, Any]:
    form = files.table.form
    spaces = {
        name: None if space is None else to_jsonable(space)
        for name, space in (("observation_space", form.observation_space), ("action_space", form.action_space))
    }
    return {
        "name": name,
        "files": [f"{folder}/{file}" for file in files.names],
        "rows": files.rows,
        "steps": files.steps,
        "actors": list(files.actors),
        "actor_classes": list(files.actor_classes),
        "payloads": form.kind,
        **spaces,
        "features": {name: column.feature for name, column in files.table.columns.items()},
    }


def _readme(info: dict[str, Any]) -> str:
    """Return what Hugging Face's `datasets` reads to find the files of the data set's parts."""
    lines = ["---", "configs:"]
    for group in info["groups"]:
        folder = os.path.dirname(group["files"][0])
        lines += [f"- config_name: {group['name']}", f'  data_files: "{folder}/*.parquet"']
    lines += ["- config_name: trials", '  data_files: "meta/trials.parquet"', "---", "# Steps of trials", ""]
    environments = ", ".join(name for name in info["environments"] if name)
    lines += [
        f"{counted(info['total_steps'], 'step')} of {counted(info['total_trials'], 'trial')}"
        + (f" of {environments}" if environments else "")
        + f", written by {info['written_by']}. `meta/info.json` has the spaces of observations and actions.",
        "",
    ]
    return "\n".join(lines)


# Folders


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds a data set of this format, whole."""
    try:
        found = json.loads((folder / "meta" / "info.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise unless a data set can be written to a folder; see `ParquetWriter`."""
    if not path.exists() or is_empty(path):
        return
    if not overwrite:
        raise AlreadyExistsError(f"parquet: {path} exists already; overwrite=True (--overwrite) replaces a data set")
    if not is_dataset(path):
        raise FailedPreconditionError(f"parquet: {path} is not a data set, so it is not replaced")
    _check_own(path)


def remove_dataset(target: Path) -> None:
    """Remove a data set, if there is one at a place; any other folder is left alone.

    Raises:
        FailedPreconditionError: it has files of somebody else in it, or cannot be removed.
    """
    path = Path(os.path.realpath(target))
    put_right(path)
    if not is_dataset(path):
        return
    _check_own(path)
    try:
        # If this is killed, nothing by half has the name of the data set.
        folder, hold = make_folder_beside(str(path))
        try:
            os.rename(path, folder)
            shutil.rmtree(folder)
        finally:
            hold.release()
    except OSError as error:
        raise FailedPreconditionError(f"parquet: {path}: {error.strerror or error}") from error


def _check_own(path: Path) -> None:
    """Raise if a folder has files that are not of its data set: they would be removed with it."""
    strange = _strange_files(path)
    if strange:
        more = f" and {len(strange) - _NAMED} more" if len(strange) > _NAMED else ""
        raise FailedPreconditionError(
            f"parquet: {path} has files that are not of the data set: {', '.join(strange[:_NAMED])}{more}; "
            "so it is not replaced"
        )


def _strange_files(path: Path) -> list[str]:
    """Return what a folder has beside its data set, sorted; of a folder without any of the data set only its name."""
    own = {Path("README.md"), Path("meta/info.json"), Path("meta/trials.parquet")}
    own |= {Path(file) for file in _listed_files(path)}
    folders = {parent for file in own for parent in file.parents}
    strange: list[str] = []
    for root, below, names in os.walk(path):
        here = Path(root).relative_to(path)
        # A link to a folder is a file like any other: it is removed, and not what it leads to.
        known = [name for name in below if here / name in folders and not os.path.islink(os.path.join(root, name))]
        entries = {*names, *below} - set(known)
        strange += [(here / name).as_posix() for name in entries if here / name not in own]
        below[:] = known
    return sorted(strange)


def _listed_files(path: Path) -> list[str]:
    """Return the files of steps that a data set says to have; none if it does not say."""
    try:
        info = json.loads((path / "meta" / "info.json").read_text(encoding="utf-8"))
        return [str(file) for group in info["groups"] for file in group["files"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _sync(folder: Path) -> None:
    """Make durable what is in a folder, so that a loss of power cannot leave files of it empty."""
    for root, _, names in os.walk(folder):
        for name in [*(os.path.join(root, name) for name in names), root]:
            descriptor = os.open(name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
