"""`TrialLifecycleSP`: starting, ending, describing and watching trials."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import unquote

import trio

from trio_cogment.access import Quotas, Scope, reach_of
from trio_cogment.api.common_pb2 import TrialState
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
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.services import TRIAL_ID, TRIAL_OWNER, TRIAL_QUOTAS, TRIAL_RUN
from trio_cogment.rpc import IN_PROCESS, ServerCall
from trio_cogment.servers.orchestrator._orchestrator import Orchestrator
from trio_cogment.servers.orchestrator._reply_room import ReplyRoom, replies_ledger
from trio_cogment.servers.orchestrator._trial import Trial

_NO_QUOTAS = Quotas()
_STATES = frozenset(TrialState.values())
#: So many trials are described in one go.
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


class LifecycleService(About):
    """The service, in front of an orchestrator."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._replies = replies_ledger()

    def statuses(self) -> dict[str, Callable[[], str]]:
        """See `About.statuses`."""
        return super().statuses() | {"nb_trials": lambda: str(self._orchestrator.running_trials)}

    def _is_of(self, owner: str, trial_id: str) -> bool:
        trial = self._orchestrator.trials.get(trial_id)
        return trial is not None and trial.owner == owner

    async def StartTrial(self, request: TrialStartRequest, call: ServerCall) -> TrialStartReply:
        """Start a trial; the reply comes when it is PENDING."""
        given = request.WhichOneof("start_data")
        account, quotas, run_id = _starter(call)
        trial_id = await self._orchestrator.start_trial(
            trial_id=request.trial_id_requested,
            user_id=request.user_id,
            params=request.params if given == "params" else None,
            trial_config=request.config if given == "config" else None,
            account=account,
            quotas=quotas,
            run_id=run_id,
            reach=reach_of(call.identity, call.peer),
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
            raise InvalidArgumentError(f"filter: {unknown[0]} is no trial state")
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
