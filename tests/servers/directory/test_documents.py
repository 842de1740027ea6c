"""Registrations in a bucket, which the library keeps in memory: they outlive a machine, and have one writer."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from trio_cogment.base.errors import InvalidArgumentError, UnavailableError
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.base.object_store import ObjectStore
from trio_cogment.servers.directory import DirectoryServer, Service, _documents
from trio_cogment.servers.directory._documents import Document, document_of

URL = "s3://bucket/platform/directory.json"
HOST = "10.0.0.1"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    kept = MemoryStore()
    monkeypatch.setattr(_documents, "ObjectStore", lambda url: ObjectStore(url, store=kept))
    return ObjectStore("s3://bucket/platform", store=kept)


def document() -> Document:
    return document_of(URL, SystemFiles())


def test_nothing_then_something_then_elsewhere(bucket: ObjectStore) -> None:
    first = document()
    assert first.open() is None
    first.replace(b"1")
    first.replace(b"2")
    second = document()
    assert second.open() == b"2"
    second.replace(b"3")
    for _ in range(2):
        with pytest.raises(FileExistsError, match="another directory has written it; stop one of the two"):
            first.replace(b"4")
    assert bucket.get("directory.json").data == b"3"
    second.replace(b"5")
    assert bucket.get("directory.json").data == b"5"


def test_of_two_that_begin_at_once_one_goes_on(bucket: ObjectStore) -> None:
    first, second = document(), document()
    assert first.open() is second.open() is None
    second.replace(b"second")
    with pytest.raises(FileExistsError):
        first.replace(b"first")
    second.replace(b"again")


def test_what_was_removed_is_written_again(bucket: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    one = document()
    one.open()
    one.replace(b"1")
    bucket.delete(["directory.json"])
    one.replace(b"2")
    assert bucket.get("directory.json").data == b"2"
    assert f"persistence file {URL}: it was removed; it is written again" in caplog.messages


def test_what_cannot_be_parsed_is_kept_beside(bucket: ObjectStore) -> None:
    bucket.create("directory.json", b"nonsense")
    bucket.create("directory.json.unreadable", b"older")
    one = document()
    assert one.open() == b"nonsense"
    assert one.put_aside() == f"{URL}.unreadable.2"
    one.replace(b"1")
    assert bucket.get("directory.json.unreadable.2").data == b"nonsense"


class Losing:
    """The library, of which some writes have their effect and no answer."""

    exceptions = obstore.exceptions

    def __init__(self) -> None:
        self.lost = 0

    def put(self, *arguments: Any, **options: Any) -> Any:
        result = obstore.put(*arguments, **options)
        if self.lost:
            self.lost -= 1
            raise obstore.exceptions.GenericError("operation timed out")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(obstore, name)


@pytest.mark.parametrize("before", [b"", b"0"], ids=["the first write", "a later one"])
def test_a_write_whose_answer_was_lost_is_our_own(bucket: ObjectStore, before: bytes) -> None:
    one = document()
    one.open()
    if before:
        one.replace(before)
    library = one._objects._library = Losing()  # type: ignore[attr-defined]  # of this document
    for number in (b"1", b"2"):
        library.lost = 1
        with pytest.raises(TimeoutError):
            one.replace(number)
    one.replace(b"3")
    one.replace(b"4")
    assert bucket.get("directory.json").data == b"4"


class Hashing(Losing):
    """The library, of which an object's ETag is a hash of its content, as S3's is."""

    @staticmethod
    def tag(data: bytes) -> str:
        return hashlib.md5(data, usedforsecurity=False).hexdigest()

    def put(self, store: Any, key: str, data: bytes, *, mode: Any, **options: Any) -> Any:
        if isinstance(mode, dict):
            found = obstore.get(store, key)
            if self.tag(bytes(found.bytes())) != mode["e_tag"]:
                raise obstore.exceptions.PreconditionError("changed")
            mode = {"e_tag": found.meta["e_tag"]}
        return {**obstore.put(store, key, data, mode=mode, **options), "e_tag": self.tag(data)}

    def get(self, *arguments: Any, **options: Any) -> Any:
        found = obstore.get(*arguments, **options)
        data = found.bytes()
        meta = {**found.meta, "e_tag": self.tag(bytes(data))}
        return SimpleNamespace(meta=meta, attributes=found.attributes, bytes=lambda: data)


async def register(directory: DirectoryServer, host: str = HOST) -> int:
    service = Service(kind=1, protocol=2, host=host, port=9000, properties={"at": host})
    service_id, _ = await directory.register(service, permanent=True)
    return service_id


@pytest.mark.parametrize("hashes", [False, True], ids=["counted", "hashed"])
async def test_a_directory_goes_on_on_another_machine(
    bucket: ObjectStore, hashes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hashes:
        kept = bucket._store

        def hashing(url: str) -> ObjectStore:
            store = ObjectStore(url, store=kept)
            store._library = Hashing()
            return store

        monkeypatch.setattr(_documents, "ObjectStore", hashing)
    async with DirectoryServer(path=URL) as first:
        service_id = await register(first)
        async with DirectoryServer(path=URL) as second:
            assert second.count == 1
            with pytest.raises(UnavailableError):
                await register(first, "10.0.0.2")
            await register(second, "10.0.0.3")
            assert (first.count, second.count) == (1, 2)
    stored = json.loads(bucket.get("directory.json").data)
    assert [one["host"] for one in stored["services"]] == ["10.0.0.1", "10.0.0.3"]
    assert stored["services"][0]["service_id"] == service_id


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3:///key"])
def test_an_address_without_a_key(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expected an object in a bucket"):
        document_of(url, SystemFiles())
