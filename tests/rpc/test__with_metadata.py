"""Calls with the same metadata in each of them, of a channel's token and of whoever adds some."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.rpc.test_liveness import MemoryListener
from trio_cogment.api.common_pb2 import Action
from trio_cogment.rpc import CallOpener, Channel, Method, WithMetadata, serve
from trio_cogment.rpc.metadata import Metadata
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, CheckService


class Noting(CallOpener):
    """Notes how it is called."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def call(self, method: Method, **options: Any) -> Any:
        self.calls.append(options)
        return self

    def call_nowait(self, method: Method, **options: Any) -> Any:
        self.calls.append(options)
        return self

    def unary_nowait(self, method: Method, *arguments: Any, **options: Any) -> Any:
        self.calls.append({"arguments": arguments, **options})
        return self


def test_each_call_has_its_own_metadata_and_that_of_all() -> None:
    noting = Noting()
    opener: Any = WithMetadata(noting, {"x": "y"})
    options = {"timeout": 4, "wait_for_ready": True, "compression": "gzip"}
    assert opener.call(ECHO, metadata={"a": "b"}, **options) is noting
    assert opener.call(ECHO) is noting
    first, on_reply = Action(), print
    assert opener.call_nowait(ECHO, metadata={"a": "b"}, first=first) is noting
    assert opener.unary_nowait(ECHO_ONE, first, on_reply, metadata={"a": "b"}, timeout=5) is noting
    both = Metadata([("a", "b"), ("x", "y")])
    assert noting.calls == [
        {"metadata": both, **options},
        {"metadata": Metadata({"x": "y"}), "timeout": None, "wait_for_ready": False, "compression": None},
        {"metadata": both, "first": first},
        {"arguments": (first, on_reply), "metadata": both, "timeout": 5},
    ]


class Telling(CheckService):
    """Notes the metadata of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Metadata] = []

    async def echo_one(self, call: Any) -> None:
        self.told.append(call.metadata)
        await super().echo_one(call)


@asynccontextmanager
async def channel_of(token: Any) -> AsyncIterator[tuple[Channel, Telling]]:
    listener, service = MemoryListener(), Telling()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, [service.service()], [listener])
            async with Channel.over(listener.connect, token=token) as channel:
                yield channel, service
            nursery.cancel_scope.cancel()


async def test_a_channel_says_who_calls_unless_the_call_does() -> None:
    async with channel_of(lambda: "secret") as (channel, service):
        await channel.unary(ECHO_ONE, Action())
        await channel.unary(ECHO_ONE, Action(), metadata={"a": "b"})
        await channel.unary(ECHO_ONE, Action(), metadata={"authorization": "Bearer mine", "a": "b"})
        replied = trio.Event()
        assert channel.unary_nowait(ECHO_ONE, Action(), lambda *_: replied.set(), metadata={"c": "d"}) is not None
        await replied.wait()
    said = [(metadata.all("authorization"), metadata.first("a"), metadata.first("c")) for metadata in service.told]
    assert said == [
        (["Bearer secret"], None, None),
        (["Bearer secret"], "b", None),
        (["Bearer mine"], "b", None),
        (["Bearer secret"], None, "d"),
    ]


async def test_a_channel_without_a_token_adds_nothing() -> None:
    async with channel_of("") as (channel, service):
        await channel.unary(ECHO_ONE, Action(), metadata={"a": "b"})
    assert service.told[0] == Metadata({"a": "b"})


async def test_a_channel_can_be_entered_once() -> None:
    async with channel_of("") as (channel, _):
        with pytest.raises(RuntimeError, match="a channel can be entered once"):
            await channel.__aenter__()
        await channel.unary(ECHO_ONE, Action())
