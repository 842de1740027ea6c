"""Cases 13 to 17 of the sharpest edge cases of the reference's services, each with the better outcome."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.servers.model_registry.helpers import Harness, body, hash_of, header, open_harness, refused
from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.base.errors import StatusCode
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.rpc import ClientCall
from trio_cogment.servers.model_registry import LocalBlobs, ModelRegistry
from trio_cogment.servers.model_registry._model import VersionWatch
from trio_cogment.testing import SimDisk

AWKWARD = [
    "../evil", "..", ".", ".hidden", "a/b", "a\\b", "/etc/passwd", "123", "0", "foo-v1", "foo-v000001", "-v1", "%2E",
    "foo%2Dv1", "my model", "ü", "💡", "con\x00trol", "line\nbreak", "~", "null", "true", "a.yaml", "a.data", ".lock",
    ".0.tmp", "x" * 255, "x" * 5000, "../" * 2000, "%h" + "0" * 64, "A", "a", "m", "m-v1", "m.last", "m.deleted",
]  # fmt: skip


async def test_case_13_negatives_are_the_kth_newest_and_numbers_are_never_used_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = SimDisk(random.Random(1))
    async with open_harness(disk, cache_max_items=3) as one:
        await one.create("m")
        given = [await one.store("m", b"1"), await one.store("m", b"2")]
        given += [await one.publish("m", b"%d" % number) for number in range(3, 7)]
        assert given == [1, 2, 3, 4, 5, 6]
        assert await one.numbers("m") == [1, 2, 4, 5, 6]
        assert await one.numbers("m", -1, -2, -3, -4, -5) == [6, 5, 4, 2, 1]
        assert await one.data("m", -4) == b"2"
        for missing in (0, 3, 7, -6, -7, -8, -9, 2**31 - 1, -(2**31)):
            with refused(StatusCode.NOT_FOUND, "'m'"):
                await one.numbers("m", missing)
            with refused(StatusCode.NOT_FOUND, "'m'"):
                await one.data("m", missing)
    async with open_harness(disk) as two:
        assert await two.numbers("m") == [1, 2]
        assert await two.numbers("m", -1) == [2]
        assert await two.publish("m") == 7
    async with open_harness(disk) as three:
        assert await three.store("m") == 8
        assert await three.numbers("m") == [1, 2, 8]


@pytest.mark.parametrize("wire", [False, True], ids=["in process", "http/2"])
async def test_case_14_any_text_is_a_safe_id(wire: bool, tmp_path: Path) -> None:
    root = tmp_path / "outer" / "root"
    for _ in range(2):  # the second time it is a restart
        async with open_harness(store=LocalBlobs(root), wire=wire) as one:
            before = await one.models()
            for index, model_id in enumerate(AWKWARD):
                await one.create(model_id, number=str(index))
                await one.store(model_id, model_id.encode())
            ids, _handle = await one.models()
            assert ids == sorted(AWKWARD)
            assert before[0] in ([], ids)
            for index, model_id in enumerate(AWKWARD):
                reply = await one.unary("RetrieveModels", pb.RetrieveModelsRequest(model_ids=[model_id]))
                assert reply.model_infos[0] == pb.ModelInfo(model_id=model_id, user_data={"number": str(index)})
                infos, _handle = await one.infos(model_id)
                assert {info.model_id for info in infos} == {model_id}
                for info in infos:
                    assert await one.data(model_id, info.version_number) == model_id.encode()
                assert len(infos) == (2 if before[0] else 1)
    files = SystemFiles()
    assert files.names(str(tmp_path)) == ["outer"]
    assert files.names(str(root.parent)) == ["root"]
    assert len(files.folders(str(root))) == len(AWKWARD)
    async with open_harness(store=LocalBlobs(root)) as one:
        for model_id in AWKWARD:
            await one.delete(model_id)
    assert files.names(str(root)) == [".lock"]


async def test_case_14_an_empty_id_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness() as one:
        calls = [
            one.create(""),
            one.unary("CreateOrUpdateModel", pb.CreateOrUpdateModelRequest()),
            one.delete(""),
            one.models(""),
            one.infos(""),
            one.infos("", 1),
            one.data(""),
            one.store(""),
        ]
        for call in calls:
            with refused(StatusCode.INVALID_ARGUMENT, "model"):
                await call
        with refused(StatusCode.INVALID_ARGUMENT, "model_id"):
            async with one.following("") as following:
                await following.receive()
        assert await one.models() == ([], "0")
        assert one.disk.names("root") == [".lock"]


async def test_case_15_counts_and_handles_beyond_the_list(autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness() as one:
        await one.create("m")
        await one.store("m")
        for handle in ("", "0"):
            assert await one.models("m", count=10, handle=handle) == (["m"], "1")
            assert (await one.infos("m", 1, count=10, handle=handle))[1] == "1"
        for handle in ("1", "5", "99999999999999999999"):
            assert await one.models("m", count=10, handle=handle) == ([], handle)
            assert await one.models("m", count=2**32 - 1, handle=handle) == ([], handle)
            assert await one.models(count=2**32 - 1, handle=handle) == ([], handle)
            assert await one.infos("m", 1, count=2**32 - 1, handle=handle) == ([], handle)
        assert await one.infos("m", count=2**32 - 1, handle="99999999999999999999") == ([], "99999999999999999999")
        for handle in ("-1", "x", "1.5", " 1", "1_0", "²", "9" * 21, "AFTER:"):
            for call in (
                one.models("m", handle=handle),
                one.models(handle=handle),
                one.infos("m", handle=handle),
                one.infos("m", 1, handle=handle),
            ):
                with refused(StatusCode.INVALID_ARGUMENT, "_handle"):
                    await call


async def test_case_15_pages_of_both_lists(autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness() as one:
        ids = [f"model-{number:03d}" for number in range(25)]
        for model_id in ids:
            await one.create(model_id)
        for _ in range(25):
            await one.store("model-000")
        found, numbers, handle, version_handle = [], [], "", ""
        for _ in range(4):
            page, handle = await one.models(count=10, handle=handle)
            found += page
            infos, version_handle = await one.infos("model-000", count=10, handle=version_handle)
            numbers += [info.version_number for info in infos]
        assert found == ids
        assert numbers == list(range(1, 26))
        # The last handles stay, and lead to what comes later; a change before them moves nothing.
        assert version_handle == "26"
        await one.delete("model-001")
        await one.create("model-999")
        await one.store("model-000")
        assert (await one.models(count=10, handle=handle))[0] == ["model-999"]
        assert await one.numbers("model-000", handle=version_handle) == [26]
        # By the ids and numbers that one asks for: the handle says how many were answered.
        named, named_handle, rounds = [], "", 0
        while page := (await one.models(*ids[2:], count=9, handle=named_handle))[0]:
            named_handle = (await one.models(*ids[2:], count=9, handle=named_handle))[1]
            named += page
            rounds += 1
        assert (named, named_handle, rounds) == (ids[2:], "23", 3)
        wanted = [3, -1, 3, 7, 1]
        first, at = await one.infos("model-000", *wanted, count=3)
        rest, end = await one.infos("model-000", *wanted, count=3, handle=at)
        assert [info.version_number for info in first + rest] == [3, 26, 3, 7, 1]
        assert (at, end) == ("3", "5")
        # Any unknown one, also of another page, fails the whole call.
        with refused(StatusCode.NOT_FOUND, "nobody"):
            await one.models("model-000", "nobody", count=1)
        with refused(StatusCode.NOT_FOUND, "77"):
            await one.infos("model-000", 1, 77, count=1)


async def test_case_16_what_an_upload_may_get_wrong(autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness() as one:
        await one.create("m")
        for archived in (False, True):
            await _uploads_gone_wrong(one, archived)
        assert await one.infos("m") == ([], "0")
        assert one.disk.names("root") == [".lock", "m"]
        assert one.disk.names("root/m") == ["m.yaml"]
        assert await one.store("m", b"x") == 1


async def _uploads_gone_wrong(one: Harness, archived: bool) -> None:
    def info(size: int, model_id: str = "m", **fields: str) -> pb.ModelVersionInfo:
        return pb.ModelVersionInfo(model_id=model_id, archived=archived, data_size=size, **fields)  # type: ignore[arg-type]  # all texts

    wrong = {
        "header, got nothing": [],
        "header first": [body(b"x"), header(info(1))],
        "expected the header first": [pb.CreateVersionRequestChunk()],
        "header.version_info": [pb.CreateVersionRequestChunk(header=pb.CreateVersionRequestChunk.Header())],
        "a body after": [header(info(2)), body(b"x"), header(info(2)), body(b"x")],
        "expected a body": [header(info(2)), pb.CreateVersionRequestChunk()],
        "version_info.model_id: expected an id": [header(info(1, "")), body(b"x")],
        "expected 3 bytes as announced, got 2": [header(info(3)), body(b"xx")],
        "expected 1 bytes as announced, got 2": [header(info(1)), body(b"x"), body(b"x"), body(b"x")],
        "expected 0 bytes as announced, got 1": [header(info(0)), body(b"x")],
        "expected 9 bytes as announced, got 0": [header(info(9))],
        "data_hash": [header(info(1, data_hash=hash_of(b"y"))), body(b"x")],
        "data_hash: expected": [header(info(1, data_hash="no hash at all")), body(b"x")],
    }
    for words, chunks in wrong.items():
        with refused(StatusCode.INVALID_ARGUMENT, words):
            await one.upload_chunks(chunks)
    with refused(StatusCode.NOT_FOUND, "nobody"):
        await one.upload_chunks([header(info(1, "nobody")), body(b"x")])


@pytest.mark.parametrize("archived", [False, True])
async def test_case_16_zero_bytes(archived: bool, autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness() as one:
        await one.create("m")
        for chunks in ([], [body(b"")], [body(b""), body(b"")]):
            info = await one.upload_chunks([header(model_id="m", archived=archived), *chunks])
            assert info.data_hash == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
            assert await one.chunks("m") == [b""]


@pytest.mark.parametrize("archived", [False, True])
async def test_case_16_what_the_reply_says(archived: bool, autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness(sent_version_chunk_bytes=700) as one:
        await one.create("m")
        data = bytes(range(256)) * 10
        first = await one.upload("m", data, archived=archived, user_data={"a": "1"}, version_number=77)
        assert first == pb.ModelVersionInfo(
            model_id="m",
            version_number=1,
            creation_timestamp=first.creation_timestamp,
            archived=archived,
            data_hash=hash_of(data),
            data_size=2560,
            user_data={"a": "1"},
        )
        assert 1_000_000_000 <= first.creation_timestamp < 2_000_000_000
        second = await one.upload(
            "m", data, archived=archived, creation_timestamp=2**64 - 1, data_hash=hash_of(data), chunk=2
        )
        assert (second.version_number, second.creation_timestamp) == (2, 2**64 - 1)
        assert (await one.infos("m"))[0] == [first, second]
        assert [len(chunk) for chunk in await one.chunks("m", 1)] == [700, 700, 700, 460]
        assert await one.data("m", -1) == data


async def numbers_of(call: ClientCall, count: int) -> list[int]:
    return [(await call.receive()).version_info.version_number for _ in range(count)]


@pytest.mark.parametrize("wire", [False, True], ids=["in process", "http/2"])
async def test_case_17_following_a_model(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness(wire=wire) as one:
        with refused(StatusCode.NOT_FOUND, "nobody"):
            async with one.following("nobody") as call:
                await call.receive()
        await one.create("m")
        await one.create("other")
        async with one.following("m") as early:
            await one.store("m", b"1")
            await one.publish("other")
            async with one.following("m") as late:
                await one.publish("other")
                await one.publish("m", b"2")
                await one.create("m", changed="yes")  # no version
                await one.store("m", b"3")
                assert await numbers_of(early, 3) == [1, 2, 3]
                assert await numbers_of(late, 3) == [1, 2, 3]
                for _ in range(3):
                    await one.publish("other")
                with trio.move_on_after(60) as scope:
                    await early.receive()
                assert scope.cancelled_caught, "nothing was to be told"
                # Who leaves is released at once, whatever happens to any model.
                model = one.registry.models["m"]
                assert len(model.watches) == 2
                late.cancel()
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert len(model.watches) == 1
            await one.delete("m")
            with refused(StatusCode.NOT_FOUND, "deleted"):
                await early.receive()
        with refused(StatusCode.NOT_FOUND):
            async with one.following("m") as call:
                await call.receive()


async def test_case_17_the_newest_there_is_at_once(autojump_clock: trio.testing.MockClock) -> None:
    """Also where the newest that was made is gone; each is told once, and in order."""
    disk = SimDisk(random.Random(1))
    async with open_harness(disk) as one:
        await one.create("m")
        await one.store("m")
        await one.publish("m")
    async with open_harness(disk) as two, two.following("m") as call:
        assert await numbers_of(call, 1) == [1]
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(two.store, "m", b"x")
        assert await numbers_of(call, 20) == list(range(3, 23))


async def test_case_17_who_does_not_read_misses_the_oldest_never_the_newest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_harness(watch_queue_versions=3) as one:
        await one.create("m")
        async with one.following("m") as call:
            for _ in range(400):
                await one.publish("m")
            seen: list[int] = []
            while not seen or seen[-1] < 400:
                seen += await numbers_of(call, 1)
            assert seen == sorted(set(seen))
            assert len(seen) < 400


async def test_case_17_a_version_that_came_while_the_newest_was_looked_up_is_told_once() -> None:
    watch = VersionWatch(3)
    for number in (4, 5):
        watch.offer(pb.ModelVersionInfo(version_number=number))
    watch.offer_first(pb.ModelVersionInfo(version_number=5))
    watch.offer(pb.ModelVersionInfo(version_number=6))  # the oldest goes: there is room for three
    watch.offer_first(pb.ModelVersionInfo(version_number=1))  # too many newer ones have come already
    assert [(await watch.__anext__()).version_number for _ in range(3)] == [4, 5, 6]
    watch = VersionWatch(3)
    watch.offer(pb.ModelVersionInfo(version_number=4))
    watch.offer_first(pb.ModelVersionInfo(version_number=5))
    watch.offer(pb.ModelVersionInfo(version_number=6))
    assert [(await watch.__anext__()).version_number for _ in range(2)] == [5, 6]


async def test_case_17_a_registry_that_stops_says_so(autojump_clock: trio.testing.MockClock) -> None:
    registry = ModelRegistry("root", host=Host(files=SimDisk(random.Random(1)), runner=inline_runner))
    async with registry:
        await registry.create_or_update(pb.ModelInfo(model_id="m"))
        with registry.watching(registry.find("m")) as watch:
            registry.stop()
            with pytest.raises(Exception, match="stopping"):
                await watch.__anext__()
        with pytest.raises(Exception, match="stopping"), registry.watching(registry.find("m")):
            pass
    with pytest.raises(Exception, match="not running"):
        await registry.create_or_update(pb.ModelInfo(model_id="m"))
