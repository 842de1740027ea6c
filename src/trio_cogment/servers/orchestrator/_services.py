"""The services in front of an orchestrator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import unquote

import trio
from purerpc import Service
from typing_extensions import override

from trio_cogment.access import PLAYERS, Quotas, Role, Scope, reach_of
from trio_cogment.api.common_pb2 import (
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    CommunicationState,
    TrialState,
)
from trio_cogment.api.orchestrator_pb2 import (
    TerminateTrialReply,
    TerminateTrialRequest,
    TrialInfoReply,
    TrialInfoRequest,
    TrialListRequest,
    TrialStartReply,
    TrialStartRequest,
)
from trio_cogment.base.about import About
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import (
    CogmentError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RemoteProtocolError,
    ResourceExhaustedError,
    RpcError,
    StatusCode,
)
from trio_cogment.base.log_context import bind_trial
from trio_cogment.base.services import (
    SERVICES,
    TRIAL_ID,
    TRIAL_OWNER,
    TRIAL_QUOTAS,
    TRIAL_RESUMES,
    TRIAL_RUN,
    ServiceKind,
)
from trio_cogment.base.taking_up import RESUME_OWNER, refuse_reserved, without_reserved
from trio_cogment.budget.quotas import Ledger
from trio_cogment.rpc import IN_PROCESS, ServedAtOnce, ServerCall, bind
from trio_cogment.servers.orchestrator._orchestrator import Orchestrator
from trio_cogment.servers.orchestrator._remote_sink import RETRIEVE_SAMPLES
from trio_cogment.servers.orchestrator._trial import Trial

# Room for replies that describe trials: of each one, and of all together that one peer has not been sent yet.

#: So much of a reply is free: who asks for a little is not refused because somebody at its address asks for a lot.
FREE_BYTES = 16 * 1024


def replies_ledger() -> Ledger:
    """Return what all `ReplyRoom` of a service share."""
    return Ledger("bytes (max_peer_replies_bytes) for replies that are being sent")


class ReplyRoom:
    """The room of one reply while it is built and sent; used as a context manager.

    Args:
        ledger: of all replies.
        account: whose it is; empty: of this process, for which nothing is limited.
        config: the limits.
    """

    def __init__(self, ledger: Ledger, account: str, config: OrchestratorConfig) -> None:
        self._ledger = ledger
        self._account = account
        self._limit = config.max_info_reply_bytes
        self._limit_of_peer = config.max_peer_replies_bytes
        self._size = 0
        self._parts = 0
        self._counted = 0

    def take(self, size: int) -> None:
        """Count a part of the reply.

        Raises:
            ResourceExhaustedError: the reply becomes too large, but for its first part; or there is no room for it.
        """
        if not self._account:
            return
        self._size += size
        self._parts += 1
        if self._parts > 1 and self._size > self._limit:
            raise ResourceExhaustedError(
                f"the trials asked for make a reply of more than {self._limit} bytes (max_info_reply_bytes), the first "
                f"{self._parts - 1} of them fit; name fewer in the metadata trial-id, or ask for less"
            )
        wanted = max(0, self._size - FREE_BYTES)
        if wanted > self._counted:
            self._ledger.take(self._account, wanted - self._counted, self._limit_of_peer)
            self._counted = wanted

    def __enter__(self) -> ReplyRoom:
        return self

    def __exit__(self, *_: object) -> None:
        if self._counted:
            self._ledger.give_back(self._account, self._counted)


# `TrialLifecycleSP`: starting, ending, describing and watching trials.

_NO_QUOTAS = Quotas()
_STATES = frozenset(TrialState.values())
#: This many trials are described in one go.
_TRIALS_PER_CHECKPOINT = 50


def _may_see_tracebacks(call: ServerCall) -> bool:
    """Whether a caller may see where in its code a participant raised: only within the process."""
    return call.peer == IN_PROCESS


def _account(call: ServerCall) -> str:
    """Under whose limits a call counts; nobody's within the process."""
    return "" if call.peer == IN_PROCESS else call.identity.account


def _starter(call: ServerCall) -> tuple[str, Quotas, str]:
    """Return whose a trial is that is started, the quotas of that account, and the run whose worker starts it."""
    if call.peer != IN_PROCESS:
        return call.identity.account, call.identity.grant.quotas, call.identity.run_id
    if not call.metadata:
        return "", _NO_QUOTAS, ""
    said = call.metadata.texts(TRIAL_OWNER)  # by a gateway of this process
    quotas = call.metadata.texts(TRIAL_QUOTAS)
    run_id = call.metadata.texts(TRIAL_RUN)
    return (
        unquote(said[0]) if said else "",
        Quotas.parse(quotas[0] if quotas else ""),
        unquote(run_id[0]) if run_id else "",
    )


def _reading(call: ServerCall, account: str) -> Callable[[str], bool] | None:
    """Return what tells whether a caller may read the samples of an account's trials; None: of all."""
    if call.peer == IN_PROCESS:  # a gateway of this process has said for whom it asks
        return (lambda owner: owner == account) if account else None
    return partial(call.identity.reaches, RETRIEVE_SAMPLES.path)


class LifecycleService(About):
    """The service, in front of an orchestrator."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._replies = replies_ledger()

    @override
    def statuses(self) -> dict[str, Callable[[], str]]:
        return super().statuses() | {"nb_trials": lambda: str(self._orchestrator.running_trials)}

    def _is_of(self, owner: str, trial_id: str) -> bool:
        trial = self._orchestrator.trials.get(trial_id)
        return trial is not None and trial.owner == owner

    async def StartTrial(self, request: TrialStartRequest, call: ServerCall) -> TrialStartReply:
        """Start a trial; the reply comes when it is PENDING."""
        given = request.WhichOneof("start_data")
        account, quotas, run_id = _starter(call)
        reach = reach_of(call.identity, call.peer)
        params = request.params if given == "params" else None
        taken_up = None
        if request.HasField("take_up"):
            if given == "config":
                raise InvalidArgumentError("config: expected none with take_up, or else params")
            stored = request.take_up
            datalog = params.datalog.endpoint if params is not None and params.datalog.endpoint else None
            theirs, past = await self._orchestrator.read_past(
                stored.trial_id,
                stored.tick_id,
                datalog=datalog,
                account=account,
                quotas=quotas,
                reach=reach,
                may_read=_reading(call, account),
            )
            taken_up = past.message()
            params = without_reserved(theirs if params is None else params)
        elif params is not None:
            # An experiment starts its trials in this process.
            refuse_reserved(params.properties, RESUME_OWNER if call.peer == IN_PROCESS else "")
        trial_id = await self._orchestrator.start_trial(
            trial_id=request.trial_id_requested,
            user_id=request.user_id,
            params=params,
            trial_config=request.config if given == "config" else None,
            account=account,
            quotas=quotas,
            run_id=run_id,
            reach=reach,
            taken_up=taken_up,
        )
        return TrialStartReply(trial_id=trial_id)

    async def TerminateTrial(self, request: TerminateTrialRequest, call: ServerCall) -> TerminateTrialReply:
        """End trials, softly or hard; unknown and ended ones are passed over."""
        trial_ids = call.metadata.texts(TRIAL_ID)
        if not trial_ids:
            raise InvalidArgumentError(f"metadata {TRIAL_ID}: expected at least one trial id")
        trials = self._orchestrator.known(trial_ids)
        for trial in trials:  # all of them first: a request that is refused has changed nothing
            call.identity.check_reaches(call.method.path, trial.owner, f"trial {trial.trial_id!r}")
        for trial in trials:
            if request.hard_termination:
                trial.hard_end("terminated by an external request")
            else:
                trial.soft_end()
        return TerminateTrialReply()

    async def GetTrialInfo(self, request: TrialInfoRequest, call: ServerCall) -> None:
        """Describe the trials asked for, or all, of those that the caller reaches."""
        trial_ids = call.metadata.texts(TRIAL_ID)
        trials = self._orchestrator.known(trial_ids) if trial_ids else list(self._orchestrator.trials)
        reaches, path = call.identity.reaches, call.method.path
        trials = [trial for trial in trials if reaches(path, trial.owner)]
        describe = partial(
            Trial.info,
            latest_observation=request.get_latest_observation,
            actors=request.get_actor_list,
            tracebacks=_may_see_tracebacks(call),
        )
        with ReplyRoom(self._replies, _account(call), self._orchestrator.config) as room:
            reply = TrialInfoReply()
            for number, trial in enumerate(trials):
                if number % _TRIALS_PER_CHECKPOINT == _TRIALS_PER_CHECKPOINT - 1:
                    await trio.lowlevel.checkpoint()
                info = describe(trial)
                room.take(info.ByteSize())
                reply.trial.append(info)
                del info
            await call.send(reply)

    async def WatchTrials(self, request: TrialListRequest, call: ServerCall) -> None:
        """Send what there is, then every change, until the watcher leaves or the orchestrator stops."""
        unknown = [state for state in request.filter if state not in _STATES]
        if unknown:
            raise InvalidArgumentError(f"filter: {unknown[0]} is not a trial state")
        orchestrator = self._orchestrator
        orchestrator.watchers.check_named(len(request.trial_ids))
        trials = orchestrator.known(dict.fromkeys(request.trial_ids)) if request.trial_ids else orchestrator.trials
        present = ((trial.trial_id, trial.state, trial.info) for trial in trials)
        owner = None if call.identity.scope(call.method.path) is Scope.ALL else call.identity.account
        with (
            orchestrator.serving_call(),
            orchestrator.watchers.subscribe(
                request.filter,
                request.full_info,
                present,
                trial_ids=request.trial_ids,
                sees=None if owner is None else partial(self._is_of, owner),
                when_settled=request.when_stored,
                tracebacks=_may_see_tracebacks(call),
                account=_account(call),
            ) as watch,
        ):
            with watch.patience:
                await call.send_initial_metadata()
                async for entry in watch:
                    await call.send(entry)
            raise watch.error  # iterating never ends without an error, so it has been cut off


# `ClientActorSP`: the door for actors that come to the orchestrator.

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
        if self._orchestrator.resumes:
            call.set_initial_metadata(((TRIAL_RESUMES, "1"),))
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


def orchestrator_services(orchestrator: Orchestrator) -> list[Service]:
    """Return what of an orchestrator is to be served: `TrialLifecycleSP` and `ClientActorSP`, in this order."""
    return [
        bind(SERVICES[ServiceKind.LIFECYCLE].descriptor(), LifecycleService(orchestrator)),
        bind(SERVICES[ServiceKind.CLIENT_ACTOR].descriptor(), ClientActorService(orchestrator)),
    ]
