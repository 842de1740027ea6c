"""`TrainerClient`: what clients of a trainer do with runs, in process or over the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from google.protobuf.message import Message

from trio_cogment.api.trainer import trainer_pb2
from trio_cogment.api.trainer.trainer_pb2 import (
    CancelRunRequest,
    ControlEvent,
    HealthCheckRequest,
    HealthCheckResponse,
    ListRunsRequest,
    RunRecord,
    StreamEpisodesRequest,
    StreamStepsRequest,
    SubmitRunRequest,
    WatchRunsRequest,
)
from trio_cogment.base.errors import NotFoundError
from trio_cogment.rpc import CallOpener, ClientCall, methods_of

_METHODS = methods_of(trainer_pb2.DESCRIPTOR.services_by_name["TrainerService"])
#: Metadata: what controllers have to know, where the trainer asks for it.
_SECRET = "controller-secret"


class TrainerClient:
    """A client of a trainer.

    Args:
        opener: a channel to it.
        secret: of its controllers, where it asks for one.
        timeout_seconds: of calls that are answered at once; None: they wait indefinitely.

    Every method raises `RpcError` when the trainer refuses or cannot be reached.
    """

    def __init__(self, opener: CallOpener, *, secret: str = "", timeout_seconds: float | None = None) -> None:
        self._opener = opener
        self._metadata = {_SECRET: secret} if secret else {}
        self._timeout_seconds = timeout_seconds

    async def _ask(self, method: str, request: Message) -> Message:
        reply: Message = await self._opener.unary(_METHODS[method], request, timeout=self._timeout_seconds)
        return reply

    async def submit(self, config_json: str, *, run_id: str = "") -> str:
        """Submit a run; return its id.

        Args:
            config_json: its configuration.
            run_id: the id to use; empty: the trainer makes one.
        """
        reply = await self._ask("SubmitRun", SubmitRunRequest(run_id=run_id, config_json=config_json))
        assert isinstance(reply, trainer_pb2.SubmitRunResponse)
        return reply.run_id

    async def cancel(self, run_id: str) -> None:
        """Cancel a run; return when its processes and trials have ended."""
        await self._ask("CancelRun", CancelRunRequest(run_id=run_id))

    async def runs(self, statuses: Iterable[int] = (), *, run_ids: Iterable[str] = ()) -> list[RunRecord]:
        """Return runs.

        Args:
            statuses: those in these states, values of `RunStatus`; by default in all.
            run_ids: only these, with the detail of their failures; by default all.
        """
        request = ListRunsRequest(status_filter=list(statuses), run_ids=run_ids)  # type: ignore[arg-type]  # enum values
        reply = await self._ask("ListRuns", request)
        assert isinstance(reply, trainer_pb2.ListRunsResponse)
        return list(reply.runs)

    async def run(self, run_id: str) -> RunRecord:
        """Return a run, with the detail of its failure.

        Raises:
            NotFoundError: there is no such run.
        """
        for record in await self.runs(run_ids=[run_id]):  # the published trainer returns all
            if record.run_id == run_id:
                return record
        raise NotFoundError(f"run_id: there is no run {run_id!r}")

    async def health(self) -> HealthCheckResponse:
        """Return how the trainer is."""
        reply = await self._ask("GetHealth", HealthCheckRequest())
        assert isinstance(reply, HealthCheckResponse)
        return reply

    def watch(self, *, since: int = 0, statuses: Iterable[int] = ()) -> AbstractAsyncContextManager[ClientCall]:
        """Watch all runs: `async with client.watch() as watch:`; `async for record in watch` yields `RunRecord`.

        Args:
            since: the last number (`seq_id`) that is known; 0: first the runs as they are.
            statuses: only runs in these states, values of `RunStatus`; by default in all.
        """
        request = WatchRunsRequest(since_seq=since, status_filter=list(statuses))  # type: ignore[arg-type]  # enum values
        return self._stream("WatchRuns", request)

    def steps(self, run_id: str, *, since: int = 0) -> AbstractAsyncContextManager[ClientCall]:
        """Follow the steps of a run until it has ended; iterating yields `RunStep`.

        Args:
            run_id: which run.
            since: the last number (`seq_id`) that is known.
        """
        return self._stream("StreamRunSteps", StreamStepsRequest(run_id=run_id, since_seq=since))

    def episodes(self, run_id: str, *, since: int = 0) -> AbstractAsyncContextManager[ClientCall]:
        """Follow the episodes of a run, as `steps` does; iterating yields `RunEpisode`."""
        return self._stream("StreamRunEpisodes", StreamEpisodesRequest(run_id=run_id, since_seq=since))

    @asynccontextmanager
    async def _stream(self, method: str, request: Message) -> AsyncIterator[ClientCall]:
        async with self._opener.call(_METHODS[method]) as call:
            await call.send(request)
            await call.done_sending()
            yield call

    async def pause(self, run_id: str) -> None:
        """Pause a run; return when it is paused."""
        await self._command(ControlEvent(run_id=run_id, pause=True))

    async def resume(self, run_id: str) -> None:
        """Let a run go on."""
        await self._command(ControlEvent(run_id=run_id, resume=True))

    async def limit_rate(self, run_id: str, max_rate_hz: int) -> None:
        """Limit the steps of a run's workers, or the starts of its trials, a second; 0: no limit."""
        await self._command(ControlEvent(run_id=run_id, max_rate_hz=max_rate_hz))

    async def _command(self, event: ControlEvent) -> None:
        method = _METHODS["ControlStream"]
        async with self._opener.call(method, metadata=self._metadata, timeout=self._timeout_seconds) as call:
            await call.send(event)
            await call.done_sending()
            async for _ in call:
                pass  # until it is carried out
