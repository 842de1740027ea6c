"""From endpoints to channels: what is served in this process first, then the directory; sockets shared by address."""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Protocol, TypeAlias

import trio

from trio_cogment.access import EXACTLY, AccessControl, Grant, Quotas, Role, TokenSource, authorization, lasting
from trio_cogment.base.config import OutgoingConfig, RpcConfig
from trio_cogment.base.endpoints import (
    ClientEndpoint,
    DiscoverEndpoint,
    Endpoint,
    GrpcEndpoint,
    LegacyEndpoint,
    parse_endpoint,
    parse_server_endpoint,
)
from trio_cogment.base.errors import EndpointError, FailedPreconditionError
from trio_cogment.base.host import Host
from trio_cogment.base.records import record
from trio_cogment.base.services import TRIAL_KINDS, ServiceKind
from trio_cogment.rpc import CallOpener, SharedChannels, open_channel
from trio_cogment.rpc.outgoing import Outgoing
from trio_cogment.servers.discovery import DirectoryClient
from trio_cogment.servers.orchestrator._fair_turns import FairTurns, Turn
from trio_cogment.servers.orchestrator._room import Holding

#: The pause between attempts to connect where the caller makes pauses of its own: just enough that a crowd of trials
#: with one data log does not try all at once.
SELF_PACED_BACKOFF_SECONDS = 0.25
#: How long its first call waits for a server that does not listen yet: one that was started together with this one.
SELF_PACED_AWAIT_SECONDS = 2.0

#: A watched server that vanishes is noticed within twice this time, by a PING and the wait for its answer.
WATCH_SECONDS = 5.0

_UNLIMITED = sys.maxsize


@record()
class PeersEndpoint(GrpcEndpoint):
    """An endpoint that a peer has named; see `trio_cogment.access.reach_of`."""

    reach: str

    def __str__(self) -> str:
        return str(GrpcEndpoint(self.host, self.port))


#: Whose the tokens are that an orchestrator makes for its trials.
_NAME = "server:orchestrator"
#: How long such a token counts. The calls of a trial begin with the same one for half of that; the other half is the
#: longest that a call may last, at servers that ask for tokens.
TRIAL_TOKEN_SECONDS = 30 * 86400.0
#: The same of its token for all trials. It cannot be for one trial: the participants of that know such a token.
OWN_TOKEN_SECONDS = 86400.0
#: Metadata that carries a token; empty where none is asked for.
Authorization: TypeAlias = tuple[tuple[str, str], ...]

Target: TypeAlias = GrpcEndpoint | CallOpener
#: Returns what answers calls to a service of some kind in the name of a server of the legacy API.
FindLegacy: TypeAlias = Callable[[LegacyEndpoint, ServiceKind], CallOpener]


class LocalServices(Protocol):
    """What is served in this process."""

    def find(self, kind: ServiceKind, properties: Mapping[str, str]) -> CallOpener | None:
        """Return where a service of this kind with all these properties is called, None if there is none here."""

    def registered(self, kind: ServiceKind) -> str:
        """Return the names of what there is of a kind, for errors; empty if there is nothing."""


class Connections:
    """Resolves endpoints and lends channels. Its channels live in `nursery`, shielded: `abandon` must follow a cancel.

    Args:
        nursery: where the channels' tasks run.
        local: what is served in this process.
        config: for the channels.
        directory: who is asked for what is not served here.
        client_tls: encrypts every channel; without it none is encrypted.
        host: makes the connections.
        access: signs what says to others that this orchestrator runs a trial; None: nothing does.
        outgoing: where to, when a peer has named it.
        turns: bounds how many streams are opened at a time; by default nothing does. See `turn`.

    Attributes:
        own_endpoint: where others reach this orchestrator; empty: nobody knows. Data logs are told.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        local: LocalServices | None,
        config: RpcConfig,
        *,
        directory: DirectoryClient | None = None,
        client_tls: ssl.SSLContext | None = None,
        host: Host | None = None,
        access: AccessControl | None = None,
        outgoing: OutgoingConfig | None = None,
        turns: FairTurns | None = None,
    ) -> None:
        self.own_endpoint = ""
        self._turns = turns or FairTurns(_UNLIMITED, _UNLIMITED)
        self._local = local
        self._config = config
        self._directory = directory
        self._client_tls = client_tls
        self._access = access
        self._own_token: TokenSource | None = None
        self._outgoing = Outgoing(outgoing or OutgoingConfig(), host or Host(), config.connect_timeout_seconds)
        self._self_paced_config = replace(
            config,
            connect_backoff_initial_seconds=min(config.connect_backoff_initial_seconds, SELF_PACED_BACKOFF_SECONDS),
            connect_backoff_max_seconds=min(config.connect_backoff_max_seconds, SELF_PACED_BACKOFF_SECONDS),
            await_server_seconds=min(config.await_server_seconds, SELF_PACED_AWAIT_SECONDS),
        )
        self._watched_config = replace(
            self._self_paced_config,
            keepalive_seconds=WATCH_SECONDS,
            client_keepalive_seconds=WATCH_SECONDS,
            keepalive_timeout_seconds=WATCH_SECONDS,
        )
        self._channels = SharedChannels(nursery, self._make)
        #: See `Orchestrator.call_old_servers`.
        self.find_legacy: FindLegacy | None = None

    async def resolve(
        self,
        text: str,
        kind: ServiceKind,
        field_name: str,
        properties: Mapping[str, str] | None = None,
        *,
        reach: str | None = None,
    ) -> Target | None:
        """Return what an endpoint leads to, None for a client actor.

        Args:
            text: the endpoint; empty means discovery by context.
            kind: what is looked for.
            field_name: named in errors.
            properties: what the context adds to a discovery.
            reach: of whoever has named it; see `trio_cogment.access.reach_of`.

        Raises:
            EndpointError: a bad endpoint, or one that has no place here.
            FailedPreconditionError: nobody serves what it describes, or what is registered cannot be used.
            UnavailableError: the directory does not answer.
        """
        endpoint: Endpoint
        if kind is ServiceKind.ACTOR:
            endpoint = parse_endpoint(text, field_name=field_name)
        else:
            endpoint = parse_server_endpoint(text, discovery=True, legacy=True, field_name=field_name)
        if isinstance(endpoint, DiscoverEndpoint):
            return await self._discover(endpoint.in_context(kind, properties or {}), kind, field_name)
        if isinstance(endpoint, ClientEndpoint):
            return None
        if isinstance(endpoint, LegacyEndpoint):
            return self._legacy(endpoint, kind, field_name, reach)
        return endpoint if reach is None else PeersEndpoint(endpoint.host, endpoint.port, reach)

    def _legacy(self, endpoint: LegacyEndpoint, kind: ServiceKind, field_name: str, reach: str | None) -> CallOpener:
        if reach is not None:
            raise FailedPreconditionError(
                f"{field_name}: {endpoint}: only callers on the orchestrator's machine and administrators may name a "
                "server of the legacy API; give it in the default parameters (--params)"
            )
        if self.find_legacy is None:
            raise FailedPreconditionError(
                f"{field_name}: {endpoint}: nothing in this process speaks the legacy API; give it the project's "
                "profile (--legacy, or open_platform(extensions=[LegacyGateway(profile)]))"
            )
        return self.find_legacy(endpoint, kind)

    async def _discover(self, wanted: DiscoverEndpoint, kind: ServiceKind, field_name: str) -> Target | None:
        assert wanted.kind is not None
        if wanted.kind not in TRIAL_KINDS:
            expected = ", ".join(kind.value for kind in TRIAL_KINDS)
            raise EndpointError(f"{field_name}: {wanted}: expected a path among {expected}, service")
        if self._local is not None and not wanted.service_id:
            opener = self._local.find(wanted.kind, wanted.properties)
            if opener is not None:
                return opener
        if self._directory is None:
            have = "" if self._local is None else self._local.registered(wanted.kind)
            raise FailedPreconditionError(
                f"{field_name}: {wanted}: nothing like that is registered in this process "
                f"(registered: {have or 'none'}), and no directory is configured to look further "
                "(--directory_endpoint). Register it, or correct the parameters"
            )
        found = await self._directory.find(wanted, kind, field_name=field_name)
        if isinstance(found.endpoint, ClientEndpoint):
            if kind is not ServiceKind.ACTOR:
                raise FailedPreconditionError(
                    f"{field_name}: {wanted}: service {found.service_id} is registered as cogment://client, which is "
                    "for actors only"
                )
            return None
        if found.ssl and self._client_tls is None:
            raise FailedPreconditionError(
                f"{field_name}: {wanted}: service {found.service_id} at {found.endpoint} expects TLS, and none is "
                "configured here for outgoing calls"
            )
        # The opposite is not an error, as with the reference: one that is registered without TLS is called with it.
        return found.endpoint

    def turn(self, account: str) -> Turn:
        """Return a turn to open a stream to a server elsewhere, which has not begun.

        Args:
            account: for whose trial.
        """
        return Turn(self._turns, account)

    def authorization(self, trial_id: str, holding: Holding | None = None) -> Authorization:
        """Return the metadata that says to a participant, a hook or a data log that this is the trial's orchestrator.

        The token is for this trial alone, and says whose that is: where it goes was said by whoever started the trial.
        It is the orchestrator's own: trials go on when the token of who has started them is revoked.
        """
        return self.authorizations(trial_id, holding)()

    def authorizations(self, trial_id: str, holding: Holding | None = None) -> Callable[[], Authorization]:
        """Return what gives `authorization` for each of many calls, mostly with the same token."""
        if self._access is None:
            return tuple
        grant = Grant(
            name=_NAME,
            roles=frozenset([Role.ORCHESTRATOR]),
            trials=(EXACTLY + trial_id,),
            quotas=Quotas() if holding is None else holding.quotas,
            owner="" if holding is None else lasting(holding.account),
        )
        token = self._access.source(grant, TRIAL_TOKEN_SECONDS, sources=())
        return lambda: authorization(token())

    def own_authorization(self) -> Authorization:
        """Return the metadata that says to a datastore that this is an orchestrator, which goes on with its trials.

        The token is for all trials, and reads them: it is for an endpoint that the operator has named, and for nobody
        else.
        """
        if self._access is None:
            return ()
        if self._own_token is None:
            grant = Grant(name=_NAME, roles=frozenset([Role.ORCHESTRATOR, Role.OBSERVER]))
            self._own_token = self._access.source(grant, OWN_TOKEN_SECONDS, sources=())
        return authorization(self._own_token())

    @asynccontextmanager
    async def open(
        self, target: Target, *, self_paced: bool = False, watched: bool = False
    ) -> AsyncIterator[CallOpener]:
        """Lend the channel to a target for the time of an `async with` block.

        Args:
            target: where to.
            self_paced: the caller makes growing pauses between its tries. The channel's own on top of them would let
                most tries fail without one: until its next attempt is due, a channel repeats its last error.
            watched: the caller is self-paced, and has to know soon that the server has vanished. Only for servers of
                this package: others close a connection with so many PINGs.
        """
        if isinstance(target, CallOpener):
            yield target
            return
        async with self._channels.open((target, self_paced, watched), str(target)) as channel:
            yield channel

    def _make(self, key: tuple[GrpcEndpoint, bool, bool]) -> AbstractAsyncContextManager[CallOpener]:
        target, self_paced, watched = key
        config = self._self_paced_config if self_paced else self._config
        if watched:
            config = self._watched_config
        host = self._outgoing.host_for(target.reach if isinstance(target, PeersEndpoint) else None)
        return open_channel(host, target.host, target.port, tls=self._client_tls, config=config)

    def abandon(self, deadline: float) -> None:
        """See `SharedChannels.abandon`."""
        self._channels.abandon(deadline)
