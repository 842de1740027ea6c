"""The account behind requests of pages: tokens in fields, paths and cookies, and the address that gives the first one.

A token is found in three places; the first of them counts:

* the field `authorization`, as `Bearer TOKEN`, which programs send;
* the path, as `/~TOKEN/...`: the only place that an unmodified JavaScript SDK has, and that of links for one seat. What
  follows it is the path that is meant, for calls and for pages alike;
* a cookie that pages cannot read (`HttpOnly`), and that browsers send with nothing that another site has caused
  (`SameSite=Strict`). To a browser all ports of a machine are one site, so the cookie's name has the port in it, and
  what changes something, and every WebSocket, must say by its `Origin` that the server's own page has sent it.

Pages need a token also where calls need none (`--auth=open`): a page in a browser that reaches the server is not yet
its owner's. Such a server signs tokens with a secret of its process, and the first one, an administrator's, comes from
an address that it prints (`/enter/CODE`) and that counts once.
"""

from __future__ import annotations

import base64
import hmac
import math
from functools import partial

from trio_cogment.access import AccessControl, Grant, Identity, Keys, Role, Rules, Sources, bearer_token
from trio_cogment.access.tokens import KEY_BYTES
from trio_cogment.base.errors import PermissionDeniedError, UnauthenticatedError
from trio_cogment.base.host import Host
from trio_cogment.web.origins import Authority
from trio_cogment.web.requests import Request

#: The path of the form that takes a token, and what stands before the code of a printed address.
ENTER = "/enter"
#: The path of the form that takes it away.
LEAVE = "/leave"
#: What the holder of the first token is called, in logs and as an owner.
ENTERED = "pages"
_CODE_BYTES = 24
_SAFE = ("GET", "HEAD")
#: What a browser takes only over TLS, and from no other host of the domain; for all paths of the host.
_SECURE_PREFIX = "__Host-"
#: The same for some paths of a host, of which the others may be another server's: these never get the cookie.
_SECURE_BELOW_PREFIX = "__Secure-"
_COOKIE = "trio-cogment"


class PageAccess:
    """See the module.

    Args:
        control: judges the tokens of the platform, and signs new ones if it has keys; None: there are none.
        host: the clock, and secrets.
        session_seconds: how long the token counts that the printed address gives.
        keys: sign links where there is no `control`, so that they outlast the process; None: drawn ones.
    """

    def __init__(
        self,
        control: AccessControl | None = None,
        *,
        host: Host | None = None,
        session_seconds: float = 7 * 86400.0,
        keys: Keys | None = None,
    ) -> None:
        host = host or Host()
        self._control = control
        secret = Rules(keys=keys or Keys((host.secret_bytes(KEY_BYTES),)))
        make = partial(AccessControl, wall_clock=host.wall_clock, new_id=host.new_id)
        self._own = make(secret, platform=control or make(Rules()))
        self._secret_bytes = host.secret_bytes
        self._session_seconds = session_seconds
        self._code = ""
        self._left: dict[str, int] = {}  # ids of sessions that have ended, and when these would expire

    # --- tokens ---

    def mint(self, grant: Grant, lifetime_seconds: float, sources: Sources) -> str:
        """Return a new token: the platform's, which lasts longer than the process, where there is a secret for that.

        The arguments are those of `AccessControl.mint`.
        """
        text = "" if self._control is None else self._control.mint(grant, lifetime_seconds, sources)
        return text or self._own.mint(grant, lifetime_seconds, sources)

    def identify(self, text: str, *, local: bool) -> Identity:
        """Return whose token this is.

        Raises:
            UnauthenticatedError: it is not valid (any more).
        """
        if self._control is None or self.issued(text):
            identity = self._own.verified(text, local=local)
            if identity.token_id in self._left:
                raise UnauthenticatedError("the token does not count any more: its browser has left")
            return identity
        return self._control.verified(text, local=local)

    def issued(self, text: str) -> bool:
        """Tell whether a token says that it was signed with the secret of this process."""
        return self._own.has_key_of(text)

    def is_own(self, identity: Identity) -> bool:
        """Tell whether somebody is known by a token that only this process knows."""
        return self._own.has_key(identity.key_name)

    def valid(self, identity: Identity) -> bool:
        """Tell whether who was let in may stay."""
        if self._control is None or self.is_own(identity):
            return identity.token_id not in self._left and self._own.valid(identity)
        return self._control.valid(identity)

    # --- the printed address ---

    def new_code(self) -> str:
        """Return the end of a new address (`/enter/CODE`); one that was not used counts no more."""
        self._code = base64.urlsafe_b64encode(self._secret_bytes(_CODE_BYTES)).decode()
        return self._code

    def enter(self, code: str) -> str:
        """Return an administrator's token for who has the address.

        Raises:
            PermissionDeniedError: it was used, or is none.
        """
        if not self._code or not hmac.compare_digest(self._code.encode(), code.encode()):
            raise PermissionDeniedError(
                "this address does not count, or not any more: it works once. The server prints a new one when it gets "
                "SIGHUP (kill -HUP and its process id)"
            )
        self._code = ""
        return self._own.mint(Grant(name=ENTERED, roles=frozenset([Role.ADMIN])), self._session_seconds, sources=())

    def leave(self, text: str) -> None:
        """Let a token of `enter` count no more; any other one counts on, because whoever has it was given it.

        Links that were made for its holder count on as well: the people who have got them stay.
        """
        try:
            identity = self.identify(text, local=False)
        except UnauthenticatedError:
            return
        if self.is_own(identity) and identity.grant.name == ENTERED:
            now = self._own.now()
            self._left = {token_id: until for token_id, until in self._left.items() if until > now}
            self._left[identity.token_id] = identity.expires_at

    # --- what a request has ---

    def set_cookie(self, request: Request, token: str) -> tuple[bytes, bytes]:
        """Return the field of an answer that leaves a token with the browser; an empty one takes it away."""
        seconds = math.floor(self._session_seconds) if token else 0
        text = f"{_cookie_name(request)}={token}; Path={request.base}/; Max-Age={seconds}; HttpOnly; SameSite=Strict"
        return b"set-cookie", (f"{text}; Secure" if request.secure else text).encode("latin-1")


def token_of(request: Request) -> str:
    """Return the token that comes with a request; empty: there is none, or not one that counts here.

    Raises:
        UnauthenticatedError: it is longer than any token.
    """
    field = bearer_token([("authorization", value) for value in request.texts(b"authorization")])
    return field or request.token or cookie_of(request)


def cookie_of(request: Request) -> str:
    """Return the token in the cookie of the server's own page; empty: there is none, or another page asks."""
    changes = request.method not in _SAFE or request.upgrades_to_websocket
    if request.foreign or (changes and not request.first(b"origin")):
        return ""
    wanted = _cookie_name(request)
    for field in request.texts(b"cookie"):
        for part in field.split(";"):
            name, _, value = part.strip().partition("=")
            if name == wanted:
                return value
    return ""


def check_right(identity: Identity, right: str) -> None:
    """Refuse who may not do what a page does.

    Args:
        identity: who asks.
        right: the path of a call, or `access.PAGES` and what a page shows.

    Raises:
        PermissionDeniedError: its text names the roles.
    """
    if identity.scope(right) is None:
        roles = ", ".join(sorted(role.value for role in identity.grant.roles)) or "none"
        raise PermissionDeniedError(f"not allowed for your roles ({roles})")


def expect_known(identity: Identity | None) -> Identity:
    """Return who asks.

    Raises:
        UnauthenticatedError: nobody knows.
    """
    if identity is None:
        raise UnauthenticatedError(
            "nobody has signed in: expected a token, as a cookie, in the field authorization, or in the path"
        )
    return identity


def _cookie_name(request: Request) -> str:
    host = Authority.parse(request.first(b"host").decode("latin-1"))
    port = None if host is None else host.port
    name = _COOKIE if port is None else f"{_COOKIE}-{port}"
    if not request.secure:
        return name
    return (_SECURE_BELOW_PREFIX if request.base else _SECURE_PREFIX) + name
