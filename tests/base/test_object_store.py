"""Object stores over obstore's store in memory: versions, names that are given once, errors, waits, forks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import obstore
import pytest
import trio
from obstore.store import MemoryStore

from trio_cogment.base import object_store
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, MissingExtraError
from trio_cogment.base.object_store import ChangedError, ObjectStore, is_object_url

URL = "s3://bucket/prefix"


def store_in_memory() -> ObjectStore:
    return ObjectStore(URL, store=MemoryStore())


def test_addresses() -> None:
    for url in ("s3://b", "S3://b/p", "gs://b/p", "az://c"):
        assert is_object_url(url)
    for other in ("", "models", "s3", "s3:/b", "postgresql://h/d", "./s3://b", None, 3):
        assert not is_object_url(other)
    with pytest.raises(InvalidArgumentError, match="one of s3://, gs://, az://, got 'models'"):
        ObjectStore("models")
    with pytest.raises(InvalidArgumentError, match="s3://"):
        ObjectStore("s3://")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtraError, match=r"s3://bucket/prefix needs it.*trio-cogment\[s3\]"):
        ObjectStore(URL)


def test_a_name_is_given_once_and_replaced_if_unchanged() -> None:
    store = store_in_memory()
    first = store.create("a/b", b"1")
    with pytest.raises(FileExistsError):
        store.create("a/b", b"2")
    second = store.put("a/b", b"3", version=first)
    with pytest.raises(ChangedError):
        store.put("a/b", b"4", version=first)
    assert store.get("a/b").data == b"3"
    assert store.get("a/b").version == second
    store.put("a/b", b"5")
    store.delete(["a/b", "a/none"])
    with pytest.raises(ChangedError):
        store.put("a/b", b"6", version=second)
    with pytest.raises(FileNotFoundError):
        store.get("a/b")
    with pytest.raises(FileNotFoundError):
        store.get_range("a/b", 0, 1)


def test_reading() -> None:
    store = store_in_memory()
    version = store.create("a", b"0123456789")
    assert store.get("a", at_most=9).data == b""
    assert store.get("a", at_most=9).size == 10
    assert store.get("a", at_most=10).data == b"0123456789"
    assert store.get_range("a", 2, 5, version=version) == b"234"
    store.put("a", b"9876543210")
    with pytest.raises(ChangedError):
        store.get_range("a", 2, 5, version=version)
    store.create("empty", b"")
    assert store.get("empty").data == b""
    for key in ("f/x", "f/y", "g/z", "fold"):
        store.create(key, b"")
    folders, entries = store.list()
    assert folders == ["f", "g"]
    assert [entry.key for entry in entries] == ["a", "empty", "fold"]
    assert [entry.key for entry in store.list("f")[1]] == ["f/x", "f/y"]


def test_what_is_written_in_parts_is_there_when_it_is_closed() -> None:
    store = store_in_memory()
    part = bytes(range(256)) * 4096
    writer = store.writer("large")
    for _ in range(20):
        writer.write(part)
    with pytest.raises(FileNotFoundError):
        store.get("large")
    writer.close()
    assert store.get("large").data == part * 20
    other = store.writer("dropped")
    other.write(part * 9)
    other.abort()
    with pytest.raises(FileNotFoundError):
        store.get("dropped")


class Forgetful:
    """The library, whose answers to writes are lost: they are repeated, and the second ones refused."""

    def __init__(self) -> None:
        self.exceptions = obstore.exceptions
        self.twice = True

    def put(self, *arguments: Any, **options: Any) -> Any:
        result = obstore.put(*arguments, **options)
        return obstore.put(*arguments, **options) if self.twice else result

    def __getattr__(self, name: str) -> Any:
        return getattr(obstore, name)


def test_an_answer_that_was_lost_is_found_out() -> None:
    store = store_in_memory()
    store._library = Forgetful()
    first = store.create("a", b"1")
    assert store.get("a").version == first
    second = store.put("a", b"2", version=first)
    assert store.get("a").version == second
    with pytest.raises(FileExistsError):
        store.create("a", b"1")  # the same bytes of somebody else are not ours
    with pytest.raises(ChangedError):
        store.put("a", b"2", version=first)


class Overwriting(Forgetful):
    """The library, with a server that ignores If-None-Match."""

    def put(self, *arguments: Any, **options: Any) -> Any:
        return obstore.put(*arguments, **{**options, "mode": None})


def test_the_probe() -> None:
    store = store_in_memory()
    assert abs(store.check().modified.timestamp() - time.time()) < 60
    assert store.list() == ([], [])
    store._library = Overwriting()
    with pytest.raises(FailedPreconditionError, match=r"s3://bucket/prefix: .*ignores If-None-Match.*conditional"):
        store.check()
    assert store.list() == ([], [])


@pytest.mark.parametrize(
    ("error", "kind", "number", "told"),
    [
        (
            obstore.exceptions.GenericError(
                "Generic S3 error: Server returned non-2xx status code: 404 Not Found: <Error><Code>NoSuchBucket</Code>"
                "<Message>The bucket does not exist</Message></Error>\n\nDebug source:\nGeneric {}"
            ),
            OSError,
            errno.ENXIO,
            "404 NoSuchBucket: The bucket does not exist",
        ),
        (FileNotFoundError("no: <Code>NoSuchBucket</Code>"), OSError, errno.ENXIO, "NoSuchBucket"),
        (FileNotFoundError("no: <Code>NoSuchKey</Code>"), FileNotFoundError, errno.ENOENT, "NoSuchKey"),
        (obstore.exceptions.PermissionDeniedError("denied\nmore"), PermissionError, errno.EACCES, "denied"),
        (obstore.exceptions.UnauthenticatedError("who"), PermissionError, errno.EACCES, "who"),
        (obstore.exceptions.GenericError("operation timed out"), TimeoutError, errno.ETIMEDOUT, "timed out"),
        (
            obstore.exceptions.GenericError("Connection refused (os error 111)"),
            ConnectionRefusedError,
            errno.ECONNREFUSED,
            "refused",
        ),
        (obstore.exceptions.GenericError("<Code>XMinioStorageFull</Code>"), OSError, errno.ENOSPC, "StorageFull"),
        (obstore.exceptions.GenericError("<Code>QuotaExceeded</Code>"), OSError, errno.EDQUOT, "QuotaExceeded"),
        (obstore.exceptions.NotSupportedError("cannot"), OSError, errno.ENOTSUP, "cannot"),
        (obstore.exceptions.GenericError("else"), OSError, errno.EIO, "else"),
    ],
)
def test_errors_are_those_of_files(error: Exception, kind: type[OSError], number: int, told: str) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(kind) as caught:
        store_in_memory()._call("reading key", fail)
    assert caught.value.errno == number
    assert caught.value.filename == URL
    assert caught.value.strerror is not None
    assert caught.value.strerror.startswith("reading key: ")
    assert told in caught.value.strerror
    assert "Debug source" not in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError) == (number == errno.ENOENT)


async def test_a_cancelled_wait_ends_though_the_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_GRACE_SECONDS", 0.2)
    answered = threading.Event()

    def silent() -> bool:
        return answered.wait(60)

    call: Callable[[], bool] = lambda: store_in_memory()._call("reading", silent)  # noqa: E731 - read once
    try:
        with trio.move_on_after(0.1) as scope:
            await trio.to_thread.run_sync(call)
        assert scope.cancelled_caught
    finally:
        answered.set()


async def test_a_call_that_is_nearly_done_comes_to_its_end() -> None:
    begun, answered = threading.Event(), threading.Event()

    def slow() -> bool:
        begun.set()
        return answered.wait(60)

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            results: list[bool] = []

            async def call() -> None:
                results.append(await trio.to_thread.run_sync(lambda: store_in_memory()._call("writing", slow)))

            nursery.start_soon(call)
            await trio.to_thread.run_sync(begun.wait)
            scope.cancel()
            answered.set()
    assert results == [True]


def test_control_c_ends_a_wait() -> None:
    code = """
import threading, obstore.store
from trio_cogment.base.object_store import ObjectStore
store = ObjectStore("s3://b", store=obstore.store.MemoryStore())
print("waits", flush=True)
store._call("reading", threading.Event().wait)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        while process.poll() is None:  # it may not have begun to wait
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        assert process.stderr is not None
        assert b"KeyboardInterrupt" in process.stderr.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_is_told_why_it_cannot() -> None:
    code = """
import os, obstore.store
from trio_cogment.base.object_store import ObjectStore
store = ObjectStore("s3://b", store=obstore.store.MemoryStore())
store.create("a", b"")
if os.fork() == 0:
    try:
        store.get("a")
    except OSError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    assert "a child that was forked cannot use object stores" in done.stdout
