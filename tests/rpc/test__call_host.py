"""A host that opens calls in a way of its own is asked to; with another one channels are the usual ones."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import pytest
import trio

from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.base.host import Host
from trio_cogment.rpc import Channel, InProcessChannel
from trio_cogment.rpc._call_host import CallHost, open_channel, open_in_process
from trio_cogment.testing.conformance.channel import ECHO_ONE, CheckService

CONFIG = RpcConfig(keepalive_seconds=77)


def test_a_host_makes_channels_in_its_own_way() -> None:
    made: list[tuple[Any, ...]] = []
    mine: AbstractAsyncContextManager[Any] = nullcontext()

    def channel(address: str, port: int, **options: Any) -> AbstractAsyncContextManager[Any]:
        made.append((address, port, options))
        return mine

    def in_process(services: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        made.append((services, options))
        return mine

    services = [CheckService().service()]
    host = CallHost(channel=channel, in_process=in_process)
    assert open_channel(host, "127.0.0.1", 9000, config=CONFIG) is mine
    assert open_in_process(host, services, config=CONFIG) is mine
    assert made == [("127.0.0.1", 9000, {"tls": None, "config": CONFIG}), (services, {"config": CONFIG})]


async def test_otherwise_they_are_the_usual_ones() -> None:
    for host in (Host(), CallHost()):
        channel = open_channel(host, "127.0.0.1", 9000, config=CONFIG, token="t")
        assert isinstance(channel, Channel)
        assert channel.authority == "127.0.0.1:9000"
        in_process = open_in_process(host, [CheckService().service()], config=CONFIG)
        assert isinstance(in_process, InProcessChannel)
        assert in_process.config is CONFIG


async def test_a_channel_connects_as_its_host_does() -> None:
    asked: list[tuple[str, int]] = []

    async def connect(address: str, port: int) -> trio.abc.Stream:
        asked.append((address, port))
        await trio.lowlevel.checkpoint()
        raise OSError("nobody is there")

    async with Channel("somewhere", 7, host=Host(connect=connect), config=RpcConfig(await_server_seconds=0)) as channel:
        with pytest.raises(RpcError, match="nobody is there"):
            await channel.unary(ECHO_ONE, Action())
    assert asked == [("somewhere", 7)]
