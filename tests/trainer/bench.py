"""A trainer in this process, its service, and those who use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.trainer.configs import a_config
from trio_cogment.access import AccessControl
from trio_cogment.api.trainer import trainer_pb2
from trio_cogment.api.trainer.trainer_pb2 import (
    CancelRunRequest,
    ControlEvent,
    ListRunsRequest,
    PublishTelemetryResponse,
    RegisterWorkerRequest,
    RunEpisode,
    RunRecord,
    RunStatus,
    RunStep,
    StreamEpisodesRequest,
    StreamStepsRequest,
    SubmitRunRequest,
    WatchRunsRequest,
)
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import CogmentError, RpcError, StatusCode
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.rpc import CallOpener, ClientCall, InProcessChannel, methods_of
from trio_cogment.trainer import Dispatcher, RunOrder, RunSink, Trainer, open_trainer, trainer_services

METHODS = methods_of(trainer_pb2.DESCRIPTOR.services_by_name["TrainerService"])
STATUS = {status: RunStatus.Name(status).removeprefix("RUN_STATUS_") for status in RunStatus.values()}
INLINE = Host(runner=inline_runner)


class Client:
    """Calls the service."""

    def __init__(self, channel: CallOpener) -> None:
        self.channel = channel

    async def ask(self, method: str, request: Any, **options: Any) -> Any:
        return await self.channel.unary(METHODS[method], request, **options)

    def open(self, method: str, **options: Any) -> ClientCall:
        return self.channel.call(METHODS[method], **options)

    async def submit(self, run_id: str = "", **changes: Any) -> str:
        config = a_config(**{"entry_point": "external", **changes})
        reply = await self.ask("SubmitRun", SubmitRunRequest(run_id=run_id, config_json=config))
        return str(reply.run_id)

    async def register(self, run_id: str, worker_id: str = "w", **options: Any) -> str:
        request = RegisterWorkerRequest(run_id=run_id, worker_id=worker_id, proto_version="MOSAIC/1.0", **options)
        reply = await self.ask("RegisterWorker", request)
        return str(reply.session_token)

    async def cancel(self, run_id: str) -> None:
        await self.ask("CancelRun", CancelRunRequest(run_id=run_id))

    async def runs(self, *statuses: RunStatus) -> list[RunRecord]:
        return list((await self.ask("ListRuns", ListRunsRequest(status_filter=statuses))).runs)

    async def record(self, run_id: str) -> RunRecord:
        return next(record for record in await self.runs() if record.run_id == run_id)

    async def status(self, run_id: str) -> str:
        return STATUS[(await self.record(run_id)).status]

    async def publish(
        self, messages: Iterable[RunStep | RunEpisode], *, token: str = "", kind: str = "Steps"
    ) -> PublishTelemetryResponse:
        metadata = {"session-token": token} if token else {}
        async with self.open(f"PublishRun{kind}", metadata=metadata) as call:
            try:
                for message in messages:
                    await call.send(message)
                await call.done_sending()
            except RpcError:
                pass  # the status says more
            reply: PublishTelemetryResponse = await call.receive()
            assert await call.receive() is None
            return reply

    @asynccontextmanager
    async def stream(self, run_id: str, since: int = 0, kind: str = "Steps") -> AsyncIterator[ClientCall]:
        request = (StreamStepsRequest if kind == "Steps" else StreamEpisodesRequest)(run_id=run_id, since_seq=since)
        async with self.open(f"StreamRun{kind}") as call:
            await call.send(request)
            await call.done_sending()
            yield call

    async def all_of(self, run_id: str, since: int = 0, kind: str = "Steps") -> list[int]:
        """Return the numbers of what a stream has until its end."""
        async with self.stream(run_id, since, kind) as call:
            return [message.seq_id async for message in call]

    @asynccontextmanager
    async def watch(self, since: int = 0, *statuses: RunStatus) -> AsyncIterator[ClientCall]:
        async with self.open("WatchRuns") as call:
            await call.send(WatchRunsRequest(since_seq=since, status_filter=statuses))
            await call.done_sending()
            yield call

    @asynccontextmanager
    async def control(self, token: str | None = None, **metadata: str) -> AsyncIterator[ClientCall]:
        more = {} if token is None else {"session-token": token}
        async with self.open("ControlStream", metadata=metadata | more) as call:
            yield call

    async def command(self, run_id: str, **event: Any) -> list[ControlEvent]:
        """Give one command as a controller; return what came back until the stream was over."""
        async with self.control() as call:
            await call.send(ControlEvent(run_id=run_id, **event))
            await call.done_sending()
            return [event async for event in call]


class FakeDispatcher:
    """Starts nothing, as it is told."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.orders: list[RunOrder] = []
        self.stopped: list[str] = []
        self.refuses: CogmentError | None = None
        self.stop_seconds = 0.0
        self.recovered: list[str] = []
        self.forgotten: list[str] = []
        self.closed = False

    async def recover(self, orders: Sequence[RunOrder]) -> None:
        await trio.lowlevel.checkpoint()
        self.recovered += [order.run_id for order in orders]

    async def forget(self, run_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self.forgotten.append(run_id)

    async def start(self, order: RunOrder, sink: RunSink) -> None:
        await trio.lowlevel.checkpoint()
        if order.config.external:
            return
        if self.refuses is not None:
            raise self.refuses
        self.started.append(order.run_id)
        self.orders.append(order)

    async def stop(self, run_id: str) -> None:
        await trio.sleep(self.stop_seconds)
        self.stopped.append(run_id)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


@asynccontextmanager
async def serving(
    storage: str = "memory:",
    dispatcher: Dispatcher | None = None,
    host: Host = INLINE,
    access: AccessControl | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Client, Trainer]]:
    config = TrainerConfig(**settings)
    async with (
        open_trainer(storage, config=config, host=host, dispatcher=dispatcher, full=False, access=access) as trainer,
        InProcessChannel(trainer_services(trainer, address="127.0.0.1:50055")) as channel,
    ):
        yield Client(channel), trainer


def steps(run_id: str, count: int, *, first: int = 0, worker_id: str = "w", numbered: bool = False) -> list[RunStep]:
    return [
        RunStep(run_id=run_id, step_index=n, reward=1.0, worker_id=worker_id, seq_id=n + 1 if numbered else 0)
        for n in range(first, first + count)
    ]


@asynccontextmanager
async def fails(code: StatusCode, text: str = "") -> AsyncIterator[Any]:
    with pytest.raises(RpcError) as caught:
        yield caught
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value
