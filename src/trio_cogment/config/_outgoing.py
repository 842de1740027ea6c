"""Settings of connections to addresses that peers have named."""

from __future__ import annotations

import ipaddress

from trio_cogment._records import record


@record(kw_only=True)
class OutgoingConfig:
    """Where a server connects when a peer names an endpoint, in the parameters of a trial or in a registration.

    Without any of these, callers on this machine may name any address, and others only public addresses and their own.

    Attributes:
        allowed_networks: others may name addresses in these networks, too (`10.0.0.0/8`, `fd00::/8`, an address).
        denied_networks: nobody may name addresses in these, whatever else says.
    """

    allowed_networks: tuple[str, ...] = ()
    denied_networks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("allowed_networks", "denied_networks"):
            for text in getattr(self, name):
                try:
                    ipaddress.ip_network(text, strict=False)
                except ValueError:
                    raise ValueError(f"{name}: expected a network such as 10.0.0.0/8, got {text[:64]!r}") from None
