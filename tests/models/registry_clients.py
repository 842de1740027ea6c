"""A model registry and clients that use it at once, while it crashes, loses its power, or has a storage that fails."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import trio

from tests.models import registry as model
from tests.models.clients import NO_ANSWER, NOT_FOUND, PATIENCE_SECONDS, ask
from tests.servers.model_registry.helpers import METHODS
from tests.servers.model_registry.test_simulated import FAULTS, PORT, registry_on
from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.base.config import ModelRegistryConfig
from trio_cogment.base.errors import RpcError, StatusCode, UnavailableError
from trio_cogment.rpc import CallOpener
from trio_cogment.servers.model_registry import BlobStore, LocalBlobs, ModelRegistry, model_registry_services
from trio_cogment.testing import CallLog, FaultyStore, SimDisk, StoreFaults, World

IDS = ("m", "n")
CLIENTS = ("ann", "bob", "cat")
TURNS = 14
LIVES = 3
#: Of versions: one chunk, several, and none.
SIZES = (0, 100, 100, 100_000)


class Step(NamedTuple):
    """What a client does next. What is not needed for it has no meaning.

    Attributes:
        what: a name of `STEPS`.
        model: which model.
        archived: of an upload.
        wanted: the version that is asked for.
        most: of a page.
        size: of an upload.
        pause: before it, in seconds.
    """

    what: str
    model: str = "m"
    archived: bool = True
    wanted: int = -1
    most: int = 0
    size: int = 100
    pause: float = 0.0


STEPS = (
    *("put", "upload", "upload", "upload", "upload", "upload", "delete", "describe", "models", "versions", "versions"),
    *("find", "find", "read", "read", "follow"),
)


def draw(rng: random.Random) -> Step:
    """Draw a step."""
    return Step(
        rng.choice(STEPS),
        rng.choice(IDS),
        rng.random() < 0.6,
        rng.choice([-1, -1, -2, -3, 1, 2, 3, 4]),
        rng.choice([0, 1, 2]),
        rng.choice(SIZES),
        rng.choice([0.0, 0.0, rng.uniform(0, 1)]),
    )


class Client:
    """One that uploads, looks and deletes."""

    def __init__(self, log: CallLog, name: str, channel: CallOpener, following: trio.Nursery) -> None:
        self._log = log
        self.name = name
        self._channel = channel
        self._following = following
        self._count = 0

    async def do(self, step: Step) -> None:
        """Do a step."""
        await trio.sleep(step.pause)
        self._count += 1
        unique = f"{self.name}{self._count}"
        if step.what == "put":
            await self._ask(model.Put(step.model, unique), self._put)
        elif step.what == "delete":
            await self._ask(model.Delete(step.model), self._delete)
        elif step.what == "upload":
            request = model.Upload(step.model, step.archived, unique)
            if await self._ask(request, lambda asked: self._upload(asked, step.size)) == NOT_FOUND:
                await self._ask(model.Put(step.model, unique), self._put)
        elif step.what == "follow":
            self._following.start_soon(follow, self._log, self.name, self._channel, step.model)
        else:
            await self._look(step)

    async def _look(self, step: Step) -> None:
        if step.what == "describe":
            await self._ask(model.Describe(step.model), self._describe)
        elif step.what == "models":
            await self._ask(model.ListModels(IDS), lambda _: self._models(step.most))
        elif step.what == "versions":
            await self._ask(model.ListVersions(step.model, max(step.wanted, 0), step.most), self._versions)
        elif step.what == "find":
            await self._ask(model.Find(step.model, step.wanted), self._find)
        else:
            await self._ask(model.Read(step.model, step.wanted), self._read)

    async def _ask(self, request: Any, call: Any) -> Any:
        return await ask(self._log, self.name, request, lambda: call(request))

    async def _call(self, name: str, request: Any) -> Any:
        return await self._channel.unary(METHODS[name], request)

    async def _put(self, request: model.Put) -> str:
        info = pb.ModelInfo(model_id=request.model, user_data={"data": request.data})
        await self._call("CreateOrUpdateModel", pb.CreateOrUpdateModelRequest(model_info=info))
        return model.OK

    async def _delete(self, request: model.Delete) -> str:
        await self._call("DeleteModel", pb.DeleteModelRequest(model_id=request.model))
        return model.OK

    async def _upload(self, request: model.Upload, size: int) -> int:
        data = request.text.encode().ljust(size, b".")
        given: dict[str, Any] = {"model_id": request.model, "archived": request.archived, "data_size": len(data)}
        info = pb.ModelVersionInfo(**given, user_data={"text": request.text})
        chunks = [pb.CreateVersionRequestChunk(header={"version_info": info})]
        for start in range(0, len(data), 30_000):
            body = pb.CreateVersionRequestChunk.Body(data_chunk=data[start : start + 30_000])
            chunks.append(pb.CreateVersionRequestChunk(body=body))
        async with self._channel.call(METHODS["CreateVersion"]) as call:
            with suppress(RpcError):  # it is refused already: the answer says why
                for chunk in chunks:
                    await call.send(chunk)
                await call.done_sending()
            return int((await call.receive()).version_info.version_number)

    async def _describe(self, request: model.Describe) -> str:
        reply = await self._call("RetrieveModels", pb.RetrieveModelsRequest(model_ids=[request.model]))
        return str(reply.model_infos[0].user_data["data"])

    async def _models(self, count: int) -> dict[str, str]:
        found: dict[str, str] = {}
        handle = ""
        while True:
            reply = await self._call(
                "RetrieveModels", pb.RetrieveModelsRequest(models_count=count, model_handle=handle)
            )
            found |= {info.model_id: info.user_data["data"] for info in reply.model_infos}
            handle = reply.next_model_handle
            if not count or len(reply.model_infos) < count:
                return found

    async def _versions(self, request: model.ListVersions) -> tuple[model.Version, ...]:
        handle = str(request.first or "")
        asked = pb.RetrieveVersionInfosRequest(
            model_id=request.model, versions_count=request.most, version_handle=handle
        )
        return tuple(map(version_of, (await self._call("RetrieveVersionInfos", asked)).version_infos))

    async def _find(self, request: model.Find) -> model.Version:
        asked = pb.RetrieveVersionInfosRequest(model_id=request.model, version_numbers=[request.wanted])
        return version_of((await self._call("RetrieveVersionInfos", asked)).version_infos[0])

    async def _read(self, request: model.Read) -> str:
        asked = pb.RetrieveVersionDataRequest(model_id=request.model, version_number=request.wanted)
        async with self._channel.call(METHODS["RetrieveVersionData"]) as call:
            await call.send(asked)
            await call.done_sending()
            return b"".join([reply.data_chunk async for reply in call]).decode().rstrip(".")


def version_of(info: pb.ModelVersionInfo) -> model.Version:
    """Return a version as the model has it."""
    return model.Version(info.version_number, info.archived, info.user_data["text"])


async def follow(log: CallLog, name: str, channel: CallOpener, model_id: str) -> None:
    """Be told of new versions for some time."""
    since, last = log.now(), 0

    def seen(answer: Any) -> None:
        log.seen(f"{name}, following", model.Next(model_id, last), answer, since=since)

    try:
        with trio.move_on_after(PATIENCE_SECONDS / 4):
            async with channel.call(METHODS["VersionUpdate"]) as call:
                await call.send(pb.VersionUpdateRequest(model_id=model_id))
                await call.done_sending()
                async for reply in call:
                    version = version_of(reply.version_info)
                    seen(version)
                    last = version.number
    except RpcError as error:
        if error.code is StatusCode.NOT_FOUND:
            seen(NOT_FOUND)
        elif error.code not in NO_ANSWER:
            raise


async def that_crashes(world: World) -> CallLog:
    """The program or the machine of the registry ends, in the middle of a write or not, and begins again."""
    log = CallLog()
    disk = world.disk("registry")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_lives, world, log, disk)
        async with trio.open_nursery() as clients:
            for name in CLIENTS:
                clients.start_soon(_a_client, world, log, name, name=f"client {name}")
        nursery.cancel_scope.cancel()
    return log


async def _lives(world: World, log: CallLog, disk: SimDisk) -> None:
    rng = world.stream("crashes")
    host = world.network.host("registry")
    restart: int | None = None
    for life in range(LIVES + 1):
        power = rng.random() < 0.5
        with host.running():
            if power and rng.random() < 0.5 and life < LIVES:
                disk.crash_at(disk.operations + rng.randrange(10, 100))
            try:
                async with registry_on(world, LocalBlobs("/archive", files=disk)):
                    if restart is not None:
                        log.end(restart, model.OK)
                        restart = None
                    await trio.sleep(rng.uniform(0.2, 3.0) if life < LIVES else 1e6)
                    restart = log.begin("the world", model.Restart(IDS))
                    if power:
                        disk.crash()
                    host.crash(power=power)
                    await trio.sleep_forever()
            except UnavailableError:  # the power went while the archive was being opened
                host.crash(power=power)
        if restart is None:
            restart = log.begin("the world", model.Restart(IDS))
        world.sometimes("power loss" if power else "crash")
        await trio.sleep(rng.uniform(0.1, 1.0))
        disk.restart()
        host.restart()


async def _a_client(world: World, log: CallLog, name: str) -> None:
    rng = world.stream(f"client {name}")
    async with world.network.host(name).channel("registry", PORT) as channel, trio.open_nursery() as following:
        client = Client(log, name, channel, following)
        for _ in range(TURNS):
            await client.do(draw(rng))


async def with_a_storage_that_fails(world: World) -> CallLog:
    """Operations of the storage fail, before they are done or after; in the end it begins again."""
    log = CallLog()
    disk = world.disk("registry")
    faulty: FaultyStore[BlobStore] = FaultyStore(
        LocalBlobs("/archive", files=disk),
        rng=world.stream("storage"),
        history=world.history,
        plain=lambda text: OSError(errno.EIO, text),
    )
    async with registry_on(world, faulty.store):
        faulty.faults = FAULTS
        async with trio.open_nursery() as clients:
            for name in CLIENTS:
                clients.start_soon(_a_client, world, log, name, name=f"client {name}")
        faulty.faults = StoreFaults()
    log.end(log.begin("the world", model.Restart(IDS)), model.OK)
    async with registry_on(world, LocalBlobs("/archive", files=disk)):
        await look_at_all(world, log)
    for event in world.history:
        world.sometimes(event.what)
    return log


async def look_at_all(world: World, log: CallLog) -> None:
    """Ask for everything there is."""
    async with world.network.host("looking").channel("registry", PORT) as channel, trio.open_nursery() as following:
        client = Client(log, "looking", channel, following)
        for what in ("describe", "versions", "upload", "versions"):
            for model_id in IDS:
                await client.do(Step(what, model_id, wanted=0))


async def in_one_process(world: World, scripts: Sequence[Sequence[Step]]) -> CallLog:
    """Clients that do what they are told, in one process, with room for all."""
    log = CallLog()
    config = ModelRegistryConfig(cache_max_items=1000)
    host = world.host("registry")
    registry = ModelRegistry(LocalBlobs("/archive", files=world.disk("registry")), config=config, host=host)
    async with (
        registry,
        world.in_process(model_registry_services(registry)) as channel,
        trio.open_nursery() as nursery,
    ):
        for number, script in enumerate(scripts):
            nursery.start_soon(_script, Client(log, f"{number}-", channel, nursery), script, name=f"client {number}")
    return log


async def _script(client: Client, script: Sequence[Step]) -> None:
    for step in script:
        await client.do(step)
