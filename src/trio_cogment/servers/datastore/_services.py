"""The services in front of a datastore."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import unquote

import trio
from google.protobuf.message import DecodeError
from purerpc import Service

from trio_cogment.access import Quotas
from trio_cogment.api import attempts_pb2, datalog_pb2
from trio_cogment.api.datalog_pb2 import (
    LogExporterSampleReply,
    LogExporterSampleRequest,
    RunTrialDatalogInput,
    RunTrialDatalogOutput,
)
from trio_cogment.base.about import About
from trio_cogment.base.endpoints import parse_server_endpoint
from trio_cogment.base.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    PermissionDeniedError,
    RpcError,
    StatusCode,
)
from trio_cogment.base.services import (
    ATTEMPTS,
    LOG_EXPORTER,
    SERVICES,
    TRIAL_ATTEMPT,
    TRIAL_ID,
    TRIAL_ORCHESTRATOR,
    TRIAL_OWNER,
    TRIAL_QUOTAS,
    USER_ID,
    ServiceKind,
)
from trio_cogment.base.shared_message import field_tag
from trio_cogment.rpc import IN_PROCESS, ServerCall, bind
from trio_cogment.servers.datastore._attempts_service import AttemptsService, check_counts
from trio_cogment.servers.datastore._datastore import Datastore
from trio_cogment.servers.datastore._intake import Intake, IntakeStream
from trio_cogment.servers.datastore._protobuf_wire import only_field
from trio_cogment.servers.datastore._trial_service import TrialService
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER
from trio_cogment.servers.datastore.storage import ELSEWHERE, TrialEnd, TrialStore

# The services to which data logs send samples: `DatalogSP`, and `LogExporterSP`, the name in the documentation.

_Message: TypeAlias = RunTrialDatalogInput | LogExporterSampleRequest
#: After so many samples that were taken at once, the call's task takes one: others get their turn before that.
_TAKEN_AT_ONCE = 256
#: So many replies are sent together: others get their turn in between.
_REPLIES_AT_ONCE = 64


class DatalogService(About):
    """The service: every message gets an empty reply, in order, once its content is durable."""

    def __init__(self, intake: Intake, store: TrialStore) -> None:
        self._intake = intake
        self._store = store

    async def RunTrialDatalog(self, call: ServerCall) -> None:
        """Take the parameters of a trial, then its samples; OK means that all of them are durable."""
        trial_id, user_id, first = await _opening(call)
        attempt = _attempt(call)
        confirming: _Confirming | None = None
        try:
            where = _orchestrator(call)
            whose = _owner(call, trial_id)
            if attempt is None:
                await _check_uncounted(call, self._store, trial_id)
                intake = self._intake.owned_by(*whose, where)
            else:
                intake = self._intake.owned_by(*whose, ELSEWHERE + where).counted(attempt)
            async with intake.open(trial_id, user_id, first.trial_params) as stream:
                await call.send(_confirmed(intake) if intake.attempt else RunTrialDatalogOutput())
                confirming = _Confirming(call, stream)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(confirming.run)
                    await _Taking(call, stream, RunTrialDatalogInput).run()
                    nursery.cancel_scope.cancel()
        finally:
            # The client counts the replies before an error to find its place. (If it has left, this is cancelled.)
            if confirming is not None:
                await confirming.send_rest()


class LogExporterService(About):
    """The service under its documented name: one reply at the end, when everything is durable."""

    def __init__(self, intake: Intake, store: TrialStore) -> None:
        self._intake = intake
        self._store = store

    async def RunTrialDatalog(self, call: ServerCall) -> LogExporterSampleReply:
        """Take the parameters of a trial, then its samples."""
        trial_id, user_id, first = await _opening(call)
        intake = self._intake.owned_by(*_owner(call, trial_id), _orchestrator(call))
        await _check_uncounted(call, self._store, trial_id)
        async with intake.open(trial_id, user_id, first.trial_params) as stream:
            await _Taking(call, stream, LogExporterSampleRequest).run()
        return LogExporterSampleReply()


class _Confirming:
    """Sends a reply for each durable sample."""

    def __init__(self, call: ServerCall, stream: IntakeStream) -> None:
        self._call = call
        self._stream = stream
        self._sent = 0

    async def run(self) -> None:
        """Send replies as samples become durable. Return when the stream fails; `write` and `flush` raise its error."""
        while await self._stream.progress(self._sent):
            await self.send_rest()

    async def send_rest(self) -> None:
        """Send a reply for each durable sample that has none yet."""
        while count := min(self._stream.writes.durable - self._sent, _REPLIES_AT_ONCE):
            await self._call.send_together([RunTrialDatalogOutput() for _ in range(count)])
            self._sent += count


class _Taking:
    """Takes the samples of a call: at once where they are like earlier ones, else in the call's task, one by one.

    Most are not parsed: of a sample that is like an earlier one the bytes are all that is needed.
    """

    def __init__(self, call: ServerCall, stream: IntakeStream, kind: type[_Message]) -> None:
        self._call = call
        self._stream = stream
        self._kind = kind
        self._tag = field_tag(kind, "sample")
        #: What the task takes; the call is paused meanwhile.
        self._message: bytes | _Message | None = None
        self._left = _TAKEN_AT_ONCE
        self._ended = False
        self._error: RpcError | None = None
        self._told = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Return when all samples were taken, and are durable.

        Raises:
            InvalidArgumentError: a message is not what a data log sends.
            CogmentError: a sample could not be stored.
            RpcError: the call has ended otherwise.
        """
        self._call.accept_encoded()
        self._call.set_consumer(self)
        while True:
            if self._message is not None:
                message, self._message = self._message, None
                await self._take(message)
                self._call.resume()
            elif not self._ended:
                await self._told.park()
            elif self._error is not None:
                raise self._error
            else:
                break
        await self._stream.complete()

    async def _take(self, given: bytes | _Message) -> None:
        try:
            message = self._kind.FromString(given) if isinstance(given, bytes) else given
        except DecodeError:
            text = f"{self._call.method.path}: undecodable message"
            raise RpcError(StatusCode.INTERNAL, text) from None
        if message.WhichOneof("msg") != "sample":
            await self._stream.flush()
            raise InvalidArgumentError("msg: expected a sample in every message but the first")
        await self._stream.write(message.sample)

    def on_message(self, message: bytes | _Message) -> None:
        """See `Consumer.on_message`."""
        self._left -= 1
        if not self._left or not self._takes_at_once(message):
            self._left = _TAKEN_AT_ONCE
            self._message = message
            self._call.pause()
            self._told.unpark()

    def _takes_at_once(self, message: bytes | _Message) -> bool:
        if not isinstance(message, bytes):
            return message.WhichOneof("msg") == "sample" and self._stream.write_nowait(message.sample)
        found = only_field(message, self._tag)
        return found is not None and self._stream.write_encoded_nowait(found)

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        self._ended, self._error = True, error
        self._told.unpark()


async def _opening(call: ServerCall) -> tuple[str, str, _Message]:
    """Return the trial's id, the user's id, and the message with the trial's parameters.

    Raises:
        InvalidArgumentError: the metadata or the first message is not what a data log begins with.
    """
    trial_ids = call.metadata.texts(TRIAL_ID)
    if not trial_ids or not trial_ids[0]:
        raise InvalidArgumentError(f"metadata {TRIAL_ID}: expected the id of the trial")
    user_ids = call.metadata.texts(USER_ID)
    first: _Message | None = await call.receive()
    if first is None or first.WhichOneof("msg") != "trial_params":
        raise InvalidArgumentError("msg: expected trial_params in the first message")
    return trial_ids[0], user_ids[0] if user_ids else "", first


def _confirmed(intake: Intake) -> RunTrialDatalogOutput:
    return RunTrialDatalogOutput(attempt=intake.attempt, lease_seconds=intake.lease_seconds)


def _owner(call: ServerCall, trial_id: str) -> tuple[str, Quotas]:
    """Return whose trial a data log writes, and what that account may store: an orchestrator runs it for somebody.

    Raises:
        PermissionDeniedError: its token is for other trials.
    """
    identity, grant = call.identity, call.identity.grant
    if not (identity.admin or grant.names_trial(trial_id)):
        raise PermissionDeniedError(f"trial {trial_id!r}: not for this caller")
    said = call.metadata.texts(TRIAL_OWNER)
    quotas = call.metadata.texts(TRIAL_QUOTAS)
    if identity.by_address:
        # With open access nothing has an owner; a gateway of this process may say for whom it writes.
        if not said or call.peer != IN_PROCESS:
            return "", Quotas()
        return unquote(said[0]), Quotas.parse(quotas[0] if quotas else "")
    if grant.owner:
        return grant.owner, grant.quotas
    # A token for one trial is known to those who take part in it; of whose trials an orchestrator writes, only a token
    # of its own is believed.
    if said and (identity.admin or not grant.trials):
        return unquote(said[0]), Quotas.parse(quotas[0] if quotas else "")
    return identity.account, grant.quotas


def _orchestrator(call: ServerCall) -> str:
    """Return where the orchestrator says that it is reached, which others will be told; empty: it says nothing.

    Raises:
        InvalidArgumentError: that is no address.
    """
    said = call.metadata.texts(TRIAL_ORCHESTRATOR)
    return str(parse_server_endpoint(unquote(said[0]), field_name=f"metadata {TRIAL_ORCHESTRATOR}")) if said else ""


def _attempt(call: ServerCall) -> int | None:
    """Return which attempt at its trial a data log says that it writes, 0: the next one; None: it says nothing.

    Raises:
        InvalidArgumentError: that is no number.
        PermissionDeniedError: it has no token for all trials; with that of one trial its participants could take it.
    """
    said = call.metadata.texts(TRIAL_ATTEMPT)
    if not said:
        return None
    check_counts(call)
    if not (said[0].isascii() and said[0].isdigit() and int(said[0][:20]) <= MAX_NUMBER):
        raise InvalidArgumentError(f"metadata {TRIAL_ATTEMPT}: expected a number from 0 on, got {said[0][:40]!r}")
    return int(said[0])


async def _check_uncounted(call: ServerCall, store: TrialStore, trial_id: str) -> None:
    """Refuse a data log that says no attempt, for a trial that runs as one, if participants can have its token.

    Else they could replace the parameters with which the trial goes on.

    Raises:
        AlreadyExistsError: that is so.
    """
    if call.identity.admin or not call.identity.grant.trials:
        return
    trial = await store.trial(trial_id)
    if trial is not None and trial.attempt and trial.end is TrialEnd.OPEN:
        raise AlreadyExistsError(f"trial {trial_id!r}: its id is taken by a trial that is under way")


def datastore_services(datastore: Datastore) -> list[Service]:
    """Return the services of a datastore: data logs under both their names, and the trials."""
    intake = datastore.sink()
    return [
        bind(SERVICES[ServiceKind.DATALOG].descriptor(), DatalogService(intake, datastore.store)),
        bind(datalog_pb2.DESCRIPTOR.services_by_name[LOG_EXPORTER], LogExporterService(intake, datastore.store)),
        bind(
            SERVICES[ServiceKind.DATASTORE].descriptor(),
            TrialService(
                datastore.store,
                datastore.writer,
                datastore.owners,
                datastore.retention,
                datastore.config,
                datastore.trouble_of,
            ),
        ),
        bind(attempts_pb2.DESCRIPTOR.services_by_name[ATTEMPTS], AttemptsService(datastore)),
    ]
