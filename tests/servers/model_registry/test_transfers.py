"""Uploads and downloads: what may happen to them on the way, and what is bounded."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.servers.model_registry.helpers import METHODS, Harness, body, header, open_harness, refused
from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.base.host import Host, run_inline
from trio_cogment.budget.transfer_slots import Transfer, TransferSlots
from trio_cogment.servers.model_registry import LocalBlobs, ModelRegistry
from trio_cogment.servers.model_registry._model import Model
from trio_cogment.servers.model_registry.blobs import Upload
from trio_cogment.testing import SimDisk

BOTH_CHANNELS = pytest.mark.parametrize("wire", [False, True], ids=["in process", "http/2"])
BOTH_KINDS = pytest.mark.parametrize("archived", [False, True], ids=["transient", "archived"])


@BOTH_CHANNELS
@BOTH_KINDS
async def test_leaving_an_upload_leaves_nothing(archived: bool, wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire) as one:
        await one.create("m")
        for size in (0, 10, 1_000_000):
            async with one.channel.call(METHODS["CreateVersion"]) as call:
                await call.send(header(model_id="m", archived=archived, data_size=2_000_000))
                await call.send(body(b"x" * size))
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert any(name.endswith(".tmp") for name in one.disk.names("root")) == (archived and size > 10)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert one.disk.names("root") == [".lock", "m"]
            assert one.registry._receiving.used == 0
        assert await one.numbers("m") == []
        # The connection ends after the header, as orderly as may be.
        with refused(StatusCode.INVALID_ARGUMENT, "announced"):
            await one.upload_chunks([header(model_id="m", archived=archived, data_size=5)])
        assert (await one.upload("m", b"x", archived=archived)).version_number == 1


@BOTH_CHANNELS
@BOTH_KINDS
async def test_a_model_is_deleted_during_an_upload(archived: bool, wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire) as one:
        await one.create("m")
        async with one.channel.call(METHODS["CreateVersion"]) as call:
            await call.send(header(model_id="m", archived=archived, data_size=600_000))
            await call.send(body(b"x" * 300_000))
            await trio.testing.wait_all_tasks_blocked(0.01)
            await one.delete("m")
            await one.create("m")
            with refused(StatusCode.NOT_FOUND, "deleted"):
                await call.send(body(b"x" * 300_000))
                await call.done_sending()
                await call.receive()
        # At the last moment, too.
        async with one.channel.call(METHODS["CreateVersion"]) as call:
            await call.send(header(model_id="m", archived=archived, data_size=300_000))
            await call.send(body(b"x" * 300_000))
            await trio.testing.wait_all_tasks_blocked(0.01)
            await one.delete("m")
            await one.create("m")
            with refused(StatusCode.NOT_FOUND, "deleted"):
                await call.done_sending()
                await call.receive()
        assert await one.numbers("m") == []
        assert one.disk.names("root/m") == ["m.yaml"]
        assert one.disk.names("root") == [".lock", "m"]


@BOTH_CHANNELS
@BOTH_KINDS
async def test_a_model_is_deleted_during_a_download(archived: bool, wire: bool, autojump_clock: MockClock) -> None:
    """What has come is of the old one, and then it says so: nothing of the new one is mixed in."""
    chunk = 700_000
    async with open_harness(wire=wire, sent_version_chunk_bytes=chunk) as one:
        await one.create("m")
        await one.upload("m", b"o" * 10 * chunk, archived=archived, chunk=chunk)
        async with one.channel.call(METHODS["RetrieveVersionData"]) as call:
            await call.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=1))
            await call.done_sending()
            first: pb.RetrieveVersionDataReplyChunk = await call.receive()
            await one.delete("m")
            await one.create("m")
            await one.upload("m", b"n" * 10 * chunk, archived=archived, chunk=chunk)
            seen = [first.data_chunk]
            with refused(StatusCode.NOT_FOUND, "deleted"):
                async for message in call:
                    seen.append(message.data_chunk)
        assert set(b"".join(seen)) == {ord("o")}
        assert set(await one.data("m")) == {ord("n")}


async def test_a_transient_version_goes_on_while_it_is_sent_and_evicted(autojump_clock: MockClock) -> None:
    async with open_harness(cache_max_items=1, sent_version_chunk_bytes=700_000) as one:
        await one.create("m")
        await one.publish("m", b"a" * 5_000_000)
        async with one.channel.call(METHODS["RetrieveVersionData"]) as call:
            await call.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=1))
            await call.done_sending()
            await call.receive()
            await one.publish("m", b"b")
            assert await one.numbers("m") == [2]
            rest = [message.data_chunk async for message in call]
        assert len(b"".join(rest)) == 4_300_000
        with refused(StatusCode.NOT_FOUND, "version 1"):
            await one.data("m", 1)


async def test_the_cache_is_bounded_in_bytes_and_says_what_will_never_fit(autojump_clock: MockClock) -> None:
    async with open_harness(cache_max_bytes=1000) as one:
        await one.create("m")
        for _ in range(5):
            await one.publish("m", b"x" * 300)
        assert await one.numbers("m") == [3, 4, 5]
        with refused(StatusCode.RESOURCE_EXHAUSTED, "1001", "cache_max_bytes", "Archive"):
            await one.publish("m", b"x" * 1001)
        with refused(StatusCode.RESOURCE_EXHAUSTED):
            await one.upload_chunks([header(model_id="m", data_size=2**64 - 1)])
        assert await one.numbers("m") == [3, 4, 5]
        assert await one.store("m", b"x" * 1001) == 6
        await one.publish("m", b"x" * 1000)
        assert await one.numbers("m") == [6, 7]


async def test_transient_uploads_together_are_bounded(autojump_clock: MockClock) -> None:
    async with open_harness(cache_max_bytes=1000) as one:
        await one.create("m")
        async with one.channel.call(METHODS["CreateVersion"]) as call:
            await call.send(header(model_id="m", data_size=1000))
            await call.send(body(b"x" * 600))
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert await one.publish("m", b"x" * 400) == 1
            with refused(StatusCode.RESOURCE_EXHAUSTED, "being uploaded"):
                await one.publish("m", b"x" * 401)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert await one.publish("m", b"x" * 1000) == 2


@BOTH_CHANNELS
async def test_who_sends_or_takes_nothing_gives_up_its_place(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire, max_uploads=1, max_downloads=1, transfer_stall_seconds=30) as one:
        await one.create("m")
        await one.store("m", b"x" * 5_000_000)
        async with one.channel.call(METHODS["CreateVersion"]) as silent:
            await silent.send(header(model_id="m", archived=True, data_size=1000))
            await trio.testing.wait_all_tasks_blocked(0.01)
            start = trio.current_time()
            assert await one.store("m", b"waits") == 2
            assert 0.9 <= trio.current_time() - start <= 2
            with refused(StatusCode.RESOURCE_EXHAUSTED, "transfer_least_bytes", "in 1 s, and others wait"):
                await silent.receive()
        async with one.channel.call(METHODS["RetrieveVersionData"]) as deaf:
            await deaf.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=1))
            await deaf.done_sending()
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert await one.data("m", 2) == b"waits"
            with refused(StatusCode.RESOURCE_EXHAUSTED, "transfer_least_bytes", "in 1 s, and others wait"):
                async for _ in deaf:
                    pass
        async with one.channel.call(METHODS["RetrieveVersionData"]) as idle:  # nobody waits
            await idle.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=1))
            await idle.done_sending()
            await trio.sleep(31)
            with refused(StatusCode.DEADLINE_EXCEEDED, "no chunk was taken for 30 s"):
                async for _ in idle:
                    pass
        async with one.channel.call(METHODS["CreateVersion"]) as mute:
            with refused(StatusCode.DEADLINE_EXCEEDED, "30 s"):
                await mute.receive()


@BOTH_CHANNELS
async def test_who_goes_on_keeps_its_place_though_others_wait(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire, max_uploads=1, max_downloads=1, sent_version_chunk_bytes=300_000) as one:
        step = 300_000
        assert step > one.registry.config.transfer_least_bytes
        await one.create("m")
        async with trio.open_nursery() as nursery, one.channel.call(METHODS["CreateVersion"]) as call:
            await call.send(header(model_id="m", archived=True, data_size=20 * step))
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.start_soon(one.store, "m", b"waits")
            for _ in range(20):
                await call.send(body(bytes(step)))
                await trio.sleep(0.4)
            assert await one.numbers("m") == []
            await call.done_sending()
            assert (await call.receive()).version_info.version_number == 1
        assert await one.numbers("m") == [1, 2]
        async with trio.open_nursery() as nursery, one.channel.call(METHODS["RetrieveVersionData"]) as call:
            await call.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=1))
            await call.done_sending()
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.start_soon(one.data, "m", 2)
            size = 0
            async for chunk in call:
                size += len(chunk.data_chunk)
                await trio.sleep(0.4)
            assert size == 20 * step


async def test_chunks_with_nothing_in_them_are_nothing(autojump_clock: MockClock) -> None:
    async with open_harness(transfer_stall_seconds=10) as one:
        await one.create("m")
        info = pb.ModelVersionInfo(model_id="m", data_size=3, archived=True)
        async with one.registry.receiving(info, Transfer("here", False, int)) as upload:
            tracemalloc.start()
            try:
                for _ in range(50_000):
                    await upload.write(b"")
                kept, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert kept < 50_000
            await upload.write(b"abc")
            assert (await one.registry.add(upload)).data_size == 3
        with refused(StatusCode.DEADLINE_EXCEEDED, "no chunk came for 10 s"):
            async with one.channel.call(METHODS["CreateVersion"]) as call:
                await call.send(header(info))
                await call.send(body(b"a"))
                for _ in range(100):
                    await trio.sleep(1)
                    await call.send(body(b""))
                raise AssertionError("it waited")
        assert trio.current_time() < 15


async def test_many_uploads_at_once_get_numbers_of_their_own(autojump_clock: MockClock) -> None:
    async with open_harness() as one:
        await one.create("m")
        numbers: dict[int, bytes] = {}

        async def upload(index: int) -> None:
            data = b"%d" % index * 1000
            info = await one.upload("m", data, archived=index % 2 == 0, chunk=100)
            assert info.version_number not in numbers
            numbers[info.version_number] = data

        async with trio.open_nursery() as nursery:
            for index in range(60):
                nursery.start_soon(upload, index)
        assert sorted(numbers) == list(range(1, 61)) == await one.numbers("m")
        for number, data in numbers.items():
            assert await one.data("m", number) == data


async def test_creating_deleting_and_uploading_at_once(autojump_clock: MockClock) -> None:
    """Whatever the order, every call ends with one of the statuses that it may, and the end is consistent."""
    disk = SimDisk(random.Random(1))
    ends: set[StatusCode] = set()
    async with open_harness(disk) as one:

        async def attempt(call: Callable[..., Any], *args: object) -> None:
            try:
                await call(*args)
                ends.add(StatusCode.OK)
            except RpcError as error:
                ends.add(error.code)

        async with trio.open_nursery() as nursery:
            for index in range(40):
                nursery.start_soon(attempt, one.create, "m")
                nursery.start_soon(attempt, one.store, "m", b"x" * 1000 * index)
                nursery.start_soon(attempt, one.publish, "m", b"x" * 1000 * index)
                nursery.start_soon(attempt, one.numbers, "m", -1)
                nursery.start_soon(attempt, one.data, "m", -1)
                nursery.start_soon(attempt, one.models)
                if index % 3 == 0:
                    nursery.start_soon(attempt, one.delete, "m")
        assert ends == {StatusCode.OK, StatusCode.NOT_FOUND}
        await one.create("m")
        await one.store("m", b"the end")
        before = [number for number in await one.numbers("m") if number not in one.registry.models["m"].transients]
        assert one.registry._cache.bytes == sum(
            version.info.data_size for version in one.registry.models["m"].transients.values()
        )
    async with open_harness(disk) as two:
        assert await two.numbers("m") == before
        assert await two.data("m") == b"the end"


@pytest.mark.parametrize(
    ("model_id", "data"), [("é" * 50, {}), ("m", {"é" * 10: "é" * 39 + "v"}), ("m", {"k": "v" * 97, "x": ""})]
)
async def test_metadata_may_be_so_long_to_the_last_byte(
    model_id: str, data: dict[str, str], autojump_clock: MockClock
) -> None:
    async with open_harness(max_metadata_bytes=100) as one:
        await one.create(model_id, **data)
        await one.upload(model_id, user_data=data)
    async with open_harness(max_metadata_bytes=99) as two:
        with refused(StatusCode.INVALID_ARGUMENT, "model_info", "at most 99 bytes together, got 100"):
            await two.create(model_id, **data)
        with refused(StatusCode.INVALID_ARGUMENT, "version_info", "at most 99 bytes together, got 100"):
            await two.upload(model_id, user_data=data)


@pytest.mark.parametrize("field", ["id", "user data"])
async def test_metadata_that_would_not_fit_into_a_reply(field: str, autojump_clock: MockClock) -> None:
    async with open_harness(max_metadata_bytes=1000) as one:
        long = "é" * 501
        data = {"k": long} if field == "user data" else {}
        with refused(StatusCode.INVALID_ARGUMENT, "model_info", "1000"):
            await one.create(long if field == "id" else "m", **data)
        await one.create("m")
        with refused(StatusCode.INVALID_ARGUMENT, "version_info", "1000"):
            await one.upload("m" if data else long, user_data=data)
        assert await one.infos("m") == ([], "0")


async def test_pages_end_before_they_are_too_long_for_a_message(autojump_clock: MockClock) -> None:
    async with open_harness(max_page_bytes=5000) as one:
        for index in range(20):
            await one.create(f"m{index:02}", k="v" * 1000)
            await one.upload("m00", user_data={"k": "v" * 1000})
        ids, handle = await one.models()
        assert len(ids) == 4
        while page := (await one.models(handle=handle))[0]:
            ids += page
            handle = (await one.models(handle=handle))[1]
        assert ids == [f"m{index:02}" for index in range(20)]
        infos, version_handle = await one.infos("m00")
        assert ([info.version_number for info in infos], version_handle) == ([1, 2, 3, 4], "5")
        infos, version_handle = await one.infos("m00", *range(1, 21), handle="4")
        assert ([info.version_number for info in infos], version_handle) == ([5, 6, 7, 8], "8")
        with refused(StatusCode.INVALID_ARGUMENT, "version_numbers"):
            await one.infos("m00", *[1] * 10_001)
        with refused(StatusCode.INVALID_ARGUMENT, "model_ids"):
            await one.models(*["m00"] * 10_001)


async def test_version_and_status(autojump_clock: MockClock) -> None:
    from trio_cogment.api.common_pb2 import StatusRequest, VersionRequest

    async with open_harness() as one:
        await one.create("m")
        versions = await one.unary("Version", VersionRequest())
        assert "trio-cogment" in {entry.name for entry in versions.versions}
        assert (await one.unary("Status", StatusRequest())).statuses == {}
        statuses = (await one.unary("Status", StatusRequest(names=["*"]))).statuses
        assert set(statuses) == {"overall_load", "nb_models"}
        assert statuses["nb_models"] == "1"


async def test_cancelling_an_upload_at_every_step(autojump_clock: MockClock) -> None:
    """The caller leaves before the k-th step for every k: a version is there whole, or nothing is."""
    counts = set()
    for steps in range(1, 60):
        async with open_harness() as one:
            await one.create("m")
            await _leave_after(one, steps)
            numbers = await one.numbers("m")
            counts.add(len(numbers))
            for number in numbers:
                assert await one.data("m", number) == b"x" * 1000
            assert one.disk.names("root") == [".lock", "m"]
            assert len(one.disk.names("root/m")) == 1 + 2 * len(numbers)
            assert await one.store("m", b"y") > max([0, *numbers])
    assert counts == {0, 1}


async def _leave_after(one: Harness, steps: int) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def upload() -> None:
                await one.upload("m", b"x" * 1000, chunk=300)
                nursery.cancel_scope.cancel()

            nursery.start_soon(upload)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    await trio.testing.wait_all_tasks_blocked(0.01)


class SmallDisk(SimDisk):
    """A disk that says how much may still be written."""

    free = 1_000_000

    def free_bytes(self, _path: str) -> int:
        return self.free


@BOTH_CHANNELS
async def test_what_is_announced_must_have_room_in_the_storage(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(SmallDisk(random.Random(0)), wire=wire) as one:
        await one.create("m")
        with refused(StatusCode.RESOURCE_EXHAUSTED, "data_size: 1000001 bytes are announced"):
            await one.upload_chunks([header(model_id="m", archived=True, data_size=1_000_001)])
        async with one.channel.call(METHODS["CreateVersion"]) as call:
            await call.send(header(model_id="m", archived=True, data_size=900_000))
            await call.send(body(b"x" * 300_000))
            await trio.testing.wait_all_tasks_blocked(0.01)
            # The rest of it is promised to the other upload.
            with refused(StatusCode.RESOURCE_EXHAUSTED, "600000 more of other uploads"):
                await one.upload_chunks([header(model_id="m", archived=True, data_size=500_000)])
            assert (await one.upload("m", b"x" * 400_000, archived=True)).version_number == 1
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await one.upload("m", b"x" * 900_000, archived=True)).version_number == 2
        # Of one that has come as a whole nothing more is written, though its client has not said that this is all.
        async with one.channel.call(METHODS["CreateVersion"]) as call:
            await call.send(header(model_id="m", archived=True, data_size=300_000))
            await call.send(body(b"x" * 300_000))
            await trio.testing.wait_all_tasks_blocked(0.01)
            async with one.channel.call(METHODS["CreateVersion"]) as other:
                await other.send(header(model_id="m", archived=True, data_size=1_000_000))
                await trio.testing.wait_all_tasks_blocked(0.01)
                (count,) = one.registry._announced.recount()
                assert count.kept == 2
        # What is kept in memory needs no room there.
        assert (await one.upload("m", b"x" * 1_500_000, archived=False)).version_number == 3


async def test_what_was_cached_of_a_deleted_model_takes_no_room(autojump_clock: MockClock) -> None:
    async with open_harness(cache_max_items=3) as one:
        for model_id, versions in (("old", 2), ("new", 3)):
            await one.create(model_id)
            for _ in range(versions):
                await one.publish(model_id, b"x")
            if model_id == "old":
                await one.delete(model_id)
        infos, _ = await one.infos("new")
        assert [info.version_number for info in infos] == [1, 2, 3]


@BOTH_CHANNELS
async def test_a_download_leaves_no_file_open_however_it_ends(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire, sent_version_chunk_bytes=700_000) as one:
        await one.create("m")
        await one.upload("m", b"x" * 5_000_000, chunk=500_000)
        (before,) = one.disk.recount()
        assert len(await one.data("m")) == 5_000_000
        async with one.channel.call(METHODS["RetrieveVersionData"]) as call:
            await call.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=1))
            await call.done_sending()
            await call.receive()
            (during,) = one.disk.recount()
            assert during.kept == before.kept + 1
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [*one.disk.recount()] == [before]


class CountingDisk(SimDisk):
    """A disk that notes the sizes of writes."""

    sizes: list[int]

    def write(self, node: Any, era: int, data: bytes) -> int:
        self.sizes.append(len(data))
        return super().write(node, era, data)


async def test_small_chunks_are_written_together(autojump_clock: MockClock) -> None:
    disk = CountingDisk(random.Random(0))
    disk.sizes = []
    async with open_harness(disk) as one:
        await one.create("m")
        disk.sizes.clear()
        await one.upload("m", b"x" * 600 * 1024, chunk=64 * 1024)
        assert disk.sizes[:3] == [256 * 1024, 256 * 1024, 88 * 1024]
        disk.sizes.clear()
        most = 256 * 1024
        info = pb.ModelVersionInfo(model_id="m", archived=True, data_size=2 * most)
        async with one.registry.receiving(info, Transfer("here", False, int)) as upload:
            for size in (most - 1, 1, most - 1, 1):
                await upload.write(bytes(size))
            assert disk.sizes == [most, most]
            await one.registry.add(upload)


@pytest.mark.parametrize(("crowd", "chunk"), [(1, 2048), (8, 2048), (9, 1820), (16, 1024), (64, 256), (1000, 256)])
async def test_the_more_are_sent_at_once_the_smaller_are_the_chunks(
    crowd: int, chunk: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """All of them together hold 16 MiB, as long as that is 256 KiB for each; in KiB."""
    async with open_harness() as one:
        await one.create("m")
        await one.upload("m", bytes(3 * 1024 * 1024), chunk=1024 * 1024)
        monkeypatch.setattr(TransferSlots, "crowd", crowd)
        first, *_ = await one.chunks("m")
        assert len(first) // 1024 == chunk


class TakenStore(LocalBlobs):
    """Another program takes this many numbers first."""

    taken = 0

    def upload(self) -> Upload:
        store, upload = self, super().upload()
        commit = upload.commit

        def late(folder: str, name: str, *, replace: bool = False) -> None:
            if store.taken and name.endswith(".data"):
                store.taken -= 1
                raise FileExistsError(name)
            commit(folder, name, replace=replace)

        upload.commit = late  # type: ignore[method-assign]  # of this one
        return upload


async def test_numbers_that_another_program_takes_first_are_left_to_it(autojump_clock: MockClock) -> None:
    store = TakenStore("root", files=SimDisk(random.Random(1)))
    async with open_harness(store=store) as one:
        await one.create("m")
        store.taken = 15
        assert await one.store("m", b"x") == 16
        store.taken = 16
        with refused(StatusCode.UNAVAILABLE, "another program writes to the archive"):
            await one.store("m", b"x")
        assert store.taken == 0
        assert await one.numbers("m") == [16]
        # Of those that were tried nothing is left.
        assert sorted(store.names("m")) == ["m-v000016.data", "m-v000016.yaml", "m.yaml"]


@pytest.mark.parametrize("what", ["abort", "close"])
async def test_a_storage_that_hangs_is_waited_for_ten_seconds(what: str, autojump_clock: MockClock) -> None:
    """By a call that was left with an unfinished upload, and by a registry that ends."""

    async def run(function: Callable[..., Any], *args: Any) -> Any:
        if function.__name__ == what:
            await trio.sleep_forever()
        return await run_inline(function, *args)

    host = Host(files=SimDisk(random.Random(1)), runner=lambda _threads: run)
    async with ModelRegistry("root", host=host) as registry:
        await registry.create_or_update(pb.ModelInfo(model_id="m"))
        info = pb.ModelVersionInfo(model_id="m", archived=True, data_size=1_000_000)
        began = trio.current_time()
        with trio.CancelScope() as scope:
            async with registry.receiving(info, Transfer("here", False, int)) as upload:
                await upload.write(bytes(500_000))
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert trio.current_time() - began == (10 if what == "abort" else 0)
        began = trio.current_time()
    assert trio.current_time() - began == (10 if what == "close" else 0)


@pytest.mark.parametrize("full", [False, True])
async def test_a_model_that_is_deleted_while_it_is_looked_up(
    full: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Who named it is told so; a list of all goes on behind it, and not beyond a page that is full."""
    async with open_harness(max_page_bytes=150 if full else 5000) as one:
        doomed: list[str] = []
        read = one.registry.model_infos

        async def late(models: list[Model]) -> list[tuple[Model, pb.ModelInfo]]:
            found = await read(models)
            while doomed:
                gone = doomed.pop()
                found = [(model, info) for model, info in found if model.model_id != gone]
                await one.delete(gone)
            return found

        monkeypatch.setattr(one.registry, "model_infos", late)
        for name in ("a", "b", "c", "d"):
            await one.create(name, k="v" * 100)
        doomed.append("b")
        with refused(StatusCode.NOT_FOUND, "'b'", "deleted"):
            await one.models("a", "b", "c")
        await one.create("b", k="v" * 100)
        doomed.append("b")
        if not full:
            assert await one.models() == (["a", "c", "d"], "after:d")
            return
        doomed.append("d")
        assert await one.models() == (["a"], "after:b")
        assert await one.models(handle="after:b") == (["c"], "after:c")


async def test_pages_are_read_in_several_steps(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    monkeypatch.setattr("trio_cogment.servers.model_registry._service._BATCH", 3)
    async with open_harness() as one:
        names = [f"m{number}" for number in range(8)]
        for name in names:
            await one.create(name)
        for _ in range(8):
            await one.publish("m0", b"x")
        for count in (0, 1, 3, 4, 7, 8, 20):
            expected = range(count or 8)
            assert await one.numbers("m0", count=count) == [number + 1 for number in expected if number < 8]
            assert (await one.models(count=count))[0] == [names[number] for number in expected if number < 8]
            assert (await one.models(*names, count=count))[0] == [names[number] for number in expected if number < 8]
        _, handle = await one.infos("m0", count=4)
        assert await one.numbers("m0", handle=handle) == [5, 6, 7, 8]


async def test_who_still_holds_a_model_that_is_deleted_is_told_so(autojump_clock: MockClock) -> None:
    async with open_harness() as one:
        registry = one.registry
        await one.create("m")
        model = registry.find("m")
        info = pb.ModelVersionInfo(model_id="m", archived=True, data_size=9)
        with pytest.raises(NotFoundError, match="model 'm' is deleted"):  # noqa: PT012  only the last line may raise
            async with registry.receiving(info, Transfer("here", False, int)) as upload:
                await upload.write(b"abc")
                await one.delete("m")
                await upload.write(b"")
        with pytest.raises(NotFoundError, match="model 'm' is deleted"), registry.watching(model):
            raise AssertionError("it can be followed")
        for wanted in (-1, 1):
            with pytest.raises(NotFoundError, match="model 'm' is deleted"):
                await registry.version(model, wanted)
        assert not model.watches


async def test_descriptions_are_read_by_64(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    """Others get the storage's threads in between."""
    async with open_harness() as one:
        steps: list[int] = []

        def note(name: str) -> None:
            real = getattr(one.registry, name)

            async def noted(*args: Any) -> Any:
                steps.append(len(args[-1]))
                return await real(*args)

            monkeypatch.setattr(one.registry, name, noted)

        note("model_infos")
        note("version_infos")
        for number in range(130):
            await one.create(f"m{number:03}")
            await one.publish("m000", b"")
        for ask, expected in (
            (lambda: one.models(), [64, 64, 2]),
            (lambda: one.models(count=65), [64, 1]),
            (lambda: one.infos("m000", count=70), [64, 6]),
        ):
            steps.clear()
            await ask()
            assert steps == expected


async def test_a_stop_ends_the_watches_of_all_models(autojump_clock: MockClock) -> None:
    async with open_harness() as one:
        for model_id in ("m", "n", "o"):
            await one.create(model_id)
        async with one.following("m") as first, one.following("n") as second, one.following("o") as third:
            await trio.testing.wait_all_tasks_blocked()
            one.registry.stop()
            for call in (first, second, third):
                with trio.fail_after(1), refused(StatusCode.UNAVAILABLE, "stopping"):
                    await call.receive()


async def test_who_sends_chunks_with_nothing_in_them_gives_up_its_place(autojump_clock: MockClock) -> None:
    async with open_harness(max_uploads=1, transfer_stall_seconds=30, transfer_least_bytes=10) as one:
        await one.create("m")
        async with trio.open_nursery() as nursery, one.channel.call(METHODS["CreateVersion"]) as call:
            await call.send(header(model_id="m", archived=True, data_size=1000))
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.start_soon(one.store, "m", b"waits")
            with refused(StatusCode.RESOURCE_EXHAUSTED, "transfer_least_bytes"):
                for _ in range(100):
                    await trio.sleep(0.05)
                    await call.send(body(b""))
                await call.receive()
        assert trio.current_time() < 3
        assert await one.numbers("m") == [1]
