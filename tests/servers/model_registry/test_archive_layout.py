"""Folders of models, stored documents, handles of pages, and the cache: what needs no disk and no clock."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.servers.model_registry import _archive_layout as layout
from trio_cogment.servers.model_registry import _documents as documents
from trio_cogment.servers.model_registry._service import AFTER, Page, check_named, position_of, start_among
from trio_cogment.servers.model_registry._version_cache import Payload, Transient, TransientCache

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
SAFE = re.compile(r"(?!\.)[A-Za-z0-9_.%-]{1,180}")


@given(TEXT)
def test_every_id_has_a_safe_folder(model_id: str) -> None:
    folder = layout.folder_of(model_id)
    assert SAFE.fullmatch(folder)
    path = os.path.normpath(os.path.join("/archive", folder, layout.data_name(folder, 1)))
    assert path == f"/archive/{folder}/{folder}-v000001.data"
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,100}", model_id) and not re.search(r"-v[0-9]+$", model_id):
        assert folder == model_id


@pytest.mark.parametrize(
    ("model_id", "folder"),
    [
        (".hidden", "%2Ehidden"),
        ("..", "%2E."),
        ("a.b", "a.b"),
        ("m-v1", "m%2Dv1"),
        ("m-v1-v000002", "m-v1%2Dv000002"),
        (".a-v1", "%2Ea%2Dv1"),
        ("-v1", "%2Dv1"),
        ("m-v", "m-v"),
        ("m-v1x", "m-v1x"),
        ("a/b c", "a%2Fb%20c"),
    ],
)
def test_what_would_be_taken_for_something_else_is_encoded(model_id: str, folder: str) -> None:
    assert layout.folder_of(model_id) == folder
    assert layout.may_be_encoded(folder) == (folder != model_id)


def test_ids_of_up_to_180_bytes_are_their_own_folders() -> None:
    assert layout.folder_of("x" * 180) == "x" * 180
    assert layout.folder_of("x" * 181) == "%h" + hashlib.sha256(b"x" * 181).hexdigest()
    assert layout.folder_of("/" + "x" * 177) == "%2F" + "x" * 177
    assert layout.folder_of("/" + "x" * 178).startswith("%h")


NASTY = st.lists(st.sampled_from(["%", "2", "E", "h", ".", "/", "-v1", "-", "v", "1", "é", "%2D", "a" * 90])).map(
    "".join
)


@given(st.lists(NASTY.filter(bool) | TEXT, unique=True, min_size=2, max_size=20))
def test_no_two_ids_share_a_folder(ids: list[str]) -> None:
    assert len({layout.folder_of(model_id) for model_id in ids}) == len(ids)


def test_a_folder_that_somebody_else_has_named_is_left_to_them() -> None:
    assert layout.folder_of("a/b") == "a%2Fb"
    taken = layout.folder_of("a/b", {"a%2Fb"})
    assert taken.startswith("%h")
    assert len(taken) == 66


@given(TEXT, st.sets(st.integers(1, layout.MAX_NUMBER)), st.lists(TEXT))
def test_what_is_written_is_found_again(model_id: str, numbers: set[int], others: list[str]) -> None:
    folder = layout.folder_of(model_id)
    names = [layout.model_name(folder), layout.last_name(folder)]
    names += [layout.info_name(folder, number) for number in numbers]
    names += [layout.data_name(folder, number) for number in numbers]
    found = layout.contents_of(folder, [*names, *others, f"{folder}-v1.yaml", f"{folder}-v000000.data"])
    assert found.infos >= numbers
    assert found.data >= numbers
    assert found.has_model
    assert found.has_last
    assert layout.contents_of(folder, [layout.deleted_name(folder)]).deleted


def test_names_that_only_look_like_ours() -> None:
    folder = "foo-v000001"
    ours = ["foo-v000001.yaml", "foo-v000001-v000004.data", "foo-v000001-v1000000.yaml"]
    suffixes = ["-v0000002.data", "-v12345.data", "-v000003.yaml.bak", "-v9999999999.data", "-v000005.datA"]
    names = [*ours, "foo-v000001.data", "x-v000001.data", *(folder + suffix for suffix in suffixes)]
    found = layout.contents_of(folder, names)
    assert found == layout.Contents(has_model=True, infos={1_000_000}, data={4})


@given(TEXT, st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), TEXT))
def test_a_models_document_is_read_again(model_id: str, user_data: dict[str, str]) -> None:
    info = ModelInfo(model_id=model_id, user_data=user_data)
    data = documents.write_model(info)
    assert documents.read_model(data) == info
    assert yaml.safe_load(data) == {"model_id": model_id, "user_data": user_data}


@given(TEXT, st.integers(0, 2**64 - 1), st.integers(1, 2**31 - 1), st.integers(0, 2**63))
def test_a_versions_document_is_read_again(model_id: str, time: int, number: int, size: int) -> None:
    info = ModelVersionInfo(
        model_id=model_id,
        version_number=number,
        creation_timestamp=time,
        archived=True,
        data_hash="abc+/=",
        data_size=size,
        user_data={"yes": "no", "1": "2001-01-01"},
    )
    assert documents.read_version(documents.write_version(info)) == info


REFERENCE = b"""model_id: my model
version_number: 12
creation_timestamp: 2022-07-01T12:00:00.5-04:00
data_hash: jA0kHBlpJ7IuyzzAiJDEbFmJHn3gpjPBFLAzPOGDdBM=
data_size: 5
user_data:
  test1: version_test1
  "2": "2"
"""


def test_the_references_document() -> None:
    info = documents.read_version(REFERENCE)
    assert info.creation_timestamp == 1656691200500000000
    assert (info.model_id, info.version_number, info.data_size) == ("my model", 12, 5)
    assert dict(info.user_data) == {"test1": "version_test1", "2": "2"}
    assert documents.read_model(b"model_id: m\nuser_data: {}\n") == ModelInfo(model_id="m")
    for nothing in (b"", b"user_data:\n", b"user_data: null\n", b"user_data: ~\n", b"user_data: ''\n"):
        assert documents.read_model(b"model_id: m\n" + nothing) == ModelInfo(model_id="m")


def test_documents_are_the_same_whatever_the_order_of_the_user_data() -> None:
    """And each value stands on a line of its own, however long."""
    forth, back = {"a": "1", "b": "2", "c": "long " * 8_000}, {"c": "long " * 8_000, "b": "2", "a": "1"}
    written = [
        [documents.write_model(ModelInfo(model_id="m", user_data=data)) for data in (forth, back)],
        [documents.write_version(ModelVersionInfo(model_id="m", user_data=data)) for data in (forth, back)],
    ]
    for one, other in written:
        assert one == other
        assert [line.split(":")[0].strip() for line in one.decode().splitlines()[-3:]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.000000001Z", 1_000_000_001),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1970-01-01T00:00:00-01:30", 5400 * 10**9),
        ("0001-01-01T00:00:00Z", 0),
        ("1970-1-2t3:04:05.5", (24 * 3600 + 3 * 3600 + 4 * 60 + 5) * 10**9 + 500_000_000),
        ("2554-07-21T23:34:33.709551615Z", 2**64 - 1),
    ],
)
def test_times(text: str, time: int) -> None:
    assert documents.time_of(text) == time


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe\x00", b"[", b"- a", b"model_id: [a]", b"user_data: {}", b"model_id: a\nuser_data: [1]",
     b"model_id: a\nuser_data: {a: {b: c}}", b"a: &a [*a]\nb: *c", b"? [a]\n: b", b"\x00" * 100,
     b"model_id: a\nuser_data: {? [a] : b}", b"model_id: a\nuser_data: {? {a: b} : c}"],
)  # fmt: skip
def test_what_is_no_document(data: bytes) -> None:
    with pytest.raises(documents.DocumentError):
        documents.read_model(data)
    with pytest.raises(documents.DocumentError):
        documents.read_version(data)


@pytest.mark.parametrize("loader", [documents._loader(), yaml.BaseLoader])
@pytest.mark.parametrize("nested", [b"- " * 50_000, b"a: " + b"[" * 50_000, b"[" * 5_000 + b"]" * 5_000])
def test_a_document_that_is_nested_too_deeply_is_none(
    loader: Any, nested: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_loader", lambda: loader)  # that of libyaml is not everywhere
    with pytest.raises(documents.DocumentError, match=r"^no YAML: "):
        documents.read_model(nested)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version_number", "x"),
        ("version_number", "-1"),
        ("version_number", "99999999999"),
        ("data_size", "1.5"),
        ("data_size", "-3"),
        ("creation_timestamp", "yesterday"),
        ("creation_timestamp", "2022-13-01T00:00:00Z"),
        ("creation_timestamp", "2022-02-29T00:00:00Z"),
        ("creation_timestamp", "0000-01-01T00:00:00Z"),
        ("creation_timestamp", "2022-01-01T24:00:00Z"),
        ("creation_timestamp", "2022-01-01T00:60:00Z"),
        ("creation_timestamp", "2022-01-01T00:00:60Z"),
        ("creation_timestamp", "9999-01-01T00:00:00Z"),
    ],
)
def test_what_is_no_version(field: str, value: str) -> None:
    text = re.sub(rf"^{field}: .*$", f"{field}: {value}", REFERENCE.decode(), flags=re.MULTILINE)
    with pytest.raises(documents.DocumentError):
        documents.read_version(text.encode())


def test_handles() -> None:
    ids = ["a", "b", "c"]
    assert [start_among(ids, handle, "h") for handle in ("", "0", "2", "9", AFTER + "a", AFTER + "bb", AFTER)] == [
        0, 0, 2, 3, 1, 2, 0,
    ]  # fmt: skip
    assert position_of("", "h") == 0
    with pytest.raises(InvalidArgumentError, match=r"h: .* 'x'"):
        position_of("x", "h")
    check_named(range(10_000), "names")
    with pytest.raises(InvalidArgumentError, match="names: expected at most 10000, got 10001"):
        check_named(range(10_001), "names")


def test_a_page_has_one_row_at_least_and_none_after_one_that_did_not_fit() -> None:
    large, small = ModelInfo(model_id="x" * 100), ModelInfo(model_id="x")
    page = Page(0, 50)
    assert [page.takes(large), page.takes(small), page.takes(small)] == [True, False, False]
    page = Page(0, 50)
    assert [page.takes(small), page.takes(large), page.takes(small)] == [True, False, False]
    page = Page(2, 50)
    assert page.wanted == 2
    assert [page.takes(small), page.takes(small), page.takes(small)] == [True, True, False]
    assert page.wanted == 0


def test_a_handle_has_at_most_20_digits_and_a_long_one_is_told_shortened() -> None:
    assert position_of("9" * 20, "h") == 10**20 - 1
    for handle in ("9" * 21, "-1", "1 ", "\N{ARABIC-INDIC DIGIT ONE}", "x" * 81):
        with pytest.raises(InvalidArgumentError) as caught:
            position_of(handle, "h")
        assert str(caught.value).endswith(f"got {handle[:80]!r}")


def test_a_page_is_filled_to_the_last_byte() -> None:
    row = ModelInfo(model_id="x")
    page = Page(0, 2 * row.ByteSize())
    assert page.wanted > 2**32
    assert [page.takes(row) for _ in range(3)] == [True, True, False]
    assert page.rows == 2
    page = Page(0, 2 * row.ByteSize() - 1)
    assert [page.takes(row) for _ in range(2)] == [True, False]


@given(st.lists(st.integers(0, 700_000), max_size=8), st.integers(1, 600_000))
@example([10, 300_000, 10], 1000)
def test_a_payload_comes_back_in_chunks(sizes: list[int], chunk: int) -> None:
    payload = Payload()
    whole = b""
    for index, size in enumerate(sizes):
        piece = bytes([index + 1]) * size
        payload.append(piece)
        whole += piece
    payload.finish()
    chunks = list(payload.chunks(chunk))
    assert b"".join(chunks) == whole
    assert payload.size == len(whole)
    assert all(len(piece) == chunk for piece in chunks[:-1])
    assert not chunks or 0 < len(chunks[-1]) <= chunk


def transient(owner: str, number: int, size: int = 1) -> Transient:
    payload = Payload()
    payload.append(b"x" * size)
    return Transient(owner, ModelVersionInfo(version_number=number), payload)


def test_the_cache_keeps_what_was_used_last_and_the_newest_of_each_model() -> None:
    cache = TransientCache(4, 1000)
    rare = transient("rare", 1)
    versions = [transient("busy", number) for number in range(10)]
    assert cache.add(rare) == []
    assert [cache.add(version) for version in versions[:3]] == [[], [], []]
    cache.touch(versions[0])
    assert cache.add(versions[3]) == [versions[1]]
    assert cache.add(versions[4]) == [versions[2]]
    assert cache.add(versions[5]) == [versions[0]]
    assert (len(cache), cache.bytes) == (4, 4)
    cache.remove(versions[0])
    cache.touch(versions[0])
    assert len(cache) == 4
    others = [transient(f"other{number}", 1) for number in range(4)]
    assert [cache.add(other) for other in others] == [[versions[3]], [versions[4]], [rare], [versions[5]]]
    assert cache.add(transient("large", 1, 999)) == others[:3]
    assert (len(cache), cache.bytes) == (2, 1000)


@pytest.mark.parametrize(("items", "size"), [(5, 1000), (1000, 50)])
def test_the_account_that_has_most_in_the_cache_loses_versions_first(items: int, size: int) -> None:
    """Though all of its are the newest of their models, and the others' are older and not."""
    cache = TransientCache(items, size, lambda owner: str(owner)[0])
    mine = [transient("a model", number, 10) for number in range(2)]
    theirs = [transient(f"b model {number}", 1, 10) for number in range(20)]
    evicted = [one for version in (*mine, *theirs) for one in cache.add(version)]
    assert evicted == theirs[:17]
    assert (len(cache), cache.bytes) == (5, 50)


def test_a_version_counts_with_its_description() -> None:
    version = transient("m", 1, 100)
    assert version.counted_bytes == 100 + version.info.ByteSize() > 100


def test_the_cache_recounts_itself() -> None:
    cache = TransientCache(2, 1000)
    first, second = transient("m", 1, 30), transient("n", 1, 12)
    cache.add(first)
    cache.add(second)
    assert [(count.kept, count.counted) for count in cache.recount()] == [(42, 42), (2, 2)]
    cache.remove(first)
    cache.remove(first)
    assert [(count.kept, count.counted) for count in cache.recount()] == [(12, 12), (1, 1)]


def test_tiny_pieces_are_joined() -> None:
    payload = Payload()
    for _ in range(3000):
        payload.append(b"x" * 200)
    payload.finish()
    payload.finish()  # which changes nothing
    assert payload.size == 600_000
    assert len(payload._pieces) == 3  # of 256 KiB and a little, and the rest
    exact = Payload()
    for size in (256 * 1024 - 1, 1, 256 * 1024, 256 * 1024 - 1):
        exact.append(bytes(size))
    assert [len(piece) for piece in exact._pieces] == [256 * 1024] * 2
    exact.finish()
    assert [len(piece) for piece in exact._pieces] == [256 * 1024, 256 * 1024, 256 * 1024 - 1]
