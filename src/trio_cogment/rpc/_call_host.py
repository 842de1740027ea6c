"""Hosts that open calls in a way of their own, as simulated ones do: to note them, or to let them take time."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from purerpc import Service

from trio_cogment.access import TokenSource
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.host import Host
from trio_cogment.rpc.calls import CallOpener
from trio_cogment.rpc.channel import Channel
from trio_cogment.rpc.inprocess import InProcessChannel


class OpenChannel(Protocol):
    """Makes a channel to a server; see `open_channel`."""

    def __call__(
        self, address: str, port: int, *, tls: ssl.SSLContext | None = None, config: RpcConfig | None = None
    ) -> AbstractAsyncContextManager[CallOpener]:
        """See the class."""


class OpenInProcess(Protocol):
    """Opens services to calls within the process; see `open_in_process`."""

    def __call__(
        self, services: Iterable[Service], *, config: RpcConfig | None = None
    ) -> AbstractAsyncContextManager[CallOpener]:
        """See the class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHost(Host):
    """A `Host` that also says how calls are opened.

    Attributes:
        channel: makes channels to servers; None: they are `Channel`s over `connect`.
        in_process: opens services to calls within the process; None: with an `InProcessChannel`.
    """

    channel: OpenChannel | None = None
    in_process: OpenInProcess | None = None


def open_channel(
    host: Host,
    address: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    config: RpcConfig | None = None,
    token: str | TokenSource = "",
) -> AbstractAsyncContextManager[CallOpener]:
    """Return a channel from a host to a server, to be entered.

    Args:
        host: where the calls are made.
        address: of the server, or its name.
        port: its TCP port.
        tls: encrypt.
        config: limits and timeouts.
        token: see `Channel`; a host that opens calls in a way of its own needs none.
    """
    if isinstance(host, CallHost) and host.channel is not None:
        return host.channel(address, port, tls=tls, config=config)
    return Channel(address, port, tls=tls, config=config, host=host, token=token)


def open_in_process(
    host: Host, services: Iterable[Service], *, config: RpcConfig | None = None
) -> AbstractAsyncContextManager[CallOpener]:
    """Return a channel to services of the same process, to be entered.

    Args:
        host: where they run.
        services: what can be called.
        config: limits, of both sides.
    """
    if isinstance(host, CallHost) and host.in_process is not None:
        return host.in_process(services, config=config)
    return InProcessChannel(services, config=config)
