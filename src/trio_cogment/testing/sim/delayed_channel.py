"""Calls within the process that take time, as over links between hosts.

The in-process channel itself delivers messages without any delay. In virtual time that is a trap: two parts of a
program that answer each other at once never let time pass.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NamedTuple

import trio
from google.protobuf.message import Message
from purerpc import RPCSignature, Service
from typing_extensions import override

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import (
    CallOpener,
    ClientCall,
    DirectCall,
    InProcessChannel,
    Metadata,
    MetadataLike,
    Method,
    ServerCall,
)
from trio_cogment.testing.sim.links import Link

#: Messages of a call under way in one direction; then their sender waits.
MAX_UNDER_WAY = 64


class DelayedChannel(CallOpener, AbstractAsyncContextManager["DelayedChannel"]):
    """An in-process channel whose messages take as long as a link says: `async with DelayedChannel(...) as channel`.

    Behaves as `rpc.InProcessChannel` otherwise: messages stay objects, nothing is lost, order is kept. Headers,
    messages, ends and statuses take the latency and a part of the jitter, each direction of a call on its own; only a
    call that is cancelled is cancelled at once. The other properties of a link (bandwidth, loss) do not apply.

    Args:
        services: what can be called.
        link: the latency, more than 0, and the jitter.
        stream: gives a generator of random numbers for a name; each call has its own, so that no call
            changes the delays of another.
        config: limits, of both sides.
    """

    def __init__(
        self,
        services: Iterable[Service],
        link: Link,
        stream: Callable[[str], random.Random],
        *,
        config: RpcConfig | None = None,
    ) -> None:
        served = list(services)
        self._link = link
        self._stream = stream
        self._numbers: Counter[str] = Counter()
        self._there = InProcessChannel(served, config=config)
        self._here = InProcessChannel(map(self._relaying, served), config=config)

    async def __aenter__(self) -> DelayedChannel:
        await self._there.__aenter__()
        await self._here.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            await self._here.__aexit__(None, None, None)
        finally:
            await self._there.__aexit__(None, None, None)
        return None

    @override
    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ClientCall:
        return self._here.call(method, metadata=metadata, timeout=timeout, compression=compression)

    @override
    def call_nowait(
        self, method: Method, *, metadata: MetadataLike = (), first: Message | None = None
    ) -> DirectCall | None:
        return self._here.call_nowait(method, metadata=metadata, first=first)

    def _relaying(self, service: Service) -> Service:
        relay = Service(service.name)
        for name, bound in service.methods.items():
            signature: RPCSignature = bound.signature
            relay.add_method(name, self._relay, signature)
        return relay

    async def _relay(self, call: ServerCall) -> None:
        name = f"{call.method.path} {call.metadata}"
        self._numbers[name] += 1
        await _Relay(call, self._link, self._stream(f"{name} #{self._numbers[name]}")).run(self._there)


class _Relay:
    """One call on its way."""

    def __init__(self, call: ServerCall, link: Link, rng: random.Random) -> None:
        self._call = call
        self._link = link
        self._rng = rng

    def delay(self) -> float:
        """Draw how long a message takes."""
        return self._link.latency_seconds + self._rng.uniform(0, self._link.jitter_seconds)

    async def run(self, there: CallOpener) -> None:
        call = self._call
        await trio.sleep(self.delay())
        end: _End | None = None
        # The deadline of the call is that of the scope around us, so it goes along.
        async with there.call(call.method, metadata=call.metadata) as onward, trio.open_nursery() as nursery:
            nursery.start_soon(self._requests, call, onward)
            end = await self._responses(call, onward)
            nursery.cancel_scope.cancel()
        assert end is not None
        call.set_trailing_metadata(end.trailing)
        if end.error is not None:
            raise RpcError(end.error.code, end.error.message)

    async def _requests(self, call: ServerCall, onward: ClientCall) -> None:
        give, take = trio.open_memory_channel[tuple[float, Any]](MAX_UNDER_WAY)

        async def collect() -> None:
            async for message in call:
                await give.send((trio.current_time() + self.delay(), message))
            await give.send((trio.current_time() + self.delay(), None))

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(collect)
                async for arrival, message in take:
                    await trio.sleep_until(arrival)
                    if message is None:
                        await onward.done_sending()
                        return
                    await onward.send(message)
        except* RpcError:
            pass  # the call is over; its status comes the other way

    async def _responses(self, call: ServerCall, onward: ClientCall) -> _End:
        give, take = trio.open_memory_channel[tuple[float, Any]](MAX_UNDER_WAY)

        async def pass_on(thing: Any) -> None:
            await give.send((trio.current_time() + self.delay(), thing))

        async def collect() -> None:
            error: RpcError | None = None
            try:
                await pass_on(await onward.wait_initial_metadata())
                async for message in onward:
                    await pass_on(message)
            except RpcError as caught:
                error = caught
            await pass_on(_End(error, onward.trailing_metadata or Metadata()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect)
            async for arrival, thing in take:
                await trio.sleep_until(arrival)
                if isinstance(thing, _End):
                    return thing
                if isinstance(thing, Metadata):
                    call.set_initial_metadata(thing)
                    await call.send_initial_metadata()
                else:
                    await call.send(thing)
        raise AssertionError("the channel above is never closed")


class _End(NamedTuple):
    """How a call ended."""

    error: RpcError | None
    trailing: Metadata
