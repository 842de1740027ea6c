"""The kit for stores of blobs on a bucket in memory, and what is the bucket's alone: pointers, notes, leftovers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.base.errors import UnavailableError
from trio_cogment.base.object_store import PART_BYTES, Found, ObjectStore
from trio_cogment.budget.transfer_slots import Transfer
from trio_cogment.servers.model_registry import BlobStore, ModelRegistry, ObjectBlobs
from trio_cogment.servers.model_registry.blobs import put
from trio_cogment.testing.conformance.blobs import CASES, LARGE

POINTER = b"trio-cogment blob "


def a_bucket() -> ObjectStore:
    return ObjectStore("s3://bucket/models", store=MemoryStore())


@pytest.mark.parametrize("small_bytes", [0, PART_BYTES], ids=["parts", "whole"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_kit(case: Callable[[BlobStore], None], small_bytes: int) -> None:
    bucket = a_bucket()
    store = ObjectBlobs(bucket, small_bytes=small_bytes)
    store.open()
    case(store)
    store.close()
    assert bucket.list(".uploads") == ([], [])
    pointers = [
        found
        for folder in store.folders()
        for name in store.names(folder)
        if (found := bucket.get(f"{folder}/{name}")).data.startswith(POINTER)
    ]
    # Bytes without a name are never left, and names without bytes neither.
    assert len(bucket.list(".blobs")[1]) == len(pointers)


def test_small_blobs_are_objects_and_large_ones_have_pointers() -> None:
    bucket = a_bucket()
    store = ObjectBlobs(bucket)
    store.open()
    put(store, "walker", "small", b"x" * PART_BYTES)
    assert bucket.get("walker/small").size == PART_BYTES
    put(store, "walker", "large", b"x" * (PART_BYTES + 1))
    assert bucket.get("walker/large").data.startswith(POINTER)
    store.delete("walker", ["small", "large"])
    assert bucket.list(".blobs") == bucket.list("walker") == ([], [])


def test_what_looks_like_a_pointer_is_kept_as_bytes() -> None:
    bucket = a_bucket()
    store = ObjectBlobs(bucket)
    store.open()
    put(store, "walker", "large", LARGE * 2)
    pointer = bucket.get("walker/large").data
    put(store, "other", "mimicry", pointer)
    assert store.read("other", "mimicry") == pointer
    store.delete("other", ["mimicry"])
    assert store.read("walker", "large") == LARGE * 2


def test_an_archive_that_was_copied_from_a_folder() -> None:
    """Also with blobs that are larger than what this store would write whole."""
    bucket = a_bucket()
    bucket.create("walker/walker.yaml", b"model_id: walker\n")
    bucket.create("walker/large", LARGE * 2)
    store = ObjectBlobs(bucket)
    store.open()
    assert store.folders() == ["walker"]
    blob = store.open_blob("walker", "large")
    assert blob.size == len(LARGE) * 2
    assert blob.read(len(LARGE) - 1, 3) == LARGE[-1:] + LARGE[:2]
    bucket.put("walker/large", LARGE * 2 + b"x")
    with pytest.raises(OSError, match="changed"):
        blob.read(blob.size - 1, 1)


def test_bytes_that_are_gone_are_damage_and_not_absence() -> None:
    bucket = a_bucket()
    store = ObjectBlobs(bucket, small_bytes=0)
    store.open()
    put(store, "walker", "name", b"x")
    bucket.delete([entry.key for entry in bucket.list(".blobs")[1]])
    with pytest.raises(OSError, match="bytes are gone") as caught:
        store.read("walker", "name")
    assert not isinstance(caught.value, FileNotFoundError)


class Later(ObjectStore):
    """A bucket whose clock may be ahead when it is asked."""

    hours = 0.0

    def check(self) -> Found:
        ahead = datetime.now(UTC) + timedelta(hours=self.hours)
        return dataclasses.replace(super().check(), modified=ahead)


def test_what_interrupted_uploads_have_left_goes_a_day_later() -> None:
    bucket = Later("s3://bucket", store=MemoryStore())
    store = ObjectBlobs(bucket, small_bytes=0)
    store.open()
    unfinished = store.upload()
    unfinished.write(b"1")
    finished = store.upload()
    finished.write(b"2")
    finished.finish()
    put(store, "walker", "name", b"3")
    store.close()
    for bucket.hours, left in ((23.0, 2), (25.0, 0)):
        store = ObjectBlobs(bucket, small_bytes=0)
        store.open()
        assert len(bucket.list(".uploads")[1]) == left
        store.close()
    assert len(bucket.list(".blobs")[1]) == 1
    assert store.read("walker", "name") == b"3"


def test_a_note_of_what_has_its_name_removes_nothing() -> None:
    """The program ended between the name and the end of the note."""
    bucket = Later("s3://bucket", store=MemoryStore())
    store = ObjectBlobs(bucket, small_bytes=0)
    store.open()
    put(store, "walker", "name", b"x")
    token = bucket.get("walker/name").data.split()[2].decode()
    bucket.create(f".uploads/{token}", b"walker/name")
    bucket.hours = 25
    store.open()
    assert store.read("walker", "name") == b"x"
    assert bucket.list(".uploads") == ([], [])


def test_an_upload_that_has_taken_longer_than_leftovers_are_kept_gets_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectBlobs(a_bucket(), small_bytes=0)
    store.open()
    upload = store.upload()
    upload.write(b"x")
    upload.finish()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 21 * 3600)
    with pytest.raises(TimeoutError, match="too long"):
        upload.commit("walker", "name")
    upload.abort()
    assert store.folders() == []


def test_an_open_archive_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    bucket = a_bucket()
    first, second = ObjectBlobs(bucket), ObjectBlobs(bucket)
    first.open()
    assert caplog.messages == []
    second.open()
    assert "and not closed: if that still runs, stop it" in caplog.text
    first.close()  # the note is the second one's
    assert [entry.key for entry in bucket.list()[1]] == [".opened"]
    second.close()
    assert bucket.list() == ([], [])
    caplog.clear()
    bucket.create(".opened", b"{")
    first.open()
    assert "is not what a registry writes" in caplog.text


class Library:
    """The library, whose request with a certain number fails: before it has an effect, or behind it."""

    def __init__(self, fails_at: int, behind: bool) -> None:
        self.exceptions = obstore.exceptions
        self.requests = 0
        self._fails_at = fails_at
        self._behind = behind

    def _request(self, name: str, *arguments: Any, **options: Any) -> Any:
        self.requests += 1
        fails = self.requests == self._fails_at
        if fails and not self._behind:
            raise obstore.exceptions.GenericError("connection closed before message completed")
        result = getattr(obstore, name)(*arguments, **options)
        if fails:
            raise obstore.exceptions.GenericError("operation timed out")
        return result

    def open_writer(self, *arguments: Any, **options: Any) -> Any:
        return Part(self, obstore.open_writer(*arguments, **options))

    def __getattr__(self, name: str) -> Any:
        return partial(self._request, name)


class Part:
    def __init__(self, library: Library, file: Any) -> None:
        self._library = library
        self._file = file

    def write(self, data: bytes) -> None:
        self._library.requests += 1
        self._file.write(data)

    def close(self) -> None:
        self._library.requests += 1
        if self._library.requests == self._library._fails_at:
            raise obstore.exceptions.GenericError("operation timed out")
        self._file.close()


async def stored(registry: ModelRegistry, data: bytes) -> int:
    info = ModelVersionInfo(model_id="walker", archived=True, data_size=len(data))
    async with registry.receiving(info, Transfer("here", False, int)) as upload:
        await upload.write(data)
        return (await registry.add(upload)).version_number


async def versions(registry: ModelRegistry) -> dict[int, bytes]:
    model, found = registry.find("walker"), {}
    for number in model.numbers:
        data = b""
        async with registry.sending("walker", number, Transfer("here", False, int)) as sending:
            while chunk := await sending.next_chunk():
                data += chunk
        found[number] = data
    return found


@pytest.mark.parametrize("small_bytes", [0, PART_BYTES], ids=["parts", "whole"])
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
async def test_any_request_of_an_upload_may_fail(small_bytes: int, behind: bool) -> None:
    """What was acknowledged is there; what was not is there as a whole, or not; no number is given twice."""
    failures = 0
    for fails_at in range(1, 100):
        bucket = a_bucket()
        opened = ObjectBlobs(bucket, small_bytes=small_bytes)
        seen: dict[int, bytes] = {}
        async with ModelRegistry(opened) as registry:
            await registry.create_or_update(ModelInfo(model_id="walker"))
            seen[await stored(registry, b"first")] = b"first"
            bucket._library = library = Library(fails_at, behind)
            try:
                seen[await stored(registry, b"second")] = b"second"
            except UnavailableError:
                failures += 1
            done = library.requests < fails_at
            bucket._library = obstore
            seen[await stored(registry, b"third")] = b"third"
        async with ModelRegistry(ObjectBlobs(bucket, small_bytes=small_bytes)) as registry:
            found = await versions(registry)
            assert found.items() >= seen.items()
            assert set(found.values()) <= {b"first", b"second", b"third"}
            number = await stored(registry, b"fourth")
            assert number not in found
            assert number > max(seen)
        if done:
            break
    assert failures >= (2 if small_bytes else 4)
    assert fails_at > failures


async def test_two_registries_of_one_bucket_overwrite_nothing() -> None:
    """They are not meant to; each gives numbers that the other has not given."""
    bucket = a_bucket()
    async with ModelRegistry(ObjectBlobs(bucket)) as first:
        await first.create_or_update(ModelInfo(model_id="walker"))
        async with ModelRegistry(ObjectBlobs(bucket)) as second:
            given = {}
            for data in (b"1", b"2", b"3"):
                given[await stored(first, b"first" + data)] = b"first" + data
                given[await stored(second, b"second" + data)] = b"second" + data
    assert len(given) == 6
    async with ModelRegistry(ObjectBlobs(bucket)) as third:
        assert await versions(third) == given
