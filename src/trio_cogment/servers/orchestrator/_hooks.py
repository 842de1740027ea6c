"""Pre-trial hooks: each gets what the one before made, and its reply replaces the parameters whole."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.endpoints import parse_endpoint
from trio_cogment.base.errors import RpcError, UnavailableError
from trio_cogment.base.services import SERVICES, TRIAL_ID, USER_ID, ServiceKind
from trio_cogment.rpc import methods_of
from trio_cogment.servers.orchestrator._connections import Connections

ON_PRE_TRIAL = methods_of(SERVICES[ServiceKind.PRE_TRIAL_HOOK].descriptor())["OnPreTrial"]


async def run_hooks(
    connections: Connections,
    endpoints: Sequence[str],
    params: TrialParams,
    *,
    trial_id: str,
    user_id: str,
    timeout_seconds: float,
) -> TrialParams:
    """Send the parameters through every hook, in order, and return the result.

    Each is looked for again, so that a hook or a directory that was away once is not missed indefinitely.

    Raises:
        EndpointError: a hook's endpoint is none.
        FailedPreconditionError: nobody serves a hook.
        UnavailableError: a hook cannot be reached, failed, or took too long, or the directory did; the text names it.
    """
    metadata = ((TRIAL_ID, trial_id), (USER_ID, user_id), *connections.authorization(trial_id))
    for number, endpoint in enumerate(endpoints):
        field_name = f"pre_trial_hooks[{number}]"
        # As it was read, not as it was written: a token in it is the operator's, and whoever starts a trial sees this.
        name = f"pre-trial hook {number + 1} ({parse_endpoint(endpoint, field_name=field_name)})"
        target = await connections.resolve(endpoint, ServiceKind.PRE_TRIAL_HOOK, field_name)
        assert target is not None
        try:
            with trio.fail_after(timeout_seconds):
                async with connections.open(target) as opener:
                    reply = await opener.unary(ON_PRE_TRIAL, PreTrialParams(params=params), metadata=metadata)
        except trio.TooSlowError:
            raise UnavailableError(f"{name}: no reply in {timeout_seconds:g} s") from None
        except RpcError as error:
            raise UnavailableError(f"{name}: {error}") from error
        params = reply.params
    return params
