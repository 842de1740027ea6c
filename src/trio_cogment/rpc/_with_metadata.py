"""Calls that carry the same metadata, in addition to their own."""

from __future__ import annotations

from google.protobuf.message import Message
from typing_extensions import override

from trio_cogment.rpc.calls import CallOpener, ClientCall, DirectCall, MetadataLike, Method, OnReply
from trio_cogment.rpc.metadata import Metadata


class WithMetadata(CallOpener):
    """Another opener's calls, with metadata added to each.

    Args:
        opener: makes the calls.
        metadata: what is added; see `Metadata` for what is allowed, and `basic_auth`.

    Raises:
        InvalidArgumentError: as `Metadata`.
    """

    def __init__(self, opener: CallOpener, metadata: MetadataLike) -> None:
        self._opener = opener
        self._metadata = Metadata(metadata)

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
        return self._opener.call(
            method,
            metadata=self._with(metadata),
            timeout=timeout,
            wait_for_ready=wait_for_ready,
            compression=compression,
        )

    @override
    def call_nowait(
        self, method: Method, *, metadata: MetadataLike = (), first: Message | None = None
    ) -> DirectCall | None:
        return self._opener.call_nowait(method, metadata=self._with(metadata), first=first)

    @override
    def unary_nowait(
        self,
        method: Method,
        request: Message,
        on_reply: OnReply,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
    ) -> ClientCall | None:
        metadata = self._with(metadata)
        return self._opener.unary_nowait(method, request, on_reply, metadata=metadata, timeout=timeout)

    def _with(self, metadata: MetadataLike) -> Metadata:
        return Metadata.from_wire((*Metadata(metadata), *self._metadata)) if metadata else self._metadata
