"""The interface of the registry's storage: blobs with names, in folders.

The interface asks for no more than object stores have: whole objects that come into being in one step, if there is
none of that name yet; objects replaced in one step; listing; reading a range. Nothing is renamed, and no lock of this
process is presumed. `LocalBlobs` is a directory; `trio_cogment.testing.check_blobs` says whether another one will do.

Everything here blocks, so it belongs into a worker thread; any thread may call anything, also at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Upload(Protocol):
    """A blob that is being written; it is not visible before `commit`. One task at a time uses it."""

    def write(self, data: bytes) -> None:
        """Append. Raises OSError: the upload has failed, and only `abort` may follow."""

    def finish(self) -> None:
        """Make durable what was written, however long that takes; nothing may be written after it. Raises OSError."""

    def commit(self, folder: str, name: str, *, replace: bool = False) -> None:
        """Give it its name in one step, after `finish`; durable when this returns.

        Of several that want the same name at the same time, without `replace`, one gets it.

        Raises:
            FileExistsError: there is a blob of that name; the upload can be given another one.
            OSError: it failed. As a rule nothing has changed, but whether the blob is there may only be known after
                the next `BlobStore.open`.
        """

    def abort(self) -> None:
        """Drop it; does nothing after `commit`. Never raises: the next `open` removes what cannot be removed now."""


class Blob(Protocol):
    """A blob that is being read. It is the one that it was when it was opened, or reading raises OSError.

    Attributes:
        size: in bytes.
    """

    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Return this many bytes from there on; fewer only where the blob ends. Raises OSError."""

    def close(self) -> None:
        """Close it. Never raises."""


class BlobStore(Protocol):
    """Blobs by folder and name.

    Both are 1 to 200 bytes of ASCII letters, digits and ``% . _ -``; a folder's first character is not a dot. A folder
    is there as long as there are blobs in it.

    Every operation raises OSError when the storage fails, with ENOSPC or EDQUOT when there is no room. A store that
    knows how much may still be written says so with one operation more, `free_bytes() -> int | None`: then uploads
    that are announced as larger are refused before they begin.
    """

    def open(self) -> None:
        """Open and lock the store, and remove what interrupted uploads have left.

        Raises:
            BlockingIOError: another process uses it.
        """

    def close(self) -> None:
        """Close and unlock the store. Never raises."""

    def folders(self) -> list[str]:
        """Return the folders, sorted."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the blobs in a folder, sorted; none if there is no such folder."""

    def read(self, folder: str, name: str) -> bytes:
        """Return a small blob whole.

        Raises:
            FileNotFoundError: there is none.
        """

    def open_blob(self, folder: str, name: str) -> Blob:
        """Open a blob for reading.

        Raises:
            FileNotFoundError: there is none.
        """

    def upload(self) -> Upload:
        """Begin a new blob."""

    def delete(self, folder: str, names: Iterable[str]) -> None:
        """Delete blobs, durably; names that are not there are passed over.

        Raises:
            OSError: it failed; any of them may be left.
        """


def put(store: BlobStore, folder: str, name: str, data: bytes, *, replace: bool = False) -> None:
    """Write a small blob in one step; durable when this returns.

    Raises:
        FileExistsError: there is one of that name, and `replace` is not set.
        OSError: see `Upload.commit`.
    """
    upload = store.upload()
    try:
        upload.write(data)
        upload.finish()
        upload.commit(folder, name, replace=replace)
    finally:
        upload.abort()
