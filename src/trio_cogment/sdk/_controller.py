"""Control of trials: start, watch, describe and terminate them; and join them as a client actor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from trio_cogment.api.common_pb2 import (
    ActorInitialOutput,
    ActorRunTrialOutput,
    SerializedMessage,
    TrialParams,
    TrialState,
    VersionRequest,
)
from trio_cogment.api.orchestrator_pb2 import (
    TerminateTrialRequest,
    TrialInfo,
    TrialInfoRequest,
    TrialListEntry,
    TrialListRequest,
    TrialStartReply,
    TrialStartRequest,
)
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError, StatusCode, TrialFailedError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.base.log_context import trial_bound
from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.base.services import SERVICES, TRIAL_ID, TRIAL_RESUMES, ServiceKind
from trio_cogment.rpc import CallOpener, ClientCall, Metadata, RpcError, methods_of
from trio_cogment.sdk._actor import ActorImplementation, run_actor
from trio_cogment.sdk._datastore import DatastoreClient
from trio_cogment.sdk._environment import ActorInfo
from trio_cogment.sdk._failures import cause_of, say_goodbye, words_for
from trio_cogment.sdk._finding import FoundTrial, Informants, TrialFinder
from trio_cogment.sdk._session import WallClock
from trio_cogment.sdk._stream import NORMAL, StreamLostError, receive_init
from trio_cogment.sdk.spec import Payload, Spec, encode

_LIFECYCLE = methods_of(SERVICES[ServiceKind.LIFECYCLE].descriptor())
_CLIENT_ACTOR = methods_of(SERVICES[ServiceKind.CLIENT_ACTOR].descriptor())


class Controller:
    """A client of an orchestrator, in process or over the network.

    Args:
        opener: a channel to the orchestrator.
        spec: declares the type of the trial config.
        user_id: the user id of the trials that are started.
        find: finds trials of other orchestrators, for `find_trial`; None: nothing does.

    Every method raises `RpcError` when the orchestrator refuses or cannot be reached.
    """

    def __init__(
        self,
        opener: CallOpener,
        *,
        spec: Spec | None = None,
        user_id: str = "trio-cogment",
        find: Callable[[str], Awaitable[FoundTrial]] | None = None,
    ) -> None:
        self._find = find
        self._opener = opener
        self._spec = spec or Spec()
        self._user_id = user_id

    async def start_trial(
        self, params: TrialParams | None = None, *, config: Payload | None = None, trial_id: str = ""
    ) -> str:
        """Start a trial; return its id when it is PENDING, or an empty text when the requested id is taken.

        Args:
            params: the parameters of the trial; by default the orchestrator's, after its pre-trial hooks.
            config: the trial config, for the hooks; not together with `params`.
            trial_id: the id to use; by default the orchestrator makes one.

        After `Cancelled` the trial may have been started nevertheless; give a `trial_id` to be able to find out.
        """
        if params is not None and config is not None:
            raise InvalidArgumentError("config: params carry their own trial_config")
        request = TrialStartRequest(user_id=self._user_id, trial_id_requested=trial_id, params=params)
        if config is not None:
            content = encode(config, self._spec.trial_config, "config")
            request.config.CopyFrom(SerializedMessage(content=content))
        reply = await self._opener.unary(_LIFECYCLE["StartTrial"], request)
        started: str = reply.trial_id
        return started

    async def start_branch(
        self, branch_of: str, tick: int, *, params: TrialParams | None = None, trial_id: str = ""
    ) -> str:
        """Start a trial that goes on with a stored one at a tick; return its id as `start_trial` does.

        Its first tick is that one, and its properties say of which trial it is a branch.

        Args:
            branch_of: the id of the stored trial.
            tick: of the stored trial.
            params: the parameters of the new one, whose environment has to be the same; by default those that are
                stored.
            trial_id: the id to use; by default the orchestrator makes one.

        Raises:
            RpcError: there is no such trial or tick, or it cannot be read; see `start_trial`, too. If the environment
                cannot be taken up, the trial ends, and says so.
        """
        request = TrialStartRequest(user_id=self._user_id, trial_id_requested=trial_id, params=params)
        request.take_up.trial_id, request.take_up.tick_id = branch_of, tick
        reply = await self._opener.unary(_LIFECYCLE["StartTrial"], request)
        started: str = reply.trial_id
        return started

    def start_trial_nowait(
        self, params: TrialParams, on_started: Callable[[str, RpcError | None], None], *, trial_id: str = ""
    ) -> ClientCall | None:
        """Start a trial without waiting, where that is possible; see `CallOpener.unary_nowait`.

        Args:
            params: the parameters of the trial.
            on_started: gets what `start_trial` returns, or the error. It must not raise.
            trial_id: the id to use; by default the orchestrator makes one.

        Returns:
            The call, whose cancellation breaks the start off; None: nothing has been asked.
        """
        request = TrialStartRequest(user_id=self._user_id, trial_id_requested=trial_id, params=params)

        def on_reply(reply: TrialStartReply | None, error: RpcError | None) -> None:
            on_started("" if reply is None else reply.trial_id, error)

        return self._opener.unary_nowait(_LIFECYCLE["StartTrial"], request, on_reply)

    async def terminate_trial(self, trial_ids: Iterable[str] | str, *, hard: bool = False) -> None:
        """End trials softly, or hard and at once; unknown and ended ones are ignored."""
        ids = [trial_ids] if isinstance(trial_ids, str) else list(trial_ids)
        metadata = [(TRIAL_ID, trial_id) for trial_id in ids]
        request = TerminateTrialRequest(hard_termination=hard)
        await self._opener.unary(_LIFECYCLE["TerminateTrial"], request, metadata=metadata)

    async def trial_infos(
        self, trial_ids: Iterable[str] = (), *, latest_observation: bool = False, actors: bool = False
    ) -> Sequence[TrialInfo]:
        """Return the descriptions of these trials; by default of all that the orchestrator remembers."""
        metadata = [(TRIAL_ID, trial_id) for trial_id in trial_ids]
        request = TrialInfoRequest(get_latest_observation=latest_observation, get_actor_list=actors)
        reply = await self._opener.unary(_LIFECYCLE["GetTrialInfo"], request, metadata=metadata)
        infos: Sequence[TrialInfo] = reply.trial
        return infos

    async def find_trial(self, trial_id: str) -> FoundTrial:
        """Return where a trial is, whichever orchestrator runs it; see `Client.find_trial`.

        A controller that was not made by a `Client` asks its own server only: the datastore there, if there is one, and
        the orchestrator, whose endpoint is then empty.

        Raises:
            NotFoundError: nobody knows such a trial.
            UnavailableError: nobody who has answered knows it, and somebody has not answered.
        """
        if self._find is not None:
            return await self._find(trial_id)

        async def own() -> Informants:
            return Informants(DatastoreClient(self._opener), {"": self._opener})

        return await TrialFinder(own).find(trial_id)

    async def actors(self, trial_id: str) -> list[ActorInfo]:
        """Return the actors of a trial, in the order of its parameters.

        Raises:
            NotFoundError: the orchestrator does not know the trial.
        """
        infos = await self.trial_infos([trial_id], actors=True)
        if not infos:
            raise NotFoundError(f"trial {trial_id!r}: the orchestrator does not know it; it forgets ended trials")
        found = enumerate(infos[0].actors_in_trial)
        return [ActorInfo(index, actor.name, actor.actor_class) for index, actor in found]

    async def versions(self) -> dict[str, str]:
        """Return the versions of the orchestrator and of what it is made of, by name."""
        reply = await self._opener.unary(_LIFECYCLE["Version"], VersionRequest())
        return {entry.name: entry.version for entry in reply.versions}

    def watch_trials(
        self, states: Iterable[int] = (), *, full_info: bool = False
    ) -> AbstractAsyncContextManager[ClientCall]:
        """Watch the trials and every change of state: `async with controller.watch_trials() as watch:`.

        When the block is entered, the watch is established, and no later change is missed. `async for entry in watch`
        yields `TrialListEntry` messages.
        """
        return self._watch(TrialListRequest(filter=list(states), full_info=full_info))  # type: ignore[arg-type]  # enum values

    @asynccontextmanager
    async def _watch(self, request: TrialListRequest) -> AsyncIterator[ClientCall]:
        async with self._opener.call(_LIFECYCLE["WatchTrials"]) as call:
            await call.send(request)
            await call.done_sending()
            await call.wait_initial_metadata()
            yield call

    async def wait_trial(self, trial_id: str, *, check: bool = True) -> TrialOutcome:
        """Wait until a trial has ended and its samples are stored; return how it ended.

        With a data log, the end is told when the data log has confirmed the last sample (a datastore: it is durable),
        or when the orchestrator has given it up: then `outcome.samples_lost` says how many samples are missing. That
        takes `OrchestratorConfig.datalog_flush_seconds` after the last confirmation at most. An orchestrator that is
        not of this package tells neither the cause nor when the samples are stored: the cause is UNKNOWN.

        Args:
            trial_id: the trial to wait for.
            check: raise if the trial has failed, or some of its samples were not stored.

        Raises:
            TrialFailedError: it has failed, or not everything was stored; the error has the outcome.
            NotFoundError: the orchestrator does not know such a trial. Ended trials are forgotten after a while.
        """
        wanted = TrialListRequest(filter=[TrialState.ENDED], full_info=True, trial_ids=[trial_id], when_stored=True)
        async with self._watch(wanted) as watch:
            if not await self.trial_infos([trial_id]):
                raise NotFoundError(f"trial {trial_id!r}: the orchestrator does not know it; is it long over?")
            entry: TrialListEntry
            async for entry in watch:
                if entry.info.trial_id == trial_id:
                    outcome = _outcome_of(entry.info)
                    if check and (outcome.failed or not outcome.stored):
                        raise TrialFailedError(outcome)
                    return outcome
        raise UnavailableError(f"trial {trial_id!r}: the orchestrator ended the watch before the trial ended")

    async def wait_trial_state(self, trial_id: str, state: int = TrialState.ENDED) -> TrialInfo | None:
        """Wait until a trial reaches a state or a later one; return its description, or None for an unknown trial.

        ENDED is told as soon as the participants are told, while samples may be on their way: `wait_trial` waits for
        those, too.
        """
        async with self.watch_trials() as watch:
            if not await self.trial_infos([trial_id]):
                return None
            entry: TrialListEntry
            async for entry in watch:
                if entry.trial_id == trial_id and entry.state >= state:
                    break
        infos = await self.trial_infos([trial_id])
        return infos[0] if infos else None


def _outcome_of(info: TrialInfo) -> TrialOutcome:
    if info.HasField("end"):
        return TrialOutcome.of(info.trial_id, info.end)
    return TrialOutcome(info.trial_id, EndCause.UNKNOWN, ticks=info.tick_id + 1)


async def join_trial(
    opener: CallOpener,
    trial_id: str,
    implementation: ActorImplementation,
    *,
    actor_name: str = "",
    actor_class: str = "",
    spec: Spec | None = None,
    host: Host | None = None,
) -> None:
    """Take part in a trial as a client actor, by name or by class; return when it is over.

    Where the orchestrator goes on with trials (`serve --resume`), the actor comes back by itself when its connection is
    lost or the orchestrator stops: the implementation is called again, with a session that begins at the tick with
    which the trial goes on. It tries for `REJOIN_SECONDS`.

    Raises:
        RpcError: the trial does not exist or has no such actor that is free, or the connection was lost.
    """
    if bool(actor_name) == bool(actor_class):
        raise InvalidArgumentError("expected either actor_name or actor_class")
    part = _Part(opener, trial_id, implementation, spec or Spec(), (host or Host()).wall_clock)
    wanted = ActorInitialOutput(actor_name=actor_name) if actor_name else ActorInitialOutput(actor_class=actor_class)
    await part.play(wanted)
    while part.may_go_on:
        lost, deadline = part.lost, trio.current_time() + REJOIN_SECONDS
        while True:
            await trio.sleep(_REJOIN_PAUSE_SECONDS)
            try:
                await part.play(ActorInitialOutput(actor_name=part.name))
                break
            except RpcError as error:
                if error.code in _NOT_YET and trio.current_time() < deadline:
                    continue
                if lost is None:
                    return  # it was told that the trial has ended, which holds
                raise lost from error
    if part.lost is not None:
        raise part.lost


#: How long a client actor whose trial may go on tries to come back.
REJOIN_SECONDS = 60.0
_REJOIN_PAUSE_SECONDS = 0.25
#: What an orchestrator says that is not there, or has not taken up the trial again.
_NOT_YET = frozenset({StatusCode.UNAVAILABLE, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION})


class _Part:
    """The part of a client actor in a trial, over one call after the other.

    Attributes:
        name: of the actor, once it has joined.
        lost: why its last call broke off; None: it has ended.
        may_go_on: the trial may go on, and the actor come back.
    """

    def __init__(
        self, opener: CallOpener, trial_id: str, implementation: ActorImplementation, spec: Spec, clock: WallClock
    ) -> None:
        self._opener = opener
        self._trial_id = trial_id
        self._implementation = implementation
        self._spec = spec
        self._clock = clock
        self.name = ""
        self.lost: Exception | None = None
        self.may_go_on = False

    async def play(self, wanted: ActorInitialOutput) -> None:
        """Join, and take part until the call is over.

        Raises:
            RpcError: it could not join.
            Exception: of the implementation.
        """
        async with self._opener.call(_CLIENT_ACTOR["RunTrial"], metadata=((TRIAL_ID, self._trial_id),)) as call:
            await call.send(ActorRunTrialOutput(state=NORMAL, init_output=wanted))
            init = await receive_init(call, ActorRunTrialOutput)
            if init is None:
                return
            resumes = bool((call.initial_metadata or Metadata()).texts(TRIAL_RESUMES))
            self.name, self.lost, self.may_go_on = init.actor_name, None, False
            try:
                with trial_bound(self._trial_id):
                    session = await run_actor(
                        call,
                        self._trial_id,
                        init,
                        self._implementation,
                        spec=self._spec,
                        wall_clock=self._clock,
                        joined=True,
                    )
            except Exception as error:
                cause = cause_of(error)
                if isinstance(cause, StreamLostError):
                    self.lost, self.may_go_on = error, resumes
                    return
                await say_goodbye(call, words_for(error))
                raise
            if not session.is_over:
                await say_goodbye(call)
            elif session.outcome is not None and session.outcome.cause is EndCause.SERVER_STOPPED:
                self.may_go_on = resumes
