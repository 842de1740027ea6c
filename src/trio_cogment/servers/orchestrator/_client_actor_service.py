"""`ClientActorSP`: the door for actors that come to the orchestrator."""

from __future__ import annotations

import trio

from trio_cogment.access import PLAYERS, Role
from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput, CommunicationState
from trio_cogment.base.about import About
from trio_cogment.base.errors import (
    CogmentError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RemoteProtocolError,
    RpcError,
    StatusCode,
)
from trio_cogment.base.log_context import bind_trial
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import ServedAtOnce, ServerCall
from trio_cogment.servers.orchestrator._orchestrator import Orchestrator

#: How long a refusal waits for the caller's first message: gRPC's asyncio client, and the published SDK with it, takes
#: a status that overtakes its message for an internal error.
REFUSAL_PATIENCE_SECONDS = 1.0

#: States of a participant that believes to have joined.
_MEANT_FOR_A_TRIAL = (CommunicationState.LAST, CommunicationState.LAST_ACK)


class ClientActorService(About):
    """The service, in front of an orchestrator."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    async def RunTrial(self, call: ServerCall) -> None:
        """Let a client actor take part in a trial; the call lasts as long as it does."""
        trial_ids = call.metadata.texts(TRIAL_ID)
        if not trial_ids:
            raise InvalidArgumentError(f"metadata {TRIAL_ID}: expected the id of the trial to join")
        trial = self._orchestrator.trials.get(trial_ids[0])
        if not _may_know(call, trial_ids[0], "" if trial is None else trial.owner):
            # Nor does it learn whether there is such a trial.
            raise PermissionDeniedError(f"metadata {TRIAL_ID}: trial {trial_ids[0]!r}: not for this caller")
        if trial is None:
            with trio.move_on_after(REFUSAL_PATIENCE_SECONDS):
                await call.receive()
            raise NotFoundError(f"metadata {TRIAL_ID}: there is no trial {trial_ids[0]!r}")
        bind_trial(trial.trial_id)
        limit = self._orchestrator.config.client_join_timeout_seconds
        with self._orchestrator.serving_call():
            selection = None
            with trio.move_on_after(limit) as waiting:
                selection = await _selection(call)
            if waiting.cancelled_caught:
                raise RpcError(StatusCode.DEADLINE_EXCEEDED, f"no init_output in {limit:g} s")
            if selection is None:
                return
            stream = trial.join(call, actor_name=selection.actor_name, actor_class=selection.actor_class)
            await stream.serve(farewell_seconds=self._orchestrator.config.farewell_seconds)

    def RunTrial_at_once(self, call: ServedAtOnce, first: ActorRunTrialOutput) -> bool:
        """Let a client actor of this process take part without a task; what is to be refused is left to `RunTrial`."""
        trial_id = next(iter(call.metadata.texts(TRIAL_ID)), "")
        trial = self._orchestrator.trials.get(trial_id)
        if trial is None or not _may_know(call, trial_id, trial.owner) or not _selects(first):
            return False
        selection = first.init_output
        try:
            stream = trial.join(call, actor_name=selection.actor_name, actor_class=selection.actor_class)
        except CogmentError:
            return False
        stream.serve_without_task(call)
        return True


def _may_know(call: ServerCall, trial_id: str, owner: str) -> bool:
    """Tell whether a caller may know of a trial: which of its actors are for it is seen when it says whom it plays."""
    identity = call.identity
    roles = identity.grant.roles
    if identity.admin or (Role.OPERATOR in roles and owner == identity.account):
        return True
    return not roles.isdisjoint(PLAYERS) and identity.grant.names_trial(trial_id)


def _selects(message: ActorRunTrialOutput) -> bool:
    return message.state == CommunicationState.NORMAL and message.WhichOneof("data") == "init_output"


async def _selection(call: ServerCall) -> ActorInitialOutput | None:
    """Wait for the first message that means something; None when the actor leaves instead."""
    async for message in call:
        if _selects(message):
            selection: ActorInitialOutput = message.init_output
            return selection
        data = message.WhichOneof("data")
        says_nothing = data is None or data == "details"
        if message.state == CommunicationState.HEARTBEAT and says_nothing:
            await call.send(ActorRunTrialInput(state=CommunicationState.HEARTBEAT))
        elif message.state == CommunicationState.END:
            return None
        elif not says_nothing or message.state in _MEANT_FOR_A_TRIAL:
            state = CommunicationState.Name(message.state) if message.state in CommunicationState.values() else "?"
            raise RemoteProtocolError(f"expected NORMAL with init_output first, got {state} with {data or 'no data'}")
    return None
