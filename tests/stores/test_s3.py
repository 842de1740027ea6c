"""Models in a bucket of a real server: the kit, a server that goes away, the command line."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
from pyarrow.dataset import dataset
from pyarrow.fs import S3FileSystem

from tests.ports import free_port
from tests.rl.datasets.recorded import Duel, play, recording
from tests.stores import s3
from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.base import object_store
from trio_cogment.base.errors import FailedPreconditionError, UnavailableError
from trio_cogment.base.object_store import PART_BYTES, ObjectStore
from trio_cogment.budget.transfer_slots import Transfer
from trio_cogment.rl import export_async, replay_environment
from trio_cogment.servers.directory import DirectoryServer, Service
from trio_cogment.servers.model_registry import BlobStore, ModelRegistry, ObjectBlobs
from trio_cogment.testing.conformance.blobs import CASES

pytestmark = pytest.mark.stores

MEBIBYTE = bytes(range(256)) * 4096
_prefixes = (f"s3://{s3.BUCKET}/test-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3.s3_server(tmp_path_factory.mktemp("s3")) as port:
        yield port


@pytest.fixture(autouse=True)
def surroundings(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment(f"http://127.0.0.1:{port}").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def gate(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Gate]:
    one = s3.Gate(port)
    one.open()
    monkeypatch.setenv("AWS_ENDPOINT_URL", one.endpoint)
    yield one
    one.close()


@pytest.mark.parametrize("small_bytes", [0, PART_BYTES], ids=["parts", "whole"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_kit(case: Callable[[BlobStore], None], small_bytes: int) -> None:
    store = ObjectBlobs(next(_prefixes), small_bytes=small_bytes)
    store.open()
    case(store)
    store.close()


def test_a_large_blob_goes_in_parts() -> None:
    store = ObjectBlobs(next(_prefixes))
    store.open()
    upload = store.upload()
    for _ in range(33):
        upload.write(MEBIBYTE)
    upload.finish()
    upload.commit("walker", "name")
    blob = store.open_blob("walker", "name")
    assert blob.size == 33 * len(MEBIBYTE)
    for part in range(33):
        assert blob.read(part * len(MEBIBYTE), len(MEBIBYTE)) == MEBIBYTE
    dropped = store.upload()
    for _ in range(33):
        dropped.write(MEBIBYTE)
    dropped.abort()
    assert len(store.objects.list(".blobs")[1]) == 1
    assert store.objects.list(".uploads")[1] == []


async def stored(registry: ModelRegistry, mebibytes: int, midway: Callable[[], None] = lambda: None) -> int:
    info = ModelVersionInfo(model_id="walker", archived=True, data_size=mebibytes * len(MEBIBYTE))
    async with registry.receiving(info, Transfer("here", False, int)) as upload:
        for number in range(mebibytes):
            if number == mebibytes // 2:
                midway()
            await upload.write(MEBIBYTE)
        return (await registry.add(upload)).version_number


async def whole(registry: ModelRegistry, number: int) -> bool:
    read = 0
    async with registry.sending("walker", number, Transfer("here", False, int)) as sending:
        while chunk := await sending.next_chunk():  # the hash is checked there
            read += len(chunk)
    return read == sending.info.data_size


#: How long a bucket is away: in the default run, and for the long proof.
AWAY_SECONDS = [2, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(240)])]


@pytest.mark.parametrize("seconds", AWAY_SECONDS)
@pytest.mark.parametrize("kind", ["refuses", "stands still"])
async def test_a_bucket_that_is_away_in_the_middle_of_an_upload(tmp_path: Path, kind: str, seconds: int) -> None:
    """It is only delayed: the version is whole when it is told, and no number is given twice."""
    with s3.s3_process(tmp_path) as (port, process):
        gate = s3.Gate(port)
        gate.open()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", gate.endpoint)
            if kind == "refuses":
                await upload_while_away(gate.close, gate.open, seconds)
            else:  # all that was begun hangs, and goes on when it is woken
                stop, wake = (partial(process.send_signal, one) for one in (signal.SIGSTOP, signal.SIGCONT))
                await upload_while_away(stop, wake, seconds)
        gate.close()


async def upload_while_away(go: Callable[[], None], come: Callable[[], None], seconds: int) -> None:
    prefix = next(_prefixes)
    async with ModelRegistry(prefix) as registry, trio.open_nursery() as nursery:
        await registry.create_or_update(ModelInfo(model_id="walker"))
        given = [await stored(registry, 1)]

        async def come_back() -> None:
            await trio.sleep(seconds)
            come()

        def go_away() -> None:
            go()
            nursery.start_soon(come_back)

        given.append(await stored(registry, 40, go_away))
        given.append(await stored(registry, 1))
    assert sorted(set(given)) == given
    async with ModelRegistry(prefix) as registry:
        assert registry.find("walker").numbers == given
        for number in given:
            assert await whole(registry, number)
        assert await stored(registry, 1) > max(given)


async def test_a_server_that_stays_away_ends_an_upload_and_its_number(
    gate: s3.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_RETRY_SECONDS", 1)
    prefix = next(_prefixes)
    given = []
    async with ModelRegistry(prefix) as registry:
        await registry.create_or_update(ModelInfo(model_id="walker"))
        given.append(await stored(registry, 1))
        with pytest.raises(UnavailableError, match="the storage failed"):
            await stored(registry, 40, gate.close)
        with pytest.raises(UnavailableError, match="the storage failed"):
            await registry.version(registry.find("walker"), 1)
        gate.open()
        given.append(await stored(registry, 20))
    async with ModelRegistry(prefix) as registry:
        assert registry.find("walker").numbers == given
        assert len(set(given)) == 2
        for number in given:
            assert await whole(registry, number)
        assert await stored(registry, 1) > max(given)


async def test_a_backup_of_a_bucket_is_restored() -> None:
    """A copy of the prefix, as `aws s3 sync` makes it, while a version is added in the middle of it."""
    prefix, backup = next(_prefixes), next(_prefixes)
    source, target = ObjectStore(prefix), ObjectStore(backup)

    def copy(folder: str = "", *, blobs: bool) -> None:
        folders, entries = source.list(folder)
        for entry in entries:
            target.put(entry.key, source.get(entry.key).data)
        for name in folders:
            if folder or (name == ".blobs") == blobs:
                copy(name, blobs=blobs)

    async with ModelRegistry(prefix) as registry:
        await registry.create_or_update(ModelInfo(model_id="walker"))
        given = [await stored(registry, 1), await stored(registry, 2)]
        copy(blobs=False)
        later = await stored(registry, 1)
        copy(blobs=True)
    async with ModelRegistry(backup) as registry:
        assert registry.find("walker").numbers == given
        for number in given:
            assert await whole(registry, number)
        assert await stored(registry, 1) == later, "what came later has gone, and its number"


async def test_a_directory_goes_on_on_another_machine() -> None:
    """With ETags that are hashes of the content."""
    place = f"{next(_prefixes)}/directory.json"

    async def register(directory: DirectoryServer, host: str) -> None:
        service = Service(kind=1, protocol=2, host=host, port=9000, properties={"at": host})
        await directory.register(service, permanent=True)

    async with DirectoryServer(path=place) as first:
        await register(first, "10.0.0.1")
        async with DirectoryServer(path=place) as second:
            with pytest.raises(UnavailableError):
                await register(first, "10.0.0.2")
            await register(second, "10.0.0.3")
            assert (first.count, second.count) == (1, 2)


async def test_a_data_set_is_read_back_by_others_too() -> None:
    place = f"{next(_prefixes)}/duel"
    game = Duel()
    async with recording(game) as platform:
        await play(platform, game, "one")
        done = await export_async(platform, parquet=place)
    assert done.parquet == place
    replay = replay_environment(place)
    replay.reset(None, None)
    for tick in range(6):
        replay.step(game.actions[0][tick])
    assert replay.over
    endpoint = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    remote = S3FileSystem(endpoint_override=endpoint, scheme="http", region="us-east-1")
    table = dataset(f"{place.removeprefix('s3://')}/data", filesystem=remote).to_table()
    assert table.num_rows > 6


async def test_what_is_wrong_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match=r"NoSuchBucket: .*does not exist.*s3://elsewhere/models"):
        await ModelRegistry("s3://elsewhere/models").__aenter__()
    monkeypatch.setattr(object_store, "_RETRY_SECONDS", 0.2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(UnavailableError, match="s3://models/prefix"):
        await ModelRegistry("s3://models/prefix").__aenter__()


def test_a_server_that_overwrites_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(next(_prefixes))
    put = store._library.put

    class Careless:
        exceptions = store._library.exceptions
        get, delete = store._library.get, store._library.delete

        @staticmethod
        def put(*arguments: object, mode: object, **options: object) -> object:
            return put(*arguments, **options)

    store._library = Careless
    with pytest.raises(FailedPreconditionError, match="ignores If-None-Match"):
        ObjectBlobs(store).open()


def client(*arguments: str, data: bytes = b"") -> bytes:
    command = [sys.executable, "-m", "trio_cogment", "client", "model_registry", *arguments]
    return subprocess.run(command, input=data, check=True, capture_output=True).stdout


def started(port: int, archive: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trio_cogment", "services", "model_registry", f"--port={port}"]
    return subprocess.Popen(
        [*command, f"--archive_dir={archive}"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def listens(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if "listening" in line:
            return
    raise AssertionError("it does not listen")


def test_a_registry_goes_on_elsewhere_and_leaves_nothing_on_its_disk(tmp_path: Path) -> None:
    archive, endpoint = next(_prefixes), free_port()
    data = os.urandom(20 * 1024 * 1024)
    for number in (1, 2):
        folder = tmp_path / f"machine-{number}"
        folder.mkdir()
        with started(endpoint, archive, folder) as process:
            listens(process)
            place = f"--endpoint=grpc://127.0.0.1:{endpoint}"
            assert b"version %d of walker" % number in client("put", "walker", "--file=-", place, data=data)
            assert client("get", "walker", "--version=1", place) == data
            process.send_signal(signal.SIGTERM if number == 1 else signal.SIGKILL)
        assert os.listdir(folder) == []


def test_control_c_ends_a_registry_whose_server_is_silent(gate: s3.Gate, tmp_path: Path) -> None:
    with started(free_port(), next(_prefixes), tmp_path) as process:
        listens(process)
        gate.silent = True
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_control_c_ends_a_start_whose_server_is_silent(gate: s3.Gate, tmp_path: Path) -> None:
    gate.silent = True
    with started(free_port(), next(_prefixes), tmp_path) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.send_signal(signal.SIGINT)
        process.wait(20)
