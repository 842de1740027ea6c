"""Our directory as a process, and what it shows to a client that is neither ours nor the SDK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from tests.interop.processes import Server, Stage
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest
from trio_cogment.api.directory_pb2 import FullServiceData, InquireReply, InquireRequest, ServiceDetails

PATIENCE_SECONDS = 20


class Directory:
    """A server, and a way to look into it.

    Args:
        stage: where it plays.
        server: is it.
        tls: folder with key.pem, chain.pem and roots.pem, if it wants certificates.
    """

    def __init__(self, stage: Stage, server: Server, tls: Path | None) -> None:
        self.server = server
        self._stage = stage
        self._tls = tls

    @property
    def endpoint(self) -> str:
        return self.server.endpoint

    def entries(self, kind: str, **properties: str) -> Sequence[FullServiceData]:
        """Return what is shown of this kind and with these properties, the newest first."""
        details = ServiceDetails(type=kind, properties=properties)
        with self._channel() as channel:
            inquire = channel.unary_stream(
                "/cogmentAPI.DirectorySP/Inquire",
                request_serializer=InquireRequest.SerializeToString,
                response_deserializer=InquireReply.FromString,
            )
            return [reply.data for reply in inquire(InquireRequest(details=details), timeout=PATIENCE_SECONDS)]

    def count(self) -> int:
        """Return how many registrations there are, those that are not shown included."""
        with self._channel() as channel:
            status = channel.unary_unary(
                "/cogmentAPI.DirectorySP/Status",
                request_serializer=StatusRequest.SerializeToString,
                response_deserializer=StatusReply.FromString,
            )
            return int(status(StatusRequest(names=["nb_entries"]), timeout=PATIENCE_SECONDS).statuses["nb_entries"])

    def until(self, kind: str, number: int, seconds: float = 30, **properties: str) -> Sequence[FullServiceData]:
        """Wait until this many are shown."""

        def there() -> bool:
            return len(self.entries(kind, **properties)) == number

        self._stage.until(f"{number} of {kind} {properties} in the directory", there, seconds)
        return self.entries(kind, **properties)

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        address = self.endpoint.removeprefix("grpc://")
        if self._tls is None:
            with grpc.insecure_channel(address) as channel:
                yield channel
            return
        roots, key, chain = ((self._tls / name).read_bytes() for name in ("roots.pem", "key.pem", "chain.pem"))
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(roots, key, chain)) as channel:
            yield channel
