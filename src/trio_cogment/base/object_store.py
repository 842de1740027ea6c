"""Object stores: a prefix of a bucket of S3, Google Cloud Storage or Azure, by obstore (the extra `s3`).

The library's errors become OSErrors that say what the server has answered. All that is here blocks; it belongs into a
worker thread, or into a program that does not run Trio. obstore does the requests in threads of its own, and a call of
it cannot be interrupted: it may take a minute where a server is silent. So each call runs in a thread that nobody has
to wait for. Whoever waits looks up: Control-C ends the wait in the main thread, a cancellation ends it in a worker
thread of Trio, after some seconds in which most calls come to their end.

**A name is given once** by a conditional PUT (`If-None-Match: *`). Servers that do not know the header ignore it, and
overwrite; so `ObjectStore.check` tries it before anything is trusted to a store. Where an answer is lost, the object
itself tells whose it is: each has a token of its upload in its metadata.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, MissingExtraError
from trio_cogment.base.records import record

if TYPE_CHECKING:
    from obstore.store import ObjectStore as _Store

T = TypeVar("T")

#: Buckets of S3 and of what speaks its protocol, of Google Cloud Storage, and containers of Azure.
SCHEMES = ("s3", "gs", "az")

#: An upload in parts has parts of this size, which S3 limits to 10,000.
PART_BYTES = 8 * 1024 * 1024
#: How many parts of one upload are on their way at a time; all of them are in memory.
_PARTS = 4

#: One request may take this long. What is lost on the way is repeated with growing pauses, for a time that a restart
#: of a server takes.
_REQUEST_SECONDS = 30
_CONNECT_SECONDS = 5
_RETRY_SECONDS = 60
_PAUSE_SECONDS = (0.1, 2.0)
_RETRIES = 1000  # the time is what counts

#: The variables by which the library knows another server than the provider's.
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
}

#: The length of what `new_token` returns.
TOKEN_CHARACTERS = 32

#: How often somebody who waits looks whether the wait is cancelled, and how long a call may take to its end then.
_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 5.0

#: The metadata of an object that says which upload has made it.
_TOKEN = "upload"

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")

#: Codes of servers, and other words of errors, with what they are as errors of a file.
_KINDS = (
    (re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist"), errno.ENXIO),
    (re.compile("StorageFull|InsufficientStorage|status code: 507"), errno.ENOSPC),
    (re.compile("QuotaExceeded"), errno.EDQUOT),
    (re.compile("AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Forbidden|status code: 40[13]"), errno.EACCES),
    (re.compile("RequestTimeTooSkewed"), errno.EACCES),
    (re.compile("Connection refused"), errno.ECONNREFUSED),
    (re.compile("timed out|Timeout"), errno.ETIMEDOUT),
    (re.compile("reset by peer|connection closed|error sending request|dns error"), errno.ECONNRESET),
)

#: The process that has made the first call: the library's threads are in that one only.
_used_by: list[int] = []


def is_object_url(address: object) -> TypeGuard[str]:
    """Whether an address is one of a bucket: `s3://`, `gs://` or `az://`."""
    return isinstance(address, str) and address.partition("://")[0].lower() in SCHEMES and "://" in address


def new_token() -> str:
    """Return a name that nobody else has."""
    return secrets.token_hex(TOKEN_CHARACTERS // 2)


class ChangedError(OSError):
    """An object is no longer the one that was read, or is gone."""


@record()
class Found:
    """An object that was read.

    Attributes:
        data: all of it; empty if it is larger than what was asked for.
        size: in bytes.
        version: what identifies its content; see `ObjectStore.put`.
        token: of the upload that has made it; empty if it was something else.
        modified: when, by the clock of the server.
    """

    data: bytes
    size: int
    version: str
    token: str
    modified: datetime


@record()
class Entry:
    """An object in a list.

    Attributes:
        key: its key.
        size: in bytes.
        modified: when it was written, by the clock of the server.
    """

    key: str
    size: int
    modified: datetime


class ObjectStore:
    """The objects under a prefix of a bucket; every method may be called from any thread.

    Credentials and the address of the server are those of the environment, under the names that the programs of the
    providers have: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` (for another server
    than Amazon's), `GOOGLE_SERVICE_ACCOUNT` and `GOOGLE_BASE_URL`, `AZURE_STORAGE_ACCOUNT_NAME`,
    `AZURE_STORAGE_ACCOUNT_KEY` and `AZURE_ENDPOINT`.

    Args:
        url: such as `s3://bucket/prefix`.
        store: of the library, if it is there already; then the address is only shown.
        retry_seconds: for how long requests are repeated to a server that is away; None: a minute.

    Attributes:
        url: as it was given, without a slash at its end.

    Raises:
        MissingExtraError: the extra `s3` is not installed.
        InvalidArgumentError: the address is none of a bucket.

    Every method raises OSError when the store fails: PermissionError when it refuses, TimeoutError and ConnectionError
    when it cannot be reached, with ENOSPC or EDQUOT when there is no room. A call that has failed in another way than
    by FileNotFoundError, FileExistsError or ChangedError may have had its effect nevertheless.

    A child that was forked from a process that has used an object store cannot use one: an OSError says so.
    """

    def __init__(self, url: str, *, store: _Store | None = None, retry_seconds: float | None = None) -> None:
        if store is None and not is_object_url(url):
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise InvalidArgumentError(f"expected an address that begins with one of {known}, got {url!r}")
        try:
            import obstore
            import obstore.store
        except ModuleNotFoundError as error:
            if error.name != "obstore":
                raise
            raise MissingExtraError.of("obstore", "s3", needed_for=url) from error
        self.url = url.rstrip("/")
        self._library: Any = obstore
        named = (os.environ.get(name, "") for name in _ENDPOINTS.get(url.partition("://")[0].lower(), ()))
        client: Any = {
            "timeout": timedelta(seconds=_REQUEST_SECONDS),
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            # Whoever names a server without TLS means it.
            "allow_http": any(endpoint.lower().startswith("http://") for endpoint in named),
        }
        retry: Any = {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=_RETRY_SECONDS if retry_seconds is None else retry_seconds),
            "backoff": {
                "init_backoff": timedelta(seconds=_PAUSE_SECONDS[0]),
                "max_backoff": timedelta(seconds=_PAUSE_SECONDS[1]),
                "base": 2,
            },
        }
        try:
            self._store = store or obstore.store.from_url(self.url, client_options=client, retry_config=retry)
        except (obstore.exceptions.BaseError, ValueError) as error:
            raise InvalidArgumentError(f"{url}: {_first_line(str(error))}") from error

    # Reading

    def get(self, key: str, *, at_most: int | None = None) -> Found:
        """Return an object.

        Args:
            key: its key.
            at_most: of a larger one, the bytes are left out; None: of none.

        Raises:
            FileNotFoundError: there is none.
        """

        def get() -> Found:
            found = self._library.get(self._store, key)
            meta = found.meta
            wanted = at_most is None or meta["size"] <= at_most
            data = found.bytes().to_bytes() if wanted and meta["size"] else b""
            token = str(found.attributes.get(_TOKEN, ""))
            return Found(data, meta["size"], _version(meta), token, meta["last_modified"])

        return self._call(f"reading {key}", get)

    def get_range(self, key: str, start: int, end: int, *, version: str = "") -> bytes:
        """Return a part of an object, which is not behind its end.

        Args:
            key: its key.
            start: of the part.
            end: of the part; it is not empty.
            version: what the object has to be; empty: anything.

        Raises:
            FileNotFoundError: there is none.
            ChangedError: it is another one.
        """
        options: dict[str, Any] = {"range": (start, end)}
        if e_tag := version.partition(" ")[0]:
            options["if_match"] = e_tag

        def get() -> bytes:
            return bytes(self._library.get(self._store, key, options=options).bytes().to_bytes())

        return self._call(f"reading {key}", get)

    def list(self, prefix: str = "") -> tuple[list[str], list[Entry]]:
        """Return the folders and the objects right under a folder, sorted; the root's with an empty prefix."""

        def find() -> tuple[list[str], list[Entry]]:
            found = self._library.list_with_delimiter(self._store, prefix or None)
            entries = [Entry(one["path"], one["size"], one["last_modified"]) for one in found["objects"]]
            return sorted(found["common_prefixes"]), sorted(entries, key=lambda entry: entry.key)

        return self._call(f"listing {prefix or 'the prefix'}", find)

    # Writing

    def put(self, key: str, data: bytes, *, version: str | None = None) -> str:
        """Write an object; return its version.

        Args:
            key: its key.
            data: all of it.
            version: only replace this one; None: replace whatever is there.

        Raises:
            ChangedError: there is another one, or none.
        """
        mode: dict[str, str] | None = None
        if version is not None:
            e_tag, _, generation = version.partition(" ")
            mode = {"e_tag": e_tag, **({"version": generation} if generation else {})}
        token = new_token()
        try:
            return self._put(key, data, mode, token)
        except ChangedError:
            # Ours, if an answer was lost and the request repeated.
            written = self._made_by(token, key)
            if written is None:
                raise
            return written.version

    def create(self, key: str, data: bytes) -> str:
        """Write an object unless there is one of that name; return its version.

        Raises:
            FileExistsError: there is one.
        """
        token = new_token()
        try:
            return self._put(key, data, "create", token)
        except FileExistsError:
            written = self._made_by(token, key)
            if written is None:
                raise
            return written.version

    def _put(self, key: str, data: bytes, mode: Any, token: str) -> str:
        def put() -> str:
            # In one request, whatever its size: parts would make a conditional request of none.
            options = {"mode": mode, "attributes": {_TOKEN: token}, "use_multipart": False}
            return _version(self._library.put(self._store, key, data, **options))

        return self._call(f"writing {key}", put, conditional=mode is not None)

    def _made_by(self, token: str, key: str) -> Found | None:
        """Return an object if it is the one of an upload."""
        try:
            found = self.get(key, at_most=0)
        except FileNotFoundError:
            return None
        return found if found.token == token else None

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are passed over."""
        wanted = list(keys)
        if wanted:
            self._call(f"deleting {wanted[0]}", lambda: self._library.delete(self._store, wanted))

    def writer(self, key: str) -> Writer:
        """Begin to write an object of any size, in parts."""
        return Writer(self, key)

    # What a store has to be able to do

    def check(self) -> Found:
        """Try all that is needed: to create, read, list and delete, and that nothing is created twice.

        Returns:
            The object that was written for it, and is deleted: with the time of the server.

        Raises:
            FailedPreconditionError: the server overwrites what was only to be created.
        """
        key = f".probe/{new_token()}"
        data = key.encode()
        self.create(key, data)
        try:
            self._check_created(key, data)
            found = self.get(key)
            if found.data != data:
                raise OSError(errno.EIO, f"{key} is not what was written", self.url)
            if key not in [entry.key for entry in self.list(".probe")[1]]:
                raise OSError(errno.EIO, f"{key} was written, and is not in the list", self.url)
        finally:
            self.delete([key])
        return found

    def _check_created(self, key: str, data: bytes) -> None:
        try:
            self._put(key, data, "create", new_token())
        except FileExistsError:
            return
        raise FailedPreconditionError(
            f"{self.url}: the server overwrites objects that are only to be created (it ignores If-None-Match), so "
            "that two writers could take one name. Use a server that knows conditional writes"
        )

    # Waiting

    def _call(self, doing: str, function: Callable[[], T], *, conditional: bool = False) -> T:
        """Run a function of the library in a thread; translate its errors."""
        if not _used_by:
            _used_by.append(os.getpid())
        if _used_by[0] != os.getpid():
            text = "a child that was forked cannot use object stores, as its parent has used one; spawn it"
            raise OSError(errno.ENOTSUP, text, self.url)
        with self._errors(doing, conditional):
            return _interruptible(function)

    @contextmanager
    def _errors(self, doing: str, conditional: bool) -> Iterator[None]:
        exceptions = self._library.exceptions
        try:
            yield
        except FileNotFoundError as error:
            # A bucket that is missing is told in the same way.
            number = errno.ENXIO if _number_of(str(error)) == errno.ENXIO else errno.ENOENT
            raise OSError(number, f"{doing}: {_told(error)}", self.url) from None
        except exceptions.AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, f"{doing}: there is one already", self.url) from None
        except exceptions.PreconditionError as error:
            if not conditional and "NoSuchKey" in str(error):
                raise FileNotFoundError(errno.ENOENT, f"{doing}: it is gone", self.url) from None
            raise ChangedError(errno.ESTALE, f"{doing}: it was changed", self.url) from None
        except exceptions.NotSupportedError as error:
            raise OSError(errno.ENOTSUP, f"{doing}: {_told(error)}", self.url) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, f"{doing}: {_told(error)}", self.url) from error
        except exceptions.BaseError as error:
            raise OSError(_number_of(str(error)), f"{doing}: {_told(error)}", self.url) from error


class Writer:
    """An object that is written in parts; it is there after `close`, and not before. One thread at a time uses it."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self._pending = bytearray()
        library = store._library
        self._file: Any = store._call(
            f"writing {key}",
            lambda: library.open_writer(store._store, key, buffer_size=PART_BYTES, max_concurrency=_PARTS),
        )

    def write(self, data: bytes | bytearray) -> None:
        """Append. Raises OSError: then only `abort` may follow."""
        self._pending += data
        if len(self._pending) >= PART_BYTES:
            self._flush()

    def _flush(self) -> None:
        part, self._pending = self._pending, bytearray()
        if part:
            self._store._call(f"writing {self._key}", lambda: self._file.write(part))

    def close(self) -> None:
        """Complete the object. Raises OSError."""
        self._flush()
        self._store._call(f"writing {self._key}", self._file.close)
        self._file = None

    def abort(self) -> None:
        """Remove it, complete or not. Raises OSError: what is left of it takes room.

        A writer of the library that is merely dropped leaves its parts on the server, where nobody sees them. So it is
        completed, and deleted then.
        """
        file, self._file = self._file, None
        self._pending.clear()
        if file is not None:
            self._store._call(f"writing {self._key}", file.close)
        self._store.delete([self._key])


def _version(meta: Any) -> str:
    """Return what identifies the content of an object, as one text: its ETag, and its generation if it has one."""
    return f"{meta.get('e_tag') or ''} {meta.get('version') or ''}".strip()


def _first_line(text: str) -> str:
    return text.partition("\n")[0].strip()


def _told(error: Exception) -> str:
    """Return what a server has said, without what is only of use to the authors of the library."""
    text = str(error).partition("Debug source:")[0]
    status, code, message = (pattern.search(text) for pattern in (_STATUS, _CODE, _MESSAGE))
    if code is None:
        return _first_line(text)
    told = f"{status[1]} {code[1]}" if status else code[1]
    return f"{told}: {message[1]}" if message else told


def _number_of(text: str) -> int:
    """Return the number of an error of the system that is most like one of the library."""
    return next((number for pattern, number in _KINDS if pattern.search(text)), errno.EIO)


def _interruptible(function: Callable[[], T]) -> T:
    """Run a function in a thread of its own, and wait for it, unless the wait is interrupted.

    Raises:
        KeyboardInterrupt: Control-C, in the main thread. The function goes on.
        trio.Cancelled: the caller, a worker thread of Trio, was cancelled, and the function has not ended some seconds
            later. It goes on.
    """
    import trio  # not above: the command line looks at addresses before anything runs

    results: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            errors.append(error)
        finally:
            done.set()

    # Nobody waits for a daemon at the end of the program.
    threading.Thread(target=run, name="object store", daemon=True).start()
    give_up: float | None = None
    while not done.wait(_LOOK_SECONDS):
        try:
            trio.from_thread.check_cancelled()
        except RuntimeError:
            continue  # no worker thread of Trio
        except trio.Cancelled:
            give_up = give_up or time.monotonic() + _GRACE_SECONDS
            if time.monotonic() >= give_up:
                raise
    if errors:
        raise errors[0]
    return results[0]
