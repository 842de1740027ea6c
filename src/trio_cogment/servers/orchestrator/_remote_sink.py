"""A data log elsewhere as a sink: `DatalogSP.RunTrialDatalog` over any channel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import quote

import trio
from typing_extensions import override

from trio_cogment.access import lasting
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest, RetrieveTrialsRequest
from trio_cogment.base.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    RpcError,
    StatusCode,
    UnimplementedError,
    is_storage_failure,
)
from trio_cogment.base.services import (
    SERVICES,
    TRIAL_ATTEMPT,
    TRIAL_ID,
    TRIAL_ORCHESTRATOR,
    TRIAL_OWNER,
    TRIAL_QUOTAS,
    USER_ID,
    ServiceKind,
)
from trio_cogment.base.taking_up import Past, PastReader, branch_of, joined
from trio_cogment.rpc import CallOpener, ClientCall, MetadataLike, methods_of
from trio_cogment.servers.orchestrator._attempts import Attempts, not_counted
from trio_cogment.servers.orchestrator._connections import Authorization, Connections, Target
from trio_cogment.servers.orchestrator._room import Holding
from trio_cogment.servers.orchestrator.sinks import LocalSink, SampleSink, SampleStream

RUN_TRIAL_DATALOG = methods_of(SERVICES[ServiceKind.DATALOG].descriptor())["RunTrialDatalog"]
_OF_DATASTORE = methods_of(SERVICES[ServiceKind.DATASTORE].descriptor())
_RETRIEVE_TRIALS, RETRIEVE_SAMPLES = _OF_DATASTORE["RetrieveTrials"], _OF_DATASTORE["RetrieveSamples"]


def sink_of(
    target: Target | None, connections: Connections, holding: Holding, attempt: int = 0, *, counted: str = ""
) -> SampleSink | None:
    """Return the sink that a data log's endpoint leads to, for one trial.

    Args:
        target: where it leads to; None: there is no data log.
        connections: lends a channel to one elsewhere.
        holding: of the trial.
        attempt: which run of the trial this is, for a datastore that counts; 0: the next one.
        counted: the endpoint of the datastore elsewhere with whose trials this orchestrator goes on, if this is that
            one; one of this process counts without being asked.
    """
    if target is None:
        return None
    if not isinstance(target, LocalSink):
        if counted:
            return CountedRemoteSink(connections, target, holding, name=counted, attempt=attempt)
        return RemoteSink(connections, target, holding)
    owned_by = getattr(target.sink, "owned_by", None)
    sink = target.sink if owned_by is None else owned_by(lasting(holding.account), holding.quotas)
    count = getattr(sink, "counted", None)
    found: SampleSink = sink if count is None else count(attempt)
    return found


#: How long a data log may take to answer the parameters; one that has not is of those that never answer.
_ANSWER_SECONDS = 5.0


def _nothing() -> None:
    pass


class RemoteSink:
    """The data log of one trial, reached by a call.

    Some data logs (the Go datastore, this package's) answer every message with an empty one, some (the published
    SDK's) never write. One that has answered once, on any stream of this trial, is taken to answer always: its samples
    are unconfirmed until it has answered them. With the others a sample that was sent counts as taken.

    Which kind it is shows soon: those that answer answer the parameters, or say that their storage has failed. Until
    then, and for `_ANSWER_SECONDS` at most, samples are unconfirmed.

    Attributes:
        answers: whether the log answers; None: that has not shown.
    """

    def __init__(self, connections: Connections, target: Target, holding: Holding) -> None:
        self._connections = connections
        self._holding = holding
        self._target = target
        self.answers: bool | None = None

    def _metadata(self, trial_id: str, user_id: str) -> MetadataLike:
        owner = lasting(self._holding.account)
        whose = ((TRIAL_OWNER, quote(owner)),) if owner else ()
        endpoint = self._connections.own_endpoint
        where = ((TRIAL_ORCHESTRATOR, quote(endpoint)),) if endpoint else ()
        who = self._authorization(trial_id)
        return ((TRIAL_ID, trial_id), (USER_ID, user_id), *whose, *where, *who)

    def _authorization(self, trial_id: str) -> Authorization:
        """Return what says who writes a trial, or reads its past."""
        return self._connections.authorization(trial_id, self._holding)

    def _opening(self) -> AbstractAsyncContextManager[CallOpener]:
        return self._connections.open(self._target, self_paced=True)

    async def _begin(self, _call: ClientCall) -> float | None:
        """Wait for what has to be known before samples are written; return the lease in the reply, None: unread."""
        return None

    async def past(
        self,
        trial_id: str,
        tick_id: int | None,
        _may_read: Callable[[str], bool] | None = None,
        lineage: tuple[str, ...] = (),
    ) -> tuple[TrialParams, Past]:
        """Return what `Intake.past` does of the datastore that the data log is, which says who may read what.

        Raises:
            NotFoundError, DataLossError: see there.
            RpcError: it cannot be reached, or does not let this orchestrator read.
        """
        # An earlier trial is read as whoever has started this one.
        authorization = self._connections.authorization(trial_id, self._holding)
        who = authorization if lineage else self._authorization(trial_id)
        async with self._connections.open(self._target) as opener:
            reply = await opener.unary(_RETRIEVE_TRIALS, RetrieveTrialsRequest(trial_ids=[trial_id]), metadata=who)
            if not reply.trial_infos:
                raise NotFoundError(f"there is no trial {trial_id!r}")
            info = reply.trial_infos[0]
            # Of one that goes on only what is there: its samples to come would be waited for.
            branch = branch_of(info.params.properties)
            first = 0 if branch is None else branch[1]
            end = first + info.samples_count
            last = end - 1 if tick_id is None else tick_id
            reader = PastReader(trial_id, info.params, last)
            request = RetrieveSamplesRequest(trial_ids=[trial_id])
            if first <= last < end:
                async with opener.call(RETRIEVE_SAMPLES, metadata=who) as call:
                    await call.send(request)
                    await call.done_sending()
                    async for message in call:
                        reader.add(message.trial_sample)
                        if reader.complete:
                            break
        own = reader.past()
        if reader.before is None:
            return info.params, own
        earlier, first = reader.before
        if earlier in lineage or earlier == trial_id:
            raise DataLossError(f"trial {trial_id!r}: it is a branch of itself")
        _, before = await self.past(earlier, first, None, (*lineage, trial_id))
        return info.params, joined(before, own)

    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[SampleStream]:
        """See `SampleSink.open`."""
        async with (
            self._connections.turn(self._holding.account) as turn,
            self._opening() as opener,
            opener.call(RUN_TRIAL_DATALOG, metadata=self._metadata(trial_id, user_id)) as call,
        ):
            turn.end()
            await call.send(RunTrialDatalogInput(trial_params=params))
            lease = await self._begin(call)
            with trio.CancelScope() as scope:
                stream = _RemoteStream(self, call, scope, lease)
                call.set_consumer(stream)
                yield stream
            if scope.cancelled_caught:
                raise stream.error or RpcError(StatusCode.UNAVAILABLE, "it ended its stream before the trial did")


class CountedRemoteSink(RemoteSink):
    """The data log of one attempt at a trial, in a datastore elsewhere that refuses what replaced attempts write.

    A stream is open when the datastore has said that this attempt has the trial, and for how long after the stream has
    broken. The first one learns which attempt it is: who does not know its number could not be told from a later one.

    Args:
        name: of the datastore, for errors.
        attempt: which one; 0: the next one.

    Attributes:
        counts_attempts: the trial can be handed over.
    """

    counts_attempts = True

    def __init__(
        self, connections: Connections, target: Target, holding: Holding, *, name: str, attempt: int = 0
    ) -> None:
        super().__init__(connections, target, holding)
        self._name = name
        self._attempt = attempt

    @override
    def _metadata(self, trial_id: str, user_id: str) -> MetadataLike:
        quotas = self._holding.quotas.text()
        of_owner = ((TRIAL_QUOTAS, quotas),) if quotas else ()
        return (*super()._metadata(trial_id, user_id), *of_owner, (TRIAL_ATTEMPT, str(self._attempt)))

    @override
    def _authorization(self, trial_id: str) -> Authorization:
        # The participants know the token for the trial: it does not say who has it.
        return self._connections.own_authorization()

    @override
    def _opening(self) -> AbstractAsyncContextManager[CallOpener]:
        return self._connections.open(self._target, watched=True)

    @override
    async def _begin(self, call: ClientCall) -> float:
        reply = await call.receive()
        if reply is None or not reply.attempt:
            raise UnimplementedError(not_counted(self._name))
        self._attempt = reply.attempt
        return float(reply.lease_seconds)

    @override
    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[SampleStream]:
        """See `SampleSink.open`.

        Raises:
            FailedPreconditionError: another attempt has the trial.
            UnimplementedError: the datastore does not count.
        """
        try:
            async with super().open(trial_id, user_id, params) as stream:
                yield stream
        except RpcError as error:
            if error.code is StatusCode.FAILED_PRECONDITION:
                raise FailedPreconditionError(error.message) from error
            raise

    async def release(self, trial_id: str) -> None:
        """Hand the trial over; see `Attempts.release`."""
        await Attempts(self._connections, self._target, self._name).release(trial_id, self._attempt)


class _RemoteStream(SampleStream):
    """One call; its consumer too: replies left unread would close the log's window.

    Attributes:
        on_confirmed: called whenever the log has answered.
        lease_seconds: how long nobody else takes the trial over after this stream has broken; None: nobody ever does.
    """

    def __init__(
        self, sink: RemoteSink, call: ClientCall, scope: trio.CancelScope, lease_seconds: float | None = None
    ) -> None:
        self._sink = sink
        self._call = call
        self._scope = scope
        self._opened_at = trio.current_time()
        self._written = 0
        self._replies = 0
        self.lease_seconds = lease_seconds
        if lease_seconds is not None:  # with the reply to the parameters
            self._replies = 1
            sink.answers = True
        self._completing = False
        self._ended = trio.Event()
        self.error: RpcError | None = None
        self.on_confirmed: Callable[[], None] = _nothing

    @property
    @override
    def unconfirmed(self) -> int:
        answers = self._sink.answers
        if answers is None and not self._ended.is_set():
            if trio.current_time() < self._opened_at + _ANSWER_SECONDS:
                return self._written
            self._sink.answers = False
        # The first reply is for the parameters.
        return self._written - max(0, self._replies - 1) if answers else 0

    @override
    async def write(self, sample: DatalogSample) -> None:
        await self._call.send(RunTrialDatalogInput(sample=sample))
        self._written += 1

    async def complete(self) -> None:
        """See `SampleStream.complete`: the log has everything once it has ended the stream."""
        self._completing = True
        if not self._ended.is_set():
            await self._call.done_sending()
            await self._ended.wait()
        if self.error is not None:
            raise self.error

    def on_message(self, _message: Any) -> None:
        """See `Consumer.on_message`."""
        self._replies += 1
        self._sink.answers = True
        self.on_confirmed()

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        self.error = error
        if error is not None and is_storage_failure(error):
            self._sink.answers = True  # only a log that answers says so: it has taken nothing that it has not answered
        self._ended.set()
        # The SDK's log leaves when it has seen the last sample: the trial is over then, and this stream completing.
        if not self._completing:
            self._scope.cancel()
