"""Settings of connections to addresses that peers have named."""

from __future__ import annotations

from trio_cogment.base.config.declarations import Flag, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class OutgoingConfig:
    """Where a server connects when a peer names an endpoint, in the parameters of a trial or in a registration.

    Without any of these, callers on this machine may name any address, and others only public addresses and their own.
    """

    allowed_networks: tuple[str, ...] = setting(
        (),
        "networks, as `10.0.0.0/8`, or addresses, where endpoints of peers on other machines may lead, besides "
        "public ones and their own address",
        flag=Flag("--outgoing_allow", "TRIO_COGMENT_OUTGOING_ALLOW", metavar="NETWORKS"),
    )
    denied_networks: tuple[str, ...] = setting(
        (),
        "networks where no peer's endpoint may lead, whatever else says",
        flag=Flag("--outgoing_deny", "TRIO_COGMENT_OUTGOING_DENY", metavar="NETWORKS"),
    )

    def __post_init__(self) -> None:
        if not (self.allowed_networks or self.denied_networks):
            return
        import ipaddress  # it takes a millisecond, and most servers and every help do without

        for name in ("allowed_networks", "denied_networks"):
            for text in getattr(self, name):
                try:
                    ipaddress.ip_network(text, strict=False)
                except ValueError:
                    raise ValueError(f"{name}: expected a network such as 10.0.0.0/8, got {text[:64]!r}") from None
