"""Tokens: what is granted, until when, as a short signed text.

A token is `tc1.KEY.CLAIMS.SIGNATURE`: the version, the name of the key it was signed with, its claims (JSON) and an
HMAC-SHA256 over all of that, the last two in URL-safe base64. There is one algorithm and no field that chooses it, so
none can be chosen wrongly; that, four calls of the standard library and no dependency more are why this is not a JWT.

A token that a server makes for what somebody does with a token (a seat, a link, a worker's) is derived from that: its
claims name what it was derived from, in turn, and wherever it is shown it ends when one of these does. So no server has
to keep a list, and no restart forgets anything.

A secret file has a key on each line, as hexadecimal digits. The first one signs, all of them verify: to rotate, a new
key is put in front, and the old one is removed when its tokens have been replaced.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from trio_cogment.access.roles import Grant, Quotas, roles_of
from trio_cogment.base.errors import CogmentError, InvalidArgumentError, UnauthenticatedError
from trio_cogment.base.records import record

VERSION = "tc1"
KEY_BYTES = 32
#: A text that is longer is not a token; it is not looked at.
MAX_TOKEN_CHARACTERS = 8192
#: The time of a token that does not expire.
NEVER = 0
#: How long the line of tokens may be from which a token was derived.
MAX_SOURCES = 8

_ID_CHARACTERS = 32
_QUOTAS = {"t": "trials", "b": "stored_bytes", "m": "models"}
_NAMES = {"t": "trials", "c": "classes", "a": "actors"}
_NOT_VALID = "the token is not valid here"


class Source(NamedTuple):
    """A token, or a certificate, from which a token was derived.

    Attributes:
        token_id: of the token; empty: it is a certificate.
        name: of the holder, or of the certificate.
        key_name: of the key that has signed the token; empty: it is not one of the platform's.
        expires_at: as in `Token`; what was derived ends then, too.
    """

    token_id: str
    name: str
    key_name: str = ""
    expires_at: int = NEVER


#: What something was derived from: the nearest first; empty: from nobody's token or certificate.
Sources: TypeAlias = tuple[Source, ...]


def lasting_sources(sources: Sources) -> Sources:
    """Return the same for what goes on when the time of its sources is over: it ends only if one is revoked."""
    return tuple(source._replace(expires_at=NEVER) for source in sources)


@record(kw_only=True)
class Token:
    """A token's claims.

    Attributes:
        token_id: by which it is revoked.
        grant: what its holder may do.
        expires_at: when it ends, in seconds since the epoch; `NEVER`: it does not.
        sources: what it was derived from, and ends with.
    """

    token_id: str
    grant: Grant
    expires_at: int
    sources: Sources = ()

    def __post_init__(self) -> None:
        if not (0 < len(self.token_id) <= _ID_CHARACTERS and self.token_id.isascii() and self.token_id.isalnum()):
            raise InvalidArgumentError(f"token_id: expected 1 to {_ID_CHARACTERS} ASCII letters and digits")
        if len(self.sources) > MAX_SOURCES:
            raise InvalidArgumentError(f"sources: expected {MAX_SOURCES} at most, got {len(self.sources)}")
        if not 0 <= self.expires_at < 2**53:
            raise InvalidArgumentError(f"expires_at: expected seconds since the epoch, got {self.expires_at}")

    def expired(self, now: float) -> bool:
        """Tell whether its time is over.

        Args:
            now: seconds since the epoch.
        """
        return self.expires_at != NEVER and now >= self.expires_at


class Keys:
    """The keys of a secret file.

    Args:
        keys: of `KEY_BYTES` at least; the first one signs.

    Attributes:
        MOST: how many there may be.

    Raises:
        InvalidArgumentError: there are none, too many, or one is too short.
    """

    MOST = 16

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        if not 0 < len(keys) <= self.MOST:
            raise InvalidArgumentError(f"expected 1 to {self.MOST} keys, got {len(keys)}")
        if any(len(key) < KEY_BYTES for key in keys):
            raise InvalidArgumentError(f"expected {2 * KEY_BYTES} hexadecimal digits for each key, or more")
        self._by_name = {_key_name(key): key for key in keys}
        self._signing = _key_name(keys[0])

    @classmethod
    def parse(cls, text: str) -> Keys:
        """Read the content of a secret file; lines that begin with `#` are comments.

        Raises:
            InvalidArgumentError: it is not one. The error does not contain any of the text.
        """
        keys = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    keys.append(bytes.fromhex(line))
                except ValueError:
                    raise InvalidArgumentError(f"line {number}: expected a key as hexadecimal digits") from None
        return cls(tuple(keys))

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._by_name)})"  # their names, never the keys

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def sign(self, token: Token) -> str:
        """Return the token as text."""
        body = f"{VERSION}.{self._signing}.{_encoded(_claims(token))}"
        return f"{body}.{_encoded(_signature(self._by_name[self._signing], body))}"

    def verify(self, text: str) -> Token:
        """Return what a token says; its time and its revocation are the caller's business.

        Raises:
            UnauthenticatedError: it was not signed with one of these keys.
        """
        body, _, signature = text.rpartition(".")
        parts = body.split(".")
        if len(text) > MAX_TOKEN_CHARACTERS or len(parts) != 3 or parts[0] != VERSION:
            raise UnauthenticatedError(_NOT_VALID)
        key = self._by_name.get(parts[1])
        if key is None:
            raise UnauthenticatedError(_NOT_VALID)
        try:
            given = _decoded(signature)
            body.encode("ascii")
        except ValueError:
            raise UnauthenticatedError(_NOT_VALID) from None
        if not hmac.compare_digest(given, _signature(key, body)):
            raise UnauthenticatedError(_NOT_VALID)
        try:
            return read_claims(_decoded(parts[2]))
        except CogmentError:
            raise UnauthenticatedError(_NOT_VALID) from None


def key_name_of(text: str) -> str:
    """Return the name of the key that a token says it was signed with."""
    return text.split(".", 2)[1]


def unverified(text: str) -> Token:
    """Return what a token says, whoever has signed it: to show it, never to trust it.

    Raises:
        InvalidArgumentError: it is not a token.
    """
    parts = text.split(".")
    if len(parts) != 4 or parts[0] != VERSION:
        raise InvalidArgumentError("expected a token of the form tc1.KEY.CLAIMS.SIGNATURE")
    try:
        return read_claims(_decoded(parts[2]))
    except ValueError:
        raise InvalidArgumentError("its claims cannot be read") from None


def read_claims(content: bytes) -> Token:
    """Return the claims of a token.

    Raises:
        InvalidArgumentError: they cannot be read.
    """
    try:
        claims: Any = json.loads(content)
        quotas: Mapping[str, Any] = claims.get("q", {})
        return Token(
            token_id=_text(claims["i"]),
            grant=Grant(
                name=_text(claims["n"]),
                roles=roles_of(map(_text, claims.get("r", ()))),
                quotas=Quotas(**{_QUOTAS[name]: value for name, value in quotas.items()}),
                owner=_text(claims.get("o", "")),
                **{field: tuple(map(_text, claims.get(name, ()))) for name, field in _NAMES.items()},
            ),
            expires_at=_number(claims["e"]),
            sources=sources_of(claims.get("d", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidArgumentError("its claims cannot be read") from None


def sources_of(value: Any) -> Sources:
    """Return sources that were written as JSON, where each is an array.

    Raises:
        ValueError, TypeError: they cannot be read.
    """
    return tuple(
        Source(_text(token_id), _text(name), _text(key_name), _number(expires_at))
        for token_id, name, key_name, expires_at in value
    )


def _claims(token: Token) -> bytes:
    grant = token.grant
    quotas = {name: getattr(grant.quotas, field) for name, field in _QUOTAS.items()}
    claims = {
        "i": token.token_id,
        "n": grant.name,
        "e": token.expires_at,
        "r": sorted(role.value for role in grant.roles),
        "q": {name: value for name, value in quotas.items() if value is not None},
        "o": grant.owner,
        "d": token.sources,
        **{name: list(getattr(grant, field)) for name, field in _NAMES.items()},
    }
    always = ("i", "n", "e")
    text = json.dumps({name: value for name, value in claims.items() if value or name in always}, separators=(",", ":"))
    return text.encode()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _key_name(key: bytes) -> str:
    return hashlib.sha256(b"name of a key of trio-cogment\0" + key).hexdigest()[:8]


def _signature(key: bytes, body: str) -> bytes:
    return hmac.digest(key, b"token of trio-cogment\0" + body.encode("ascii"), "sha256")


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if _encoded(content) != text:  # the last character has bits to spare: one token has one text
        raise ValueError("not base64")
    return content
