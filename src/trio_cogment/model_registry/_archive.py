"""The archive: models and archived versions in a blob store. All functions block.

The promises follow from the order of the steps:

* A version's description is written first; its bytes get their name last, and that step makes the version exist.
* A number is durable before a client can see it: as an archived version, or in ``.last``.
* A deletion is one small blob, which makes the rest of the folder invalid; that is removed afterwards or at a start.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from contextlib import ExitStack
from dataclasses import dataclass, field

from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.model_registry import _archive_layout as layout
from trio_cogment.model_registry import _documents as documents
from trio_cogment.model_registry.blobs import Blob, BlobStore, Upload, put

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredModel:
    """A model as it was found in the archive.

    Attributes:
        model_id: its id.
        folder: where it is.
        numbers: its archived versions, in order.
        last: the highest number it has given.
    """

    model_id: str
    folder: str
    numbers: list[int] = field(default_factory=list)
    last: int = 0


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
                logger.warning("model registry: folder %r is no text; it is left alone", folder)
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
        return StoredModel(model_id, folder, numbers, max(last, kept))

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
        logger.warning("model registry: %r: what is in %s is no number", folder, layout.last_name(folder))
        return 0

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # Models

    def create(self, info: ModelInfo, taken: Container[str]) -> str:
        """Write a new model; return its folder."""
        folder = layout.folder_of(info.model_id, taken)
        if layout.contents_of(folder, self.store.names(folder)).deleted:  # and not everything could be removed then
            self._purge(folder)
        put(self.store, folder, layout.model_name(folder), documents.write_model(info), replace=True)
        return folder

    def update(self, folder: str, info: ModelInfo) -> None:
        """Replace the description of a model."""
        put(self.store, folder, layout.model_name(folder), documents.write_model(info), replace=True)

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

    def add(self, folder: str, info: ModelVersionInfo, upload: Upload) -> None:
        """Archive a version; it is durable when this returns.

        Raises:
            FileExistsError: the number is taken; the upload can be used for another one.
            OSError: it probably does not exist; the number must not be used again.
        """
        name = layout.info_name(folder, info.version_number)
        put(self.store, folder, name, documents.write_version(info))
        try:
            upload.commit(folder, layout.data_name(folder, info.version_number))
        except OSError:
            try:
                self.store.delete(folder, [name])
            except OSError:
                pass  # goes at the next start
            raise

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
