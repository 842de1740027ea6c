"""The service `gymgui.trainer.TrainerService`: it checks requests and builds replies."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable

from purerpc import Service

from trio_cogment.api.trainer import trainer_pb2
from trio_cogment.api.trainer.trainer_pb2 import (
    CancelRunRequest,
    CancelRunResponse,
    HealthCheckRequest,
    HealthCheckResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListRunsRequest,
    ListRunsResponse,
    PublishTelemetryResponse,
    RegisterWorkerRequest,
    RegisterWorkerResponse,
    StreamEpisodesRequest,
    StreamStepsRequest,
    SubmitRunRequest,
    SubmitRunResponse,
    WatchRunsRequest,
)
from trio_cogment.base.errors import PermissionDeniedError
from trio_cogment.rpc import ServerCall, bind
from trio_cogment.trainer._control import ControllerStream, WorkerStream
from trio_cogment.trainer._entries import Entry
from trio_cogment.trainer._messages import statuses_of
from trio_cogment.trainer._publishing import SESSION_TOKEN, Publication, unauthenticated
from trio_cogment.trainer._reports import PROTOCOL
from trio_cogment.trainer._trainer import Trainer
from trio_cogment.trainer.storage import Kind

SERVICE = "TrainerService"
#: Metadata: what controllers have to know, where the trainer asks for it.
CONTROLLER_SECRET = "controller-secret"


def trainer_services(trainer: Trainer, *, address: str = "") -> list[Service]:
    """Return the services of a trainer.

    Args:
        trainer: which one.
        address: where it listens, for `GetHealth`.
    """
    return [bind(trainer_pb2.DESCRIPTOR.services_by_name[SERVICE], TrainerService(trainer, address))]


class TrainerService:
    """The service, in front of a trainer."""

    def __init__(self, trainer: Trainer, address: str) -> None:
        self._trainer = trainer
        self._address = address

    async def SubmitRun(self, request: SubmitRunRequest, call: ServerCall) -> SubmitRunResponse:
        """Take a run."""
        who = call.identity
        run_id, digest = await self._trainer.submit(request.run_id, request.config_json, who.account, who.derives)
        return SubmitRunResponse(run_id=run_id, digest=digest)

    async def CancelRun(self, request: CancelRunRequest, _call: ServerCall) -> CancelRunResponse:
        """Cancel a run, and wait for the end of its processes and trials."""
        await self._trainer.cancel(request.run_id)
        return CancelRunResponse()

    async def ListRuns(self, request: ListRunsRequest, _call: ServerCall) -> ListRunsResponse:
        """Return the runs as they are."""
        return ListRunsResponse(runs=self._trainer.records(statuses_of(request.status_filter), request.run_ids))

    async def WatchRuns(self, request: WatchRunsRequest, call: ServerCall) -> None:
        """Send the runs as they are, or what has changed since; then every change."""
        statuses = statuses_of(request.status_filter)
        await call.send_initial_metadata()
        with self._trainer.until_stopped():
            await self._trainer.board.events.follow(
                call, request.since_seq, statuses, lambda: self._trainer.records(statuses)
            )

    async def Heartbeat(self, request: HeartbeatRequest, call: ServerCall) -> HeartbeatResponse:
        """Take note that a worker lives."""
        _check_works_for(call, request.run_id)
        self._trainer.heartbeat(request.run_id)
        return HeartbeatResponse()

    async def RegisterWorker(self, request: RegisterWorkerRequest, call: ServerCall) -> RegisterWorkerResponse:
        """Register a worker."""
        _check_works_for(call, request.run_id)
        token = await self._trainer.reports.register(request, call.identity.derives)
        return RegisterWorkerResponse(accepted_version=PROTOCOL, session_token=token)

    async def ControlStream(self, call: ServerCall) -> None:
        """Serve a worker, if it shows the token of its registration, or else a controller."""
        token = next(iter(call.metadata.texts(SESSION_TOKEN)), None)
        with self._trainer.until_stopped():
            if token is None:
                if not call.identity.admin:
                    raise PermissionDeniedError("ControlStream: without a session-token, only for administrators")
                self._check_secret(call)
                await ControllerStream(call, self._trainer.commanding).run()
                return
            entry, worker = self._trainer.reports.session(token)
            _check_works_for(call, entry.run_id)
            await WorkerStream(call, entry, worker, self._trainer.grants).run()

    def _check_secret(self, call: ServerCall) -> None:
        secret = self._trainer.config.controller_secret
        given = next(iter(call.metadata.texts(CONTROLLER_SECRET)), "")
        if secret and not hmac.compare_digest(secret.encode(), given.encode()):
            raise unauthenticated(f"{CONTROLLER_SECRET}: expected the secret of this trainer's controllers")

    async def GetHealth(self, _request: HealthCheckRequest, _call: ServerCall) -> HealthCheckResponse:
        """Tell how the trainer is."""
        reply = HealthCheckResponse(pid=os.getpid(), listen_address=self._address, healthy=self._trainer.healthy)
        reply.started_at.FromNanoseconds(self._trainer.started_ns)
        return reply

    async def StreamRunSteps(self, request: StreamStepsRequest, call: ServerCall) -> None:
        """Send steps until the run has ended."""
        with self._trainer.until_stopped():
            await self._trainer.stream(call, Kind.STEPS, request.run_id, request.since_seq)

    async def StreamRunEpisodes(self, request: StreamEpisodesRequest, call: ServerCall) -> None:
        """Send episodes until the run has ended."""
        with self._trainer.until_stopped():
            await self._trainer.stream(call, Kind.EPISODES, request.run_id, request.since_seq)

    async def PublishRunSteps(self, call: ServerCall) -> PublishTelemetryResponse:
        """Take steps."""
        return await Publication(call, Kind.STEPS, self._finder(call), self._trainer.intake).run()

    async def PublishRunEpisodes(self, call: ServerCall) -> PublishTelemetryResponse:
        """Take episodes."""
        return await Publication(call, Kind.EPISODES, self._finder(call), self._trainer.intake).run()

    def _finder(self, call: ServerCall) -> Callable[[str], Entry]:
        """Return what finds the runs that a worker may publish for."""

        def find(run_id: str) -> Entry:
            _check_works_for(call, run_id)
            return self._trainer.board.entry(run_id)

        return find


def _check_works_for(call: ServerCall, run_id: str) -> None:
    if not call.identity.works_for(run_id):
        raise PermissionDeniedError(f"run {run_id!r}: not for this caller")
