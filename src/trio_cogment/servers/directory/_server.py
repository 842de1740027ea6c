"""The directory: registrations, inquiries and health checks put together."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import trio

from trio_cogment.access import THIS_PROCESS, AccessControl, Grant, Identity, lasting_sources
from trio_cogment.base.config import DirectoryServerConfig, OutgoingConfig, RpcConfig
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.base.host.binding import is_literal
from trio_cogment.rpc import OwnNursery
from trio_cogment.rpc.outgoing import Outgoing
from trio_cogment.servers.directory._changes import STOPPING, Changes
from trio_cogment.servers.directory._check_schedule import CheckScheduler
from trio_cogment.servers.directory._entries import Entries, Entry
from trio_cogment.servers.directory._health import FULL_LOAD
from trio_cogment.servers.directory._health_check import HealthChecker
from trio_cogment.servers.directory._monitored_entries import MonitoredEntries
from trio_cogment.servers.directory._requests import COGMENT, Inquiry, Service
from trio_cogment.servers.directory._state_file import StateFile

_log = logging.getLogger(__name__)

# Load balancing: which of the services found a directory returns, and in which order.

#: Services whose load is at most this much above the lowest are considered equal.
LOAD_SPREAD = 10


def least_loaded(entries: Sequence[Entry], load_of: Callable[[Entry], int], rng: random.Random) -> list[Entry]:
    """Return those with the lowest load, or within `LOAD_SPREAD` of it, in random order; none with full load."""
    loads = [load_of(entry) for entry in entries]
    limit = min(min(loads, default=0) + LOAD_SPREAD, FULL_LOAD - 1)
    chosen = [entry for entry, load in zip(entries, loads, strict=True) if load <= limit]
    rng.shuffle(chosen)
    return chosen


SECRET_BYTES = 16
#: How many random ids are tried for a registration before giving up.
_ID_DRAWS = 100
#: The shortest pause between two searches of a waiting inquiry, so that many of them do not search at every change.
_LAG_PAUSE_SECONDS = 0.2
#: How long the token of health checks counts.
_CHECK_TOKEN_SECONDS = 3600.0


def _owner(caller: Identity, token: str) -> str:
    """Return whose a registration is. Who shares an authentication token shares what is registered with it."""
    return "" if token and caller.by_address else caller.account


class DirectoryServer:
    """A directory of services, as an asynchronous context manager; serve its `directory_services` inside the block.

    Inside the block, services are checked and the file is written. On leaving, and after `Cancelled`, the file holds
    every registration that was confirmed, and all further requests fail with UNAVAILABLE.

    Args:
        path: the file of registrations; or an object in a bucket (`s3://bucket/key`, needs the extra `s3`) or a row of
            PostgreSQL (`postgresql://host/database`, the extra `postgresql`), with which the directory can be started
            again on any machine; empty: they are kept in memory only.
        config: limits and intervals.
        rpc_config: the settings of the channels that health checks use.
        host: gives ids and secrets, the file (which only its owner can read), and the connections to services; by
            default the system.
        outgoing: where health checks connect to what peers have registered.
        access: makes the token by which health checks are answered where tokens are asked for, which grants nothing
            else; and knows which tokens were revoked: what was registered with one ends within
            `RpcConfig.access_recheck_seconds`. None: there are no tokens.

    Entering raises:
        FailedPreconditionError: another directory uses the file, or it exists and cannot be read.

    Raises:
        InvalidArgumentError, MissingExtraError: the address is wrong, or an extra is missing.
    """

    def __init__(
        self,
        *,
        path: str = "",
        config: DirectoryServerConfig | None = None,
        rpc_config: RpcConfig | None = None,
        host: Host | None = None,
        outgoing: OutgoingConfig | None = None,
        access: AccessControl | None = None,
    ) -> None:
        self.config = config = config or DirectoryServerConfig()
        host = host or Host()
        self._secret_bytes = host.secret_bytes
        self._rng = host.random("directory")
        # A thread of its own: name lookups share the others, and may take long.
        self._file = StateFile(path, host.files.owner_only(), host.runner(1), host.secret_bytes)
        self._monitored = MonitoredEntries(config)
        self._changes = Changes(
            self._file.save,
            self._adopt,
            max_pending=config.max_pending_changes,
            retry_seconds=config.write_retry_seconds,
        )
        self._outgoing = Outgoing(outgoing or OutgoingConfig(), host, config.connect_timeout_seconds)
        token = (
            None if access is None else access.source(Grant(name="server:directory"), _CHECK_TOKEN_SECONDS, sources=())
        )
        rpc_config = rpc_config or RpcConfig()
        self._access = access
        self._recheck_seconds = rpc_config.access_recheck_seconds
        health_checker = HealthChecker(self._outgoing, config, rpc_config, self._rng, token)
        self._checks = CheckScheduler(
            self._monitored,
            lambda entry: health_checker.check(entry.service, entry.reach),
            self._remove,
            self._wake_inquiries,
            config,
        )
        self._changed = trio.Event()  # replaced whenever inquiries may find more than before
        self._tasks = OwnNursery()
        self._settled_at: float  # when the services that start with the directory had time to register; known then
        self._closing = False  # no registration is accepted any more
        self._stopping = False

    async def __aenter__(self) -> DirectoryServer:
        """Read the file, and start the tasks."""
        with ExitStack() as undo:
            undo.callback(self._file.close)
            entries, outdated = await self._file.load()
            await self._changes.begin(entries, write=outdated)
            self._nursery = await self._tasks.__aenter__()
            undo.pop_all()
        self._settled_at = trio.current_time() + self.config.startup_lag_seconds
        self._nursery.start_soon(self._changes.run, name="changes of the registrations")
        self._nursery.start_soon(self._checks.run, name="health checks")
        if self._access is not None:
            self._nursery.start_soon(self._end_revoked, self._access, name="registrations of revoked tokens")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Stop; a write that has begun is finished."""
        self.stop()
        self._nursery.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, value, traceback)
        finally:
            self._file.close()

    async def farewell(self) -> None:
        """Refuse registrations, and wait for the deregistrations of services that stop at the same moment.

        Without this they would stay in the file, and be forgotten long after the next start. It returns when nothing
        has been deregistered for `farewell_seconds`, or when no service is left that might still deregister. Inquiries
        are answered meanwhile.
        """
        self._closing = True
        await trio.lowlevel.checkpoint()
        left, deadline = self.count, trio.current_time() + self.config.farewell_seconds
        while self._monitored.awaited() and trio.current_time() < deadline:
            changed = self._changed
            with trio.move_on_at(deadline):
                await changed.wait()
            if self.count < left:
                left, deadline = self.count, trio.current_time() + self.config.farewell_seconds

    def stop(self) -> None:
        """Refuse further requests, and end waiting inquiries, so that a draining server need not wait for them."""
        self._stopping = True
        self._changed.set()

    @property
    def stopping(self) -> bool:
        """Whether `farewell` or `stop` has been called."""
        return self._closing or self._stopping

    @property
    def count(self) -> int:
        """The number of registrations, including those that are not shown."""
        return len(self._monitored.entries)

    # Requests

    async def register(
        self,
        service: Service,
        *,
        permanent: bool = False,
        token: str = "",
        caller: Identity = THIS_PROCESS,
        reach: str | None = None,
    ) -> tuple[int, str]:
        """Register a service for a caller; return its id, and the secret that deregistration needs.

        Its health checks connect only where the caller may lead them (`reach`, see `trio_cogment.access.reach_of`).
        What is not checked has to be an address, to which the caller may lead others.

        When this returns, the registration is durable, and the first health check has ended, unless it takes longer
        than `registration_wait_seconds`.

        Raises:
            InvalidArgumentError: others must not be led to that host.
            ResourceExhaustedError: a limit on registrations is reached.
            UnavailableError: the file cannot be written, or the directory is stopping.

        After `Cancelled` the service may be registered nevertheless.
        """
        if self.stopping:
            raise UnavailableError(STOPPING)
        secret = self._secret_bytes(SECRET_BYTES).hex()
        digest = self._file.hasher.digest

        def change(entries: Entries) -> Entry:
            entry = Entry(
                service_id=self._unused_id(entries),
                service=service,
                permanent=permanent or self.config.force_permanent,
                token=digest(token),
                secret=digest(secret),
                owner=_owner(caller, token),
                reach=reach,
                sources=lasting_sources(caller.derives),
            )
            if entry.permanent and service.protocol != COGMENT:
                self._check_unchecked(entry)
            return entries.register(entry, self.config, adopts=caller.local)

        entry = await self._changes.make(change)
        if not entry.exempt:
            await self._checks.check_now([entry], wait_seconds=self.config.registration_wait_seconds)
        return entry.service_id, secret

    def _check_unchecked(self, entry: Entry) -> None:
        host = entry.service.host
        if entry.reach is not None and not (is_literal(host) and self._outgoing.networks.permits(host, entry.reach)):
            raise InvalidArgumentError(
                "endpoint.host: expected a public address or the caller's own, in digits: a permanent registration is "
                "not checked, and one from another machine may lead nowhere else"
            )

    async def deregister(self, service_id: int, secret: str, *, token: str = "") -> None:
        """Remove a registration; when this returns, that is durable.

        Raises:
            FailedPreconditionError: there is none with this id, secret and token.
            UnavailableError: the file cannot be written, or the directory is stopping.
        """
        self._check_running()
        digest = self._file.hasher.digest
        await self._changes.make(lambda entries: entries.deregister(service_id, digest(token), digest(secret)))

    async def forget(self, which: Callable[[Service], bool]) -> int:
        """Remove all registrations for which `which` is true; return how many. When this returns, that is durable.

        No secret or token is needed: this is for the program that runs the directory.

        Raises:
            UnavailableError: the file cannot be written, or the directory is stopping.
        """
        self._check_running()

        def change(entries: Entries) -> int:
            found = [entry.service_id for entry in entries if which(entry.service)]
            for service_id in found:
                entries.remove(service_id)
            return len(found)

        if not any(which(entry.service) for entry in self._monitored.entries):
            await trio.lowlevel.checkpoint()
            return 0  # and nothing to write
        return await self._changes.make(change)

    async def find(self, inquiry: Inquiry, *, token: str = "", caller: Identity = THIS_PROCESS) -> list[Entry]:
        """Return the registrations that answer a caller's inquiry, the preferred one first.

        When there are none, and the directory has only just started or has a `registration_lag_seconds`, this waits for
        the first. With load balancing these are the least loaded ones, in random order; without, all: the caller's own
        first, then those of the owner who came first, and so on, the newest of each before its others.

        Raises:
            UnavailableError: the directory is stopping.
        """
        await trio.lowlevel.checkpoint()
        digest = self._file.hasher.digest(token)
        deadline = max(self._settled_at, trio.current_time() + self.config.registration_lag_seconds)
        while True:
            self._check_running()
            changed = self._changed
            found = await self._found(inquiry, digest, _owner(caller, token))
            # An id that is not registered now will not be registered later either.
            unknown = inquiry.service_id is not None and inquiry.service_id not in self._monitored.entries
            if found or unknown or trio.current_time() >= deadline:
                return found
            with trio.move_on_at(deadline):
                await trio.sleep(_LAG_PAUSE_SECONDS)
                await changed.wait()

    async def _found(self, inquiry: Inquiry, token: bytes, account: str) -> list[Entry]:
        found = self._monitored.shown(inquiry, token, account)
        if self.config.check_on_inquire:
            stale = self._monitored.stale(found, trio.current_time())
            await self._checks.check_now(stale, wait_seconds=self.config.inquiry_wait_seconds)
            unanswered = {entry.service_id for entry in stale if self._checks.is_running(entry)}
            found = self._monitored.shown(inquiry, token, account)
            found = [entry for entry in found if entry.service_id not in unanswered]
        if self.config.load_balancing:
            found = least_loaded(found, self._monitored.load, self._rng)
        return found

    def _check_running(self) -> None:
        if self._stopping:
            raise UnavailableError(STOPPING)

    def _unused_id(self, entries: Entries) -> int:
        for _ in range(_ID_DRAWS):
            service_id = int.from_bytes(self._secret_bytes(8), "big") >> 1  # as with the reference, 63 bits
            if service_id and service_id not in entries:
                return service_id
        raise AlreadyExistsError(f"every one of {_ID_DRAWS} new ids is taken; is the source of ids broken?")

    # Changes of the registrations

    def _adopt(self, entries: Entries) -> None:
        self._monitored.adopt(entries, trio.current_time())
        self._wake_inquiries()

    def _wake_inquiries(self) -> None:
        """Let waiting inquiries search again."""
        if not self._stopping:
            self._changed.set()
            self._changed = trio.Event()

    async def _end_revoked(self, access: AccessControl) -> None:
        """Remove what was registered with a token that was revoked, also before this process began."""

        def change(entries: Entries) -> int:
            fallen = entries.fallen(access.stand)
            for entry in fallen:
                entries.remove(entry.service_id)
            return len(fallen)

        while True:
            if self._monitored.entries.fallen(access.stand):
                try:
                    count = await self._changes.make(change)
                except UnavailableError:
                    pass  # the file cannot be written now; the next time tries again
                else:
                    _log.info("%d registrations have ended: their access token was revoked", count)
            await trio.sleep(self._recheck_seconds)

    async def _remove(self, entry: Entry) -> None:
        def change(entries: Entries) -> Any:
            # The service may have answered while this waited.
            if self._monitored.given_up(entry, trio.current_time()):
                entries.remove(entry.service_id)

        try:
            await self._changes.make(change)
        except UnavailableError:
            pass  # the next check that fails tries again
