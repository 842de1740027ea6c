"""Access control: the gate in front of a server's handlers, where tokens or certificates are asked for.

A server with open access has no gate. With one, each connection has a `Visitor`, which is asked about each call before
its handler starts. What it has verified it remembers, so a client that sends its token with each call, as all do, costs
one signature and then a look into a small table.

The rules (keys, revocations, certificates) are replaced while it runs: what was verified under the old ones is
forgotten, and `valid` tells of running calls whether they may go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from trio_cogment.access.identity import CERTIFICATE, NOTHING, Identity, anonymous
from trio_cogment.access.identity import EVERYTHING as EVERYTHING
from trio_cogment.access.rights import OPEN_TO_ANYBODY
from trio_cogment.access.roles import Grant, Role
from trio_cogment.access.rules import Rules
from trio_cogment.access.tokens import (
    MAX_TOKEN_CHARACTERS,
    Source,
    Sources,
    Token,
    key_name_of,
    unverified,
)
from trio_cogment.base.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError

#: Gives the token for a call; empty for none.
TokenSource: TypeAlias = Callable[[], str]

#: The metadata that carries a token, and what stands before it.
AUTHORIZATION = "authorization"
BEARER = "Bearer "

#: How many tokens one connection's calls may use in turn before the oldest is verified again. A client has one; a
#: proxy's connection carries those of several.
_REMEMBERED_TOKENS = 32
#: What may be a token in a header.
_SENDABLE = re.compile("[!-~]+")
_NANOSECONDS = 1_000_000_000
_EXPECTED = "expected a token, in the metadata authorization as 'Bearer TOKEN', or a client certificate that is known"


class AccessControl:
    """Decides about every call to a server, and signs the tokens with which it calls others.

    Args:
        rules: who is who, until `adopt`.
        wall_clock: returns the time of the day in nanoseconds since the epoch.
        new_id: returns an id that nobody else has, as text.
        platform: judges the platform's tokens, where this has keys of its own: what that has revoked counts here, too,
            and it judges what tokens were derived from. None: this does.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        wall_clock: Callable[[], int],
        new_id: Callable[[], str],
        platform: AccessControl | None = None,
    ) -> None:
        self._rules = rules
        self._wall_clock = wall_clock
        self._new_id = new_id
        self._platform = platform or self
        self._withdrawn: dict[str, int] = {}  # ids of own tokens, and when these expire anyway
        self._removed_certificates: frozenset[str] = frozenset()
        self.generation = 0

    def adopt(self, rules: Rules) -> None:
        """Judge by other rules from now on."""
        known = self._removed_certificates.union(self._rules.certificates or ())
        self._removed_certificates = known.difference(rules.certificates or ())
        self._rules = rules
        self.generation += 1

    def now(self) -> float:
        """Return the time of the day in seconds since the epoch."""
        return self._wall_clock() / _NANOSECONDS

    def visitor(self, peer: str, certificate_names: Sequence[str] = ()) -> Visitor:
        """Return who decides about the calls of a connection.

        Args:
            peer: the other end, in gRPC's notation.
            certificate_names: those of the certificate that the peer has shown, which was found to be good.
        """
        return Visitor(self, peer, certificate_names)

    def identified(self, peer: str, certificate_names: Iterable[str]) -> tuple[Identity, bool]:
        """Return who a peer is before it has sent a token, and whether its certificate says so."""
        for name in certificate_names:
            grant = self._rules.of_certificate(name)
            if grant is not None:
                here = anonymous(peer)
                account = f"{CERTIFICATE}:{name}"
                return Identity(account=account, local=here.local, grant=grant, derives=(Source("", name),)), True
        return anonymous(peer, NOTHING), False

    def verified(self, text: str, *, local: bool) -> Identity:
        """Return whose token this is.

        Raises:
            UnauthenticatedError: it is not valid (any more).
        """
        keys = self._rules.keys
        if keys is None:
            raise UnauthenticatedError("no tokens are accepted here")
        token = keys.verify(text)
        # Nobody else has the keys that are not the platform's.
        key_name = key_name_of(text) if self._platform is self else ""
        itself = Source(token.token_id, token.grant.name, key_name, token.expires_at)
        identity = Identity(
            account=f"token:{token.grant.name}",
            local=local,
            grant=token.grant,
            token_id=token.token_id,
            key_name=key_name_of(text),
            expires_at=token.expires_at,
            sources=token.sources,
            derives=(itself, *token.sources),
        )
        self.check(identity)
        return identity

    def has_key(self, key_name: str) -> bool:
        """Tell whether a key of this name is among those that count."""
        return self._rules.keys is not None and key_name in self._rules.keys

    def has_key_of(self, text: str) -> bool:
        """Tell whether a token says that it was signed with a key that counts; nothing is verified."""
        parts = text.split(".", 2)
        return len(parts) == 3 and self.has_key(parts[1])

    def check(self, identity: Identity) -> None:
        """Check that a token that was good is so still.

        Raises:
            UnauthenticatedError: it has expired or was revoked, or its key has gone; or this is so of what it was
                derived from.
        """
        if identity.key_name and not self.has_key(identity.key_name):
            raise UnauthenticatedError("the token is not valid here")
        if self._expired(identity.expires_at):
            raise UnauthenticatedError("the token has expired")
        if identity.token_id and self._has_revoked(identity.token_id, identity.grant.name):
            raise UnauthenticatedError("the token has been revoked")
        if identity.sources:
            if any(self._expired(source.expires_at) for source in identity.sources):
                raise UnauthenticatedError("the token has expired that it was derived from")
            fallen = next((source for source in identity.sources if not self._stands(source)), None)
            if fallen is not None and not fallen.token_id:
                raise UnauthenticatedError("the certificate is not known here that it was derived from")
            if fallen is not None:
                raise UnauthenticatedError("the token has been revoked that it was derived from")

    def stand(self, sources: Sources) -> bool:
        """Tell whether none of what something was derived from was revoked, whatever has expired."""
        return all(map(self._stands, sources))

    def _stands(self, source: Source) -> bool:
        platform = self._platform
        if not source.token_id:
            if platform._rules.certificates is not None:
                return source.name in platform._rules.certificates
            return source.name not in platform._removed_certificates
        if source.key_name and not platform.has_key(source.key_name):
            return False
        return not self._has_revoked(source.token_id, source.name)

    def _has_revoked(self, token_id: str, name: str) -> bool:
        if token_id in self._withdrawn or self._rules.revoked.has(token_id, name):
            return True
        return self._platform is not self and self._platform._has_revoked(token_id, name)

    def _expired(self, expires_at: int) -> bool:
        return bool(expires_at) and self._wall_clock() >= expires_at * _NANOSECONDS

    def valid(self, identity: Identity) -> bool:
        """Tell whether a call that was let in may go on under the present rules."""
        try:
            self.check(identity)
        except UnauthenticatedError:
            return False
        kind, _, name = identity.account.partition(":")
        return kind != CERTIFICATE or self._rules.of_certificate(name) == identity.grant

    def mint(self, grant: Grant, lifetime_seconds: float, sources: Sources) -> str:
        """Return a new token; empty if there are no keys.

        Args:
            grant: no more than what is needed: whoever is called gets the token.
            lifetime_seconds: from now on.
            sources: the token counts as long as these do: `Identity.derives` of who it is made for; empty: it is the
                server's own.
        """
        keys = self._rules.keys
        if keys is None:
            return ""
        token_id = "".join(filter(str.isalnum, self._new_id()))[:32]
        expires_at = int(self.now()) + max(1, round(lifetime_seconds))
        return keys.sign(Token(token_id=token_id, grant=grant, expires_at=expires_at, sources=sources))

    def renew(self, identity: Identity, lifetime_seconds: float) -> str:
        """Return a token of `mint` with a later end. It is the same one: whatever revokes it revokes both.

        Args:
            identity: whose token it is.
            lifetime_seconds: from now on.
        """
        keys = self._rules.keys
        assert keys is not None, "it was made here"
        expires_at = int(self.now()) + max(1, round(lifetime_seconds))
        return keys.sign(
            Token(token_id=identity.token_id, grant=identity.grant, expires_at=expires_at, sources=identity.sources)
        )

    def withdraw(self, text: str) -> None:
        """Let a token of `mint` count no more, here: what it was made for is over.

        Nobody is told, so other servers take it until it expires. It is forgotten when this process ends: whoever has
        made a token that may last longer keeps its id, and calls `withdraw_ids` in the next one.
        """
        token = unverified(text)
        self.withdraw_ids({token.token_id: token.expires_at})

    def withdraw_ids(self, token_ids: Mapping[str, int]) -> None:
        """Let tokens of `mint` count no more, of which only the ids are known.

        Args:
            token_ids: and when the tokens expire, in seconds since the epoch.
        """
        now = self.now()
        known = {**self._withdrawn, **token_ids}
        self._withdrawn = {token_id: until for token_id, until in known.items() if until > now}

    def source(self, grant: Grant, lifetime_seconds: float, sources: Sources) -> TokenSource:
        """Return what gives a token of `mint` for each call of a channel: the same until half of its life is over."""
        return _Minting(self, grant, lifetime_seconds, sources)


class _Minting:
    def __init__(self, control: AccessControl, grant: Grant, lifetime_seconds: float, sources: Sources) -> None:
        self._control = control
        self._grant = grant
        self._sources = sources
        self._lifetime_seconds = lifetime_seconds
        self._text = ""
        self._renewed: tuple[int, float] = (-1, 0.0)  # the generation of the keys, and until when it is given

    def __call__(self) -> str:
        control, now = self._control, self._control.now()
        generation, until = self._renewed
        if generation != control.generation or now >= until:
            self._text = control.mint(self._grant, self._lifetime_seconds, sources=self._sources)
            self._renewed = control.generation, now + self._lifetime_seconds / 2
        return self._text


class Visitor:
    """Decides about the calls of one connection.

    Attributes:
        identity: who the peer is as far as its connection says.
    """

    __slots__ = ("_control", "_generation", "_known", "_names", "_peer", "_tokens", "identity")

    def __init__(self, control: AccessControl, peer: str, certificate_names: Sequence[str]) -> None:
        self._control = control
        self._peer = peer
        self._names = tuple(certificate_names)
        self._begin()

    def _begin(self) -> None:
        self._generation = self._control.generation
        self._tokens: dict[str, Identity] = {}
        self.identity, self._known = self._control.identified(self._peer, self._names)

    def admit(self, path: str, metadata: Iterable[tuple[str, str | bytes]]) -> Identity:
        """Return who makes a call, which may begin.

        Args:
            path: `/package.Service/Method`.
            metadata: of the call.

        Raises:
            UnauthenticatedError: there is no token and no known certificate, or the token is not valid.
            PermissionDeniedError: it is not for the caller's roles.
        """
        if self._generation != self._control.generation:
            self._begin()
        text = bearer_token(metadata)
        if text is None:
            identity = self.identity
            if not self._known and path not in OPEN_TO_ANYBODY:
                raise UnauthenticatedError(_EXPECTED)
        else:
            identity = self._identity_of(text)
        if Role.ADMIN not in identity.grant.roles and identity.scope(path) is None:
            roles = ", ".join(sorted(role.value for role in identity.grant.roles)) or "none"
            raise PermissionDeniedError(f"{path}: not allowed for the caller's roles ({roles})")
        return identity

    def _identity_of(self, text: str) -> Identity:
        identity = self._tokens.get(text)
        if identity is None:
            identity = self._control.verified(text, local=self.identity.local)
            if len(self._tokens) >= _REMEMBERED_TOKENS:
                del self._tokens[next(iter(self._tokens))]
            self._tokens[text] = identity
        elif identity.expires_at or identity.sources:
            self._control.check(identity)
        return identity


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """Return the token of a call; None: it has none. Other schemes of authorization, as proxies use them, are not ours.

    Raises:
        UnauthenticatedError: it is longer than any token.
    """
    for name, value in metadata:
        if name == AUTHORIZATION and isinstance(value, str) and value[: len(BEARER)].lower() == BEARER.lower():
            if len(value) > MAX_TOKEN_CHARACTERS + len(BEARER):
                raise UnauthenticatedError("the token is not valid here")
            return value[len(BEARER) :].strip()
    return None


def authorization(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries a token; nothing for an empty one.

    Raises:
        InvalidArgumentError: it cannot be sent. The error does not contain it.
    """
    if not token:
        return ()
    if len(token) > MAX_TOKEN_CHARACTERS or not _SENDABLE.fullmatch(token):
        raise InvalidArgumentError("token: expected printable ASCII without blanks")
    return ((AUTHORIZATION, BEARER + token),)
