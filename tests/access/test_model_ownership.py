"""Models are whose they are, and how many and how much one account may have: over the wire, also after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.access.keys import control, grant, token_text
from trio_cogment.access import Quotas, Role
from trio_cogment.api.model_registry_pb2 import ModelInfo
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.sdk import ModelRegistryClient
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services

PATIENCE_SECONDS = 30


class World:
    """A registry that asks for tokens."""

    def __init__(self, registry: ModelRegistry, port: int) -> None:
        self.registry = registry
        self._port = port

    @asynccontextmanager
    async def client(self, name: str, role: Role = Role.OPERATOR, **quotas: int) -> AsyncIterator[ModelRegistryClient]:
        held = grant(role, name=name, quotas=Quotas(**quotas))
        async with Channel("127.0.0.1", self._port, token=token_text(held, token_id=name)) as channel:
            yield ModelRegistryClient(channel)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    with trio.fail_after(PATIENCE_SECONDS):
        async with ModelRegistry(folder) as registry, trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            services = model_registry_services(registry)
            running = await nursery.start(partial(serve, services, listeners, access=control()))
            yield World(registry, running.port)
            nursery.cancel_scope.cancel()


def owners_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.owner"))


async def code_of(doing: Awaitable[object]) -> StatusCode:
    try:
        await doing
    except RpcError as error:
        return error.code
    return StatusCode.OK


async def names(client: ModelRegistryClient) -> list[str]:
    return [info.model_id async for info in client.list_models()]


async def test_operators_read_all_models_and_change_their_own(tmp_path: Path) -> None:
    for _ in range(2):  # the second time after a restart
        async with (
            world(tmp_path) as here,
            here.client("alice") as alice,
            here.client("bob") as bob,
            here.client("eve", Role.OBSERVER) as eve,
            here.client("root", Role.ADMIN) as root,
        ):
            await alice.create_model("hers", {"a": "b"})
            await alice.store("hers", b"weights")
            await bob.create_model("his")
            for reader in (bob, eve, root):
                assert (await reader.retrieve("hers"))[1] == b"weights"
                assert await names(reader) == ["hers", "his"]
            for other in (bob, eve):
                for doing in (
                    other.create_model("hers"),
                    other.publish("hers", b"forged"),
                    other.store("hers", b"forged"),
                    other.delete_model("hers"),
                ):
                    assert await code_of(doing) is StatusCode.PERMISSION_DENIED
            assert (await alice.model_info("hers")).user_data == {"a": "b"}
            assert (await alice.retrieve("hers"))[1] == b"weights"
            # The administrator may change it, and it stays hers.
            await root.create_model("hers", {"a": "b"})
            await root.store("hers", b"more")
            await alice.store("hers", b"weights")
            await bob.delete_model("his")
    async with world(tmp_path) as here, here.client("alice") as alice, here.client("root", Role.ADMIN) as root:
        await alice.delete_model("hers")
        assert here.registry.holdings.counts.accounts == {}
        assert await names(root) == []


async def test_models_from_before_are_nobodys(tmp_path: Path) -> None:
    async with ModelRegistry(tmp_path) as registry:
        await registry.create_or_update(ModelInfo(model_id="old"))
    async with world(tmp_path) as here, here.client("alice") as alice, here.client("root", Role.ADMIN) as root:
        for doing in (alice.create_model("old"), alice.store("old", b"x"), alice.delete_model("old")):
            assert await code_of(doing) is StatusCode.PERMISSION_DENIED
        await root.store("old", b"x")
        await root.delete_model("old")
        # Its name is free for anybody.
        await alice.create_model("old")
        await alice.store("old", b"x")


async def test_a_model_that_is_made_anew_belongs_to_whoever_makes_it(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client("alice") as alice, here.client("bob") as bob:
        await alice.create_model("m")
        await alice.delete_model("m")
        await bob.create_model("m")
    async with world(tmp_path) as here, here.client("alice") as alice, here.client("bob") as bob:
        assert await code_of(alice.delete_model("m")) is StatusCode.PERMISSION_DENIED
        await bob.delete_model("m")
    async with ModelRegistry(tmp_path) as registry:
        await registry.create_or_update(ModelInfo(model_id="m"))
    async with world(tmp_path) as here, here.client("bob") as bob:
        assert await code_of(bob.delete_model("m")) is StatusCode.PERMISSION_DENIED


async def test_quota_of_models(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client("alice", models=2) as alice:
        await alice.create_model("a")
        await alice.create_model("b")
        with pytest.raises(RpcError, match="the quota of 2 models of this account is used up") as caught:
            await alice.create_model("c")
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        await alice.create_model("a", {"changed": "yes"})
    async with world(tmp_path) as here, here.client("alice", models=2) as alice, here.client("bob", models=1) as bob:
        assert await code_of(alice.create_model("c")) is StatusCode.RESOURCE_EXHAUSTED
        await bob.create_model("d")
        await alice.delete_model("b")
        await alice.create_model("c")


@pytest.mark.parametrize("archived", [True, False])
async def test_quota_of_bytes(archived: bool, tmp_path: Path) -> None:
    quota = 20_000

    async def add(client: ModelRegistryClient, size: int) -> None:
        await (client.store if archived else client.publish)("m", bytes(size))

    async with (
        world(tmp_path) as here,
        here.client("alice", stored_bytes=quota) as alice,
        here.client("root", Role.ADMIN) as root,
    ):
        await alice.create_model("m")
        await add(alice, 15_000)
        with pytest.raises(RpcError, match=f"the quota of {quota} stored_bytes of this account is used up") as caught:
            await add(alice, 10_000)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        await add(alice, 1000)
        assert here.registry.holdings.reserved.accounts == {}
        used = here.registry.holdings.used("token:alice")
        assert 16_000 < used < quota
        assert await code_of(alice.create_model("n", {"long": "x" * 10_000})) is StatusCode.RESOURCE_EXHAUSTED
        # It is the account's own quota.
        await add(root, 10_000)
        assert await code_of(add(alice, 0)) is StatusCode.RESOURCE_EXHAUSTED
        assert here.registry.holdings.used("token:alice") > used + 10_000
    async with world(tmp_path) as here, here.client("alice", stored_bytes=quota) as alice:
        # What is in memory only is gone.
        assert await code_of(add(alice, 0)) is (StatusCode.RESOURCE_EXHAUSTED if archived else StatusCode.OK)
        await alice.delete_model("m")
        assert here.registry.holdings.used("token:alice") == 0
        await alice.create_model("m")
        await add(alice, 15_000)


async def test_uploads_at_the_same_time_share_a_quota(tmp_path: Path) -> None:
    codes: list[StatusCode] = []
    async with world(tmp_path) as here, here.client("alice", stored_bytes=10_000) as alice:
        await alice.create_model("m")

        async def upload() -> None:
            codes.append(await code_of(alice.store("m", bytes(4000))))

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(upload)
        assert sorted(code.name for code in codes) == ["OK"] * 2 + ["RESOURCE_EXHAUSTED"] * 4
        assert 8000 < here.registry.holdings.used("token:alice") <= 10_000
        assert here.registry.holdings.reserved.accounts == {}


async def test_where_nobody_asks_for_tokens_models_are_everybodys(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with ModelRegistry(tmp_path) as registry, trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            running = await nursery.start(partial(serve, model_registry_services(registry), listeners))
            async with Channel("127.0.0.1", running.port) as channel:
                client = ModelRegistryClient(channel)
                await client.create_model("m")
                await client.store("m", b"x")
            assert registry.models["m"].owner == ""
            nursery.cancel_scope.cancel()
    assert not owners_in(tmp_path)
