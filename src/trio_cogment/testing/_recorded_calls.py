"""Calls whose ends are recorded in the history, over any transport."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any

from google.protobuf.message import Message
from typing_extensions import override

from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import CallOpener, ClientCall, Metadata, MetadataLike, Method, SharedMessage
from trio_cogment.rpc.calls import Consumer
from trio_cogment.testing.history import History


class RecordedCalls(CallOpener, AbstractAsyncContextManager["RecordedCalls"]):
    """A channel, or any other opener of calls, that records how each call ends, for a checker.

    Use it as the opener itself, also as an `async with` block where the opener is one.

    Args:
        opener: makes the calls.
        history: where they are recorded: "call" when one is opened, "status" each time its caller is told how it ended,
            "call left" when its block is over.
        who: the name of the caller.
    """

    def __init__(self, opener: CallOpener, history: History, who: str) -> None:
        self._opener = opener
        self._history = history
        self._who = who

    async def __aenter__(self) -> RecordedCalls:
        if isinstance(self._opener, AbstractAsyncContextManager):
            await self._opener.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        handled: bool | None = None
        if isinstance(self._opener, AbstractAsyncContextManager):
            handled = await self._opener.__aexit__(kind, value, traceback)
        return handled

    @override
    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ClientCall:
        call = self._opener.call(
            method, metadata=metadata, timeout=timeout, wait_for_ready=wait_for_ready, compression=compression
        )
        notes = _Notes(self._history, self._who, len(self._history))  # which no other call of this history has
        (trial_id,) = Metadata(metadata).texts(TRIAL_ID)[:1] or [""]
        notes.record("call", method=method.path.rpartition("/")[2], trial=trial_id)
        return _RecordedCall(call, notes)


class _Notes:
    """What one call's caller has been told."""

    def __init__(self, history: History, who: str, number: int) -> None:
        self._history = history
        self._who = who
        self._number = number
        self._told: str | None = None
        self.consumed = False

    def record(self, what: str, **details: Any) -> None:
        self._history.record(self._who, what, number=self._number, **details)

    def status(self, error: RpcError | None, *, again: bool = False) -> None:
        """Record the status that the caller gets; a later request for it gets the same."""
        code = "OK" if error is None else error.code.name
        if not again or code != self._told:
            self._told = code
            self.record("status", code=code)

    @contextmanager
    def telling(self) -> Iterator[None]:
        try:
            yield
        except RpcError as error:
            self.status(error, again=True)
            raise


class _RecordedConsumer:
    def __init__(self, consumer: Consumer, notes: _Notes) -> None:
        self._consumer = consumer
        self._notes = notes
        self._over = False

    def on_message(self, message: Any) -> None:
        if self._over:
            self._notes.record("message after status")
        self._consumer.on_message(message)

    def on_end(self, error: RpcError | None) -> None:
        self._over = True
        self._notes.status(error)
        self._consumer.on_end(error)


class _RecordedCall(ClientCall):
    def __init__(self, call: ClientCall, notes: _Notes) -> None:
        self._call = call
        self._notes = notes
        self.method = call.method

    async def __aenter__(self) -> _RecordedCall:
        with self._notes.telling():
            await self._call.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return await self._call.__aexit__(kind, value, traceback)
        finally:
            self._notes.record("call left", consumed=self._notes.consumed)

    @property
    def initial_metadata(self) -> Metadata | None:
        return self._call.initial_metadata

    @property
    def trailing_metadata(self) -> Metadata | None:
        return self._call.trailing_metadata

    async def wait_initial_metadata(self) -> Metadata:
        with self._notes.telling():
            return await self._call.wait_initial_metadata()

    async def receive(self) -> Any:
        with self._notes.telling():
            message = await self._call.receive()
        if message is None:
            self._notes.status(None, again=True)
        return message

    async def send(self, message: Message) -> None:
        await self._call.send(message)

    def send_nowait(self, message: Message) -> None:
        self._call.send_nowait(message)

    async def send_together(self, messages: Sequence[Message | SharedMessage]) -> None:
        await self._call.send_together(messages)

    def send_together_nowait(self, messages: Sequence[Message | SharedMessage]) -> None:
        self._call.send_together_nowait(messages)

    def set_consumer(self, consumer: Consumer) -> None:
        self._notes.consumed = True
        self._call.set_consumer(_RecordedConsumer(consumer, self._notes))

    def pause(self) -> None:
        self._call.pause()

    def resume(self) -> None:
        self._call.resume()

    async def done_sending(self) -> None:
        await self._call.done_sending()

    def cancel(self) -> None:
        self._call.cancel()
