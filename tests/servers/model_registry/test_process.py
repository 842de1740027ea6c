"""Real processes, real files, real sockets: kill -9 under uploads, and how much memory transfers take."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest
import trio

from tests.servers.model_registry.process import server
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.rpc import Channel
from trio_cogment.sdk import ModelRegistryClient

MIB = 2**20
#: What a server may take in memory, whatever it transfers.
LIMIT_BYTES = 200 * MIB


class Uploads:
    """What clients were told about versions, over all lives of a server."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.archived: dict[int, str] = {}
        self.transient: set[int] = set()
        self.checked: set[int] = set()
        self._answered = trio.Condition()

    def note(self, number: int, data: bytes, archived: bool) -> None:
        assert number not in self.archived, "a number was given twice"
        assert number not in self.transient, "a number was given twice"
        if archived:
            self.archived[number] = hashlib.sha256(data).hexdigest()
        else:
            self.transient.add(number)

    async def upload(self, client: ModelRegistryClient) -> None:
        while True:
            data = self.rng.randbytes(self.rng.choice((0, 1000, 300_000, 3_000_000)))
            archived = self.rng.random() < 0.7
            info = await (client.store if archived else client.publish)("m", data)
            self.note(info.version_number, data, archived)
            async with self._answered:
                self._answered.notify_all()

    async def wait_for_more(self, count: int) -> None:
        """Wait until this many more uploads have been answered."""
        wanted = len(self.archived) + len(self.transient) + count
        async with self._answered:
            while len(self.archived) + len(self.transient) < wanted:
                await self._answered.wait()

    async def check(self, client: ModelRegistryClient, *, everything: bool = False) -> None:
        infos = [info async for info in client.list_versions("m", page=7)]
        found = {info.version_number for info in infos}
        assert set(self.archived) <= found, "what was acknowledged is lost"
        assert not self.transient & found
        for number in sorted(found if everything else found - self.checked):
            # The client checks size and hash, and so does the server.
            _info, data = await client.retrieve("m", number)
            digest = hashlib.sha256(data).hexdigest()
            # One that nobody was told of is there whole, and stays.
            assert self.archived.setdefault(number, digest) == digest, "it is torn"
            self.checked.add(number)


async def live_and_die(root: Path, uploads: Uploads) -> None:
    """One life: look at what the one before has left, upload for a while, be killed."""
    async with server(root) as process, Channel("127.0.0.1", process.port) as channel:
        client = ModelRegistryClient(channel)
        await client.create_model("m")
        assert [name for name in SystemFiles().names(str(root)) if name.endswith(".tmp")] == []
        await uploads.check(client)
        codes: set[StatusCode] = set()
        async with trio.open_nursery() as nursery:

            async def upload() -> None:
                try:
                    await uploads.upload(client)
                except RpcError as error:
                    codes.add(error.code)

            for _ in range(4):
                nursery.start_soon(upload)
            await uploads.wait_for_more(uploads.rng.randint(1, 6))
            await trio.sleep(uploads.rng.uniform(0.0, 0.1))
            await process.kill()
        assert codes == {StatusCode.UNAVAILABLE}


async def kill_often(root: Path, times: int) -> Uploads:
    uploads = Uploads(1)
    for _ in range(times):
        await live_and_die(root, uploads)
        if len(uploads.archived) > 100:  # what was checked often enough makes room
            async with server(root) as process, Channel("127.0.0.1", process.port) as channel:
                await uploads.check(ModelRegistryClient(channel), everything=True)
                await ModelRegistryClient(channel).delete_model("m")
            for numbers in (uploads.archived, uploads.transient, uploads.checked):
                numbers.clear()
    async with server(root) as process, Channel("127.0.0.1", process.port) as channel:
        client = ModelRegistryClient(channel)
        await uploads.check(client, everything=True)
        number = (await client.store("m", b"")).version_number
        assert number > max([0, *uploads.archived, *uploads.transient])
    return uploads


async def test_kill_9_under_uploads(tmp_path: Path) -> None:
    """No acknowledged version is torn or lost, and no number is used twice. 200 times: see below."""
    uploads = await kill_often(tmp_path / "archive", 6)
    assert len(uploads.archived) > 3
    assert uploads.transient


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_kill_9_under_uploads_200_times(tmp_path: Path) -> None:
    await kill_often(tmp_path / "archive", 200)


async def transfer(root: Path, size: int, clients: int) -> int:
    """Let clients upload and download at the same time; return the most memory the server has had."""
    block = os.urandom(MIB)
    async with server(root) as process:

        async def one(index: int) -> None:
            async with Channel("127.0.0.1", process.port) as channel:
                client = ModelRegistryClient(channel)
                name = f"model-{index}"
                info = await client.store(name, (block for _ in range(size // MIB)), size=size)
                assert info.data_size == size
                async with trio.open_nursery() as both:
                    both.start_soon(download, client, name)
                    both.start_soon(again, client, name)

        async def again(client: ModelRegistryClient, name: str) -> None:
            await client.store(name, (block for _ in range(size // MIB)), size=size)

        async def download(client: ModelRegistryClient, name: str) -> None:
            received = 0
            async for chunk in client.stream(name, 1):
                received += len(chunk)
            assert received == size

        async with trio.open_nursery() as nursery:
            for index in range(clients):
                nursery.start_soon(one, index)
        return process.memory_bytes()


async def test_memory_of_concurrent_transfers(tmp_path: Path) -> None:
    """Four at a time that are together larger than what the server may take. 1 GiB each: see below."""
    assert await transfer(tmp_path / "archive", 24 * MIB, 4) < 120 * MIB


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_memory_of_8_uploads_and_downloads_of_1_gib(tmp_path: Path) -> None:
    memory = await transfer(tmp_path / "archive", 1024 * MIB, 8)
    print(f"the server took {memory / MIB:.0f} MiB")
    assert memory < LIMIT_BYTES
