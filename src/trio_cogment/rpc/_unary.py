"""The unary shape on top of a call: one message out, exactly one back."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from trio_cogment.errors import RpcError, StatusCode
from trio_cogment.rpc.calls import CallOpener, MetadataLike, Method


async def unary_call(
    opener: CallOpener,
    method: Method,
    request: Message,
    *,
    metadata: MetadataLike,
    timeout: float | None,
    wait_for_ready: bool = False,
    compression: str | None = None,
) -> Any:
    """See `CallOpener.unary`."""
    async with opener.call(
        method, metadata=metadata, timeout=timeout, wait_for_ready=wait_for_ready, compression=compression
    ) as call:
        try:
            await call.send(request)
            await call.done_sending()
        except RpcError as error:
            # A server may refuse before it has read the request: its status says more than our failed send.
            if error.code is not StatusCode.CANCELLED:
                raise
        response = await call.receive()
        if response is None:
            raise RpcError(StatusCode.INTERNAL, f"{method.path}: no response message")
        if await call.receive() is not None:
            raise RpcError(StatusCode.INTERNAL, f"{method.path}: more than one response message")
        return response
