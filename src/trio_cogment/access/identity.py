"""The caller's identity: all that a handler may ask about who makes a call."""

from __future__ import annotations

import ipaddress

from trio_cogment.access.rights import Scope, scope_of
from trio_cogment.access.roles import PLAYERS, Grant, Role
from trio_cogment.access.tokens import Sources
from trio_cogment.base.errors import PermissionDeniedError
from trio_cogment.base.records import record

#: The network that one holder of an IPv6 address usually has: its addresses are one account.
_IPV6_PREFIX_BITS = 64
#: Begins the account of who is known by a certificate.
CERTIFICATE = "certificate"


@record(kw_only=True)
class Identity:
    """Who makes a call.

    Attributes:
        account: under which limits and quotas are counted, and things are owned: `token:NAME`, `certificate:NAME`, or
            an address without its port.
        local: the caller is on this machine.
        grant: what it may do; with open access everybody is an administrator.
        token_id: of its token, if it has one.
        key_name: of the key that has signed its token.
        expires_at: when its token ends, in seconds since the epoch; 0: never.
        sources: what its token was derived from.
        derives: what tokens are derived from that are made for what it does: its own token, or certificate, and what
            that was derived from; see `AccessControl.mint`.
    """

    account: str
    local: bool
    grant: Grant
    token_id: str = ""
    key_name: str = ""
    expires_at: int = 0
    sources: Sources = ()
    derives: Sources = ()

    @property
    def by_address(self) -> bool:
        """Whether only its address tells who it is."""
        return not lasting(self.account)

    @property
    def admin(self) -> bool:
        """Whether it may do everything."""
        return Role.ADMIN in self.grant.roles

    def scope(self, path: str) -> Scope | None:
        """Return what it may reach by a call with this path; None: nothing."""
        return scope_of(self.grant.roles, path)

    def reaches(self, path: str, owner: str) -> bool:
        """Tell whether a call with this path reaches what an account owns.

        Args:
            path: of the call.
            owner: the account; empty for what was there before there were owners: nobody's own.
        """
        scope = self.scope(path)
        return scope is Scope.ALL or (scope is Scope.OWN and owner != "" and owner == self.account)

    def check_reaches(self, path: str, owner: str, what: str) -> None:
        """Refuse a call that would reach what somebody else owns.

        Raises:
            PermissionDeniedError: its text names `what`, and not the owner.
        """
        if not self.reaches(path, owner):
            raise PermissionDeniedError(f"{what}: it belongs to somebody else")

    def plays(self, trial_id: str, owner: str, actor_class: str, actor_name: str) -> bool:
        """Tell whether it may take the part of an actor.

        Args:
            trial_id: of the trial.
            owner: the account that has started the trial.
            actor_class: of the actor.
            actor_name: of the actor.
        """
        roles = self.grant.roles
        if Role.ADMIN in roles or (Role.OPERATOR in roles and owner != "" and owner == self.account):
            return True
        return not roles.isdisjoint(PLAYERS) and self.grant.names_actor(trial_id, actor_class, actor_name)

    def works_for(self, run_id: str) -> bool:
        """Tell whether it may report for a run of a trainer."""
        roles = self.grant.roles
        return Role.ADMIN in roles or (Role.WORKER in roles and self.grant.names_trial(run_id))

    @property
    def run_id(self) -> str:
        """The run of a trainer for which it works; empty: for none, or for several."""
        return self.grant.one_trial if Role.WORKER in self.grant.roles else ""


def lasting(account: str) -> str:
    """Return an account that can own what is stored; empty for an address, which is somebody else's tomorrow."""
    return account if account.startswith(("token:", "certificate:")) else ""


#: What everybody may do with open access.
EVERYTHING = Grant(name="anybody", roles=frozenset([Role.ADMIN]))
#: What somebody without a token or certificate may do where these are asked for.
NOTHING = Grant(name="anybody")

#: Calls from the program itself.
THIS_PROCESS = Identity(account="inprocess", local=True, grant=EVERYTHING)


def address_of(peer: str) -> tuple[str, bool]:
    """Return the account of an address, and whether it is on this machine.

    Args:
        peer: in gRPC's notation (`ipv4:127.0.0.1:53412`, `ipv6:[::1]:53412`, `unix:`); of others nothing is known.
    """
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return family, family == "unix"
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return family, False
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    if address.version == 4 or address.is_loopback or address.is_link_local:
        return f"ipv{address.version}:{address}", address.is_loopback
    network = ipaddress.IPv6Network((int(address), _IPV6_PREFIX_BITS), strict=False)
    return f"ipv6:{network}", False


def anonymous(peer: str, grant: Grant = EVERYTHING) -> Identity:
    """Return who a peer is of whom only the address is known."""
    account, local = address_of(peer)
    return Identity(account=account, local=local, grant=grant)
