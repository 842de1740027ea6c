"""Data sets in a bucket, which the library keeps in memory: written, read back, replaced, and left by half."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from tests.rl.datasets.recorded import Duel, play, recording
from trio_cogment import Platform
from trio_cogment.base.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError
from trio_cogment.base.object_store import ObjectStore
from trio_cogment.rl import export_async, replay_environment
from trio_cogment.rl.datasets import bucket as bucket_module

URL = "s3://bucket/duel"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectStore:
    kept = MemoryStore()
    monkeypatch.setattr(bucket_module, "ObjectStore", lambda url: ObjectStore(url, store=kept))
    monkeypatch.setattr(bucket_module.tempfile, "tempdir", str(tmp_path))  # type: ignore[attr-defined]  # the module
    return ObjectStore(URL, store=kept)


def keys(bucket: ObjectStore) -> set[str]:
    return set(bucket_module._walk(bucket, ""))


WHOLE = {"README.md", "meta/info.json", "meta/trials.parquet", "data/file-00000.parquet"}


async def write(platform: Platform, *trials: str, **options: Any) -> None:
    done = await export_async(platform, parquet=URL, trials=trials, **options)
    assert done.parquet == URL


async def test_what_is_written_is_read_back(bucket: ObjectStore, tmp_path: Path) -> None:
    game = Duel()
    async with recording(game) as platform:
        await play(platform, game, "one")
        await play(platform, game, "two")
        await write(platform, "one", "two")
    assert keys(bucket) == WHOLE
    assert os.listdir(tmp_path) == []
    rows = pq.read_table(io.BytesIO(bucket.get("data/file-00000.parquet").data)).num_rows
    assert rows == json.loads(bucket.get("meta/info.json").data)["total_rows"]
    replay = replay_environment(URL, check_actions=True)
    assert replay.episodes == 2
    for index in (0, 1, 0):
        replay.reset(None, None)
        for tick in range(6):
            assert not replay.over
            told = replay.step(game.actions[index][tick])
            assert told.keys() <= set(game.agents)
        assert replay.over


async def test_a_data_set_is_replaced_only_if_that_is_wanted(bucket: ObjectStore) -> None:
    game = Duel()
    async with recording(game) as platform:
        for name in ("one", "two"):
            await play(platform, game, name)
        await write(platform, "one", "two")
        with pytest.raises(AlreadyExistsError, match=r"s3://bucket/duel: it exists already; overwrite=True"):
            await write(platform, "one")
        bucket.create("meta/mine.txt", b"")
        with pytest.raises(FailedPreconditionError, match=r"not of the data set: meta/mine\.txt; so"):
            await write(platform, "one", overwrite=True)
        bucket.delete(["meta/mine.txt"])
        await write(platform, "one", overwrite=True)
        assert keys(bucket) == WHOLE
        assert replay_environment(URL).episodes == 1
        bucket.delete(["meta/info.json"])
        with pytest.raises(FailedPreconditionError, match="is not a data set"):
            await write(platform, "one", overwrite=True)
        with pytest.raises(NotFoundError, match=r"s3://bucket/duel: expected a data set"):
            replay_environment(URL)


class Library:
    """The library, whose requests fail from a certain one on."""

    exceptions = obstore.exceptions

    def __init__(self, left: int) -> None:
        self._left = left

    def __getattr__(self, name: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise obstore.exceptions.GenericError("connection closed before message completed")
        return getattr(obstore, name)


async def test_a_bucket_that_goes_away_leaves_no_data_set_by_half(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it leaves is replaced by the next export."""
    kept = bucket._store
    game = Duel()
    left = -1

    def failing(url: str) -> ObjectStore:
        store = ObjectStore(url, store=kept)
        if left >= 0:
            store._library = Library(left)
        return store

    monkeypatch.setattr(bucket_module, "ObjectStore", failing)
    async with recording(game) as platform:
        await play(platform, game, "one")
        by_half = 0
        for requests in range(200):
            left = requests
            try:
                await write(platform, "one", overwrite=True)
            except OSError:
                by_half += "meta/exporting.json" in keys(bucket)
                if "meta/info.json" in keys(bucket):
                    assert keys(bucket) >= WHOLE  # all but the end of the note
                left = -1
                if "meta/exporting.json" in keys(bucket):
                    with pytest.raises(AlreadyExistsError, match="under way there, or was interrupted"):
                        await write(platform, "one")
                    await write(platform, "one", overwrite=True)
                    assert keys(bucket) == WHOLE
                for key in keys(bucket):
                    bucket.delete([key])
            else:
                break
        assert by_half > 2
    assert keys(bucket) == WHOLE


def test_a_file_is_read_from_where_the_last_part_ended(bucket: ObjectStore) -> None:
    bucket.put("letters", b"abcdefg")
    found = bucket.get("letters", at_most=0)
    with bucket_module._RemoteFile(bucket, "letters", found.size, found.version) as file:
        assert [file.read(3), file.tell(), file.read(3), file.read(3), file.read(3)] == [b"abc", 3, b"def", b"g", b""]
        assert (file.seek(-2, os.SEEK_END), file.read(5)) == (5, b"fg")
