"""Start of a server process: its ports are taken, and what can be checked is checked, before anything slow.

Trio, gRPC and protobuf take several times as long to import as Python and click to start. Wrong flags and ports in use
are told before that, so this module, and what it imports at its top, imports none of them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trio_cogment.base.records import record
from trio_cogment.cli.services.ports import Ports
from trio_cogment.cli.terminal import can_draw

if TYPE_CHECKING:
    import ssl
    from contextlib import AbstractAsyncContextManager

    from prometheus_client import CollectorRegistry
    from purerpc import Service

    from trio_cogment.base.metrics.services import ServiceMetrics
    from trio_cogment.cli.services.auth import ServerAccess
    from trio_cogment.cli.services.settings import ServerSettings
    from trio_cogment.cli.services.welcome import Welcome
    from trio_cogment.cli.tls import Tls
    from trio_cogment.sdk import Controller
    from trio_cogment.servers.discovery import DirectoryClient, Offer
    from trio_cogment.web import PageAccess
    from trio_cogment.web.routing import AnyRoute


@record(kw_only=True)
class Resources:
    """What an application gets from the process that runs it.

    Attributes:
        client_tls: encrypts every call to other services.
        access: who may call the process, and how it says who it is.
        directory: the directory that the flags name, whether or not it can be reached.
        registry: where metrics go; None: there are no metrics.
        figures: where services add what is read when metrics are collected; None: there are no metrics.
        ports: that the servers have, in the order of the application's.
    """

    client_tls: ssl.SSLContext | None = None
    access: ServerAccess
    directory: DirectoryClient | None = None
    registry: CollectorRegistry | None = None
    figures: ServiceMetrics | None = None
    ports: Sequence[int] = ()


async def _no_farewell() -> None:
    pass


@record(kw_only=True)
class Running:
    """An application that is ready to be served.

    Attributes:
        services: for each of the application's ports, the services there.
        offers: gives what is registered with a directory, for a port; None: the services of the platform's own kinds.
        routes: returns what the servers have for pages, in which who comes is known by what is given; None: nothing.
        entrance: an administrator comes to the pages by an address that is printed.
        links: returns what people can be given, for the address of the pages: labels and links; None: nothing.
        stop: tells peers how it ended, before connections are drained; cancelled when a stop takes too long.
        kept: what is kept -> where, in full; also what is not kept, though one may expect it. It is shown when it
            serves.
        notes: what is shown beside the application's welcome, and never logged: a label, and a text.
        controller: of the trials that a screen shows.
        reached_at: is told the endpoint that is registered with a directory; None: nobody wants to know.
        goodbye: gives the line that is printed when everything has been closed; empty: none.
    """

    services: Sequence[Sequence[Service]]
    offers: Callable[[int], Sequence[Offer]] | None = None
    routes: Callable[[PageAccess], Iterable[AnyRoute]] | None = None
    entrance: bool = True
    links: Callable[[PageAccess, str], Mapping[str, str]] | None = None
    stop: Callable[[], Awaitable[None]] = _no_farewell
    kept: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    controller: Controller | None = None
    reached_at: Callable[[str], None] | None = None
    goodbye: Callable[[], str] = str


@record(kw_only=True)
class Application:
    """What a server process serves.

    Attributes:
        name: as it is announced.
        ready: a line that is printed too when it serves, with `{port}` in it, that of its first server.
        welcome: what is shown when it serves, for people; on a terminal, a screen with its trials. None: nothing.
        ports: the same port twice, also 0 and 0, means one server for both.
        check: reads files before anything slow is imported; it raises `Failure`. None: there is nothing to read.
        open: entered when the ports are taken, before anybody can connect; left when the connections are drained, or
            with the error. The errors it expects (`Failure`, `CogmentError`) end the process with one line.
        give_up_seconds: see `process.Stop`.
    """

    name: str
    ready: str = ""
    welcome: Welcome | None = None
    ports: Sequence[int]
    check: Callable[[], Any] | None = None
    open: Callable[[Resources], AbstractAsyncContextManager[Running]]
    give_up_seconds: float = math.inf


@dataclass(slots=True)
class Start:
    """The ports of a process, from when they are taken, and what was found on the way.

    Attributes:
        settings, application: what is started.
        ports: those that are taken.
        tls: of the servers, if they have a certificate, and of every call to others; None: no TLS.
        access: who may call, once it is prepared.
        renew_entrance: makes an address by which an administrator comes to the pages; does nothing without pages.
        notes: what is shown beside the application's welcome: a label, and a text.
        goodbye: gives the last line that is printed; empty: none.
    """

    settings: ServerSettings
    application: Application
    ports: Ports = field(default_factory=Ports)
    tls: Tls | None = None
    access: ServerAccess = field(init=False)
    renew_entrance: Callable[[], None] = lambda: None
    notes: dict[str, str] = field(default_factory=dict)
    goodbye: Callable[[], str] = str
    _prepared: bool = False

    @property
    def serves_tls(self) -> bool:
        """Whether connections to the servers are encrypted."""
        return self.tls is not None and self.tls.server is not None

    @property
    def client_flags(self) -> list[str]:
        """The flags of `trio-cogment client` without which this server refuses it."""
        flags = ["--root_cert"] if self.serves_tls else []
        if self.serves_tls and self.settings.tls is not None and self.settings.tls.root_cert is not None:
            flags += ["--private_key", "--trust_chain"]
        elif self.access.control is not None:
            flags.append("--token_file")
        return flags

    def prepare(self) -> None:
        """Take the ports, and check what can be checked.

        Raises:
            Failure: the server cannot start; ports may be taken still.
        """
        settings = self.settings
        web_port = 0 if settings.web is None else settings.web.open_port
        self.ports.bind(settings.hosts, self.application.ports, settings.prometheus_port, web_port)
        if self.application.check is not None:
            self.application.check()
        if self.settings.tls is not None:
            from trio_cogment.cli.tls import load_tls

            self.tls = load_tls(self.settings.tls)
        from trio_cogment.cli.services.auth import ServerAccess

        self.access = ServerAccess(self.settings.auth, self.application.name)
        self._prepared = True

    def reload(self) -> None:
        """Read the files of certificates, keys and revocations again, for connections and calls from now on; it blocks.

        Raises:
            Failure: one cannot be used. What was read before stays in force.
        """
        if not self._prepared:
            return  # they have just been read, or are about to be
        rules = self.access.read_again()
        if self.tls is not None:
            self.tls.reload()  # the last that may fail
        self.access.adopt(rules)
        self.renew_entrance()

    @property
    def draws(self) -> bool:
        """Whether a screen shows everything that is not logged."""
        return self.application.welcome is not None and can_draw()
