"""A data set of Parquet files in a bucket: the files are written on the disk first, and uploaded when all are whole.

A bucket has no folder that could be renamed. `meta/info.json`, with which the data set is there, is therefore the last
object that is written, and the first that is removed. In between `meta/exporting.json` says that an export is under
way, and of which files: so two exports to one place do not mix, and what one that was killed has left can be replaced.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trio_cogment.base.errors import AlreadyExistsError, FailedPreconditionError
from trio_cogment.base.object_store import ObjectStore
from trio_cogment.rl.datasets.parquet import FORMAT, ParquetWriter
from trio_cogment.rl.datasets.placing import Placement
from trio_cogment.rl.datasets.step_columns import StepColumns
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.rl.datasets.trials import TrialRecord

#: The data set is there.
INFO = "meta/info.json"
#: An export is under way, or was killed.
EXPORTING = "meta/exporting.json"
#: What every data set has besides.
_OWN = frozenset({INFO, EXPORTING, "README.md", "meta/trials.parquet"})
#: How many strange objects an error text names at most.
_NAMED = 5
_COPY_BYTES = 1024 * 1024
#: What is read ahead of a file.
_READ_BYTES = 4 * 1024 * 1024


class BucketWriter:
    """Writes steps to Parquet files of a bucket; see `trials.Writer`. The disk has room for all of them meanwhile.

    While a data set is replaced, there is none: an export that fails then leaves the place empty.

    Args:
        url: the prefix of the data set, `s3://bucket/prefix`.
        overwrite: a data set that is there is replaced, in the end; whatever else is there is left alone.
        tensors: arrays are Arrow's own tensors; see `tables.ArrayColumn`.

    Raises:
        AlreadyExistsError: there is something, and `overwrite` is not set.
        FailedPreconditionError: there is something that is not a data set, or has objects of somebody else in it.
        InvalidArgumentError, MissingExtraError: the address is wrong, or an extra is missing.
        OSError: the bucket cannot be used.
    """

    def __init__(self, url: str, *, overwrite: bool = False, tensors: bool = False) -> None:
        self._objects = ObjectStore(url)
        self._overwrite = overwrite
        self._objects.check()
        self._own_objects()
        self._folder = Path(tempfile.mkdtemp(prefix="trio-cogment-export-"))
        self._files = ParquetWriter(self._folder / "data-set", tensors=tensors)

    def begin(self, trial: TrialRecord) -> None:
        """See `Writer.begin`."""
        self._files.begin(trial)

    def add(self, steps: list[Step]) -> None:
        """See `Writer.add`."""
        self._files.add(steps)

    def add_columns(self, columns: Sequence[StepColumns]) -> None:
        """See `Writer.add_columns`."""
        self._files.add_columns(columns)

    def end(self) -> None:
        """See `Writer.end`."""
        self._files.end()

    def finish(self) -> list[Placement]:
        """Complete the data set, upload it, and make it visible; no folder is left to be placed.

        Raises:
            AlreadyExistsError: another export has begun to write there.
            OSError: the disk or the bucket failed.
        """
        (placement,) = self._files.finish()
        written = placement.written
        new = [path.relative_to(written).as_posix() for path in sorted(written.rglob("*")) if path.is_file()]
        before = self._own_objects()
        self._begin(sorted({*new, *before} - {EXPORTING}))
        try:
            self._objects.delete([INFO] if INFO in before else [])
            for name in new:
                if name != INFO:
                    self._upload(written / name, name)
            self._objects.delete(before - {*new, EXPORTING})
            self._upload(written / INFO, INFO)
        except BaseException:
            self._clean_up(new)
            raise
        self._objects.delete([EXPORTING])
        return []

    def _begin(self, files: list[str]) -> None:
        note = json.dumps({"files": files}).encode()
        if self._overwrite:
            self._objects.put(EXPORTING, note)
            return
        try:
            self._objects.create(EXPORTING, note)
        except FileExistsError:
            raise AlreadyExistsError(f"parquet: {self._objects.url}: another export writes there") from None

    def _upload(self, path: Path, name: str) -> None:
        writer = self._objects.writer(name)
        with path.open("rb") as file:
            while data := file.read(_COPY_BYTES):
                writer.write(data)
        writer.close()

    def _clean_up(self, names: Iterable[str]) -> None:
        try:
            self._objects.delete([INFO])
            self._objects.delete([*names, EXPORTING])
        except OSError:
            pass  # the note of the export stays, and the next one with `overwrite` removes it all

    def _own_objects(self) -> set[str]:
        """Return the objects of the data set that is there, or was being written.

        Raises:
            AlreadyExistsError, FailedPreconditionError: see the class.
        """
        there = set(_walk(self._objects, ""))
        if not there:
            return there
        url = self._objects.url
        if not self._overwrite:
            state = "an export is under way there, or was interrupted" if EXPORTING in there else "it exists already"
            raise AlreadyExistsError(f"parquet: {url}: {state}; overwrite=True (--overwrite) replaces a data set")
        if not there & {INFO, EXPORTING}:
            raise FailedPreconditionError(f"parquet: {url} is not a data set, so it is not replaced")
        strange = sorted(there - _OWN - _listed(self._objects, there))
        if strange:
            more = f" and {len(strange) - _NAMED} more" if len(strange) > _NAMED else ""
            raise FailedPreconditionError(
                f"parquet: {url} has objects that are not of the data set: {', '.join(strange[:_NAMED])}{more}; "
                "so it is not replaced"
            )
        return there

    def close(self) -> None:
        """See `Writer.close`."""
        self._files.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _walk(objects: ObjectStore, prefix: str) -> Iterator[str]:
    folders, entries = objects.list(prefix)
    yield from (entry.key for entry in entries if not entry.key.startswith(".probe/"))
    for folder in folders:
        if folder != ".probe":
            yield from _walk(objects, folder)


def _listed(objects: ObjectStore, there: set[str]) -> set[str]:
    """Return the files that a data set says to have, or an export."""
    names: set[str] = set()
    try:
        if INFO in there:
            info = json.loads(objects.get(INFO).data)
            names |= {str(file) for group in info["groups"] for file in group["files"]}
        if EXPORTING in there:
            names |= {str(file) for file in json.loads(objects.get(EXPORTING).data)["files"]}
    except (ValueError, LookupError, TypeError):
        pass
    return names


class BucketFolder:
    """A data set in a bucket, as far as `ParquetRecordings` reads one.

    Attributes:
        name: the last part of its address.
    """

    def __init__(self, url: str) -> None:
        self._objects = ObjectStore(url)
        self.name = self._objects.url.rpartition("/")[2]

    def __str__(self) -> str:
        return self._objects.url

    def info(self) -> dict[str, Any] | None:
        """Return `meta/info.json`; None: this is no data set, or not a whole one."""
        try:
            found = json.loads(self._objects.get(INFO).data)
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("format") == FORMAT else None

    def open(self, name: str) -> Any:
        """Return what PyArrow reads a file of it from."""
        found = self._objects.get(name, at_most=0)
        return io.BufferedReader(_RemoteFile(self._objects, name, found.size, found.version), _READ_BYTES)


class _RemoteFile(io.RawIOBase):
    """An object that is read in ranges; one that was replaced meanwhile fails."""

    def __init__(self, objects: ObjectStore, name: str, size: int, version: str) -> None:
        self._objects = objects
        self._name = name
        self._size = size
        self._version = version
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if self._at >= end:
            return 0
        data = self._objects.get_range(self._name, self._at, end, version=self._version)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
