"""Old servers of pre-trial hooks, as hooks of today."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from trio_cogment.about import About
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.api.legacy import hooks_pb2 as pb
from trio_cogment.endpoints import LegacyEndpoint, parse_endpoint
from trio_cogment.errors import FailedPreconditionError, InvalidArgumentError, RemoteProtocolError
from trio_cogment.gateways.legacy.agent_part import CallOut
from trio_cogment.gateways.legacy.old_params import changed_params, old_params
from trio_cogment.gateways.legacy.old_server import HOOKS, OldServer
from trio_cogment.rpc import CallOpener, ServerCall
from trio_cogment.services import TRIAL_ID, USER_ID

#: Metadata of calls within this process: the old server that is meant.
OLD_SERVER = "trio-cogment-legacy-server"


class Lender(Protocol):
    """Lends channels to old servers."""

    def channel(self, endpoint: LegacyEndpoint) -> AbstractAsyncContextManager[CallOpener]:
        """Lend the channel to a server for the time of a block."""


class HookService(About):
    """`TrialHooksSP`, in front of the old servers that calls name.

    Args:
        lender: lends channels to them.
        call_timeout_seconds: how long an answer may take; 0: as long as it takes.
    """

    def __init__(self, lender: Lender, call_timeout_seconds: float) -> None:
        self._lender = lender
        self._call_timeout_seconds = call_timeout_seconds

    async def OnPreTrial(self, request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        """Let an old hook change parameters.

        Raises:
            FailedPreconditionError: the server answers with an error.
            RemoteProtocolError: its answer makes no sense.
            UnavailableError: the server cannot be reached, or does not answer in time.
        """
        endpoint = old_server_of(call)
        context = pb.TrialContext(
            params=old_params(request.params),
            trial_id=next(iter(call.metadata.texts(TRIAL_ID)), ""),
            user_id=next(iter(call.metadata.texts(USER_ID)), ""),
        )
        async with self._lender.channel(endpoint) as channel:
            server = OldServer(channel, str(endpoint), HOOKS, self._call_timeout_seconds)
            reply = await server.call(CallOut("PreTrial", context))
        try:
            return PreTrialParams(params=changed_params(request.params, reply.params))
        except InvalidArgumentError as error:
            raise RemoteProtocolError(f"{endpoint}: PreTrial: {error}") from error


def old_server_of(call: ServerCall) -> LegacyEndpoint:
    """Return the old server that a call names.

    Raises:
        FailedPreconditionError: it names none.
    """
    found = call.metadata.texts(OLD_SERVER)
    endpoint = parse_endpoint(found[0]) if found else None
    if not isinstance(endpoint, LegacyEndpoint):
        raise FailedPreconditionError(f"metadata {OLD_SERVER}: expected legacy://host:port")
    return endpoint
