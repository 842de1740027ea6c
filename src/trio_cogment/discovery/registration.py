"""Keeping services registered: what every server of ours does while it serves.

A directory may start after us, be away for a while, or forget us: it keeps no promise to remember, and drops services
that once did not answer it. So nothing here fails because of the directory. It is tried again until it works, and
looked again and again whether it still holds.

A registration that is not shown any more may be hidden only, until the directory has reached us once more: it is taken
back before a new one is made, so that there are never two.
"""

from __future__ import annotations

import logging
import math
import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import trio
from trio_util import AsyncBool

from trio_cogment._version import __version__
from trio_cogment.discovery._grace import lingering
from trio_cogment.discovery._messages import wire_endpoint
from trio_cogment.discovery.client import DirectoryClient, Registration
from trio_cogment.endpoints import GrpcEndpoint
from trio_cogment.errors import CogmentError, FailedPreconditionError, UnavailableError
from trio_cogment.services import REGISTRATION_SOURCE, SERVICES, VERSION, ServiceKind

#: Values of `REGISTRATION_SOURCE`: the host was found out, or given.
IMPLICIT = "Self-Implicit"
COMMAND_LINE = "Self-Command_Line"
#: What participants written with an SDK say, ours like the published one.
SDK = "PythonSDK-Implicit"

#: How much pauses differ, so that servers which lost a directory at one moment do not come back at one moment.
_JITTER = 0.2

#: To listen on these is to listen everywhere.
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})

_log = logging.getLogger(__name__)

FindHost: TypeAlias = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One service of ours that others shall find.

    Attributes:
        kind: what it is.
        port: where it listens.
        properties: what it can be found by, beside those that all our registrations have.
    """

    kind: ServiceKind
    port: int
    properties: Mapping[str, str] = field(default_factory=dict)


class Registrations:
    """How the registrations are.

    Attributes:
        complete: every service was registered when that was last known; wait for it with `wait_value(True)`.
    """

    def __init__(self) -> None:
        self.complete = AsyncBool(False)


async def own_address() -> str:
    """Return the first IPv4 address of this host's own name; one that others can reach, if there is any.

    Raises:
        UnavailableError: the name has none.
    """
    name = socket.gethostname()
    try:
        found = await trio.socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"this host's own name, {name!r}, has no IPv4 address: {error}. "
            "Say which host to register (--directory_registration_host)"
        ) from error
    addresses = [str(address[4][0]) for address in found]
    return next((address for address in addresses if not address.startswith("127.")), addresses[0])


def host_finder(addresses: Iterable[str]) -> FindHost:
    """Return what finds the host to register for servers that listen on these (as in `Serving.addresses`).

    Who listens on a single address is found there and nowhere else; others at their own address.
    """
    # `ipv4:127.0.0.1:9000`, `ipv6:[::1]:9000`
    hosts = {address.partition(":")[2].rpartition(":")[0].strip("[]") for address in addresses}

    async def find_host() -> str:
        return next(iter(hosts)) if len(hosts) == 1 and not hosts & _ANY_ADDRESS else await own_address()

    return find_host


async def keep_registered(
    directory: DirectoryClient,
    offers: Sequence[Offer],
    *,
    host: str = "",
    ssl: bool = False,
    properties: Mapping[str, str] | None = None,
    source: str = "",
    find_host: FindHost = own_address,
    rng: random.Random | None = None,
    task_status: trio.TaskStatus[Registrations] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Register services in this order, see that they stay registered, and deregister them in this order on leaving.

    Start it in a nursery when the services serve: the directory calls them before it answers. It goes on until it is
    cancelled. A directory that cannot be reached or refuses is logged, not raised, and tried again.

    After `Cancelled` every registration has been taken back, if the directory allowed it within
    `DirectoryConfig.deregistration_timeout_seconds`. Half of that is granted to one that is just being made: what the
    directory never answered for cannot be taken back.

    Args:
        directory: where; made by `open_directory`, it can still be used when everything is being cancelled.
        offers: what.
        host: the name or address that others shall use; without one it is found out.
        ssl: the services expect TLS.
        properties: for all of them. They win over an offer's own, and those over ours.
        source: who registers, for the property `__registration_source`; says without one whether `host` was given.
        find_host: finds out the host.
        rng: decides by how much pauses differ.
        task_status: `started` gets `Registrations` at once, before anything is registered.
    """
    source = source or (COMMAND_LINE if host else IMPLICIT)
    entries = [
        _Entry(offer, {VERSION: __version__, REGISTRATION_SOURCE: source, **offer.properties, **(properties or {})})
        for offer in offers
    ]
    keeper = _Keeper(directory, entries, host, ssl, find_host, rng or random.Random())
    task_status.started(keeper.state)
    try:
        await keeper.run()
    finally:
        limit = directory.config.deregistration_timeout_seconds
        with trio.move_on_at(keeper.asked_to_leave() + limit, shield=True) as farewell:
            await keeper.leave()
        if farewell.cancelled_caught:
            _log.warning("%s did not let us deregister within %g s", directory.name, limit)


class _Entry:
    """An offer and what has become of it."""

    def __init__(self, offer: Offer, properties: Mapping[str, str]) -> None:
        self.offer = offer
        self.properties = properties
        self.endpoint = GrpcEndpoint("", offer.port)
        self.registration: Registration | None = None
        self.missed = False  # it was gone, and has not been seen since


class _Keeper:
    def __init__(
        self,
        directory: DirectoryClient,
        entries: Sequence[_Entry],
        host: str,
        ssl: bool,
        find_host: FindHost,
        rng: random.Random,
    ) -> None:
        self.state = Registrations()
        self._directory = directory
        self._entries = entries
        self._host = host
        self._ssl = ssl
        self._find_host = find_host
        self._rng = rng
        self._failures = 0
        self._complaint = ""
        self._cancelled_at = math.inf

    async def run(self) -> None:
        config = self._directory.config
        while True:
            try:
                await self._update()
            except CogmentError as error:
                self.state.complete.value = False
                self._complain(str(error))
                pause = min(config.retry_max_seconds, config.retry_initial_seconds * 2.0**self._failures)
                self._failures = min(self._failures + 1, 1000)  # 2.0**1024 is too much for a float
            else:
                self.state.complete.value = True
                self._failures = 0
                self._complaint = ""
                pause = config.check_interval_seconds
            await trio.sleep(pause * self._rng.uniform(1 - _JITTER, 1 + _JITTER))

    def asked_to_leave(self) -> float:
        """Return when we were cancelled, if that is so."""
        return min(trio.current_time(), self._cancelled_at)

    async def leave(self) -> None:
        """Take every registration back; what goes wrong is logged."""
        for entry in self._entries:
            if entry.registration is not None:
                try:
                    await self._directory.deregister(entry.registration)
                except CogmentError as error:
                    _log.warning("%s", error)

    async def _update(self) -> None:
        """Register what is not registered, or not any more."""
        refusal: CogmentError | None = None
        for entry in self._entries:
            await trio.lowlevel.checkpoint()  # what is cancelled registers nothing more
            try:
                if not await self._holds(entry):
                    await self._register(entry)
            except FailedPreconditionError as error:
                # It concerns this one: the others may be welcome.
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    async def _holds(self, entry: _Entry) -> bool:
        """Tell whether the directory still shows a registration; forget, here and there, one that it does not."""
        registration = entry.registration
        if registration is None:
            return False
        shown = await self._directory.look_up(registration.service_id)
        if (
            shown is not None
            and shown.endpoint == wire_endpoint(entry.endpoint, self._ssl)
            and shown.details.type == SERVICES[entry.offer.kind].directory_type
        ):
            entry.missed = False
            return True
        self.state.complete.value = False
        # One that never shows us cannot reach us: saying so once is enough.
        level = logging.DEBUG if entry.missed else logging.WARNING
        what = f"service {registration.service_id} ({entry.offer.kind.value} {entry.endpoint})"
        _log.log(level, "%s does not show %s any more; registering it again", self._directory.name, what)
        entry.missed = True
        try:
            await self._directory.deregister(registration)
        except FailedPreconditionError:
            pass  # as it should be: the directory has no such registration
        entry.registration = None
        return False

    async def _register(self, entry: _Entry) -> None:
        offer = entry.offer
        # Found out anew each time: an address may change, and then the directory loses us.
        entry.endpoint = GrpcEndpoint(self._host or await self._find_host(), offer.port)
        # A registration whose reply we do not wait for would stay when we are gone.
        async with lingering(self._directory.config.deregistration_timeout_seconds / 2) as state:
            try:
                entry.registration = await self._directory.register(
                    offer.kind,
                    entry.endpoint,
                    entry.properties,
                    ssl=self._ssl,
                    # The first failure is told at once; after that the channel knows best when the directory is back.
                    wait_for_ready=self._failures > 0,
                )
            finally:
                self._cancelled_at = state.cancelled_at
            number, name = entry.registration.service_id, self._directory.name
            _log.info("registered %s %s with %s: service %d", offer.kind.value, entry.endpoint, name, number)

    def _complain(self, text: str) -> None:
        """Log what is wrong, once for as long as it stays so."""
        if text != self._complaint:
            _log.warning("%s", text)
            self._complaint = text
