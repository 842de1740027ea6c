"""The directory: who registers, who asks, and who is looked at."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import trio

from trio_cogment.config import DirectoryServerConfig, RpcConfig
from trio_cogment.directory._changes import STOPPING, Changes
from trio_cogment.directory._check_schedule import Checker
from trio_cogment.directory._health_check import Dial, Prober
from trio_cogment.directory._registry import Entry, Registry
from trio_cogment.directory._requests import Inquiry, Service
from trio_cogment.directory._state_file import StateFile
from trio_cogment.directory._table import Table
from trio_cogment.errors import AlreadyExistsError, UnavailableError
from trio_cogment.host.blocking import Runner, ThreadRunner
from trio_cogment.host.files import Files, SystemFiles
from trio_cogment.rpc import OwnNursery

SECRET_BYTES = 16
#: How often a number is drawn for a registration until there is none like it.
_ID_DRAWS = 100
#: The least pause between two looks of an inquiry that waits: a crowd of those must not search at every change.
_LAG_PAUSE_SECONDS = 0.2


class DirectoryServer:
    """A directory of services, as an asynchronous context manager; serve its `directory_services` inside the block.

    In the block services are looked at and the file is written. On leaving, and after `Cancelled`, the file has every
    registration that somebody was told of, and nothing is done any more: whoever registers or asks gets UNAVAILABLE.

    Args:
        random_bytes: where the ids, the secrets and the salt come from; nobody may be able to guess what it returns.
        path: of the file of registrations; empty for none, then they are lost at the end.
        config: the rules.
        rpc_config: for the channels to the services that are looked at.
        files: where the file is; on the system's disk unless given, for its owner alone.
        run: runs what blocks; in a thread of our own, one after the other, unless given.
        dial: connects to services; over TCP unless given.
        rng: shares out load.

    Entering raises:
        FailedPreconditionError: another directory has the file, or there is one and it cannot be read.
    """

    def __init__(
        self,
        *,
        random_bytes: Callable[[int], bytes],
        path: str = "",
        config: DirectoryServerConfig | None = None,
        rpc_config: RpcConfig | None = None,
        files: Files | None = None,
        run: Runner | None = None,
        dial: Dial | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config = config or DirectoryServerConfig()
        self._random_bytes = random_bytes
        self._rng = rng or random.Random()
        files = SystemFiles(mode=0o600) if files is None else files
        # A thread of its own: the lookups of names share theirs, and may take long.
        self._file = StateFile(path, files, run or ThreadRunner(1), random_bytes)
        self._table = Table(config)
        self._changes = Changes(
            self._file.save,
            self._adopt,
            max_pending=config.max_pending_changes,
            retry_seconds=config.write_retry_seconds,
        )
        prober = Prober(dial or trio.open_tcp_stream, config, rpc_config or RpcConfig(), self._rng)
        self._checker = Checker(
            self._table, lambda entry: prober.look(entry.service), self._forget, self._shown_one_more, config
        )
        self._news = trio.Event()
        self._tasks = OwnNursery()
        self._stopping = False

    async def __aenter__(self) -> DirectoryServer:
        """Read the file and begin."""
        with ExitStack() as undo:
            undo.callback(self._file.close)
            registry, outdated = await self._file.load()
            await self._changes.begin(registry, write=outdated)
            self._nursery = await self._tasks.__aenter__()
            undo.pop_all()
        self._nursery.start_soon(self._changes.run, name="changes of the registrations")
        self._nursery.start_soon(self._checker.run, name="looks at the services")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End; what is being written is written to its end."""
        self.stop()
        self._nursery.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, value, traceback)
        finally:
            self._file.close()

    def stop(self) -> None:
        """Take no more requests, and end the inquiries that wait: a server that drains waits for nobody then."""
        self._stopping = True
        self._news.set()

    @property
    def stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._stopping

    @property
    def count(self) -> int:
        """How many registrations there are, those that are not shown included."""
        return len(self._table.registry)

    # What services and callers want

    async def register(self, service: Service, *, permanent: bool = False, token: str = "") -> tuple[int, str]:
        """Register a service; return its number, and the secret with which it can be taken back.

        When this returns the registration is durable, and the service has been looked at, if that took no longer than
        `registration_wait_seconds`.

        Raises:
            ResourceExhaustedError: there are too many.
            UnavailableError: the file cannot be written, or the directory is stopping.

        After `Cancelled` it may be registered all the same.
        """
        self._check_running()
        secret = self._random_bytes(SECRET_BYTES).hex()
        digest = self._file.hasher.digest

        def change(registry: Registry) -> Entry:
            entry = Entry(
                service_id=self._unused_id(registry),
                service=service,
                permanent=permanent or self.config.force_permanent,
                token=digest(token),
                secret=digest(secret),
            )
            return registry.register(entry, self.config)

        entry = await self._changes.make(change)
        if not entry.exempt:
            await self._checker.look_at([entry], wait_seconds=self.config.registration_wait_seconds)
        return entry.service_id, secret

    async def deregister(self, service_id: int, secret: str, *, token: str = "") -> None:
        """Take a registration back; that is durable then.

        Raises:
            FailedPreconditionError: there is none with this number, secret and token.
            UnavailableError: the file cannot be written, or the directory is stopping.
        """
        self._check_running()
        digest = self._file.hasher.digest
        await self._changes.make(lambda registry: registry.deregister(service_id, digest(token), digest(secret)))

    async def forget(self, which: Callable[[Service], bool]) -> int:
        """Take registrations back, whoever made them; return how many. That is durable then.

        For whoever runs the directory and knows that they are nobody's any more: no secret or token is asked for.

        Raises:
            UnavailableError: the file cannot be written, or the directory is stopping.
        """
        self._check_running()

        def change(registry: Registry) -> int:
            found = [entry.service_id for entry in registry if which(entry.service)]
            for service_id in found:
                registry.remove(service_id)
            return len(found)

        if not any(which(entry.service) for entry in self._table.registry):
            await trio.lowlevel.checkpoint()
            return 0  # and nothing to write
        return await self._changes.make(change)

    async def find(self, inquiry: Inquiry, *, token: str = "") -> list[Entry]:
        """Return the registrations to tell a caller of, the best one first.

        Raises:
            UnavailableError: the directory is stopping.
        """
        await trio.lowlevel.checkpoint()
        digest = self._file.hasher.digest(token)
        deadline = trio.current_time() + self.config.registration_lag_seconds
        while True:
            self._check_running()
            news = self._news
            found = await self._found(inquiry, digest)
            # What has no registration has a number that no later one will have.
            hopeless = inquiry.service_id is not None and inquiry.service_id not in self._table.registry
            if found or hopeless or trio.current_time() >= deadline:
                return found
            with trio.move_on_at(deadline):
                await trio.sleep(_LAG_PAUSE_SECONDS)
                await news.wait()

    async def _found(self, inquiry: Inquiry, token: bytes) -> list[Entry]:
        found = self._table.shown(inquiry, token)
        if self.config.check_on_inquire:
            stale = self._table.stale(found, trio.current_time())
            await self._checker.look_at(stale, wait_seconds=self.config.inquiry_wait_seconds)
            silent = {entry.service_id for entry in stale if self._checker.is_running(entry)}
            found = [entry for entry in self._table.shown(inquiry, token) if entry.service_id not in silent]
        if self.config.load_balancing:
            found = self._table.least_loaded(found, self._rng)
        return found

    def _check_running(self) -> None:
        if self._stopping:
            raise UnavailableError(STOPPING)

    def _unused_id(self, registry: Registry) -> int:
        for _ in range(_ID_DRAWS):
            service_id = int.from_bytes(self._random_bytes(8), "big") >> 1  # as with the reference, 63 bits
            if service_id and service_id not in registry:
                return service_id
        raise AlreadyExistsError(f"every one of {_ID_DRAWS} new ids is taken; is the source of ids broken?")

    # What happens to the table

    def _adopt(self, registry: Registry) -> None:
        self._table.adopt(registry, trio.current_time())
        self._shown_one_more()

    def _shown_one_more(self) -> None:
        """Let those look again who wait for somebody to come."""
        if not self._stopping:
            self._news.set()
            self._news = trio.Event()

    async def _forget(self, entry: Entry) -> None:
        def change(registry: Registry) -> Any:
            # It may have answered while this was waiting.
            if self._table.given_up(entry, trio.current_time()):
                registry.remove(entry.service_id)

        try:
            await self._changes.make(change)
        except UnavailableError:
            pass  # the next look that fails tries again
