"""Origins that may use a server from a browser: one rule for every method and every WebSocket.

A browser lets any page send requests anywhere, so a server on a laptop can be reached by every page that its owner
opens. Two fields of a request say what is going on, and pages cannot choose either:

* `Host` is the name by which the browser found the server. A page may have a name of its own resolve to this machine
  (DNS rebinding), and is of the same origin as the server then. So only addresses, `localhost` and names that the
  operator has given are taken.
* `Origin` says whose page it is. It is there with every WebSocket and every request that a page of another origin can
  do anything with. What comes without it comes from no such page: it is another program, or the server's own page.

Nothing is guessed from `User-Agent`: https://nvd.nist.gov/vuln/detail/CVE-2025-62593 is what comes of that.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass

from trio_cogment.base.errors import InvalidArgumentError

#: In place of names or origins: all of them.
ANY = "*"
_LOCALHOST = "localhost"
_NAME = re.compile(r"[a-z0-9]([a-z0-9_.-]{0,252}[a-z0-9])?\Z")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[^\[\]:/?#@\s]{1,253})(?::([0-9]{1,5}))?\Z")
_ADDRESS = re.compile(r"(https?://[^/]+)((?:/[A-Za-z0-9._-]+)*)/?\Z", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Authority:
    """A host and a port, as in `Host` and in origins.

    Attributes:
        host: in lower case, without brackets.
        port: None where none is said.
    """

    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Authority | None:
        """Return what a text says; None: it is none."""
        match = _AUTHORITY.match(text)
        if match is None:
            return None
        port = None if match[2] is None else int(match[2])
        if port is not None and port > _MAX_PORT:
            return None
        host = match[1].lower().strip("[]").removesuffix(".")
        if match[1].startswith("[") and _address(host) is None:
            return None
        return cls(host, port)

    def is_loopback(self) -> bool:
        """Whether it is this machine's own, whatever resolves names."""
        address = _address(self.host)
        return self.host == _LOCALHOST or (address is not None and address.is_loopback)


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose page it is."""

    scheme: str
    authority: Authority

    @classmethod
    def parse(cls, text: str) -> Origin | None:
        """Return what a text says; None: it is none, as `null`."""
        scheme, separator, rest = text.partition("://")
        authority = Authority.parse(rest) if separator and scheme.lower() in _DEFAULT_PORTS else None
        return None if authority is None else cls(scheme.lower(), authority)

    @property
    def port(self) -> int:
        """The port, also where it is the scheme's."""
        return self.authority.port if self.authority.port is not None else _DEFAULT_PORTS[self.scheme]

    @property
    def key(self) -> tuple[str, str, int]:
        """What two of the same origin have in common (RFC 6454 section 4)."""
        return self.scheme, self.authority.host, self.port


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """The address by which browsers find a server that is behind a reverse proxy.

    Attributes:
        origin: its scheme, host and port.
        prefix: the path before those of the server, as `/lab`; empty: there is none.
    """

    origin: Origin
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> PublicAddress:
        """Return the address that a text says: `https://lab.example.org/cogment`.

        Raises:
            InvalidArgumentError: it is something else.
        """
        match = _ADDRESS.match(text)
        origin = None if match is None else Origin.parse(match[1])
        if match is None or origin is None or {".", ".."} & set(match[2].split("/")):
            raise InvalidArgumentError(f"address {text!r}: expected https://NAME, or https://NAME/PATH")
        return cls(origin, match[2])

    def is_host(self, host: Authority) -> bool:
        """Tell whether a request's `Host` is this address."""
        port = host.port if host.port is not None else _DEFAULT_PORTS[self.origin.scheme]
        return (host.host, port) == (self.origin.authority.host, self.origin.port)

    def __str__(self) -> str:
        host, port = self.origin.authority.host, self.origin.authority.port
        name = f"[{host}]" if ":" in host else host
        return f"{self.origin.scheme}://{name}{'' if port is None else f':{port}'}{self.prefix}"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may be served.

    Attributes:
        foreign: the origin that may see the answer, as the browser wrote it; empty for the server's own pages and for
            what is not a page.
        secure: the browser has come over TLS, to the server or to the proxy before it.
        public: the browser has come by the server's public address.
    """

    foreign: str = ""
    secure: bool = False
    public: bool = False


class OriginPolicy:
    """What a server takes from browsers.

    Args:
        hosts: names by which the server is known, besides addresses and `localhost`; `*`: any.
        origins: of pages that may use it, besides its own, and those of this machine if the server is found as this
            machine, too: `https://example.org`; `*`: any.
        address: by which browsers find the server, if that is a proxy's; its name need not be among `hosts`.

    Raises:
        InvalidArgumentError: one of them is something else.
    """

    def __init__(
        self, hosts: Collection[str] = (), origins: Collection[str] = (), address: PublicAddress | None = None
    ) -> None:
        self.address = address
        self._any_host = ANY in hosts
        self._any_origin = ANY in origins
        named = [] if address is None else [address.origin.authority.host]
        self._hosts = frozenset([*(_checked_host(host) for host in hosts if host != ANY), *named])
        self._origins = frozenset(_checked_origin(origin) for origin in origins if origin != ANY)

    def admit(self, *, hosts: Collection[str], origins: Collection[str], secure: bool) -> Admitted | str:
        """Return who may see the answer to a request, or why it is refused.

        Args:
            hosts: the request's fields of this name.
            origins: likewise.
            secure: it came over TLS.
        """
        host = Authority.parse(next(iter(hosts))) if len(hosts) == 1 else None
        if host is None:
            return "expected one Host"
        if not self._knows(host):
            return f"this server is not known as {host.host!r}; its operator can allow that name (--web_host)"
        address = self.address
        public = address is not None and address.is_host(host)
        secure = secure or (public and address is not None and address.origin.scheme == "https")
        if not origins:
            return Admitted("", secure, public)
        text = next(iter(origins))
        origin = Origin.parse(text) if len(origins) == 1 else None
        if origin is None:
            return "requests of pages without an origin are refused"
        if _is_own(origin, host, secure) or (address is not None and origin.key == address.origin.key):
            return Admitted("", secure, public)
        if self._any_origin or origin.key in self._origins or (host.is_loopback() and origin.authority.is_loopback()):
            return Admitted(text, secure, public)
        return "pages of this origin may not use this server; its operator can allow them (--web_allow_origin)"

    def _knows(self, host: Authority) -> bool:
        return self._any_host or host.host == _LOCALHOST or host.host in self._hosts or _address(host.host) is not None


def _is_own(origin: Origin, host: Authority, secure: bool) -> bool:
    """Whether a page came from this server. In front of one without TLS there may be a proxy that has it."""
    if secure and origin.scheme != "https":
        return False
    port = host.port if host.port is not None else _DEFAULT_PORTS[origin.scheme]
    return origin.authority.host == host.host and origin.port == port


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _checked_host(text: str) -> str:
    name = text.lower().removesuffix(".")
    if not _NAME.match(name):
        raise InvalidArgumentError(f"host {text!r}: expected a name without a port, or {ANY}")
    return name


def _checked_origin(text: str) -> tuple[str, str, int]:
    origin = Origin.parse(text.removesuffix("/"))
    if origin is None:
        raise InvalidArgumentError(f"origin {text!r}: expected https://NAME, with a port if it has one, or {ANY}")
    return origin.key
