"""The orchestrator: trials, each in a nursery of its own, and what is asked of them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

import trio
from trio_util import AsyncValue

from trio_cogment.access import AccessControl, Quotas
from trio_cogment.api.common_pb2 import SerializedMessage, TakenUp, TrialParams, TrialState
from trio_cogment.base.config import OrchestratorConfig, OutgoingConfig, RpcConfig
from trio_cogment.base.endpoints import parse_endpoint
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.metrics import OrchestratorMetrics
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.recount import Count
from trio_cogment.base.services import ServiceKind
from trio_cogment.base.taking_up import BRANCH_TICK, BRANCH_TRIAL, RESUME_QUOTAS, RESUME_REACH, RESUME_RUN, Past
from trio_cogment.base.tracing import tracing_of_run
from trio_cogment.rpc import OwnNursery
from trio_cogment.servers.discovery import DirectoryClient
from trio_cogment.servers.orchestrator._alarms import Alarms
from trio_cogment.servers.orchestrator._attempts import Attempts
from trio_cogment.servers.orchestrator._connections import Connections, FindLegacy, LocalServices, Target
from trio_cogment.servers.orchestrator._fair_turns import FairTurns, Turn
from trio_cogment.servers.orchestrator._info import check_describable, error_of_trial
from trio_cogment.servers.orchestrator._metering import MakeMachine, gauges, machine_for
from trio_cogment.servers.orchestrator._remote_sink import sink_of
from trio_cogment.servers.orchestrator._room import Holding, Room, check_counts, estimated_bytes
from trio_cogment.servers.orchestrator._starting import (
    Given,
    datalog_of,
    find_everybody,
    rules_of,
    run_hooks,
    same_endpoint,
)
from trio_cogment.servers.orchestrator._trial import Trial
from trio_cogment.servers.orchestrator._trial_registry import TrialRegistry
from trio_cogment.servers.orchestrator._trial_run import TrialRun
from trio_cogment.servers.orchestrator._watch import STOPPING, Watchers
from trio_cogment.trial import NOT_STARTED, Begin, validate_params, validate_trial_id, validate_user_id

if TYPE_CHECKING:
    from trio_cogment.base.tracing.spans import Tracing

_ENDED = TrialState.ENDED  # looking it up takes longer than comparing
#: So long a tick that has just been played may take to be stored, and so often that is looked at.
_STORED_SECONDS, _LOOK_SECONDS = 2.0, 0.02
#: A new id that is taken is drawn again, this many times.
_ID_DRAWS = 10


class Orchestrator:
    """Runs trials: `async with Orchestrator(...) as orchestrator`.

    Leaving the block cancels what still runs; `stop` before that says goodbye in an orderly way. Serve its
    `orchestrator_services` within the block.

    Args:
        config: limits and timeouts.
        rpc_config: for the channels to participants.
        default_params: what a trial gets whose starter gave no parameters.
        default_datalog: the data log of trials whose parameters have no `datalog`; empty: they have none. One with an
            empty endpoint says that a trial has none.
        pre_trial_hooks: endpoints, in the order of their calls.
        local: what is served in this process.
        directory: who is asked for what is not; it stays the caller's.
        client_tls: encrypts every connection to participants, hooks and data logs, and shows them a certificate if it
            has one.
        metrics: what measurements are handed to; without it nothing is measured.
        host: gives the wall clock for timestamps, ids for trials that are started without one, jitter, and the
            connections to participants elsewhere; by default the system.
        access: signs the tokens with which participants, hooks and data logs elsewhere are called, each for one trial;
            without it they are called without.
        outgoing: where it connects when a peer names an endpoint.

    Attributes:
        make_machine: makes the machines of the trials that start from now on, as ``make_machine(trial_id, rules=...)``:
            plain ones, or those that `metrics` measures. A `recording.TrialRecorder` has one that records.
        default_params: see above.
        datalog_of: returns the endpoint of the data log of trials with these parameters; empty: they have none.
        lost_samples: how many samples did not reach their data logs, of all trials so far.
        handed_over: how many trials were handed over, for others to go on with.
        resumes: its trials go on after its death, and client actors are told so.
        resumes_at: the endpoint of the datastore elsewhere in which the attempts of its trials are counted; empty:
            there is none.
        room: what the trials take of the server.

    Raises:
        EndpointError: a hook's endpoint does not follow the grammar.
    """

    def __init__(
        self,
        *,
        config: OrchestratorConfig | None = None,
        rpc_config: RpcConfig | None = None,
        default_params: TrialParams | None = None,
        default_datalog: str = "",
        pre_trial_hooks: Sequence[str] = (),
        local: LocalServices | None = None,
        directory: DirectoryClient | None = None,
        client_tls: ssl.SSLContext | None = None,
        metrics: OrchestratorMetrics | None = None,
        host: Host | None = None,
        access: AccessControl | None = None,
        outgoing: OutgoingConfig | None = None,
    ) -> None:
        for number, endpoint in enumerate(pre_trial_hooks):
            parse_endpoint(endpoint, field_name=f"pre_trial_hooks[{number}]")
        self.config = config or OrchestratorConfig()
        self._rpc_config = rpc_config or RpcConfig()
        self._host = host or Host()
        self._outgoing = outgoing
        self.default_params = TrialParams()
        if default_params is not None:
            self.default_params.CopyFrom(default_params)
        self.datalog_of = partial(datalog_of, default=default_datalog)
        self._hooks = tuple(pre_trial_hooks)
        self._local = local
        self._directory = directory
        self._client_tls = client_tls
        self._access = access
        self._metrics = metrics
        self.make_machine: MakeMachine = machine_for(metrics)
        self._rules = rules_of(self.config)
        self._rng = self._host.random("orchestrator")
        self.lost_samples = 0
        self.handed_over = 0
        self.resumes = False
        self.resumes_at = ""
        self.trials = TrialRegistry(self.config)
        self.room = Room(self.config)
        #: Of the work that each start is: one in each round of the scheduler, so that a crowd of them delays nobody.
        self._start_turns = FairTurns(1, 1)
        self._alarms = Alarms()
        if metrics is not None:
            self.trials.on_collected = metrics.collected
        self.watchers = Watchers(self.config)
        self._tasks = OwnNursery()
        self._tracing: Tracing | None = None
        self._stopping = False
        self._open_calls = AsyncValue(0)
        self._runs: dict[TrialRun, None] = {}  # in the order of their starts
        self._running = AsyncValue(0)
        if metrics is not None:
            metrics.attach(lambda: gauges(self.trials, self.lost_samples))

    async def __aenter__(self) -> Orchestrator:
        """Open the nursery of the trials."""
        self._tracing = tracing_of_run()
        self._nursery = await self._tasks.__aenter__()
        self._connections = Connections(
            self._nursery,
            self._local,
            self._rpc_config,
            directory=self._directory,
            client_tls=self._client_tls,
            host=self._host,
            access=self._access,
            outgoing=self._outgoing,
            turns=FairTurns(self.config.max_connecting, self.config.max_peer_connecting),
        )
        self._nursery.start_soon(self.trials.collect_by_age, name="collection of ended trials")
        self._nursery.start_soon(self._guard, name="guard of the trials")
        self._nursery.start_soon(self._alarms.run, name="alarms of the trials")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Cancel every trial: each posts its ENDs within its farewell."""
        self._stopping = True
        self._nursery.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, value, traceback)

    def call_old_servers(self, find: FindLegacy | None) -> None:
        """Set who answers for servers of the legacy API (`legacy://host:port`); None: nobody does.

        Args:
            find: returns what is called instead of such a server, for a kind of service, which speaks today's API.
        """
        self._connections.find_legacy = find

    def reached_at(self, endpoint: str) -> None:
        """Tell the data logs of trials that begin from now on where others reach this orchestrator, `grpc://host:port`.

        A datastore keeps it with the trial: so others find the trial, and nobody begins another one with its id.
        """
        self._connections.own_endpoint = endpoint

    @property
    def runs(self) -> list[TrialRun]:
        """The runs of the trials that still have tasks, farewells included, in the order of their starts."""
        return list(self._runs)

    @property
    def running_trials(self) -> int:
        """How many trials still have tasks, farewells included."""
        return int(self._running.value)

    async def hand_over(self) -> None:
        """Stop in the middle of every trial that another attempt can go on with, and release it when it is stored.

        It waits for that a bounded time; a trial that is not stored by then ends as with `stop`. Nothing starts any
        more.
        """
        self._stopping = True
        handed = [run for run in self._runs if run.can_be_handed_over]
        for run in handed:
            run.hand_over()
        with trio.move_on_after(self.config.datalog_flush_seconds):
            while any(run in self._runs for run in handed):
                await self._running.wait_transition()
        self.handed_over += sum(run not in self._runs for run in handed)

    async def stop(self) -> None:
        """End every trial with details, end every watch, and wait (a bounded time) until everybody has been told.

        A full data log has half of that time; then it is told how trials ended. After `Cancelled` the ENDs have been
        posted, and may or may not have left.
        """
        self._stopping = True
        for trial in self.trials:
            trial.hard_end(STOPPING, EndCause.SERVER_STOPPED)
        self.watchers.stop()
        with trio.move_on_after(self.config.farewell_seconds):
            with trio.move_on_after(self.config.farewell_seconds / 2):
                await self._running.wait_value(0)
            for run in self._runs:
                run.give_up_full_datalog()
            await self._running.wait_value(0)
            await self._open_calls.wait_value(0)

    @contextmanager
    def serving_call(self) -> Iterator[None]:
        """Count a long call that is being served (a watch, a client actor); `stop` waits for it."""
        self._open_calls.value += 1
        try:
            yield
        finally:
            self._open_calls.value -= 1

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count("calls that are served", self._open_calls.value, self._open_calls.value)
        yield Count("trials with tasks", self.running_trials, len(self._runs))

    # Starting

    async def start_trial(
        self,
        *,
        trial_id: str = "",
        user_id: str = "",
        params: TrialParams | None = None,
        trial_config: SerializedMessage | None = None,
        account: str = "",
        quotas: Quotas | None = None,
        run_id: str = "",
        reach: str | None = None,
        taken_up: TakenUp | None = None,
        attempt: int = 0,
    ) -> str:
        """Start a trial and return its id when it is PENDING; an empty text when the id asked for is taken.

        With `params` they are used as they are; without, the default ones with `trial_config`, through the hooks.
        A start that fails leaves nothing behind, and its id is free; so does one that is cancelled. The error names the
        trial nevertheless, as its records in the log do.

        Args:
            trial_id: its id; by default a new one.
            user_id: who starts it.
            params: see above.
            trial_config: see above.
            account: whose it is, and under whose limits it counts; empty: this process's, for which only the limits for
                all hold.
            quotas: what the account may have at a time; None: as much as any.
            run_id: of which run of a trainer the account is a worker, for this trial; empty: of none.
            reach: how far the endpoints in `params` may lead; see `trio_cogment.access.reach_of`.
            taken_up: the stored trial with which it goes on: what `read_past` returns, as a message. With the id of
                that one it is another attempt at it; with another id it is a branch, and its properties say so. `past`
                may be left out if the environment needs none.
            attempt: the number of the attempt, which has taken the trial over in the datastore of this process; 0: the
                next one, of a trial that begins.

        Raises:
            InvalidArgumentError: bad parameters; the text names the field.
            ResourceExhaustedError: it would be too large, or there are too many; the text names the limit.
            UnavailableError: a hook, the directory or the data log failed, or the orchestrator is stopping.
            FailedPreconditionError: nobody serves what an endpoint describes, or the trial was terminated while it was
                starting.
        """
        if self._stopping:
            raise UnavailableError(STOPPING)
        validate_user_id(user_id)
        if trial_id:
            validate_trial_id(trial_id)
        else:
            trial_id = self._unused_trial_id()
        if trial_id in self.trials:
            return ""
        holding = self.room.enter(account, quotas, run_id)
        trial = self.trials.reserve(trial_id, partial(self._new_trial, user_id, holding))
        started = False
        details = NOT_STARTED
        try:
            trial.feed(Begin())
            with nullcontext() if trial.trace is None else trial.trace.current():
                await self._start(trial, Given(params, trial_config, reach, taken_up, attempt))
            # A caller that went away since will never know of this trial.
            await trio.lowlevel.checkpoint_if_cancelled()
            started = True
        except CogmentError as error:
            details += f": {error}"
            raise error_of_trial(trial_id, error) from error
        finally:
            holding.started()
            if not started:
                trial.hard_end(details, EndCause.NOT_STARTED)
                self.trials.remove(trial)
                if not trial.equipped:  # else it has a run, whose end this is
                    trial.release()
        return trial_id

    async def read_past(
        self,
        trial_id: str,
        tick_id: int | None = None,
        *,
        datalog: str | None = None,
        account: str = "",
        quotas: Quotas | None = None,
        reach: str | None = None,
        may_read: Callable[[str], bool] | None = None,
        attempt: int = 0,
    ) -> tuple[TrialParams, Past]:
        """Read what a trial needs that goes on with a stored one: the parameters of that one, and its past.

        Args:
            trial_id: of the stored trial.
            tick_id: the tick at which it is taken up; None: the last one that is stored.
            datalog: the endpoint of the data log that keeps it; None: that of trials whose parameters name none.
            account: who asks; empty: this process.
            quotas: of the account.
            reach: how far the endpoint may lead; see `trio_cogment.access.reach_of`.
            may_read: tells for a datastore of this process whether whoever asks may read what an account owns; None:
                all of it. One elsewhere judges for itself.
            attempt: the number of the attempt that goes on with the trial, which this orchestrator has taken over in
                its datastore; 0: none does.

        Raises:
            PermissionDeniedError: it belongs to somebody else.
            NotFoundError: there is no such trial, or it has no such tick.
            DataLossError: something of the past is not stored.
            FailedPreconditionError: the data log is none that can be read.
            CogmentError: it cannot be reached, or has failed.
        """
        endpoint = self.datalog_of(TrialParams()) if datalog is None else datalog
        if not endpoint:
            raise FailedPreconditionError(f"trial {trial_id!r}: no trials are stored here: expected a datastore")
        target = await self._connections.resolve(
            endpoint, ServiceKind.DATALOG, "datalog.endpoint", reach=None if datalog is None else reach
        )
        holding = Holding(self.room, account, quotas or Quotas())
        source = sink_of(target, self._connections, holding, attempt, counted=self.resumes_at if attempt else "")
        read = getattr(source, "past", None)
        if read is None:
            raise FailedPreconditionError(f"trial {trial_id!r}: its data log ({endpoint}) cannot be read")
        await self._wait_stored(trial_id)
        patience = trio.current_time() + _STORED_SECONDS
        while True:
            try:
                found: tuple[TrialParams, Past] = await read(trial_id, tick_id, may_read)
                return found
            except NotFoundError:
                # It may be on its way, if the trial runs here and is past that tick.
                trial = self.trials.get(trial_id)
                coming = (
                    trial is not None and not trial.over and tick_id is not None and trial.machine.tick_id > tick_id
                )
                if not coming or trio.current_time() >= patience:
                    raise
            await trio.sleep(_LOOK_SECONDS)

    async def attempts_elsewhere(self) -> Attempts:
        """Return what takes over trials of the datastore at `resumes_at`.

        Raises:
            CogmentError: nobody knows where that is.
        """
        target = await self._connections.resolve(self.resumes_at, ServiceKind.DATALOG, "datastore")
        assert target is not None
        return Attempts(self._connections, target, self.resumes_at)

    def writes_samples_of(self, trial_id: str) -> bool:
        """Return whether samples of a trial that has ended here are on their way to its data log."""
        return any(run.trial.trial_id == trial_id and run.trial.over and run.writes_samples for run in self._runs)

    async def _wait_stored(self, trial_id: str) -> None:
        """Wait until the data log has the samples of a trial that has just ended here, for a bounded time."""
        with trio.move_on_after(self.config.datalog_flush_seconds):
            while self.writes_samples_of(trial_id):
                await self._running.wait_transition()

    def _new_trial(self, user_id: str, holding: Holding, trial_id: str) -> Trial:
        machine = self.make_machine(trial_id, rules=self._rules)
        trace = None
        if (tracing := self._tracing) is not None:
            from trio_cogment.servers.orchestrator._tracing import TrialTrace

            trace = TrialTrace(tracing, machine, user_id, self._host.wall_clock)
        return Trial(
            user_id,
            machine,
            holding,
            alarms=self._alarms,
            wall_clock=self._host.wall_clock,
            on_state=self._on_state,
            on_settled=self._on_settled,
            trace=trace,
        )

    def _why_not_started(self, trial: Trial) -> CogmentError:
        if self._stopping:
            return UnavailableError(STOPPING)
        return trial.refusal or FailedPreconditionError("the trial was terminated while it was starting")

    def _unused_trial_id(self) -> str:
        for _ in range(_ID_DRAWS):
            trial_id = self._host.new_id()
            validate_trial_id(trial_id)
            if trial_id not in self.trials:
                return trial_id
        raise AlreadyExistsError(f"every one of {_ID_DRAWS} new trial ids is taken; is the source of ids broken?")

    async def _start(self, trial: Trial, given: Given) -> None:
        if (given.params is None and self._hooks) or self._directory is not None:
            # Others are asked, which may take long; the trial's end cancels it.
            prepared = None
            with trio.CancelScope() as trial.starting:
                prepared = await self._prepare(trial, given)
            if prepared is None:
                raise self._why_not_started(trial)
        else:
            prepared = await self._prepare(trial, given)
        params, targets, datalog = prepared
        if self._stopping or trial.over:
            raise self._why_not_started(trial)
        counted = self.resumes_at if same_endpoint(params.datalog.endpoint, self.resumes_at) else ""
        run = TrialRun(
            trial,
            params,
            targets,
            sink_of(datalog, self._connections, trial.holding, given.attempt, counted=counted),
            connections=self._connections,
            config=self.config,
            rng=self._rng,
            on_samples_lost=self._on_samples_lost,
            taken_up=given.taken_up,
        )
        self._runs[run] = None
        self._running.value = len(self._runs)
        self._nursery.start_soon(self._run_trial, run, name=f"trial {trial.trial_id}")
        run.begin()
        if not trial.settled.is_set():
            await trial.settled.wait()
        if trial.refusal is not None or trial.machine.params is None:
            raise self._why_not_started(trial)

    async def _prepare(self, trial: Trial, given: Given) -> tuple[TrialParams, dict[int, Target | None], Target | None]:
        """Return the complete parameters, and what `find_everybody` returns for them."""
        params = await self._complete(trial, given)
        return params, *await find_everybody(self._connections, params, given.reach_of_endpoints)

    async def _complete(self, trial: Trial, given: Given) -> TrialParams:
        """Return the parameters of a trial: those given, or the default ones as the hooks leave them; checked."""
        params = given.params
        if params is None:
            params = TrialParams()
            params.CopyFrom(self.default_params)
            if given.trial_config is not None:
                params.trial_config.CopyFrom(given.trial_config)
            params = await run_hooks(
                self._connections,
                self._hooks,
                params,
                trial_id=trial.trial_id,
                user_id=trial.user_id,
                timeout_seconds=self.config.hook_timeout_seconds,
            )
        check_counts(params, self.config)
        async with Turn(self._start_turns, trial.holding.account):
            taken_up = given.taken_up
            trial.holding.take(estimated_bytes(params) + (0 if taken_up is None else taken_up.ByteSize()))
            params = validate_params(params)
            if taken_up is not None and taken_up.trial_id != trial.trial_id:
                params.properties.update({BRANCH_TRIAL: taken_up.trial_id, BRANCH_TICK: str(taken_up.tick_id)})
            if self.resumes:
                self._keep_limits(trial, params, given.reach_of_endpoints)
            if endpoint := self.datalog_of(params):
                params.datalog.endpoint = endpoint
            check_describable(params, self.config.max_properties_bytes)
            await trio.lowlevel.checkpoint()  # the next one's turn is in the next round
        return params

    def _keep_limits(self, trial: Trial, params: TrialParams, reach: str | None) -> None:
        """Have the next attempt be bound by the same limits; addresses are kept only where endpoints name some."""
        quotas, properties = trial.holding.quotas.text(), params.properties
        endpoints = [params.environment.endpoint, params.datalog.endpoint, *(actor.endpoint for actor in params.actors)]
        if reach is not None and any("://" in each and not each.startswith("cogment:") for each in endpoints):
            properties[RESUME_REACH] = reach
        if quotas:
            properties[RESUME_QUOTAS] = quotas
        if trial.holding.run_id:
            properties[RESUME_RUN] = trial.holding.run_id

    async def _run_trial(self, run: TrialRun) -> None:
        try:
            await run.run()
        finally:
            del self._runs[run]
            self._running.value = len(self._runs)

    async def _guard(self) -> None:
        # One for all trials: each would cost a task and a nursery more.
        try:
            await trio.sleep_forever()
        finally:
            self._stopping = True
            farewell = trio.current_time() + self.config.farewell_seconds
            for run in list(self._runs):
                run.abandon(farewell)
            self._connections.abandon(farewell)

    def _on_state(self, trial: Trial, state: int) -> None:
        if state == _ENDED and self.trials.ended(trial) and self._metrics is not None:
            self._metrics.trial_ended(trial.seconds)
        self.watchers.publish(trial.trial_id, state, trial.info)

    def _on_settled(self, trial: Trial) -> None:
        self.watchers.publish_settled(trial.trial_id, trial.info)

    def _on_samples_lost(self, count: int) -> None:
        self.lost_samples += count

    def known(self, trial_ids: Iterable[str]) -> list[Trial]:
        """Return the trials with these ids, in this order; unknown ids are passed over."""
        return [trial for trial in map(self.trials.get, trial_ids) if trial is not None]
