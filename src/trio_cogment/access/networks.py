"""Networks that a server may connect to when a peer has named an address.

Without this, whoever can start a trial or register a service could look around, through the server, in the networks
that the server is in: its own machine's services, a lab's machines, a cloud's metadata.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

from trio_cogment.access.identity import Identity
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.records import record

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

#: How `rpc` calls the other end of a stream that is not a socket: the program itself has brought it.
_HANDED_OVER = "stream"
#: IPv6 addresses that stand for IPv4 ones where a gateway translates (RFC 6052).
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
#: What not every version of Python knows to lead into private networks: IPv4 addresses within IPv6 ones (RFC 4291,
#: 2.5.5.1, RFC 2765, RFC 8215), and addresses of a site (RFC 3879).
_NOT_PUBLIC = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "fec0::/10")))


def parse_networks(texts: Iterable[str], field_name: str) -> tuple[Network, ...]:
    """Return networks (`10.0.0.0/8`, `fd00::/8`) or single addresses.

    Raises:
        InvalidArgumentError: one is neither; the text names the field.
    """
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError:
            expected = "expected a network such as 10.0.0.0/8, or an address"
            raise InvalidArgumentError(f"{field_name}: {expected}, got {text[:64]!r}") from None
    return tuple(found)


def reach_of(identity: Identity, peer: str) -> str | None:
    """Return how far a caller's endpoints may lead: None: anywhere; else nowhere private but to this address.

    Anywhere is for callers on this machine, which could connect there themselves, and for administrators who have shown
    that they are.

    Args:
        identity: of the caller.
        peer: where it is, in gRPC's notation.
    """
    if identity.local or peer == _HANDED_OVER or (identity.admin and not identity.by_address):
        return None
    _, _, rest = peer.partition(":")
    return rest.rpartition(":")[0].strip("[]")


@record(kw_only=True)
class Networks:
    """Rules for addresses that peers have named.

    Attributes:
        allowed: besides those that everybody can reach, and the caller's own.
        denied: to nobody's endpoints, whatever else says.
    """

    allowed: tuple[Network, ...] = ()
    denied: tuple[Network, ...] = ()

    def permits(self, address: str, reach: str | None) -> bool:
        """Tell whether the server may connect to an address that somebody has named.

        Args:
            address: in digits. Anything else is an address of no network (a simulated one's), and permitted.
            reach: see `reach_of`.
        """
        meant = _address(address)
        if meant is None:
            return True
        if _within(meant, self.denied) or _within(ipaddress.ip_address(address.partition("%")[0]), self.denied):
            return False
        if reach is None or _within(meant, self.allowed):
            return True
        return _is_public(meant) or meant == _address(reach)


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not _within(address, _NOT_PUBLIC)


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _address(text: str) -> Address | None:
    """Return the address that is really meant: within many IPv6 addresses there is an IPv4 one."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
