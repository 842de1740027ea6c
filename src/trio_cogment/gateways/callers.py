"""Calls the orchestrator on behalf of a gateway's clients: what they start is theirs, and counts for their quotas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import quote

from trio_cogment.access import AccessControl, Grant, Identity, Role, authorization, lasting
from trio_cogment.base.errors import PermissionDeniedError, RpcError, StatusCode
from trio_cogment.base.services import TRIAL_OWNER, TRIAL_QUOTAS, TRIAL_RUN
from trio_cogment.rpc import CallOpener, ServerCall, WithMetadata
from trio_cogment.sdk import Controller

#: How long a token counts that a gateway makes in the name of a client; it is renewed after half of that.
_TOKEN_SECONDS = 30 * 86400.0
#: As whom a gateway ends the trials of a client whose token counts no more, and for how long its token does.
_ENDER = Grant(name="gateway", roles=frozenset([Role.ADMIN]))
_END_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Caller:
    """A client of a gateway.

    Attributes:
        identity: of the client.
        opener: returns what calls the orchestrator in its name, for some time.
        ender: returns what ends trials in the name of the gateway; None: there is no need.
    """

    identity: Identity
    opener: Callable[[], CallOpener]
    ender: Callable[[], CallOpener] | None = None

    @property
    def owner(self) -> str:
        """The account that what it starts belongs to; empty: nobody's, as where nobody is asked who they are."""
        return lasting(self.identity.account)

    def owns(self, owner: str) -> bool:
        """Tell whether what an account owns is for it to end."""
        return self.identity.admin or (owner != "" and owner == self.owner)

    def check_owns(self, owner: str, what: str) -> None:
        """Refuse what is somebody else's.

        Raises:
            PermissionDeniedError: its text names `what`, and not the owner.
        """
        if not self.owns(owner):
            raise PermissionDeniedError(f"{what}: it belongs to somebody else")

    async def end_trial(self, trial_id: str, *, hard: bool = False) -> None:
        """End a trial of its own. When its token counts no more, the gateway does so: nobody else would.

        Raises:
            RpcError: the orchestrator cannot be reached, or refuses.
        """
        try:
            await Controller(self.opener()).terminate_trial(trial_id, hard=hard)
        except RpcError as error:
            if self.ender is None or error.code is not StatusCode.UNAUTHENTICATED:
                raise
            await Controller(self.ender()).terminate_trial(trial_id, hard=hard)

    def check_logs(self, trial_id: str) -> None:
        """Refuse the samples of a trial for which its token is not.

        Raises:
            PermissionDeniedError: naming the trial.
        """
        if not (self.identity.admin or self.identity.grant.names_trial(trial_id)):
            raise PermissionDeniedError(f"trial {trial_id!r}: not for this caller")


#: Returns who makes a call to a gateway.
Callers: TypeAlias = Callable[[ServerCall], Caller]


def callers_in_process(opener: CallOpener) -> Callers:
    """Return who calls a gateway with a platform: what is started within the process is said to be theirs.

    Args:
        opener: calls the platform.
    """

    def caller_of(call: ServerCall) -> Caller:
        owner = lasting(call.identity.account)
        if not owner:
            return Caller(call.identity, lambda: opener)
        metadata = (
            (TRIAL_OWNER, quote(owner)),
            (TRIAL_QUOTAS, call.identity.grant.quotas.text()),
            (TRIAL_RUN, quote(call.identity.run_id)),
        )
        named = WithMetadata(opener, metadata)
        return Caller(call.identity, lambda: named)

    return caller_of


def callers_elsewhere(opener: CallOpener, access: AccessControl | None) -> Callers:
    """Return who calls a gateway in front of an orchestrator elsewhere: that is called with tokens in their names.

    Args:
        opener: calls the orchestrator as the gateway.
        access: makes the tokens; None: all calls are the gateway's own.
    """

    def caller_of(call: ServerCall) -> Caller:
        identity = call.identity
        if access is None or not lasting(identity.account):
            return Caller(identity, lambda: opener)
        # What a client may do here was decided here: the profile says what is started for it.
        grant = replace(identity.grant, roles=(identity.grant.roles - {Role.SEAT}) | {Role.OPERATOR})
        source = access.source(grant, _TOKEN_SECONDS, sources=identity.derives)

        def ender() -> CallOpener:
            token = access.mint(_ENDER, _END_SECONDS, sources=())
            return WithMetadata(opener, authorization(token))

        return Caller(identity, lambda: WithMetadata(opener, authorization(source())), ender)

    return caller_of
