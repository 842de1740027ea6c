"""Access rights: tokens, roles, the table of rights. Pure: no I/O, clock or randomness."""

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
