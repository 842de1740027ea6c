"""The methods of a service as objects that are called, with types: what generated stubs consist of.

`sdk.spec.generation` writes a class for each service, with one of these for each of its methods. A method is
called for its response where it has one, and opened, as `async with stub.Chat.open() as call`, for the call itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Generic

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc.calls import CallOpener, ClientCall, MetadataLike, Method, ReceivedT, SentT, only_response


class StubMethod(Generic[SentT, ReceivedT]):
    """A method of a service that a channel leads to.

    Args:
        channel: makes the calls.
        method: which one.

    Attributes:
        channel: see above.
        method: see above.
    """

    def __init__(self, channel: CallOpener, method: Method[SentT, ReceivedT]) -> None:
        self.channel = channel
        self.method = method

    def open(
        self,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ClientCall[SentT, ReceivedT]:
        """Open a call, for a block in which messages are sent and received; see `CallOpener.call`.

        Raises:
            ValueError, RpcError: as `CallOpener.call`.
        """
        return self.channel.call(
            self.method,
            metadata=metadata,
            timeout=timeout,
            wait_for_ready=wait_for_ready,
            compression=compression,
        )


class UnaryUnaryMethod(StubMethod[SentT, ReceivedT]):
    """A method with one request and one response: `await stub.Greet(request)`."""

    async def __call__(
        self,
        request: SentT,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ReceivedT:
        """Send the request and return the response; see `CallOpener.unary`.

        Raises:
            ValueError, RpcError: as `CallOpener.unary`.
        """
        return await self.channel.unary(
            self.method,
            request,
            metadata=metadata,
            timeout=timeout,
            wait_for_ready=wait_for_ready,
            compression=compression,
        )


class UnaryStreamMethod(StubMethod[SentT, ReceivedT]):
    """A method with one request and a stream of responses: `async with stub.Count(request) as call`."""

    @asynccontextmanager
    async def __call__(
        self,
        request: SentT,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> AsyncIterator[ClientCall[SentT, ReceivedT]]:
        """Open a call and send the request; `async for response in call` gives the responses.

        Raises:
            ValueError, RpcError: as `CallOpener.call`, and as `Call.send`.
        """
        async with self.open(
            metadata=metadata, timeout=timeout, wait_for_ready=wait_for_ready, compression=compression
        ) as call:
            await send_all(call, [request])
            yield call


class StreamUnaryMethod(StubMethod[SentT, ReceivedT]):
    """A method with a stream of requests and one response: `await stub.Join(requests)`."""

    async def __call__(
        self,
        requests: Iterable[SentT] | AsyncIterable[SentT],
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ReceivedT:
        """Send the requests and return the response.

        Raises:
            ValueError, RpcError: as `CallOpener.unary`.
        """
        async with self.open(
            metadata=metadata, timeout=timeout, wait_for_ready=wait_for_ready, compression=compression
        ) as call:
            await send_all(call, requests)
            return await only_response(call, self.method)


class StreamStreamMethod(StubMethod[SentT, ReceivedT]):
    """A method with streams both ways: `async with stub.Chat.open() as call`."""


async def send_all(call: ClientCall[SentT, ReceivedT], requests: Iterable[SentT] | AsyncIterable[SentT]) -> None:
    """Send requests and say that these are all; stop where the server has ended the call, which `receive` tells.

    Raises:
        RpcError: the call failed while a request was sent, and not because the server has ended it.
    """
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            if not await _sent(call, request):
                return
    else:
        for request in requests:
            if not await _sent(call, request):
                return
    await _sent(call, None)


async def _sent(call: ClientCall[SentT, ReceivedT], request: SentT | None) -> bool:
    """Send a request, or that there are no more; return whether the call takes any."""
    try:
        await (call.done_sending() if request is None else call.send(request))
    except RpcError as error:
        # A server may refuse before it has read the requests: its status says more than the failed send.
        if error.code is not StatusCode.CANCELLED:
            raise
        return False
    return True
