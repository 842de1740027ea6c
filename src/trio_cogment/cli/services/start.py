"""Start of a server process: its ports are open and announced before anything slow.

Trio, gRPC and protobuf take several times as long to import as Python and click to start. Connections that come
meanwhile wait in the backlog of the sockets, and are served once everything is there. So this module, and what it
imports at its top, imports none of them. For a plain command line `opening` has done it before click is imported.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trio_cogment.cli.announced import EVERYTHING, FOR_PAGES, announcements
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.opening import OpenPorts, say
from trio_cogment.cli.terminal import can_draw

if TYPE_CHECKING:
    import ssl
    from contextlib import AbstractAsyncContextManager

    from prometheus_client import CollectorRegistry
    from purerpc import Service

    from trio_cogment.cli.opening import Early
    from trio_cogment.cli.services.auth import ServerAccess
    from trio_cogment.cli.services.settings import ServerSettings
    from trio_cogment.cli.services.welcome import Welcome
    from trio_cogment.cli.tls import Tls
    from trio_cogment.discovery import DirectoryClient, Offer
    from trio_cogment.sdk import Controller
    from trio_cogment.web import PageAccess
    from trio_cogment.web.routing import AnyRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What an application gets from the process that runs it.

    Attributes:
        client_tls: encrypts every call to other services.
        access: who may call the process, and how it says who it is.
        directory: the directory that the flags name, whether or not it can be reached.
        registry: where metrics go; None: there are no metrics.
        ports: that the servers have, in the order of the application's.
    """

    client_tls: ssl.SSLContext | None = None
    access: ServerAccess
    directory: DirectoryClient | None = None
    registry: CollectorRegistry | None = None
    ports: Sequence[int] = ()


async def _no_farewell() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
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
    goodbye: Callable[[], str] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What a server process serves.

    Attributes:
        name: as it is announced.
        ready: a line that is printed too when it serves, with `{port}` in it, that of its first server.
        welcome: what is shown when it serves, for people; on a terminal, a screen with its trials. None: nothing.
        ports: the same port twice, also 0 and 0, means one server for both.
        services: the names of the services on each port, without their package, as they are announced.
        check: reads files before the server is announced; it raises `Failure`. None: there is nothing to read.
        open: entered when the ports are bound; left when the connections are drained, or with the error. The errors it
            expects (`Failure`, `CogmentError`) end the process with one line.
        give_up_seconds: see `process.Stop`.
    """

    name: str
    ready: str = ""
    welcome: Welcome | None = None
    ports: Sequence[int]
    services: Sequence[Sequence[str]]
    check: Callable[[], Any] | None = None
    open: Callable[[Resources], AbstractAsyncContextManager[Running]]
    give_up_seconds: float = math.inf

    @property
    def announced(self) -> tuple[str, Sequence[Sequence[str]]]:
        """The name and the services on each port, as they are announced; a welcome lists the services itself."""
        return (self.name, self.services) if self.welcome is None else (EVERYTHING, [[] for _ in self.services])


@dataclass(slots=True)
class Start:
    """The ports of a process, from when they are opened, and what was found on the way.

    Attributes:
        settings, application: what is started.
        early: the ports were open and announced before the flags were read.
        ports: those that are open.
        tls: of the servers, if they have a certificate, and of every call to others; None: no TLS.
        access: who may call, once it is prepared.
        renew_entrance: makes an address by which an administrator comes to the pages; does nothing without pages.
        notes: what is shown beside the application's welcome: a label, and a text.
        goodbye: gives the last line that is printed; empty: none.
    """

    settings: ServerSettings
    application: Application
    early: Early | None = None
    ports: OpenPorts = field(init=False)
    tls: Tls | None = None
    access: ServerAccess = field(init=False)
    renew_entrance: Callable[[], None] = lambda: None
    notes: dict[str, str] = field(default_factory=dict)
    goodbye: Callable[[], str] = str
    _prepared: bool = False

    def __post_init__(self) -> None:
        self.ports = OpenPorts() if self.early is None else self.early.ports

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
        """Open the ports, and check what can be checked.

        Raises:
            Failure: the server cannot start; the ports may be open still.
        """
        if self.early is None:
            self._open()
        elif self.early.lines != self.announcements():
            raise RuntimeError(f"announced: {self.early.lines}; according to the flags: {self.announcements()}")
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

    def _open(self) -> None:
        hosts = self.settings.hosts
        try:
            web_port = 0 if self.settings.web is None else self.settings.web.open_port
            self.ports.open(hosts, self.application.ports, self.settings.prometheus_port, web_port)
        except (OSError, UnicodeError) as error:
            raise Failure(_cannot_listen(error, hosts)) from error

    @property
    def draws(self) -> bool:
        """Whether a screen shows everything that is not logged."""
        return self.application.welcome is not None and can_draw()

    def announce(self) -> None:
        """Print a line for each address, unless that is done already."""
        if self.early is None and not self.draws:
            for line in self.announcements():
                say(line)

    def announcements(self) -> list[str]:
        """Return the lines."""
        application = self.application
        name, services = application.announced
        lines = announcements(name, application.ports, services, self.ports.servers)
        if self.ports.web:
            lines += announcements("pages of any origin", [0], [FOR_PAGES], [self.ports.web])
        return lines


#: The port in `cannot listen on ipv4:127.0.0.1:9000: ...`.
_IN_USE_PORT = re.compile(r"cannot listen on ipv[46]:\S+:(\d+): ")


def _cannot_listen(error: OSError | UnicodeError, hosts: Iterable[str]) -> str:
    # A message of `listening_sockets` names the address; what looking up a name raises does not.
    text = (error.strerror if isinstance(error, OSError) else "no host's name looks like that") or str(error)
    if not text.startswith("cannot listen"):
        text = f"cannot listen on {', '.join(hosts)}: {text}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        used = _IN_USE_PORT.search(text)
        doctor = f"trio-cogment doctor --port={used[1]}" if used else "trio-cogment doctor"
        text += f"; name another port, or stop what uses it (`{doctor}` tells)"
    return text
