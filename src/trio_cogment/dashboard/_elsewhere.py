"""Calls of visitors: to services of this process, and to those that are elsewhere.

An orchestrator may have its datastore and its model registry in other processes. They get a token of the visitor, so
that they judge it by its own rights; where no token can be made for it, only who may see everything gets there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import TypeAlias

from google.protobuf.message import Message
from typing_extensions import override

from trio_cogment.access import Grant, Identity, Role, Scope, Sources
from trio_cogment.base.errors import EndpointError, FailedPreconditionError, PermissionDeniedError, UnimplementedError
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import CallOpener, ClientCall, DirectCall, InProcessChannel, MetadataLike, Method, WithMetadata
from trio_cogment.rpc.relay import OnBehalf
from trio_cogment.web.routing import Visit

#: Finds what calls a service of another process.
Find: TypeAlias = Callable[[ServiceKind], Awaitable[CallOpener]]
#: Returns a token for somebody, for this many seconds, derived from that one's; empty: there is nothing to sign it
#: with.
Mint: TypeAlias = Callable[[Grant, float, Sources], str]

_NONE_HERE = {
    ServiceKind.DATASTORE: "this server stores no trials",
    ServiceKind.MODEL_REGISTRY: "this server has no models",
}
#: A call ends with its token; so it has to last for a long download.
_TOKEN_SECONDS = 3600.0


class VisitorCalls:
    """See the module.

    Args:
        channel: to the services of this process.
        here: the full names of these.
        find: finds the others; None: there are none.
        mint: makes tokens for these.
    """

    def __init__(self, channel: InProcessChannel, here: Collection[str], find: Find | None, mint: Mint) -> None:
        self._channel = channel
        self._here = here
        self._find = find
        self._mint = mint

    def here(self, visit: Visit) -> CallOpener:
        """Return what calls the services of this process."""
        return OnBehalf(self._channel, visit.peer, visit.who)

    async def of(self, kind: ServiceKind, visit: Visit) -> CallOpener:
        """Return what calls a service, wherever it is.

        Raises:
            UnimplementedError: it is nowhere to be found.
            UnavailableError: the directory cannot be reached.
        """
        if SERVICES[kind].full_name in self._here:
            return self.here(visit)
        if self._find is None:
            raise UnimplementedError(_NONE_HERE[kind])
        try:
            found = await self._find(kind)
        except (EndpointError, FailedPreconditionError) as error:
            raise UnimplementedError(f"this server has no {kind.value}, and none was found: {error}") from None
        token = self._mint(reading(visit.who.grant), _TOKEN_SECONDS, visit.who.derives)
        return _Elsewhere(found, visit.who, token)


def reading(grant: Grant) -> Grant:
    """Return what somebody needs to read: whoever is called gets the token, and must not do more with it."""
    roles = grant.roles & {Role.OPERATOR, Role.OBSERVER}
    return replace(grant, roles=roles | {Role.OBSERVER} if Role.ADMIN in grant.roles else roles)


class _Elsewhere(CallOpener):
    """Calls to another process in the name of somebody.

    Args:
        opener: makes them.
        identity: who that is.
        token: of that one; empty: there is none.
    """

    def __init__(self, opener: CallOpener, identity: Identity, token: str) -> None:
        self._opener = WithMetadata(opener, [("authorization", f"Bearer {token}")]) if token else opener
        self._identity = identity
        self._known_there = bool(token)

    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ClientCall:
        """See `CallOpener.call`.

        Raises:
            PermissionDeniedError: it is not for this visitor.
        """
        self._check(method)
        return self._opener.call(
            method, metadata=metadata, timeout=timeout, wait_for_ready=wait_for_ready, compression=compression
        )

    @override
    def call_nowait(
        self, method: Method, *, metadata: MetadataLike = (), first: Message | None = None
    ) -> DirectCall | None:
        self._check(method)
        return self._opener.call_nowait(method, metadata=metadata, first=first)

    def _check(self, method: Method) -> None:
        scope = self._identity.scope(method.path)
        if scope is None or (scope is not Scope.ALL and not self._known_there):
            raise PermissionDeniedError(f"{method.path}: not allowed for the caller's roles")
