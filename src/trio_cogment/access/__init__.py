"""Who may do what: tokens, roles, the table of rights, and quotas. Pure: no I/O, no clock, no randomness."""

from trio_cogment.access.control import AUTHORIZATION as AUTHORIZATION
from trio_cogment.access.control import AccessControl as AccessControl
from trio_cogment.access.control import Revoked as Revoked
from trio_cogment.access.control import Rules as Rules
from trio_cogment.access.control import Visitor as Visitor
from trio_cogment.access.control import authorization as authorization
from trio_cogment.access.control import parse_certificates as parse_certificates
from trio_cogment.access.identity import EVERYTHING as EVERYTHING
from trio_cogment.access.identity import NOTHING as NOTHING
from trio_cogment.access.identity import THIS_PROCESS as THIS_PROCESS
from trio_cogment.access.identity import Identity as Identity
from trio_cogment.access.identity import address_of as address_of
from trio_cogment.access.identity import anonymous as anonymous
from trio_cogment.access.quotas import Ledger as Ledger
from trio_cogment.access.rights import RIGHTS as RIGHTS
from trio_cogment.access.rights import Scope as Scope
from trio_cogment.access.roles import ROLE_TEXTS as ROLE_TEXTS
from trio_cogment.access.roles import Grant as Grant
from trio_cogment.access.roles import Quotas as Quotas
from trio_cogment.access.roles import Role as Role
from trio_cogment.access.roles import roles_of as roles_of
from trio_cogment.access.tokens import NEVER as NEVER
from trio_cogment.access.tokens import Keys as Keys
from trio_cogment.access.tokens import Token as Token
from trio_cogment.access.tokens import unverified as unverified
