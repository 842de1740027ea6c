"""Old data logs as data logs of today; and the log stream of an old orchestrator, taken into a data log of today."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import RunTrialDatalogInput
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import data_pb2 as pb
from trio_cogment.base.endpoints import LegacyEndpoint, parse_endpoint
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    RemoteProtocolError,
    RpcError,
    UnavailableError,
)
from trio_cogment.base.services import SERVICES, TRIAL_ID, USER_ID, ServiceKind
from trio_cogment.gateways.callers import Caller, Callers
from trio_cogment.gateways.legacy.actor_ids import name_actors
from trio_cogment.gateways.legacy.hook import Lender
from trio_cogment.gateways.legacy.log_samples import OldSamples, TodaysSamples
from trio_cogment.gateways.legacy.old_params import old_params, params_of_old
from trio_cogment.gateways.legacy.old_server import LOG
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.rpc import ClientCall, ServerCall, methods_of
from trio_cogment.sdk import DatalogSession

_RUN = methods_of(SERVICES[ServiceKind.DATALOG].descriptor())["RunTrialDatalog"]


class OldDataLogs:
    """The old data logs that trials name as their data log, and that of the project for those that name the gateway.

    Args:
        profile: the project.
        lender: lends channels to them.
    """

    def __init__(self, profile: LegacyProfile, lender: Lender) -> None:
        self._profile = profile
        self._lender = lender

    async def keep(self, session: DatalogSession) -> None:
        """Write the samples of a trial to its data log.

        Raises:
            FailedPreconditionError: the parameters do not name an old data log.
            InvalidArgumentError: the trial has a class that the project does not have.
            UnavailableError: the data log cannot be reached, or ended the stream.
        """
        endpoint = parse_endpoint(session.params.datalog.endpoint)
        if not isinstance(endpoint, LegacyEndpoint) and self._profile.datalog:
            endpoint = parse_endpoint(self._profile.datalog)
        if not isinstance(endpoint, LegacyEndpoint):
            what = "datalog.endpoint, or datalog in the profile"
            raise FailedPreconditionError(f"{what}: expected legacy://host:port, got {endpoint}")
        samples = OldSamples(session.trial_id, session.user_id, session.params, self._profile.classes)
        try:
            async with self._lender.channel(endpoint) as channel, channel.call(LOG["Log"]) as call:
                await call.send(pb.DatalogMsg(trial_params=old_params(session.params)))
                async for sample in session:
                    await call.send(pb.DatalogMsg(sample=samples.old(sample.message)))
                await call.done_sending()
                await call.receive()
        except RpcError as error:
            raise UnavailableError(f"{endpoint}: Log: {error}") from error


class LogService:
    """`cogment.LogExporter`: takes what an old orchestrator logs into a data log of today.

    A stream is for one trial after the other: each begins with its parameters, and ends with the next one's or with the
    stream. The last sample of a trial is known only then.

    Args:
        callers: tells who makes a call, and calls the data log in their names.
        profile: the project.
    """

    def __init__(self, callers: Callers, profile: LegacyProfile) -> None:
        self._callers = callers
        self._profile = profile

    async def Log(self, call: ServerCall) -> pb.LogReply:
        """Take a stream.

        Raises:
            InvalidArgumentError: a trial has a class that the project does not have, or no id.
            PermissionDeniedError: a trial is not one of those that the caller's token names.
            RemoteProtocolError: a sample comes before any parameters, or does not fit its trial.
        """
        trial: _LoggedTrial | None = None
        caller = self._callers(call)
        async with AsyncExitStack() as opened:
            async for message in call:
                kind = message.WhichOneof("msg")
                if kind == "trial_params":
                    if trial is not None:
                        await trial.finish()
                    trial = _LoggedTrial(caller, opened, self._params(message.trial_params), self._profile)
                elif kind == "sample":
                    if trial is None:
                        raise RemoteProtocolError("sample: expected trial_params first")
                    await trial.take(message.sample)
            if trial is not None:
                await trial.finish()
        return pb.LogReply()

    def _params(self, old: legacy.TrialParams) -> TrialParams:
        params = params_of_old(old)
        name_actors(params.actors, dict(self._profile.names))
        return params


class _LoggedTrial:
    """One trial of a stream: its samples are written one behind, so that the last one can be marked."""

    def __init__(self, caller: Caller, opened: AsyncExitStack, params: TrialParams, profile: LegacyProfile) -> None:
        self._caller = caller
        self._opened = opened
        self._params = params
        self._samples = TodaysSamples(params, profile.classes, profile.deltas)
        self._waiting: pb.DatalogSample | None = None
        self._trial_id = ""
        self._call: ClientCall | None = None

    async def take(self, sample: pb.DatalogSample) -> None:
        if self._call is None:
            if not sample.trial_id:
                raise InvalidArgumentError("sample.trial_id: expected the id of the trial, got nothing")
            self._caller.check_logs(sample.trial_id)
            self._trial_id = sample.trial_id
            metadata = ((TRIAL_ID, sample.trial_id), (USER_ID, sample.user_id))
            self._call = await self._opened.enter_async_context(self._caller.opener().call(_RUN, metadata=metadata))
            await self._call.send(RunTrialDatalogInput(trial_params=self._params))
        elif sample.trial_id != self._trial_id:
            raise RemoteProtocolError(
                f"sample.trial_id: expected {self._trial_id!r}, or trial_params before it, got {sample.trial_id!r}"
            )
        if self._waiting is not None:
            await self._write(self._waiting, last=False)
        self._waiting = sample

    async def _write(self, sample: pb.DatalogSample, *, last: bool) -> None:
        assert self._call is not None
        await self._call.send(RunTrialDatalogInput(sample=self._samples.todays(sample, last=last)))

    async def finish(self) -> None:
        """Write the last sample, and wait until the data log has everything."""
        call: Any = self._call
        if call is None:
            return
        if self._waiting is not None:
            await self._write(self._waiting, last=True)
        await call.done_sending()
        while await call.receive() is not None:
            pass
