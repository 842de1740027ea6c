"""The model registry's client: near and far, bytes and files, and following a model through everything."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import Service
from trio.testing import MockClock

from tests.servers.model_registry.helpers import open_harness, refused
from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.base.errors import InvalidArgumentError, RpcError, StatusCode
from trio_cogment.rpc import CallOpener, ClientCall, InProcessChannel, ServerCall, bind, serve
from trio_cogment.sdk import ModelRegistryClient
from trio_cogment.sdk._tracking import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services
from trio_cogment.testing import World, simulate

BOTH = pytest.mark.parametrize("wire", [False, True], ids=["in process", "http/2"])
MIB = 2**20


@BOTH
async def test_publish_store_retrieve(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire) as one:
        client = ModelRegistryClient(one.channel)
        first = await client.publish("m", b"weights", user_data={"loss": "0.5"})
        assert (first.version_number, first.archived, dict(first.user_data)) == (1, False, {"loss": "0.5"})
        data = random.Random(1).randbytes(5 * MIB)
        second = await client.store("m", data)
        assert (second.version_number, second.archived) == (2, True)
        assert await client.retrieve("m") == (second, data)
        assert await client.retrieve("m", 1) == (first, b"weights")
        assert await client.retrieve("m", -2) == (first, b"weights")
        assert await client.version_info("m", 1) == first
        assert [info async for info in client.list_versions("m", page=1)] == [first, second]
        assert [info async for info in client.list_versions("m", first=2)] == [second]

        async def pieces() -> AsyncIterator[bytes]:
            yield data[:10]
            yield data[10:]  # larger than what goes at once

        for given in (pieces(), [data[:10], data[10:]]):
            last = await client.publish("m", given, size=len(data))
            assert await client.retrieve("m", last.version_number) == (last, data)
        await client.create_model("other", {"owner": "me"})
        assert (await client.model_info("other")).user_data == {"owner": "me"}
        assert [info.model_id async for info in client.list_models(page=1)] == ["m", "other"]
        await client.delete_model("m")
        for call in (client.retrieve("m"), client.version_info("m"), client.model_info("m"), client.delete_model("m")):
            with refused(StatusCode.NOT_FOUND):
                await call
        assert [info.model_id async for info in client.list_models()] == ["other"]
        assert (await client.store("m", b"again")).version_number == 1


@BOTH
async def test_models_are_created_when_they_are_needed_and_never_overwritten(
    wire: bool, autojump_clock: MockClock
) -> None:
    async with open_harness(wire=wire) as one:
        client = ModelRegistryClient(one.channel)
        await client.create_model("m", {"k": "v"})
        await client.publish("m", b"")
        assert (await client.model_info("m")).user_data == {"k": "v"}
        with refused(StatusCode.NOT_FOUND):
            await client.publish("new", b"", create=False)
        with refused(StatusCode.INVALID_ARGUMENT):
            await client.publish("", b"")


@BOTH
async def test_pieces_need_a_size(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire) as one:
        client = ModelRegistryClient(one.channel)

        async def later() -> AsyncIterator[bytes]:
            for _ in range(3):
                await trio.sleep(1)
                yield b"x" * 3 * MIB

        assert (await client.store("m", [b"ab", b"", b"c"], size=3)).data_size == 3
        assert (await client.store("m", later(), size=9 * MIB)).data_size == 9 * MIB
        assert (await client.retrieve("m", 1))[1] == b"abc"
        assert len((await client.retrieve("m", 2))[1]) == 9 * MIB
        with pytest.raises(InvalidArgumentError, match="size"):
            await client.store("m", [b"ab"])
        for size in (1, 3):
            with refused(StatusCode.INVALID_ARGUMENT, "announced"):
                await client.store("m", [b"ab"], size=size)
        with refused(StatusCode.INVALID_ARGUMENT, "announced"):
            await client.store("m", later(), size=4 * MIB)
        # A source that fails is the caller's own affair, and leaves nothing.
        with pytest.raises(ZeroDivisionError):
            await client.store("m", (1 // 0 * b"x" for _ in range(3)), size=3)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert one.disk.names("root") == [".lock", "m"]
        assert [info.version_number async for info in client.list_versions("m")] == [1, 2]


async def test_files(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    data = random.Random(1).randbytes(5 * MIB)
    source.write_bytes(data)
    target.write_bytes(b"old")
    async with open_harness() as one:
        client = ModelRegistryClient(one.channel)
        info = await client.store("m", source)
        assert info.data_size == 5 * MIB
        assert await client.retrieve_to(target, "m") == info
        assert target.read_bytes() == data
        newer = await client.store("m", b"newer")
        assert await client.retrieve_to(target, "m") == newer  # the newest, if none is named
        assert target.read_bytes() == b"newer"
        assert await client.retrieve_to(target, "m", 1) == info
        rotten = one.disk.open("root/m/m-v000001.data")
        rotten.write(b"y" + data[1:])
        target.write_bytes(b"old")
        with refused(StatusCode.DATA_LOSS):
            await client.retrieve_to(target, "m", 1)
        assert target.read_bytes() == b"old"
        with refused(StatusCode.NOT_FOUND):
            await client.retrieve_to(target, "m", 7)
        with pytest.raises(FileNotFoundError):
            await client.store("m", tmp_path / "missing")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "target"}  # noqa: ASYNC240  a test's own folder


async def test_a_file_is_whole_whoever_else_writes_it(tmp_path: Path) -> None:
    """Both finish; what is there then is of one of them, and nothing else is left."""
    target = tmp_path / "target"
    contents = [random.Random(seed).randbytes(3 * MIB) for seed in (1, 2)]
    async with open_harness() as one:
        client = ModelRegistryClient(one.channel)
        for content in contents:
            await client.store("m", content)
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for version in (1, 2):
                    nursery.start_soon(client.retrieve_to, target, "m", version)
            assert target.read_bytes() in contents
    assert {path.name for path in tmp_path.iterdir()} == {"target"}  # noqa: ASYNC240  a test's own folder


async def test_a_file_that_is_not_whole_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is cancelled in the middle; what was there before stays."""
    target = tmp_path / "target"
    target.write_bytes(b"before")
    begun = trio.Event()

    async def download(_client: Any, _info: Any) -> AsyncIterator[bytes]:
        yield b"half"
        begun.set()
        await trio.sleep_forever()

    async with open_harness() as one:
        client = ModelRegistryClient(one.channel)
        await client.store("m", b"whole")
        monkeypatch.setattr(ModelRegistryClient, "_download", download)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.retrieve_to, target, "m")
            await begun.wait()
            nursery.cancel_scope.cancel()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"target": b"before"}  # noqa: ASYNC240  a test's own folder


async def test_a_model_that_somebody_else_has_deleted_is_made_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"file")
    async with open_harness() as one:
        client, other = ModelRegistryClient(one.channel), ModelRegistryClient(one.channel)
        for data in (b"bytes", source):
            await client.publish("m", b"first")
            await other.delete_model("m")
            assert (await client.publish("m", data)).version_number == 1
        await other.delete_model("m")
        with refused(StatusCode.NOT_FOUND):
            await client.publish("m", b"x", create=False)
        # What can be read once only cannot be sent again, but the next one finds a model.
        await client.publish("m", b"first")
        await other.delete_model("m")
        with refused(StatusCode.NOT_FOUND):
            await client.publish("m", iter([b"x"]), size=1)
        assert (await client.publish("m", iter([b"x"]), size=1)).version_number == 1


@BOTH
async def test_a_stream_may_be_left_early(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire, sent_version_chunk_bytes=1000) as one:
        client = ModelRegistryClient(one.channel)
        await client.store("m", b"x" * 3_000_000)
        async with aclosing(client.stream("m")) as chunks:
            async for chunk in chunks:
                assert chunk == b"x" * 1000
                break
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not one.registry.downloads.crowd
        assert b"".join([chunk async for chunk in client.stream("m", -1)]) == b"x" * 3_000_000


class Liar:
    """A registry that has other bytes than it says."""

    async def RetrieveModels(self, request: pb.RetrieveModelsRequest, _call: ServerCall) -> pb.RetrieveModelsReply:
        return pb.RetrieveModelsReply(model_infos=[pb.ModelInfo(model_id="m")])

    async def RetrieveVersionInfos(
        self, request: pb.RetrieveVersionInfosRequest, _call: ServerCall
    ) -> pb.RetrieveVersionInfosReply:
        return pb.RetrieveVersionInfosReply(
            version_infos=[pb.ModelVersionInfo(model_id="m", data_hash="x", data_size=1)]
        )

    async def RetrieveVersionData(self, request: pb.RetrieveVersionDataRequest, call: ServerCall) -> None:
        await call.send(pb.RetrieveVersionDataReplyChunk(data_chunk=b"?"))

    async def CreateVersion(self, call: ServerCall) -> pb.CreateVersionReply:
        async for _ in call:
            pass
        return pb.CreateVersionReply(version_info=pb.ModelVersionInfo(version_number=4, data_hash="x"))

    def service(self) -> Service:
        return bind(pb.DESCRIPTOR.services_by_name["ModelRegistrySP"], self)


async def test_what_is_not_what_it_should_be_is_an_error(autojump_clock: MockClock) -> None:
    async with InProcessChannel([Liar().service()]) as channel:
        client = ModelRegistryClient(channel)
        with refused(StatusCode.DATA_LOSS, "did not arrive"):
            await client.retrieve("m")
        with refused(StatusCode.DATA_LOSS, "version 4"):
            await client.store("m", b"y")


# Following


@BOTH
async def test_the_latest_version(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire) as one:
        client = ModelRegistryClient(one.channel)
        await client.create_model("m")
        async with client.track_latest("m") as latest, trio.open_nursery() as nursery:
            assert (latest.info, latest.number) == (None, 0)
            seen: list[int] = []

            async def follow() -> None:
                async for info in latest:
                    seen.append(info.version_number)

            nursery.start_soon(follow)
            with trio.move_on_after(10) as scope:
                await latest.wait_available()
            assert scope.cancelled_caught
            await client.publish("m", b"1")
            assert (await latest.wait_available()).version_number == 1
            assert (await latest.wait_available()).version_number == 1
            nursery.start_soon(_later, partial(client.publish, "m", b"2"))
            assert (await latest.wait_newer()).version_number == 2
            info, data = await latest.retrieve()
            assert (info.version_number, data) == (2, b"2")
            assert latest.number == 2
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert seen == [1, 2]
            # One that begins now gets what there is; who takes long, the newest.
            counted = []
            async for info in latest:
                counted.append(info.version_number)
                if len(counted) == 2:
                    break
                for _ in range(3):
                    await client.publish("m", b"x")
                await trio.sleep(1)
            assert counted == [2, 5]
            nursery.cancel_scope.cancel()


async def _later(call: Callable[[], Awaitable[object]]) -> None:
    await trio.sleep(5)
    await call()


@BOTH
async def test_following_ends_with_the_model(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire) as one:
        client = ModelRegistryClient(one.channel)
        async with client.track_latest("nobody") as latest:
            for call in (latest.wait_available, latest.wait_newer, latest.retrieve, latest.__aiter__().__anext__):
                with refused(StatusCode.NOT_FOUND, "nobody"):
                    await call()
        await client.publish("m", b"1")
        async with client.track_latest("m") as latest:
            await latest.wait_available()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_later, partial(client.delete_model, "m"))
                with refused(StatusCode.NOT_FOUND, "deleted"):
                    async for _ in latest:
                        pass
            assert latest.number == 1
            with refused(StatusCode.NOT_FOUND):
                await latest.retrieve()


async def test_leaving_releases_and_the_blocks_own_error_stays_as_it_is(autojump_clock: MockClock) -> None:
    async with open_harness() as one:
        client = ModelRegistryClient(one.channel)
        await client.publish("m", b"1")

        async def fail() -> None:
            async with client.track_latest("m") as latest:
                await latest.wait_available()
                assert len(one.registry.models["m"].watches) == 1
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not one.registry.models["m"].watches


async def restarts(world: World) -> list[tuple[int, str]]:
    """Follow a model over restarts of its registry; return the versions seen, and whose they are."""
    disk = world.disk("d")
    host = world.network.host("registry")
    seen: list[tuple[int, str]] = []

    async def life(*calls: Callable[[ModelRegistryClient], Awaitable[object]]) -> None:
        registry = ModelRegistry("root", host=world.host("registry", disk=disk))
        with host.running():
            async with registry, trio.open_nursery() as nursery:
                await nursery.start(partial(serve, model_registry_services(registry), [host.listen(1)]))
                async with InProcessChannel(model_registry_services(registry)) as channel:
                    for call in calls:
                        await call(ModelRegistryClient(channel))
                        await trio.sleep(10)
                host.crash()
        host.restart()
        await trio.sleep(3)

    async def follow() -> None:
        await trio.sleep(5)
        async with (
            world.network.host("far").channel("registry", 1) as channel,
            ModelRegistryClient(channel).track_latest("m") as latest,
        ):
            async for info in latest:
                seen.append((info.version_number, info.user_data["by"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await life(
            lambda client: client.store("m", b"", user_data={"by": "a"}),
            lambda client: client.publish("m", b"", user_data={"by": "b"}),
        )
        await life()  # version 2 is lost: that version 1 is the newest now is not news
        await life(lambda client: client.store("m", b"", user_data={"by": "c"}))
        nursery.cancel_scope.cancel()
    return seen


def test_following_over_restarts() -> None:
    assert simulate(1, restarts).value == [(1, "a"), (2, "b"), (3, "c")]


class Away(CallOpener):
    """A registry that cannot be reached; it notes when somebody tries."""

    def __init__(self) -> None:
        self.tried: list[float] = []

    def call(self, *_arguments: Any, **_options: Any) -> ClientCall:
        self.tried.append(trio.current_time())
        raise RpcError(StatusCode.UNAVAILABLE, "away")

    async def unary(self, *_arguments: Any, **_options: Any) -> Any:
        raise AssertionError("only the calls that follow a model are expected")


async def test_a_registry_that_is_away_is_tried_again_every_few_seconds(autojump_clock: MockClock) -> None:
    """The pauses become longer, up to the longest: when it is back, that is noticed soon."""
    away = Away()
    with trio.move_on_after(100):
        async with ModelRegistryClient(away).track_latest("m"):
            await trio.sleep_forever()
    pauses = [round(later - earlier, 6) for earlier, later in pairwise(away.tried)]
    doubled = [FIRST_PAUSE_SECONDS * 2**count for count in range(1, len(pauses) + 1)]
    assert pauses == [min(pause, LONGEST_PAUSE_SECONDS) for pause in doubled]
    assert len(pauses) > 15


async def test_a_model_that_was_made_anew_while_nobody_looked_is_news(autojump_clock: MockClock) -> None:
    async with open_harness() as one:
        client = ModelRegistryClient(one.channel)
        for _ in range(5):
            await client.publish("m", b"")
        async with client.track_latest("m") as latest:
            assert (await latest.wait_available()).version_number == 5
            latest._take(pb.ModelVersionInfo(version_number=2, creation_timestamp=1))
            assert latest.number == 5
            latest._take(pb.ModelVersionInfo(version_number=2, creation_timestamp=2**63))
            assert latest.number == 2


@BOTH
async def test_every_version_is_told_as_it_comes(wire: bool, autojump_clock: MockClock) -> None:
    async with open_harness(wire=wire) as one:
        client = ModelRegistryClient(one.channel)
        first = await client.publish("m", b"1")
        async with client.version_updates("m") as versions:
            assert await anext(versions) == first
            second = await client.store("m", b"2")
            assert await anext(versions) == second
            await client.delete_model("m")
            with refused(StatusCode.NOT_FOUND):
                await anext(versions)
        with refused(StatusCode.NOT_FOUND):
            async with client.version_updates("nobody") as versions:
                await anext(versions)


async def test_following_waits_for_a_model_that_does_not_exist_yet(autojump_clock: MockClock) -> None:
    async with open_harness() as one, trio.open_nursery() as nursery:
        client = ModelRegistryClient(one.channel)

        async def later() -> None:
            await trio.sleep(4.5)
            await client.publish("m", b"1")

        nursery.start_soon(later)
        async with client.track_latest("m", wait_seconds=10) as latest:
            assert trio.current_time() >= 4.5
            assert (await latest.wait_available()).version_number == 1
        began = trio.current_time()
        async with client.track_latest("nobody", wait_seconds=3) as latest:
            assert trio.current_time() == pytest.approx(began + 3)
            with refused(StatusCode.NOT_FOUND):
                await latest.wait_available()
