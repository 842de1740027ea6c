"""Services that are called in different places, as one opener."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message
from typing_extensions import override

from trio_cogment.rpc.calls import CallOpener, ClientCall, DirectCall, MetadataLike, Method


class ByService(CallOpener):
    """Calls each service by the opener that it has.

    Args:
        openers: by the full name of the service.
    """

    def __init__(self, openers: Mapping[str, CallOpener]) -> None:
        self._openers = dict(openers)

    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ClientCall:
        """See `CallOpener.call`.

        Raises:
            KeyError: the service of the method is none of these.
        """
        return self._of(method).call(
            method, metadata=metadata, timeout=timeout, wait_for_ready=wait_for_ready, compression=compression
        )

    @override
    def call_nowait(
        self, method: Method, *, metadata: MetadataLike = (), first: Message | None = None
    ) -> DirectCall | None:
        return self._of(method).call_nowait(method, metadata=metadata, first=first)

    def _of(self, method: Method) -> CallOpener:
        return self._openers[method.path.split("/")[1]]
