"""Old servers of pre-trial hooks, as hooks of today."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.api.legacy import hooks_pb2 as pb
from trio_cogment.base.about import About
from trio_cogment.base.endpoints import LegacyEndpoint, parse_endpoint
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, RemoteProtocolError
from trio_cogment.base.services import TRIAL_ID, USER_ID
from trio_cogment.gateways.legacy.messages import CallOut
from trio_cogment.gateways.legacy.old_params import changed_params, old_params
from trio_cogment.gateways.legacy.old_server import HOOKS, OldServer
from trio_cogment.rpc import CallOpener, ServerCall

#: Metadata of calls within this process: the old server that is meant.
OLD_SERVER = "trio-cogment-legacy-server"


class Lender(Protocol):
    """Lends channels to old servers."""

    def channel(self, endpoint: LegacyEndpoint) -> AbstractAsyncContextManager[CallOpener]:
        """Lend the channel to a server for the time of a block."""


class HookService(About):
    """`TrialHooksSP`, in front of the old server that a call names, or else of those of the project.

    Args:
        lender: lends channels to them.
        call_timeout_seconds: how long an answer may take; 0: as long as it takes.
        otherwise: the endpoints of those that are asked, one after the other, if a call names none.
    """

    def __init__(self, lender: Lender, call_timeout_seconds: float, otherwise: Sequence[str] = ()) -> None:
        self._lender = lender
        self._call_timeout_seconds = call_timeout_seconds
        self._otherwise = otherwise

    async def OnPreTrial(self, request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        """Let old hooks change parameters.

        Raises:
            FailedPreconditionError: there is no old hook, or a server answers with an error.
            RemoteProtocolError: its answer makes no sense.
            UnavailableError: the server cannot be reached, or does not answer in time.
        """
        params = request.params
        for endpoint in old_servers_of(call, self._otherwise):
            params = await self._ask(endpoint, params, call)
        return PreTrialParams(params=params)

    async def _ask(self, endpoint: LegacyEndpoint, params: TrialParams, call: ServerCall) -> TrialParams:
        context = pb.TrialContext(
            params=old_params(params),
            trial_id=next(iter(call.metadata.texts(TRIAL_ID)), ""),
            user_id=next(iter(call.metadata.texts(USER_ID)), ""),
        )
        async with self._lender.channel(endpoint) as channel:
            server = OldServer(channel, str(endpoint), HOOKS, self._call_timeout_seconds)
            reply = await server.call(CallOut("PreTrial", context))
        try:
            return changed_params(params, reply.params)
        except InvalidArgumentError as error:
            raise RemoteProtocolError(f"{endpoint}: PreTrial: {error}") from error


def old_servers_of(call: ServerCall, otherwise: Sequence[str]) -> list[LegacyEndpoint]:
    """Return the old server that a call names, or else these.

    Raises:
        FailedPreconditionError: there are none, or one is not an old server.
    """
    texts = call.metadata.texts(OLD_SERVER)[:1] or otherwise
    if not texts:
        raise FailedPreconditionError("pre_trial_hooks: expected an old hook in the profile, there is none")
    found = []
    for text in texts:
        endpoint = parse_endpoint(text)
        if not isinstance(endpoint, LegacyEndpoint):
            raise FailedPreconditionError(f"pre_trial_hooks: expected legacy://host:port, got {text!r}")
        found.append(endpoint)
    return found
