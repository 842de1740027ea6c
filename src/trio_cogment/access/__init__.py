"""Access rights: who may call what. Pure: no I/O, clock or randomness.

A server asks two questions about a call: who makes it, and may they? The first is answered by a token or by a client's
certificate, and the answer is an `Identity`: an account and what is granted to it. The second is answered by one table
(`rights`), with a row for each RPC and a column for each role. A service without a row is closed to all but
administrators, so that forgetting one opens nothing.

A token says all that is granted, with a signature over it, so no server looks anything up in a store and a restart
forgets nothing. The price is that a token cannot be taken back by whoever has signed it: it ends by its time, or by its
name on a list of revoked ones. Both are kept in `Rules`, which are replaced as a whole while a server runs.

`control` joins the parts for one server: it verifies what a connection brings, remembers that, and answers for each
call. What a table cannot decide (whose trial is it?) is left to the handlers, which have the identity.
"""

from trio_cogment._old_places import old_names as _old_names
from trio_cogment.access.control import AUTHORIZATION, AccessControl, TokenSource, Visitor, authorization, bearer_token
from trio_cogment.access.identity import EVERYTHING, NOTHING, THIS_PROCESS, Identity, address_of, anonymous, lasting
from trio_cogment.access.networks import Networks, parse_networks, reach_of
from trio_cogment.access.rights import PAGES, RIGHTS, Scope
from trio_cogment.access.roles import EXACTLY, PLAYERS, ROLE_TEXTS, Grant, Quotas, Role, roles_of
from trio_cogment.access.rules import Revoked, Rules, parse_certificates
from trio_cogment.access.tokens import NEVER, Keys, Source, Sources, Token, lasting_sources, sources_of, unverified

__all__ = [
    "AUTHORIZATION",
    "EVERYTHING",
    "EXACTLY",
    "NEVER",
    "NOTHING",
    "PAGES",
    "PLAYERS",
    "RIGHTS",
    "ROLE_TEXTS",
    "THIS_PROCESS",
    "AccessControl",
    "Grant",
    "Identity",
    "Keys",
    "Networks",
    "Quotas",
    "Revoked",
    "Role",
    "Rules",
    "Scope",
    "Source",
    "Sources",
    "Token",
    "TokenSource",
    "Visitor",
    "address_of",
    "anonymous",
    "authorization",
    "bearer_token",
    "lasting",
    "lasting_sources",
    "parse_certificates",
    "parse_networks",
    "reach_of",
    "roles_of",
    "sources_of",
    "unverified",
]

__getattr__ = _old_names(
    __name__,
    {
        "BytePool": "budget.byte_pool.BytePool",
        "Ledger": "budget.quotas.Ledger",
        "Loan": "budget.byte_pool.Loan",
        "PeerConnection": "budget.peer_limits.PeerConnection",
        "PeerLimits": "budget.peer_limits.PeerLimits",
    },
)
