"""Connections to addresses that peers have named: only where that is permitted, and without telling what is there.

The name is looked up once, each of its addresses is judged, and the connection goes to one that was judged: a name that
stands for another address a moment later gains nothing.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import replace

import trio

from trio_cogment.access import Networks, parse_networks
from trio_cogment.base.config import OutgoingConfig
from trio_cogment.base.host import Connect, Host
from trio_cogment.budget.refusals import refusals

_log = logging.getLogger(__name__)

#: Of several addresses, all but the last get so long; then the next one is tried.
_ATTEMPT_SECONDS = 3.0
#: This part of the time for connecting is the lookup's and the connection's; behind it the caller has its own text.
_PART = 0.9


class UnreachableError(OSError):
    """A connection could not be made, or is not permitted. The text is the same for everything; the log says more."""

    def __init__(self) -> None:
        super().__init__(errno.EHOSTUNREACH, "it cannot be reached")


class Outgoing:
    """Makes connections to what peers have named.

    Args:
        config: where to.
        host: resolves names, and makes the connections.
        timeout_seconds: for a connection, the lookup of the name included.
    """

    def __init__(self, config: OutgoingConfig, host: Host, timeout_seconds: float) -> None:
        self.networks = Networks(
            allowed=parse_networks(config.allowed_networks, "allowed_networks"),
            denied=parse_networks(config.denied_networks, "denied_networks"),
        )
        self._host = host
        self._timeout_seconds = timeout_seconds * _PART

    def host_for(self, reach: str | None) -> Host:
        """Return the host with which calls are made for somebody; see `trio_cogment.access.reach_of`."""
        if reach is None and not self.networks.denied:
            return self._host
        return replace(self._host, connect=self.connect_for(reach))

    def connect_for(self, reach: str | None) -> Connect:
        """Return what connects for somebody; it raises OSError, for who is not of this machine always the same."""

        async def connect(name: str, port: int) -> trio.abc.Stream:
            try:
                with trio.fail_after(self._timeout_seconds):
                    return await self._connect(name, port, reach)
            except (OSError, UnicodeError, trio.TooSlowError) as error:
                if reach is None and isinstance(error, OSError):
                    raise
                why = error if str(error) else "no answer in time"
                text = "%s:%d, which %s has named: %s"
                refusals().add("unreachable endpoints", _log, text, name, port, reach or "a peer", why)
                raise UnreachableError from error

        return connect

    async def _connect(self, name: str, port: int, reach: str | None) -> trio.abc.Stream:
        found = await self._host.resolve(name, port)
        addresses = [address for address in found if self.networks.permits(address, reach)]
        if not addresses:
            raise OSError(errno.EACCES, f"a peer must not name {', '.join(found) or 'it'}")
        for address in addresses[:-1]:
            with trio.move_on_after(_ATTEMPT_SECONDS):
                try:
                    return await self._host.connect(address, port)
                except OSError as error:
                    _log.debug("%s: %s", address, error)
        return await self._host.connect(addresses[-1], port)
