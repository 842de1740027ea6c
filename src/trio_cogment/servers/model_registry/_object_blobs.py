"""Blobs as objects in a bucket: `<prefix>/<folder>/<name>`.

Two facts about object stores make this more than a mapping of names. A conditional write is one request, so that all of
a blob would have to be in memory, and 5 GiB would be the most. And the name of an upload is known only when its bytes
are there. So:

* A blob of at most a part (8 MiB) is an object of its own name, created by one conditional request.
* A larger one is written in parts, as it comes, under a name that nobody else has: `.blobs/<token>`. Then its own name
  is created as a *pointer*, a small object that has this token. That is one conditional request again, of a kind that
  all stores have; copies, which would need no pointer, are conditional in few of them, and end at 5 GiB.

Whatever else is at the name of a blob is taken as its bytes. So an archive in a folder can be copied into a bucket with
any tool, and works there.

`.uploads/<token>` is there as long as it is not certain whether the bytes of a token belong to a blob: it is written
before the first of them, says then which blob shall have them, and goes last. A start looks at those that are older
than any upload may be, and removes bytes that no pointer has.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from trio_cogment.base.object_store import PART_BYTES, TOKEN_CHARACTERS, ObjectStore, Writer, new_token
from trio_cogment.servers.model_registry.blobs import Blob, Upload

logger = logging.getLogger(__name__)

_BLOBS = ".blobs"
_UPLOADS = ".uploads"
#: Says who has the archive open.
_OPENED = ".opened"

#: A pointer begins with this. Bytes of a client that begin with it are never an object of their own.
_POINTER = b"trio-cogment blob "
#: Only objects of such sizes can be pointers: the token, and the size of the blob.
_POINTER_SIZES = range(len(_POINTER) + TOKEN_CHARACTERS + 2, len(_POINTER) + TOKEN_CHARACTERS + 24)

#: An upload that has taken longer gets no name; what is older than the other is removed. The difference is more than
#: any request, clock or retry can take.
_UPLOAD_SECONDS = 20 * 3600.0
_LEFT = timedelta(hours=24)

#: This much is read at a time.
_READ_BYTES = 4 * 1024 * 1024


class ObjectBlobs:
    """Implements `BlobStore` in a bucket.

    Args:
        store: the prefix of the bucket, or its address (`s3://bucket/prefix`), which has to be there.
        small_bytes: larger blobs are written in parts. As much is held in memory of each upload at first.

    Opening tries whether the store can do what is needed (`ObjectStore.check`), and raises FailedPreconditionError if
    it overwrites what was only to be created.

    Nothing locks a prefix: another registry that uses it is only warned of. Then names are given once all the same, so
    no version is overwritten and no number of an archived version is given twice; but neither learns of the other's
    versions before it starts again.
    """

    def __init__(self, store: ObjectStore | str, *, small_bytes: int = PART_BYTES) -> None:
        self._small_bytes = small_bytes
        self.objects = ObjectStore(store) if isinstance(store, str) else store
        self._opened = ""

    def open(self) -> None:
        """See `BlobStore.open`."""
        now = self.objects.check().modified
        for entry in self.objects.list(_UPLOADS)[1]:
            if now - entry.modified > _LEFT:
                self._settle(entry.key)
        self._note_opened(now)

    def _note_opened(self, now: datetime) -> None:
        try:
            other = json.loads(self.objects.get(_OPENED, at_most=10_000).data)
            logger.warning(
                "model registry: %s was opened by process %s of %s at %s, and not closed: if that still runs, stop it",
                *(self.objects.url, other["process"], other["host"], other["at"]),
            )
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError):
            logger.warning("model registry: %s/%s is not what a registry writes", self.objects.url, _OPENED)
        mine = {"host": socket.gethostname(), "process": os.getpid(), "at": now.isoformat()}
        self._opened = self.objects.put(_OPENED, json.dumps(mine).encode())

    def _settle(self, key: str) -> None:
        """Remove what is left of an upload: its bytes, unless a blob has them, and the note of it."""
        token = key.rpartition("/")[2]
        target = self.objects.get(key, at_most=1000).data.decode(errors="replace")
        if not target or _pointed(self._found(target)) != token:
            logger.warning("model registry: %s: what an interrupted upload has left is removed", self.objects.url)
            self.objects.delete([_blob(token)])
        self.objects.delete([key])

    def _found(self, key: str) -> bytes:
        """Return a small object; nothing if there is none, or a large one."""
        try:
            return self.objects.get(key, at_most=_POINTER_SIZES.stop).data
        except FileNotFoundError:
            return b""

    def close(self) -> None:
        """See `BlobStore.close`."""
        opened, self._opened = self._opened, ""
        if opened:
            try:
                if self.objects.get(_OPENED, at_most=0).version == opened:
                    self.objects.delete([_OPENED])
            except OSError as error:
                logger.warning("model registry: %s", error)

    def folders(self) -> list[str]:
        """See `BlobStore.folders`; those whose name begins with a dot are not part of the store."""
        return [name for name in self.objects.list()[0] if not name.startswith(".")]

    def names(self, folder: str) -> list[str]:
        """See `BlobStore.names`."""
        return [entry.key.rpartition("/")[2] for entry in self.objects.list(folder)[1]]

    def read(self, folder: str, name: str) -> bytes:
        """See `BlobStore.read`."""
        tried = ""
        while True:
            blob = self.open_blob(folder, name)
            try:
                return blob.read(0, blob.size)
            except FileNotFoundError as error:
                # Its bytes are gone when it was replaced since the pointer was read; the same pointer is damage.
                if not isinstance(blob, _RemoteBlob) or blob.key == tried:
                    raise OSError(errno.EIO, f"{folder}/{name}: its bytes are gone", self.objects.url) from error
                tried = blob.key

    def open_blob(self, folder: str, name: str) -> Blob:
        """See `BlobStore.open_blob`."""
        key = f"{folder}/{name}"
        found = self.objects.get(key, at_most=PART_BYTES)
        if token := _pointed(found.data):
            size = int(found.data.split()[-1])
            return _RemoteBlob(self.objects, _blob(token), size, "")
        if found.size > PART_BYTES:
            return _RemoteBlob(self.objects, key, found.size, found.version)
        return _ReadBlob(found.data)

    def upload(self) -> Upload:
        """See `BlobStore.upload`."""
        return _ObjectUpload(self.objects, self._small_bytes)

    def delete(self, folder: str, names: Iterable[str]) -> None:
        """See `BlobStore.delete`."""
        wanted = {f"{folder}/{name}" for name in names}
        if not wanted:
            return
        there = [entry for entry in self.objects.list(folder)[1] if entry.key in wanted]
        tokens = {}
        for entry in there:
            if entry.size in _POINTER_SIZES and (token := _pointed(self._found(entry.key))):
                tokens[token] = entry.key
        for token, key in tokens.items():
            self.objects.put(_note(token), key.encode())
        self.objects.delete([entry.key for entry in there])
        # Behind the names: a blob without its bytes is never seen.
        self.objects.delete(map(_blob, tokens))
        self.objects.delete(map(_note, tokens))


class _ObjectUpload:
    def __init__(self, objects: ObjectStore, small_bytes: int) -> None:
        self._objects = objects
        self._small_bytes = small_bytes
        self._pending = bytearray()
        self._size = 0
        self._token = ""
        self._writer: Writer | None = None
        self._began = time.time()
        #: It has its name, or nobody knows: its bytes stay.
        self._given = False

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._writer is None:
            self._pending += data
            if len(self._pending) > self._small_bytes:
                self._begin_parts()
        else:
            self._writer.write(data)

    def _begin_parts(self) -> None:
        self._token = new_token()
        self._objects.create(_note(self._token), b"")
        self._writer = self._objects.writer(_blob(self._token))
        pending, self._pending = self._pending, bytearray()
        self._writer.write(pending)

    def finish(self) -> None:
        if self._writer is None and self._pending.startswith(_POINTER):
            self._begin_parts()
        if self._writer is not None:
            self._writer.close()

    def commit(self, folder: str, name: str, *, replace: bool = False) -> None:
        key = f"{folder}/{name}"
        content = bytes(self._pending)
        if self._token:
            if time.time() - self._began > _UPLOAD_SECONDS:
                raise TimeoutError(errno.ETIMEDOUT, "the upload has taken too long", self._objects.url)
            content = b"%s%s %d\n" % (_POINTER, self._token.encode(), self._size)
            self._objects.put(_note(self._token), key.encode())
        if replace:
            self._replace(key, content)
        else:
            self._create(key, content)
        if self._token:
            try:
                self._objects.delete([_note(self._token)])
            except OSError:
                pass  # a later start finds that the blob has the bytes

    def _create(self, key: str, content: bytes) -> None:
        self._given = True
        try:
            self._objects.create(key, content)
        except FileExistsError:
            self._given = False
            raise

    def _replace(self, key: str, content: bytes) -> None:
        old = ""
        try:
            old = _pointed(self._objects.get(key, at_most=_POINTER_SIZES.stop).data)
        except FileNotFoundError:
            pass
        if old:
            self._objects.put(_note(old), key.encode())
        self._given = True
        self._objects.put(key, content)
        if old:
            self._objects.delete([_blob(old)])
            self._objects.delete([_note(old)])

    def abort(self) -> None:
        writer, self._writer = self._writer, None
        self._pending.clear()
        if writer is None or self._given:
            return
        try:
            writer.abort()
            self._objects.delete([_note(self._token)])
        except OSError as error:
            logger.warning("model registry: an upload that was ended is left for a later start: %s", error)


class _ReadBlob:
    """A small blob, which was read when it was opened."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def close(self) -> None:
        self._data = b""


class _RemoteBlob:
    """A large blob, which is read some MiB at a time."""

    def __init__(self, objects: ObjectStore, key: str, size: int, version: str) -> None:
        self.size = size
        self._objects = objects
        self.key = key
        self._version = version
        self._block = (0, b"")

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
        if offset >= end:
            return b""
        start, data = self._block
        if not start <= offset < end <= start + len(data):
            stop = min(max(end, offset + _READ_BYTES), self.size)
            data = self._objects.get_range(self.key, offset, stop, version=self._version)
            start, self._block = offset, (offset, data)
        return data[offset - start : end - start]

    def close(self) -> None:
        self._block = (0, b"")


def _blob(token: str) -> str:
    return f"{_BLOBS}/{token}"


def _note(token: str) -> str:
    return f"{_UPLOADS}/{token}"


def _pointed(content: bytes) -> str:
    """Return the token that a pointer has; empty if this is none."""
    if len(content) not in _POINTER_SIZES or not content.startswith(_POINTER):
        return ""
    token, _, size = content[len(_POINTER) :].decode("ascii", errors="replace").rstrip("\n").partition(" ")
    return token if len(token) == TOKEN_CHARACTERS and token.isalnum() and size.isdigit() else ""
