"""The archive: models and archived versions in a blob store. All functions block.

The promises follow from the order of the steps:

* A version's description is written first; its bytes get their name last, and that step makes the version exist.
* A number is durable before a client can see it: as an archived version, or in ``.last``.
* A deletion is one small blob, which makes the rest of the folder invalid; that is removed afterwards or at a start.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.servers.model_registry import _archive_layout as layout
from trio_cogment.servers.model_registry import _documents as documents
from trio_cogment.servers.model_registry.blobs import Blob, BlobStore, Upload, put

#: What is written about a version beside what its client says: number, time, hash.
_GIVEN_BYTES = 256

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredModel:
    """A model as it was found in the archive.

    Attributes:
        model_id: its id.
        folder: where it is.
        numbers: its archived versions, in order.
        last: the highest number it has given.
        owner: the account that it belongs to; empty: nobody's.
    """

    model_id: str
    folder: str
    numbers: list[int] = field(default_factory=list)
    last: int = 0
    owner: str = ""


def most_bytes_of(info: ModelInfo | ModelVersionInfo) -> int:
    """Return what a model's description, or a version, will take at most when it is stored."""
    if isinstance(info, ModelInfo):
        return len(documents.write_model(info))
    return len(documents.write_version(info)) + _GIVEN_BYTES + info.data_size


class Archive:
    """Reads and writes models and archived versions.

    Args:
        store: where the blobs are.
    """

    def __init__(self, store: BlobStore) -> None:
        self.store = store

    def open(self) -> list[StoredModel]:
        """Open the store, finish what was interrupted, and return the models.

        Raises:
            BlockingIOError: another process uses the store.
            OSError: it failed.
        """
        self.store.open()
        with ExitStack() as on_failure:
            on_failure.callback(self.store.close)
            models = self._load()
            on_failure.pop_all()
        return models

    def _load(self) -> list[StoredModel]:
        found: dict[str, StoredModel] = {}
        for folder in self.store.folders():
            try:
                folder.encode()
            except UnicodeEncodeError:
                logger.warning("model registry: folder %r is not text; it is left alone", folder)
                continue
            model = self._load_folder(folder)
            if model is None:
                continue
            other = found.get(model.model_id)
            if other is not None:
                logger.warning(
                    "model registry: %r and %r are both about model %.200r; the second is left alone",
                    other.folder,
                    folder,
                    model.model_id,
                )
                continue
            found[model.model_id] = model
        return list(found.values())

    def _load_folder(self, folder: str) -> StoredModel | None:
        contents = layout.contents_of(folder, self.store.names(folder))
        if contents.deleted:
            self._purge(folder)
            return None
        numbers = sorted(contents.infos & contents.data)
        if not contents.has_model and not numbers:
            return None  # it belongs to another program
        model_id = folder
        if layout.may_be_encoded(folder) or not contents.has_model:
            model_id = self._read_id(folder, numbers)
        last = max([0, *contents.infos, *contents.data])
        kept = self._read_last(folder) if contents.has_last else 0
        # An upload was interrupted before its version existed. Its number is not given again: another program may have
        # written it, or the disk may have lost the bytes of a version that had been seen.
        if interrupted := contents.infos - contents.data:
            if last > max([kept, *numbers]):
                self.keep_last(folder, last)
            self.store.delete(folder, [layout.info_name(folder, number) for number in sorted(interrupted)])
        owner = (
            self.store.read(folder, layout.owner_name(folder)).decode(errors="replace") if contents.has_owner else ""
        )
        return StoredModel(model_id, folder, numbers, max(last, kept), owner)

    def _read_id(self, folder: str, numbers: list[int]) -> str:
        for name in (layout.model_name(folder), *(layout.info_name(folder, number) for number in numbers)):
            try:
                model_id = documents.read_model(self.store.read(folder, name)).model_id
            except (documents.DocumentError, FileNotFoundError):
                continue
            if model_id:
                return model_id
        logger.warning("model registry: %r does not say which model it is about", folder)
        return folder

    def _read_last(self, folder: str) -> int:
        text = self.store.read(folder, layout.last_name(folder)).strip()
        if text.isdigit() and len(text) <= 10:
            return int(text)
        logger.warning(
            "model registry: %r: expected a number in %s, got something else", folder, layout.last_name(folder)
        )
        return 0

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # Models

    def create(self, info: ModelInfo, taken: Container[str], owner: str = "") -> tuple[str, int]:
        """Write a new model; return its folder, and what it takes."""
        folder = layout.folder_of(info.model_id, taken)
        contents = layout.contents_of(folder, self.store.names(folder))
        if contents.deleted:  # and not everything could be removed then
            self._purge(folder)
        if owner:  # before the model is there
            put(self.store, folder, layout.owner_name(folder), owner.encode(), replace=True)
        elif contents.has_owner:
            self.store.delete(folder, [layout.owner_name(folder)])
        document = documents.write_model(info)
        put(self.store, folder, layout.model_name(folder), document, replace=True)
        return folder, len(document)

    def update(self, folder: str, info: ModelInfo) -> int:
        """Replace the description of a model; return how much more it takes than before."""
        document = documents.write_model(info)
        before = self._size(folder, layout.model_name(folder))
        put(self.store, folder, layout.model_name(folder), document, replace=True)
        return len(document) - before

    def measure(self, folder: str, numbers: Iterable[int]) -> int:
        """Return what a model takes: its description, and these archived versions with theirs."""
        names = [layout.model_name(folder)]
        for number in numbers:
            names += layout.info_name(folder, number), layout.data_name(folder, number)
        return sum(self._size(folder, name) for name in names)

    def _size(self, folder: str, name: str) -> int:
        try:
            blob = self.store.open_blob(folder, name)
        except FileNotFoundError:
            return 0
        try:
            return blob.size
        finally:
            blob.close()

    def read_model(self, model_id: str, folder: str) -> ModelInfo:
        """Return the description of a model; only its id if that cannot be read any more."""
        try:
            info = documents.read_model(self.store.read(folder, layout.model_name(folder)))
        except (documents.DocumentError, FileNotFoundError) as error:
            logger.warning("model registry: %r: nothing is known of its user data: %s", folder, error)
            info = ModelInfo()
        info.model_id = model_id
        return info

    def delete(self, folder: str) -> None:
        """Delete a model with all its versions.

        Raises:
            OSError: it is not deleted. What cannot be removed of one that is goes at the next start.
        """
        try:
            put(self.store, folder, layout.deleted_name(folder), b"", replace=True)
        except OSError:
            try:
                self.store.delete(folder, [layout.deleted_name(folder)])
            except OSError:
                pass  # the storage takes nothing any more
            raise
        try:
            self._purge(folder)
        except OSError as error:
            logger.warning("model registry: %r is deleted, but not all of it could be removed: %s", folder, error)

    def _purge(self, folder: str) -> None:
        mark = layout.deleted_name(folder)
        names = self.store.names(folder)
        self.store.delete(folder, [name for name in names if name != mark])
        if mark in names:
            self.store.delete(folder, [mark])

    # Versions

    def keep_last(self, folder: str, number: int) -> None:
        """Store durably that a number was given."""
        put(self.store, folder, layout.last_name(folder), b"%d\n" % number, replace=True)

    def add(self, folder: str, info: ModelVersionInfo, upload: Upload) -> int:
        """Archive a version; it is durable when this returns what it takes.

        Raises:
            FileExistsError: the number is taken; the upload can be used for another one.
            OSError: it probably does not exist; the number must not be used again.
        """
        name = layout.info_name(folder, info.version_number)
        document = documents.write_version(info)
        put(self.store, folder, name, document)
        try:
            upload.commit(folder, layout.data_name(folder, info.version_number))
        except OSError:
            try:
                self.store.delete(folder, [name])
            except OSError:
                pass  # goes at the next start
            raise
        return len(document) + info.data_size

    def read_info(self, model_id: str, folder: str, number: int) -> ModelVersionInfo | None:
        """Return the description of an archived version; None if it is damaged, which is logged.

        Raises:
            OSError: the storage failed, or the model is being deleted.
        """
        blob = self.store.open_blob(folder, layout.data_name(folder, number))
        try:
            info = documents.read_version(self.store.read(folder, layout.info_name(folder, number)))
            if info.data_size != blob.size:
                raise documents.DocumentError(f"it has {blob.size} bytes instead of {info.data_size}")
        except documents.DocumentError as error:
            logger.error("model registry: version %d in %r is damaged: %s", number, folder, error)
            return None
        finally:
            blob.close()
        info.model_id = model_id
        info.version_number = number
        return info

    def open_data(self, folder: str, number: int) -> Blob:
        """Open an archived version's bytes.

        Raises:
            OSError: the storage failed, or the model is being deleted.
        """
        return self.store.open_blob(folder, layout.data_name(folder, number))
