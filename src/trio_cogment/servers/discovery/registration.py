"""Keeping services registered: what every server does while it serves.

A directory may start after the server, be away for a while, or lose registrations, and it hides services that did not
answer a health check. So nothing here fails because of the directory: registering is retried until it succeeds, and
each registration is verified periodically.

A registration that the directory does not show may only be hidden until the next health check. It is removed before
a new one is made, so that there are never two.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TypeAlias

import trio
from trio_util import AsyncBool

from trio_cogment._version import __version__
from trio_cogment.base.backoff import Backoff, with_jitter
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.base.records import record
from trio_cogment.base.services import REGISTRATION_SOURCE, SERVICES, VERSION, ServiceKind
from trio_cogment.servers.discovery._directory_channel import grace_period
from trio_cogment.servers.discovery._messages import wire_endpoint
from trio_cogment.servers.discovery.client import DirectoryClient, Registration

#: Values of `REGISTRATION_SOURCE`: the host was determined automatically, or given by the user.
IMPLICIT = "Self-Implicit"
COMMAND_LINE = "Self-Command_Line"
#: The value that participants written with an SDK use, as the published SDK does.
SDK = "PythonSDK-Implicit"

#: Addresses that mean all interfaces.
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})

_log = logging.getLogger(__name__)

FindHost: TypeAlias = Callable[[], Awaitable[str]]


@record(kw_only=True)
class Offer:
    """A service to register.

    Attributes:
        kind: what it is.
        port: the port on which it listens.
        properties: properties that inquiries can ask for, in addition to those of all registrations.
    """

    kind: ServiceKind
    port: int
    properties: Mapping[str, str] = field(default_factory=dict)


class Registrations:
    """The state of the registrations.

    Attributes:
        complete: whether every service was registered when that was last verified; can be awaited with
            `wait_value(True)`.
    """

    def __init__(self) -> None:
        self.complete = AsyncBool(False)


async def own_address(host: Host | None = None) -> str:
    """Return the address of this machine, which `Host.own_address` determines; the system does unless given.

    Raises:
        UnavailableError: there is none.
    """
    try:
        return await (host or Host()).own_address()
    except OSError as error:
        raise UnavailableError(f"{error}. Name the host to register (--directory_registration_host)") from error


def host_finder(addresses: Iterable[str], host: Host | None = None) -> FindHost:
    """Return a function that determines the host to register for servers on these `RunningServer.addresses`.

    If all of them listen on one address, the host is that address; otherwise it is `own_address` of `host`.
    """
    # `ipv4:127.0.0.1:9000`, `ipv6:[::1]:9000`
    hosts = {address.partition(":")[2].rpartition(":")[0].strip("[]") for address in addresses}

    async def find_host() -> str:
        return next(iter(hosts)) if len(hosts) == 1 and not hosts & _ANY_ADDRESS else await own_address(host)

    return find_host


async def keep_registered(
    directory: DirectoryClient,
    offers: Sequence[Offer],
    *,
    registration_host: str = "",
    ssl: bool = False,
    properties: Mapping[str, str] | None = None,
    source: str = "",
    find_host: FindHost | None = None,
    host: Host | None = None,
    task_status: trio.TaskStatus[Registrations] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Register services in this order, keep them registered, and deregister them in this order on leaving.

    Start it in a nursery once the services serve, as the directory checks them before it answers. It runs until it is
    cancelled. When the directory cannot be reached, or refuses, that is logged and retried, not raised.

    After `Cancelled` every registration has been removed, if the directory answered within
    `DirectoryConfig.deregistration_timeout_seconds`. Half of that time is granted to a registration that is just being
    made: without the directory's reply it could not be removed.

    Args:
        directory: the client; one made by `open_directory` can still be used during a cancellation.
        offers: the services.
        registration_host: the name or address under which others reach the services; determined by `find_host` if
            empty.
        ssl: whether the services expect TLS.
        properties: properties of all registrations. They override those of an offer, which override the standard ones.
        source: the value of the property `__registration_source`; by default it says whether
            `registration_host` was given.
        find_host: determines the host; `own_address` of `host` unless given.
        host: the source of jitter for the pauses, and of the own address; the system unless given.
        task_status: `started` gets the `Registrations` at once, before anything is registered.
    """
    source = source or (COMMAND_LINE if registration_host else IMPLICIT)
    entries = [
        _Entry(offer, {VERSION: __version__, REGISTRATION_SOURCE: source, **offer.properties, **(properties or {})})
        for offer in offers
    ]
    rng = (host or Host()).random("registrations")
    find_host = find_host or partial(own_address, host)
    keeper = _Keeper(directory, entries, registration_host, ssl, find_host, rng)
    task_status.started(keeper.state)
    try:
        await keeper.run()
    finally:
        limit = directory.config.deregistration_timeout_seconds
        with trio.move_on_at(keeper.cancelled_at() + limit, shield=True) as farewell:
            await keeper.leave()
        if farewell.cancelled_caught:
            _log.warning("%s did not answer within %g s; services may still be registered", directory.name, limit)


class _Entry:
    """An offer and its registration."""

    def __init__(self, offer: Offer, properties: Mapping[str, str]) -> None:
        self.offer = offer
        self.properties = properties
        self.endpoint = GrpcEndpoint("", offer.port)
        self.registration: Registration | None = None
        self.missed = False  # it disappeared, and has not been seen since


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
        config = directory.config
        self._backoff = Backoff(config.retry_initial_seconds, config.retry_max_seconds, rng, factor=2)
        self._last_warning = ""
        self._cancelled_at = math.inf

    async def run(self) -> None:
        config = self._directory.config
        while True:
            try:
                await self._update()
            except CogmentError as error:
                self.state.complete.value = False
                self._warn_once(str(error))
                pause = self._backoff.failed()
            else:
                self.state.complete.value = True
                self._backoff.reset()
                self._last_warning = ""
                pause = with_jitter(config.check_interval_seconds, self._rng)
            await trio.sleep(pause)

    def cancelled_at(self) -> float:
        """Return when the cancellation came; now, if none came during a registration."""
        return min(trio.current_time(), self._cancelled_at)

    async def leave(self) -> None:
        """Remove every registration; failures are logged."""
        for entry in self._entries:
            if entry.registration is not None:
                try:
                    await self._directory.deregister(entry.registration)
                except CogmentError as error:
                    _log.warning("%s", error)

    async def _update(self) -> None:
        """Register every service that is not registered, or no longer."""
        refusal: CogmentError | None = None
        for entry in self._entries:
            await trio.lowlevel.checkpoint()  # after a cancellation nothing more is registered
            try:
                if not await self._holds(entry):
                    await self._register(entry)
            except FailedPreconditionError as error:
                # This concerns one service only; others may still be accepted.
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    async def _holds(self, entry: _Entry) -> bool:
        """Return whether the directory still shows a registration; remove one that it does not show."""
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
        # A directory that cannot reach the service never shows it: one warning is enough.
        level = logging.DEBUG if entry.missed else logging.WARNING
        what = f"service {registration.service_id} ({entry.offer.kind.value} {entry.endpoint})"
        _log.log(level, "%s no longer shows %s; registering it again", self._directory.name, what)
        entry.missed = True
        try:
            await self._directory.deregister(registration)
        except FailedPreconditionError:
            pass  # the directory has no such registration, as expected
        entry.registration = None
        return False

    async def _register(self, entry: _Entry) -> None:
        offer = entry.offer
        # Determined each time: when the address changes, the directory drops the registration.
        entry.endpoint = GrpcEndpoint(self._host or await self._find_host(), offer.port)
        # A registration whose reply is not awaited could not be removed.
        async with grace_period(self._directory.config.deregistration_timeout_seconds / 2) as state:
            try:
                entry.registration = await self._directory.register(
                    offer.kind,
                    entry.endpoint,
                    entry.properties,
                    ssl=self._ssl,
                    # The first failure is reported at once; after that the channel waits until the directory is back.
                    wait_for_ready=self._backoff.failures > 0,
                )
            finally:
                self._cancelled_at = state.cancelled_at
            number, name = entry.registration.service_id, self._directory.name
            # Only after a warning that it could not be registered is it news that it is.
            level = logging.INFO if self._last_warning else logging.DEBUG
            _log.log(level, "registered %s %s with %s: service %d", offer.kind.value, entry.endpoint, name, number)

    def _warn_once(self, text: str) -> None:
        """Log a problem once for as long as it stays the same."""
        if text != self._last_warning:
            _log.warning("%s", text)
            self._last_warning = text
