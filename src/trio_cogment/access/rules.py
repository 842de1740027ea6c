"""The rules of access: the keys, the revocations and the certificates by which callers are judged."""

from __future__ import annotations

from collections.abc import Mapping

from trio_cogment.access.roles import Grant, roles_of
from trio_cogment.access.tokens import Keys
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.records import record

_REVOKED_NAME = "name="


@record()
class Revoked:
    """What does not count any more, though its signature is good.

    Attributes:
        token_ids: of tokens.
        names: of holders: none of their tokens counts.
    """

    token_ids: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Revoked:
        """Read the content of a revocation file: on each line a token's id, or `name=` and a holder's name.

        What follows a `#` is a comment.

        Raises:
            InvalidArgumentError: a line is something else.
        """
        token_ids, names = set(), set()
        for number, line in enumerate(text.splitlines(), 1):
            entry = line.partition("#")[0].strip()
            if entry.startswith(_REVOKED_NAME):
                names.add(entry.removeprefix(_REVOKED_NAME).strip())
            elif entry.isalnum():
                token_ids.add(entry)
            elif entry:
                raise InvalidArgumentError(f"line {number}: expected a token's id or name=NAME, got {entry[:64]!r}")
        return cls(frozenset(token_ids), frozenset(names))

    def has(self, token_id: str, name: str) -> bool:
        """Tell whether a token is revoked."""
        return token_id in self.token_ids or name in self.names


def parse_certificates(text: str) -> dict[str, Grant]:
    """Read which names of client certificates have which roles: on each line a name and its roles.

    Raises:
        InvalidArgumentError: a line is something else.
    """
    grants: dict[str, Grant] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, *roles = line.partition("#")[0].split() or [""]
        if not name:
            continue
        if not roles:
            raise InvalidArgumentError(f"line {number}: expected a certificate's name and its roles")
        if name in grants:
            raise InvalidArgumentError(f"line {number}: {name!r} is there twice")
        try:
            grants[name] = Grant(name=name, roles=roles_of(roles))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"line {number}: {error}") from None
    return grants


@record(kw_only=True)
class Rules:
    """Who is who.

    Attributes:
        keys: verify tokens, and sign those of the server itself; None: no token counts.
        revoked: tokens that do not count any more.
        certificates: what clients with certificates of these names may do. A name is the subject's common name, or a
            DNS name or URI of the certificate. None: there is no file of them, and what was derived from a certificate
            is judged by those that have one.
    """

    keys: Keys | None = None
    revoked: Revoked = Revoked()
    certificates: Mapping[str, Grant] | None = None

    def of_certificate(self, name: str) -> Grant | None:
        """Return what a client with a certificate of this name may do; None: nothing is said of it."""
        return None if self.certificates is None else self.certificates.get(name)
